"""Private names of Flower: in the fast mode only, and each in the table of the page on speed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "sites" / "src" / "multicentre_sites"
INTERNAL = SOURCE / "flower" / "internal"
PAGE = (ROOT / "docs" / "flower-speed.md").read_text(encoding="utf-8")
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def names_in(path):
    """Return the names that a module imports from flwr when it runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in typing]
    plain = [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    assert not [name for name in plain if name.split(".")[0] == "flwr"], f"{path}: import names from flwr"
    return {
        (node.module, alias.name)
        for node in imports
        if node.module and node.module.split(".")[0] == "flwr"
        for alias in node.names
    }


def test_private_names_are_those_of_the_table():
    used = {
        f"{module}.{name}" for path in INTERNAL.glob("*.py") for module, name in names_in(path) if module not in PUBLIC
    }
    rows = re.findall(r"^\| `(flwr\.[^`]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(used)
    assert all(purpose.strip() and route.strip() for _, purpose, route in rows)


def test_everything_else_is_on_public_modules():
    private = {
        f"{path.relative_to(SOURCE)}: {module}.{name}"
        for path in SOURCE.rglob("*.py")
        if INTERNAL not in path.parents
        for module, name in names_in(path)
        if module not in PUBLIC
    }
    assert private == set()


def test_the_error_codes_are_those_of_the_installed_flower():
    constant = pytest.importorskip("flwr.common.constant", reason="flwr is not installed")
    from multicentre_sites.flower.records import LOST, NOT_APPROVED, STOPPED

    codes = constant.ErrorCode
    assert (LOST, NOT_APPROVED, STOPPED) == (codes.MESSAGE_UNAVAILABLE, codes.INVALID_FAB, codes.CLIENT_APP_CRASHED)
