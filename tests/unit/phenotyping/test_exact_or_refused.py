"""Sums of a factorisation are exact, or refused where an unmasked one rests on fewer patients than the policy wants."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.errors import DisclosureRefused
from multicentre.phenotyping import DPFact
from multicentre_papers.baselines.trip import TRIP
from support.event_sites import simulate_events

CELL = 11
KINDS = {
    "dpfact": lambda **options: DPFact(2, max_iter=3, **options),
    "dpfact, poisson": lambda **options: DPFact(2, solver="poisson", max_iter=3, **options),
    "dpfact, elastic": lambda **options: DPFact(2, solver="easgd", max_iter=3, **options),
    "trip": lambda **options: TRIP(2, max_iter=3, **options),
}
each = pytest.mark.parametrize("name", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def two_groups(*sizes):
    """Return patients of two groups, each with a procedure and a diagnosis of its own."""
    group = np.repeat([0, 1], sizes)
    places = np.column_stack([np.arange(len(group)), group, group])
    codes = {"procedure": ["p0", "p1"], "diagnosis": ["d0", "d1"]}
    return EventTensor(places, np.ones(len(group)), codes)


def fit(name, sites, **terms):
    with mc.Federation.in_process(sites, **terms) as federation:
        return KINDS[name](vocabulary=next(iter(sites.values())).codes).fit(federation)


@each
def test_codes_of_the_policys_minimum_leave_unmasked_and_rarer_ones_do_not(name):
    sites = {"lyon": two_groups(40, CELL), "oslo": two_groups(CELL, 40)}
    minimum = {"policy": mc.Policy(min_patients=CELL), "secure_sum": False}
    assert fit(name, sites, **minimum).n_patients_ == 2 * (40 + CELL)
    with pytest.raises(DisclosureRefused, match=r"oslo.*secure_sum=True"):
        fit(name, {**sites, "oslo": two_groups(CELL - 1, 40)}, **minimum)


@each
def test_unmasked_numbers_without_a_minimum_are_those_of_masked_sums(name):
    sites = {f"site-{i}": data.take(np.arange(12 + i)) for i, data in enumerate(simulate_events(60).sites(3).values())}
    masked, unmasked = fit(name, sites), fit(name, sites, policy=mc.Policy(min_patients=0), secure_sum=False)
    assert list(masked.factors_) == list(masked.codes_)  # in whatever order masked sums have their modes
    for mode, factor in unmasked.factors_.items():
        np.testing.assert_allclose(masked.factors_[mode], factor, rtol=0, atol=1e-6)
    assert masked.members_.tolist() == unmasked.members_.tolist()
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        fit(name, sites, secure_sum=False)


def test_a_site_that_refuses_its_profile_is_missing_and_the_others_keep_theirs():
    sites = {"lyon": two_groups(40, 30), "oslo": two_groups(30, 40), "nice": two_groups(30, 8)}
    strict = {"lyon": mc.Policy(), "oslo": mc.Policy(secure_sums_only=True), "nice": mc.Policy()}
    with mc.Federation.in_process(sites, policy=strict) as federation:
        profile = DPFact(2, vocabulary=sites["lyon"].codes).fit(federation).profile_sites()
    assert profile.index.tolist() == ["lyon", "nice", "oslo"]
    assert profile.loc["oslo"].isna().all()
    assert profile.loc["lyon"].notna().all()
    assert profile.loc["nice"].isna().sum() == 1
