"""Contract of every method with a horizon: events after it are counted, and said in all that a reader receives."""

import inspect
import re

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import MissingExtra
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from multicentre.studies.analyses import _with_model

# Small settings by method; a method with a horizon and without an entry fails.
SETTINGS = {
    "aalen-johansen": {"n_times": 8},
    "fed-cox": {},
    "fed-cox, grid": {"times": "grid", "n_times": 8},
    "fed-deep-surv": {"max_iter": 1, "n_times": 8},
    "fed-hazard-boost": {"n_estimators": 2, "n_times": 4},
    "fed-mixed-cox": {"n_times": 8},
    "fed-rsf": {"n_estimators": 2, "n_times": 4},
    "fed-surf": {"n_estimators": 2, "n_local_estimators": 2, "n_times": 4},
    "fed-surv-boost": {"n_estimators": 1, "n_times": 4},
    "kaplan-meier": {"n_times": 8},
    "log-rank": {"group": "x2"},
    "log-rank, grid": {"group": "x2", "stratify_by_site": False, "n_times": 8},
    "survival-evaluation": {"n_bins": 4, "n_times": 2, "at": [5.0], "n_groups": 2, "thresholds": [0.4]},
}
HORIZON = 10.0
SITES = {f"site-{i}": mc.datasets.simulate_survival(150, random_state=i) for i in range(2)}
N_AFTER = sum(int(((data.time > HORIZON) & (data.event > 0)).sum()) for data in SITES.values())
SENTENCE = re.compile(r"(\d+) events after the horizon \(10(?: months)?\)")


def with_horizon():
    for method in METHODS:
        if METHODS[method].package == "multicentre":
            try:
                kind = find_estimator(method)
            except MissingExtra:
                continue
            if "horizon" in inspect.signature(kind).parameters:
                yield method


WITH_HORIZON = set(with_horizon())


def test_every_method_with_a_horizon_has_an_entry():
    assert set(SETTINGS) >= WITH_HORIZON


def fitted(name, **more):
    settings = SETTINGS[name]
    if name == "survival-evaluation":
        settings = {**settings, "model": mc.survival.FedCox(n_times=8).fit(mc.Federation.in_process(SITES))}
    return find_estimator(name.partition(",")[0])(**settings, **more).fit(mc.Federation.in_process(SITES))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETTINGS)
def test_events_after_the_horizon_are_counted_and_said(name):
    if name.partition(",")[0] not in WITH_HORIZON:
        pytest.skip("needs a library that is not installed")
    model = fitted(name, horizon=HORIZON)
    assert model.n_events_after_horizon_ == N_AFTER
    captions = " ".join(one.caption for one in _with_model(model.figures({}, {}), model.describe_model()))
    for text in (model.answer(), str(model.summary()), captions):
        (said,) = SENTENCE.findall(" ".join(text.split()))
        assert int(said) == N_AFTER
    assert 0 < N_AFTER < sum(int((data.event > 0).sum()) for data in SITES.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "more"), [("fed-cox", {}), ("log-rank", {}), ("kaplan-meier", {"horizon": 1e5})])
def test_without_events_after_the_horizon_nothing_is_said(name, more):
    model = fitted(name, **more)
    assert model.n_events_after_horizon_ == 0
    assert "after the horizon" not in model.answer() + str(model.summary())


def test_a_small_number_is_not_stated_and_not_saved(tmp_path):
    last = sorted(np.concatenate([data.time[data.event > 0] for data in SITES.values()]))[-3]
    model = mc.survival.FedCox(horizon=float(last)).fit(mc.Federation.in_process(SITES))
    assert model.n_events_after_horizon_ == 2
    assert "<5 events after the horizon" in model.answer()
    model.save(tmp_path)
    assert mc.survival.FedCox.load(tmp_path).n_events_after_horizon_ is None
    assert "<5 events after the horizon" in mc.survival.FedCox.load(tmp_path).answer()


@pytest.mark.parametrize("times", ["stratified", "exact"])
def test_a_horizon_censors_at_it(times):
    cut = {
        name: mc.data.SurvivalData(
            data.X, np.minimum(data.time, 6.0), np.where(data.time <= 6.0, data.event, 0), columns=data.columns
        )
        for name, data in SITES.items()
    }
    policy = mc.Policy(exact_times=True)
    ours = mc.survival.FedCox(times, horizon=6.0).fit(mc.Federation.in_process(SITES, policy=policy))
    by_hand = mc.survival.FedCox(times).fit(mc.Federation.in_process(cut, policy=policy))
    np.testing.assert_allclose(ours.coef_, by_hand.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, by_hand.standard_errors_, atol=1e-6)
    assert ours.n_events_ == by_hand.n_events_
