"""Every error that the package raises has an entry in the documentation, and no entry outlives its error."""

import inspect
import re
from pathlib import Path

import pytest

from multicentre import errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRIES = {entry[:5]: entry for entry in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.MulticentreError)]
FAMILIES = [kind for kind in KINDS if kind is not errors.MulticentreError]


def test_codes_are_unique_and_documented() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(codes) > 5
    assert sorted(codes) == sorted(ENTRIES)


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.code)
def test_entry_names_class_exit_code_cause_and_remedy(kind: type[errors.MulticentreError]) -> None:
    entry = ENTRIES[kind.code]
    assert f"`{kind.__name__}`" in entry
    assert f"Exit code {kind.exit_code}." in entry
    assert "**Cause.**" in entry
    assert "**Remedy.**" in entry
    assert f"| {kind.exit_code} |" in PAGE
