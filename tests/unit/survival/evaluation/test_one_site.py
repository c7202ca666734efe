"""A survival model is judged at one hospital: its scores are those of its patients, and each cell holds the minimum."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import DisclosureRefused
from multicentre.survival import SurvivalEvaluation
from multicentre.survival.agreement.sketch import public_times
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.scores.brier import Censoring, brier_scores
from multicentre.survival.scores.calibration import calibrate_groups, net_benefit
from multicentre.survival.scores.concordance import concordance_with_error
from multicentre.survival.scores.lines import CalibrationLine
from multicentre.survival.times import at_times

MONTHS = np.arange(1.0, 61.0)
MODEL = CoxModel(MONTHS, 1.4 * np.array([0.8, -0.4, 0.27]), np.zeros(3), 0.8 * (MONTHS / 30) ** 1.3)
LEAST = 10


def evaluate(data, model=MODEL, **parameters):
    with mc.Federation.in_process({"oslo": data}) as federation:
        return SurvivalEvaluation(model, **parameters).fit(federation)


@pytest.fixture(scope="module")
def data():
    return mc.datasets.simulate_survival(600, 3, 1)


@pytest.fixture(scope="module")
def evaluation(data):
    return evaluate(data, at=[12.0, 30.0])


def test_scores_of_all_patients_are_those_of_the_local_data(data, evaluation):
    concordance, error = concordance_with_error(data.time, data.event == 1, -MODEL.restricted_mean(data.X))
    assert evaluation.concordance_ == pytest.approx(concordance, abs=1e-12)
    assert evaluation.concordance_standard_error_ == pytest.approx(error, abs=1e-12)
    assert evaluation.ibs_ == pytest.approx(evaluation.assess(data)["ibs"], abs=1e-12)
    assert (evaluation.n_patients_, evaluation.n_events_) == (600, int((data.event == 1).sum()))


def test_curves_are_exact_and_each_cell_between_times_holds_the_minimum(data, evaluation):
    event, times = data.event == 1, evaluation.times_
    assert len(times) > 5
    curves = at_times(MODEL.survival(data.X), MODEL.times, times)
    np.testing.assert_allclose(evaluation.brier_, brier_scores(curves, times, data.time, event, data.time, event))
    stretch = np.searchsorted(times, data.time)
    for flags in (event, ~event):
        counts = np.bincount(stretch[flags], minlength=len(times) + 1)[:-1]
        assert counts[counts > 0].min() >= LEAST
    assert np.isfinite(evaluation.auc_).all()


def test_calibration_slope_and_net_benefit_are_those_of_the_local_data(data, evaluation):
    event, by = data.event == 1, float(public_times(np.array([12.0]))[0])
    assert by in evaluation.calibration_
    risks = 1.0 - at_times(MODEL.survival(data.X), MODEL.times, np.array([by]))[:, 0]
    groups = evaluation.calibration_[by]
    assert len(groups.n_patients) > 2
    edges = np.sort(risks)[np.cumsum(groups.n_patients).astype(int)[:-1] - 1]
    local = calibrate_groups(risks, data.time, event, by, edges)
    np.testing.assert_allclose(groups.observed, local.observed)
    np.testing.assert_allclose(groups.predicted, local.predicted)
    rows = np.searchsorted(edges, risks)
    for flags in (event & (data.time <= by), data.time > by):
        assert np.bincount(rows[flags], minlength=len(edges) + 1).min() >= LEAST
    line = evaluation.calibration_lines_[by]
    assert isinstance(line, CalibrationLine)
    assert line.slope < 1.0 < line.slope + 5 * line.slope_error
    benefit = net_benefit(risks, data.time, event, by, evaluation.thresholds_, Censoring.estimate(data.time, event))
    np.testing.assert_allclose(evaluation.net_benefit_[by], benefit)
    assert len(evaluation.thresholds_) > 2


def test_figures_frames_and_files_of_one_site(evaluation, tmp_path):
    assert {figure.title for figure in evaluation.figures({}, {})} >= {"Scores", "Brier score", "Calibration"}
    evaluation.save(tmp_path / "model")
    loaded = SurvivalEvaluation.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.to_frame(), evaluation.to_frame())
    recalibrated = evaluation.recalibrated("intercept")
    assert recalibrated.inner.baseline[-1] > 0


def test_few_events_are_refused_with_what_would_help(data):
    events = np.zeros(len(data), dtype=np.int64)
    events[:5] = 1
    few = mc.data.SurvivalData(data.X, data.time, events)
    with pytest.raises(DisclosureRefused, match="at least 10 patients") as caught:
        evaluate(few)
    assert "Evaluate more patients" in str(caught.value)
