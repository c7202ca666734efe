"""Each site a fold of its own, and people at several sites left out."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.validation.folds.by_site import FederatedKFold, LeaveOneSiteOut
from support.fold_sites import federate, folds_of, people_sites, violations


@pytest.mark.parametrize("options", [{}, {"secure_sum": True}, {"policy": None}])
def test_each_site_is_a_fold(options):
    sites, _ = people_sites(60, 4)
    plan = LeaveOneSiteOut().plan(federate(sites, **options))
    assert plan.facts["held_out"] == tuple(sites)
    assert plan.counts.tolist() == [60] * 4
    assert not plan.duplicate_safe
    for fold, site in enumerate(sites):
        assert plan.test(fold).sites == (site,)
        assert plan.train(fold).sites == tuple(name for name in sites if name != site)


def test_people_at_several_sites_are_in_no_fold_and_few_others():
    sites, people = people_sites(400, 4, shared=80)
    splitter = LeaveOneSiteOut(drop_shared=True)
    plan = splitter.plan(federate(sites, secure_sum=True))
    folds = folds_of(plan)
    assert splitter.duplicate_safe
    assert plan.duplicate_safe
    assert violations(folds, people) == 0
    everywhere = np.concatenate(list(people.values()))
    shared = np.isin(everywhere, np.flatnonzero(np.bincount(everywhere) > 1))
    dropped = np.concatenate([folds[site] for site in people]) == -1
    assert dropped[shared].all()
    assert dropped[~shared].mean() < 0.08
    assert plan.n_excluded == dropped.sum()
    exact = LeaveOneSiteOut(drop_shared=True).plan(federate(sites))
    assert np.array_equal(exact.class_table, plan.class_table)


def test_records_without_an_identifier_are_left_out_too():
    sites, people = people_sites(100, 2, shared=0)
    given = [None] * 5 + [f"p{number}" for number in people["site-0"][5:]]
    sites["site-0"] = sites["site-0"].with_identifier(given)
    plan = LeaveOneSiteOut(drop_shared=True).plan(federate(sites, secure_sum=True))
    assert (folds_of(plan)["site-0"][:5] == -1).all()
    assert 5 <= plan.n_excluded < 20


def test_unmasked_who_is_where_is_not_told():
    with pytest.raises(DisclosureRefused, match="an answer on persons must be masked"):
        LeaveOneSiteOut(drop_shared=True).plan(federate(people_sites()[0], policy=None, secure_sum=False))


def test_what_people_are_told_apart_by_is_checked():
    sites, _ = people_sites()
    keys = {site: PseudonymKey.generate() for site in sites}
    with pytest.raises(ConfigurationError, match="different keys"):
        LeaveOneSiteOut(drop_shared=True).plan(federate(sites, pseudonym_key=keys))
    with pytest.raises(DataError, match="person_key must be one of identifier; got 'nhs'"):
        LeaveOneSiteOut(drop_shared=True, person_key="nhs").plan(federate(sites))
    with pytest.raises(ConfigurationError, match="drop_shared must be False with arrays; got True"):
        next(LeaveOneSiteOut(drop_shared=True).split(np.zeros((4, 1)), groups=list("aabb")))


def test_one_site_alone_is_refused():
    with pytest.raises(ConfigurationError, match="folds by site must have at least 2 sites"):
        LeaveOneSiteOut().plan(federate(people_sites(50, 1)[0]))


def test_a_site_without_an_event_is_warned_of():
    sites, _ = people_sites(100, shared=0)
    one = sites["site-1"]
    sites["site-1"] = mc.data.TableData(one.X, np.zeros(100, int), classes=["0", "1"])
    with pytest.warns(UserWarning, match="LeaveOneSiteOut: fold 1 has no records of class 1 of the outcome"):
        LeaveOneSiteOut().plan(federate(sites))


def test_a_plan_that_was_broken_off_goes_on(tmp_path):
    sites, _ = people_sites(200, 3)
    splitter = LeaveOneSiteOut(drop_shared=True)
    plan = splitter.plan(federate(sites, folder=tmp_path))
    again = splitter.plan(federate(sites, folder=tmp_path))
    assert plan.digest == again.digest
    assert all(np.array_equal(folds_of(plan)[site], folds_of(again)[site]) for site in sites)


def test_a_site_left_out_of_masked_sums_is_scored_by_itself():
    sites, _ = people_sites(120, 3)
    federation = federate(sites, secure_sum=True, policy=None)
    plan = LeaveOneSiteOut(drop_shared=True).plan(federation)
    assert plan.train(0).protection == "masked"
    assert plan.test(0).protection == "unmasked"
    assert federation.protection == plan.session.protection == "masked"
    assert FederatedKFold(2).plan(plan.test(0)).counts.sum() == plan.counts[0]
    strict = LeaveOneSiteOut().plan(federate(sites, secure_sum=True, policy=mc.Policy(secure_sums_only=True)))
    with pytest.raises(RefusedByPolicy, match="answers of this site must be masked sums"):
        FederatedKFold(2).plan(strict.test(0))
