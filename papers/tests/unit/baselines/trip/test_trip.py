import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.errors import ConfigurationError
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.kernels.factors import draw_factors
from multicentre.phenotyping.scores import factor_match_score
from multicentre_papers.baselines.trip import TRIP
from support.event_sites import simulate_events
from support.toy_method import federate

short = pytest.mark.filterwarnings("ignore:the rounds ended at max_iter:sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def events():
    return simulate_events(300, (9, 12), rate=20.0)


def fit(events, n_sites=3, rank=3, **options):
    federation = mc.Federation.in_process(events.sites(n_sites), policy=mc.Policy(min_patients=0), secure_sum=False)
    return TRIP(rank, **{"vocabulary": events.tensor.codes, **options}).fit(federation)


def dense(tensor):
    values = np.zeros(tensor.shape)
    values[tuple(tensor.coordinates.T)] = tensor.counts
    return values


def simulate(parts, start, penalty, growth, n_rounds, *, distinct=0.0):
    """The algorithm without constraints in dense numpy; return the consensus of every round."""
    rank = start[0].shape[1]
    own = [([factor.copy() for factor in start], [np.zeros_like(factor) for factor in start]) for _ in parts]
    consensus, found = start, []
    for _ in range(n_rounds):
        for tensor, (factors, multipliers) in zip(parts, own, strict=True):
            gram = (factors[0].T @ factors[0]) * (factors[1].T @ factors[1])
            rows = np.einsum("ijk,jr,kr->ir", tensor, *factors) @ np.linalg.pinv(gram)
            for n, letters in enumerate(("ijk,ir,kr->jr", "ijk,ir,jr->kr")):
                other = factors[1 - n]
                right = 2 * np.einsum(letters, tensor, rows, other) + penalty * consensus[n] + multipliers[n]
                gram = 2 * (rows.T @ rows) * (other.T @ other) + penalty * np.eye(rank)
                if n == 0 and distinct:
                    before, size = factors[0], len(factors[0])
                    system = np.kron(np.eye(size), gram)
                    system += 2 * distinct * np.kron(before @ before.T, np.eye(rank))
                    right = right + 2 * distinct * before
                    factors[n] = np.linalg.solve(system, right.ravel()).reshape(size, rank)
                else:
                    factors[n] = right @ np.linalg.inv(gram)
                multipliers[n] += penalty * (consensus[n] - factors[n])
        consensus = [
            np.mean([f[n] for f, _ in own], axis=0) - np.mean([h[n] for _, h in own], axis=0) / penalty
            for n in range(2)
        ]
        penalty = min(growth * penalty, 1e10)
        found.append(consensus)
    return found


@short
@pytest.mark.parametrize("n_sites", [1, 4])
@pytest.mark.parametrize("distinct", [0.0, 5.0])
def test_rounds_are_those_of_the_algorithm_in_dense_numpy(events, n_sites, distinct):
    parts = [dense(tensor) for tensor in events.sites(n_sites).values()]
    sizes = {mode: len(names) for mode, names in events.tensor.codes.items()}
    start = list(draw_factors(sizes, 3, 7).values())
    options = {"penalty": 40.0, "growth": 1.2, "nonnegative": False, "random_state": 7, "distinct": distinct}
    expected = simulate(parts, start, 40.0, 1.2, 6, distinct=distinct)[-1]
    model = fit(events, n_sites, max_iter=6, tol=0.0, **options)
    units = [factor / np.linalg.norm(factor, axis=0) for factor in expected]
    cosines = np.einsum("jr,js->rs", units[0], model.factors_["procedure"])
    order = np.abs(cosines).argmax(axis=0)
    for unit, factor in zip(units, model.factors_.values(), strict=True):
        np.testing.assert_allclose(factor, unit[:, order], atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("nonnegative", [True, False])
def test_sites_come_to_agree_and_the_fit_is_close_to_the_pooled_one(events, nonnegative):
    options = {"nonnegative": nonnegative, "tol": 1e-6, "track_errors": True, "growth": 1.02, "max_iter": 800}
    model = fit(events, 3, **options)
    assert model.converged_
    assert model.history_[-1]["gap"] < 1e-5
    errors = [line["rmse"] for line in model.history_]
    assert errors[-1] < 0.7 * errors[0]
    assert errors[-1] == pytest.approx(model.reconstruction_errors_.rmse)
    assert model.history_[-1]["rmse_at_entries"] == pytest.approx(model.reconstruction_errors_.rmse_at_entries)
    pooled = mc.phenotyping.DPFact(3, nonnegative=nonnegative, vocabulary=events.tensor.codes, max_iter=300)
    pooled.fit(mc.Federation.in_process(events.sites(3)))
    assert model.reconstruction_errors_.rmse == pytest.approx(pooled.history_[-1]["rmse"], rel=5e-3)
    assert factor_match_score(model.factors_, pooled.factors_).score > 0.97


def test_planted_phenotypes_are_found_and_are_nonnegative(events):
    model = fit(events, 3, max_iter=400)
    assert factor_match_score(model.factors_, events.factors).score > 0.95
    assert min(factor.min() for factor in model.factors_.values()) >= 0
    assert model.transform(events.tensor).min() >= 0
    free = fit(events, 3, max_iter=400, nonnegative=False)
    assert min(factor.min() for factor in free.factors_.values()) < 0
    assert free.transform(events.tensor).min() < 0


@short
def test_a_round_costs_three_numbers_a_code_and_phenotype(events):
    federation = mc.Federation.in_process(events.sites(3), secure_sum=False, policy=mc.Policy(min_patients=0))
    model = TRIP(3, max_iter=4, tol=0.0, vocabulary=events.tensor.codes).fit(federation)
    factors = (9 + 12) * 3 * 8
    assert model.bytes_per_round() == (factors, 2 * factors)
    step, calls = "fit_near_consensus", 4 * 3
    assert model.traffic_.calls[step] == 4
    penalty = sites = 8
    assert model.traffic_.bytes_to_sites[step] == calls * (factors + penalty)
    assert model.traffic_.bytes_from_sites[step] == calls * (2 * factors + sites)
    dpfact = DPFact(3, max_iter=4, tol=0.0, vocabulary=events.tensor.codes, init="random")
    dpfact.fit(mc.Federation.in_process(events.sites(3)))
    grams = (3 * 3 + 2) * 8
    assert 3 * (sum(dpfact.bytes_per_round()) - grams) == 2 * sum(model.bytes_per_round())


@short
def test_the_default_penalty_follows_the_counts(events):
    model = fit(events, 3, max_iter=2)
    assert model.history_[0]["penalty"] == pytest.approx((events.tensor.counts**2).sum() / (20 * 3 * 3))
    assert model.history_[1]["penalty"] == pytest.approx(1.1 * model.history_[0]["penalty"])


@short
def test_an_extreme_penalty_keeps_the_start(events):
    model = fit(events, 3, max_iter=3, penalty=1e9)
    start = draw_factors({mode: len(names) for mode, names in events.tensor.codes.items()}, 3, 0)
    assert factor_match_score(model.factors_, start).score > 0.999


@pytest.mark.slow
@short
def test_distinctness_turns_columns_apart(events):
    def likeness(model):
        factor = model.factors_["procedure"]
        return np.abs(factor.T @ factor - np.eye(3)).max()

    options = {"max_iter": 60, "penalty": 50.0, "growth": 1.0, "nonnegative": False, "tol": 0.0}
    assert likeness(fit(events, 3, distinct=1e5, **options)) < 0.5 * likeness(fit(events, 3, **options))


@short
def test_counts_are_capped_in_the_fit_and_after(events):
    capped = EventTensor(
        events.tensor.coordinates, np.minimum(events.tensor.counts, 3.0), events.tensor.codes, n_patients=300
    )
    model = fit(events, 1, cap=3, max_iter=5)
    other = TRIP(3, max_iter=5, vocabulary=events.tensor.codes).fit(mc.Federation.in_process({"site-0": capped}))
    assert model.reconstruction_errors_ == other.reconstruction_errors_
    assert model.transform(events.tensor).tobytes() == other.transform(capped).tobytes()
    residual = dense(events.tensor) - np.einsum("ir,jr,kr->ijk", model.transform(capped), *model.factors_.values())
    expected = 1 - (residual**2).sum() / (events.tensor.counts**2).sum()
    assert model.assess(events.tensor)["explained"] == pytest.approx(expected)


@short
def test_a_lost_site_leaves_the_mean_of_the_others(events):
    from multicentre.engines.faults import Faults

    exchanges = {}
    for quorum, faults in (("all", Faults()), (2, Faults(lose={"site-2": 8}))):
        with federate(events.sites(3), quorum=quorum, faults=faults) as federation:
            model = TRIP(3, max_iter=40, vocabulary=events.tensor.codes).fit(federation)
        exchanges[quorum] = model
    assert exchanges[2].n_sites_ == 2
    assert factor_match_score(exchanges[2].factors_, exchanges["all"].factors_).score > 0.8
    two = {name: tensor for name, tensor in events.sites(3).items() if name != "site-2"}
    assert exchanges[2].reconstruction_errors_.squared_error < sum((tensor.counts**2).sum() for tensor in two.values())


@short
def test_codes_without_an_entry_have_no_weight(events):
    codes = {mode: (*names, f"{mode}: never") for mode, names in events.tensor.codes.items()}
    model = fit(events, 3, vocabulary=codes, max_iter=150)
    assert all(factor[-1].max() < 0.02 for factor in model.factors_.values())


@short
def test_a_model_is_saved_and_loaded(events, tmp_path):
    model = fit(events, 3, max_iter=3)
    model.save(tmp_path)
    back = TRIP.load(tmp_path)
    assert back.transform(events.tensor).tobytes() == model.transform(events.tensor).tobytes()
    assert back.reconstruction_errors_ == model.reconstruction_errors_
    assert back.members_.tolist() == model.members_.tolist()
    assert (back.n_iter_, back.converged_, back.history_) == (3, False, model.history_)


def test_it_warns_where_rounds_end_before_sites_agree(events):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        fit(events, 3, max_iter=2)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 10}, "rank"),
        ({"penalty": 0.0}, "penalty"),
        ({"penalty": "much"}, "penalty"),
        ({"growth": 0.9}, "growth"),
        ({"distinct": -1.0}, "distinct"),
        ({"cap": 0}, "cap"),
        ({"cap": 2.5}, "cap"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": float("inf")}, "tol"),
        ({"nonnegative": "yes"}, "nonnegative"),
        ({"track_errors": 1}, "track_errors"),
        ({"min_code_patients": -1}, "min_code_patients"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(events, given, where):
    with pytest.raises(ConfigurationError) as refused:
        fit(events, 3, **given)
    assert refused.value.where == where
