"""What a site sends for the Cox model, masked and unmasked, and what it refuses."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import CombinationWarning, ConfigurationError, DisclosureRefused, RefusedByPolicy
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.cox import messages
from multicentre.survival.cox.estimator import FedCox
from multicentre.survival.cox.site import CoxSite

OPEN = mc.Policy(min_patients=0, exact_times=True)


def simulate(sizes=(60, 70, 80), seed=0, rare=None):
    rng, sites = np.random.default_rng(seed), {}
    for number, size in enumerate(sizes):
        X = rng.normal(size=(size, 3))
        X[:, 2] = rng.random(size) < 0.5 if rare is None else np.arange(size) < rare
        time, end = rng.exponential(np.exp(-0.7 * X[:, 0])), rng.uniform(0.2, 3.0, size=size)
        sites[f"site-{number}"] = mc.data.SurvivalData(X, np.minimum(time, end), time <= end)
    return sites


def released(federation, step):
    return [entry for ledger in federation.ledgers.values() for entry in ledger.entries if entry.get("step") == step]


def part_of(data, times="stratified"):
    """Return a site's part that has agreed, as the runtime would call it."""
    with mc.Federation.in_process({"a": data}, policy=OPEN) as federation:
        agreed = FedCox(times, alpha=1.0, **({} if times == "exact" else {"n_times": 32})).fit(federation).agreed_
    part = CoxSite("a", data)
    part.state = agreed
    return part


def at(*coefficients, shift=0.0):
    return messages.AtShared(np.array(coefficients, dtype=float), True, shift)


@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_the_default_policy_lets_a_fit_through_and_every_answer_rests_on_enough(times):
    with mc.Federation.in_process(simulate()) as federation:
        model = FedCox(times, errors="HC0").fit(federation)
        model.check_proportionality()
        model.by_site()
        entries = [e for ledger in federation.ledgers.values() for e in ledger.entries if e["event"] == "release"]
    assert {entry["step"] for entry in entries if entry["method"] == "fed-cox"} <= model.planned_steps()
    assert min(f["records"] for e in entries for f in e["fields"] if f["records"] is not None) >= 10


@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_an_unmasked_fit_with_small_cells_is_refused_with_a_hint(times):
    with (
        mc.Federation.in_process(simulate(), secure_sum=False) as federation,
        pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"),
    ):
        FedCox(times).fit(federation)


def test_no_time_and_nothing_by_time_leaves_with_baselines_of_the_sites_own():
    with mc.Federation.in_process(simulate(), policy=OPEN) as federation:
        FedCox().fit(federation)
        fields = [field for entry in released(federation, "sum_derivatives") for field in entry["fields"]]
    assert {tuple(field["shape"]) for field in fields} == {(), (3,), (3, 3)}


def test_no_time_of_a_patient_is_in_a_message_on_a_grid():
    data = simulate()["site-0"]
    part = part_of(data, "grid")
    answer = part.sum_risk(at(0.0, 0.0, 0.0))
    told = np.concatenate([np.ravel(value) for _, _, _, value in answer.items()])
    assert not np.isin(data.time, told).any()


def test_numbers_at_a_step_do_not_grow_with_times_times_columns_squared():
    part = part_of(simulate()["site-0"], "exact")
    sizes = [sum(np.size(value) for _, _, _, value in part.sum_exact_risk(at(0.0, 0.0, 0.0)).items())]
    hazards = messages.Hazards(np.zeros(3), True, 0.0, *np.zeros((2, len(part.agreed.times))))
    sizes.append(sum(np.size(value) for _, _, _, value in part.sum_exact_products(hazards).items()))
    n_times = len(part.agreed.times)
    assert sizes == [2 * n_times * 4 + n_times + 3 + 3, 10]


def by_time(n_each, *, n_times=4, rare=None):
    """Return patients of whom at each time of a grid so many have the event, and so many do not."""
    rng = np.random.default_rng(0)
    n = 2 * n_each * n_times
    X = np.column_stack([rng.normal(size=n), np.arange(n) % 2 if rare is None else np.arange(n) < rare])
    return mc.data.SurvivalData(X, np.repeat(np.arange(1.0, n_times + 1), 2 * n_each), np.arange(n) % 2)


def part_on(data, times, *, masked=False):
    part = CoxSite("a", data)
    d = len(data.columns)
    part.state = Prepared(
        data.columns, "", 1, float(len(data)), float(data.event.sum()), times, np.zeros(d), np.ones(d),
        np.zeros(0), np.zeros(d + 1, dtype=np.int64),
    )  # fmt: skip
    part.masked = masked
    return part


STEPS = {
    "sum_derivatives": messages.At(np.zeros(2), True),
    "sum_risk": messages.AtShared(np.zeros(2), True, 0.0),
    "sum_baseline": messages.AtShared(np.zeros(2), True, 0.0),
    "sum_products": messages.Hazards(np.zeros(2), True, 0.0, np.ones(4), np.zeros(4)),
    "sum_own_residuals": messages.Transform(np.zeros(2), True, np.arange(4) / 3, ""),
    "sum_own_curvatures": messages.Transform(np.zeros(2), True, np.arange(4) / 3, ""),
    "sum_own_scores": messages.At(np.zeros(2), True),
    "sum_estimates": messages.Penalty(0.0, True),
    "fit_own": messages.Penalty(0.0, True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_masked_and_an_unmasked_answer_are_the_same_number_by_number(step):
    data = by_time(2, rare=3)
    masked, unmasked = (getattr(part_on(data, np.arange(1.0, 5.0), masked=m), step)(STEPS[step]) for m in (True, False))
    for one, other in zip(masked.items(), unmasked.items(), strict=True):
        np.testing.assert_array_equal(one[3], other[3])


@pytest.mark.parametrize(
    "step", ["sum_risk", "sum_baseline", "sum_products", "sum_own_residuals", "sum_own_curvatures"]
)
@pytest.mark.parametrize("n_each", [9, 10])
def test_sums_by_time_rest_on_the_patients_of_the_smallest_time(step, n_each):
    part = part_on(by_time(n_each), np.arange(1.0, 5.0))
    assert getattr(part, step)(STEPS[step]).patients == n_each
    part.masked = True
    assert getattr(part, step)(STEPS[step]).patients == len(part.data)


@pytest.mark.parametrize("step", ["sum_derivatives", "sum_own_scores", "sum_estimates", "fit_own"])
def test_sums_at_the_sites_own_times_rest_on_the_events_and_on_the_rarest_value(step):
    data = by_time(10)
    few = mc.data.SurvivalData(data.X, data.time, np.arange(80) % 9 == 8)
    assert getattr(part_on(few, np.arange(1.0, 5.0)), step)(STEPS[step]).patients <= 8
    rare = getattr(part_on(by_time(10, rare=7), np.arange(1.0, 5.0)), step)(STEPS[step])
    assert rare.patients == 7


def test_a_rare_column_is_exact_under_a_mask_and_refused_without():
    sites = simulate(rare=4)
    with mc.Federation.in_process(sites) as federation:
        masked = FedCox().fit(federation)
    with mc.Federation.in_process(sites, secure_sum=False, policy=OPEN) as federation:
        exact = FedCox().fit(federation)
    np.testing.assert_allclose(masked.coef_, exact.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(masked.standard_errors_, exact.standard_errors_, rtol=0, atol=1e-6)
    with mc.Federation.in_process(sites, secure_sum=False) as federation, pytest.raises(DisclosureRefused):
        FedCox().fit(federation)


def test_a_site_that_refuses_its_own_fit_does_not_cost_the_others_theirs():
    sites = simulate()
    data = sites["site-1"]
    sites["site-1"] = mc.data.SurvivalData(data.X, data.time, np.arange(len(data)) < 6)
    with mc.Federation.in_process(sites) as federation:
        effects = FedCox().fit(federation).by_site()
    assert effects.sites == tuple(sites)
    assert np.isnan(effects.coefficients[1]).all()
    assert list(effects.refused) == ["site-1"]
    assert "at least 10 patients" in effects.refused["site-1"]
    assert np.isfinite(effects.coefficients[[0, 2]]).all()
    with pytest.warns(CombinationWarning, match="between two sites"):
        combined = mc.analytics.combine(effects)
    assert combined.to_frame()["sites"].tolist() == [2, 2, 2]
    assert "site-1: " in str(combined)


def test_coefficients_that_single_a_patient_out_are_told_to_the_guard():
    data = simulate((80,))["site-0"]
    part = part_of(data)
    assert part.sum_derivatives(at(0.2, 0.0, 0.0)).patients >= 10
    assert part.sum_derivatives(at(40.0, 0.0, 0.0)).patients < 10
    with pytest.raises(ConfigurationError, match="at most 50"):
        part.sum_derivatives(at(51.0, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match="agreed columns"):
        part.sum_derivatives(at(0.1, 0.0))


def test_exact_times_need_a_permission_and_a_mask():
    with mc.Federation.in_process(simulate()) as federation, pytest.raises(RefusedByPolicy, match="exact_times"):
        FedCox("exact").fit(federation)
    allowed = mc.Policy(exact_times=True)
    with (
        mc.Federation.in_process(simulate(), policy=allowed, secure_sum=False) as federation,
        pytest.raises(DisclosureRefused, match="secure_sum=True"),
    ):
        FedCox("exact").fit(federation)
    with mc.Federation.in_process(simulate(), policy=allowed) as federation:
        assert FedCox("exact").fit(federation).converged_


def test_a_fine_grid_is_refused_by_the_estimator_and_by_the_site():
    sites = simulate((500,))
    with (
        mc.Federation.in_process(sites, policy=OPEN) as federation,
        pytest.raises(ConfigurationError, match="at most 256; got 257"),
    ):
        FedCox("grid", n_times=257).fit(federation)
    part = part_of(sites["site-0"], "exact")
    assert len(part.agreed.times) > 256
    for step in (part.sum_risk, part.sum_baseline):
        with pytest.raises(ConfigurationError, match="too fine"):
            step(at(0.0, 0.0, 0.0))


def test_masked_sums_give_the_same():
    sites = simulate()
    found = []
    for secure in (False, True):
        with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure) as federation:
            model = FedCox("grid", errors="HC0").fit(federation)
            tests = model.check_proportionality()
            found.append([*model.coef_, *model.standard_errors_, *model.model_.baseline, tests["global"].statistic])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)
