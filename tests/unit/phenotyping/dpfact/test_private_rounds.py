"""Private fits of DPFact: how the budget is divided, what is asked and told, and what comes out."""

import math
import re
import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, NoiseWarning
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.dpfact import messages, private_rounds
from multicentre.phenotyping.dpfact.private_rounds import GRAM_WEIGHT, check_cells
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.scores import factor_match_score
from multicentre.privacy.accountant import cost_of
from multicentre.privacy.conversions import rho_of_epsilon, zcdp_of_gaussian
from multicentre.privacy.guarantee import guarantee_of_plan
from support.event_sites import simulate_events

pytestmark = pytest.mark.usefixtures("seeded_noise")

DELTA = 1e-5
BOLT_ON = {"mechanism": "bolt-on", "solver": "psgd", "public_site_size": 100}
LITTLE_NOISE = 1e4
OPEN = mc.Policy(min_patients=1)  # little noise hides nobody, and pairs of codes are rare in the drawn data
by_mechanism = pytest.mark.parametrize("mechanism", [{}, BOLT_ON], ids=["dp-als", "bolt-on"])
secure_or_not = pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
by_modes = pytest.mark.parametrize("sizes", [(9, 12), (8, 6, 7)], ids=["two modes", "three modes"])


@pytest.fixture(scope="module")
def events():
    return simulate_events()


def fit(events, *, n_sites=3, secure=False, rank=3, **parameters):
    parameters = {"epsilon": LITTLE_NOISE, "vocabulary": events.tensor.codes, **parameters}
    terms = {"secure_sum": secure, "policy": OPEN}
    with mc.Federation.in_process(events.sites(n_sites), **terms) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return DPFact(rank, **parameters).fit(federation)


def plan_of(events, **parameters):
    return DPFact(3, **{"epsilon": 1.0, "vocabulary": events.tensor.codes, **parameters}).privacy_plan()


def shares_of(plan, epsilon=1.0):
    rho = rho_of_epsilon(epsilon, DELTA)
    return {planned.step.name: cost_of(planned.noise, planned.times).rho / rho for planned in plan.releases}


# --- the plan --------------------------------------------------------------------------------------------------------


@by_mechanism
@pytest.mark.parametrize(
    "more", [{}, {"n_private_rounds": 2}, {"n_codes": {"diagnosis": 5}}, {"init": "random"}], ids=str
)
def test_all_releases_together_cost_the_epsilon_that_was_asked_for(events, mechanism, more):
    for epsilon in (0.5, 8.0):
        found = guarantee_of_plan(plan_of(events, epsilon=epsilon, **mechanism, **more)).epsilon
        assert found <= epsilon
        assert found == pytest.approx(epsilon, rel=1e-8)


def test_the_budget_is_divided_between_codes_start_and_rounds(events):
    assert shares_of(plan_of(events)) == pytest.approx({"sum_clipped_cooccurrence": 0.75, "sum_clipped_products": 0.25})
    chosen = shares_of(plan_of(events, n_codes={"diagnosis": 5}))
    assert chosen == pytest.approx(
        {"spread_codes": 0.1, "sum_clipped_cooccurrence": 0.675, "sum_clipped_products": 0.225}
    )
    assert "spread_codes" not in shares_of(plan_of(events, n_codes={"diagnosis": 12}))
    assert shares_of(plan_of(events, init="random", **BOLT_ON)) == pytest.approx({"pass_clipped_patients": 1.0})


def test_products_and_gram_get_the_noise_of_their_joint_bound(events):
    planned = next(
        one for one in plan_of(events, n_private_rounds=2).releases if one.step.name == "sum_clipped_products"
    )
    assert planned.times == 4
    rho = 0.25 * rho_of_epsilon(1.0, DELTA) / 4
    z = math.sqrt((1 + GRAM_WEIGHT**2) / (2 * rho))
    assert planned.noise.multipliers == pytest.approx({"products": z, "gram": z / GRAM_WEIGHT}, rel=1e-8)
    assert sum(map(zcdp_of_gaussian, planned.noise.multipliers.values())) == pytest.approx(rho, rel=1e-8)


@pytest.mark.slow
@by_mechanism
@by_modes
@pytest.mark.parametrize("more", [{}, {"n_codes": {"procedure": 5}, "n_private_rounds": 2}], ids=["plain", "chosen"])
def test_the_card_names_the_steps_that_are_asked_and_no_other(sizes, mechanism, more):
    drawn = simulate_events(sizes=sizes)
    federation = mc.Federation.in_process(drawn.sites(3), policy=mc.Policy(min_patients=1))
    model = DPFact(3, epsilon=LITTLE_NOISE, vocabulary=drawn.tensor.codes, **mechanism, **more).fit(federation)
    released = {
        entry["step"]
        for ledger in federation.ledgers.values()
        for entry in ledger.entries
        if entry["event"] == "release" and entry["method"] == "dpfact"
    }
    assert released == model.planned_steps()
    noised = [entry for entry in federation.ledgers["site-0"].entries if "rho" in entry]
    assert len(noised) == sum(planned.times for planned in model.privacy_plan().releases)
    assert sum(entry["rho"] for entry in noised) == pytest.approx(rho_of_epsilon(LITTLE_NOISE, DELTA), rel=1e-8)


@pytest.mark.parametrize("unit", ["patient", "entry"])
def test_the_promise_names_its_unit(events, unit):
    promise = fit(events, unit=unit, epsilon=5.0).privacy_
    assert promise.unit == unit
    assert ("one entry" in str(promise)) == (unit == "entry")
    assert promise.epsilon == pytest.approx(5.0)


# --- what comes out --------------------------------------------------------------------------------------------------


@by_mechanism
@secure_or_not
@by_modes
def test_with_hardly_any_noise_the_phenotypes_are_found(sizes, mechanism, secure):
    drawn = simulate_events(1200, sizes, rate=2.0, seed=2)
    model = fit(drawn, secure=secure, n_private_rounds=2, **mechanism)
    assert factor_match_score(drawn.factors, model.factors_).score > 0.9
    for factor in model.factors_.values():
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1.0)
        assert np.all(factor >= 0)


@by_mechanism
def test_what_was_not_asked_for_is_not_told(events, mechanism, tmp_path):
    model = fit(events, **mechanism)
    assert model.members_ is None
    assert model.reconstruction_errors_ is None
    assert math.isnan(model.n_patients_)
    assert model.dp_valid_
    assert np.all(np.diff(model.weights_) <= 0)
    assert np.all(model.weights_ >= 0)
    assert [set(entry) for entry in model.history_] == [{"round", "change"}] * 2
    model.save(tmp_path)
    loaded = DPFact.load(tmp_path)
    assert (loaded.privacy_, loaded.dp_valid_) == (model.privacy_, True)
    assert math.isnan(loaded.n_patients_)
    np.testing.assert_array_equal(loaded.transform(events.tensor), model.transform(events.tensor))


def test_fewer_codes_are_chosen_by_a_noised_histogram(events):
    model = fit(events, n_codes={"diagnosis": 5})
    behind = events.tensor.patients_by_code("diagnosis")
    most = {events.tensor.codes["diagnosis"][place] for place in np.argsort(-behind)[:3]}
    assert len(model.codes_["diagnosis"]) == 5
    assert most <= set(model.codes_["diagnosis"])
    assert model.codes_["procedure"] == events.tensor.codes["procedure"]


def test_codes_of_the_list_that_nobody_has_do_no_harm(events):
    listed = {mode: (*names, "never:1", "never:2") for mode, names in events.tensor.codes.items()}
    model = fit(events, vocabulary=listed)
    for mode, factor in model.factors_.items():
        rare = [code.startswith("never") for code in model.codes_[mode]]
        assert np.abs(factor[rare]).max() < 0.05


@by_mechanism
@pytest.mark.parametrize("init", ["cooccurrence", "random"])
def test_so_much_noise_that_nothing_is_left_breaks_nothing(events, mechanism, init):
    model = fit(events, epsilon=1e-3, init=init, **mechanism)
    assert all(np.all(np.isfinite(factor)) for factor in model.factors_.values())
    assert np.all(np.isfinite(model.weights_))


@by_mechanism
@pytest.mark.parametrize("n_private_rounds", [1, 2])
def test_codes_that_are_noise_alone_are_cut_by_the_noise_of_all_sites(mechanism, n_private_rounds):
    """Beyond two standard deviations lies one normal number of forty."""
    drawn = simulate_events(1500, rate=2.0)
    listed = {mode: (*names, *(f"never:{i:03d}" for i in range(150))) for mode, names in drawn.tensor.codes.items()}
    model = fit(drawn, n_sites=8, vocabulary=listed, epsilon=30.0, n_private_rounds=n_private_rounds, **mechanism)
    for mode, factor in model.factors_.items():
        never = [code.startswith("never") for code in model.codes_[mode]]
        assert 0 < np.mean(factor[never] > 0) < 0.08


def test_another_seed_gives_the_same_sums_but_for_noise_and_another_start(events):
    one, other = (fit(events, init="random", random_state=seed) for seed in (0, 1))
    assert not np.allclose(one.factors_["diagnosis"], other.factors_["diagnosis"], atol=0.01)


@by_mechanism
def test_more_starts_request_and_spend_nothing_more(events, mechanism):
    """Starts are factorisations of one noised sum; the one that fits the released sum best is used."""
    plans = [plan_of(events, n_starts=n, **mechanism) for n in (1, 9)]
    assert plans[0] == plans[1]
    models = [fit(events, n_starts=n, **mechanism) for n in (1, 9)]
    assert models[0].session.traffic.calls == models[1].session.traffic.calls
    assert models[0].starts_ == models[1].starts_ == []


def test_the_start_is_a_function_of_the_released_sum(events, monkeypatch):
    """Other patients with the same noised sum give the same start: the choice reads nothing else."""
    released = messages.Noised(np.abs(np.random.default_rng(0).normal(size=9 * 12)) * 50, 1.0)
    monkeypatch.setattr(private_rounds, "_ask_for_cooccurrence", lambda session, terms: released)
    starts = []
    update = private_rounds._update_by_products

    def note(session, terms, state, mode, number):
        starts.append((number, state.factors))
        return update(session, terms, state, mode, number)

    monkeypatch.setattr(private_rounds, "_update_by_products", note)
    for drawn in (events, simulate_events(seed=5)):
        fit(drawn, vocabulary=events.tensor.codes)
    first, second = [factors for number, factors in starts if number == 1]
    for mode, factor in first.items():
        np.testing.assert_array_equal(second[mode], factor)


# --- passes over patients without noise ------------------------------------------------------------------------------


@pytest.mark.slow
@secure_or_not
def test_passes_without_noise_find_the_phenotypes(secure):
    drawn = simulate_events(1200, rate=2.0, seed=2)
    terms = {"secure_sum": secure, "policy": mc.Policy(min_patients=0)}
    with mc.Federation.in_process(drawn.sites(3), **terms) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPFact(3, solver="psgd", vocabulary=drawn.tensor.codes, max_iter=10).fit(federation)
    assert factor_match_score(drawn.factors, model.factors_).score > 0.9
    assert model.privacy_ is None
    assert not model.dp_valid_
    assert model.history_[-1]["change"] < 0.5 * model.history_[0]["change"]


# --- warnings and refusals -------------------------------------------------------------------------------------------


def test_too_much_noise_is_told_before_anything_is_asked(events):
    federation = mc.Federation.in_process(events.sites(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseWarning)
        with pytest.raises(NoiseWarning, match=r"unusable.*expected"):
            DPFact(3, epsilon=1.0, vocabulary=events.tensor.codes, public_site_size=100).fit(federation)
    entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
    assert not any(entry["method"] == "dpfact" and entry["event"] == "release" for entry in entries)


@pytest.mark.parametrize("init", ["cooccurrence", "random"])
def test_too_much_noise_is_told_by_the_first_noised_sum(events, init):
    with mc.Federation.in_process(events.sites(3)) as federation, pytest.warns(NoiseWarning) as told:
        DPFact(3, epsilon=0.5, vocabulary=events.tensor.codes, init=init).fit(federation)
    (one,) = told
    assert re.search("unusable.*measured", str(one.message))


def test_little_noise_is_no_matter_for_a_warning(events):
    with mc.Federation.in_process(events.sites(3)) as federation:
        model = DPFact(3, epsilon=50.0, vocabulary=events.tensor.codes, public_site_size=100).fit(federation)
    assert model.noise_signal_ > 100


def test_the_measured_signal_is_about_the_expected_one():
    drawn = simulate_events(3000, rate=2.0)
    model = fit(drawn, epsilon=4.0)
    multiplier = model.privacy_plan().releases[0].noise.multipliers["marginals"]
    assert model.noise_signal_ == pytest.approx(3000 / (3 * multiplier * math.sqrt(3)), rel=0.35)


def test_more_pairs_of_codes_than_can_be_noised_are_refused():
    with pytest.raises(ConfigurationError, match="broader groups"):
        check_cells([2532, 10_983])


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"rank": 6, "n_codes": {"diagnosis": 5}}, "rank must be at most 5"),
        (
            {"vocabulary": {mode: [f"{mode}{i}" for i in range(3000)] for mode in ("procedure", "diagnosis")}},
            "pairs of codes",
        ),
    ],
    ids=["rank", "cells"],
)
def test_what_can_be_known_before_costs_nothing(events, parameters, match):
    federation = mc.Federation.in_process(events.sites(3))
    parameters = {"rank": 3, "vocabulary": events.tensor.codes, **parameters}
    with pytest.raises(ConfigurationError, match=match):
        DPFact(epsilon=1.0, **parameters).fit(federation)
    assert not any("rho" in entry for ledger in federation.ledgers.values() for entry in ledger.entries)


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"vocabulary": None}, "vocabulary"),
        ({"vocabulary": {"diagnosis": ["a", "b", "c"]}}, "vocabulary"),
        ({"n_private_rounds": 0}, "n_private_rounds"),
        ({"n_private_rounds": 1.5}, "n_private_rounds"),
        ({"public_site_size": 0}, "public_site_size"),
        ({**BOLT_ON, "public_site_size": None}, "public_site_size"),
        ({**BOLT_ON, "solver": "stat"}, "solver"),
        ({"solver": "easgd"}, "solver"),
        ({"sparsity": 0.06}, "sparsity"),
        ({"track_errors": True}, "track_errors"),
        ({"nonnegative": False}, "nonnegative"),
    ],
    ids=str,
)
def test_parameters_that_do_not_go_with_privacy_are_refused(events, parameters, where):
    with pytest.raises(ConfigurationError) as caught:
        fit(events, **{"epsilon": 1.0, **parameters})
    assert caught.value.where == where


def test_after_a_private_fit_nothing_more_can_be_asked(events):
    model = fit(events)
    for step, request in (
        (DPFactSite.sum_sizes, Nothing()),
        (DPFactSite.sum_cooccurrence, Nothing()),
        (DPFactSite.sum_errors, messages.Final(model.factors_, True, False, False, 5, 0.0, 0.1)),
        (DPFactSite.sum_clipped_cooccurrence, Nothing()),
    ):
        with pytest.raises(ConfigurationError, match="planned"):
            model.session.sum(step, request)
    with pytest.raises(ConfigurationError, match="epsilon"):
        model.profile_sites()
