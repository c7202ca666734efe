"""FedSurvBoost: parameters, stop rules, sites that cannot fit, and what is kept of a fit."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SchemaMismatch
from multicentre.survival.fitted_models import Trees
from multicentre.survival.learners.tree import fit_trees
from multicentre.survival.surv_boost import FedSurvBoost
from multicentre.survival.surv_boost.maths import FIRST_VOTE, NO_ERROR, TOO_MUCH_ERROR
from multicentre.survival.surv_boost.rounds import COMMITTEE, EVERYONE, NO_BETTER
from multicentre.survival.surv_boost.site import BoostSite
from support.boosting_sites import CORRECTED_TEXT, curve_of_mean, federate, prescribe, simulate, split

DATA = simulate()
SITES = split(DATA, 3)
GRID = np.linspace(1.0, 50.0, 50)
MOSTLY_NINE = SurvivalData(DATA.X, np.where(np.arange(len(DATA)) % 10, 9.0, 40.0), np.ones(len(DATA)))


of_one_leaf = pytest.mark.filterwarnings("ignore:.* are constant:UserWarning")


def fit(sites=SITES, *, federation=None, **params):
    params = {"n_estimators": 3, "recalibrate": False, **params}
    return FedSurvBoost(**params).fit(federate(sites, **(federation or {})))


def one_leaf(mean):
    """Return a tree that predicts the same mean time for everybody."""
    i4 = lambda *values: np.array(values, dtype=np.int32)  # noqa: E731
    curve = curve_of_mean(mean, GRID)[None]
    return Trees(GRID, i4(0), np.ones(1), i4(-1), np.zeros(1), i4(-1), i4(-1), i4(0), curve, patients=50)


@pytest.fixture
def known_grid(monkeypatch):
    """Let the sites agree on a known grid."""
    monkeypatch.setattr("multicentre.survival.agreement.rounds.event_grid", lambda *_: GRID)


@pytest.mark.parametrize("learner", ["cox", "tree"])
@pytest.mark.parametrize("parameters", [{}, CORRECTED_TEXT], ids=["default", "corrected text"])
def test_every_fit_ranks_better_than_chance_under_the_default_policy(learner, parameters):
    sites = split(simulate(360), 3)
    model = fit(sites, weak_learner=learner, federation={"policy": mc.Policy()}, **parameters)
    assert model.score(simulate(seed=8)) > 0.58
    curves = model.predict_survival_function(DATA, return_array=True)
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 1e-12).all()
    np.testing.assert_allclose(model.predict(DATA), -model.predict_time(DATA, "restricted_mean"), rtol=1e-12)


def parts(model):
    """Return the site parts of a fit."""
    federation = model.session
    found = [runtime.sessions.parts for runtime in federation.engine._runtimes.values()]
    return [part for own in found for (session, kind), part in own.items() if kind is BoostSite]


@pytest.mark.slow
def test_candidates_are_what_they_say():
    assert set(fit(candidates="committee").chosen_) == {COMMITTEE}
    assert set(fit(candidates="best").chosen_) <= set(SITES)
    assert set(fit(candidates="pool", n_estimators=5).chosen_) <= set(SITES)
    assert set(fit(candidates="all", n_estimators=8).chosen_) <= {*SITES, COMMITTEE, EVERYONE}


def test_a_committee_is_the_mean_of_its_members():
    model = fit(candidates="committee", n_estimators=1)
    mean = np.mean([part.survival(DATA.X) for part in model.model_.components], axis=0)
    assert len(model.model_.components) == 3
    np.testing.assert_allclose(model.predict_survival_function(DATA, return_array=True), mean, atol=1e-12)


@of_one_leaf
@pytest.mark.usefixtures("known_grid")
@pytest.mark.filterwarnings("ignore:horizon must be at most")
def test_the_first_hypothesis_is_kept_even_when_it_is_no_better_than_a_guess(monkeypatch):
    prescribe(monkeypatch, [one_leaf(30.0)], 3)
    model = fit(split(MOSTLY_NINE, 3), **{**CORRECTED_TEXT, "loss": "rmst"}, horizon=50.0)
    assert model.stopped_because_ == TOO_MUCH_ERROR
    assert model.votes_.tolist() == [FIRST_VOTE]
    np.testing.assert_allclose(model.training_errors_, (0.9 * 21 + 0.1 * 10) / 21, rtol=1e-12)


@of_one_leaf
@pytest.mark.usefixtures("known_grid")
@pytest.mark.filterwarnings("ignore:horizon must be at most")
def test_a_later_hypothesis_no_better_than_a_guess_is_discarded(monkeypatch):
    prescribe(monkeypatch, [one_leaf(9.0), one_leaf(1.0)], 3)
    model = fit(split(MOSTLY_NINE, 3), **{**CORRECTED_TEXT, "loss": "rmst"}, horizon=50.0)
    assert model.stopped_because_ == TOO_MUCH_ERROR
    np.testing.assert_allclose(model.training_errors_, [0.1], rtol=1e-12)
    np.testing.assert_allclose(model.votes_, [np.log(9.0)], rtol=1e-12)
    np.testing.assert_allclose(model.history_[1]["error"], 0.5 * (8 + 39) / 39, rtol=1e-12)


@of_one_leaf
@pytest.mark.usefixtures("known_grid")
def test_a_hypothesis_without_error_ends_the_rounds_with_a_finite_vote(monkeypatch):
    late = SurvivalData(DATA.X, np.full(len(DATA), 50.0), DATA.event)
    prescribe(monkeypatch, [one_leaf(50.0)], 3)
    model = fit(split(late, 3), candidates="best", horizon=50.0)
    assert model.stopped_because_ == NO_ERROR
    np.testing.assert_allclose(model.votes_, 0.1 * np.log(1e10), rtol=1e-9)
    assert model.training_errors_.tolist() == [0.0]


@of_one_leaf
@pytest.mark.usefixtures("known_grid")
def test_a_curve_that_never_falls_to_a_half_has_the_horizon(monkeypatch):
    flat = replace(one_leaf(1.0), curves=np.full((1, 50), 0.6))
    prescribe(monkeypatch, [flat], 3)
    model = fit(candidates="best", loss="median", horizon=50.0)
    for kind in ("median", "weighted_median"):
        assert model.predict_time(DATA, kind).tolist() == [50.0] * len(DATA)


def test_a_site_whose_learner_is_not_finite_is_passed_over_and_named(monkeypatch):
    def fit_or_break(patients, weights, settings, rng):
        found = fit_trees(patients, weights, settings, rng)
        broken = len(patients) == len(SITES["site-1"]) + 1
        return replace(found, curves=found.curves * np.nan) if broken else found

    monkeypatch.setattr("multicentre.survival.surv_boost.site.fit_trees", fit_or_break)
    sites = {**SITES, "site-1": DATA.take(np.arange(len(SITES["site-1"]) + 1))}
    model = fit(sites, candidates="best")
    assert model.dropped_ == ("site-1, round 1", "site-1, round 2", "site-1, round 3")
    assert "site-1" not in model.chosen_


def without_events(data):
    return SurvivalData(data.X, data.time, np.zeros(len(data)), unit="days")


def with_one_event(data):
    return SurvivalData(data.X, data.time, np.arange(len(data)) == 0, unit="days")


@pytest.mark.parametrize("learner", ["cox", "tree"])
@pytest.mark.parametrize("change", [without_events, with_one_event])
def test_a_site_with_no_event_or_one_judges_and_is_named(learner, change):
    sites = {**SITES, "site-2": change(SITES["site-2"])}
    model = fit(sites, weak_learner=learner, federation={"policy": mc.Policy()})
    assert {name.partition(",")[0] for name in model.dropped_} == {"site-2"}
    assert "site-2" not in model.chosen_
    assert model.score(DATA) > 0.5


def test_no_event_anywhere_is_an_error_that_says_so():
    with pytest.raises(DataError, match="at least one patient must have an event"):
        fit({name: without_events(data) for name, data in SITES.items()})


def test_sites_too_small_for_any_hypothesis_are_an_error_that_names_them():
    with pytest.raises(DataError, match="site-0, round 1"):
        fit(split(simulate(36), 3), candidates="best", federation={"policy": mc.Policy(min_patients=2)})


def test_a_constant_column_does_no_harm():
    flat = SurvivalData(np.column_stack([DATA.X, np.full(len(DATA), 7.0)]), DATA.time, DATA.event)
    for learner in ("cox", "tree"):
        assert fit(split(flat, 3), weak_learner=learner).score(flat) > 0.6


GRADES = np.array(["I", "II", "III"])


def with_grade(data, levels, shown=GRADES):
    """Return the patients with a category whose levels are declared."""
    frame = pd.DataFrame(data.X, columns=[f"x{k}" for k in range(data.X.shape[1])])
    frame = frame.assign(time=data.time, event=data.event, grade=shown[np.arange(len(data)) % len(shown)])
    return SurvivalData.from_frame(frame, time="time", event="event", categories={"grade": levels}, unit="days")


@pytest.mark.parametrize("learner", ["cox", "tree"])
def test_an_unseen_category_has_a_defined_prediction_or_is_refused(learner):
    """A declared level without patients predicts; an undeclared one is refused, at a site and for a new patient."""
    levels = [*GRADES, "IV"]
    sites = {name: with_grade(data, levels) for name, data in SITES.items()}
    model = fit(sites, weak_learner=learner)
    new = pd.DataFrame(DATA.X[:4], columns=[f"x{k}" for k in range(DATA.X.shape[1])])
    assert np.isfinite(model.predict(new.assign(grade="IV"))).all()
    with pytest.raises(DataError, match="grade") as refused:
        model.predict(new.assign(grade="secret-level"))
    assert "secret-level" not in str(refused.value)
    with pytest.raises(SchemaMismatch, match="site-1"):
        fit({**sites, "site-1": with_grade(SITES["site-1"], [*levels, "V"])}, weak_learner=learner)


def test_gaps_are_filled_with_the_mean():
    holes = DATA.X.copy()
    holes[::7, 1] = np.nan
    model = fit(split(SurvivalData(holes, DATA.time, DATA.event), 3))
    filled = np.where(np.isnan(holes), model.agreed_.centre, holes)
    assert np.array_equal(model.predict(holes), model.predict(filled))


@pytest.mark.parametrize("n_sites", [1, 2])
def test_one_site_and_two_masked_sites_have_a_defined_answer(n_sites):
    assert fit(split(DATA, n_sites)).score(DATA) > 0.6


def test_trees_of_sites_that_are_too_small_for_a_split_are_warned_of():
    small = split(simulate(75), 3)
    with pytest.warns(UserWarning, match="2 of 2 models that sites fitted alone are constant"):
        model = fit(small, n_estimators=2, federation={"policy": mc.Policy()}, **CORRECTED_TEXT)
    assert np.ptp(model.predict(DATA)) == 0


def test_a_model_without_any_sites_own_is_warned_of():
    tiny = split(simulate(42), 3)
    with pytest.warns(UserWarning, match="all 9 models that sites fitted alone were left out"):
        model = fit(tiny, federation={"policy": mc.Policy()})
    assert set(model.chosen_) == {EVERYONE}


def test_an_unmasked_fit_is_refused_with_a_hint():
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
        fit(federation={"policy": mc.Policy(), "secure_sum": False})


def test_sites_below_the_policys_minimum_are_refused():
    tiny = split(simulate(27), 3)
    with pytest.raises(DisclosureRefused):
        fit(tiny, federation={"policy": mc.Policy(min_patients=10)})


@pytest.mark.slow
@pytest.mark.parametrize("recalibrate", [True, "auto"])
def test_recalibration_uses_risks_of_patients_that_were_left_out(recalibrate):
    # As many patients and rounds as make it help for any draws: sites draw by their data, whose last bits may differ.
    train, test = simulate(1200, seed=1), simulate(600, seed=2)
    sites = split(train, 3)
    plain = fit(sites, n_estimators=20, learning_rate=1.0)
    model = fit(sites, n_estimators=20, learning_rate=1.0, recalibrate=recalibrate)
    risks = np.concatenate([part.memory.risks for part in parts(model)])
    assert (risks < 0).all()
    assert model.recalibrated_
    assert model.score(test) == pytest.approx(plain.score(test))
    assert model.assess(test, training=train)["ibs"] < plain.assess(test, training=train)["ibs"]


@pytest.mark.slow
def test_a_site_with_a_handful_held_out_takes_part_under_a_mask():
    sites = {**SITES, "small": simulate(12, seed=3)}
    model = fit(sites, recalibrate=True, federation={"policy": mc.Policy()})
    assert {name.partition(",")[0] for name in model.dropped_} == {"small"}
    assert model.score(DATA) > 0.6


def test_recalibration_is_left_alone_where_it_does_not_help(monkeypatch):
    monkeypatch.setattr("multicentre.survival.surv_boost.estimator._helps", lambda *_: False)
    model = fit(recalibrate="auto", n_splits=2)
    assert not model.recalibrated_
    assert np.array_equal(model.predict(DATA), fit().predict(DATA))


def test_patience_goes_back_to_the_best_round():
    model = fit(n_estimators=30, n_iter_no_change=2, candidates="best", learning_rate=1.0)
    briers = [entry["brier"] for entry in model.history_]
    assert model.stopped_because_ == NO_BETTER
    assert len(model.votes_) == len(model.model_.components) == int(np.argmin(briers)) + 1
    assert len(briers) == len(model.votes_) + 2


@pytest.mark.slow
def test_only_sums_of_errors_and_sites_own_models_leave():
    with federate(SITES, policy=mc.Policy()) as federation:
        FedSurvBoost("tree", norm="max", n_estimators=2, n_splits=2).fit(federation)
        fields = [
            (entry["step"], entry["protection"], field["records"])
            for ledger in federation.ledgers.values()
            for entry in ledger.entries
            if entry["event"] == "release" and entry["method"] == "fed-surv-boost"
            for field in entry["fields"]
            if field["records"] is not None
        ]
    assert {step for step, protection, _ in fields if protection == "unmasked"} == {"describe", "fit_tree"}
    assert min(patients for _, protection, patients in fields if protection == "unmasked" and patients) >= 10
    assert min(patients for step, _, patients in fields if step == "fit_tree" and patients) >= 15


@pytest.mark.parametrize("recalibrate", [False, True])
def test_a_saved_model_predicts_the_same(recalibrate, tmp_path):
    model = fit(recalibrate=recalibrate, n_splits=2)
    model.save(tmp_path)
    again = FedSurvBoost.load(tmp_path)
    assert np.array_equal(again.predict(DATA), model.predict(DATA))
    assert np.array_equal(again.predict_time(DATA, "weighted_median"), model.predict_time(DATA, "weighted_median"))
    assert (again.chosen_, again.dropped_) == (model.chosen_, model.dropped_)
    assert (again.recalibrated_, again.stopped_because_) == (model.recalibrated_, model.stopped_because_)


@pytest.mark.slow
def test_networks_are_boosted_too():
    pytest.importorskip("torch")
    settings = {"hidden_layer_sizes": (8,), "norm": "layer", "max_epochs": 5}
    one, two = (fit(weak_learner="deepsurv", n_estimators=2, learner_params=settings) for _ in range(2))
    assert one.score(DATA) > 0.5
    assert np.array_equal(one.predict(DATA), two.predict(DATA))


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"weak_learner": "forest"}, "weak_learner"),
        ({"candidates": "worst"}, "candidates"),
        ({"loss": "accuracy"}, "loss"),
        ({"norm": "min"}, "norm"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": 1.5}, "learning_rate"),
        ({"learning_rate": None}, "learning_rate"),
        ({"weight_cap": 0.5}, "weight_cap"),
        ({"recalibrate": "sometimes"}, "recalibrate"),
        ({"n_estimators": 0}, "n_estimators"),
        ({"n_estimators": 2.5}, "n_estimators"),
        ({"n_splits": 11}, "n_splits"),
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
        ({"random_state": -1}, "random_state"),
        ({"learner_params": {"depth": 3}}, "learner_params"),
        ({"learner_params": {"min_samples_leaf": 0}, "weak_learner": "tree"}, "min_samples_leaf"),
        ({"learner_params": {"ties": "exact"}, "weak_learner": "cox"}, "ties"),
        ({"n_times": 300}, "times"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(params, where):
    with pytest.raises(ConfigurationError) as refused:
        fit(split(simulate(900), 3), **params)
    assert where in str(refused.value)


def test_a_prescribed_curve_has_the_mean_prescribed():
    grid = np.array([1.0, 2.0, 5.0])
    for mean in (1.0, 1.5, 4.0, 5.0):
        curve = curve_of_mean(mean, grid)
        assert 1.0 + curve[:-1] @ np.diff(grid) == pytest.approx(mean)
