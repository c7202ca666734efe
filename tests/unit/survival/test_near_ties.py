"""Times within 1e-9 of each other are one time, at a site and between sites, as with R's timefix."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.survival.scores.concordance import concordance_index

OPEN = mc.Policy(min_patients=0, exact_times=True)
# Three ways to divide days into months, which differ by about 1e-16.
WAYS = (lambda days: days / 30.4375, lambda days: days * (1 / 30.4375), lambda days: days / 365.25 * 12)


def simulate(ways=WAYS, *, mixed=False, noise=0.0, digits=None):
    """Return sites whose times are days in months; at a site with mixed ways, patients differ in theirs."""
    rng, sites = np.random.default_rng(3), {}
    for number in range(3):
        x = rng.normal(size=(90, 2))
        days = np.ceil(rng.exponential(15 * np.exp(-0.4 * x[:, 0])))
        event, drawn = rng.random(90) < 0.8, rng.integers(0, 3, 90)
        which = drawn if mixed else np.full(90, number)
        time = np.choose(which, [way(days) for way in ways]) * (1.0 + noise * rng.uniform(-1.0, 1.0, 90))
        time = time if digits is None else np.round(days / 30.4375, digits)
        x[:, 1] = x[:, 1] > 0
        sites[f"s{number}"] = mc.data.SurvivalData(x, time, event, columns=["x", "arm"])
    return sites


def coefficients(model):
    return lambda sites, secure: model.fit(federate(sites, secure)).coef_


def federate(sites, secure):
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


FITS = {
    "stratified": coefficients(mc.survival.FedCox()),
    "grid": coefficients(mc.survival.FedCox("grid", n_times=256)),
    "exact": coefficients(mc.survival.FedCox("exact")),
    "one round": coefficients(mc.survival.FedCox(one_round=True)),
    "mixed": coefficients(mc.survival.FedMixedCox("fixed", times="exact")),
    "curve": lambda sites, secure: mc.survival.KaplanMeier(times="exact").fit(federate(sites, secure)).table_.died,
    "test": lambda sites, secure: mc.survival.LogRank("arm").fit(federate(sites, secure)).statistic_,
    "exact test": lambda sites, secure: (
        mc.survival.LogRank("arm", times="exact", stratify_by_site=False).fit(federate(sites, secure)).statistic_
    ),
}


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize(("mixed", "noise"), [(False, 0.0), (True, 0.0), (True, 2e-10)])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_to_near_ties_is_that_to_ties(name, mixed, noise, secure):
    result = FITS[name](simulate(mixed=mixed, noise=noise), secure)
    expected = FITS[name](simulate(digits=9), secure)
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-7)


def test_a_censored_patient_is_at_risk_at_the_same_time_of_another_site():
    rows = np.array([[0.0], [1.0], [1.0], [0.0]])
    sites = {
        "lyon": mc.data.SurvivalData(rows, [6.0, 9.0, 12.0, 15.0], [1, 1, 1, 1]),
        "oslo": mc.data.SurvivalData(rows, np.array([6.0, 9.0, 12.0, 15.0]) * (1.0 - 9e-10), [0, 0, 0, 1]),
    }
    tied = {site: mc.data.SurvivalData(d.X, np.round(d.time, 6), d.event) for site, d in sites.items()}
    fits = [mc.survival.FedCox("exact").fit(federate(each, secure=True)).coef_ for each in (sites, tied)]
    np.testing.assert_allclose(*fits, rtol=1e-9)
    tables = [mc.survival.KaplanMeier(times="exact").fit(federate(each, secure=False)).table_ for each in (sites, tied)]
    np.testing.assert_array_equal(tables[0].at_risk, tables[1].at_risk)
    np.testing.assert_array_equal(tables[0].died, tables[1].died)


def test_times_that_differ_by_more_are_not_tied():
    data = mc.data.SurvivalData(np.zeros((3, 1)), [1.0, 1.0 + 3e-9, 1e-300], [1, 1, 1])
    assert len(np.unique(data.time)) == 3


def test_an_event_at_a_horizon_counts_however_its_time_was_computed():
    sites = {
        f"s{n}": mc.data.SurvivalData(d.X, d.time * 0.0 + way(365.25), d.event)
        for n, (d, way) in enumerate(
            zip(
                simulate().values(),
                (lambda t: t / 30.4375, lambda t: t / 365.25 * 12 * (1 + 1e-15), lambda t: 12.0),
                strict=True,
            )
        )
    }
    events = sum(int(d.event.sum()) for d in sites.values())
    model = mc.survival.KaplanMeier(times=[6.0, 12.0]).fit(federate(sites, secure=True))
    assert model.table_.died.sum() == events
    assert model.n_events_after_horizon_ == 0


def test_concordance_of_local_patients_has_the_same_ties():
    rng = np.random.default_rng(0)
    days, event, risk = rng.integers(1, 20, 200), rng.random(200) < 0.7, rng.normal(size=200)
    months = np.choose(rng.integers(0, 3, 200), [way(days) for way in WAYS])
    data = mc.data.SurvivalData(np.zeros((200, 1)), months, event)
    assert concordance_index(data.time, event, risk) == concordance_index(days.astype(float), event, risk)
