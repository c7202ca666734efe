"""The examples of README, and of the page of study files, work as they stand."""

import re
import tomllib
from pathlib import Path

import pytest

from multicentre.studies.study_file import study_from_mapping

ROOT = Path(__file__).resolve().parents[2]


def read_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


# The three files lack some ages.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python_example_prints_the_result_below_it(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,), (printed,) = read_blocks("README.md", "python"), read_blocks("README.md", "text")
    exec(compile(code, "README.md", "exec"), {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [line.split() for line in printed.splitlines()]


def test_study_is_valid() -> None:
    study = study_from_mapping(tomllib.loads(read_blocks("docs/study-file.md", "toml")[0]))
    assert set(study.sites) == {"lyon", "turin"}
    assert study.privacy.secure_sum
