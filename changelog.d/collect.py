"""Move the fragments of changelog.d into the section [Unreleased] of CHANGELOG.md."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
CHANGELOG = FOLDER.parent / "CHANGELOG.md"
HEADINGS = {
    "upgrade": "Before you upgrade:",
    "added": "### Added",
    "changed": "### Changed",
    "fixed": "### Fixed",
    "removed": "### Removed",
}
_MAX_LENGTH = 120  # characters per line, as in all pages


def fragments() -> dict[str, list[Path]]:
    """Return the fragments by kind, sorted by name; raise ValueError for one that is not as the README says."""
    by_kind: dict[str, list[Path]] = {kind: [] for kind in HEADINGS}
    for path in sorted(FOLDER.glob("*.md")):
        if path.name == "README.md":
            continue
        kind, lines = path.stem.rpartition(".")[2], path.read_text(encoding="utf-8").splitlines()
        if kind not in by_kind:
            raise ValueError(f"{path.name}: the kind must be one of {', '.join(HEADINGS)}; got {kind!r}")
        if not lines or not all(line.startswith(("- ", "  ")) and len(line) <= _MAX_LENGTH for line in lines):
            raise ValueError(f"{path.name}: each line must start with '- ' or two spaces, with at most {_MAX_LENGTH}")
        by_kind[kind].append(path)
    return by_kind


def collect(changelog: str, texts: dict[str, list[str]]) -> str:
    """Return the changelog with the texts of each kind after their heading in the first section of a version."""
    start = changelog.index("## [Unreleased]")
    end = changelog.find("\n## ", start + 1)
    section, rest = changelog[start : end if end > 0 else None], changelog[end:] if end > 0 else ""
    for kind, added in texts.items():
        if not added:
            continue
        heading, joined = HEADINGS[kind], "".join(each.rstrip() + "\n" for each in added)
        if f"\n{heading}\n\n" in section:
            section = section.replace(f"\n{heading}\n\n", f"\n{heading}\n\n{joined}", 1)
        else:
            section = f"{section.rstrip()}\n\n{heading}\n\n{joined}"
    return changelog[:start] + section + rest


def main() -> None:
    """Write CHANGELOG.md, and remove the fragments."""
    try:
        found = fragments()
    except ValueError as error:
        sys.exit(str(error))
    texts = {kind: [path.read_text(encoding="utf-8") for path in paths] for kind, paths in found.items()}
    CHANGELOG.write_text(collect(CHANGELOG.read_text(encoding="utf-8"), texts), encoding="utf-8")
    for paths in found.values():
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    main()
