import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.errors import ConfigurationError, DataError
from multicentre.phenotyping.scores import factor_match_score
from multicentre_papers.baselines.cp import CPALS
from support.event_sites import simulate_events

both = pytest.mark.parametrize("nonnegative", [True, False])


@pytest.fixture(scope="module")
def events():
    return simulate_events(400, (12, 15), rate=30.0)


@both
def test_planted_phenotypes_are_found(events, nonnegative):
    fit = CPALS(3, nonnegative=nonnegative, tol=1e-7, max_iter=500).fit(events.tensor)
    assert factor_match_score(fit.factors_, events.factors).score > 0.99


@both
def test_the_error_falls_from_pass_to_pass(events, nonnegative):
    fit = CPALS(3, nonnegative=nonnegative, tol=0.0, max_iter=15).fit(events.tensor)
    errors = [line["rmse"] for line in fit.history_]
    assert [line["round"] for line in fit.history_] == list(range(1, 16))
    assert np.all(np.diff(errors) <= 1e-9 * errors[0])
    assert errors[-1] < 0.95 * errors[0]
    assert not fit.converged_


@both
def test_errors_are_those_of_the_rebuilt_tensor(nonnegative):
    tensor = simulate_events(40, rate=2.0).tensor
    fit = CPALS(3, nonnegative=nonnegative, tol=0.0, max_iter=4).fit(tensor)
    dense = np.zeros(tensor.shape)
    dense[tuple(tensor.coordinates.T)] = tensor.counts
    rebuilt = np.einsum("ir,jr,kr->ijk", fit.memberships_, *fit.factors_.values())
    residual = dense - rebuilt
    assert fit.history_[-1]["rmse"] == pytest.approx(np.linalg.norm(residual) / np.sqrt(tensor.nnz))
    at_entries = np.sqrt(np.mean(residual[dense > 0] ** 2))
    assert (
        fit.history_[-1]["rmse_at_entries"]
        == pytest.approx(at_entries)
        == pytest.approx(fit.reconstruction_errors_.rmse_at_entries)
    )
    assert fit.reconstruction_errors_.fit == pytest.approx(1 - np.linalg.norm(residual) / np.linalg.norm(dense))


@pytest.mark.slow
def test_nonnegative_fits_are_nonnegative_and_stationary(events):
    fit = CPALS(3, nonnegative=True, tol=0.0, max_iter=300).fit(events.tensor)
    factors = [fit.memberships_, *fit.factors_.values()]
    assert all((factor >= 0).all() for factor in factors)
    dense = np.zeros(events.tensor.shape)
    dense[tuple(events.tensor.coordinates.T)] = events.tensor.counts
    residual = np.einsum("ir,jr,kr->ijk", *factors) - dense
    for n, (letters, others) in enumerate((("jr,kr->ir", (1, 2)), ("ir,kr->jr", (0, 2)), ("ir,jr->kr", (0, 1)))):
        slope = np.einsum(f"ijk,{letters}", residual, *(factors[m] for m in others))
        scale = np.linalg.norm(dense)
        assert np.abs(slope[factors[n] > 1e-7]).max() < 1e-4 * scale
        assert slope[factors[n] <= 1e-7].min(initial=0.0) > -1e-4 * scale


def test_a_free_fit_may_be_negative_and_is_no_worse(events):
    free = CPALS(3, tol=1e-8, max_iter=500).fit(events.tensor)
    bound = CPALS(3, nonnegative=True, tol=1e-8, max_iter=500).fit(events.tensor)
    assert free.reconstruction_errors_.squared_error <= bound.reconstruction_errors_.squared_error * (1 + 1e-6)
    assert min(factor.min() for factor in free.factors_.values()) < 0


@both
def test_memberships_are_those_that_transform_finds(events, nonnegative):
    fit = CPALS(3, nonnegative=nonnegative, tol=1e-9, max_iter=1000).fit(events.tensor)
    spread = np.abs(fit.memberships_).max()
    np.testing.assert_allclose(fit.transform(events.tensor), fit.memberships_, atol=2e-3 * spread)
    assert fit.memberships_.shape == (400, 3)
    np.testing.assert_allclose(fit.weights_, np.linalg.norm(fit.memberships_, axis=0))
    assert np.all(np.diff(fit.weights_) <= 0)
    assert fit.n_patients_ == 400
    assert fit.assess(events.tensor)["rmse"] == pytest.approx(fit.reconstruction_errors_.rmse_at_entries, rel=1e-3)


@both
def test_patients_and_codes_without_an_entry_have_nothing(nonnegative):
    whole = simulate_events(60, rate=2.0).tensor
    codes = {mode: (*names, f"{mode}: never") for mode, names in whole.codes.items()}
    padded = EventTensor(whole.coordinates, whole.counts, codes, n_patients=62)
    fit = CPALS(3, nonnegative=nonnegative, tol=0.0, max_iter=10).fit(padded)
    assert np.abs(fit.memberships_[60:]).max() < 1e-12 < np.abs(fit.memberships_[:60]).max()
    assert all(np.abs(factor[-1]).max() < 1e-12 for factor in fit.factors_.values())
    assert fit.reconstruction_errors_.rmse < 0.95 * fit.reconstruction_errors_.rmse_of_zero


def test_a_singular_gram_matrix_is_no_obstacle():
    tensor = simulate_events(60, rate=2.0).tensor
    start = {mode: np.ones((len(names), 3)) for mode, names in tensor.codes.items()}
    fit = CPALS(3, init=start, tol=0.0, max_iter=5).fit(tensor)
    one = CPALS(1, tol=0.0, max_iter=50).fit(tensor)
    assert np.isfinite(fit.memberships_).all()
    assert fit.reconstruction_errors_.squared_error == pytest.approx(one.reconstruction_errors_.squared_error, rel=1e-3)


def test_the_start_is_seeded_or_given(events):
    one, same, other = (CPALS(3, random_state=seed, tol=0.0, max_iter=3).fit(events.tensor) for seed in (1, 1, 2))
    assert one.memberships_.tobytes() == same.memberships_.tobytes() != other.memberships_.tobytes()
    settled = CPALS(3, tol=1e-10, max_iter=1000).fit(events.tensor)
    again = CPALS(3, init=settled.factors_, tol=0.0, max_iter=1).fit(events.tensor)
    assert again.history_[0]["rmse"] == pytest.approx(settled.history_[-1]["rmse"], rel=1e-6)


def test_it_warns_where_passes_end_before_the_fit_settles(events):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        CPALS(3, max_iter=2, tol=1e-12).fit(events.tensor)


def test_fits_are_pickled_and_estimators_cloned(events):
    fit = CPALS(3, tol=0.0, max_iter=3).fit(events.tensor)
    back = pickle.loads(pickle.dumps(fit))
    assert back.transform(events.tensor).tobytes() == fit.transform(events.tensor).tobytes()
    assert back.get_params() == fit.get_params()
    with pytest.raises(NotFittedError):
        clone(fit).transform(events.tensor)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"rank": 10}, "rank"),
        ({"max_iter": 0}, "max_iter"),
        ({"n_sweeps": True}, "n_sweeps"),
        ({"tol": -1.0}, "tol"),
        ({"tol": float("nan")}, "tol"),
        ({"nonnegative": "yes"}, "nonnegative"),
        ({"init": "svd"}, "init"),
        ({"init": {"procedure": np.ones((9, 3))}}, "init"),
        ({"init": {"procedure": np.ones((9, 3)), "diagnosis": np.ones((11, 3))}}, "init"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(given, where):
    with pytest.raises(ConfigurationError) as refused:
        CPALS(**{"rank": 3, **given}).fit(simulate_events(30).tensor)
    assert refused.value.where == where


def test_a_federation_or_an_empty_tensor_is_refused():
    events = simulate_events(60)
    with pytest.raises(ConfigurationError, match="DPFact"):
        CPALS(3).fit(mc.Federation.in_process(events.sites(3)))
    with pytest.raises(DataError, match="at least one entry"):
        CPALS(1).fit(EventTensor([], [], {"a": ["x"], "b": ["y"]}, n_patients=3))
