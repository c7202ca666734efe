"""The hash that folds come from, held against the standard library, and what patients share."""

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.secret_files import Secret
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.keyed import checked_buckets, hash_people, purpose_of, share_identifiers

SECRET = bytes(range(32))
KEY = PseudonymKey(Secret(SECRET))

# Study "vectors", key 00 01 ... 1f; docs/methods/folds.md prints the same table.
VECTORS = [
    ("fold/v1/vectors/rep0/k5/by4174a530ea2ccd61", "identifier", "a-17", "A17", "09e7825e058a0d62", 1),
    ("fold/v1/vectors/rep0/k5/by4174a530ea2ccd61", "identifier", " 00123 ", "00123", "c2319e46b3f0873c", 30),
    ("fold/v1/vectors/rep0/k5/by4174a530ea2ccd61", "identifier", "Zoë", "ZOE", "972a8dcf023feb23", 23),
    ("fold/v1/vectors/rep0/k5/byd4106e7dada082c0", "date", "1950-01-31", "1950-01-31", "1d8992418f62a747", 4),
    ("fold/v1/vectors/rep1/k5/by4174a530ea2ccd61", "identifier", "A17", "A17", "b024f6a4de317cfe", 27),
    (
        "fold/v1/vectors/rep0/k5/by4174a530ea2ccd61/outerhashed-folds/d16e57:0.2",
        "identifier",
        "A17",
        "A17",
        "ded2e559b30d4a6e",
        34,
    ),
]

PUBLISHED_FOLDS = [1, 1, 3, 0, 1, 0, 2, 4, 4, 3, 0, 2]


def by_hand(purpose, value):
    label = purpose.encode()
    return hmac.new(SECRET, len(label).to_bytes(2, "big") + label + value.encode(), hashlib.sha256).digest()


def told(kind="identifier", repeat=0):
    return HashGroupKFold(5, kind=kind, repeat=repeat, study="vectors")._request("")


@pytest.mark.parametrize(("purpose", "kind", "value", "normalised", "first", "bucket"), VECTORS)
def test_published_vectors(purpose, kind, value, normalised, first, bucket):
    head, _, within = purpose.partition("/outer")
    asked = told(kind, int(head.split("/")[3].removeprefix("rep")))
    assert purpose_of(asked, within) == purpose
    known = hash_people([value], None, KEY, asked, "iso", within)
    assert bytes(known.tokens[0]) == by_hand(f"{purpose}/{kind}-v1", normalised)
    assert bytes(known.tokens[0, :8]).hex() == first
    assert known.buckets(40).tolist() == [bucket] == [(int(first, 16) * 40) >> 64]


def test_published_folds():
    """Twelve people without classes: 40 buckets, packed by size alone."""
    people = [f"nr-{number}" for number in range(12)]
    splitter = HashGroupKFold(5, study="vectors", key=KEY)
    folds = np.full(12, -1)
    for fold, (_, test) in enumerate(splitter.split(np.zeros((12, 1)), groups=people)):
        folds[test] = fold
    assert folds.tolist() == PUBLISHED_FOLDS


def test_rules_of_another_version_are_refused():
    asked = HashGroupKFold(5)._request("study")
    object.__setattr__(asked, "rules", "v0")
    with pytest.raises(ConfigurationError, match="rules of normalisation must be"):
        hash_people(["a"], None, KEY, asked, "iso")


values = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, "a", "b", "c"])), min_size=1, max_size=30)


@given(values, st.randoms())
def test_a_patient_has_one_identifier_which_most_of_the_records_have(rows, random):
    patients, known = np.array([patient for patient, _ in rows]), [value for _, value in rows]
    shared = share_identifiers(known, patients)
    for patient in set(patients.tolist()):
        own = [value for one, value in rows if one == patient and value is not None]
        chosen = {value for one, value in zip(patients, shared, strict=True) if one == patient}
        assert len(chosen) == 1
        only = chosen.pop()
        assert (only is None) == (not own)
        assert all((-own.count(only), only) <= (-own.count(value), value) for value in own)
    order = list(range(len(rows)))
    random.shuffle(order)
    again = share_identifiers([known[place] for place in order], patients[order])
    assert again == [shared[place] for place in order]


def test_of_equally_common_identifiers_the_smallest_is_taken():
    assert share_identifiers(["c", "b", "b", "c", None], np.zeros(5, dtype=int)) == ["b"] * 5
    assert share_identifiers(["c", "b", "c"], np.zeros(3, dtype=int)) == ["c"] * 3


@pytest.mark.parametrize(("n_buckets", "n_splits"), [(4, 5), (0, 2), (-1, 2), (4097, 5), (10**9, 100)])
def test_numbers_of_buckets_out_of_range_are_refused(n_buckets, n_splits):
    with pytest.raises(ConfigurationError, match="n_buckets must be from"):
        checked_buckets(n_buckets, n_splits)
    assert checked_buckets(5, 5) == 5
    assert checked_buckets(4096, 100) == 4096
