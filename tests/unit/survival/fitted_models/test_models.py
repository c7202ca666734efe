import dataclasses

import numpy as np
import pytest

from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, CoxModel, Mixture, Trees
from multicentre.survival.fitted_models.base import join, pack, split, unpack

GRID = np.array([1.0, 3.0, 5.0])


def a_cox(**changed):
    return dataclasses.replace(
        CoxModel(GRID, np.array([0.5, -1.0]), np.array([1.0, 2.0]), np.array([0.1, 0.2, 0.4])), **changed
    )


def whole(*values):
    return np.array(values, dtype=np.int32)


def a_stump(**changed):
    tree = Trees(
        GRID, whole(0), np.ones(1), whole(0, -1, -1), np.array([0.5, 0.0, 0.0]), whole(1, -1, -1), whole(2, -1, -1),
        whole(-1, 0, 1), np.array([[0.9, 0.8, 0.7], [0.5, 0.5, 0.0]]),
    )  # fmt: skip
    return dataclasses.replace(tree, **changed)


MODELS = {
    "cox": a_cox(),
    "trees": a_stump(),
    "mixture": Mixture.of([a_cox(), a_stump()], np.array([1.0, 3.0]), 2),
}
X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("name", MODELS)
def test_bytes_hold_the_whole_model(name):
    model = MODELS[name]
    again = unpack(pack(model), KINDS, 2)
    np.testing.assert_array_equal(again.survival(X), model.survival(X))
    with pytest.raises(MessageError):
        unpack(pack(model), KINDS, 3 if name != "trees" else 0)


@pytest.mark.parametrize("name", MODELS)
def test_curves_fall_from_one_to_zero(name):
    S = MODELS[name].survival(X * 100)
    assert S.shape == (20, 3)
    assert ((S >= 0) & (S <= 1)).all()
    assert (np.diff(S, axis=1) <= 0).all()


def test_cox_is_the_closed_form():
    eta = 0.5 * (X[:, 0] - 1) - (X[:, 1] - 2)
    np.testing.assert_allclose(a_cox().survival(X), np.exp(-np.outer(np.exp(eta), [0.1, 0.2, 0.4])))


def test_a_stump_splits_at_its_threshold():
    S = a_stump().survival(np.array([[0.5, 9.0], [0.51, -9.0]]))
    np.testing.assert_array_equal(S, [[0.9, 0.8, 0.7], [0.5, 0.5, 0.0]])


def test_a_mixture_is_the_weighted_mean_and_takes_mixtures_apart():
    inner = MODELS["mixture"]
    expected = 0.25 * a_cox().survival(X) + 0.75 * a_stump().survival(X)
    np.testing.assert_allclose(inner.survival(X), expected)
    outer = Mixture.of([inner, a_cox()], np.array([1.0, 1.0]), 2)
    assert [type(model) for model in outer.components] == [CoxModel, Trees, CoxModel]
    np.testing.assert_allclose(outer.survival(X), 0.5 * expected + 0.5 * a_cox().survival(X))


@pytest.mark.parametrize(
    "broken",
    [
        a_cox(baseline=np.array([0.2, 0.1, 0.4])),
        a_cox(baseline=np.array([-0.1, 0.1, 0.4])),
        a_cox(times=np.array([3.0, 1.0, 5.0])),
        a_cox(times=np.array([-1.0, 1.0, 5.0])),
        a_cox(coefficients=np.array([0.5])),
        a_cox(coefficients=np.array([np.nan, 0.0])),
        a_stump(left=whole(0, -1, -1)),
        a_stump(left=whole(2, -1, -1)),
        a_stump(right=whole(7, -1, -1)),
        a_stump(column=whole(5, -1, -1)),
        a_stump(column=whole(0, -2, -1)),
        a_stump(leaf=whole(-1, 0, 2)),
        a_stump(leaf=whole(-1, 0, -1)),
        a_stump(leaf=whole(1, 0, 1)),
        a_stump(roots=whole(1)),
        a_stump(roots=whole()),
        a_stump(shares=np.array([0.5])),
        a_stump(shares=np.array([-1.0])),
        a_stump(threshold=np.array([np.nan, 0.0, 0.0])),
        a_stump(curves=np.array([[0.9, 0.95, 0.7], [0.5, 0.5, 0.0]])),
        a_stump(curves=np.array([[1.1, 0.95, 0.7], [0.5, 0.5, 0.0]])),
        a_stump(curves=np.array([[0.9, 0.8, -0.1], [0.5, 0.5, 0.0]])),
        dataclasses.replace(MODELS["mixture"], shares=np.array([0.5, 0.4])),
        dataclasses.replace(MODELS["mixture"], n_columns=3),
        dataclasses.replace(MODELS["mixture"], lengths=MODELS["mixture"].lengths + 1),
        dataclasses.replace(MODELS["mixture"], times=np.array([1.0, 3.0, 6.0])),
        CoxModel.empty(),
        Trees.empty(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_is_no_model_is_refused(broken):
    with pytest.raises(MessageError):
        broken.valid(2)


def test_a_mixture_inside_a_mixture_is_refused():
    packed, lengths = join([MODELS["mixture"]])
    nested = Mixture(GRID, 2, np.ones(1), packed, lengths)
    with pytest.raises(MessageError, match="unknown kind"):
        nested.valid(2)


def test_an_empty_model_says_so():
    assert CoxModel.empty().is_empty
    assert Trees.empty().is_empty
    assert not a_cox().is_empty


def test_lengths_must_fit_the_bytes():
    packed, lengths = join([a_cox(), a_stump()])
    assert len(split(packed, lengths, KINDS, 2)) == 2
    for wrong in (lengths - 1, lengths[:1], -lengths):
        with pytest.raises(MessageError):
            split(packed, wrong, KINDS, 2)


def test_bytes_of_another_kind_are_refused():
    blob = bytearray(pack(a_cox()))
    for broken in (b"", b"MCM1", bytes(blob[:-1]), b"\x80\x04" + bytes(blob), bytes(blob) + b"\0"):
        with pytest.raises(MessageError):
            unpack(broken, KINDS, 2)
    with pytest.raises(MessageError, match="unknown kind"):
        unpack(bytes(blob), {"Trees": Trees}, 2)
