"""Checks, sums and memory of a site, and that it takes up a fit again."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, MulticentreError
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.site import HazardSite
from support.hazard_toy import federate, parts_of, simulate

DATA = simulate(300)
NO_TREE = messages.Trees.none()


def i4(*values):
    return np.array(values, dtype=np.int32)


LEAF = messages.Trees(i4(0), i4(-1), i4(-1), np.array([0.5]))
STUMP = messages.Trees(i4(0), i4(0, -1, -1), i4(3, -1, -1), np.array([0.0, 0.5, -0.5]))


@pytest.fixture(scope="module")
def agreed():
    federation = federate(DATA, parts_of(DATA, 2, "random"))
    return agree(federation.begin(HazardSite), HazardSite, Needs(n_times=6, n_bins=8), "mean")[0]


@pytest.fixture
def part(agreed):
    site = HazardSite("lyon", DATA)
    site.agree(agreed)
    site.begin(messages.InitialState(np.full(6, -2.0), 0, 1.0, 0, 0))
    return site


def ask(number=0, growing=LEAF, last=NO_TREE, wanted=(0,)):
    """Return a request with the growing tree number `number`, of which the site may lack the last finished one."""
    return messages.Level.of(number - len(last.roots), last, growing, i4(*wanted))


def test_every_column_holds_the_same_sums(part):
    answer = part.sum_slopes(ask())
    first = np.concatenate([part.agreed.first[:-1] + np.arange(4), [part.agreed.n_bins.sum()]])
    columns = [answer.slopes[0, a:b].sum() for a, b in zip(first, [*first[1:], None], strict=True)]
    assert len(set(columns)) == 1
    counts = part.count_intervals(Nothing())
    assert answer.losses[0, 1] == counts.leaving.sum()
    hazard = 1 / (1 + np.exp(2.0))
    at_risk = np.cumsum(counts.leaving[::-1])[::-1]
    np.testing.assert_allclose(answer.slopes[0, -6:] / 2**30, hazard * at_risk - counts.events, atol=1e-6)


def test_a_repeated_ask_changes_nothing(part):
    part.sum_slopes(ask())
    part.sum_slopes(ask(growing=STUMP, wanted=(1,)))
    one, two = (part.sum_slopes(ask(1, last=STUMP)) for _ in range(2))
    assert np.array_equal(one.slopes, two.slopes)
    assert len(part.memory.roots) == 1


def test_a_site_goes_on_from_what_it_remembers(part, agreed):
    part.sum_slopes(ask(growing=STUMP, wanted=(1,)))
    for number, last in enumerate([STUMP, LEAF], 1):
        answer = part.sum_slopes(ask(number, last=last))
    again = HazardSite("lyon", DATA)
    again.state = decode(messages.Memory, encode(dataclasses.replace(part.state)))
    assert np.array_equal(again.sum_slopes(ask(2)).slopes, answer.slopes)
    again.state, again._grown = _fresh(agreed).state, None
    assert np.array_equal(again.sum_slopes(ask()).slopes, _fresh(agreed).sum_slopes(ask()).slopes)


def _fresh(agreed):
    site = HazardSite("nice", DATA)
    site.agree(agreed)
    site.begin(messages.InitialState(np.full(6, -2.0), 0, 1.0, 0, 0))
    return site


WRONG = {
    "no leaf wanted": ask(wanted=()),
    "an inner node wanted": ask(growing=STUMP, wanted=(0,)),
    "a leaf wanted twice": ask(growing=STUMP, wanted=(1, 1)),
    "a node that is not": ask(wanted=(1,)),
    "a node below none": ask(wanted=(-1,)),
    "a column that is not": ask(growing=dataclasses.replace(STUMP, column=i4(9, -1, -1)), wanted=(1,)),
    "a bin that is not": ask(growing=dataclasses.replace(STUMP, cut=i4(99, -1, -1)), wanted=(1,)),
    "no child": ask(growing=messages.Trees(i4(0), i4(0), i4(3), np.zeros(1))),
    "children of no split": ask(growing=dataclasses.replace(STUMP, column=i4(-1, -1, -1)), wanted=(1,)),
    "a huge leaf": ask(1, last=dataclasses.replace(STUMP, value=np.array([0.0, 1e9, 0.0]))),
    "no tree at all": ask(growing=NO_TREE),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_ask_that_makes_no_sense_is_refused(part, wrong):
    with pytest.raises(MessageError):
        part.sum_slopes(WRONG[wrong])
    assert len(part.memory.roots) == 0


def test_a_skipped_tree_and_a_fit_that_did_not_begin_are_refused(part, agreed):
    with pytest.raises(ConfigurationError):
        part.sum_slopes(ask(2, last=STUMP))
    site = HazardSite("lyon", DATA)
    with pytest.raises(MulticentreError):
        site.sum_slopes(ask())
    site.agree(agreed)
    with pytest.raises(ConfigurationError):
        site.sum_slopes(ask())


def test_a_fit_begins_once(part):
    part.begin(messages.InitialState(np.full(6, -2.0), 0, 1.0, 0, 0))
    for other in (np.full(6, -1.0), np.full(5, -2.0), np.full(6, 1e4)):
        with pytest.raises((ConfigurationError, MessageError)):
            part.begin(messages.InitialState(other, 0, 1.0, 0, 0))


def begin(part, held_out, n_folds=3, seed=0):
    return part.begin(messages.InitialState(np.full(6, -2.0), seed, 1.0, n_folds, held_out))


def test_folds_are_held_out_in_order_and_each_pass_begins_without_trees(agreed):
    site = HazardSite("nice", DATA)
    site.agree(agreed)
    seen = []
    for held_out in (1, 2, 3, 0):
        begin(site, held_out)
        assert len(site.memory.roots) == 0
        seen.append(site.sum_slopes(ask()).losses[:, 1])
        site.sum_slopes(ask(1, last=STUMP))
        begin(site, held_out)
        assert len(site.memory.roots) == 1, "a repeated request changes nothing"
    everyone = seen[-1][0]
    assert [training + held_out for training, held_out in seen] == [everyone] * 4
    assert sum(held_out for _, held_out in seen) == everyone


@pytest.mark.parametrize("held_out", [0, 1, 3])
def test_other_draws_of_patients_within_a_fit_are_refused(agreed, held_out):
    """A coordinator that chose the folds, or went back, could take the difference of sums over few patients."""
    site = HazardSite("nice", DATA)
    site.agree(agreed)
    begin(site, 1)
    begin(site, 2)
    for wrong in ({"n_folds": 4}, {"n_folds": 2}, {"seed": 1}):
        with pytest.raises(ConfigurationError):
            begin(site, 2, **wrong)
    if held_out != 3:
        with pytest.raises(ConfigurationError, match="in order"):
            begin(site, held_out)
    with pytest.raises(MessageError):
        begin(site, 4)
    begin(site, 3)
    begin(site, 0)
    with pytest.raises(ConfigurationError, match="in order"):
        begin(site, 1)


@pytest.mark.parametrize("growing", [LEAF, STUMP])
def test_a_masked_and_an_unmasked_answer_are_the_same(part, growing):
    wanted = tuple(np.flatnonzero(growing.column < 0).tolist())
    answers = []
    for part.masked in (False, True):
        answers.append((part.count_intervals(Nothing()), part.sum_slopes(ask(growing=growing, wanted=wanted))))
    for unmasked, masked in zip(*answers, strict=True):
        assert unmasked.patients < masked.patients == len(DATA)
        for one, other in zip(unmasked.items(), masked.items(), strict=True):
            np.testing.assert_array_equal(one[3], other[3])


def test_an_unmasked_fit_is_refused_with_a_hint_and_a_masked_one_passes():
    parts = parts_of(DATA, 2, "random")
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
        mc.survival.FedHazardBoost(n_estimators=5).fit(federate(DATA, parts, policy=mc.Policy(), secure_sum=False))
    federation = federate(DATA, parts, policy=mc.Policy(), secure_sum=True)
    assert mc.survival.FedHazardBoost(n_estimators=5).fit(federation).score(DATA) > 0.5
