"""Few patients at a hospital: masked sums over three sites hide them if its steward says so, and nothing else does."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call, Mask
from multicentre.core.messages import Nothing, number
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError, DisclosureRefused, MulticentreError, RefusedByPolicy
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.patient_counts import People

SHARE = {"min_patients_in_total": 10, "min_sites_in_sum": 3, "max_parameters_per_patient": 0.0}
SMALL = mc.Policy(min_patients_in_share=5, **SHARE)
LARGE = mc.Policy(min_sites_in_sum=3)
RARE, UNEQUAL = (12, 14, 9), (200, 180, 8)


def make_sites(sizes):
    return {f"site-{i}": mc.datasets.simulate_survival(n, n_columns=2, random_state=i) for i, n in enumerate(sizes)}


def policies(sizes, small=SMALL):
    return {f"site-{i}": small if n < LARGE.min_patients else LARGE for i, n in enumerate(sizes)}


@pytest.mark.filterwarnings("ignore:.*events per site on average")
@pytest.mark.parametrize("sizes", [UNEQUAL, RARE])
def test_a_hospital_with_few_patients_takes_part_in_masked_sums(sizes):
    sites = make_sites(sizes)
    with pytest.raises(DisclosureRefused, match="fewer patients than its"):
        mc.survival.FedCox().fit(mc.Federation.in_process(sites, policy=LARGE))
    model = mc.survival.FedCox().fit(mc.Federation.in_process(sites, policy=policies(sizes)))
    free = mc.survival.FedCox().fit(mc.Federation.in_process(sites, policy=mc.Policy(min_patients=1)))
    assert model.n_patients_ == sum(sizes)
    np.testing.assert_array_equal(model.coef_, free.coef_)


@pytest.mark.parametrize(
    "model", [mc.survival.KaplanMeier(), mc.survival.AalenJohansen(causes=(1,)), mc.survival.FedCox(times="grid")]
)
def test_other_methods_of_masked_sums_take_it_along(model):
    assert model.fit(mc.Federation.in_process(make_sites(UNEQUAL), policy=policies(UNEQUAL))) is model


def test_its_own_answers_and_unmasked_sums_are_refused():
    federation = mc.Federation.in_process(make_sites(UNEQUAL), policy=policies(UNEQUAL))
    model = mc.survival.FedCox().fit(federation)
    assert list(model.by_site().refused) == ["site-2"]
    with pytest.raises(DisclosureRefused, match=r"site-2.*fewer patients than its policy's minimum of 10"):
        mc.survival.FedCox().fit(
            mc.Federation.in_process(make_sites(UNEQUAL), policy=policies(UNEQUAL), secure_sum=False)
        )


def test_two_sites_hide_nobody():
    sites = {name: data for name, data in make_sites(UNEQUAL).items() if name != "site-0"}
    with pytest.raises(RefusedByPolicy, match="at least 3 sites"):
        mc.survival.FedCox().fit(mc.Federation.in_process(sites, policy=dict.fromkeys(sites, SMALL)))


def test_a_total_below_the_minimum_is_not_revealed():
    small = dataclasses.replace(SMALL, min_patients_in_share=3)
    federation = mc.Federation.in_process(make_sites((3, 3, 3)), policy=small)
    with pytest.raises(DisclosureRefused, match="the total must rest on at least 10 patients"):
        mc.survival.FedCox().fit(federation)


@dataclasses.dataclass(frozen=True)
class Total(Release):
    total: float = number("sum of the ages", unit="years", bound=1e9)


class Ages(SitePart):
    method = "ages"

    @step(releases=Total, summed=True)
    def add(self, request: Nothing) -> Total:
        """Add the ages."""
        return Total(1.0)


def guard_of(n, policy=SMALL):
    return Guard(policy, Ledger(), People(map(str, range(n))), site="nice", n_records=n)


def call_of(mask, peers=("lyon", "nice", "oslo")):
    return Call("study", "0.1", 0, Ages.add, Nothing(), peers, mask)


COUNTED = Mask("first", 0, 3, 0, True)


@pytest.mark.parametrize(
    "mask", [None, Mask("first", 0, 3, 0, False), Mask("first", 0, 2, 0, True)], ids=["unmasked", "uncounted", "of two"]
)
def test_a_coordinator_cannot_have_the_share_by_another_call(mask):
    guard_of(8).admit(call_of(COUNTED))
    with pytest.raises(MulticentreError):
        guard_of(8).admit(call_of(mask))


@pytest.mark.parametrize("n", range(1, 13))
def test_a_coordinator_that_leaves_the_others_nothing_to_add_reads_no_less_than_the_share(n):
    """What the policy discloses: such a sum is of this site's patients alone, of `min_patients_in_share` or more."""
    guard = guard_of(12)
    rows = np.arange(n)
    if n < SMALL.min_patients_in_share:
        with pytest.raises(DisclosureRefused, match="at least 5 patients"):
            guard.release(call_of(COUNTED), Total(1.0, patients=n), rows)
    else:
        assert guard.release(call_of(COUNTED), Total(1.0, patients=n), rows).total == 1.0


def test_all_other_sites_together_can_compute_the_share():
    """What the policy discloses: a total minus the shares of all others; one other site alone cannot, hence three."""
    sites = make_sites(UNEQUAL)
    model = mc.survival.KaplanMeier(times=[400.0]).fit(mc.Federation.in_process(sites, policy=policies(UNEQUAL)))
    known = sum(sites[name].event.sum() for name in ("site-0", "site-1"))
    assert round(model.table_.events.sum() - known) == sites["site-2"].event.sum()


@pytest.mark.parametrize(
    "terms",
    [
        {"min_patients_in_share": 5, "min_patients_in_total": 10},
        {"min_patients_in_share": 5, "min_sites_in_sum": 3},
        {**SHARE, "min_patients_in_share": 5, "min_patients_in_total": 9},
        {**SHARE, "min_patients_in_share": 0},
        {**SHARE, "min_patients_in_share": 11},
        {**SHARE, "min_patients_in_share": True},
    ],
)
def test_a_policy_without_the_protection_of_the_total_is_refused(terms):
    with pytest.raises(ConfigurationError, match="min_patients_in_share"):
        mc.Policy(**terms)


def test_the_card_says_so():
    federation = mc.Federation.in_process(make_sites(UNEQUAL), policy=SMALL)
    text = str(federation.card(mc.survival.FedCox.site_part))
    assert "its share of a masked total has at least 5 (min_patients_in_share)" in " ".join(text.split())
    assert "All other sites together can compute its share" in " ".join(text.split())
