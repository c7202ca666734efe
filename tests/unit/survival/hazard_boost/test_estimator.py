"""FedHazardBoost: the same as a plain implementation, whatever the split; and what a fitted model offers."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError
from multicentre.survival.hazard_boost.estimator import FedHazardBoost
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
    "parameters", [{"subsample": 0.6}, {"validation_fraction": 0.25, "n_iter_no_change": 4, "n_estimators": 60}]
)
def test_drawn_patients_are_the_same_however_they_are_split(parameters):
    apart = curves(parts_of(DATA, 5, "by time"), secure=True, **parameters)
    assert apart.tobytes() == curves(ONE, **parameters).tobytes()
    assert np.abs(apart - curves(ONE, **parameters, random_state=1)).max() > 1e-3


def test_its_log_loss_is_that_of_scikit_learn_on_rows_of_patients_and_intervals():
    parameters = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.1}
    model = FedHazardBoost(n_times=8, **parameters).fit(federate(DATA, ONE))
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
    model = FedHazardBoost(n_estimators=9, min_child_hessian=1e6).fit(federate(DATA, ONE))
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
    model = FedHazardBoost(n_estimators=7, max_depth=2, min_child_hessian=1.0).fit(federation)
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
            model = FedHazardBoost(n_estimators=2, max_depth=2, n_times=6, max_bins=8, min_child_hessian=2.0).fit(
                federation
            )
            is_lost = len(model.session.sites) < 4
            found.append(model.predict(DATA).tobytes() if is_lost else None)
            at += 1
        return set(found) - {None}

    unmasked, masked = models(False), models(True)
    assert len(masked) > 3
    assert masked <= unmasked


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
        {"validation_fraction": 1.0},
        {"n_iter_no_change": 0},
        {"cause": 0},
        {"horizon": -1.0},
        {"random_state": -1},
    ],
)
def test_parameters_out_of_range_are_named(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FedHazardBoost(**wrong).fit(federate(DATA, ONE))
