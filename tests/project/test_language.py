"""The project is written in plain English: no banned word, and docstrings begin with a verb or a noun phrase."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = (ROOT, ROOT / "papers", ROOT / "sites")
SOURCES = sorted(path for part in PARTS for path in (part / "src").rglob("*.py"))
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for name in ("docs", "papers", "sites") for path in (ROOT / name).rglob("*.md"))]
)

# Each is idiomatic nowhere, or has a plain word that the rest of the package uses.
BANNED = {
    r"\banew\b": "again",
    r"\bbeside\b(?!s)": "next to, alongside",
    r"\bby sums\b": "via sums",
    r"\bheed(?:s|ed)?\b": "follow, obey",
    r"\bin clear\b": "unmasked, unencrypted",
    r"\blikewise\b": "similarly",
    r"\bput together\b": "combined",
    r"\bgo(?:es)? astray\b": "is lost, is unreliable",
    r"\bhears? of\b": "receives",
    r"\bnought\b": "zero",
    r"\bmend(?:s|ed|ing)?\b": "fix, correct, repair",
    r"\bfolks?\b": "people",
    r"\bis no plain value\b": "cannot be serialised",
}
# A docstring's first line names the thing or tells what to do; it is no clause.
CLAUSE = re.compile(r"(?:What|Who|Whose|Whether|How|Which|Why|Tells?|That)\b")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside code blocks."""
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def occurrences(lines: Iterator[tuple[int, str]], path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()!r}; write {plain}"
        for number, line in lines
        for pattern, plain in BANNED.items()
        for match in re.finditer(pattern, line, re.IGNORECASE)
    ]


def test_no_source_file_has_a_banned_word() -> None:
    found = [
        one
        for path in SOURCES
        for one in occurrences(iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)), path)
    ]
    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_banned_word(page: Path) -> None:
    found = occurrences(prose(page), page)
    assert found == [], "\n" + "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun_phrase() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if CLAUSE.match(first):
                found.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {first}")
    assert found == [], "\n" + "\n".join(found)


CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+(?:, _?[A-Z][A-Z0-9_]+)*(?:: [\w\[\]]+)? = -?[0-9]")


def test_numeric_constants_carry_a_reason() -> None:
    """A reason is a comment on the line or above its group, or a string below it."""
    found = []
    for path in SOURCES:
        has_reason = False
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if not CONSTANT.match(line):
                has_reason = line.startswith("#")
            elif not (has_reason or "#" in line or "".join(lines[number : number + 1]).startswith('"""')):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line}")
    assert found == [], "\n" + "\n".join(found)


# Participles say nothing about the content of a variable.
UNTELLING = {"asked", "found", "given", "kept", "known", "own", "shown", "told"}


@pytest.mark.slow
def test_variables_are_nouns_for_their_content() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_variable = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_variable else node.arg if isinstance(node, ast.arg) else ""
            if name in UNTELLING:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert found == [], "\n" + "\n".join(found)
