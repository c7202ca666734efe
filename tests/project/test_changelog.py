"""Fragments of the changelog can be collected, and lose nothing."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("collect", ROOT / "changelog.d" / "collect.py")
collect = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(collect)


def test_every_fragment_is_as_the_readme_says():
    assert set(collect.fragments()) == set(collect.HEADINGS)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.new.md", "- x\n", "the kind must be one of"),
        ("a.added.md", "x\n", "start with"),
        ("a.fixed.md", "", "start"),
    ],
)
def test_another_fragment_is_refused(name, text, reason, tmp_path, monkeypatch):
    (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(collect, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=reason):
        collect.fragments()


def test_fragments_stand_in_their_part_of_the_newest_section():
    changelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Old.\n\n## [0.1.0]\n\n### Fixed\n\n- Older.\n"
    collected = collect.collect(changelog, {"added": ["- New,\n  long.\n"], "fixed": ["- Mended.\n"], "removed": []})
    assert collected == (
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New,\n  long.\n- Old.\n\n### Fixed\n\n- Mended.\n"
        "\n## [0.1.0]\n\n### Fixed\n\n- Older.\n"
    )


def test_the_headings_are_those_of_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert all(f"\n{heading}\n\n" in text for heading in collect.HEADINGS.values())
