"""Sites may be lost at any moment: a sum holds exactly those whose values arrived, or nothing can be read."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Lost
from multicentre.core.messages import Nothing
from multicentre.engines.faults import Faults
from multicentre.errors import IntegrityError, MessageError, QuorumLost
from multicentre.privacy.secure_sum import recoverable
from multicentre.privacy.secure_sum.fixed_point import decode_release, encode_release, plan_grids
from multicentre.privacy.secure_sum.messages import Masked, Recovered, Unmasked
from multicentre.privacy.secure_sum.unmasking import seal_answer
from support.engines import with_engine
from support.mixed_method import Mixed, MixedSite, begun, mixed
from support.toy_method import FedMean, Guess, MeanSite, federate

PHASES = ("advertise", "share", "accept", "answer", "unmask")
ASK = Guess(np.zeros(3), 0)


def answers(n_sites):
    rng = np.random.default_rng(n_sites)
    return [
        mixed(square=rng.normal(size=(1, 2)), n=int(rng.integers(10, 99)), amount=rng.normal()) for _ in range(n_sites)
    ]


def ring_sum(chosen, n_members):
    """Encode, add in the ring, decode: what a masked sum must equal bit for bit."""
    grids = plan_grids(Mixed, n_members)
    encoded = [encode_release(answer, grids, "")[0] for answer in chosen]
    layout = encode_release(chosen[0], grids, "")[1]
    return decode_release(Mixed, np.add.reduce(encoded), layout, grids)[0]


def assert_same(one, other):
    for (*_, left), (*_, right) in zip(one.items(), other.items(), strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


class Wiretap:
    """Wraps an engine and keeps what passes to the coordinator; may change it."""

    def __init__(self, engine, change=lambda step, site, outcome: outcome):
        self.engine, self.heard, self.change = engine, [], change
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        step = next(iter(calls.values())).step.name
        outcomes = self.engine.exchange(calls, time_limit_s)
        changed = {site: self.change(step, site, outcome) for site, outcome in outcomes.items()}
        self.heard += [(step, site, outcome) for site, outcome in changed.items()]
        return changed


def tapped(*told, change=lambda step, site, outcome: outcome, **options):
    federation = begun(*told, **options)
    return with_engine(federation, Wiretap(federation.engine, change))


def check_loss(n_sites, quorum, phase, n_lost, n_sums=2):
    told = answers(n_sites)
    lose = {f"site-{i}": phase for i in np.random.default_rng(n_lost).permutation(n_sites)[:n_lost].tolist()}
    kept = [answer for i, answer in enumerate(told) if f"site-{i}" not in lose]
    federation = tapped(*told, quorum=quorum, faults=Faults(lose=lose), n_sums=n_sums)
    before_masks = phase in PHASES[:3]
    n_members = len(kept) if before_masks else n_sites
    enough = len(kept) >= max(quorum, 2 if before_masks else n_sites // 2 + 1)
    if not enough:
        with pytest.raises(QuorumLost):
            federation.sum(MixedSite.answer, Nothing())
        steps = [step for step, *_ in federation.engine.heard]
        assert "recover_masks" not in steps
        assert phase == "unmask" or "unmask" not in steps
        return
    total = federation.sum(MixedSite.answer, Nothing())
    assert_same(total, ring_sum(told if phase in PHASES[4:] else kept, n_members))
    assert federation.sites == tuple(f"site-{i}" for i in range(n_sites) if f"site-{i}" not in lose)
    if len(kept) >= 2:
        assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(kept, len(kept)))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("n_sites", "quorum", "n_lost"),
    [
        *[(3, 1, 1), (3, 2, 1), (3, 1, 2)],
        *[(5, 3, 1), (5, 3, 2), (5, 2, 2), (5, 2, 3), (5, 4, 1), (5, 4, 2)],
        *[(10, 6, 4), (10, 1, 5)],
    ],
)
def test_a_sum_holds_exactly_those_whose_values_arrived(n_sites, quorum, n_lost, phase):
    check_loss(n_sites, quorum, phase, n_lost)


@pytest.mark.parametrize("phase", ["advertise", "agree", "answer"])
def test_of_two_sites_none_may_be_lost(phase):
    federation = tapped(*answers(2), quorum=1, faults=Faults(lose={"site-1": phase}))
    with pytest.raises(
        QuorumLost,
        match=r"a masked sum must have (at least 2 sites; got 1|answers of at least 2 sites; 1 of 2 answered)",
    ):
        federation.sum(MixedSite.answer, Nothing())
    assert {"unmask", "share"}.isdisjoint(step for step, *_ in federation.engine.heard)


@pytest.mark.parametrize("phase", ["advertise", "agree", "answer"])
def test_where_every_site_is_needed_a_loss_ends_the_sum(phase):
    federation = tapped(*answers(3), faults=Faults(lose={"site-1": phase}))
    with pytest.raises(QuorumLost):
        federation.sum(MixedSite.answer, Nothing())
    assert sum(isinstance(outcome, Masked) for *_, outcome in federation.engine.heard) == 2 * (phase == "answer")


@pytest.mark.slow
def test_fifty_sites():
    told = answers(50)
    lose = {"site-7": "answer", "site-9": "answer", "site-30": "unmask", "site-49": "recover_masks"}
    federation = tapped(*told, quorum=26, faults=Faults(lose=lose), n_sums=1)
    arrived = [answer for i, answer in enumerate(told) if i not in (7, 9)]
    assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(arrived, 50))


def test_sites_lost_one_after_another_at_different_phases():
    phases = ("share", "answer", "unmask", "recover_masks")
    lose = {f"site-{i}": phase for i, phase in enumerate(phases)}
    told = answers(11)
    federation = tapped(*told, quorum=6, faults=Faults(lose=lose))
    assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(told[2:], 10))
    assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(told[4:], 7))
    once = dict.fromkeys(("recover_masks",), 1)
    assert federation.traffic.calls == once | {"advertise": 3, "share": 3, "accept": 2, "answer": 2, "unmask": 2}


def heard(federation, step):
    return [outcome for name, _, outcome in federation.engine.heard if name == step and not isinstance(outcome, Lost)]


@pytest.mark.parametrize("phase", ["unmask"])
@pytest.mark.parametrize(("quorum", "enough"), [(3, True), (4, False)])
def test_of_the_sites_that_unmask_some_may_be_lost_before_they_help_with_the_others(phase, quorum, enough):
    told = answers(5)
    faults = Faults(lose={"site-1": phase, "site-4": "recover_masks"})
    federation = tapped(*told, quorum=quorum, faults=faults)
    if enough:
        assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(told, 5))
        assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum([told[0], told[2], told[3]], 3))
    else:
        with pytest.raises(QuorumLost, match=r"^site-4: 3 of 5 sites answered, the study needs 4"):
            federation.sum(MixedSite.answer, Nothing())
    assert len(heard(federation, "recover_masks")) == 3


@pytest.mark.parametrize("phase", ["unmask", "recover_masks"])
def test_with_fewer_sites_than_the_threshold_nothing_is_read(phase):
    """The study would go on with one site, the sum needs four of five: one may show the coordinator what it holds."""
    lose = {"site-1": phase, "site-4": "unmask" if phase == "recover_masks" else phase}
    policy = mc.Policy(colluding_sites=2)
    federation = tapped(*answers(5), quorum=1, policy=policy, faults=Faults(lose=lose))
    with pytest.raises(QuorumLost, match="a masked sum must have answers of at least 4 sites"):
        federation.sum(MixedSite.answer, Nothing())
    assert len(heard(federation, phase)) == 3
    assert len(heard(federation, "unmask")) == {"unmask": 3, "recover_masks": 4}[phase]


def test_values_that_come_too_late_are_not_in_the_sum():
    """The site masked its values and they were dropped: its key is recovered, the mask of its own is not."""
    told, late = answers(3), []

    def drop(step, site, outcome):
        if (step, site) != ("answer", "site-1"):
            return outcome
        late.append(outcome)
        return Lost(QuorumLost("too late", where=site))

    federation = tapped(*told, quorum=2, change=drop)
    assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum([told[0], told[2]], 3))
    assert isinstance(late[0], Masked)


def test_a_lost_site_has_the_others_agree_anew():
    federation = begun(*answers(4), quorum=3, n_sums=8, faults=Faults(lose={"site-3": 7}))
    for _ in range(4):
        federation.sum(MixedSite.answer, Nothing())
    assert federation.traffic.calls["advertise"] == 2
    assert federation.sites == ("site-0", "site-1", "site-2")


def test_a_site_lost_between_two_sums_has_the_others_agree_anew():
    federation = federate(secure_sum=True, quorum=2, faults=Faults(lose={"site-1": 5})).begin(MeanSite)
    assert federation.sum(MeanSite.residuals, ASK).n == 93
    assert len(federation.ask(MeanSite.size, ASK)) == 2
    assert federation.sum(MeanSite.residuals, ASK).n == 62


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5, 6, 8, 11])
def test_an_interrupted_run_resumes_bit_for_bit(tmp_path, at):
    def fit(**options):
        with federate(secure_sum=True, quorum=2, **options) as federation:
            return FedMean().fit(federation).mean_.tobytes()

    with pytest.raises(KeyboardInterrupt):
        fit(folder=tmp_path, faults=Faults(interrupt_at=at))
    assert fit(folder=tmp_path) == fit()


def spoiled(kind, field, by="site-0"):
    def change(step, site, outcome):
        if type(outcome) is kind and site == by:
            values = getattr(outcome, field).copy()
            values[..., 0] ^= 1
            return dataclasses.replace(outcome, **{field: values})
        return outcome

    return change


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("seed", "site-0"),
        ("shares", "site-2"),
    ],
)
def test_a_wrong_seed_or_share_in_an_answer_is_found_and_nothing_is_read(monkeypatch, field, named):
    def lying(content, position, *others):
        wrong = getattr(content, field).copy()
        wrong[..., 0] ^= 1
        return seal_answer(
            dataclasses.replace(content, **{field: wrong}) if position == 0 else content, position, *others
        )

    monkeypatch.setattr(recoverable, "seal_answer", lying)
    federation = tapped(*answers(3), quorum=2, faults=Faults(lose={"site-2": "answer"}))
    with pytest.raises(IntegrityError, match=rf"^{named}: the seed of this site's masks, or its shares, must match"):
        federation.sum(MixedSite.answer, Nothing())


def test_a_wrong_share_of_a_self_mask_is_found_and_nothing_is_read():
    faults = Faults(lose={"site-2": "unmask"})
    federation = tapped(*answers(3), quorum=2, change=spoiled(Recovered, "shares"), faults=faults)
    with pytest.raises(IntegrityError, match=r"^site-2: the seed of this site's masks, or its shares, must match"):
        federation.sum(MixedSite.answer, Nothing())


@pytest.mark.parametrize("field", ["pads", "shares", "sealed"])
def test_a_changed_answer_is_found_and_nothing_is_read(field):
    def change(step, site, outcome):
        wrong = type(outcome) is Unmasked and site == "site-0"
        return dataclasses.replace(outcome, **{field: getattr(outcome, field) ^ 1}) if wrong else outcome

    federation = tapped(*answers(3), quorum=2, change=change, faults=Faults(lose={"site-2": "answer"}))
    with pytest.raises(IntegrityError, match=r"^site-[01]: at least 2 sites must have received the same list"):
        federation.sum(MixedSite.answer, Nothing())


def test_wrong_pads_of_one_site_are_ignored_if_enough_others_answer():
    federation = tapped(*answers(3), quorum=2, change=spoiled(Unmasked, "pads"))
    assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(answers(3), 3))


def test_fewer_shares_than_lost_sites_are_refused():
    def change(step, site, outcome):
        return dataclasses.replace(outcome, shares=outcome.shares[:0]) if type(outcome) is Recovered else outcome

    federation = tapped(*answers(3), quorum=2, change=change, faults=Faults(lose={"site-2": "unmask"}))
    with pytest.raises(MessageError, match="there must be 1 shares of 16 bytes, one per lost site"):
        federation.sum(MixedSite.answer, Nothing())


@pytest.mark.parametrize(
    ("step", "field", "what"),
    [
        ("advertise", "keys", r"^site-0, Advertisement\.checks: side b must be 1"),
        ("share", "boxes", r"^site-0, share: boxes must have shape \(3, 64\)"),
        ("unmask", "pads", r"^site-0, Unmasked\.pads: side n must be 3"),
    ],
)
def test_answers_of_the_wrong_shape_are_refused(step, field, what):
    def change(name, site, outcome):
        if name == step and site == "site-0":
            return dataclasses.replace(outcome, **{field: getattr(outcome, field)[:1]})
        return outcome

    with pytest.raises(MessageError, match=what):
        tapped(*answers(3), quorum=2, change=change).sum(MixedSite.answer, Nothing())


@pytest.mark.parametrize("n_lost", [1, 2])
def test_colluding_sites_in_a_policy_raise_the_threshold(n_lost):
    faults = Faults(lose={f"site-{i}": "answer" for i in range(n_lost)})
    federation = tapped(*answers(5), quorum=2, policy=mc.Policy(colluding_sites=2), faults=faults)
    if n_lost == 1:
        assert_same(federation.sum(MixedSite.answer, Nothing()), ring_sum(answers(5)[1:], 5))
    else:
        with pytest.raises(QuorumLost, match="3 of 5 answered, and the sum cannot be read"):
            federation.sum(MixedSite.answer, Nothing())
