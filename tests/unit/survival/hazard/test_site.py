"""What a site checks, leaves out, remembers and takes up again."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from hazard_toy import federate, parts_of, simulate
from multicentre.federation.errors import ConfigurationError, MessageError, MulticentreError
from multicentre.federation.messages import Nothing
from multicentre.federation.wire import decode, encode
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.hazard import messages as sent
from multicentre.survival.hazard.rows import find_small
from multicentre.survival.hazard.site import HazardSite

DATA = simulate(300)
NONE = np.zeros(0, dtype=np.int32)
NO_TREE = sent.Tree(NONE, NONE, NONE, NONE, np.zeros(0))


def i4(*values):
    return np.array(values, dtype=np.int32)


LEAF = sent.Tree(i4(-1), i4(-1), i4(-1), i4(-1), np.array([0.5]))
STUMP = sent.Tree(i4(0, -1, -1), i4(3, -1, -1), i4(1, -1, -1), i4(2, -1, -1), np.array([0.0, 0.5, -0.5]))


@pytest.fixture(scope="module")
def agreed():
    federation = federate(DATA, parts_of(DATA, 2, "random"))
    return agree(federation.begin(HazardSite), HazardSite, Needs(n_times=6, n_bins=8))


@pytest.fixture
def part(agreed):
    site = HazardSite("lyon", DATA)
    site.agree(agreed)
    site.begin(sent.Beginning(np.full(6, -2.0), 0, 1.0, 0.0))
    return site


def ask(number=0, growing=LEAF, last=NO_TREE, wanted=(0,)):
    return sent.Level.of(number, growing, last, i4(*wanted))


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
    one, two = (part.sum_slopes(ask(1, last=STUMP)) for _ in range(2))
    assert np.array_equal(one.slopes, two.slopes)
    assert len(part.memory.roots) == 1


def test_a_site_goes_on_from_what_it_remembers(part, agreed):
    for number, last in enumerate([NO_TREE, STUMP, LEAF]):
        answer = part.sum_slopes(ask(number, last=last))
    again = HazardSite("lyon", DATA)
    again.state = decode(sent.Memory, encode(dataclasses.replace(part.state)))
    assert np.array_equal(again.sum_slopes(ask(2)).slopes, answer.slopes)
    part.state = _fresh(agreed).state
    assert np.array_equal(part.sum_slopes(ask()).slopes, _fresh(agreed).sum_slopes(ask()).slopes)


def _fresh(agreed):
    site = HazardSite("nice", DATA)
    site.agree(agreed)
    site.begin(sent.Beginning(np.full(6, -2.0), 0, 1.0, 0.0))
    return site


WRONG = {
    "no leaf wanted": ask(wanted=()),
    "an inner node wanted": ask(growing=STUMP, wanted=(0,)),
    "a leaf wanted twice": ask(growing=STUMP, wanted=(1, 1)),
    "a node that is not": ask(wanted=(1,)),
    "a node below none": ask(wanted=(-1,)),
    "a column that is not": ask(growing=dataclasses.replace(STUMP, column=i4(9, -1, -1)), wanted=(1,)),
    "a bin that is not": ask(growing=dataclasses.replace(STUMP, cut=i4(99, -1, -1)), wanted=(1,)),
    "a cycle": ask(growing=dataclasses.replace(STUMP, left=i4(0, -1, -1)), wanted=(1,)),
    "two parents": ask(growing=dataclasses.replace(STUMP, left=i4(2, -1, -1)), wanted=(1,)),
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
    part.begin(sent.Beginning(np.full(6, -2.0), 0, 1.0, 0.0))
    for other in (np.full(6, -1.0), np.full(5, -2.0), np.full(6, 1e4)):
        with pytest.raises((ConfigurationError, MessageError)):
            part.begin(sent.Beginning(other, 0, 1.0, 0.0))


def test_in_clear_a_split_that_parts_off_a_few_patients_is_left_out_on_both_sides(part):
    part.least_behind = 15
    part.sum_slopes(ask())
    rows = part._rows
    counts = [rows.count_leaves(dataclasses.replace(STUMP, cut=i4(cut, -1, -1)))[1:].min() for cut in range(7)]
    cut = int(np.argmin(counts))
    few, many = dataclasses.replace(STUMP, cut=i4(cut, -1, -1)), STUMP
    least = int(counts[cut]) + 1
    assert find_small(rows, few, least).tolist() == [False, True, True]
    assert find_small(rows, many, least).tolist() == [False, False, False]
    larger = 1 + int(np.argmax(rows.count_leaves(few)[1:]))
    nodes = [np.append(each, i4(-1, -1)) for each in (few.column, few.cut, few.left, few.right)]
    for each, value in zip(nodes, (1, 3, 3, 4), strict=True):
        each[larger] = value
    below = sent.Tree(*nodes, np.zeros(5))
    assert rows.count_leaves(below)[[3, 4]].min() >= least
    assert find_small(rows, below, least)[[3, 4]].all()
    part.least_behind = least
    answer = part.sum_slopes(ask(growing=few, wanted=(1, 2)))
    assert not answer.slopes.any()
    assert part.sum_slopes(ask(growing=many, wanted=(1, 2))).slopes.any(axis=1).all()
    part.masked = True
    assert part.sum_slopes(ask(growing=few, wanted=(1, 2))).slopes.any(axis=1).all()


def test_what_leaves_in_clear_rests_on_enough_patients(part):
    part.least_behind = 20
    answer = part.sum_slopes(ask(growing=STUMP, wanted=(1, 2)))
    assert answer.patients >= 20
    part.least_behind = 0
    assert part.sum_slopes(ask(growing=STUMP, wanted=(1, 2))).patients < 20


def test_the_policy_of_a_default_site_lets_it_pass():
    federation = federate(DATA, parts_of(DATA, 2, "random"), policy=mc.Policy())
    assert mc.survival.FedHazardBoost(n_trees=5).fit(federation).score(DATA) > 0.5
