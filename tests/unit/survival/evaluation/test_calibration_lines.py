"""Calibration slope and in the large of survival models are those of a Poisson regression of all patients."""

import numpy as np
import pytest
from scipy.optimize import minimize

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.survival import FedCox, SurvivalEvaluation
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.fitted_models.derived import Named
from multicentre.validation import read_model, write_model

MONTHS = np.arange(1.0, 61.0)
ANY = mc.Policy(min_patients=0)
AT = [12.0, 36.0]


def given():
    """Return a model that is too extreme, and predicts too few events."""
    inner = CoxModel(MONTHS, 1.6 * np.array([0.8, -0.4, 0.27]), np.zeros(3), 0.5 * (MONTHS / 30) ** 1.3)
    return Named.of(inner, ("x0", "x1", "x2"))


def patients(n=900, seed=0):
    drawn = mc.datasets.simulate_survival(n, 3, seed)
    return mc.data.SurvivalData(drawn.X, drawn.time, drawn.event, columns=["x0", "x1", "x2"])


def divided(data, n_sites=3):
    rows = np.array_split(np.arange(len(data)), n_sites)
    return {f"site-{place}": data.take(chosen) for place, chosen in enumerate(rows)}


def poisson(model, data, by):
    """Return log ratio, slope and their standard errors by a general optimiser."""
    inner = model.inner
    ratio = np.exp((data.X - inner.centre) @ inner.coefficients)
    baseline = np.concatenate([[0.0], inner.baseline])
    expected = ratio * baseline[np.searchsorted(inner.times, np.minimum(data.time, by), side="right")]
    score = np.log(ratio * baseline[np.searchsorted(inner.times, by, side="right")])
    event = (data.event == 1) & (data.time <= by)

    def loss(values):
        predictor = values[0] + (values[1] - 1.0) * score
        return float((expected * np.exp(predictor) - event * predictor).sum())

    fit = minimize(loss, [0.0, 1.0], method="BFGS", options={"gtol": 1e-7})
    mean = expected * np.exp(fit.x[0] + (fit.x[1] - 1.0) * score)
    rows = np.column_stack([np.ones_like(score), score])
    errors = np.sqrt(np.diagonal(np.linalg.inv(rows.T @ (rows * mean[:, None]))))
    return event.sum() / expected.sum(), event.sum() ** -0.5, fit.x[1], errors[1], fit.x[0]


@pytest.fixture(scope="module")
def evaluated():
    data = patients()
    with mc.Federation.in_process(divided(data), secure_sum=True, policy=ANY) as federation:
        return data, SurvivalEvaluation(given(), at=AT).fit(federation)


@pytest.mark.parametrize("by", AT)
def test_lines_are_those_of_a_poisson_regression_of_the_pooled_patients(evaluated, by):
    data, evaluation = evaluated
    line = evaluation.calibration_lines_[by]
    values = (line.observed_over_expected, line.log_error, line.slope, line.slope_error, line.intercept)
    np.testing.assert_allclose(values, poisson(given(), data, by), rtol=2e-5)
    frame = evaluation.to_frame()
    assert frame.loc[f"calibration slope by {by:g}", "upper"] < 0.9  # too extreme
    assert frame.loc[f"observed over expected events by {by:g}", "lower"] > 1.0


def test_a_recalibrated_model_is_calibrated_and_can_be_written(evaluated, tmp_path):
    data, evaluation = evaluated
    write_model(evaluation.recalibrated(), tmp_path / "model.json")
    model = read_model(tmp_path / "model.json")
    with mc.Federation.in_process(divided(data), secure_sum=True, policy=ANY) as federation:
        line = SurvivalEvaluation(model, at=AT).fit(federation).calibration_lines_[36.0]
    assert line.slope == pytest.approx(1.0, abs=1e-5)
    assert line.observed_over_expected == pytest.approx(1.0, abs=1e-5)
    assert evaluation.line()[1] == evaluation.calibration_lines_[36.0].slope
    assert np.exp(evaluation.shift()) == pytest.approx(evaluation.calibration_lines_[36.0].observed_over_expected)
    in_the_large = evaluation.recalibrated("intercept", by=12.0)
    ratio = evaluation.calibration_lines_[12.0].observed_over_expected
    np.testing.assert_allclose(in_the_large.inner.baseline, ratio * given().inner.baseline)
    np.testing.assert_allclose(in_the_large.inner.coefficients, given().inner.coefficients)


def test_a_cox_model_is_calibrated_on_its_own_patients():
    data = patients()
    with mc.Federation.in_process(divided(data), secure_sum=True, policy=mc.Policy(0, exact_times=True)) as federation:
        model = FedCox(times="exact", ties="breslow").fit(federation)
        line = SurvivalEvaluation(model).fit(federation).calibration_lines_
    last = line[max(line)]
    assert last.observed_over_expected == pytest.approx(1.0, abs=1e-4)


def test_lines_are_saved(evaluated, tmp_path):
    _, evaluation = evaluated
    evaluation.save(tmp_path / "model")
    loaded = SurvivalEvaluation.load(tmp_path / "model")
    assert loaded.calibration_lines_ == evaluation.calibration_lines_
    assert loaded.recalibrated().names == ("x0", "x1", "x2")


def test_models_without_proportional_hazards_and_other_times_are_refused(evaluated):
    _, evaluation = evaluated
    with pytest.raises(ConfigurationError, match="proportional hazards"):
        evaluation.recalibrated(by=5.0)


def test_a_line_of_a_model_that_differs_for_one_patient_is_refused():
    data = patients()
    rare = np.zeros((len(data), 1))
    rare[0] = 1.0
    marked = mc.data.SurvivalData(np.hstack([data.X, rare]), data.time, data.event, columns=["x0", "x1", "x2", "rare"])
    hostile = Named.of(CoxModel(MONTHS, np.array([3.0]), np.zeros(1), MONTHS / 60), ("rare",))
    federation = mc.Federation.in_process(divided(marked), secure_sum=True)
    with pytest.raises(DisclosureRefused):
        SurvivalEvaluation(hostile, scoring=["calibration"]).fit(federation)
