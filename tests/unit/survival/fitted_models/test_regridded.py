"""A model on another grid: its own values where it has times, and nothing that a coordinator could smuggle in."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, CoxModel, Mixture, Regridded
from multicentre.survival.fitted_models.base import pack, unpack
from multicentre.survival.fitted_models.derived import interpolate_curves, on_one_grid


def cox(*times, slope=0.7):
    grid = np.array(times)
    return CoxModel(grid, np.array([slope]), np.zeros(1), 0.1 * grid)


X = np.array([[-1.0], [0.0], [2.0]])


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=8, unique=True), st.integers(0, 1000))
def test_curves_pass_through_their_own_values_and_fall(own, seed):
    grid, rng = np.sort(own), np.random.default_rng(seed)
    survival = np.sort(rng.random((4, len(grid))))[:, ::-1]
    times = np.unique(np.concatenate([grid, rng.uniform(0, 12, 10)]))
    found = interpolate_curves(survival, grid, times)
    at = np.searchsorted(times, grid[grid > 0])
    np.testing.assert_allclose(found[:, at], survival[:, grid > 0], rtol=1e-12)
    assert (np.diff(found, axis=1) <= 1e-15).all()
    assert ((found >= 0) & (found <= 1)).all()
    beyond = times > grid[-1]
    np.testing.assert_allclose(found[:, beyond], np.repeat(survival[:, -1:], beyond.sum(), axis=1), rtol=1e-12)


def test_a_constant_hazard_is_the_exponential_curve():
    moved = Regridded.of(cox(5.0, 10.0, slope=0.0), np.array([1.0, 5.0, 7.5]), 1).valid(1)
    np.testing.assert_allclose(moved.survival(X)[0], np.exp(-0.1 * np.array([1.0, 5.0, 7.5])), rtol=1e-12)


def test_models_meet_on_all_their_times_up_to_the_first_horizon():
    mixed = Mixture.of([cox(1.0, 6.0), cox(1.0, 6.0, slope=-0.5)], np.array([1.0, 3.0]), 1)
    models = on_one_grid([cox(2.0, 5.0, 9.0), mixed, cox(1.0, 2.0, 5.0, 6.0)], 1)
    assert all(model.times.tolist() == [1.0, 2.0, 5.0, 6.0] for model in models)
    whole = Mixture.of(models, np.ones(3), 1).valid(1)
    again = unpack(pack(whole), KINDS, 1)
    assert again.survival(X).tobytes() == whole.survival(X).tobytes()
    np.testing.assert_allclose(models[1].survival(X)[:, [0, 3]], mixed.survival(X), rtol=1e-12)
    assert models[2].times.tolist() == [1.0, 2.0, 5.0, 6.0]
    assert isinstance(models[2], CoxModel)


def test_a_model_is_moved_from_its_own_grid_not_from_the_last():
    once = Regridded.of(cox(2.0, 4.0), np.array([3.0, 4.0]), 1)
    (moved, _) = on_one_grid([once, cox(1.0, 4.0)], 1)
    assert isinstance(moved, Regridded)
    assert isinstance(moved.inner, CoxModel)


def test_a_grid_of_many_times_is_thinned_and_keeps_its_horizon():
    (model, _) = on_one_grid([cox(*np.arange(1.0, 1001.0)), cox(500.5, 1000.0)], 1)
    assert len(model.times) == 256
    assert model.times[-1] == 1000.0


def test_what_holds_no_inner_model_is_refused():
    good = Regridded.of(cox(2.0, 4.0), np.array([3.0]), 1)
    twice = Regridded.of(good, np.array([3.0]), 1)
    for wrong in (twice, dataclasses.replace(good, packed=good.packed[:-1]), dataclasses.replace(good, n_columns=2)):
        with pytest.raises(MessageError):
            wrong.valid(1)
    with pytest.raises(MessageError):
        Regridded.of(CoxModel.empty(), np.array([3.0]), 1).valid(1)


def test_models_that_hold_each_other_without_end_are_refused():
    model = cox(3.0)
    for _ in range(400):
        model = Mixture.of([Regridded.of(model, np.array([3.0]), 1)], np.ones(1), 1)
    with pytest.raises(MessageError):
        model.valid(1)
