"""A saved model with another fact, of another type or not: loading refuses it, or every use of the model works."""

import contextlib
import functools
import json
import warnings

import pytest

from multicentre.core.model_files import digest_of
from multicentre.errors import MulticentreError
from multicentre.estimator.base import FederatedEstimator
from support.method_cases import CASES, each_of
from support.toy_method import federate

pytestmark = [
    pytest.mark.dealt(3),
    pytest.mark.slow,
    # The toy and the choice of a covariate have no files.
    each_of(name for name in CASES if name not in ("toy-mean", "suggest-stratifier")),
    pytest.mark.filterwarnings("ignore"),
]
SECTIONS = ("facts", "history", "missing", "left_out", "lost", "privacy")
OTHERS = (None, True, "x", [], {}, [[1]], 1.5)
MAX_ENTRIES = 2  # of a list or mapping; the others have the same type


def places_of(value, path=()):
    """Yield the path of a value and of those that it holds."""
    yield path
    inner = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(inner) if len(path) < 2 and path[:1] == ("facts",) else list(inner)[:MAX_ENTRIES]:
        yield from places_of(value[key], (*path, key))


def replaced(content, path, new):
    """Return a copy of JSON content with another value at a path."""
    copy = inner = json.loads(json.dumps(content))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


def alike(value):
    """Return other values of the same type."""
    if isinstance(value, list):
        return ([], value[:1] * 3)
    if isinstance(value, dict):
        return ({}, dict(list(value.items())[1:]))
    numbers = {int: (-1, 10**6), float: (float("nan"), -1e308), str: ("", "a=b")}
    return numbers.get(type(value), ())


def use(model):
    """Call what prints and tabulates a model; an error of the package is an answer."""
    for one in (model.summary, model.to_frame, model.result_tables, model.answer, model.main_figure, model.__str__):
        with contextlib.suppress(MulticentreError):
            one()
    repr(model)


def saved(name, folder):
    """Save the model of a case, and return its description and the bytes of its arrays."""
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with federate(case.sites(), policy=case.policy, secure_sum=False) as federation:
            case.make().fit(federation).save(folder)
    content = json.loads((folder / "model.json").read_text())
    del content["sha256"]
    use(FederatedEstimator.load(folder))
    return content, (folder / "model.npz").read_bytes()


def of_other_types(value):
    return [new for new in OTHERS if type(new) is not type(value)]


@pytest.mark.parametrize("others", [of_other_types, alike], ids=["another type", "the same type"])
def test_another_fact_is_refused_or_harmless(name, others, tmp_path):
    content, packed = saved(name, tmp_path)
    broken = {}
    for section in SECTIONS:
        for path in places_of(content.get(section), (section,)):
            value = functools.reduce(lambda inner, key: inner[key], path, content) if len(path) > 1 else None
            for new in others(value) if len(path) > 1 else ():
                copy = replaced(content, path, new)
                (tmp_path / "model.json").write_text(json.dumps({**copy, "sha256": digest_of(copy, packed)}))
                try:
                    use(FederatedEstimator.load(tmp_path))
                except MulticentreError:
                    continue
                except Exception as error:
                    broken[f"{'.'.join(map(str, path))} = {new!r}"] = f"{type(error).__name__}: {error}"
    assert not broken
