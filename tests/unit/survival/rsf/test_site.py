"""What a site of FedRSF checks before it counts."""

import dataclasses

import numpy as np
import pytest

from multicentre.errors import MessageError
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.rsf import messages
from multicentre.survival.rsf.messages import MAX_TREES
from multicentre.survival.rsf.site import ForestSite
from support.hazard_toy import federate, parts_of, simulate

DATA = simulate(200)


def i4(*values):
    return np.array(values, dtype=np.int32)


STANDING = {
    "seed": 0,
    "tree": i4(0, 3),
    "roots": i4(0, 3),
    "column": i4(0, -1, -1, -1),
    "cut": i4(2, -1, -1, -1),
    "wanted": i4(2, 3),
}
LEVEL = messages.Level(**STANDING, n_groups=3, tried=i4(0, 1, 1, 2).reshape(2, 2), bits=i4(8, 9))


@pytest.fixture(scope="module")
def part():
    federation = federate(DATA, parts_of(DATA, 2, "random"))
    site = ForestSite("lyon", DATA)
    site.agree(agree(federation.begin(ForestSite), ForestSite, Needs(n_times=6, n_bins=8), "mean")[0])
    return site


def test_counts_of_samples_are_those_of_the_roots(part):
    counts = part.count_samples(messages.Sampling(0, 4, 3)).counts
    level = dataclasses.replace(LEVEL, wanted=i4(3), tried=i4(0).reshape(1, 1), bits=i4(52))
    words = part.count_splits(level).words.reshape(-1, 9)
    assert np.array_equal(words.sum(axis=0), counts[3])
    assert counts[:, 3:7].sum(axis=1).tolist() != [200] * 4


def test_leaves_are_counted_in_all_detail(part):
    counts = part.count_samples(messages.Sampling(0, 4, 6)).counts
    leaves = part.count_leaves(messages.ForestState(**{**STANDING, "wanted": i4(1, 2, 3)})).counts
    assert np.array_equal(leaves[0] + leaves[1], counts[0, :-2])
    assert np.array_equal(leaves[2], counts[3, :-2])


WRONG = {
    "no tree": {"tree": i4(), "roots": i4()},
    "a tree below none": {"tree": i4(-1, 3)},
    "a tree beyond all": {"tree": i4(0, MAX_TREES)},
    "a root that is not": {"roots": i4(0, 4)},
    "a root in the middle": {"roots": i4(1, 3)},
    "children of no split": {"column": i4(-1, -1, -1, -1)},
    "no child": {"column": i4(0, -1, -1, 0)},
    "a column that is not": {"column": i4(4, -1, -1, -1)},
    "a bin that is not": {"cut": i4(7, -1, -1, -1)},
    "an inner node wanted": {"wanted": i4(0, 3)},
    "a leaf wanted twice": {"wanted": i4(3, 3)},
    "a node that is not": {"wanted": i4(2, 4)},
    "a tried column that is not": {"tried": i4(0, 1, 1, 4).reshape(2, 2)},
    "no tried column": {"tried": i4().reshape(2, 0)},
    "no bits": {"bits": i4(8, 0)},
    "too many bits": {"bits": i4(8, 53)},
    "a seed below none": {"seed": -1},
    "no groups": {"n_groups": 0},
    "more groups than times": {"n_groups": 7},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_ask_that_makes_no_sense_is_refused(part, wrong):
    part.count_splits(LEVEL)
    with pytest.raises(MessageError):
        part.count_splits(dataclasses.replace(LEVEL, **WRONG[wrong]))


def test_an_answer_that_would_be_too_long_is_refused(part):
    columns = np.tile(np.zeros(1, dtype=np.int32), (2, 200_000))
    with pytest.raises(MessageError, match="too long"):
        part.count_splits(dataclasses.replace(LEVEL, tried=columns, bits=i4(52, 52)))


@pytest.mark.parametrize("n_estimators", [0, MAX_TREES + 1])
def test_a_number_of_trees_out_of_range_is_refused(part, n_estimators):
    with pytest.raises(MessageError):
        part.count_samples(messages.Sampling(0, n_estimators, 3))
