"""Where every site is needed, one key exchange per pair serves all sums, and no sum's keys outlive it."""

import dataclasses
import gc
import types

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from multicentre.core.calls import Mask
from multicentre.core.messages import Nothing
from multicentre.core.transcript import SiteTranscript
from multicentre.errors import DisclosureRefused, IntegrityError, RefusedByPolicy
from multicentre.privacy.secure_sum import rounds
from multicentre.privacy.secure_sum.agreement import Chains
from multicentre.privacy.secure_sum.mask import add_streams
from multicentre.privacy.secure_sum.rounds import _stacked
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingKeys
from support.masking_parts import (
    FIVE,
    IDENTITIES,
    RUN,
    SITES,
    TRANSCRIPT,
    advertised,
    asked,
    chained,
    invitation,
    parts_of,
    protect,
)
from support.mixed_method import MixedSite, begun, mixed

D = 2000


def keys_of(parts, name, number, transcript=TRANSCRIPT):
    return dict(zip((peer for peer in parts if peer != name), streams_of(parts, name, number, transcript), strict=True))


def streams_of(parts, name, number, transcript=TRANSCRIPT):
    return parts[name]._agreement.masks(number, "answer", transcript)


def call_of(number):
    return asked(mask=Mask("first", number, len(SITES)))


# One agreement


def test_one_agreement_serves_all_sums_of_a_fit():
    federation = begun(mixed(), mixed(), mixed())
    for _ in range(40):
        assert federation.sum(MixedSite.answer, Nothing()).n == 90
    assert federation.traffic.calls == {"advertise": 1, "agree": 1, "answer": 40}


def test_after_its_last_sum_the_sites_agree_again(monkeypatch):
    monkeypatch.setattr(rounds, "MAX_SUMS", 3)
    federation = begun(mixed(), mixed())
    for _ in range(7):
        assert federation.sum(MixedSite.answer, Nothing()).n == 60
    assert federation.traffic.calls == {"advertise": 3, "agree": 3, "answer": 7}


def test_two_fits_agree_on_keys_of_their_own():
    federation = begun(mixed(), mixed())
    fits = [federation.federation.begin(MixedSite) for _ in range(2)]
    for fit in fits:
        fit.sum(MixedSite.answer, Nothing())
    parts = federation.engine._runtimes["site-0"].sessions.parts
    one, other = (parts[fit.name, MaskingKeys]._agreement._chains._links for fit in fits)
    assert not set(one) & set(other)


def test_no_keys_but_one_are_published():
    _, parts, public = advertised(invitation(threshold=3, n_sums=MAX_SUMS))
    assert (public.channels.shape, public.keys.shape, public.checks.shape) == ((3, 32), (3, 0, 32), (3, 0, 16))
    parts["a"].agree(public)


@pytest.mark.parametrize(("n_sums", "allowed"), [(MAX_SUMS, True), (MAX_SUMS + 1, False), (0, False)])
def test_an_agreement_is_for_1024_sums_at_most(n_sums, allowed):
    part, terms = parts_of()["a"], invitation(threshold=3, n_sums=n_sums)
    if allowed:
        part.advertise(terms)
    else:
        with pytest.raises(RefusedByPolicy, match="must be new and for 1 to"):
            part.advertise(terms)


def test_a_key_of_low_order_is_refused_by_name():
    terms, parts = invitation(threshold=3), parts_of()
    answers = {name: parts[name].advertise(terms) for name in SITES}
    signature = IDENTITIES["b"].sign(terms.signed_by("b", RUN, bytes(32), b"", b"", answers["b"].fields))
    answers["b"] = dataclasses.replace(
        answers["b"], channel=np.zeros(32, np.uint8), signature=np.frombuffer(signature, np.uint8)
    )
    with pytest.raises(IntegrityError, match=r"^b: the public key must be a valid X25519 key"):
        parts["a"].agree(_stacked(terms, answers))


@pytest.mark.parametrize("field", ["channels", "signatures"])
def test_forged_keys_are_refused_by_name(field):
    _, parts, public = advertised(invitation(threshold=3))
    values = getattr(public, field).copy()
    values[1, 0] ^= 1
    with pytest.raises(IntegrityError, match=r"^b: the keys must have a valid signature of this site"):
        parts["a"].agree(dataclasses.replace(public, **{field: values}))
    parts["a"].agree(public)


def test_a_site_that_copies_the_key_of_another_shares_no_stream_of_it():
    """Site b signs c's public key as its own. What a shares with b must differ from what a shares with c."""
    secret = bytes(range(32))
    chains = Chains("a", {"b": secret, "c": secret}, ("study", "0.1", "first"))
    one, other = chains.streams(0, ("a sum",))
    assert one[0] != other[0]


# Masks


def test_masks_of_two_sums_never_repeat():
    seen = []
    for agreement in ("first", "second"):
        _, parts = chained(FIVE, agreement)
        seen += [key for name in FIVE for number in range(30) for key, _ in streams_of(parts, name, number)]
    assert len(seen) == 2 * 30 * 5 * 4
    assert sorted(np.unique(seen, return_counts=True)[1].tolist()) == [2] * (len(seen) // 2)


def test_the_two_sites_of_a_pair_have_opposite_signs_and_the_same_key():
    _, parts = chained(FIVE)
    for number in range(3):
        streams = {name: keys_of(parts, name, number) for name in FIVE}
        for name in FIVE:
            for peer, (key, sign) in streams[name].items():
                assert streams[peer][name] == (key, -sign)


@pytest.mark.parametrize("changed", ["transcript", "step", "number"])
def test_a_site_that_is_asked_something_else_holds_masks_that_do_not_cancel(changed):
    _, parts = chained()
    given = {name: {"number": 1, "step": "answer", "transcript": TRANSCRIPT} for name in SITES}
    given["b"] |= {changed: 2 if changed == "number" else "other"}
    streams = {name: parts[name]._agreement.masks(**given[name]) for name in SITES}
    keys = {name: {key for key, _ in streams[name]} for name in SITES}
    assert keys["a"] & keys["c"]
    assert not keys["b"] & (keys["a"] | keys["c"])
    total = np.zeros(D, np.uint64)
    for name in SITES:
        add_streams(total, streams[name])
    assert stats.kstest(total / 2.0**64, "uniform").pvalue > 1e-7


def test_a_transcript_that_differed_in_one_sum_does_not_spoil_the_next_sum():
    _, parts = chained()
    for name in SITES:
        streams_of(parts, name, 0, transcript=name)
    total = np.zeros(D, np.uint64)
    for name in SITES:
        add_streams(total, streams_of(parts, name, 1))
    assert not total.any()


def test_a_site_that_refused_a_sum_takes_part_in_the_next(monkeypatch):
    monkeypatch.setattr(SiteTranscript, "note_refusal", lambda transcript: None)  # which would spoil the next sum
    answers = [mixed(), mixed(amount=1e12), mixed()]
    federation = begun(*answers)
    with pytest.raises(DisclosureRefused, match="site-1"):
        federation.sum(MixedSite.answer, Nothing())
    federation.engine._runtimes["site-1"].sessions.parts[federation.name, MixedSite].data = mixed()
    assert federation.sum(MixedSite.answer, Nothing()).n == 90
    assert federation.traffic.calls["advertise"] == 1


def test_a_sum_after_one_that_a_single_site_refused_is_unreadable():
    federation = begun(mixed(), mixed(amount=1e12), mixed())
    with pytest.raises(DisclosureRefused, match="site-1"):
        federation.sum(MixedSite.answer, Nothing())
    federation.engine._runtimes["site-1"].sessions.parts[federation.name, MixedSite].data = mixed()
    with pytest.raises(IntegrityError, match="receive the same requests"):
        federation.sum(MixedSite.answer, Nothing())


def test_a_mask_is_used_once_and_a_skipped_mask_never():
    _, parts = chained()
    protect(parts, call=call_of(7))
    for again in (7, 6, 0, -1, MAX_SUMS):
        with pytest.raises(RefusedByPolicy, match="masks must be agreed and used once"):
            protect(parts, call=call_of(again), answer=mixed(n=31))
    protect(parts, call=call_of(MAX_SUMS - 1))


# What is left at a site


def held_by(part):
    """Return all bytes, and all private keys, that can be reached from what a site holds of one session."""
    seen, waiting, found = {}, [part._agreement], []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(one)] = one
        found += [one] if isinstance(one, bytes | X25519PrivateKey) else []
        waiting += gc.get_referents(one)
    return found


def test_of_a_sum_nothing_is_held_after_it():
    _, parts = chained()
    before = set(parts["a"]._agreement._chains._links)
    assert before <= set(held_by(parts["a"]))
    for number in range(5):
        keys = {key for key, _ in streams_of(parts, "a", number)}
        after, held = set(parts["a"]._agreement._chains._links), set(held_by(parts["a"]))
        assert after <= held
        assert not after & before
        assert not held & (keys | before)
        before = after


def test_the_private_key_is_erased_as_soon_as_the_chains_begin():
    terms, parts, public = advertised(invitation(threshold=3))
    assert any(isinstance(one, X25519PrivateKey) for one in held_by(parts["a"]))
    parts["a"].agree(public)
    assert parts["a"]._agreement._channel is None
    assert not any(isinstance(one, X25519PrivateKey) for one in held_by(parts["a"]))
    assert terms.n_keys == 0


class Thief:
    """A coordinator that recorded masked values of a and c, and then gets hold of all that site a holds."""

    def __init__(self):
        self.terms, self.parts = chained()
        self.values = np.random.default_rng(3).integers(0, 2**40, D, np.uint64)
        self.masked = []
        for number in range(3):
            vector = self.values.copy()
            add_streams(vector, streams_of(self.parts, "a", number))
            self.masked.append(vector)

    def readings(self, number, steps=6):
        """Return what a's values come to under each of the next links, taken for those of an earlier sum."""
        links = self.parts["a"]._agreement._chains._links
        for _ in range(steps):
            chains = Chains("a", {"b": bytes(32), "c": bytes(32)}, ())
            chains._links = list(links)
            keys = chains.streams(0, self.terms.label(number, "answer", TRANSCRIPT))
            vector = self.masked[number].copy()
            add_streams(vector, [(key, -sign) for key, sign in keys])
            yield vector
            links = chains._links


@pytest.mark.parametrize("number", [0, 1, 2])
def test_everything_stored_at_a_site_does_not_unmask_its_earlier_sums(number):
    for vector in Thief().readings(number):
        assert stats.kstest(vector / 2.0**64, "uniform").pvalue > 1e-7


def test_if_the_chain_did_not_move_they_would_be_read(monkeypatch):
    """The attack itself works where links are kept, so its failure above means something."""
    monkeypatch.setattr(Chains, "_advance", lambda chains: None)
    thief = Thief()
    assert np.array_equal(next(thief.readings(1)), thief.values)
