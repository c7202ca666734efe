"""A saved model with a fact of another type: loading refuses it, or every use of the model works."""

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
    pytest.mark.slow,
    # The toy and the choice of a covariate have no files.
    each_of(name for name in CASES if name not in ("toy-mean", "suggest-stratifier")),
    pytest.mark.filterwarnings("ignore"),
]
SECTIONS = ("facts", "history", "missing", "left_out", "lost", "privacy")
OTHERS = (None, True, "x", [], {}, [[1]], 1.5)
MOST_ENTRIES = 2  # of a list or mapping; the others have the same type


def places_of(value, path=()):
    """Yield the path of a value and of those that it holds."""
    yield path
    inner = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(inner) if len(path) < 2 and path[:1] == ("facts",) else list(inner)[:MOST_ENTRIES]:
        yield from places_of(value[key], (*path, key))


def replaced(content, path, new):
    """Return a copy of JSON content with another value at a path."""
    copy = inner = json.loads(json.dumps(content))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


def use(model):
    """Call what prints and tabulates a model; an error of the package is an answer."""
    for one in (model.summary, model.to_frame, model.result_tables, model.answer, model.main_figure, model.__str__):
        with contextlib.suppress(MulticentreError):
            one()
    repr(model)


def test_another_type_of_any_fact_is_refused_or_harmless(name, tmp_path):
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with federate(case.sites(), policy=case.policy, secure_sum=False) as federation:
            case.make().fit(federation).save(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    packed = (tmp_path / "model.npz").read_bytes()
    del content["sha256"]
    use(FederatedEstimator.load(tmp_path))
    broken = {}
    for section in SECTIONS:
        for path in places_of(content.get(section), (section,)):
            for new in OTHERS if len(path) > 1 else ():
                if type(new) is type(functools.reduce(lambda inner, key: inner[key], path, content)):
                    continue
                copy = replaced(content, path, new)
                (tmp_path / "model.json").write_text(json.dumps({**copy, "sha256": digest_of(copy, packed)}))
                try:
                    use(FederatedEstimator.load(tmp_path))
                except MulticentreError:
                    continue
                except Exception as error:
                    broken[f"{'.'.join(map(str, path))} = {new!r}"] = f"{type(error).__name__}: {error}"
    assert not broken
