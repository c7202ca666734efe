"""A coordinator that asks for what an honest fit of the Cox model never would: no patient shows."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call, Refused, decode_call, encode_call
from multicentre.core.site_runtime import SiteRuntime
from multicentre.data.records import effective_number
from multicentre.errors import ConfigurationError, DisclosureRefused, MulticentreError, RefusedByPolicy
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.survival.agreement.messages import OfCause, Prepared
from multicentre.survival.cox import messages
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


@pytest.mark.parametrize("n_rare", [2, 10])
def test_squares_of_columns_rest_on_ten_patients_where_no_event_counts(n_rare):
    """A cause that nobody has, or an early end of follow-up, leaves the squares, which count a rare level."""
    data = patients()
    X = np.column_stack([np.arange(len(data)) < n_rare, data.X[:, 1:]])
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), COARSE, cause=5)
    if n_rare == 10:
        site.ask(CoxSite.sum_derivatives, messages.At(NOWHERE, False))
        return
    with pytest.raises(DisclosureRefused):
        site.ask(CoxSite.sum_derivatives, messages.At(NOWHERE, False))


class Site:
    """One site behind its runtime and its guard, whose answers and refusals are returned."""

    def __init__(self, data, times, *, policy=None, cause=1):
        self.runtime = SiteRuntime("a", data, Guard(policy or mc.Policy(), Ledger(), (), site="a"))
        self.sent = 0
        columns, none = data.columns, np.zeros(0)
        n, m = float(len(data)), float(data.event.sum())
        first = np.zeros(len(columns) + 1, dtype=np.int64)
        scale = np.zeros(len(columns)), np.ones(len(columns))
        self.ask(CoxSite.agree, Prepared(columns, data.unit, cause, n, m, times, *scale, none, first))

    def ask(self, step, request):
        self.sent += 1
        call = Call("study", "session", self.sent, step, request, ("a", "b"))
        answer = self.runtime.answer(decode_call(encode_call(call), lambda name: CoxSite))
        if isinstance(answer, Refused):
            raise answer.error
        return answer


def means(times, *, coefficients=NOWHERE, first=None, transform=None):
    none, rows = np.zeros(len(times)), np.zeros((len(times), N_COLUMNS))
    given = [none if each is None else each for each in (first, transform)]
    return messages.Means(coefficients, False, 0.0, given[0], none, rows, rows, rows, given[1])


def asked_of(step, times, **given):
    asked = means(times, **given)
    if step.name.endswith("products"):
        return messages.Hazards(asked.coefficients, False, 0.0, asked.first, asked.first_tied)
    return asked


@pytest.mark.parametrize("step", BY_TIME, ids=lambda step: step.name)
def test_sums_at_every_day_are_refused(step):
    with pytest.raises(ConfigurationError, match="too fine"):
        Site(patients(), DAYS[:300]).ask(step, asked_of(step, DAYS[:300]))


def test_no_sum_of_own_residuals_is_given_at_every_day():
    request = messages.Transform(NOWHERE, False, (DAYS[:300] == 20.0).astype(float), "")
    with pytest.raises(ConfigurationError, match="too fine"):
        Site(patients(), DAYS[:300]).ask(CoxSite.sum_own_residuals, request)


@pytest.mark.parametrize("step", EXACT, ids=lambda step: step.name)
def test_exact_times_require_a_permission_and_masks(step):
    with pytest.raises(RefusedByPolicy, match="exact_times"):
        Site(patients(), DAYS).ask(step, asked_of(step, DAYS))
    allowed = mc.Policy(exact_times=True)
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        Site(patients(), DAYS, policy=allowed).ask(step, asked_of(step, DAYS))


def grouped(n_each, seed=0):
    """Return patients of whom so many have the event at each time of the grid, and as many do not."""
    rng = np.random.default_rng(seed)
    n = 2 * n_each * len(COARSE)
    time, event = np.repeat(COARSE, 2 * n_each), np.arange(n) % 2
    return mc.data.SurvivalData(rng.normal(size=(n, N_COLUMNS)), time, event, unit="days")


@pytest.mark.parametrize("n_each", [9, 10])
def test_differences_of_answers_on_a_grid_rest_on_ten_patients(n_each):
    """An event's own time in a transform, and one time's hazard in the products, show sums of single times."""
    site = Site(grouped(n_each), COARSE)
    here = (np.arange(len(COARSE)) == 3).astype(float)
    for step, request in (
        (CoxSite.sum_residuals, means(COARSE, transform=here)),
        (CoxSite.sum_own_residuals, messages.Transform(NOWHERE, False, here, "")),
        (CoxSite.sum_own_curvatures, messages.Transform(NOWHERE, False, here, "")),
        (CoxSite.sum_products, asked_of(CoxSite.sum_products, COARSE, first=here)),
        (CoxSite.sum_risk, messages.AtShared(NOWHERE, False, 0.0)),
    ):
        if n_each == 10:
            site.ask(step, request)
            continue
        with pytest.raises(
            DisclosureRefused, match=r"the answer must have at least 10 patients behind it.*secure_sum=True"
        ):
            site.ask(step, request)


@pytest.mark.parametrize("steep", [50.0, 8.0, 5.0, -5.0])
@pytest.mark.parametrize(
    "step",
    [CoxSite.sum_risk, CoxSite.sum_baseline, CoxSite.sum_products, CoxSite.sum_scores, CoxSite.sum_own_residuals],
    ids=lambda step: step.name,
)
def test_coefficients_that_single_a_patient_out_are_refused(step, steep):
    def ask(coefficients):
        if step in (CoxSite.sum_risk, CoxSite.sum_baseline):
            return messages.AtShared(coefficients, False, 0.0)
        if step is CoxSite.sum_own_residuals:
            return messages.Transform(coefficients, False, np.zeros(len(COARSE)), "")
        return asked_of(step, COARSE, coefficients=coefficients, first=np.eye(len(COARSE))[0])

    site = Site(grouped(20), COARSE)
    site.ask(step, ask(NOWHERE))
    # The steepest lead beyond the range of the answer, which is looked at first.
    with pytest.raises(
        DisclosureRefused, match=r"the answer must have at least 10 patients behind it|beyond the declared range"
    ):
        site.ask(step, ask(np.array([steep, 0.0, 0.0])))


def test_a_patient_who_outweighs_the_others_of_a_time_alone_is_refused():
    """All those at risk are many in effect, those of one time are not."""
    data = patients(600)
    X, order = data.X.copy(), np.argsort(data.time)
    X[:, 0] = 0.0
    X[order[1:60], 0] = -6.0
    times = np.array([data.time[order[59]], 400.0, 800.0])
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), times)
    site.ask(CoxSite.sum_risk, messages.AtShared(NOWHERE, False, 0.0))
    theta = np.exp(3.0 * X[:, 0])
    assert all(effective_number(theta[data.time >= time]) > 100 for time in times)
    with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
        site.ask(CoxSite.sum_risk, messages.AtShared(np.array([3.0, 0.0, 0.0]), False, 0.0))


def test_a_patient_who_outweighs_the_others_late_is_not_shown_by_residuals_of_late_times():
    data = patients(600)
    X, order = data.X.copy(), np.argsort(data.time)
    X[:, 0] = 0.0
    X[order[:100], 0] = X[order[-100:-1], 0] = -6.0
    times = np.array([400.0, 800.0, data.time[order[-100]], data.time[order[-20]]])
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), times)
    late = np.array([0.0, 0.0, 0.0, 1.0])
    assert site.ask(CoxSite.sum_own_residuals, messages.Transform(NOWHERE, False, late, "")).value >= 10
    coefficients = np.array([3.0, 0.0, 0.0])
    site.ask(CoxSite.sum_derivatives, messages.At(coefficients, False))
    with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
        site.ask(CoxSite.sum_own_residuals, messages.Transform(coefficients, False, late, ""))


def test_a_lead_answers_one_surrogate_and_none_that_starts_where_one_patient_stands_out():
    def surrogate(b, n_events=60.0, ridge=1.0):
        return messages.Surrogate(b * np.eye(N_COLUMNS)[0], False, ridge, n_events, NOWHERE, np.eye(N_COLUMNS))

    with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
        Site(patients(), COARSE).ask(CoxSite.solve_surrogate, surrogate(8.0, ridge=1e3))
    site = Site(patients(), COARSE)
    site.ask(CoxSite.solve_surrogate, surrogate(0.0))
    with pytest.raises(ConfigurationError, match="must be identical"):
        site.ask(CoxSite.solve_surrogate, surrogate(0.1))
    for odd in (surrogate(0.0, n_events=0.0), surrogate(0.0, n_events=1e9), surrogate(0.0, ridge=-1.0)):
        with pytest.raises(ConfigurationError):
            Site(patients(), COARSE).ask(CoxSite.solve_surrogate, odd)


@pytest.mark.parametrize("n_rare", [1, 9])
def test_a_column_that_a_few_patients_have_is_in_no_unmasked_sum(n_rare):
    data = grouped(10)
    X = data.X.copy()
    X[:, 2], X[:n_rare, 2] = np.nan, 1.0
    site = Site(mc.data.SurvivalData(X, data.time, data.event, unit="days"), COARSE)
    for step, request in (
        (CoxSite.sum_sizes, OfCause(1)),
        (CoxSite.sum_derivatives, messages.At(NOWHERE, False)),
        (CoxSite.sum_risk, messages.AtShared(NOWHERE, False, 0.0)),
    ):
        with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
            site.ask(step, request)


@pytest.mark.parametrize("n_rare", [1, 9])
def test_the_own_fit_is_that_without_a_column_that_a_few_patients_have(n_rare):
    """A fit that adjusts for a patient's column is that of the others: the two fits must not differ by the few."""
    data = grouped(10)
    X = data.X.copy()
    X[:, 2] = 0.0

    def own_fit(columns):
        site = Site(mc.data.SurvivalData(columns, data.time, data.event, unit="days"), COARSE)
        return site.ask(CoxSite.fit_own, messages.Penalty(1.0, False))

    without = own_fit(X)
    X[:n_rare, 2] = 1.0
    rare = own_fit(X)
    assert rare.coefficients[2] == rare.errors[2] == 0.0
    assert rare.coefficients[[0, 1]] == pytest.approx(without.coefficients[[0, 1]], rel=1e-6)
    X[:], X[0] = 0.0, 1.0
    assert not own_fit(X).errors.any()  # no estimate if every column is rare


@pytest.mark.parametrize("odd", ["columns", "times", "nan", "shift", "transform"])
def test_invalid_requests_are_refused_before_anything_is_summed(odd):
    site, times, request = Site(patients(), COARSE), COARSE, None
    if odd == "columns":
        request = messages.AtShared(np.zeros(2), False, 0.0)
    elif odd == "shift":
        request = messages.AtShared(NOWHERE, False, -1e6)
    elif odd == "nan":
        times = COARSE
        request = means(times, first=np.full(len(times), np.nan))
    elif odd == "times":
        request = means(times[:-1])
    else:
        request = means(times, transform=np.full(len(times), 1e9))
    step = {"columns": CoxSite.sum_risk, "shift": CoxSite.sum_risk, "transform": CoxSite.sum_residuals}
    with pytest.raises(MulticentreError) as caught:
        site.ask(step.get(odd, CoxSite.sum_scores), request)
    assert "failed (" not in str(caught.value)
