"""The coordinator of masked sums: how many sites it needs, what it says of losses, how much noise it knows of."""

import dataclasses
import math

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, array, number
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Release
from multicentre.core.summation import PlainSummation
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, QuorumLost
from multicentre.privacy.secure_sum.fixed_point import Grid, check_values, plan_grids, rounding, sum_terms
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.rounds import MaskedSummation, Prepared, _delivered, _stacked
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingSeal
from support.masking_parts import SITES, advertised, agreed, invitation, parts_of, protect, shared
from support.mixed_method import MixedSite, begun, mixed
from support.toy_private import ClippedSite, federate_privately, plan_of, private_sites


def agreement_of(federation):
    return federation.consortium.summation._agreed[federation]


@pytest.mark.parametrize(
    ("n_sites", "quorum", "colluding", "threshold"),
    [
        (3, 1, 0, 2),
        (3, 3, 0, 3),
        (4, 1, 0, 3),
        (4, 3, 0, 3),
        (5, 1, 0, 3),
        (5, 4, 0, 4),
        (5, 1, 1, 4),
        (5, 1, 2, 4),
        (5, 1, 3, 5),
        (5, 1, 4, 5),
        (2, 1, 0, 2),
    ],
)
def test_more_than_half_of_the_sites_and_of_those_that_collude_are_needed(n_sites, quorum, colluding, threshold):
    policy = mc.Policy(colluding_sites=colluding)
    federation = begun(*[mixed()] * n_sites, quorum=quorum, policy=policy)
    federation.sum(MixedSite.answer, Nothing())
    terms = agreement_of(federation).terms
    n_sums = 2 if threshold < n_sites else MAX_SUMS
    assert (terms.threshold, terms.n_colluding, terms.n_sums) == (threshold, colluding, n_sums)
    assert (terms.study, terms.session, terms.sites) == (
        federation.terms.study,
        federation.name,
        federation.sites,
    )


def test_an_agreement_serves_its_own_sites_until_its_sums_are_spent():
    terms, _, public = advertised()
    one = Prepared(terms, public)
    assert (one.before, one.spent, one.summed) == (0, 0, 0)
    for left in (2, 1, 0):
        assert one.serves(SITES) is (left > 0)
        assert not one.serves(SITES[:2])
        one.spent += 1


def test_by_default_a_first_agreement_is_for_sixteen_sums_and_allows_for_no_colluding_site():
    summation = MaskedSummation()
    assert (summation._n_sums, summation._n_colluding, summation.protection) == (16, 0, "masked")


def test_two_agreements_have_two_names():
    federation = begun(mixed(), mixed(), mixed(), n_sums=1, quorum=2)
    names = []
    for _ in range(2):
        federation.sum(MixedSite.answer, Nothing())
        names.append(agreement_of(federation).terms.agreement)
    assert len(set(names)) == 2
    assert [len(name) for name in names] == [16, 16]


@pytest.mark.parametrize(
    ("phase", "did"),
    [
        ("answer", "answered"),
        ("unmask", "sent their part of the unmasking"),
    ],
)
def test_a_sum_that_too_few_sites_finish_says_at_what_they_were_lost(phase, did):
    lose = {"site-1": phase, "site-3": phase, "site-4": phase}
    federation = begun(*[mixed()] * 5, quorum=1, faults=Faults(lose=lose))
    with pytest.raises(QuorumLost) as caught:
        federation.sum(MixedSite.answer, Nothing())
    assert caught.value.what == (
        f"a masked sum must have answers of at least 3 sites; 2 of 5 {did}, and the sum cannot be read"
    )
    assert caught.value.where == "site-1, site-3, site-4"
    assert caught.value.hint == "Reconnect these sites and resume the run."


def test_the_last_site_has_no_secure_sum_with_itself():
    lose = {"site-1": 0, "site-2": 0}
    with pytest.raises(QuorumLost) as caught:
        begun(*[mixed()] * 3, quorum=1, faults=Faults(lose=lose)).sum(MixedSite.answer, Nothing())
    assert caught.value.where == "site-0"
    assert caught.value.what == "a masked sum must have at least 2 sites; got 1"


def noised(**options):
    federation = federate_privately(private_sites(4), secure_sum=True, **options)
    return federation.begin(ClippedSite, plan=plan_of(0.02))


@pytest.mark.parametrize(
    ("quorum", "colluding", "lose", "spread"),
    [
        ("all", 0, {}, 1.0),
        (3, 0, {}, math.sqrt(4 / 3)),
        (3, 1, {}, math.sqrt(4 / 2)),
        (3, 0, {"site-3": "clipped_sum"}, 1.0),
    ],
)
def test_noise_beyond_the_fewest_honest_sites_comes_on_top(quorum, colluding, lose, spread):
    policy = mc.Policy(colluding_sites=colluding)
    federation = noised(quorum=quorum, policy=policy, faults=Faults(lose=lose))
    assert federation.noise_spread == 1.0
    federation.sum(ClippedSite.clipped_sum, Nothing())
    assert federation.noise_spread == pytest.approx(spread)


def test_a_session_states_the_rounding_of_its_sums():
    session = begun(mixed(), mixed(), mixed())
    stated = {name: terms.rounding for name, terms in sum_terms(MixedSite.answer.releases, 3).items()}
    assert {name: session.rounding(MixedSite.answer, name) for name in stated} == stated
    assert 0.0 in stated.values()
    assert max(stated.values()) > 0.0
    assert MaskedSummation().rounding(session, MixedSite.answer) == stated
    assert PlainSummation().rounding(session, MixedSite.answer) == {}


# What sites send


def test_one_key_for_each_sum_is_needed_of_every_site():
    terms, parts, _ = advertised()
    answers = {name: parts[name].advertise(invitation(agreement="next")) for name in SITES}
    short = dataclasses.replace(answers["b"], keys=answers["b"].keys[:1], checks=answers["b"].checks[:1])
    with pytest.raises(MessageError) as caught:
        _stacked(terms, {**answers, "b": short})
    assert (caught.value.where, caught.value.what) == ("b", "there must be 2 keys, one per sum; got 1")


def test_every_site_is_sent_the_shares_that_are_for_it():
    terms, parts, public = advertised()
    boxes = {name: parts[name].share(public) for name in SITES}
    delivered = _delivered(terms, boxes)
    for j, name in enumerate(SITES):
        assert delivered[name].agreement == "first"
        np.testing.assert_array_equal(delivered[name].boxes, np.stack([boxes[peer].boxes[j] for peer in SITES]))


@pytest.mark.parametrize("wrong", ["a", "all"])
def test_shares_for_fewer_sites_than_agreed_are_refused(wrong):
    terms, parts, public = advertised()
    boxes = {name: parts[name].share(public) for name in SITES}
    for name in SITES if wrong == "all" else wrong:
        boxes[name] = dataclasses.replace(boxes[name], boxes=boxes[name].boxes[:2])
    with pytest.raises(MessageError) as caught:
        _delivered(terms, boxes)
    assert caught.value.where == ("a, share" if wrong == "a" else f"{', '.join(SITES)}, share")
    assert caught.value.what.startswith(f"boxes must have shape ({len(SITES)}, ")


def test_a_seal_keeps_its_policy_for_every_session():
    lyon, nice = Identity.generate(), Identity.generate()
    seal = MaskingSeal(lyon, {"nice": nice.public}, min_sites=3, n_colluding=1)
    part = seal.new_keys("lyon")
    assert (part._min_sites, part._n_colluding, part.site) == (3, 1, "lyon")
    default = MaskingSeal(lyon, {"nice": nice.public}).new_keys("lyon")
    assert (default._min_sites, default._n_colluding) == (2, 0)
    assert MaskingSeal(lyon, {}, min_sites=0).new_keys("lyon")._min_sites == 2  # of one there is no sum


@pytest.mark.parametrize("n_sums", [1, 1024])
def test_an_agreement_is_for_one_sum_at_least_and_1024_at_most(n_sums):
    assert len(parts_of()["a"].advertise(invitation(n_sums=n_sums)).keys) == n_sums


def test_a_value_beyond_its_range_is_refused_by_step_and_field():
    with pytest.raises(DisclosureRefused) as caught:
        protect(agreed()[1], answer=mixed(amount=1e12))
    assert caught.value.where == "answer, Mixed.amount"


def test_an_agreement_with_no_use_of_shares_refuses_them():
    _, parts, _, boxes = shared()
    with pytest.raises(ConfigurationError, match="must belong to the current key agreement"):
        parts["a"].accept(dataclasses.replace(boxes["a"], agreement="second"))


# The grid


def whole(bound, **more):
    @dataclasses.dataclass(frozen=True)
    class Whole(Release):
        values: np.ndarray = array("x", ("d",), dtype="i8", bound=bound, **more)

    return Whole


def test_the_largest_range_of_whole_numbers_that_fits_is_taken_and_the_next_is_not():
    most = 2.0**62  # two sites' values of this size are 2**63 - 1 and one more
    with pytest.raises(ConfigurationError):
        plan_grids(whole(most), 2)
    below = float(np.nextafter(most, 0))
    assert plan_grids(whole(below), 2)["values"] == Grid(below, 0, True)


def test_a_range_that_fills_the_ring_to_the_last_number_fits():
    n_sites = 2**20  # of which 2**43 - 1 each are 2**63 - 2**20
    assert plan_grids(whole(2.0**43 - 1), n_sites)["values"].capacity == 2.0**43 - 1
    with pytest.raises(ConfigurationError):
        plan_grids(whole(2.0**43), n_sites)


@pytest.mark.parametrize(("n_sites", "bits"), [(1, 42), (2, 41), (3, 41), (4, 40), (5, 40), (7, 40), (8, 39)])
def test_fractions_have_the_bits_that_the_range_and_the_sites_leave(n_sites, bits):
    @dataclasses.dataclass(frozen=True)
    class Total(Release):
        total: float = number("x", bound=2.0**20)

    grid = plan_grids(Total, n_sites)["total"]
    assert grid.fraction_bits == bits
    assert n_sites * 2**20 * 2**bits <= 2**63 - 1 < n_sites * 2**20 * 2 ** (bits + 1)
    assert rounding(grid, n_sites) == n_sites * 2.0 ** -(bits + 1)


def test_the_terms_of_a_noised_sum_have_its_room():
    kind = whole(10.0, sensitivity=1.0)
    noise = Noise("gaussian", {"values": 2.0})
    assert sum_terms(kind, 3, noise)["values"].capacity == 10.0 + 16 * 2.0
    assert sum_terms(kind, 3)["values"].capacity == 10.0
    assert plan_grids(kind, 3, Noise("gaussian", {"other": 2.0}))["values"].capacity == 10.0


@pytest.mark.parametrize("value", [-10, 10])
def test_a_range_of_the_ring_holds_both_ends_and_nothing_beyond(value):
    kind = whole(10.0)
    grids = plan_grids(kind, 3)
    check_values(kind(np.array([0, value])), grids, "lyon")
    check_values(kind(np.array([], dtype="i8")), grids, "lyon")
    with pytest.raises(DisclosureRefused) as caught:
        check_values(kind(np.array([0, value + np.sign(value)])), grids, "lyon")
    assert caught.value.where == "lyon, Whole.values"
