"""A site takes only what makes sense, and answers each step for one ask."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.evaluation import messages
from multicentre.survival.evaluation.site import BLOCK, EvaluationSite, Predictions
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.fitted_models.base import pack
from multicentre.survival.times import restricted_mean

TIMES = np.linspace(5.0, 60.0, 12)
MODEL = CoxModel(TIMES, np.array([0.8, -0.4, 0.27]), np.zeros(3), (TIMES / 30) ** 1.3)
PLACES = np.array([2, 5, 11])


def judged(model=MODEL, **changes):
    packed = np.frombuffer(pack(model), dtype=np.uint8)
    return replace(messages.Scored(packed, np.zeros(3), TIMES, PLACES, np.array([5])), **changes)


@pytest.fixture
def part():
    return make_part(80)


def make_part(n_patients):
    data = mc.datasets.simulate_survival(n_patients, 3, 0)
    part = EvaluationSite("lyon", data)
    none = np.zeros(0)
    n_columns = np.zeros(4, dtype=np.int64)
    part.agree(
        Prepared(data.columns, data.unit, 1, float(n_patients), 50.0, TIMES, np.zeros(3), np.ones(3), none, n_columns)
    )
    return part


@pytest.mark.parametrize(
    "changes",
    [
        {"fill": np.zeros(2)},
        {"fill": np.array([0.0, np.nan, 0.0])},
        {"grid": TIMES[::-1]},
        {"grid": np.linspace(0.001, 60.0, 257)},
        {"places": np.array([5, 2])},
        {"places": np.array([12])},
        {"places": np.array([-1])},
        {"places": np.zeros(0, dtype=np.int64)},
        {"at": np.array([3, 3])},
        {"packed": np.zeros(80, dtype=np.uint8)},
        {"model": CoxModel(TIMES, np.zeros(2), np.zeros(2), TIMES)},
    ],
)
def test_what_makes_no_sense_is_not_taken(part, changes):
    with pytest.raises((ConfigurationError, MessageError)):
        part.judge(judged(**changes))
    with pytest.raises(ConfigurationError, match="must have a model before"):
        part.count_follow_up(Nothing())


def test_fine_times_are_taken_by_the_step_that_needs_permission_only(part):
    grid = np.linspace(0.001, 60.0, 4097)
    with pytest.raises(ConfigurationError, match="must have at most"):
        part.judge_at_fine_times(judged(grid=grid))
    part.judge_at_fine_times(judged(grid=grid[1:]))
    assert len(part.memory.grid) == 4096
    assert EvaluationSite.judge_at_fine_times.releases.declarations()["n_times"].permission == "exact_times"


def test_one_model_is_judged_in_a_fit(part):
    part.judge(judged())
    part.judge(judged())
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.judge(judged(CoxModel(TIMES, np.ones(3), np.zeros(3), TIMES / 30)))


ASKS = {
    "count_pairs": (messages.ByMean(np.array([20.0])), messages.ByMean(np.array([20.1]))),
    "sum_errors": (messages.CensoringCurve(np.ones(12)), messages.CensoringCurve(np.linspace(1.0, 0.5, 12))),
    "count_ranks": (
        messages.CensoringByMean(np.ones(12), np.array([20.0])),
        messages.CensoringByMean(np.ones(12), np.array([20.1])),
    ),
    "count_groups": (messages.ByChance(np.array([[0.4]])), messages.ByChance(np.array([[0.41]]))),
    "sum_benefits": (
        messages.ByThreshold(np.ones(12), np.array([0.4])),
        messages.ByThreshold(np.ones(12), np.array([0.41])),
    ),
}


@pytest.mark.parametrize("step", ASKS)
def test_a_step_answers_one_ask(part, step):
    part.judge(judged())
    first, second = ASKS[step]
    once, again = getattr(part, step)(first), getattr(part, step)(first)
    for name in type(once).declarations():
        np.testing.assert_array_equal(getattr(once, name), getattr(again, name))
    with pytest.raises(ConfigurationError, match="must be identical"):
        getattr(part, step)(second)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("count_pairs", messages.ByMean(np.array([30.0, 20.0]))),
        ("count_pairs", messages.ByMean(np.linspace(1.0, 50.0, 3000))),
        ("sum_errors", messages.CensoringCurve(np.ones(11))),
        ("sum_errors", messages.CensoringCurve(np.linspace(0.5, 1.0, 12))),
        ("sum_errors", messages.CensoringCurve(np.full(12, 2.0))),
        ("count_groups", messages.ByChance(np.array([[0.5, 0.4]]))),
        ("count_groups", messages.ByChance(np.array([[0.4], [0.5]]))),
        ("sum_benefits", messages.ByThreshold(np.ones(12), np.array([0.6, 0.4]))),
    ],
)
def test_bins_and_curves_are_checked(part, step, message):
    part.judge(judged())
    with pytest.raises((ConfigurationError, MessageError)):
        getattr(part, step)(message)


def test_the_guard_is_told_the_fewest_of_a_cell(part):
    part.judge(judged())
    pairs = part.count_pairs(ASKS["count_pairs"][0])
    cells = np.concatenate([pairs.events.ravel(), pairs.censored.ravel()])
    assert pairs.patients == cells[cells > 0].min()
    part.masked = True
    assert part.count_pairs(ASKS["count_pairs"][0]).patients == 80


def test_several_times_of_calibration_rest_on_one_patient_unmasked():
    part = make_part(800)
    part.judge(judged(at=np.array([4, 8])))
    message = messages.ByChance(np.array([[0.4], [0.6]]))
    assert part.count_groups(message).patients == 1
    part.masked = True
    assert part.count_groups(message).patients == 800


def test_counts_are_exact_and_rest_on_the_smallest_cell(part):
    part.least_behind = 10
    part.judge(judged())
    found = part.count_follow_up(Nothing())
    bins, event = np.searchsorted(TIMES, part.data.time), part.data.event == 1
    np.testing.assert_array_equal(found.events, np.bincount(bins[event & (bins < 12)], minlength=12))
    np.testing.assert_array_equal(found.censored, np.bincount(bins[~event | (bins == 12)], minlength=13))
    cells = np.concatenate([np.ravel(table) for table in (found.events, found.censored, found.means, found.chances)])
    assert found.patients == cells[cells > 0].min() < 10


def test_predictions_are_the_same_in_blocks():
    X = np.random.default_rng(0).normal(size=(BLOCK + 3, 3))
    known = Predictions(MODEL, X)
    np.testing.assert_allclose(known.restricted_means, restricted_mean(MODEL.survival(X), TIMES), rtol=1e-12)
    np.testing.assert_allclose(known.risks(TIMES[[3]])[:, 0], 1 - MODEL.survival(X)[:, 3], rtol=1e-12)


def test_survival_at_an_event_lies_on_its_step_and_that_of_others_below_the_line():
    known = Predictions(MODEL, np.zeros((4, 3)))
    curve = np.append(1.0, MODEL.survival(np.zeros((1, 3)))[0])
    time, event = np.array([7.5, 7.5, 2.5, 99.0]), np.array([True, False, False, True])
    low, high = known.survival_at_event(time, event, 60.0)
    expected = [curve[1], (curve[1] + curve[2]) / 2, (1 + curve[1]) / 2, curve[12]]
    np.testing.assert_allclose(high, expected)
    np.testing.assert_allclose(low, [curve[2], 0.0, 0.0, 0.0])
