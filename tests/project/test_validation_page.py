"""The validation dossier is what its record says, covers every file of oracle tests, and holds no failure."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("validation", ROOT / "docs" / "validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
RECORD = json.loads(SCRIPT.RECORD.read_text(encoding="utf-8"))


def test_the_page_is_what_the_record_gives():
    assert SCRIPT.PAGE.read_text(encoding="utf-8") == SCRIPT.page(RECORD)


def test_every_file_of_oracle_tests_is_in_the_dossier():
    files = {path.name for path in (ROOT / "tests" / "oracles").glob("test_*.py")}
    assert SCRIPT.FILES.keys() == files
    assert {test["file"] for test in RECORD["tests"]} == files


def test_no_comparison_failed_or_exceeded_its_tolerance():
    assert [test["test"] for test in RECORD["tests"] if test["failed"] or test["share_of_tolerance"] > 1] == []
