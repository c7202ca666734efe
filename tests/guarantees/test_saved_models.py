"""A model file that is not what was written gives an integrity error, never a crash or another class."""

import json

import numpy as np
import pytest

from multicentre.estimator import FederatedEstimator
from multicentre.federation.errors import IntegrityError

GOOD = {"estimator": "multicentre.estimator:FederatedEstimator", "parameters": {}, "facts": {}, "history": []}


def saved(folder, description, arrays=None):
    (folder / "model.json").write_text(description if isinstance(description, str) else json.dumps(description))
    if isinstance(arrays, bytes):
        (folder / "model.npz").write_bytes(arrays)
    else:
        np.savez(folder / "model.npz", **(arrays or {"loadings": np.ones(2)}))
    return folder


@pytest.mark.parametrize(
    "description",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        GOOD | {"estimator": "os:system"},
        GOOD | {"estimator": "subprocess:Popen"},
        GOOD | {"estimator": "multicentre.estimator:importlib"},
        GOOD | {"estimator": "multicentre.nowhere:Model"},
        GOOD | {"estimator": "multicentre.estimator:Figure"},
        GOOD | {"estimator": 3},
    ],
)
def test_a_strange_description_is_refused(tmp_path, description):
    with pytest.raises(IntegrityError):
        FederatedEstimator.load(saved(tmp_path, description))


@pytest.mark.parametrize(
    "arrays", [b"", b"PK\x03\x04torn", b"\x80\x04}.", {"rows": np.array([{"a": 1}], dtype=object)}]
)
def test_strange_arrays_are_refused(tmp_path, arrays):
    with pytest.raises(IntegrityError, match="the model cannot be read"):
        FederatedEstimator.load(saved(tmp_path, GOOD, arrays))


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(IntegrityError, match="cannot be read"):
        FederatedEstimator.load(tmp_path / "nowhere")
