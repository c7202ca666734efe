"""Hazard models: what they predict, and that nothing else than a model passes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS
from multicentre.survival.fitted_models.base import pack, unpack
from multicentre.survival.fitted_models.hazard import HazardModel
from support.examples import examples


def i4(*values):
    return np.array(values, dtype=np.int32)


# Two trees of 2 columns and 3 intervals: the first splits x0 at 0.5, the second the intervals after number 1.
MODEL = HazardModel(
    times=np.array([1.0, 2.0, 4.0]),
    base=np.array([-1.0, -2.0, -1.5]),
    roots=i4(0, 3),
    column=i4(0, -1, -1, 2, -1, -1),
    threshold=np.array([0.5, 0.0, 0.0, 1.0, 0.0, 0.0]),
    left=i4(1, -1, -1, 4, -1, -1),
    right=i4(2, -1, -1, 5, -1, -1),
    value=np.array([0.0, -0.5, 0.5, 0.0, 0.1, 0.7]),
    patients=0,
)


def test_survival_is_the_product_of_what_is_left_of_the_hazards():
    margins = MODEL.base + np.array([[-0.5], [0.5]]) + np.array([0.1, 0.1, 0.7])
    expected = np.cumprod(1 - 1 / (1 + np.exp(-margins)), axis=1)
    np.testing.assert_allclose(MODEL.survival(np.array([[0.5, 9.0], [0.6, 9.0]])), expected, rtol=1e-12)


def test_a_model_without_trees_is_the_start():
    none = dataclasses.replace(
        MODEL, **{name: i4() for name in ("roots", "column", "left", "right")}, threshold=np.zeros(0), value=np.zeros(0)
    ).valid(2)
    expected = np.cumprod(1 - 1 / (1 + np.exp(-MODEL.base)))
    np.testing.assert_allclose(none.survival(np.zeros((1, 2)))[0], expected, rtol=1e-12)


WRONG = {
    "a column that is not": {"column": i4(3, -1, -1, 2, -1, -1)},
    "a child before its parent": {"left": i4(0, -1, -1, 4, -1, -1)},
    "a child in another tree": {"right": i4(4, -1, -1, 5, -1, -1)},
    "a child twice": {"right": i4(1, -1, -1, 5, -1, -1)},
    "a leaf with a child": {"left": i4(1, 2, -1, 4, -1, -1)},
    "a leaf of an unknown kind": {"column": i4(0, -2, -1, 2, -1, -1)},
    "roots that fall": {"roots": i4(3, 0)},
    "a root that is not": {"roots": i4(0, 6)},
    "no roots": {"roots": i4()},
    "a broken interval": {"threshold": np.array([0.5, 0, 0, 0.5, 0, 0])},
    "an interval that is not": {"threshold": np.array([0.5, 0, 0, 2.0, 0, 0])},
    "a leaf out of range": {"value": np.array([0, 1e3, 0, 0, 0, 0.0])},
    "a start out of range": {"base": np.array([-1e3, 0, 0])},
    "nothing but roots": {
        **{name: i4() for name in ("column", "left", "right")},
        "threshold": np.zeros(0),
        "value": np.zeros(0),
    },
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_model_does_not_pass(wrong):
    MODEL.valid(2)
    with pytest.raises(MessageError):
        dataclasses.replace(MODEL, **WRONG[wrong]).valid(2)


@examples(200)
@given(st.data())
def test_mutated_nodes_either_fail_or_predict(data):
    name = data.draw(st.sampled_from(["roots", "column", "left", "right", "threshold", "value", "base"]))
    values = getattr(MODEL, name).copy()
    values[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(-3, 7))
    mutated = dataclasses.replace(MODEL, **{name: values})
    try:
        mutated.valid(2)
    except MessageError:
        return
    survival = mutated.survival(np.array([[0.0, 1.0], [1.0, -1.0]]))
    assert ((survival >= 0) & (survival <= 1)).all()


def test_a_model_comes_back_from_bytes():
    again = unpack(pack(MODEL), KINDS, 2)
    assert isinstance(again, HazardModel)
    assert again.survival(np.zeros((1, 2))).tobytes() == MODEL.survival(np.zeros((1, 2))).tobytes()
