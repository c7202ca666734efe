"""The README's examples work as they stand."""

import re
import tomllib
from pathlib import Path

from multicentre.studies.study_file import study_from_mapping

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def read_block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return block


def test_python_example_runs() -> None:
    names: dict[str, object] = {}
    exec(compile(read_block("python"), "README.md", "exec"), names)
    assert {"federation", "model"} <= names.keys()


def test_study_is_valid() -> None:
    study = study_from_mapping(tomllib.loads(read_block("toml")))
    assert set(study.sites) == {"lyon", "turin", "porto"}
    assert study.privacy.secure_sum
