"""What a part remembers between steps is its declared memory, or follows from it, or only makes it refuse.

Sites may refuse what others accept. A part that kept anything else would then answer differently under one transcript,
and a masked sum could be opened. So every attribute that a method of a site part sets is declared, or named here with a
reason.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import pkgutil

import pytest

import multicentre as mc
from multicentre.core.steps import SitePart

# Changes of these are entered in the transcript (`federation.step_runs`); `used` changes with `data`, `within`.
ENTERED = {"state", "within", "data", "used"}
# Set by the constructor and never again.
FIXED = {"site", "_review", "_causes", "fields", "_identity", "_peers", "_min_sites", "_n_colluding"}
# Computed from the state, the records and the ask alone, and dropped when the state is replaced.
DERIVED = {
    "_patients", "_tensor", "_behind", "_behind_places", "_rows", "_scaled", "_views", "_losses", "_opinions", "_wrong",
    "_codes", "_filled", "_keys", "_sorted", "_records", "_cached", "_predicted", "_checked",
}  # fmt: skip
# Set together with one of ENTERED, in the same step.
WITH_STATE = {"_handling", "_everyone", "_means", "_parts", "_weigh", "_loss", "_roles", "design", "table", "_aside"}
# A request or a number of requests, by which later requests are refused; no answer depends on them.
REFUSING = {
    "_n_questions", "_first_requests", "_profiled", "_about_site", "_apart",
    "_unit", "_grown", "_before", "_starts", "_settings", "_answered_purpose", "_first_request",
    "_thresholds", "_previous_table", "_ranked",
}  # fmt: skip
# Masks and labels, which the sites make up and sign themselves.
KEYS = {"_nonce", "_used_names", "_agreement"}
KNOWN = ENTERED | FIXED | DERIVED | WITH_STATE | REFUSING | KEYS


def parts_below(kind):
    return {kind}.union(*(parts_below(child) for child in kind.__subclasses__()))


def classes_of_parts():
    for one in pkgutil.walk_packages(mc.__path__, "multicentre."):
        if not one.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # parts of extras that are not installed
                importlib.import_module(one.name)
    parts = {part for part in parts_below(SitePart) if part.__module__.startswith("multicentre.")}
    classes = {kind for part in parts for kind in part.__mro__ if kind.__module__.startswith("multicentre.")}
    return sorted(classes, key=lambda kind: kind.__qualname__)


def attributes_set_by(tree):
    """Return the attributes of `self`, or of a `part` given to a function, that code assigns."""
    owners = ("self", "part")
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if isinstance(node.value, ast.Name) and node.value.id in owners
    }


@functools.cache
def tree_of(module):
    return ast.parse(inspect.getsource(module))


def source_of(kind):
    classes = [node for node in ast.walk(tree_of(inspect.getmodule(kind))) if isinstance(node, ast.ClassDef)]
    (found,) = (node for node in classes if node.name == kind.__name__)
    return found


CLASSES = classes_of_parts()
every_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__qualname__)


@every_class
def test_a_part_keeps_nothing_but_its_declared_memory(kind):
    declared = KNOWN | set(getattr(kind, "session_memory", ()))
    assert attributes_set_by(source_of(kind)) <= declared


@every_class
def test_no_function_beside_a_part_sets_more_of_it(kind):
    functions = [node for node in tree_of(inspect.getmodule(kind)).body if isinstance(node, ast.FunctionDef)]
    assert set().union(*map(attributes_set_by, functions)) <= KNOWN


def test_the_search_finds_what_a_part_sets():
    class Forgetful(SitePart):
        def remember(self):
            self.told, (self.kept, _) = 1, (2, 3)
            self.number += 1

    assert attributes_set_by(source_of(Forgetful)) == {"told", "kept", "number"}
    assert len(CLASSES) > 40
