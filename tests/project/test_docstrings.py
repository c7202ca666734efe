"""Docstrings of the public names follow numpydoc."""

import doctest
import importlib
import inspect
import sys

import pytest

from multicentre.estimator.base import FederatedEstimator

validate = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed").validate

PACKAGES = [
    "multicentre",
    "multicentre.boosting",
    "multicentre.clustering",
    "multicentre.data",
    "multicentre.datasets",
    "multicentre.extend",
    "multicentre.linkage",
    "multicentre.multiview",
    "multicentre.phenotyping",
    "multicentre.privacy",
    "multicentre.reports",
    "multicentre.studies",
    "multicentre.survival",
    "multicentre.validation",
    "multicentre_papers.baselines",
    "multicentre_papers.published",
]
# Sections in numpydoc's order (GL07) and with content (GL03 is the formatter's business); parameters that exist, in
# order, with type and description; values returned and yielded with a description.
EVERYWHERE = {"GL07", "GL08", "PR02", "PR03", "PR04", "PR07", "RT03", "SS01", "YD01"}
# An estimator documents every parameter, or names the class that does, and has an example that runs.
ESTIMATORS = EVERYWHERE | {"PR01", "EX01"}


def public_names():
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield from (f"{package}.{name}" for name in module.__all__ if callable(getattr(module, name)))


def find(name):
    package, _, last = name.rpartition(".")
    return getattr(importlib.import_module(package), last)


def is_estimator(thing):
    return inspect.isclass(thing) and issubclass(thing, FederatedEstimator) and not inspect.isabstract(thing)


def public_estimators():
    for name in public_names():
        if is_estimator(find(name)):
            yield pytest.param(name, marks=pytest.mark.slow) if name.startswith("multicentre_papers.") else name


@pytest.mark.parametrize("name", list(public_names()))
def test_docstring_is_complete(name):
    thing = find(name)
    wanted = ESTIMATORS if is_estimator(thing) else EVERYWHERE
    if "arameters and attributes are those of" in " ".join(thing.__doc__.split()):
        wanted = wanted - {"PR01"}
    assert [message for code, message in validate(name)["errors"] if code in wanted] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(public_estimators()))
def test_example_runs_in_a_fresh_interpreter(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(find(name)), {}, name, None, None)
    assert example.examples
    failures = doctest.DocTestRunner(verbose=False, optionflags=flags).run(example, out=sys.stdout.write).failed
    assert not failures
