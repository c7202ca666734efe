"""FedHazardBoost: the same as a plain implementation, whatever the split; and what a fitted model offers."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError
from multicentre.survival.hazard_boost.estimator import MIN_TREES, FedHazardBoost
from multicentre.survival.kernels.pairs import draw_uniform, patient_keys
from support.hazard_toy import boost_plainly, federate, parts_of, simulate

pytestmark = pytest.mark.filterwarnings("ignore:the median follow-up of:UserWarning")

DATA = simulate()
SMALL = {
    "n_estimators": 12,
    "max_depth": 3,
    "n_times": 8,
    "max_bins": 12,
    "learning_rate": 0.3,
    "min_child_hessian": 3.0,
    "early_stopping": False,
}
ONE = [np.arange(len(DATA))]


def curves(parts, secure=False, **parameters):
    model = FedHazardBoost(**{**SMALL, **parameters}).fit(federate(DATA, parts, secure_sum=secure))
    return model.predict_survival_function(DATA, return_array=True)


@pytest.fixture(scope="module")
def pooled():
    return FedHazardBoost(**SMALL).fit(federate(DATA, ONE))


def test_it_is_the_model_of_a_plain_implementation(pooled):
    expected, *_ = boost_plainly(
        DATA, pooled.agreed_, n_estimators=12, max_depth=3, learning_rate=0.3, l2_regularization=1.0, least=3.0
    )
    assert len(pooled.hazard_model_.roots) == 12
    np.testing.assert_allclose(pooled.hazard_model_.survival(pooled.filled(DATA)), expected, atol=1e-6)


def test_within_an_interval_the_cumulative_hazard_is_straight(pooled):
    ends, H = pooled.hazard_model_.times, -np.log(pooled.predict_survival_function(DATA, return_array=True))
    at_ends = np.isin(pooled.times_, ends)
    assert len(pooled.times_) >= 128
    np.testing.assert_allclose(np.exp(-H[:, at_ends]), pooled.hazard_model_.survival(pooled.filled(DATA)), rtol=1e-9)
    for start, end in zip(np.append(0.0, ends), ends, strict=False):
        inside = (pooled.times_ > start) & (pooled.times_ <= end)
        rises = np.diff(np.column_stack([H[:, inside]]), axis=1)
        np.testing.assert_allclose(rises, rises[:, :1].repeat(rises.shape[1], axis=1), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "by time", "by column"])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_it_is_the_same_model_to_the_last_bit_however_patients_are_split(pooled, order, secure):
    found = curves(parts_of(DATA, 8, order), secure)
    assert found.tobytes() == pooled.predict_survival_function(DATA, return_array=True).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [{"subsample": 0.6}, {"early_stopping": True, "n_iter_no_change": 4, "n_estimators": 60, "learning_rate": 0.1}],
)
def test_drawn_patients_are_the_same_however_they_are_split(parameters):
    apart = curves(parts_of(DATA, 5, "by time"), secure=True, **parameters)
    assert apart.tobytes() == curves(ONE, **parameters).tobytes()
    assert np.abs(apart - curves(ONE, **parameters, random_state=1)).max() > 1e-3


def test_its_log_loss_is_that_of_scikit_learn_on_rows_of_patients_and_intervals():
    parameters = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.1}
    model = FedHazardBoost(n_times=8, early_stopping=False, **parameters).fit(federate(DATA, ONE))
    _, rows, features, y = boost_plainly(
        DATA, model.agreed_, n_estimators=0, max_depth=0, learning_rate=1.0, l2_regularization=1.0, least=1.0
    )
    peer = HistGradientBoostingClassifier(
        max_iter=40, max_depth=3, learning_rate=0.1, l2_regularization=1.0, early_stopping=False
    ).fit(features, y)
    survival = model.hazard_model_.survival(model.filled(DATA))
    hazards = 1 - survival / np.column_stack([np.ones(len(DATA)), survival[:, :-1]])
    ours = hazards[rows[:, 0], rows[:, 1]]
    assert log_loss(y, ours) == pytest.approx(log_loss(y, peer.predict_proba(features)[:, 1]), rel=0.03)


def test_it_sees_that_effects_change_over_time(pooled):
    _, early = pooled.effect_over_time("x0", [-1.0, 1.0])
    _, late = pooled.effect_over_time("x1", [-1.0, 1.0])
    log_ratios = [np.log(hazards[1] / hazards[0]) for hazards in (early, late)]
    ends = pooled.hazard_model_.times
    before, after = ends < 0.8, ends > 1.3
    assert log_ratios[0][before].mean() > log_ratios[0][after].mean() + 0.2
    assert log_ratios[1][after].mean() < log_ratios[1][before].mean() - 0.1


def test_importances_are_shares_and_noise_has_the_least(pooled):
    assert pooled.feature_importances_.sum() + pooled.time_importance_ == pytest.approx(1.0)
    assert pooled.feature_importances_.argmin() in (2, 3)
    assert pooled.to_frame()["importance"].is_monotonic_decreasing
    assert pooled.feature_importances_[3] < 0.3 * pooled.feature_importances_[:2].min()


def test_figures_show_importances_and_hazards(pooled):
    bars, lines = pooled.figures({}, {})
    assert bars.categories[0] in ("x0", "x1")
    assert len(lines.series) == 3
    assert all(len(values) == len(pooled.hazard_model_.times) for values in lines.series.values())
    with pytest.raises(ConfigurationError, match="column must be one of"):
        pooled.effect_over_time("absent")


def test_every_curve_falls_between_one_and_zero_for_any_patient(pooled):
    strange = np.array([[1e300, -1e300, 0.0, 5.0], [np.nan] * 4, [-1e9, 1e9, 1.0, 0.0]])
    survival = pooled.predict_survival_function(strange, return_array=True)
    assert np.isfinite(survival).all()
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 0).all()


def test_trees_without_an_allowed_split_are_not_grown():
    model = FedHazardBoost(n_estimators=9, min_child_hessian=1e6, early_stopping=False).fit(federate(DATA, ONE))
    assert len(model.hazard_model_.roots) == 1
    assert np.ptp(model.predict(DATA)) == 0.0


def test_competing_events_end_the_follow_up():
    event = np.where(np.arange(len(DATA)) % 3 == 0, 2, DATA.event)
    data = mc.data.SurvivalData(DATA.X, DATA.time, event)
    own = mc.data.SurvivalData(DATA.X, DATA.time, (event == 2).astype(int))
    found = FedHazardBoost(**SMALL, cause=2).fit(federate(data, parts_of(data, 3, "random")))
    alone = FedHazardBoost(**SMALL).fit(federate(own, ONE))
    assert np.array_equal(found.predict(data), alone.predict(data))


def test_a_saved_model_is_the_model(pooled, tmp_path):
    pooled.save(tmp_path)
    again = FedHazardBoost.load(tmp_path)
    assert np.array_equal(again.predict(DATA), pooled.predict(DATA))
    assert np.array_equal(again.feature_importances_, pooled.feature_importances_)


def test_a_fit_asks_one_sum_a_level():
    federation = federate(DATA, parts_of(DATA, 3, "random"))
    model = FedHazardBoost(n_estimators=7, max_depth=2, min_child_hessian=1.0, early_stopping=False).fit(federation)
    assert federation.traffic.calls["sum_slopes"] == 14
    keys = {"advertise", "agree"}
    assert set(federation.traffic.calls) - keys <= model.planned_steps()


@pytest.mark.slow
def test_after_the_loss_of_a_site_masked_sums_go_on_as_sums_in_clear_do():
    def models(secure):
        found, at = [], 0
        while not found or found[-1] is not None:
            faults = Faults(lose={"site-1": at})
            federation = federate(DATA, parts_of(DATA, 4, "random"), secure_sum=secure, quorum=3, faults=faults)
            options = {"n_times": 6, "max_bins": 8, "min_child_hessian": 2.0, "early_stopping": False}
            model = FedHazardBoost(n_estimators=2, max_depth=2, **options).fit(federation)
            is_lost = len(model.session.sites) < 4
            found.append(model.predict(DATA).tobytes() if is_lost else None)
            at += 1
        return set(found) - {None}

    unmasked, masked = models(False), models(True)
    assert len(masked) > 3
    assert masked <= unmasked


def held_out_losses_by_hand(model, n_estimators):
    """Return the mean log-loss of held-out patients by number of trees, from plain fits without each fold."""
    draws = draw_uniform(patient_keys(DATA.X, DATA.time, DATA.event, DATA.ids), 0, 0)
    fold, losses, n_counted = np.floor(3 * draws), np.zeros(n_estimators), 0
    for held_out in range(3):
        for number in range(n_estimators):
            curves, rows, _, y = boost_plainly(
                DATA, model.agreed_, n_estimators=number, max_depth=2, learning_rate=0.3, l2_regularization=1.0,
                least=3.0, used=fold != held_out,
            )  # fmt: skip
            chosen = fold[rows[:, 0]] == held_out
            hazards = 1 - curves / np.column_stack([np.ones(len(DATA)), curves[:, :-1]])
            hazard = hazards[rows[chosen, 0], rows[chosen, 1]]
            losses[number] -= np.where(y[chosen] == 1, np.log(hazard), np.log(1 - hazard)).sum()
        n_counted += len(np.unique(rows[chosen, 0]))
    return losses / n_counted


def test_early_stopping_minimises_the_log_loss_of_plain_three_fold_cross_validation():
    settings = {**SMALL, "max_depth": 2, "early_stopping": True, "n_estimators": 4}
    model = FedHazardBoost(**settings).fit(federate(DATA, parts_of(DATA, 3, "by time"), secure_sum=True))
    np.testing.assert_allclose(model.held_out_losses_, held_out_losses_by_hand(model, 4), rtol=2e-5)
    assert len(model.hazard_model_.roots) == 4, "the smallest number of trees is limited by n_estimators"


@pytest.mark.slow
def test_early_stopping_keeps_the_trees_of_the_smallest_held_out_loss():
    noise = mc.data.SurvivalData(np.random.default_rng(3).normal(size=(600, 6)), DATA.time, DATA.event)
    informative, useless = (
        FedHazardBoost(learning_rate=0.2, n_times=8, min_child_hessian=3.0).fit(federate(data, ONE))
        for data in (DATA, noise)
    )
    assert len(informative.hazard_model_.roots) == informative.held_out_losses_.argmin() < 200
    assert useless.held_out_losses_.argmin() < len(useless.hazard_model_.roots) == MIN_TREES
    rest = FedHazardBoost(
        informative.held_out_losses_.argmin(), learning_rate=0.2, n_times=8, min_child_hessian=3.0, early_stopping=False
    ).fit(federate(DATA, ONE))
    assert np.array_equal(rest.predict(DATA), informative.predict(DATA)), "the final trees use all patients"


def test_a_site_too_small_to_hold_out_anybody_takes_part_in_early_stopping():
    """Folds are drawn per patient and only totals are used, so that a site of four needs no fold of its own."""
    order = np.random.default_rng(1).permutation(len(DATA))
    parts = [order[:4], order[4:100], order[100:]]
    settings = {**SMALL, "n_estimators": 15, "early_stopping": True}
    small = federate(DATA, parts, policy=mc.Policy(min_patients=0), secure_sum=True)
    apart, together = FedHazardBoost(**settings).fit(small), FedHazardBoost(**settings).fit(federate(DATA, ONE))
    assert apart.predict(DATA).tobytes() == together.predict(DATA).tobytes()
    assert np.array_equal(apart.held_out_losses_, together.held_out_losses_)


def test_with_many_events_all_trees_are_grown_and_with_few_a_warning_says_so(monkeypatch):
    rows = np.flatnonzero(DATA.event == 1)[:25].tolist() + np.flatnonzero(DATA.event == 0)[:60].tolist()
    few = DATA.take(np.array(rows))
    with pytest.warns(UserWarning, match="early stopping has 2[0-9] events"):
        FedHazardBoost(3, n_times=4).fit(federate(few, [np.arange(len(few))]))
    monkeypatch.setattr("multicentre.survival.hazard_boost.estimator.MANY_EVENTS", 300)
    model = FedHazardBoost(3, n_times=4).fit(federate(DATA, ONE))
    assert not len(model.held_out_losses_)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_estimators": 0},
        {"max_depth": 0},
        {"max_depth": 2.5},
        {"learning_rate": 0.0},
        {"n_times": 1000},
        {"max_bins": 1},
        {"l2_regularization": -1.0},
        {"min_child_hessian": 0.0},
        {"subsample": 1.5},
        {"early_stopping": "always"},
        {"n_iter_no_change": 0},
        {"cause": 0},
        {"horizon": -1.0},
        {"random_state": -1},
    ],
)
def test_parameters_out_of_range_are_named(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FedHazardBoost(**wrong).fit(federate(DATA, ONE))
