"""A coordinator that makes weights and times up learns of no few patients from an evaluation in clear."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics.evaluation import messages as sent
from multicentre.analytics.evaluation.site import EvaluationSite
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, RefusedByPolicy
from multicentre.federation.messages import Nothing
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.models import CoxModel
from multicentre.survival.models.packing import pack

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
        Agreed(data.columns, "days", 1, masked, float(len(data)), float(data.event.sum()), np.array([1000.0]),
               np.zeros(d), np.ones(d), np.zeros(0), np.zeros(d + 1, dtype=np.int64))
    )  # fmt: skip
    packed = np.frombuffer(pack(model), dtype=np.uint8)
    part.judge(sent.Judged(packed, np.zeros(d), grid, np.array(places), np.array(at)))
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


def shown_by_benefits(part):
    return part.sum_benefits(sent.ByThreshold(DIGITS, np.zeros(0))).cases[0]


def shown_by_errors(part):
    return part.sum_errors(sent.Known(DIGITS)).cases[-1:]


def shown_by_ranks(part):
    return part.count_ranks(sent.KnownByMean(DIGITS, np.zeros(0))).cases.sum(axis=1)


@pytest.mark.parametrize("shown", [shown_by_benefits, shown_by_errors, shown_by_ranks])
def test_in_clear_no_weight_is_that_of_few_events(shown):
    data = patients()
    told, events = (site_of(data, flat(), days(data), [5], [5]) for _ in range(2)), of_days(data, days(data))
    exact, joined = told
    exact.least_behind = 0
    assert counts_in(shown(exact)[0]) == events
    assert sum(0 < count < LEAST for count in events) >= 2
    counts = counts_in(shown(joined)[0])
    assert sum(counts) == sum(events)
    assert all(count == 0 or count >= LEAST for count in counts)


def test_nor_within_a_row_of_predicted_risk():
    data = patients(500)
    model = CoxModel(np.array([1000.0, 3000.0]), np.array([1.0, 0, 0]), np.zeros(3), np.array([0.4, 0.8]))
    grid = np.append(np.quantile(data.time, np.linspace(0.05, 0.25, 5)), 4000.0)
    part = site_of(data, model, grid, [5], [5])
    edge = float(np.median(part.risks[:, 0]))
    events = np.bincount(part.bins[part.happened & (part.risks[:, 0] <= edge)])
    assert 0 < events[events > 0].min() < LEAST
    found = part.sum_benefits(sent.ByThreshold(DIGITS, np.array([edge])))
    assert found.patients >= LEAST
    for value in found.cases[0]:
        counts = counts_in(value)
        assert sum(count > 0 for count in counts) >= 2
        assert all(count == 0 or count >= LEAST for count in counts)


def test_survival_at_the_end_of_follow_up_tells_no_single_day():
    data = patients()
    grid = np.append(np.arange(100.0, 3000.0, 200.0), 4000.0)
    lone = int(np.flatnonzero((data.event == 0) & (data.time > 720) & (data.time < 780))[0])
    moved = np.array(data.time)
    moved[lone] += 10.0
    steps = CoxModel(np.arange(10.0, 4001.0, 10.0), np.zeros(3), np.zeros(3), np.arange(10.0, 4001.0, 10.0) / 2000)

    def answer(times, least):
        part = site_of(mc.data.SurvivalData(data.X, times, data.event, unit="days"), steps, grid, [15], [15])
        part.least_behind = least
        return part.count_groups(sent.ByChance(np.zeros((1, 0)))).spread

    assert np.abs(answer(data.time, 0) - answer(moved, 0)).max() > 1e-4
    np.testing.assert_array_equal(answer(data.time, LEAST), answer(moved, LEAST))


@pytest.mark.parametrize("masked_before", [False, True])
def test_an_ask_under_a_mask_does_not_loosen_those_in_clear(masked_before):
    data = patients(rare=True)
    grid = np.array([400.0, 1300.0])
    part = site_of(data, flat(6.0), grid, [0, 1], [1])
    if masked_before:
        part.masked = True
        part.count_follow_up(Nothing())
        part.masked = False
    found = part.sum_errors(sent.Known(np.array([1.0, 0.5])))
    expected = site_of(data, flat(), grid, [0, 1], [1]).sum_errors(sent.Known(np.array([1.0, 0.5])))
    np.testing.assert_allclose(found.errors, expected.errors, rtol=1e-12)
    agreed = site_of(data, flat(6.0), grid, [0, 1], [1], masked=True)
    assert agreed.sum_errors(sent.Known(np.array([1.0, 0.5]))).patients == 1


def test_follow_up_and_errors_tell_of_the_same_joined_times():
    data = patients(300)
    grid = np.arange(50.0, 2550.0, 50.0)
    part = site_of(data, flat(), grid, np.arange(len(grid)), [20])
    follow_up = part.count_follow_up(Nothing())
    found = part.sum_errors(sent.Known(np.ones(len(grid))))
    np.testing.assert_array_equal(np.diff(found.cases, prepend=0.0), follow_up.events)
    assert follow_up.events[follow_up.events > 0].min() >= LEAST


def test_more_than_256_times_are_refused_unless_a_policy_permits_recorded_ones():
    sites = {name: patients(100 + seed) for seed, name in enumerate(("lyon", "oslo", "graz"))}
    points = np.arange(1.0, 3001.0, 10.0)
    for masked in (False, True):
        with mc.Federation.in_process(sites, secure_sum=masked) as federation:
            evaluation = mc.analytics.SurvivalEvaluation(flat(), time_points=points, measures=["brier"])
            with pytest.raises(RefusedByPolicy, match="exact_times"):
                evaluation.fit(federation)
    with pytest.raises(ConfigurationError, match="too fine"):
        site_of(patients(), flat(), points, [0, 1], [0])


def test_an_honest_evaluation_in_clear_comes_near_or_is_refused():
    drawn = mc.datasets.simulate_survival(3000, 3, 5)
    sites = {f"site-{k}": drawn.take(np.arange(k, 3000, 3)) for k in range(3)}
    times = np.linspace(5.0, 60.0, 12)
    cox = CoxModel(times, np.array([0.8, -0.4, 0.27]), np.zeros(3), (times / 30) ** 1.3)
    some = {"n_times": 4, "at": [30.0], "n_groups": 3, "measures": ["brier", "calibration"]}
    found = []
    for masked in (False, True):
        with mc.Federation.in_process(sites, secure_sum=masked) as federation:
            found.append(mc.analytics.SurvivalEvaluation(cox, **some).fit(federation))
    assert found[0].ibs_ == pytest.approx(found[1].ibs_, abs=5e-3)
    few = {name: data.take(np.arange(60)) for name, data in sites.items()}
    with mc.Federation.in_process(few) as federation, pytest.raises(DisclosureRefused, match="secure_sum=True"):
        mc.analytics.SurvivalEvaluation(cox, measures=["brier"]).fit(federation)
