"""What a plan promises and what ledgers spent: times, sites per patient, one noise for a sum or one a site."""

import pytest

from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import SitePart, step
from multicentre.privacy.accountant import Spent
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.guarantee import Guarantee, guarantee_of, guarantee_of_plan, spent_in
from support.toy_private import ClippedSite, ClippedSum, PrivateMean, federate_privately, plan_of

GAUSSIAN = Noise("gaussian", {"total": 5.0, "patients_counted": 5.0})
RHO = 2 / (2 * 5.0**2)
DELTA = 1e-6


class TwoSteps(SitePart):
    method = "two-steps"

    @step(releases=ClippedSum, summed=True)
    def summed(self, request: Nothing) -> ClippedSum:
        """Sum."""

    @step(releases=ClippedSum)
    def alone(self, request: Nothing) -> ClippedSum:
        """Sum alone."""


def promised(rho):
    return Spent(rho).epsilon(DELTA)


def test_every_step_of_a_plan_costs_as_often_as_it_is_called():
    plan = Plan((Planned(TwoSteps.summed, GAUSSIAN, 3), Planned(TwoSteps.alone, GAUSSIAN, 2)), DELTA)
    assert guarantee_of_plan(plan) == Guarantee(guarantee_of_plan(plan).epsilon, DELTA)
    assert guarantee_of_plan(plan).epsilon == pytest.approx(promised(5 * RHO))


@pytest.mark.parametrize(
    ("protection", "k", "factor"),
    # A masked sum has one noise that k contributions move k times as far; alone, a site adds noise of its own.
    [("unmasked", 1, 2), ("masked", 1, 2), ("unmasked", 3, 6), ("masked", 3, 9 + 3)],
)
def test_a_patient_at_several_sites_pays_for_each_and_more_under_one_noise(protection, k, factor):
    plan = Plan((Planned(TwoSteps.summed, GAUSSIAN), Planned(TwoSteps.alone, GAUSSIAN)), DELTA)
    found = guarantee_of_plan(plan, protection, k)
    assert found.epsilon == pytest.approx(promised(factor * RHO))
    assert found.sites_per_patient == k


def test_a_plan_names_its_unit_and_is_for_one_site_in_clear_by_default():
    plan = Plan((Planned(TwoSteps.summed, GAUSSIAN),), DELTA, "entry")
    assert guarantee_of_plan(plan) == guarantee_of_plan(plan, "unmasked", 1)
    assert (guarantee_of_plan(plan).unit, guarantee_of_plan(plan).delta) == ("entry", DELTA)


def test_a_fit_without_a_plan_promises_nothing():
    federation = federate_privately()
    assert guarantee_of(federation.begin(ClippedSite)) is None
    plan = plan_of(0.02, delta=DELTA)
    assert guarantee_of(federation.begin(ClippedSite, plan=plan)) == guarantee_of_plan(plan)


def test_where_nobody_knows_whose_records_are_the_promise_is_to_a_record():
    plan = plan_of(0.02, delta=DELTA)
    found = guarantee_of(federate_privately(one_row_per_patient=False).begin(ClippedSite, plan=plan))
    assert found == guarantee_of_plan(plan, "masked", counted="records")
    assert found.unit == "record"


def test_the_guarantee_of_a_fit_counts_the_sites_of_a_patient_under_one_noise():
    federation = federate_privately(secure_sum=True, sites_per_patient=2)
    plan = plan_of(0.02, delta=DELTA)
    found = guarantee_of(federation.begin(ClippedSite, plan=plan))
    assert found == guarantee_of_plan(plan, "masked", 2)
    assert found.epsilon == pytest.approx(promised(4 * 0.02))


def test_what_was_spent_is_what_was_promised():
    federation = federate_privately(secure_sum=True)
    PrivateMean(epsilon=1.0, times=2).fit(federation)
    ledgers = {site: ledger.entries for site, ledger in federation.ledgers.items()}
    assert spent_in(ledgers).rho == pytest.approx(rho_of_epsilon(1.0, 1e-5))
    assert spent_in(ledgers).epsilon(1e-5) == pytest.approx(1.0)


def entry(rho, protection="unmasked", mechanism="gaussian"):
    return {"rho": rho, "noise": {"mechanism": mechanism}, "protection": protection}


def test_sites_of_other_patients_cost_what_the_dearest_costs():
    ledgers = {"lyon": [entry(0.1), entry(0.2)], "nice": [entry(0.25)], "metz": [{"event": "refusal"}]}
    assert spent_in(ledgers).rho == pytest.approx(0.3)
    assert spent_in(ledgers, 2).rho == pytest.approx(0.55)
    assert spent_in(ledgers, 3).rho == pytest.approx(0.55)


def test_masked_releases_are_one_release_that_a_patient_moves_by_every_site():
    ledgers = {site: [entry(0.1, "masked")] for site in ("lyon", "nice", "metz")}
    assert spent_in(ledgers).rho == pytest.approx(0.1)
    assert spent_in(ledgers, 2).rho == pytest.approx(0.4)
    both = {site: [*entries, entry(0.01)] for site, entries in ledgers.items()}
    assert spent_in(both, 2).rho == pytest.approx(0.42)


def test_one_release_of_laplace_noise_makes_the_whole_one_of_zcdp():
    assert spent_in({"lyon": [entry(0.1), entry(0.1)]}).gaussian
    assert not spent_in({"lyon": [entry(0.1), entry(0.1, mechanism="laplace")]}).gaussian


def test_nothing_released_is_nothing_spent():
    assert spent_in({"lyon": [], "nice": [{"event": "failure"}]}) == Spent()
