"""What a site lets out for the Cox model, in clear and masked, and what it refuses."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, DisclosureWarning, RefusedByPolicy
from multicentre.survival.cox import messages as sent
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


def part_of(data, *, least=10, masked=False, times="stratified"):
    """Return a site's part that has agreed, as the runtime would call it."""
    with mc.Federation.in_process({"a": data}, policy=OPEN) as federation:
        agreed = FedCox(times, ridge=1.0, n_times=32).fit(federation).agreed_
    part = CoxSite("a", data)
    part.state, part.least_behind, part.masked = agreed, least, masked
    return part


def at(*coefficients, shift=0.0):
    return sent.AtShared(np.array(coefficients, dtype=float), True, shift)


@pytest.mark.filterwarnings("ignore:sites joined times:multicentre.federation.errors.DisclosureWarning")
@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_the_default_policy_lets_a_fit_through_and_every_answer_rests_on_enough(times):
    with mc.Federation.in_process(simulate()) as federation:
        model = FedCox(times, robust=True).fit(federation)
        model.check_proportionality()
        model.by_site()
        entries = [e for ledger in federation.ledgers.values() for e in ledger.entries if e["event"] == "release"]
    assert {entry["step"] for entry in entries} <= model.asked_steps()
    assert min(f["patients"] for e in entries for f in e["fields"] if f["patients"] is not None) >= 10


def test_no_time_and_nothing_by_time_leaves_with_baselines_of_the_sites_own():
    with mc.Federation.in_process(simulate(), policy=OPEN) as federation:
        FedCox().fit(federation)
        fields = [field for entry in released(federation, "sum_derivatives") for field in entry["fields"]]
    assert {tuple(field["shape"]) for field in fields} == {(), (3,), (3, 3)}


def test_no_time_of_a_patient_is_in_a_message_on_a_grid():
    data = simulate()["site-0"]
    part = part_of(data, times="grid")
    answer = part.sum_risk(at(0.0, 0.0, 0.0))
    told = np.concatenate([np.ravel(value) for _, _, _, value in answer.items()])
    assert not np.isin(data.time, told).any()


def test_numbers_at_a_step_do_not_grow_with_times_times_columns_squared():
    part = part_of(simulate()["site-0"], least=0, times="exact")
    sizes = [sum(np.size(value) for _, _, _, value in part.sum_exact_risk(at(0.0, 0.0, 0.0)).items())]
    hazards = sent.Hazards(np.zeros(3), True, 0.0, *np.zeros((2, len(part.agreed.times))))
    sizes.append(sum(np.size(value) for _, _, _, value in part.sum_exact_products(hazards).items()))
    n_times = len(part.agreed.times)
    assert sizes == [2 * n_times * 4 + n_times + 3 + 1, 9]


def test_differences_between_times_rest_on_ten_patients_in_clear():
    data = simulate((200,))["site-0"]
    clear, masked = part_of(data, times="grid"), part_of(data, masked=True, times="grid")
    few, all_ = (part.sum_risk(at(0.0, 0.0, 0.0)) for part in (clear, masked))
    leaving = -np.diff(np.append(few.risk, 0.0))
    assert leaving[leaving > 0].min() >= 10
    assert few.events[few.events > 0].min() >= 10
    assert few.patients >= 10
    assert all_.patients == len(data)
    assert (-np.diff(np.append(all_.risk, 0.0))).min() < 10
    assert few.events.sum() == all_.events.sum()


def test_a_site_with_few_events_counts_as_one_without_in_clear():
    data = simulate((80,))["site-0"]
    few = mc.data.SurvivalData(data.X, data.time, np.arange(80) < 4)
    clear, masked = part_of(few), part_of(few, masked=True)
    nothing, something = (part.sum_derivatives(at(0.1, 0.0, 0.0)) for part in (clear, masked))
    assert nothing.n_events == 0.0
    assert not nothing.gradient.any()
    assert not nothing.information.any()
    assert something.n_events == 4.0
    own = clear.fit_own(sent.Penalty(0.0, True))
    assert not own.coefficients.any()
    assert own.patients == 0


def test_coefficients_that_single_a_patient_out_are_told_to_the_guard():
    data = simulate((80,))["site-0"]
    part = part_of(data)
    assert part.sum_derivatives(at(0.2, 0.0, 0.0)).patients >= 10
    assert part.sum_derivatives(at(40.0, 0.0, 0.0)).patients < 10
    with pytest.raises(ConfigurationError, match="above 50"):
        part.sum_derivatives(at(51.0, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match="agreed columns"):
        part.sum_derivatives(at(0.1, 0.0))


def test_rare_columns_are_flat_in_clear_and_whole_under_a_mask():
    sites = simulate(rare=4)
    with mc.Federation.in_process(sites) as federation, pytest.warns(UserWarning, match="x2: no information"):
        model = FedCox().fit(federation)
    assert model.coefficients_[2] == 0.0
    assert np.isnan(model.standard_errors_[2])
    with mc.Federation.in_process(sites, secure_sum=True) as federation:
        assert FedCox().fit(federation).standard_errors_[2] > 0


def test_exact_times_need_a_permission_and_a_mask():
    with mc.Federation.in_process(simulate()) as federation, pytest.raises(RefusedByPolicy, match="exact_times"):
        FedCox("exact").fit(federation)
    allowed = mc.Policy(exact_times=True)
    with (
        mc.Federation.in_process(simulate(), policy=allowed) as federation,
        pytest.raises(DisclosureRefused, match="secure_sum=True"),
    ):
        FedCox("exact").fit(federation)
    with mc.Federation.in_process(simulate(), policy=allowed, secure_sum=True) as federation:
        assert FedCox("exact").fit(federation).converged_


def test_a_fine_grid_is_refused_by_the_estimator_and_by_the_site():
    sites = simulate((500,))
    with (
        mc.Federation.in_process(sites, policy=OPEN) as federation,
        pytest.raises(ConfigurationError, match="too fine"),
    ):
        FedCox("grid", n_times=257).fit(federation)
    part = part_of(sites["site-0"], least=0, times="exact")
    assert len(part.agreed.times) > 256
    for step in (part.sum_risk, part.sum_baseline):
        with pytest.raises(ConfigurationError, match="too fine"):
            step(at(0.0, 0.0, 0.0))


def test_masked_sums_give_the_same():
    sites = simulate()
    found = []
    for secure in (False, True):
        with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure) as federation:
            model = FedCox("grid", robust=True).fit(federation)
            tests = model.check_proportionality()
            found.append(
                [*model.coefficients_, *model.standard_errors_, *model.model_.baseline, tests["global"].statistic]
            )
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)


def test_times_joined_in_clear_are_told(recwarn):
    sites = {f"site-{i}": mc.datasets.simulate_survival(150, seed=i) for i in range(3)}
    with pytest.warns(DisclosureWarning, match="secure_sum=True"):
        mc.survival.FedCox("grid").fit(mc.Federation.in_process(sites))
    recwarn.clear()
    mc.survival.FedCox("grid").fit(mc.Federation.in_process(sites, secure_sum=True))
    mc.survival.FedCox().fit(mc.Federation.in_process(sites))
    assert not recwarn.list
