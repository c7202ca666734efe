"""Cumulative incidence over sites: options, shapes, what is shown."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.figures import Curves
from multicentre.survival import AalenJohansen
from multicentre.survival.curves import aalen_johansen as maths

OPEN = mc.Policy(min_patients=0, exact_times=True)


def simulated(n=200):
    return {f"site-{i}": mc.datasets.simulate_survival(n + 40 * i, random_state=i, competing=True) for i in range(3)}


def fit(sites, *arguments, policy=None, **options):
    federation = mc.Federation.in_process(sites, policy=policy)
    return AalenJohansen(*arguments, **options).fit(federation)


def test_incidences_and_survival_add_to_one():
    model = fit(simulated(), "x2")
    assert model.incidence_.shape == (2, 2, len(model.times_))
    np.testing.assert_allclose(model.incidence_.sum(axis=1) + model.survival_, 1.0)
    assert (np.diff(model.incidence_, axis=2) >= 0).all()
    assert (model.lower_ <= model.incidence_).all()
    assert (model.upper_ >= model.incidence_).all()
    hazards = np.log(1 / model.survival_)
    assert np.abs(model.cumulative_hazard_.sum(axis=1) - hazards)[:, :30].max() < 0.02


def test_the_grid_is_that_of_all_causes():
    sites = simulated()
    model = fit(sites, times="exact", policy=OPEN)
    every = np.concatenate([data.time[data.event > 0] for data in sites.values()])
    np.testing.assert_array_equal(model.times_, np.unique(every))
    totals = np.sum([[(data.event == cause).sum() for cause in (1, 2)] for data in sites.values()], axis=0)
    np.testing.assert_array_equal(model.events_.sum(axis=(0, 2)), totals)


@pytest.mark.slow
def test_the_variance_is_the_spread_over_samples():
    rng = np.random.default_rng(4)
    found, variances = [], {"delta": [], "aalen": []}
    for _ in range(600):
        time, cause = rng.exponential(1.0, 80), 1 + (rng.uniform(size=80) < 0.4)
        end = rng.uniform(0, 3, 80)
        cause = np.where(time <= end, cause, 0)
        time = np.minimum(time, end)
        grid = np.unique(time[(cause > 0) & (time < 1.0)])
        events = np.array([[((time == t) & (cause == c)).sum() for t in grid] for c in (1, 2)], float)
        at_risk = np.array([(time >= t).sum() for t in grid], float)
        found.append(maths.cumulative_incidence(events, at_risk)[0][0, -1])
        for kind, values in variances.items():
            values.append(maths.incidence_variance(events, at_risk, kind)[0, -1])
    assert np.mean(found) == pytest.approx(0.6 * (1 - np.exp(-1.0)), abs=0.01)
    for values in variances.values():
        assert np.mean(values) == pytest.approx(np.var(found), rel=0.12)


def test_a_cause_that_is_not_named_ends_the_follow_up():
    sites = simulated()
    one = fit(sites, causes=(2,), times="exact", policy=OPEN)
    both = fit(sites, times="exact", policy=OPEN)
    assert (one.incidence_[0, 0, 5:] > both.incidence_[0, 1, 5:]).any()
    np.testing.assert_allclose(one.cumulative_hazard_[0, 0], both.cumulative_hazard_[0, 1])


@pytest.mark.parametrize(
    "unfit", [{"confidence_level": 0.0}, {"variance": "mine"}, {"causes": (1, 1)}, {"causes": (0,)}], ids=str
)
def test_options_that_are_none_are_refused(unfit):
    with pytest.raises(ConfigurationError):
        fit(simulated(), **unfit)


def test_no_event_anywhere_is_named():
    data = mc.data.SurvivalData(np.zeros((30, 1)), np.arange(30.0), np.zeros(30))
    with pytest.raises(DataError, match="must have an event"):
        fit({"a": data, "b": data, "c": data})


def test_what_is_shown_saved_and_assessed(tmp_path):
    sites = simulated()
    model = fit(sites, "x2")
    (figure,) = model.figures({}, {})
    assert isinstance(figure, Curves)
    assert [band.name for band in figure.bands] == ["x2 0, cause 1", "x2 0, cause 2", "x2 1, cause 1", "x2 1, cause 2"]
    assert figure.bands[0].y[0] == 0.0
    model.save(tmp_path)
    back = AalenJohansen.load(tmp_path)
    np.testing.assert_array_equal(back.upper_, model.upper_)
    assert 0 < back.assess(sites["site-0"])["distance"] < 0.5
    assert np.isnan(back.incidence_at([1e9])).all()
