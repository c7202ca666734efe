"""Promises of the threat model name the tests that attack them, and those tests exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THREAT_MODEL = ROOT / "docs" / "threat-model.md"
PAGES = [THREAT_MODEL, ROOT / "SECURITY.md", ROOT / "README.md"]
_ROW = re.compile(r"^\| (P\d+) \|[^|]+\|(.+)\|$", re.MULTILINE)
_REFERENCE = re.compile(r"\((P\d+(?:, P\d+)*)\)")


def attacks():
    """Return the tests named in each row of the table of promises: paths, each with a function or without."""
    tests = {}
    for promise, cell in _ROW.findall(THREAT_MODEL.read_text()):
        assert promise not in tests, f"{promise} has two rows"
        tests[promise] = []
        file = ""
        for name in re.findall(r"`([^`]+)`", cell):
            path, _, function = name.partition("::")
            file = path or file
            tests[promise].append((file, function))
    return tests


def functions_of(file):
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def cited(page):
    return {one for group in _REFERENCE.findall(page.read_text()) for one in group.split(", ")}


@pytest.mark.parametrize("promise", sorted(attacks(), key=lambda name: int(name[1:])))
def test_a_promise_names_tests_that_exist(promise):
    tests = attacks()[promise]
    assert tests
    for file, function in tests:
        assert file.startswith(("tests/", "papers/tests/", "sites/tests/")), f"{promise}: {file}"
        assert any(name.startswith("test_") for name in functions_of(file)), f"{promise}: {file} holds no test"
        assert not function or function in functions_of(file), f"{promise}: {file} has no {function}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_cites_promises_of_the_table(page):
    assert cited(page) <= attacks().keys()


def test_every_promise_is_made_in_the_threat_model():
    assert attacks().keys() == cited(THREAT_MODEL)


def test_the_search_finds_rows_and_references():
    assert len(attacks()) > 40
    assert cited(THREAT_MODEL)
