"""The one sum over sites, the lists that stand in for it, and what a coordinator has afterwards."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import multicentre as mc
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.rounds import (
    Sparse,
    add_relations,
    collect_lists,
    describe_views,
    keep_present,
)
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.core.messages import Nothing
from multicentre.datasets import lose_records
from multicentre.engines.faults import Faults
from multicentre.errors import DataError, RefusedByPolicy
from multicentre.linkage.alignment import align
from support.engines import with_engine
from support.msgl_sites import DENSE, LISTED, VIEWS, split

TERMS = messages.Settings("l2", 10.0, 0.0, 10.0, 5e-3, 50)


def opened(sites=None, *, incomplete=False, **options):
    federation = mc.Federation.in_process(split() if sites is None else sites, **options)
    return align(federation, incomplete=incomplete).federation.begin(FedMSGLSite)


def entries(matrix):
    return matrix.matrix.toarray()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5])
def test_the_masked_sum_the_sum_in_clear_and_the_lists_are_one_affinity(share):
    sites = lose_records(split(), share, random_state=1)
    found = []
    for options in (
        {"secure_sum": True, "policy": mc.Policy(relations="listed")},
        {"policy": DENSE, "secure_sum": False},
        {"policy": LISTED, "secure_sum": False},
    ):
        federation = opened(sites, incomplete=True, **options)
        views = describe_views(federation)
        assert views.n_incomplete == (3 if share else 0)
        n = 60
        if options.get("policy") is LISTED:
            found.append(collect_lists(federation, TERMS, n))
        else:
            found.append(add_relations(federation, TERMS, views, n))
    assert np.abs(entries(found[0]) - entries(found[2])).max() < 1e-6
    assert np.abs(entries(found[1]) - entries(found[2])).max() < 1e-15
    assert np.abs(entries(found[0]) - entries(found[0]).T).max() == 0.0


def test_an_affinity_over_pairs_is_the_mean_of_the_views_that_have_both():
    sites = lose_records(split(), 0.4, random_state=3)
    federation = opened(sites, incomplete=True, policy=LISTED)
    answers = federation.ask(FedMSGLSite.list_relations, TERMS)
    total, counted = np.zeros((60, 60)), np.zeros((60, 60))
    for answer in answers.values():
        for view, places in answer.places.items():
            Z = np.zeros((60, 60))
            for place, columns, values in zip(places, answer.neighbours[view], answer.shares[view], strict=True):
                Z[place, columns[columns >= 0]] = values[columns >= 0]
            total += (Z + Z.T) / 2
            counted += np.outer(np.isin(np.arange(60), places), np.isin(np.arange(60), places))
    expected = np.divide(total, counted, out=np.zeros((60, 60)), where=counted > 0)
    assert np.abs(entries(collect_lists(federation, TERMS, 60)) - expected).max() < 1e-12


def test_the_views_are_told_in_the_order_of_the_sites():
    views = describe_views(opened(policy=LISTED))
    assert views.names == [f"of-{view}/{view}" for view in VIEWS]
    assert views.n_incomplete == 0


class Eavesdropper:
    """Keeps all that the sites send to the coordinator."""

    def __init__(self, engine):
        self.engine, self.heard = engine, []

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def exchange(self, calls, time_limit_s):
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.heard += [(calls[site].step.name, site, outcome) for site, outcome in outcomes.items()]
        return outcomes


def test_what_the_coordinator_gets_of_a_masked_sum_holds_no_sites_relations():
    """Each summand looks like noise: it lies nowhere near the site's own relations, and only the sum is them."""
    unmasked = opened(policy=DENSE, secure_sum=False)
    own = dict.fromkeys(unmasked.sites, unmasked.engine)
    tap = Eavesdropper(unmasked.engine)
    unmasked = with_engine(unmasked, tap)
    total = unmasked.sum(FedMSGLSite.relate, TERMS).relations
    own = {site: answer.relations for step, site, answer in tap.heard if step == "relate"}
    assert np.abs(sum(own.values()) - total).max() < 1e-12

    masked = opened(secure_sum=True)
    tap = Eavesdropper(masked.engine)
    masked = with_engine(masked, tap)
    found = masked.sum(FedMSGLSite.relate, TERMS).relations
    assert np.abs(found - total).max() < 1e-6
    told = {site: answer for step, site, answer in tap.heard if step == "relate"}
    assert set(told) == set(own)
    for site, answer in told.items():
        numbers = [value for value in vars(answer).values() if isinstance(value, np.ndarray) and value.size > 100]
        assert numbers
        for value in numbers:
            words = np.frombuffer(np.ascontiguousarray(value).tobytes(), dtype=np.uint8)
            assert np.bincount(words, minlength=256).max() < 3 * len(words) / 256
            if value.size == own[site].size:
                assert abs(np.corrcoef(value.astype(np.float64), own[site])[0, 1]) < 0.1


def test_ledgers_of_a_masked_sum_say_that_it_is_about_single_patients():
    federation = mc.Federation.in_process(split(), secure_sum=True)
    handle = align(federation).federation.begin(FedMSGLSite)
    handle.sum(FedMSGLSite.relate, TERMS)
    for ledger in federation.ledgers.values():
        (entry,) = [one for one in ledger.entries if one.get("step") == "relate"]
        assert [field["patients"] for field in entry["fields"]] == [1]
        assert entry["protection"] == "masked"


def test_a_refusal_of_lists_says_what_does_without_them():
    handle = opened()
    with pytest.raises(RefusedByPolicy, match=r'must have relations = "listed"'):
        collect_lists(handle, TERMS, 60)


def test_the_mean_is_over_the_views_of_sites_that_answered():
    whole = opened({name: data for name, data in split().items() if name != "of-view_3"}, secure_sum=True)
    lossy = opened(secure_sum=True, quorum=2, faults=Faults(lose={"of-view_3": "relate"}))
    found = [add_relations(handle, TERMS, describe_views(handle), 60) for handle in (whole, lossy)]
    assert np.abs(entries(found[0]) - entries(found[1])).max() < 1e-6


def test_lost_views_weigh_nothing_and_the_others_add_up_to_one():
    handle = opened(quorum=2, faults=Faults(lose={"of-view_2": "describe"}))
    handle.ask(FedMSGLSite.describe, Nothing())
    weights, kept = keep_present(handle, ["of-view_1", "of-view_2", "of-view_3"], np.array([0.5, 0.3, 0.2]))
    assert weights.tolist() == pytest.approx([5 / 7, 0.0, 2 / 7])
    assert kept == pytest.approx(0.7)


def test_lists_that_a_site_made_up_are_refused():
    handle = opened(policy=LISTED)
    honest = handle.ask(FedMSGLSite.list_relations, TERMS)["of-view_1"]
    for columns, values in (
        (np.full((60, 2), 60), np.full((60, 2), 0.5)),
        (np.arange(60)[:, None], np.ones((60, 1))),
        (honest.neighbours["view_1"], -honest.shares["view_1"]),
        (np.ones((60, 2), dtype=np.int64), np.full((60, 2), 0.5)),
    ):
        made_up = messages.NeighbourLists({"view_1": np.arange(60)}, {"view_1": columns}, {"view_1": values})
        tap = Liar(handle, made_up)
        with pytest.raises(DataError):
            collect_lists(tap, TERMS, 60)


class Liar:
    """A federation with one site that answers what it was told to."""

    def __init__(self, handle, answer):
        self.handle, self.answer = handle, answer

    def ask(self, step, request):
        return {**self.handle.ask(step, request), "of-view_1": self.answer}


def test_a_sparse_matrix_comes_back_from_its_checkpoint():
    matrix = csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))
    kept = Sparse.of(matrix)
    assert (kept.matrix != matrix).nnz == 0
    assert kept.matrix.shape == (2, 3)
    assert Sparse.of(csr_array((4, 7))).matrix.shape == (4, 7)


@pytest.mark.slow
def test_a_site_that_is_lost_between_sum_and_count_is_in_neither():
    sites = lose_records(split(), 0.2, random_state=1)
    whole = {"incomplete": True, "policy": DENSE, "secure_sum": True, "quorum": 2}
    handle = opened(sites, faults=Faults(), **whole)
    describe_views(handle)
    at = handle.engine.exchanges

    def found(**options):
        made = opened(sites, **whole, **options)
        told = describe_views(made)
        affinity = entries(add_relations(made, TERMS, told, 60))
        return made.sites, affinity

    lost = [found(faults=Faults(lose={"of-view_2": at + k})) for k in range(12)]
    kept = [affinity for left, affinity in lost if "of-view_2" not in left]
    assert len(kept) > 3
    for affinity in kept:
        np.testing.assert_allclose(affinity, kept[0], atol=1e-12)
