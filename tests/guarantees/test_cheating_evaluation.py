"""The guard knows on how few patients the sums rest that a coordinator with made-up weights and times asks for."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.differencing import EarlierPredictions
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.sketch import time_edges
from multicentre.survival.evaluation import messages
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.fitted_models.base import pack

LEAST = 10
BASE = 256
DIGITS = float(BASE) ** -np.arange(6.0)


def patients(n=200, rare=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    if rare:
        X[:, 2] = np.arange(n) == 17
    return mc.data.SurvivalData(X, np.ceil(rng.exponential(700, n)), rng.uniform(size=n) < 0.6, unit="days")


def site_of(data, model, grid, places, at, *, masked=False):
    part = EvaluationSite("lyon", data)
    part.least_behind = LEAST
    d = len(data.columns)
    part.agree(
        Prepared(data.columns, "days", 1, float(len(data)), float(data.event.sum()), np.array([1000.0]),
               np.zeros(d), np.ones(d), np.zeros(0), np.zeros(d + 1, dtype=np.int64))
    )  # fmt: skip
    packed = np.frombuffer(pack(model), dtype=np.uint8)
    part.judge(messages.Scored(packed, np.zeros(d), grid, np.array(places), np.array(at)))
    return part


def flat(slope=0.0):
    return CoxModel(np.array([1000.0, 3000.0]), np.array([0.0, 0.0, slope]), np.zeros(3), np.array([0.1, 0.2]))


def days(data):
    """Return five days with few events each, and a time after all."""
    first = int(np.sort(data.time[data.event == 1])[20])
    return np.append(np.arange(first, first + 5.0), 4000.0)


def counts_in(value):
    """Return how often each weight is in a sum of them."""
    return [(int(value) // BASE**place) % BASE for place in range(6)]


def of_days(data, grid):
    return np.bincount(np.searchsorted(grid, data.time[data.event == 1], side="left"), minlength=6)[:6].tolist()


ASKED = {
    "sum_benefits": (messages.ByThreshold(DIGITS, np.zeros(0)), lambda answer: answer.cases[0, 0]),
    "sum_errors": (messages.CensoringCurve(DIGITS), lambda answer: answer.cases[-1]),
    "count_ranks": (messages.CensoringByMean(DIGITS, np.zeros(0)), lambda answer: answer.cases.sum()),
}


@pytest.mark.parametrize("step", ASKED)
def test_weights_of_single_times_rest_on_the_events_of_each(step):
    data = patients()
    part, events = site_of(data, flat(), days(data), [5], [5]), of_days(data, days(data))
    request, sum_of = ASKED[step]
    answer = getattr(part, step)(request)
    assert counts_in(sum_of(answer)) == events  # an unmasked sum shows each of them
    assert answer.patients == min(filter(None, events)) < LEAST
    part.masked = True
    assert getattr(part, step)(request).patients == len(data)


def test_and_within_a_row_of_predicted_risk():
    data = patients(500)
    model = CoxModel(np.array([1000.0, 3000.0]), np.array([1.0, 0, 0]), np.zeros(3), np.array([0.4, 0.8]))
    grid = np.append(np.quantile(data.time, np.linspace(0.05, 0.25, 5)), 1e5)
    part = site_of(data, model, grid, [5], [5])
    edge = float(np.median(part.risks[:, 0]))
    found = part.sum_benefits(messages.ByThreshold(DIGITS, np.array([edge])))
    cells = np.concatenate([counts_in(value) for value in found.cases[0]])
    assert 0 < found.patients == cells[cells > 0].min() < LEAST


def test_a_column_in_which_one_patient_differs_rests_on_that_patient():
    part = site_of(patients(rare=True), flat(6.0), np.array([400.0, 1300.0]), [0, 1], [1], masked=True)
    request = messages.CensoringCurve(np.array([1.0, 0.5]))
    assert part.sum_errors(request).patients == 1
    part.masked = True
    assert part.sum_errors(request).patients == 200


def apart(data):
    """Return a made-up Cox model under which nobody has an event but the patient of the largest x0, who has."""
    first, second = np.sort(data.X[:, 0])[:-3:-1]
    centre = np.array([(first + second) / 2, 0.0, 0.0])
    return CoxModel(np.array([1000.0, 3000.0]), np.array([120 / (first - second), 0, 0]), centre, np.array([0.1, 0.2]))


EVALUATED = {
    "sum_errors": messages.CensoringCurve(np.array([1.0, 0.5])),
    "count_own_pairs": Nothing(),
    "count_ranks": messages.CensoringByMean(np.array([1.0, 0.5]), np.array([1200.0])),
    "sum_benefits": messages.ByThreshold(np.array([1.0, 0.5]), np.array([0.5])),
    "count_follow_up": Nothing(),
}


@pytest.mark.parametrize("step", EVALUATED)
def test_a_model_that_tells_one_patient_apart_counts_one_patient(step):
    """Errors and won pairs under such a model say whether, and when, that patient had the event."""
    data = patients()
    part = site_of(data, apart(data), np.array([400.0, 1300.0]), [0, 1], [1])
    assert getattr(part, step)(EVALUATED[step]).patients == 1
    part.masked = True
    assert getattr(part, step)(EVALUATED[step]).patients == len(data)
    part = site_of(data, flat(), np.array([400.0, 1300.0]), [0, 1], [1])
    assert part.sum_errors(EVALUATED["sum_errors"]).patients > LEAST


def test_two_models_that_differ_for_one_patient_are_not_both_evaluated():
    data, seen = patients(), EarlierPredictions()
    usual = CoxModel(np.array([1000.0, 3000.0]), np.array([0.0, 0.5, 0.5]), np.zeros(3), np.array([0.1, 0.2]))
    first = int(np.argmax(data.X[:, 0]))
    for move in (0.0, 0.0, 0.5):
        part = site_of(data, usual, np.array([400.0, 1300.0]), [0, 1], [1])
        part.earlier_predictions = seen
        # As another model would treat this patient.
        part.predictions.rows[first, 1] += move
        assert (part.sum_errors(EVALUATED["sum_errors"]).patients < LEAST) == (move > 0)
    assert part.score_own(Nothing()).patients == 0


def test_more_than_256_times_are_refused_without_the_permission_for_recorded_times():
    sites = {name: patients(100 + seed) for seed, name in enumerate(("lyon", "oslo", "graz"))}
    points = np.arange(1.0, 3001.0, 10.0)
    for masked in (False, True):
        policy = mc.Policy(min_patients=10 if masked else 0)
        with mc.Federation.in_process(sites, secure_sum=masked, policy=policy) as federation:
            evaluation = mc.survival.SurvivalEvaluation(flat(), time_points=points, scoring=["brier"])
            with pytest.raises(RefusedByPolicy, match="exact_times"):
                evaluation.fit(federation)
    with pytest.raises(ConfigurationError, match="too fine"):
        site_of(patients(), flat(), points, [0, 1], [0])


def test_a_calibration_of_one_site_is_the_same_at_all_times_within_one_public_bin():
    data, edges = patients(), time_edges()
    moment = np.sort(data.time[data.event == 1])[60] + 0.25
    data = mc.data.SurvivalData(data.X, data.time + 0.25, data.event, unit="days")
    last = edges[np.searchsorted(edges, moment)]
    first = np.nextafter(edges[np.searchsorted(edges, moment) - 1], np.inf)
    assert first < moment < last
    model = flat(0.5)
    answers = [site_of(data, model, np.array([time, 4000.0]), [1], [0]).score_own(Nothing()) for time in (first, last)]
    assert len(answers[0].observed)
    assert np.array_equal(answers[0].observed, answers[1].observed)
