"""Small sites pooled into one, as a simulation of several under one agent."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.data.concatenate import concatenate
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from support.events_toy import random_events

NAMES = ("a", "b", "c", "d")


def views(seed, **kwargs):
    values = np.random.default_rng(seed).normal(size=(6, 3))
    return mc.data.MultiViewData({"blood": values[:, :2], "image": values[:, 2:]}, **{"ids": range(6)} | kwargs)


def times(seed):
    values = np.random.default_rng(seed).normal(size=(6, 2))
    return mc.data.SurvivalData(values, np.arange(6) + 1.0, np.arange(6) % 2, ids=range(6))


def tables(seed):
    values = np.random.default_rng(seed).normal(size=(6, 2))
    return mc.data.TableData(values, np.arange(6) % 2, ids=[str(i) for i in range(6)])


def arrays(seed):
    return np.random.default_rng(seed).normal(size=(6, 2))


KINDS = {"views": views, "events": lambda seed: random_events(6, seed=seed), "times": times, "tables": tables}
each_kind = pytest.mark.parametrize("kind", KINDS)


def digest(data):
    return data.tobytes() if isinstance(data, np.ndarray) else data.digest()


@pytest.mark.parametrize("make", [*KINDS.values(), arrays], ids=[*KINDS, "arrays"])
def test_a_group_is_its_sites_patients_and_others_stay_as_they_are(make):
    sites = {name: make(seed) for seed, name in enumerate(NAMES)}
    merged = mc.data.merge_sites(sites, groups={"small": ["c", "b"]})
    assert list(merged) == ["a", "small", "d"]
    assert merged["a"] is sites["a"]
    assert len(merged["small"]) == 12
    assert digest(merged["small"]) == digest(concatenate({"c": sites["c"], "b": sites["b"]}))


@each_kind
def test_ids_stay_distinct(kind):
    sites = {name: KINDS[kind](seed) for seed, name in enumerate(NAMES)}
    ids = mc.data.merge_sites(sites, groups={"small": NAMES})["small"].ids
    assert len(set(ids.tolist())) == len(ids) == 24


def test_persons_known_at_two_of_the_sites_stay_one_person():
    sites = {name: tables(0).with_identifier(["p1", "p2", "p3", "p4", "p5", name]) for name in ("a", "b")}
    merged = mc.data.merge_sites(sites, groups={"both": ["a", "b"]})["both"]
    assert len(set(merged.identifier.column("identifier"))) == 7


def test_a_group_may_have_the_name_of_one_of_its_sites():
    sites = {name: views(seed) for seed, name in enumerate(NAMES)}
    assert list(mc.data.merge_sites(sites, groups={"b": ["b", "d"]})) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"small": ["a", "z"]}, "groups, z: groups must consist of existing sites"),
        ({"small": ["a", "a"]}, "groups, a: a site must be in at most one group, once"),
        ({"one": ["a", "b"], "two": ["b"]}, "groups, b: a site must be in at most one group, once"),
        ({"c": ["a", "b"]}, "groups, c: the name of a group must differ from those of sites outside it"),
        ({"small": []}, "groups, small: a group must name at least one site"),
    ],
)
def test_groups_that_cannot_be_made_are_refused(groups, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        mc.data.merge_sites({name: views(0) for name in NAMES}, groups=groups)


def test_what_only_some_sites_of_a_group_have_is_not_lost_in_silence():
    sites = {"a": views(0), "b": views(1, ids=None), "c": views(2).with_identifier(list("uvwxyz"))}
    with pytest.raises(DataError, match=r"^b: ids must be present at every site of a group or at none"):
        mc.data.merge_sites(sites, groups={"small": ["a", "b"]})
    with pytest.raises(DataError, match=r"^a: identifier must be present at every site of a group or at none"):
        mc.data.merge_sites(sites, groups={"small": ["a", "c"]})
    named = views(3).with_identifier({"name": list("uvwxyz")})
    with pytest.raises(DataError, match=r"^c, d: the sites of a group must have the same columns of identifiers"):
        mc.data.merge_sites({**sites, "d": named}, groups={"small": ["c", "d"]})


def test_sites_that_do_not_fit_together_are_not_pooled():
    other = mc.data.SurvivalData(np.zeros((3, 1)), np.ones(3), np.ones(3), ids=range(3))
    with pytest.raises(SchemaMismatch):
        mc.data.merge_sites({"a": times(0), "b": other}, groups={"small": ["a", "b"]})


def test_sites_too_small_alone_answer_together():
    sites = {f"s{i}": mc.datasets.simulate_survival(60 if i else 200, 2, random_state=i) for i in range(4)}
    policy = mc.Policy(min_patients=100)
    with pytest.raises(mc.errors.DisclosureRefused, match="refused by 3 of 4 sites"):
        mc.survival.FedCox(n_times=20).fit(mc.Federation.in_process(sites, policy=policy))
    merged = mc.data.merge_sites(sites, groups={"small": ["s1", "s2", "s3"]})
    fitted = mc.survival.FedCox(n_times=20).fit(mc.Federation.in_process(merged, policy=policy))
    assert fitted.n_patients_ == 380
