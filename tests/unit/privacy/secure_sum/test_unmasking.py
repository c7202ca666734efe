"""Nothing is unmasked before enough sites signed one list of survivors; shares are given for one sum alone."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import IntegrityError, MessageError, RefusedByPolicy
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.mask import seed_of_sum
from multicentre.privacy.secure_sum.messages import Confirming, Unmasking
from multicentre.privacy.secure_sum.recoverable import SurvivorLists
from multicentre.privacy.secure_sum.recovery import combine_shares
from support.engines import with_engine
from support.examples import examples
from support.masking_parts import (
    FIVE,
    IDENTITIES,
    PUBLIC,
    SITES,
    TRANSCRIPT,
    advertised,
    agreed,
    answered,
    confirm,
    confirmed,
    invitation,
    protect,
    recover_masks,
    shared,
    unmask,
)
from support.mixed_method import MixedSite, begun, mixed

FIVE_TERMS = invitation(FIVE, threshold=3)


def seeds_of(parts):
    return {name: (part._agreement._mask_seed, list(part._agreement._key_seeds)) for name, part in parts.items()}


# What is given


def test_where_nobody_was_lost_each_site_gives_its_own_seed_and_no_share():
    terms, parts = answered()
    own = {name: part._agreement._mask_seed for name, part in parts.items()}
    for number in (1, 0):
        signatures = confirmed(terms, parts, SITES, number)
        for name in SITES:
            answer = unmask(parts, name, signatures, number)
            assert answer.seed.tobytes() == seed_of_sum(own[name], number)
            assert answer.shares.shape == (0, 16)
        assert not any(part._agreement._shares[:, 1 + number].any() for part in parts.values())


def test_of_a_site_not_on_the_list_shares_of_its_key_of_this_sum_are_given():
    terms, parts = agreed(FIVE_TERMS)
    keys = seeds_of(parts)["d"][1]
    for part in parts.values():
        part._agreement.masks(1, "answer", TRANSCRIPT)
    signatures = confirmed(terms, parts, "abc", 1)
    given = {FIVE.index(name): unmask(parts, name, signatures, 1).shares for name in "abc"}
    assert {shares.shape for shares in given.values()} == {(2, 16)}
    assert combine_shares({position: shares[0] for position, shares in given.items()}, 3) == keys[1]


def test_of_a_site_on_the_list_shares_of_its_own_masks_are_given():
    terms, parts = answered(FIVE_TERMS)
    own = seeds_of(parts)["b"][0]
    signatures = confirmed(terms, parts, FIVE, by="acd")
    for name in "acd":
        unmask(parts, name, signatures)
    given = {FIVE.index(name): recover_masks(parts, name, "eb").shares[1] for name in "acd"}
    assert combine_shares(given, 3) == own


# Lists


@pytest.mark.parametrize(
    ("number", "survivors", "why"),
    [
        (2, SITES, "a list must be signed once, for a sum that this site masked"),
        (-1, SITES, "a list must be signed once, for a sum that this site masked"),
        (0, ("a",), "at least 2 sites must survive"),
        (0, (), "survivors must include this site"),
        (0, ("b", "c"), "survivors must include this site"),
        (0, ("a", "b", "d"), "must be part of the agreement"),
        (0, ("a", "b", "b"), "must be named once"),
        (0, ("a", "a"), "must be named once"),
    ],
)
def test_a_list_that_cannot_be_is_not_signed(number, survivors, why):
    _, parts = agreed()
    protect(parts)
    with pytest.raises(RefusedByPolicy, match=why):
        confirm(parts, "a", survivors, number)
    confirm(parts, "a", SITES)


def test_a_sum_that_was_not_masked_is_not_confirmed():
    _, parts = agreed()
    with pytest.raises(RefusedByPolicy, match="a list must be signed once, for a sum that this site masked"):
        confirm(parts, "a", SITES)


@pytest.mark.parametrize("second", [SITES, ("a", "b"), ("a", "c", "b")])
def test_one_list_is_signed_for_a_sum(second):
    terms, parts = answered()
    signatures = confirmed(terms, parts, SITES)
    with pytest.raises(RefusedByPolicy, match="a list must be signed once, for a sum that this site masked"):
        confirm(parts, "a", second)
    unmask(parts, "a", signatures)
    with pytest.raises(RefusedByPolicy, match="a list must be signed once, for a sum that this site masked"):
        confirm(parts, "a", second)
    confirm(parts, "a", second, number=1)


def forged(terms, parts):
    signature = confirm(parts, "c", "abcd").copy()
    signature[40] ^= 1
    return signature


def other(**told):
    """Return a signature by c, who is willing to sign anything, of something else."""

    def make(terms, parts):
        lists = parts["c"]._agreement._lists
        content = {"site": "c", "number": 0, "survivors": tuple("abcd"), "keys_digest": lists._keys_digest} | told
        return np.frombuffer(IDENTITIES["c"].sign(terms.signed_list(**content)), np.uint8)

    return make


WRONG = {
    "missing": lambda terms, parts: np.zeros(64, np.uint8),
    "forged": forged,
    "of another list": other(survivors=tuple("abce")),
    "of the same list in another order": other(survivors=tuple("bacd")),
    "of another sum": lambda terms, parts: confirm(parts, "c", "abcd", number=1),
    "of other keys under the same name": lambda terms, parts: confirm(answered(FIVE_TERMS)[1], "c", "abcd"),
    "as another site": other(site="d"),
    "of another session": lambda terms, parts: other()(invitation(FIVE, 3, session="0.2"), parts),
    "by an impostor": lambda terms, parts: np.frombuffer(Identity.generate().sign(b"abcd"), np.uint8),
    "by b, twice": lambda terms, parts: confirm(parts, "b", "abcd"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_signature_that_is_not_of_this_list_by_this_site_does_not_count(wrong):
    """Three are needed: there are a's own, b's, and the wrong one in c's place."""
    terms, parts = answered(FIVE_TERMS)
    signatures = np.zeros((5, 64), np.uint8)
    signatures[0] = confirm(parts, "a", "abcd")
    signatures[2] = WRONG[wrong](terms, parts)
    signatures[1] = signatures[2] if wrong == "by b, twice" else confirm(parts, "b", "abcd")
    with pytest.raises(IntegrityError, match=r"^unmask: at least 3 sites must have signed the same list of survivors"):
        unmask(parts, "a", signatures)
    assert parts["a"]._agreement._shares.any(axis=-1).all()
    signatures[3] = confirm(parts, "d", "abcd")
    unmask(parts, "a", signatures)


def test_a_site_that_is_not_on_the_list_cannot_sign_it():
    """The site e helps the coordinator: it signs a list without itself, and its word does not count."""
    terms, parts = answered(FIVE_TERMS)
    signatures = confirmed(terms, parts, "abcd", by="ab")
    digest = parts["e"]._agreement._lists._keys_digest
    signatures[4] = np.frombuffer(IDENTITIES["e"].sign(terms.signed_list("e", 0, tuple("abcd"), digest)), np.uint8)
    with pytest.raises(IntegrityError, match="at least 3 sites must have signed"):
        unmask(parts, "a", signatures)


def test_signatures_need_not_be_more_than_the_threshold():
    terms, parts = answered(FIVE_TERMS)
    signatures = confirmed(terms, parts, FIVE, by="ace")
    for name in "ace":
        unmask(parts, name, signatures)


@pytest.mark.parametrize("shape", [(2, 64), (4, 64), (3, 32), (0, 64)])
def test_one_place_for_each_signature_is_needed(shape):
    terms, parts = answered()
    signatures = confirmed(terms, parts, SITES)
    with pytest.raises(MessageError, match="there must be 3 signatures of 64 bytes, one per site"):
        unmask(parts, "a", np.zeros(shape, np.uint8))
    unmask(parts, "a", signatures)


def test_a_sum_is_unmasked_once_and_after_its_list_was_signed():
    terms, parts = answered()
    signatures = confirmed(terms, parts, SITES, by="bc")
    for number in (0, 1, 7):
        with pytest.raises(RefusedByPolicy, match="a sum must be unmasked once, after its list was signed"):
            unmask(parts, "a", signatures, number)
    signatures[0] = confirm(parts, "a", SITES)
    unmask(parts, "a", signatures)
    with pytest.raises(RefusedByPolicy, match="unmasked before"):
        unmask(parts, "a", signatures)


def test_keys_of_an_agreement_that_was_forgotten_cannot_come_back():
    """With them a coordinator could bring back the signatures of lists."""
    _, _, old, _ = shared()
    _, parts, _ = advertised()
    with pytest.raises(
        IntegrityError, match=r"^a: the keys and fields listed for this site must be those that it sent"
    ):
        parts["a"].share(old)


# Shares


@pytest.mark.parametrize("lost", [(), ("d",), ("a", "d"), ("stranger",)])
def test_own_masks_of_sites_that_are_not_on_the_list_stay(lost):
    terms, parts = answered(FIVE_TERMS)
    unmask(parts, "a", confirmed(terms, parts, "abce"))
    with pytest.raises(RefusedByPolicy, match="lost must name sites on the list of survivors, at least one"):
        recover_masks(parts, "a", lost)
    assert not parts["a"]._agreement._shares[3].any()
    assert recover_masks(parts, "a", "b").shares.any()


def test_own_masks_stay_until_the_sum_was_unmasked_and_are_recovered_once():
    terms, parts = answered(FIVE_TERMS)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b")
    signatures = confirmed(terms, parts, FIVE)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b")
    unmask(parts, "a", signatures)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b", number=1)
    recover_masks(parts, "a", "b")
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b")
    assert not parts["a"]._agreement._shares.any()


@pytest.mark.parametrize("ends", ["unmask", "recover_masks"])
def test_after_shares_were_given_nothing_else_of_the_agreement_is_answered(ends):
    terms, parts = agreed(invitation(FIVE, threshold=3, n_sums=5))
    for part in parts.values():
        for number in range(4):
            part._agreement.masks(number, "answer", TRANSCRIPT)
    first, second = (confirmed(terms, parts, FIVE, number) for number in (0, 1))
    unmask(parts, "a", first)
    unmask(parts, "a", confirmed(terms, parts, "abc" if ends == "unmask" else FIVE, 2), 2)
    if ends == "recover_masks":
        recover_masks(parts, "a", "b", 2)
    with pytest.raises(RefusedByPolicy, match="a sum must be unmasked once, after its list was signed"):
        unmask(parts, "a", second, 1)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b", 0)
    with pytest.raises(RefusedByPolicy, match="a list must be signed once, for a sum that this site masked"):
        confirm(parts, "a", FIVE, 3)
    with pytest.raises(RefusedByPolicy, match="masks must be agreed and used once"):
        parts["a"]._agreement.masks(4, "answer", TRANSCRIPT)
    assert seeds_of(parts)["a"] == (b"", [b""] * 5)


# Against a coordinator that tells everybody what it likes


@given(st.lists(st.sets(st.sampled_from(FIVE)), min_size=4, max_size=4), st.booleans())
@examples(60)
def test_two_different_lists_of_sites_are_never_both_signed_by_enough_sites(told, colludes):
    """Four sites hear any list each, and e signs whatever it is shown: for one colluding site the threshold is 4."""
    terms = invitation(FIVE, threshold=4 if colludes else 3)
    lists = {name: SurvivorLists(terms, name, PUBLIC, b"keys") for name in FIVE}
    known, signed = {}, {}
    for name, some in zip("abcd", told, strict=True):
        known[name] = tuple(sorted(some | {name, "e", "a"}))
        lists[name].answered.add(0)
        try:
            signed[name] = np.frombuffer(
                lists[name].sign(Confirming("first", 0, known[name]), IDENTITIES[name]), np.uint8
            )
        except RefusedByPolicy:
            del known[name]
    accepted = set()
    for name, survivors in known.items():
        signatures = np.stack([signed.get(site, np.zeros(64, np.uint8)) for site in FIVE])
        if colludes:
            signatures[4] = np.frombuffer(IDENTITIES["e"].sign(terms.signed_list("e", 0, survivors, b"keys")), np.uint8)
        try:
            accepted.add(lists[name].take_signatures(Unmasking("first", 0, signatures)))
        except IntegrityError:
            assert sum(list_ == survivors for list_ in known.values()) + colludes < terms.threshold
    assert len(accepted) <= 1


def play(seed):
    """Ask anything of anybody in any order; return what of whom and which sum became known, and by how many shares."""
    rng = np.random.default_rng(seed)
    terms, parts = answered(FIVE_TERMS)
    without = tuple(site for site in FIVE if site != rng.choice(FIVE))
    blank, told, signatures, given = np.zeros((5, 64), np.uint8), {}, {}, Counter()
    for _ in range(150):
        name, number, what = str(rng.choice(FIVE)), int(rng.integers(2)), rng.integers(3)
        survivors = told.get((name, number), without if rng.random() < (0.2, 0.8)[number] else FIVE)
        try:
            if what == 0:
                row = confirm(parts, name, survivors, number)
                told[name, number] = survivors
                signatures.setdefault((survivors, number), blank.copy())[FIVE.index(name)] = row
            elif what == 1:
                unmask(parts, name, signatures.get((survivors, number), blank), number)
                given[name, number, "own"] += terms.threshold
                given.update((site, number, "key") for site in FIVE if site not in survivors)
            elif rng.random() < 0.3:
                some = rng.choice(survivors, 2, replace=False).tolist()
                recover_masks(parts, name, some, number)
                given.update((site, sum_, "own") for site in some for sum_ in (0, 1))
        except (IntegrityError, RefusedByPolicy):
            continue
    return given


@pytest.mark.slow
def test_a_sites_own_mask_and_its_pairwise_key_are_never_both_revealed():
    games = [play(seed) for seed in range(30)]
    for known in games:
        assert all(
            min(known[site, number, "own"], known[site, number, "key"]) < 3 for site in FIVE for number in (0, 1)
        )
    read = [{(kind, times) for (*_, kind), times in known.items()} for known in games]
    assert sum(("key", 3) in kinds or ("key", 4) in kinds for kinds in read) > 5
    assert sum(any(kind == "own" and times > 3 for kind, times in kinds) for kinds in read) > 5


# What is written down of it


class Liar:
    """Wraps an engine and tells sites that nobody signed."""

    def __init__(self, engine):
        self.engine = engine
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        if next(iter(calls.values())).step.name == "unmask":
            blank = Unmasking(calls["site-0"].request.agreement, 0, np.zeros((len(calls), 64), np.uint8))
            calls = {site: dataclasses.replace(call, request=blank) for site, call in calls.items()}
        return self.engine.exchange(calls, time_limit_s)


def test_a_refused_agreement_is_written_to_the_ledger():
    federation = begun(mixed(), mixed(), policy=mc.Policy(min_sites_in_sum=3))
    with pytest.raises(RefusedByPolicy, match="requires sums over at least"):
        federation.sum(MixedSite.answer, Nothing())
    entry = federation.consortium.ledgers["site-0"].entries[-1]
    assert (entry["event"], entry["step"], entry["reason"]) == ("failure", "advertise", "RefusedByPolicy")


def test_a_refused_unmasking_is_written_to_the_ledger():
    federation = begun(mixed(), mixed(), mixed(), quorum=2)
    federation = with_engine(federation, Liar(federation.engine))
    with pytest.raises(IntegrityError, match=r"^at 3 of 3 sites \(.*\), unmask: at least 2 sites must have signed"):
        federation.sum(MixedSite.answer, Nothing())
    for ledger in federation.consortium.ledgers.values():
        entry = ledger.entries[-1]
        assert (entry["event"], entry["step"], entry["reason"]) == ("failure", "unmask", "IntegrityError")
