"""Nothing is unmasked unless enough sites received one list of survivors; shares are given for one sum alone."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import IntegrityError, RefusedByPolicy
from multicentre.privacy.secure_sum.mask import seed_of_sum
from multicentre.privacy.secure_sum.messages import Unmasking
from multicentre.privacy.secure_sum.shares import combine_shares
from multicentre.privacy.secure_sum.unmasking import list_digest
from support.engines import with_engine
from support.examples import examples
from support.masking_parts import (
    FIVE,
    SITES,
    TRANSCRIPT,
    advertised,
    agreed,
    answered,
    invitation,
    opened,
    protect,
    recover_masks,
    shared,
    unmask,
    unmasked,
)
from support.mixed_method import MixedSite, begun, mixed

FIVE_TERMS = invitation(FIVE, threshold=3)
ONCE = "a list must be answered once, for a sum that this site masked"


def seeds_of(parts):
    return {name: (part._agreement._mask_seed, list(part._agreement._key_seeds)) for name, part in parts.items()}


# What is given


def test_where_nobody_was_lost_each_site_gives_its_own_seed_and_no_share():
    terms, parts = answered()
    own = {name: part._agreement._mask_seed for name, part in parts.items()}
    for number in (1, 0):
        disclosed = unmasked(terms, parts, SITES, number)
        assert {name: one.seed.tobytes() for name, one in disclosed.items()} == {
            name: seed_of_sum(own[name], number) for name in SITES
        }
        assert {one.shares.shape for one in disclosed.values()} == {(0, 16)}
        assert not any(part._agreement._shares[:, 1 + number].any() for part in parts.values())


def test_of_a_site_not_on_the_list_shares_of_its_key_of_this_sum_are_given():
    terms, parts = agreed(FIVE_TERMS)
    keys = seeds_of(parts)["d"][1]
    for part in parts.values():
        part._agreement.masks(1, "answer", TRANSCRIPT)
    given = {FIVE.index(name): one.shares for name, one in unmasked(terms, parts, "abc", 1).items()}
    assert {shares.shape for shares in given.values()} == {(2, 16)}
    assert combine_shares({position: shares[0] for position, shares in given.items()}, 3) == keys[1]


def test_of_a_site_on_the_list_shares_of_its_own_masks_are_given():
    terms, parts = answered(FIVE_TERMS)
    own = seeds_of(parts)["b"][0]
    unmasked(terms, parts, FIVE, by="acd")
    given = {FIVE.index(name): recover_masks(parts, name, "eb").shares[1] for name in "acd"}
    assert combine_shares(given, 3) == own


# Lists


@pytest.mark.parametrize(
    ("number", "survivors", "why"),
    [
        (2, SITES, ONCE),
        (-1, SITES, ONCE),
        (0, ("a",), "at least 2 sites must survive"),
        (0, (), "survivors must include this site"),
        (0, ("b", "c"), "survivors must include this site"),
        (0, ("a", "b", "d"), "must be part of the agreement"),
        (0, ("a", "b", "b"), "must be named once"),
        (0, ("a", "a"), "must be named once"),
    ],
)
def test_a_list_that_cannot_be_is_not_answered(number, survivors, why):
    _, parts = agreed()
    protect(parts)
    with pytest.raises(RefusedByPolicy, match=why):
        unmask(parts, "a", survivors, number)
    unmask(parts, "a", SITES)


def test_a_sum_that_was_not_masked_is_not_unmasked():
    _, parts = agreed()
    with pytest.raises(RefusedByPolicy, match=ONCE):
        unmask(parts, "a", SITES)


@pytest.mark.parametrize("second", [SITES, ("a", "b"), ("a", "c", "b")])
def test_one_list_is_answered_for_a_sum(second):
    _, parts = answered()
    unmask(parts, "a", SITES)
    with pytest.raises(RefusedByPolicy, match=ONCE):
        unmask(parts, "a", second)
    unmask(parts, "a", SITES, number=1)


def closed(terms, parts, answers, survivors="abcd", number=0):
    with pytest.raises(IntegrityError, match="at least 3 sites must have received the same list of survivors"):
        opened(terms, parts, answers, survivors, number)


def spoiled(parts):
    answer = unmask(parts, "c", "abcd")
    pads = answer.pads.copy()
    pads[:, 5] ^= 1
    return dataclasses.replace(answer, pads=pads)


WRONG = {
    "changed": spoiled,
    "to another list": lambda parts: unmask(parts, "c", "abce"),
    "to the same list in another order": lambda parts: unmask(parts, "c", "bacd"),
    "to another sum": lambda parts: unmask(parts, "c", "abcd", number=1),
    "to other keys under the same name": lambda parts: unmask(answered(FIVE_TERMS)[1], "c", "abcd"),
    "of b, again": lambda parts: None,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_that_is_not_to_this_list_does_not_count(wrong):
    """Three are needed: there are a's, b's, and the wrong one in c's place."""
    terms, parts = answered(FIVE_TERMS)
    answers = {name: unmask(parts, name, "abcd") for name in "ab"}
    answers["c"] = WRONG[wrong](parts) or answers["b"]
    closed(terms, parts, answers)
    answers["d"] = unmask(parts, "d", "abcd")
    closed(terms, parts, {name: answers[name] for name in "bcd"})
    del answers["c"]
    assert set(opened(terms, parts, answers, "abcd")) == set("abd")


def test_a_site_that_is_not_on_the_list_cannot_help_to_open_answers():
    """The site e helps the coordinator and discloses its pads for a list without itself; no share is hidden by them."""
    terms, parts = answered(FIVE_TERMS)
    answers = {name: unmask(parts, name, "abcd") for name in "ab"}
    assert not any(one.shares[4].any() for one in answers.values())
    parts["e"]._agreement._lists._site = "a"
    answers["e"] = unmask(parts, "e", "abcd")
    closed(terms, parts, answers)


def test_wrong_pads_of_one_site_spoil_nothing_while_enough_others_answer():
    terms, parts = answered(FIVE_TERMS)
    answers = {name: unmask(parts, name, FIVE) for name in FIVE}
    answers["b"] = dataclasses.replace(answers["b"], pads=answers["b"].pads ^ 1)
    assert set(opened(terms, parts, answers, FIVE)) == set(FIVE)


def test_answers_of_more_sites_than_the_threshold_are_not_needed():
    terms, parts = answered(FIVE_TERMS)
    assert set(unmasked(terms, parts, FIVE, by="ace")) == set("ace")


def test_answers_look_like_noise_and_never_repeat():
    rows = []
    for _ in range(100):
        _, parts = answered()
        for number in range(2):
            answer = unmask(parts, "a", SITES, number)
            rows += [answer.sealed, *answer.shares, *answer.pads[1:]]
    assert len({row.tobytes() for row in rows}) == len(rows)
    ones = np.unpackbits(np.concatenate(rows)).mean()
    assert abs(ones - 0.5) < 0.01


def test_keys_of_an_agreement_that_was_forgotten_cannot_come_back():
    """With them a coordinator could bring back the answers to lists."""
    _, _, old, _ = shared()
    _, parts, _ = advertised()
    with pytest.raises(
        IntegrityError, match=r"^a: the keys and fields listed for this site must be those that it sent"
    ):
        parts["a"].share(old)


# Shares


@pytest.mark.parametrize("lost", [(), ("d",), ("a", "d"), ("stranger",)])
def test_own_masks_of_sites_that_are_not_on_the_list_stay(lost):
    _, parts = answered(FIVE_TERMS)
    unmask(parts, "a", "abce")
    with pytest.raises(RefusedByPolicy, match="lost must name sites on the list of survivors, at least one"):
        recover_masks(parts, "a", lost)
    assert not parts["a"]._agreement._shares[3].any()
    assert recover_masks(parts, "a", "b").shares.any()


def test_own_masks_stay_until_the_sum_was_unmasked_and_are_recovered_once():
    _, parts = answered(FIVE_TERMS)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b")
    unmask(parts, "a", FIVE)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b", number=1)
    recover_masks(parts, "a", "b")
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b")
    assert not parts["a"]._agreement._shares.any()


@pytest.mark.parametrize("ends", ["unmask", "recover_masks"])
def test_after_shares_were_given_nothing_else_of_the_agreement_is_answered(ends):
    _, parts = agreed(invitation(FIVE, threshold=3, n_sums=5))
    for part in parts.values():
        for number in range(4):
            part._agreement.masks(number, "answer", TRANSCRIPT)
    unmask(parts, "a", FIVE)
    unmask(parts, "a", "abc" if ends == "unmask" else FIVE, 2)
    if ends == "recover_masks":
        recover_masks(parts, "a", "b", 2)
    with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
        recover_masks(parts, "a", "b", 0)
    for number in (1, 3):
        with pytest.raises(RefusedByPolicy, match=ONCE):
            unmask(parts, "a", FIVE, number)
    with pytest.raises(RefusedByPolicy, match="masks must be agreed and used once"):
        parts["a"]._agreement.masks(4, "answer", TRANSCRIPT)
    assert seeds_of(parts)["a"] == (b"", [b""] * 5)
    assert not parts["a"]._agreement._pad_keys


# Against a coordinator that tells everybody what it likes

_PARTS = {}


def parts_for(threshold):
    """Return the parts of five sites, of which tests use one sum after another."""
    if not _PARTS.get(threshold, (None, None, []))[2]:
        terms, parts = answered(invitation(FIVE, threshold=threshold, n_sums=64))
        _PARTS[threshold] = (terms, parts, list(range(64)))
    return _PARTS[threshold]


@given(st.lists(st.sets(st.sampled_from(FIVE)), min_size=4, max_size=4), st.booleans())
@examples(60)
def test_answers_to_two_different_lists_of_sites_are_never_both_opened(told, colludes):
    """Four sites hear any list each, and e discloses its pads for all: for one colluding site the threshold is 4."""
    terms, parts, numbers = parts_for(4 if colludes else 3)
    number, lists = numbers.pop(0), {}
    for name, some in zip("abcd", told, strict=True):
        survivors = tuple(sorted(some | {name, "e", "a"}))
        if len(survivors) >= terms.threshold:
            lists[name] = survivors
    if any(len(survivors) < 5 for survivors in lists.values()):
        _PARTS.pop(terms.threshold)  # these sites answer nothing else afterwards
    answers = {name: unmask(parts, name, survivors, number) for name, survivors in lists.items()}
    readable = set()
    for survivors in set(lists.values()):
        some = {name: answers[name] for name in lists if lists[name] == survivors}
        if colludes:
            some["e"] = pads_of_e(terms, parts, survivors, number)
        enough = len(some) >= terms.threshold
        if len(some) > 1 or enough:
            try:
                readable.add(survivors) if opened(terms, parts, some, survivors, number) else None
            except IntegrityError:
                assert not enough
    assert len(readable) <= 1


def pads_of_e(terms, parts, survivors, number):
    """Return the answer of e to any list, as often as the coordinator likes."""
    agreement = parts["e"]._agreement
    agreement._lists.answered.add(number)
    kept = agreement._shares.copy(), dict(agreement._pad_keys), agreement._mask_seed, list(agreement._key_seeds)
    try:
        return unmask(parts, "e", survivors, number)
    finally:
        agreement._shares, agreement._pad_keys, agreement._mask_seed, agreement._key_seeds = kept


def test_the_hash_of_a_list_names_all_that_it_is_for():
    lists = [
        list_digest(terms, number, survivors, keys)
        for terms in (FIVE_TERMS, *(dataclasses.replace(FIVE_TERMS, **{name: "2"}) for name in ("study", "session")))
        for number in (0, 1)
        for survivors in (tuple("abc"), tuple("acb"), tuple("abd"))
        for keys in (b"one", b"two")
    ]
    assert len(set(lists)) == len(lists) == 36


def play(seed):
    """Ask anything of anybody in any order; return what of whom and which sum became known, and by how many shares."""
    rng = np.random.default_rng(seed)
    terms, parts = answered(FIVE_TERMS)
    without = tuple(site for site in FIVE if site != rng.choice(FIVE))
    answers, given, told = {}, Counter(), {}
    for _ in range(150):
        name, number = str(rng.choice(FIVE)), int(rng.integers(2))
        survivors = without if rng.random() < (0.2, 0.8)[number] else FIVE
        try:
            if rng.random() < 0.5:
                answers.setdefault((survivors, number), {})[name] = unmask(parts, name, survivors, number)
                told[name, number] = survivors
            elif rng.random() < 0.3:
                some = rng.choice(told.get((name, number), FIVE), 2, replace=False).tolist()
                recover_masks(parts, name, some, number)
                given.update((site, sum_, "own") for site in some for sum_ in (0, 1))
        except RefusedByPolicy:
            continue
    for (survivors, number), some in answers.items():
        if len(some) < terms.threshold:
            if len(some) > 1:
                with pytest.raises(IntegrityError):
                    opened(terms, parts, some, survivors, number)
            continue
        for name in opened(terms, parts, some, survivors, number):
            given[name, number, "own"] += terms.threshold
            given.update((site, number, "key") for site in FIVE if site not in survivors)
    return given


@pytest.mark.slow
def test_a_sites_own_mask_and_its_pairwise_key_are_never_both_revealed():
    games = [play(seed) for seed in range(60)]
    for known in games:
        assert all(
            min(known[site, number, "own"], known[site, number, "key"]) < 3 for site in FIVE for number in (0, 1)
        )
    read = [{(kind, times) for (*_, kind), times in known.items()} for known in games]
    assert sum(("key", 3) in kinds or ("key", 4) in kinds for kinds in read) > 5
    assert sum(any(kind == "own" and times > 3 for kind, times in kinds) for kinds in read) > 5


# What is written down of it


class Liar:
    """Wraps an engine and tells one site of another list."""

    def __init__(self, engine):
        self.engine = engine
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        if next(iter(calls.values())).step.name == "unmask":
            other = Unmasking(calls["site-0"].request.agreement, 0, ("site-0", "stranger"))
            calls = {site: dataclasses.replace(call, request=other) for site, call in calls.items()}
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
    with pytest.raises(RefusedByPolicy, match=r"^refused by 3 of 3 sites \(.*\), unmask: survivors must"):
        federation.sum(MixedSite.answer, Nothing())
    for ledger in federation.consortium.ledgers.values():
        entry = ledger.entries[-1]
        assert (entry["event"], entry["step"], entry["reason"]) == ("failure", "unmask", "ProtocolRefused")
