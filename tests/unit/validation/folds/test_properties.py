"""What holds however people are spread over sites: one person's records are in one fold, by hash and not by chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.datasets.duplicated import simulate_duplicated
from multicentre.validation.folds.by_site import FederatedKFold, LeaveOneSiteOut
from multicentre.validation.folds.hashed import HashGroupKFold
from support.examples import examples
from support.fold_sites import federate, folds_of, people_sites, violations

SLOWLY = examples(25)


@st.composite
def hospitals(draw):
    """Return people of some sites, -1 for an identifier that is missing, and the seed of their records."""
    n_people = draw(st.integers(40, 120))
    sizes = draw(st.lists(st.integers(30, 90), min_size=2, max_size=4))
    rng = np.random.default_rng(seed := draw(st.integers(0, 2**32 - 1)))
    people = {f"site-{place}": rng.integers(n_people, size=size) for place, size in enumerate(sizes)}
    missing = draw(st.sampled_from([0.0, 0.1]))
    known = {site: np.where(rng.random(len(own)) < missing, -1, own) for site, own in people.items()}
    return known, seed


def tables(people, seed):
    rng = np.random.default_rng(seed)
    return {
        site: mc.data.TableData(
            rng.normal(size=(len(own), 2)),
            np.arange(len(own)) % 2,
            [None if one < 0 else f"nr-{one:05d}" for one in own],
        )
        for site, own in people.items()
    }


@SLOWLY
@given(hospitals(), st.integers(2, 4), st.booleans(), st.integers(0, 5))
@pytest.mark.filterwarnings("ignore:HashGroupKFold. fold . has")
def test_hashed_folds_keep_every_person_together(drawn, n_splits, masked, repeat):
    people, seed = drawn
    splitter = HashGroupKFold(n_splits, max_missing=1.0, repeat=repeat)
    plan = splitter.plan(federate(tables(people, seed), secure_sum=masked))
    folds = folds_of(plan)
    unknown = {site: own < 0 for site, own in people.items()}
    assert all(np.array_equal(folds[site] == -1, unknown[site]) for site in people)
    assert violations(folds, people) == 0
    assert plan.n_excluded == sum(int(flags.sum()) for flags in unknown.values())
    assert plan.counts.sum() + plan.n_excluded == sum(map(len, people.values()))
    present = {site: tuple(np.unique(fold[fold >= 0]).tolist()) for site, fold in folds.items()}
    assert dict(plan.tested) == present


@SLOWLY
@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
@pytest.mark.filterwarnings("ignore:FederatedKFold. fold . has")
def test_random_folds_and_folds_by_site_part_people(seed, n_splits):
    sites, people = people_sites(60, 3, shared=30, seed=seed)
    drawn = FederatedKFold(n_splits, random_state=seed % 1000).plan(federate(sites))
    assert violations(folds_of(drawn), people) > 0
    by_site = LeaveOneSiteOut().plan(federate(sites))
    assert violations(folds_of(by_site), people) == 60


def test_on_the_papers_simulation_hashed_folds_part_nobody_and_others_many():
    simulated = simulate_duplicated(2000, n_sites=5, n_duplicates=400, random_state=3)
    federation = federate(simulated.sites)
    parted = {
        type(splitter).__name__: violations(folds_of(splitter.plan(federation)), simulated.person)
        for splitter in (HashGroupKFold(5, person_key="person"), FederatedKFold(5), LeaveOneSiteOut())
    }
    assert parted["HashGroupKFold"] == 0
    assert 240 < parted["FederatedKFold"] < 400
    assert 300 < parted["LeaveOneSiteOut"] <= 400
