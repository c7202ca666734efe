"""Stability of a key between two records of one person."""

import math

import pytest

from multicentre.errors import DataError
from multicentre.privacy.identifier_normalisation import normalise
from multicentre.validation.fold_check import key_stability


def test_missing_values_are_left_out_of_the_shares():
    found = key_stability(["a", "b", "c", None], ["a", "x", None, None], n_splits=4)
    assert (found.n_pairs, found.missing) == (4, (0.25, 0.5))
    assert (found.equal, found.same_fold) == (0.5, 0.5 + 0.5 / 4)
    assert not found.is_enough


def test_folds_may_be_given():
    found = key_stability(["1", "2", "3"], ["1", "3", "5"], fold_of=lambda value: int(value) % 2)
    assert (found.equal, found.same_fold) == (1 / 3, 2 / 3)


def test_normalisation_makes_a_key_more_stable():
    first, second = ["Müller", "O'Connor", "Ito"], ["MULLER ", "oconnor", "Ito"]
    raw, normal = (
        key_stability(first, second),
        key_stability(*(normalise(column, "name") for column in (first, second))),
    )
    assert (raw.equal, normal.equal) == (1 / 3, 1.0)
    assert normal.is_enough


def test_nothing_to_compare():
    assert math.isnan(key_stability([None], ["a"]).equal)
    for first, second in (([], []), (["a"], [])):
        with pytest.raises(DataError, match="first and second must have equal lengths of at least 1"):
            key_stability(first, second)
