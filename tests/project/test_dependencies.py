"""Declared dependencies: everything that a distribution imports is named in its own metadata."""

import ast
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from multicentre.studies.installation import BASE, declared_packages

ROOT = Path(__file__).parents[2]
SOURCES = {
    "multicentre": ROOT / "src" / "multicentre",
    "multicentre-sites": ROOT / "sites" / "src" / "multicentre_sites",
}
# The rest of pydantic, which pins it and documents imports from it; and pytest, which alone loads our plugin for it.
FREE = sys.stdlib_module_names | {"multicentre", "multicentre_sites", "pydantic_core", "pytest"}


def imported_at(tree):
    """Names of the top-level packages that a module imports, and whether each import runs with the module itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((alias.name.partition(".")[0], node in tree.body) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0], node in tree.body


@cache
def imports(distribution="multicentre"):
    """Third-party packages by module of ours that imports them."""
    source = SOURCES[distribution]
    return [
        (str(path.relative_to(source)), name, at_once)
        for path in sorted(source.rglob("*.py"))
        for name, at_once in imported_at(ast.parse(path.read_text()))
        if name not in FREE
    ]


@cache
def distributions(package):
    """Canonical names of the distributions that provide a top-level package."""
    return {canonicalize_name(name) for name in packages_distributions().get(package, [package])}


def undeclared(imported, declared):
    """Imports of installed packages that no declared distribution provides."""
    return sorted({(path, name) for path, name, _ in imported if not declared & distributions(name)})


@pytest.mark.parametrize("distribution", SOURCES)
def test_every_imported_package_is_declared(distribution):
    # click came with typer until typer brought a copy, and `multicentre --help` failed in every new environment.
    declared = {name for names in declared_packages(distribution).values() for name in names}
    assert undeclared(imports(distribution), declared) == []


def test_every_declared_package_of_real_sites_is_imported():
    imported = {name for _, package, _ in imports("multicentre-sites") for name in distributions(package)}
    assert set(declared_packages("multicentre-sites")[BASE]) - {"multicentre"} <= imported


def test_the_check_reports_a_package_that_only_another_one_brings():
    assert undeclared([("cli/console.py", "click", True)], {"typer"}) == [("cli/console.py", "click")]


@pytest.mark.parametrize("extra", sorted(declared_packages().keys() - {BASE}))
def test_packages_of_extras_are_imported_where_they_are_used(extra):
    of_extra = set(declared_packages()[extra]) - set(declared_packages()[BASE])
    at_once = {path for path, name, now in imports() if now and of_extra & distributions(name)}
    # Modules that exist for one extra import it at once; they are imported only where that extra is asked for.
    allowed = ("survival/learners/networks",)
    assert all(path.startswith(allowed) for path in at_once)
