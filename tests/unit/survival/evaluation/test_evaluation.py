"""An evaluation over sites says what the pooled patients say, and lets nothing small out."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import multicentre as mc
from multicentre.data.missing.values import GAP_STEPS, MissingValues
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
    RefusedByPolicy,
    SchemaMismatch,
)
from multicentre.estimator.figures import read_figure
from multicentre.survival import SurvivalEvaluation
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.evaluation import settings
from multicentre.survival.evaluation.settings import SCORES
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.scores.auc import dynamic_auc, mean_auc
from multicentre.survival.scores.brier import Censoring, brier_scores, integrated_brier_score, squared_errors
from multicentre.survival.scores.calibration import calibrate_groups, d_calibration, net_benefit
from multicentre.survival.scores.concordance import concordance_with_error, sum_pairs
from multicentre.survival.times import at_times
from support.saved_models import store
from support.toy_method import federate

UNASKED = (GAP_STEPS - {"count_gaps"}) | {"evaluate_alone"}  # the latter of a single site
MONTHS = np.arange(1.0, 61.0)
ANY = mc.Policy(min_patients=0)


def cox():
    return CoxModel(MONTHS, np.array([0.8, -0.4, 0.27]), np.zeros(3), (MONTHS / 30) ** 1.3)


def whole_months(n_patients=800, seed=0):
    """Return patients whose times are whole months."""
    drawn = mc.datasets.simulate_survival(n_patients, 3, seed)
    return mc.data.SurvivalData(drawn.X, np.ceil(drawn.time), drawn.event)


def spread(data, n_sites=3, by=None):
    order = np.random.default_rng(1).permutation(len(data)) if by is None else np.argsort(by, kind="stable")
    return {f"site-{i}": data.take(rows) for i, rows in enumerate(np.array_split(order, n_sites))}


def evaluate(data, sites=None, *, secure_sum=True, policy=ANY, model=None, **parameters):
    parameters.setdefault("time_points", MONTHS)
    with mc.Federation.in_process(sites or spread(data), secure_sum=secure_sum, policy=policy) as federation:
        return SurvivalEvaluation(model or cox(), **parameters).fit(federation)


@pytest.fixture(scope="module")
def data():
    return whole_months()


@pytest.fixture(scope="module")
def evaluated(data):
    return evaluate(data)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_brier_scores_are_the_pooled_ones_where_times_lie_on_the_grid(data, secure):
    found, event = evaluate(data, secure_sum=secure, scoring=["brier"]), data.event == 1
    curves = at_times(cox().survival(data.X), cox().times, found.times_)
    pooled = brier_scores(curves, found.times_, data.time, event, data.time, event)
    np.testing.assert_allclose(found.brier_, pooled, rtol=0, atol=1e-10)
    ibs = integrated_brier_score(curves, found.times_, data.time, event, data.time, event)
    assert found.ibs_ == pytest.approx(ibs, abs=1e-10)


def test_elsewhere_they_are_those_of_times_moved_up_to_the_grid():
    drawn = mc.datasets.simulate_survival(500, 3, 4)
    found, event = evaluate(drawn, scoring=["brier"]), drawn.event == 1
    moved = np.ceil(drawn.time)
    curves = at_times(cox().survival(drawn.X), cox().times, found.times_)
    ibs = integrated_brier_score(curves, found.times_, moved, event, moved, event)
    assert found.ibs_ == pytest.approx(ibs, abs=1e-10)
    exact = mc.Policy(min_patients=0, exact_times=True)
    for points, policy, near in ((None, ANY, 1e-3), (np.arange(1, 2001) * 0.03, exact, 2e-4)):
        fine = evaluate(drawn, scoring=["brier"], time_points=points, policy=policy)
        curves = at_times(cox().survival(drawn.X), cox().times, fine.times_)
        ibs = integrated_brier_score(curves, fine.times_, drawn.time, event, drawn.time, event)
        assert fine.ibs_ == pytest.approx(ibs, abs=near)


def test_the_reference_is_the_kaplan_meier_curve_of_the_same_patients(data, evaluated):
    event = data.event == 1
    grid = np.unique(data.time)
    curve = Censoring.estimate(data.time, ~event)
    assert grid[-1] > 60
    counts = [((data.time == t) & event).sum() / (data.time >= t).sum() for t in grid]
    survival = at_times(np.cumprod(1 - np.array(counts)), grid, evaluated.times_)
    same = np.tile(survival, (len(data), 1))
    expected = brier_scores(same, evaluated.times_, data.time, event, data.time, event)
    np.testing.assert_allclose(evaluated.brier_reference_, expected, atol=1e-10)
    assert evaluated.ipa_ == pytest.approx(1 - evaluated.ibs_ / evaluated.ibs_reference_)
    assert curve.last == data.time.max()


def test_the_error_of_the_mean_score_is_that_of_the_patients_means(data, evaluated):
    event, times = data.event == 1, evaluated.times_
    known = Censoring.estimate(data.time, event)
    curves = at_times(cox().survival(data.X), cox().times, times)
    errors = squared_errors(curves, times, data.time, event, known.weights(data.time), known.weights(times))
    means = np.trapezoid(errors, times, axis=1) / (times[-1] - times[0])
    assert evaluated.ibs_standard_error_ == pytest.approx(means.std() / np.sqrt(len(data) - 1), rel=1e-8)


def test_concordance_and_its_error_are_near_the_pooled_ones(data, evaluated):
    exact = concordance_with_error(data.time, data.event == 1, -cox().restricted_mean(data.X))
    assert evaluated.concordance_ == pytest.approx(exact[0], abs=1e-3)
    assert evaluated.concordance_standard_error_ == pytest.approx(exact[1], rel=0.02)
    low, high = evaluated.concordance_interval_
    assert low < evaluated.concordance_ < high


def test_within_sites_it_is_the_pair_weighted_mean_of_the_sites(data):
    sites = spread(data, 4)
    found = evaluate(data, sites, concordance="within_sites", scoring=["concordance"])
    own = [concordance_with_error(d.time, d.event == 1, -cox().restricted_mean(d.X)) for d in sites.values()]
    pairs = np.array([sum_pairs(d.time, d.event == 1, d.X[:, 0])[0] for d in sites.values()])
    shares = pairs / pairs.sum()
    assert found.concordance_ == pytest.approx(shares @ [share for share, _ in own], abs=1e-9)
    assert found.concordance_standard_error_ == pytest.approx(np.sqrt((shares**2) @ [e**2 for _, e in own]), rel=0.05)


def test_areas_under_the_curve_are_near_the_pooled_ones(data, evaluated):
    event = data.event == 1
    risk, known = -cox().restricted_mean(data.X), Censoring.estimate(data.time, event)
    exact = dynamic_auc(data.time, event, risk, evaluated.times_, known)
    np.testing.assert_allclose(evaluated.auc_, exact, atol=2e-3)
    assert evaluated.mean_auc_ == pytest.approx(mean_auc(exact, evaluated.times_, data.time, event), abs=1e-3)


def test_calibration_is_that_of_the_pooled_groups(data, evaluated):
    event = data.event == 1
    assert list(evaluated.calibration_) == [15.0, 30.0, 45.0]
    for time, found in evaluated.calibration_.items():
        edges = evaluated_edges(evaluated, time)
        predicted = 1 - at_times(cox().survival(data.X), cox().times, np.array([time]))[:, 0]
        exact = calibrate_groups(predicted, data.time, event, time, edges)
        for name in ("n_patients", "predicted", "observed", "lower", "upper"):
            np.testing.assert_allclose(getattr(found, name), getattr(exact, name), atol=1e-9)
        assert found.n_patients.min() > 0.7 * len(data) / 10


def evaluated_edges(evaluated, time):
    from multicentre.survival.evaluation.rounds import group_edges

    chances = evaluated._sums["follow_up"].chances
    return group_edges(chances, evaluated.n_groups)[list(evaluated.calibration_).index(time)]


def test_calibration_over_all_times_spreads_each_patient_once(data, evaluated):
    times, curves = np.append(0.0, cox().times), np.pad(cox().survival(data.X), ((0, 0), (1, 0)), constant_values=1)
    bins = np.minimum(data.time, 60.0).astype(int)
    happened = (data.event == 1) & (data.time <= 60)
    low = np.where(happened, curves[np.arange(len(data)), bins], 0.0)
    high = np.where(happened, curves[np.arange(len(data)), bins - 1], curves[np.arange(len(data)), bins])
    assert times[bins].max() == 60
    np.testing.assert_allclose(evaluated.d_calibration_.counts, d_calibration(low, high).counts, atol=1e-9)


def test_net_benefit_is_the_pooled_one(data, evaluated):
    event = data.event == 1
    known = Censoring.estimate(data.time, event)
    for time, found in evaluated.net_benefit_.items():
        predicted = 1 - at_times(cox().survival(data.X), cox().times, np.array([time]))[:, 0]
        exact = net_benefit(predicted, data.time, event, time, evaluated.thresholds_, known)
        np.testing.assert_allclose(found, exact, atol=1e-9)


def test_how_patients_are_split_changes_nothing(data, evaluated):
    for sites in (spread(data, 5), spread(data, 3, by=data.time)):
        other = evaluate(data, sites, secure_sum=False)
        assert other.concordance_ == pytest.approx(evaluated.concordance_, abs=1e-9)
        np.testing.assert_allclose(other.brier_, evaluated.brier_, atol=1e-9)
        np.testing.assert_allclose(other.auc_, evaluated.auc_, atol=1e-9)


def test_a_saved_evaluation_is_the_same(evaluated, data, tmp_path):
    evaluated.save(tmp_path)
    loaded = SurvivalEvaluation.load(tmp_path)
    assert loaded.to_frame().equals(evaluated.to_frame())
    assert loaded.assess(data) == evaluated.assess(data)
    assert list(loaded.calibration_) == list(evaluated.calibration_)


def test_assessing_patients_at_hand_gives_the_pooled_figures(data, evaluated):
    found = evaluated.assess(data)
    assert found["concordance"] == pytest.approx(evaluated.concordance_, abs=1e-3)
    assert 0 < found["ibs"] < 0.25
    with pytest.raises(NotFittedError):
        SurvivalEvaluation(cox()).assess(data)


def test_sites_answer_for_themselves_on_request_only(data):
    assert evaluate(data, scoring=["brier"]).sites_ == {}
    sites = spread(whole_months(2400))
    found = evaluate(data, sites, scoring=["brier"], by_site=True, policy=None)
    for site, own in found.sites_.items():
        known = sites[site]
        exact = concordance_with_error(known.time, known.event == 1, -cox().restricted_mean(known.X))
        assert (own.concordance, own.standard_error) == pytest.approx(exact)
        assert own.observed.shape == (3, 3)
    often = {"scoring": ["brier"], "at": MONTHS[:10], "by_site": True, "policy": None}
    small = evaluate(data, **often).sites_["site-0"]
    assert small.concordance is not None
    assert small.observed is None
    with_few = {**sites, "few": data.take(np.flatnonzero(data.event == 1)[:40])}
    assert evaluate(data, with_few, scoring=["brier"], by_site=True, policy=None).sites_["few"].concordance is None


@pytest.mark.parametrize("measure", SCORES)
def test_small_cells_are_refused_unmasked(data, measure):
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        evaluate(data, secure_sum=False, policy=None, scoring=[measure])


CELL = 12
COARSE = {"time_points": [10.0, 20.0], "at": [10.0], "n_times": 2, "n_groups": 2, "n_bins": 2, "thresholds": [0.3]}
# Patients of the smallest cell: one arm and one time of an event; one time for sums that do not separate the arms.
SMALLEST = {"concordance": CELL, "brier": 2 * CELL, "auc": CELL, "calibration": CELL, "net_benefit": CELL}


def two_arms():
    """Return patients of two arms, CELL of them for each time and way to leave."""
    arm, time, event = np.array([(a, *left) for a in (0, 1) for left in [(10, 1), (20, 1), (20, 0), (30, 0)]]).T
    rows = np.repeat(np.arange(8), CELL)
    return mc.data.SurvivalData(arm[rows, None].astype(float), time[rows].astype(float), event[rows])


def by_arm():
    return CoxModel(np.array([10.0, 20.0]), np.array([0.9]), np.zeros(1), np.array([0.3, 0.7]))


@pytest.mark.parametrize("measure", SCORES)
def test_cells_of_the_policys_minimum_leave_unmasked_and_smaller_ones_do_not(measure):
    of_score = {"n_groups": "calibration", "n_bins": "concordance", "thresholds": "net_benefit"}
    settings = {name: value for name, value in COARSE.items() if of_score.get(name, measure) == measure}
    data, terms = two_arms(), {"model": by_arm(), "scoring": [measure], **settings}
    sites = {"lyon": data, "oslo": data}
    minimum = mc.Policy(min_patients=SMALLEST[measure])
    found = evaluate(data, sites, secure_sum=False, policy=minimum, **terms)
    masked = evaluate(data, sites, policy=minimum, **terms)
    assert np.nan_to_num(found.to_frame()) == pytest.approx(np.nan_to_num(masked.to_frame()), abs=1e-6)
    stricter = {"lyon": minimum, "oslo": mc.Policy(min_patients=SMALLEST[measure] + 1)}
    with pytest.raises(DisclosureRefused, match=r"oslo.*secure_sum=True"):
        evaluate(data, sites, secure_sum=False, policy=stricter, **terms)


def test_a_site_that_refuses_its_own_scores_is_without_values(data):
    sites, strict = spread(data, 2), mc.Policy(min_patients=0, secure_sums_only=True)
    found = evaluate(data, sites, scoring=["brier"], by_site=True, policy={"site-0": ANY, "site-1": strict})
    assert list(found.sites_) == list(sites)
    assert list(found.site_refusals_) == ["site-1"]
    assert "must be masked sums" in found.site_refusals_["site-1"]
    known = sites["site-0"]
    exact = concordance_with_error(known.time, known.event == 1, -cox().restricted_mean(known.X))
    assert (found.sites_["site-0"].concordance, found.sites_["site-0"].standard_error) == pytest.approx(exact)
    assert found.sites_["site-1"].concordance is found.sites_["site-1"].observed is None


def test_steps_are_asked_as_announced(data):
    for parameters in ({"scoring": [measure]} for measure in SCORES):
        evaluation = SurvivalEvaluation(cox(), time_points=MONTHS, **parameters)
        with mc.Federation.in_process(spread(data), policy=ANY, secure_sum=False) as federation:
            evaluation.fit(federation)
            asked = {entry["step"] for ledger in federation.ledgers.values() for entry in ledger.entries}
        assert asked == evaluation.planned_steps() - UNASKED


def test_fine_times_are_announced_and_need_permission(data):
    evaluation = SurvivalEvaluation(cox(), time_points=np.arange(1, 601) / 10, scoring=["brier"])
    terms = {"policy": mc.Policy(min_patients=0, exact_times=True), "secure_sum": False}
    with mc.Federation.in_process(spread(data), **terms) as federation:
        evaluation.fit(federation)
        asked = {entry["step"] for ledger in federation.ledgers.values() for entry in ledger.entries}
    assert asked == evaluation.planned_steps() - UNASKED
    assert "judge_at_fine_times" in asked
    with pytest.raises(RefusedByPolicy, match="exact_times"):
        evaluate(data, time_points=np.arange(1, 601) / 10, scoring=["brier"])
    few = SurvivalEvaluation(cox(), horizon=20.0, time_points=np.arange(1, 601) / 10)
    assert "judge" in few.planned_steps()


def test_one_time_of_scoring_is_its_own_mean(data):
    found = evaluate(data, time_points=[20.0, 60.0], n_times=2, scoring=["brier", "auc"])
    assert found.times_.tolist() == [60.0]
    assert found.ibs_ == found.brier_[0]
    assert found.mean_auc_ == found.auc_[0]
    assert 0 < found.ibs_standard_error_ < 0.05


def test_pairs_are_counted_at_256_times_at_most(data):
    found = evaluate(data, n_bins=2048, scoring=["concordance"])
    assert found._sums["concordance"].events.shape[1] <= 256
    exact, _ = concordance_with_error(data.time, data.event == 1, -cox().restricted_mean(data.X))
    assert found.concordance_ == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("name", ["_judged.packed", "follow_up", "brier"])
def test_a_file_that_was_tampered_with_is_refused(evaluated, tmp_path, name):
    for change in (lambda blob: None, lambda blob: blob[:-9], lambda blob: blob * 0):
        evaluated.save(tmp_path)
        with np.load(tmp_path / "model.npz") as file:
            arrays = dict(file.items())
        changed = change(arrays.pop(name))
        if changed is not None:
            arrays[name] = changed
        elif name == "brier":
            arrays["luck"] = np.zeros(3, dtype=np.uint8)
        store(tmp_path, arrays)
        with pytest.raises(IntegrityError):
            SurvivalEvaluation.load(tmp_path)


def test_gaps_are_filled_and_columns_compared(data):
    holes = np.array(data.X)
    holes[::7, 0] = np.nan
    gappy = mc.data.SurvivalData(holes, data.time, data.event)
    found = evaluate(gappy, scoring=["brier"])
    rows = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    curves, event = at_times(cox().survival(rows), cox().times, found.times_), data.event == 1
    ibs = integrated_brier_score(curves, found.times_, data.time, event, data.time, event)
    assert found.ibs_ == pytest.approx(ibs, abs=1e-5)
    with pytest.raises(MessageError, match="2 coefficients"):
        evaluate(mc.data.SurvivalData(data.X[:, :2], data.time, data.event))


class Fitted(SurvivalEstimator):
    """An estimator that was fitted to two columns, of which the second was never above 9."""

    site_part = EvaluationSite

    def _fit(self, federation):
        none, starts = np.zeros(0), np.zeros(3, dtype=np.int64)
        centre = np.array([1.0, 9.0])
        self.model_ = CoxModel(MONTHS, np.array([0.5, 0.3]), centre, MONTHS / 40)
        self.agreed_ = Prepared(("x0", "x1"), "months", 2, 9.0, 9.0, MONTHS, centre, np.ones(2), none, starts)
        self.missing_values_ = MissingValues("mean", ("x0", "x1"), (0, 0), 9, 0)


def test_a_fitted_estimator_brings_its_columns_its_cause_and_what_fills_gaps():
    fitted = Fitted()
    drawn = mc.datasets.simulate_survival(300, 2, 3, competing=True)
    with pytest.raises(NotFittedError):
        evaluate(drawn, model=fitted)
    fitted._fit(None)
    holes = np.array(drawn.X)
    holes[::5, 1] = np.nan
    gappy, full = (
        mc.data.SurvivalData(X, drawn.time, drawn.event, unit="months")
        for X in (holes, np.where(np.isnan(holes), 9.0, holes))
    )
    found = evaluate(gappy, model=fitted)
    assert found.to_frame().equals(evaluate(full, model=fitted.model_, cause=2).to_frame())
    assert found.assess(gappy)["concordance"] == fitted.score(gappy)
    renamed = mc.data.SurvivalData(holes, drawn.time, drawn.event, columns=["x0", "age"])
    with pytest.raises(SchemaMismatch, match="x0, x1"):
        evaluate(renamed, model=fitted)


def test_a_run_is_resumed_with_the_same_model_only(data, tmp_path):
    def run(model, **options):
        with federate(spread(data), policy=ANY, folder=tmp_path, **options) as federation:
            return SurvivalEvaluation(model, time_points=MONTHS).fit(federation)

    fitted, other = Fitted(), Fitted()
    for each, coefficient in ((fitted, 0.5), (other, 0.6)):
        each._fit(None)
        names = tuple(data.columns)
        each.model_ = replace(cox(), coefficients=np.full(3, coefficient))
        each.agreed_ = replace(each.agreed_, columns=names, centre=np.zeros(3), spread=np.ones(3), cause=1)
    with pytest.raises(KeyboardInterrupt):
        run(fitted, faults=Faults(interrupt_at=8))  # after the model was sent
    with pytest.raises(ConfigurationError, match="another model"):
        run(other)
    assert run(fitted).n_patients_ == len(data)


def test_events_of_another_cause_end_follow_up():
    drawn = mc.datasets.simulate_survival(600, 3, 2, competing=True)
    single = mc.data.SurvivalData(drawn.X, drawn.time, drawn.event == 2)
    assert evaluate(drawn, cause=2).to_frame().equals(evaluate(single).to_frame())


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n_bins": 1}, "n_bins"),
        ({"n_times": 1}, "n_times"),
        ({"n_groups": 99}, "n_groups"),
        ({"scoring": ["luck"]}, "scoring"),
        ({"scoring": "brier"}, "scoring"),
        ({"concordance": "each"}, "concordance"),
        ({"horizon": 61.0}, "horizon"),
        ({"horizon": 0.0}, "horizon"),
        ({"at": [80.0]}, "at"),
        ({"at": []}, "at"),
        ({"time_points": [3.0]}, "time_points"),
        ({"time_points": [3.0, 2.0]}, "times"),
        ({"time_points": np.linspace(1.0, 60.0, 5000)}, "time_points"),
        ({"thresholds": [0.0]}, "thresholds"),
        ({"thresholds": [0.5, 0.2]}, "thresholds"),
        ({"model": 3}, "model"),
        ({"model": CoxModel.empty()}, "model"),
    ],
)
def test_wrong_parameters_are_named(data, parameters, said):
    with pytest.raises(ConfigurationError, match=f"^{said}[: ]"):
        evaluate(data, **parameters)


def test_times_of_scoring_lie_on_the_grid():
    grid, places, at = settings.choose_times(cox(), 50.0, None, 100, None)
    assert (len(grid), grid[-1], len(places), places[-1]) == (256, 50.0, 100, 255)
    np.testing.assert_allclose(grid[places], np.arange(1, 101) / 2, atol=50 / 256)
    assert (grid[places] >= np.arange(1, 101) / 2 - 1e-9).all()
    np.testing.assert_allclose(grid[at], [12.5, 25.0, 37.5])
    grid, _, at = settings.choose_times(cox(), 50.0, None, 100, [7.7, 12.01])
    assert (len(grid), grid[at].tolist()) == (256, [7.7, 12.01])


def test_what_is_shown_goes_with_what_was_asked(evaluated, data):
    shown = evaluated.figures({}, {})
    titles = [figure.title for figure in shown]
    assert titles[:2] == ["Scores", "Brier score"]
    assert {"Calibration", "Area under the curve", "Decision curve by 30"} <= set(titles)
    for figure in shown:
        assert read_figure(figure.to_dict()) == figure
    own = evaluate(data, scoring=["brier"], by_site=True).figures({}, {})
    assert [figure.title for figure in own] == ["Scores", "Brier score", "Scores by site"]
