"""A coordinator that asks for what an honest fit of the Cox model never would: no patient shows."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.federation.engine import Call, Refused, decode_call, encode_call
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MulticentreError, RefusedByPolicy
from multicentre.federation.runtime import SiteRuntime
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.estimator import FedCox
from multicentre.survival.cox.maths.effective import effective_number
from multicentre.survival.cox.site import CoxSite

N_COLUMNS = 3
BY_TIME = [CoxSite.sum_products, CoxSite.sum_scores, CoxSite.sum_residuals]
EXACT = [CoxSite.sum_exact_products, CoxSite.sum_exact_scores, CoxSite.sum_exact_residuals]
COARSE = np.linspace(100.0, 1600.0, 16)
DAYS = np.arange(1.0, 3001.0)
NOWHERE = np.zeros(N_COLUMNS)


def patients(n=200, seed=0, effect=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_COLUMNS))
    time = np.ceil(rng.exponential(700.0 * np.exp(-effect * X[:, 0])))
    return mc.data.SurvivalData(X, time, rng.random(n) < 0.6, unit="days")


class Site:
    """One site behind its runtime and its guard, whose answers and refusals are returned."""

    def __init__(self, data, times, *, policy=None, masked=False):
        self.runtime = SiteRuntime("a", data, Guard(policy or mc.Policy(), Ledger(), (), site="a"))
        self.sent = 0
        columns, none = data.columns, np.zeros(0)
        n, m = float(len(data)), float(data.event.sum())
        first = np.zeros(len(columns) + 1, dtype=np.int64)
        scale = np.zeros(len(columns)), np.ones(len(columns))
        self.ask(CoxSite.agree, Agreed(columns, data.unit, 1, masked, n, m, times, *scale, none, first))

    def ask(self, step, ask):
        self.sent += 1
        call = Call("study", "session", self.sent, step, ask, ("a", "b"))
        answer = self.runtime.answer(decode_call(encode_call(call), lambda name: CoxSite))
        if isinstance(answer, Refused):
            raise answer.error
        return answer


def means(times, *, coefficients=NOWHERE, first=None, transform=None):
    none, rows = np.zeros(len(times)), np.zeros((len(times), N_COLUMNS))
    given = [none if each is None else each for each in (first, transform)]
    return sent.Means(coefficients, False, 0.0, given[0], none, rows, rows, rows, given[1])


def asked_of(step, times, **given):
    asked = means(times, **given)
    if step.name.endswith("products"):
        return sent.Hazards(asked.coefficients, False, 0.0, asked.first, asked.first_tied)
    return asked


@pytest.mark.parametrize("step", BY_TIME, ids=lambda step: step.name)
def test_no_sum_is_given_at_every_day(step):
    with pytest.raises(ConfigurationError, match="too fine"):
        Site(patients(), DAYS[:300]).ask(step, asked_of(step, DAYS[:300]))


def test_no_sum_of_own_residuals_is_given_at_every_day():
    ask = sent.Transform(NOWHERE, False, (DAYS[:300] == 20.0).astype(float))
    with pytest.raises(ConfigurationError, match="too fine"):
        Site(patients(), DAYS[:300]).ask(CoxSite.sum_own_residuals, ask)


@pytest.mark.parametrize("step", EXACT, ids=lambda step: step.name)
def test_exact_times_need_a_permission_and_are_refused_in_clear(step):
    with pytest.raises(RefusedByPolicy, match="exact_times"):
        Site(patients(), DAYS).ask(step, asked_of(step, DAYS))
    allowed = mc.Policy(exact_times=True)
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        Site(patients(), DAYS, policy=allowed).ask(step, asked_of(step, DAYS))


def test_differences_of_answers_on_a_grid_rest_on_ten_patients():
    """An event's own time in a transform, and one time's hazard in the products, show sums of joined times."""
    data = patients()
    site = Site(data, COARSE)
    for place in range(len(COARSE)):
        here = (np.arange(len(COARSE)) == place).astype(float)
        told = site.ask(CoxSite.sum_residuals, means(COARSE, transform=here))
        own = site.ask(CoxSite.sum_own_residuals, sent.Transform(NOWHERE, False, here))
        assert round(told.value) == 0 or round(told.value) >= 10
        assert round(own.value) == 0 or round(own.value) >= 10
    at_risk = site.ask(CoxSite.sum_risk, sent.AtShared(NOWHERE, False, 0.0)).risk
    leaving = -np.diff(np.append(at_risk, 0.0))
    assert leaving[leaving > 0].min() >= 10


@pytest.mark.parametrize("steep", [50.0, 8.0, -8.0])
@pytest.mark.parametrize(
    "step",
    [CoxSite.sum_risk, CoxSite.sum_baseline, CoxSite.sum_products, CoxSite.sum_scores, CoxSite.sum_own_residuals],
    ids=lambda step: step.name,
)
def test_coefficients_that_single_a_patient_out_are_refused(step, steep):
    site, coefficients = Site(patients(), COARSE), np.array([steep, 0.0, 0.0])
    if step in (CoxSite.sum_risk, CoxSite.sum_baseline):
        ask = sent.AtShared(coefficients, False, 0.0)
    elif step is CoxSite.sum_own_residuals:
        ask = sent.Transform(coefficients, False, np.zeros(len(COARSE)))
    else:
        ask = asked_of(step, COARSE, coefficients=coefficients, first=np.eye(len(COARSE))[0])
    with pytest.raises(DisclosureRefused, match="fewer than 10"):
        site.ask(step, ask)


def test_a_patient_who_outweighs_the_others_of_a_time_alone_is_refused():
    """All those at risk are many in effect, those of one time are not."""
    data = patients(600)
    X, order = data.X.copy(), np.argsort(data.time)
    X[:, 0] = 0.0
    X[order[1:60], 0] = -6.0
    times = np.array([data.time[order[59]], 400.0, 800.0])
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), times)
    site.ask(CoxSite.sum_risk, sent.AtShared(NOWHERE, False, 0.0))
    theta = np.exp(3.0 * X[:, 0])
    assert all(effective_number(theta[data.time >= time]) > 100 for time in times)
    with pytest.raises(DisclosureRefused, match="fewer than 10"):
        site.ask(CoxSite.sum_risk, sent.AtShared(np.array([3.0, 0.0, 0.0]), False, 0.0))


def test_a_patient_who_outweighs_the_others_late_is_not_shown_by_residuals_of_late_times():
    data = patients(600)
    X, order = data.X.copy(), np.argsort(data.time)
    X[:, 0] = 0.0
    X[order[:100], 0] = X[order[-100:-1], 0] = -6.0
    times = np.array([400.0, 800.0, data.time[order[-100]], data.time[order[-20]]])
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), times)
    late = np.array([0.0, 0.0, 0.0, 1.0])
    assert site.ask(CoxSite.sum_own_residuals, sent.Transform(NOWHERE, False, late)).value >= 10
    coefficients = np.array([3.0, 0.0, 0.0])
    site.ask(CoxSite.sum_derivatives, sent.At(coefficients, False))
    with pytest.raises(DisclosureRefused, match="fewer than 10"):
        site.ask(CoxSite.sum_own_residuals, sent.Transform(coefficients, False, late))


def test_a_lead_answers_one_surrogate_and_none_that_starts_where_one_patient_stands_out():
    def surrogate(b, n_events=60.0, ridge=1.0):
        return sent.Surrogate(b * np.eye(N_COLUMNS)[0], False, ridge, n_events, NOWHERE, np.eye(N_COLUMNS))

    with pytest.raises(DisclosureRefused, match="fewer than 10"):
        Site(patients(), COARSE).ask(CoxSite.solve_surrogate, surrogate(8.0, ridge=1e3))
    site = Site(patients(), COARSE)
    site.ask(CoxSite.solve_surrogate, surrogate(0.0))
    with pytest.raises(ConfigurationError, match="another ask"):
        site.ask(CoxSite.solve_surrogate, surrogate(0.1))
    for odd in (surrogate(0.0, n_events=0.0), surrogate(0.0, n_events=1e9), surrogate(0.0, ridge=-1.0)):
        with pytest.raises(ConfigurationError):
            Site(patients(), COARSE).ask(CoxSite.solve_surrogate, odd)


def test_a_column_that_one_patient_has_is_flat_in_clear_under_an_agreement_for_masked_sums():
    data = patients()
    X = data.X.copy()
    X[:, 2], X[17, 2] = np.nan, 1.0
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), COARSE, masked=True)
    for step, ask in (
        (CoxSite.sum_derivatives, sent.At(NOWHERE, False)),
        (CoxSite.sum_risk, sent.AtShared(NOWHERE, False, 0.0)),
    ):
        try:
            answer = site.ask(step, ask)
        except DisclosureRefused:
            continue
        sums = answer.gradient if step is CoxSite.sum_derivatives else answer.event_sum
        assert sums[2] == 0.0


def test_an_answer_in_clear_does_not_use_what_a_masked_one_made():
    data = patients(60)
    X = data.X.copy()
    X[:, 2] = np.arange(60) < 3
    rare = mc.data.SurvivalData(X, data.time, np.arange(60) < 4, unit="days")
    part = CoxSite("a", rare)
    none, first = np.zeros(0), np.zeros(N_COLUMNS + 1, dtype=np.int64)
    part.state = Agreed(rare.columns, "days", 1, False, 60.0, 4.0, COARSE, NOWHERE, np.ones(3), none, first)
    part.least_behind, part.masked = 10, True
    assert part.sum_risk(sent.AtShared(NOWHERE, True, 0.0)).events.sum() > 0
    assert part.sum_derivatives(sent.At(NOWHERE, True)).information[2, 2] > 0
    part.masked = False
    clear = part.sum_risk(sent.AtShared(NOWHERE, True, 0.0))
    assert clear.events.sum() == 0
    assert not clear.risk_sum[:, 2].any()
    assert not part.sum_derivatives(sent.At(NOWHERE, True)).information.any()


@pytest.mark.parametrize("odd", ["columns", "times", "nan", "shift", "transform"])
def test_odd_asks_are_refused_before_anything_is_summed(odd):
    site, times, ask = Site(patients(), COARSE), COARSE, None
    if odd == "columns":
        ask = sent.AtShared(np.zeros(2), False, 0.0)
    elif odd == "shift":
        ask = sent.AtShared(NOWHERE, False, -1e6)
    elif odd == "nan":
        times = COARSE
        ask = means(times, first=np.full(len(times), np.nan))
    elif odd == "times":
        ask = means(times[:-1])
    else:
        ask = means(times, transform=np.full(len(times), 1e9))
    step = {"columns": CoxSite.sum_risk, "shift": CoxSite.sum_risk, "transform": CoxSite.sum_residuals}
    with pytest.raises(MulticentreError) as caught:
        site.ask(step.get(odd, CoxSite.sum_scores), ask)
    assert "broke" not in str(caught.value)


@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_an_honest_fit_with_strong_effects_passes_in_clear(times):
    sites = {name: patients(300, seed, effect=1.0) for seed, name in enumerate("abcd")}
    with mc.Federation.in_process(sites) as federation:
        model = FedCox(times, robust=True).fit(federation)
        model.check_proportionality()
        model.by_site()
    assert 0.6 < model.coefficients_[0] < 1.2
