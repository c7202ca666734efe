"""A masked sum equals the plain one; keys are signed, fresh, serve once, and nobody else's will do."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Mask
from multicentre.core.messages import Nothing, count, number
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
    RefusedByPolicy,
)
from multicentre.privacy.secure_sum.fixed_point import encode_release, plan_grids
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.mask import add_streams
from multicentre.privacy.secure_sum.messages import Advertisements, BoxesFor
from multicentre.privacy.secure_sum.rounds import MaskedSummation, _stacked
from multicentre.privacy.secure_sum.site import MaskingKeys, MaskingSeal
from support.engines import runtimes_of
from support.masking_parts import (
    FIVE,
    IDENTITIES,
    PUBLIC,
    RUN,
    SITES,
    TRANSCRIPT,
    advertised,
    agreed,
    asked,
    chained,
    invitation,
    masking_keys,
    parts_of,
    protect,
    shared,
    unmask,
)
from support.mixed_method import Mixed, MixedSite, begun, masked_sum, mixed
from support.toy_method import Guess, MeanSite, federate, toy_sites

ASK = Guess(np.zeros(3), 0)


# What comes out


@pytest.mark.parametrize("quorum", ["all", 2])
@pytest.mark.parametrize("strict", [False, True])
def test_every_kind_of_field_comes_back_summed(strict, quorum):
    other = mixed(n=12, views={"c": np.empty(0), "a|b": np.array([0.0, 7.0])})
    total = masked_sum(mixed(), other, mixed(n=0), strict=strict, quorum=quorum)
    assert total.square.tolist() == [[4.5, -6.75]]
    assert total.long.tolist() == [3 * 2**55 + 3, -21]
    assert (total.short.tolist(), total.short.dtype) == ([9], np.dtype("i4"))
    assert (float(total.single), total.single.shape, total.single.dtype) == (1.5, (), np.dtype("f4"))
    assert total.views["a|b"].tolist() == [2e5, 5.0]
    assert total.views["c"].shape == (0,)
    assert (total.n, type(total.n), total.amount, total.perhaps) == (42, int, -0.375, None)


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), 1e12])
def test_a_site_refuses_a_value_beyond_its_declared_range(amount):
    with pytest.raises(
        DisclosureRefused, match=r"^site-1, answer, Mixed\.amount: .*a value is beyond the declared range of 1e\+10"
    ):
        masked_sum(mixed(), mixed(amount=amount))


@pytest.mark.parametrize(
    "other",
    [{"views": {"c": np.empty(0)}}, {"square": np.ones((1, 3))}, {"views": {"a|b": np.ones(1), "c": np.ones(1)}}],
)
def test_summands_of_different_shape_are_refused(other):
    with pytest.raises(ConfigurationError, match="the answers of all sites must have the same shapes"):
        masked_sum(mixed(), mixed(**other))


def test_one_site_has_no_other_to_mask_its_sums_with():
    alone = federate({"lyon": mixed()}, secure_sum=True)
    assert alone.protection == "unmasked"
    with pytest.raises(ConfigurationError, match="at least 2 sites"):
        MaskedSummation().prepare(MixedSite, 1, None)


def test_a_range_that_does_not_fit_is_said_before_anything_is_asked():
    federation = federate({f"site-{i}": mixed() for i in range(130)}, secure_sum=True)
    with pytest.raises(ConfigurationError, match=r"^Mixed\.long: the sum over 130 sites must fit 64 bits"):
        federation.begin(MixedSite)
    assert not federation.traffic.calls


@pytest.mark.slow
def test_a_batch_of_sums_shares_an_agreement_and_the_next_is_three_times_all_before():
    federation = begun(mixed(), mixed(), mixed(), n_sums=3, quorum=2)
    n_agreements = []
    for _ in range(3 + 9 + 36 + 1):
        assert federation.sum(MixedSite.answer, Nothing()).n == 90
        n_agreements.append(federation.traffic.calls["advertise"])
    assert [n_agreements.count(number) for number in (1, 2, 3, 4)] == [3, 9, 36, 1]
    assert federation.traffic.calls["accept"] == 4


@pytest.mark.slow
def test_a_batch_holds_256_sums_at_most():
    federation = begun(mixed(), mixed(), mixed(), n_sums=100, quorum=2)
    for _ in range(101):
        federation.sum(MixedSite.answer, Nothing())
    assert federation.consortium.summation._agreed[federation].terms.n_sums == 256


def test_after_a_loss_the_next_batch_goes_by_the_sums_there_were():
    federation = begun(*[mixed()] * 4, n_sums=4, quorum=2, faults=Faults(lose={"site-3": 7}))
    for _ in range(4):
        federation.sum(MixedSite.answer, Nothing())
    assert federation.sites == ("site-0", "site-1", "site-2")
    assert federation.consortium.summation._agreed[federation].terms.n_sums == 3 * 3


def test_what_recovery_costs():
    federation = begun(mixed(), mixed(), mixed(), n_sums=3, quorum=2)
    for _ in range(4):
        assert federation.sum(MixedSite.answer, Nothing()).n == 90
    once, each = dict.fromkeys(("advertise", "share", "accept"), 2), dict.fromkeys(("answer", "unmask"), 4)
    assert federation.traffic.calls == once | each
    assert federation.traffic.bytes_from_sites["answer"] == 4 * 3 * (11 * 8 + 2 * 8)


def test_a_crowd_too_small_for_the_policy_is_refused():
    policy = mc.Policy(min_sites_in_sum=3)
    with pytest.raises(
        RefusedByPolicy,
        match=r"\(site-0, site-1\), min_sites_in_sum: the site's policy requires sums over at least 3 sites; got 2",
    ):
        masked_sum(mixed(), mixed(), policy=policy)
    with pytest.raises(RefusedByPolicy, match="the site's policy requires sums over at least 3 sites; got 2"):
        masked_sum(mixed(), mixed(), mixed(), policy=policy, quorum=2)
    assert masked_sum(mixed(), mixed(), mixed(), policy=policy).n == 90


def test_secure_sums_only_lets_sums_pass_and_nothing_else():
    federation = federate(secure_sum=True, policy=mc.Policy(secure_sums_only=True)).begin(MeanSite)
    assert federation.sum(MeanSite.residuals, ASK).n == 93
    with pytest.raises(RefusedByPolicy, match="answers of this site must be masked sums"):
        federation.ask(MeanSite.size, ASK)
    plain = federate(secure_sum=False, policy=mc.Policy(secure_sums_only=True)).begin(MeanSite)
    with pytest.raises(RefusedByPolicy, match="answers of this site must be masked sums"):
        plain.sum(MeanSite.residuals, ASK)


# Between sites, message by message


def tampered(message, field, place, by=1):
    values = getattr(message, field).copy()
    values[place] ^= by
    return dataclasses.replace(message, **{field: values})


@pytest.mark.parametrize(
    ("field", "place"), [("channels", (1, 0)), ("keys", (1, 0, 0)), ("checks", (1, 1, 3)), ("signatures", (1, 63))]
)
def test_forged_keys_are_refused_by_name(field, place):
    _, parts, public = advertised()
    with pytest.raises(IntegrityError, match=r"^b: the keys must have a valid signature of this site"):
        parts["a"].share(tampered(public, field, place))
    parts["a"].share(public)


def test_a_missing_signature_is_refused():
    _, parts, public = advertised()
    bare = dataclasses.replace(public, signatures=np.zeros_like(public.signatures))
    with pytest.raises(IntegrityError, match=r"^b: the keys"):
        parts["a"].share(bare)


def test_keys_of_an_impostor_are_refused():
    terms, parts = invitation(), parts_of()
    parts["b"] = masking_keys("b", Identity.generate())
    _, parts, public = advertised(terms, parts)
    with pytest.raises(IntegrityError, match=r"^b: the keys"):
        parts["a"].share(public)


def test_keys_of_two_sites_cannot_be_swapped():
    _, parts, public = advertised()
    turn = [0, 2, 1]
    swapped = Advertisements(
        "first", public.channels[turn], public.keys[turn], public.checks[turn], public.signatures[turn], public.fields
    )
    with pytest.raises(IntegrityError, match=r"^b: the keys"):
        parts["a"].share(swapped)


@pytest.mark.parametrize(
    "told",
    [{"threshold": 4}, {"sites": ("a", "c", "b", "d", "e")}, {"study": "other"}, {"session": "0.2"}],
)
def test_sites_that_were_told_different_terms_do_not_agree(told):
    terms, parts = invitation(FIVE, threshold=3), parts_of(FIVE)
    answers = {name: parts[name].advertise(terms) for name in FIVE}
    answers["b"] = masking_keys("b").advertise(dataclasses.replace(terms, **told))
    with pytest.raises(IntegrityError, match=r"^b: the keys"):
        parts["a"].share(_stacked(terms, answers))


def test_keys_of_an_earlier_agreement_are_refused():
    _, parts, old = advertised()
    _, parts, new = advertised(invitation(agreement="second"), parts)
    mixed_up = dataclasses.replace(new, keys=np.stack([new.keys[0], old.keys[1], new.keys[2]]))
    with pytest.raises(IntegrityError, match=r"^b: the keys"):
        parts["a"].share(mixed_up)
    with pytest.raises(ConfigurationError, match="must belong to the current key agreement"):
        parts["a"].share(old)


def test_a_key_of_low_order_is_refused():
    terms, parts = invitation(FIVE, threshold=3), parts_of(FIVE)
    answers = {name: parts[name].advertise(terms) for name in FIVE}
    keys = np.zeros_like(answers["b"].keys)
    parts_of_b = (answers["b"].channel.tobytes(), keys.tobytes(), answers["b"].checks.tobytes(), answers["b"].fields)
    content = terms.signed_by("b", RUN, *parts_of_b)
    signature = np.frombuffer(IDENTITIES["b"].sign(content), np.uint8)
    answers["b"] = dataclasses.replace(answers["b"], keys=keys, signature=signature)
    public = _stacked(terms, answers)
    boxes = np.stack([parts[name].share(public).boxes for name in FIVE])
    parts["a"].accept(BoxesFor("first", boxes[:, 0]))
    with pytest.raises(IntegrityError, match=r"^b: the public key must be a valid X25519 key"):
        protect(parts, call=asked(peers=FIVE, mask=Mask("first", 0, 3)))


@pytest.mark.parametrize("shape", [(2, 2, 32), (3, 1, 32), (4, 2, 32)])
def test_as_many_keys_as_agreed_are_needed(shape):
    _, parts, public = advertised()
    with pytest.raises(MessageError, match="there must be 2 keys and one list of fields for each of 3 sites"):
        parts["a"].share(dataclasses.replace(public, keys=np.zeros(shape, np.uint8)))


def test_keys_are_taken_in_once():
    _, parts, public = advertised()
    parts["a"].share(public)
    with pytest.raises(ConfigurationError, match="agreed before"):
        parts["a"].share(public)


def test_a_stranger_is_refused_by_name():
    known = {name: PUBLIC[name] for name in "ab"}
    part = masking_keys("a", peers=known)
    with pytest.raises(RefusedByPolicy, match=r"^c: every site must have a registered identity at this site"):
        part.advertise(invitation())


@pytest.mark.parametrize(
    "terms",
    [{"sites": ("b", "c")}, {"sites": ("a", "a", "b")}, {"sites": ("a", "b", "b")}, {"n_sums": 0}, {"n_sums": 1025}],
)
def test_an_invitation_that_makes_no_sense_is_refused(terms):
    with pytest.raises(RefusedByPolicy):
        parts_of()["a"].advertise(invitation(**terms))


@pytest.mark.parametrize(
    ("n_sites", "threshold", "n_colluding", "allowed"),
    [
        (4, 2, 0, False),
        (4, 3, 0, True),
        (5, 3, 0, True),
        (5, 3, 1, False),
        (5, 4, 1, True),
        (5, 4, 3, False),
        (5, 5, 4, True),
        (3, 4, 0, False),
        (3, 1, 0, False),
        (2, 2, 0, True),
        (2, 2, 1, True),
    ],
)
def test_a_threshold_that_two_parts_of_the_sites_could_meet_is_refused(n_sites, threshold, n_colluding, allowed):
    terms = invitation("abcde"[:n_sites], threshold, n_colluding=n_colluding)
    part = parts_of(n_colluding=n_colluding)["a"]
    if allowed:
        assert part.advertise(terms).keys.shape == (2 * (threshold < n_sites), 32)
    else:
        with pytest.raises(RefusedByPolicy, match=r"min_sites_in_sum|two groups of sites cannot unmask one sum"):
            part.advertise(terms)


def test_terms_that_allow_for_fewer_colluding_sites_than_the_policy_says_are_refused():
    with pytest.raises(RefusedByPolicy, match="the site's policy requires masks against 1 colluding sites; got 0"):
        parts_of(n_colluding=1)["a"].advertise(invitation("abcde", 4))
    assert parts_of(n_colluding=1)["a"].advertise(invitation("abcde", 4, n_colluding=1)).keys.shape == (2, 32)


def test_sites_that_were_asked_different_things_hold_masks_that_do_not_cancel():
    _, parts = agreed()
    streams = [{key for key, _ in parts[name]._agreement.masks(0, "answer", name)} for name in SITES]
    assert not streams[0] & streams[1]


def test_an_agreement_is_made_once():
    _, parts, _ = advertised()
    with pytest.raises(RefusedByPolicy, match="must be new"):
        parts["a"].advertise(invitation())


@pytest.mark.parametrize("place", [(1, 0), (2, 40), (1, -1)])
def test_changed_shares_are_refused_by_name(place):
    _, parts, _, boxes = shared()
    with pytest.raises(IntegrityError, match=rf"^{SITES[place[0]]}: the shares of this site must arrive unchanged"):
        parts["a"].accept(tampered(boxes["a"], "boxes", place))


def test_shares_cannot_be_swapped_between_senders_receivers_or_agreements():
    _, parts, _, boxes = shared()
    for wrong in (
        boxes["a"].boxes[[0, 2, 1]],
        np.stack([boxes["a"].boxes[0], boxes["c"].boxes[1], boxes["a"].boxes[2]]),
    ):
        with pytest.raises(IntegrityError, match=r"^b: the shares"):
            parts["a"].accept(BoxesFor("first", wrong))
    _, parts, _, others = shared(invitation(agreement="second"), parts)
    with pytest.raises(IntegrityError, match=r"^b: the shares"):
        parts["a"].accept(BoxesFor("second", boxes["a"].boxes))
    parts["a"].accept(others["a"])


def test_a_site_is_not_given_its_own_box_as_a_peers():
    _, parts, public = advertised()
    own = parts["a"].share(public).boxes
    with pytest.raises(IntegrityError, match=r"^b: the shares"):
        parts["a"].accept(BoxesFor("first", own))


def test_shares_are_taken_in_once_and_as_many_as_agreed():
    _, parts, _, boxes = shared()
    with pytest.raises(MessageError, match=r"boxes must have shape \(3, 64\)"):
        parts["a"].accept(BoxesFor("first", boxes["a"].boxes[:2]))
    parts["a"].accept(boxes["a"])
    with pytest.raises(ConfigurationError, match="shares must arrive once, after the keys"):
        parts["a"].accept(boxes["a"])


@pytest.mark.parametrize("threshold", [2, 3])
def test_sites_that_need_shares_do_not_agree_without_them(threshold):
    terms, parts, public = advertised(invitation(threshold=threshold))
    wrong = parts["a"].agree if terms.recovers else parts["a"].share
    with pytest.raises(ConfigurationError, match="must belong to the current key agreement"):
        wrong(public)


def test_the_streams_cancel_in_the_sum_over_all():
    _, parts = chained()
    grids, call = plan_grids(Mixed, 3), asked(mask=Mask("first", 1, 3))
    masked = [protect(parts, name, call) for name in SITES]
    total = np.add.reduce([answer.vector for answer in masked])
    assert total.tobytes() == (encode_release(mixed(), grids, "")[0] * np.uint64(3)).tobytes()
    assert len({answer.vector.tobytes() for answer in masked}) == 3


@dataclass(frozen=True)
class Noisy(Release):
    """A release whose noise is wider than its range."""

    share: float = number("x", bound=1.0, sensitivity=1.0)


class NoisySite(SitePart):
    """Gives half of the largest value, between noise."""

    method = "noisy"

    @step(releases=Noisy, summed=True)
    def give(self, request: Nothing) -> Noisy:
        """Give it."""
        return Noisy(0.5, patients=30)


@pytest.mark.slow
def test_noise_has_room_in_every_sum(tmp_path):
    plan = Plan((Planned(NoisySite.give, Noise("gaussian", {"share": 3.0})),))
    sites = dict.fromkeys(("site-0", "site-1", "site-2"), ())
    totals = []
    for number_, quorum in enumerate(("all", 2) * 4):
        policy = mc.Policy(epsilon=100.0, delta=1e-5, account=str(tmp_path / f"account-{number_}.jsonl"))
        options = {"quorum": quorum, "policy": policy, "one_row_per_patient": True}
        federation = federate(sites, **options).begin(NoisySite, plan=plan)
        totals.append(federation.sum(NoisySite.give, Nothing()).share)
    assert all(0.0 < abs(total - 1.5) < 60.0 for total in totals)
    assert max(totals) - min(totals) > 0.8  # an eighth of what eight draws span; a sum read on another grid has a 64th


def test_a_plan_whose_noise_does_not_fit_is_said_before_anything_is_asked():
    @dataclass(frozen=True)
    class Wide(Release):
        n: int = count("x", bound=10.0, sensitivity=1.0)

    class WideSite(SitePart):
        method = "wide"

        @step(releases=Wide, summed=True)
        def give(self, request: Nothing) -> Wide:
            """Give it."""

    plan = Plan((Planned(WideSite.give, Noise("gaussian", {"n": 1e18})),))
    MaskedSummation().prepare(WideSite, 3, None)
    with pytest.raises(ConfigurationError, match=r"^Wide\.n: the sum over 3 sites must fit 64 bits"):
        MaskedSummation().prepare(WideSite, 3, plan)


def test_streams_differ_by_sum_step_site_and_agreement():
    seen = []
    for agreement in ("first", "second"):
        _, parts = agreed(invitation(agreement=agreement))
        for name in SITES:
            seen += [key for n in range(2) for key, _ in parts[name]._agreement.masks(n, "answer", TRANSCRIPT)]
    pairs, own = 2 * 2 * 3, 2 * 2 * 3
    assert len(seen) == 2 * pairs + own
    assert len(set(seen)) == pairs + own


def test_a_step_of_another_name_has_other_streams():
    terms, parts = agreed()
    assert terms.label(0, "answer", TRANSCRIPT) != terms.label(0, "other", TRANSCRIPT)
    ours = parts["a"]._agreement.masks(0, "answer", TRANSCRIPT)
    theirs = parts["b"]._agreement.masks(0, "other", TRANSCRIPT)
    assert not {key for key, _ in ours} & {key for key, _ in theirs}


@pytest.mark.parametrize("length", [0, 1, 2**15 - 1, 2**15, 2**15 + 1, 70_000])
def test_a_stream_is_the_same_however_long_the_vector(length):
    vector, longer = np.zeros(length, np.uint64), np.zeros(70_000, np.uint64)
    for values in (vector, longer):
        add_streams(values, [(b"k" * 32, 1), (b"l" * 32, -1)])
    assert vector.tobytes() == longer[:length].tobytes()
    assert len(np.unique(longer)) == 70_000


def test_a_mask_is_used_once():
    _, parts = agreed(invitation(n_sums=3))
    protect(parts, call=asked(1))
    for again in (1, 0, 3, -1, 2**40):
        with pytest.raises(RefusedByPolicy, match=r"^answer: masks must be agreed and used once"):
            protect(parts, call=asked(again), answer=mixed(n=31))
    protect(parts, call=asked(2))


def test_the_keys_of_sums_that_a_site_left_out_are_erased():
    _, parts = agreed(invitation(n_sums=4))
    protect(parts, call=asked(2))
    one = parts["a"]._agreement
    assert [bool(seed) for seed in one._key_seeds] == [False, False, False, True]
    assert list(one._key_pairs) == [3]


def test_the_key_that_boxes_are_read_with_is_erased():
    _, parts, _, boxes = shared()
    assert parts["a"]._agreement._channel is None
    assert len(parts["a"]._agreement._secrets) == 2
    parts["a"].accept(boxes["a"])
    assert not parts["a"]._agreement._secrets


def test_a_summand_that_was_refused_has_spent_its_masks():
    _, parts = agreed()
    with pytest.raises(DisclosureRefused):
        protect(parts, answer=mixed(amount=1e12))
    with pytest.raises(RefusedByPolicy, match="used before"):
        protect(parts)


@pytest.mark.parametrize("peers", [(), ("a",), ("a", "b"), ("a", "b", "c", "d"), ("a", "b", "c", "c"), ("b", "c")])
def test_a_sum_over_other_sites_than_agreed_is_refused(peers):
    with pytest.raises(ConfigurationError, match="keys must be agreed"):
        protect(agreed()[1], call=asked(peers=peers))


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": None},
        {"mask": Mask("second", 0, 2)},
        {"mask": Mask("first", 0, 3)},
        {"session": "0.2"},
        {"study": "other"},
    ],
)
def test_a_call_on_other_terms_is_refused(changes):
    with pytest.raises(ConfigurationError, match="keys must be agreed"):
        protect(agreed()[1], call=asked(**changes))


def test_nothing_leaves_unmasked_before_all_is_agreed():
    for parts in (parts_of(), advertised()[1], shared()[1]):
        with pytest.raises(ConfigurationError, match="keys must be agreed"):
            protect(parts)


def test_earlier_keys_are_forgotten():
    _, parts = agreed()
    _, parts = agreed(invitation(agreement="second"), parts)
    with pytest.raises(ConfigurationError, match="keys must be agreed"):
        protect(parts)


def test_sums_that_need_every_site_are_never_unmasked():
    _, parts = chained()
    protect(parts, call=asked(mask=Mask("first", 0, 3)))
    with pytest.raises(ConfigurationError, match="must belong to the current key agreement"):
        unmask(parts, "a", SITES)


# Identities


def test_an_identity_survives_its_file(tmp_path):
    lyon = Identity.generate()
    lyon.write(tmp_path / "identity")
    again = Identity.read(tmp_path / "identity")
    assert again.public == lyon.public
    assert verify(lyon.public, again.sign(b"x"), b"x")
    assert (tmp_path / "identity").stat().st_mode & 0o777 == 0o600
    assert not verify(lyon.public, Identity.generate().sign(b"x"), b"x")
    assert not verify(lyon.public, lyon.sign(b"x"), b"y")
    assert not verify(b"short", lyon.sign(b"x"), b"x")


@pytest.mark.parametrize("public", [b"", bytes(32), bytes(31)])
def test_an_identity_that_cannot_be_is_refused(public):
    with pytest.raises(ConfigurationError, match=r"^nice: an identity must be the public half"):
        MaskingSeal(Identity.generate(), {"nice": public})


def secrets_of(federation):
    agreements = [
        part._agreement
        for runtime in runtimes_of(federation).values()
        for part in runtime.sessions.parts.values()
        if isinstance(part, MaskingKeys)
    ]
    return [seed for one in agreements for seed in [*one._key_seeds, one._mask_seed]]


def test_keys_are_never_stored(tmp_path):
    federation = federate(toy_sites(), secure_sum=True, quorum=2, folder=tmp_path).begin(MeanSite)
    federation.sum(MeanSite.residuals, ASK)
    secrets = [seed for seed in secrets_of(federation) if seed]
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(secrets) == 3 * (15 + 1)
    assert written
    assert not any(secret in written or secret.hex().encode() in written for secret in secrets)


def test_the_key_of_a_sum_is_forgotten_with_it():
    federation = begun(mixed(), mixed(), mixed(), quorum=2)
    for left in (1, 0):
        federation.sum(MixedSite.answer, Nothing())
        assert len([seed for seed in secrets_of(federation) if seed]) == 3 * (left + 1)


@pytest.mark.parametrize("lose", [{"site-2": "answer"}, {"site-2": "unmask"}])
def test_all_seeds_of_an_agreement_are_forgotten_with_the_loss_of_a_site(lose):
    federation = begun(mixed(), mixed(), mixed(), quorum=2, faults=Faults(lose=lose))
    federation.sum(MixedSite.answer, Nothing())
    kept = runtimes_of(federation)
    agreements = [kept[site].sessions.parts[federation.name, MaskingKeys]._agreement for site in federation.sites]
    assert {seed for one in agreements for seed in [*one._key_seeds, one._mask_seed]} == {b""}


def test_an_identity_prints_its_public_half_alone():
    lyon = Identity.generate()
    assert repr(lyon) == f"Identity({lyon.public.hex()})"
