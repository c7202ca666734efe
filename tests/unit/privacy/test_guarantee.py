"""A guarantee names all that it is relative to, and its numbers are never rounded to the flattering side."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.privacy.guarantee import Guarantee, rounded_down, rounded_up

PATIENT = "(epsilon 1, delta 1e-05)-differential privacy for one patient: data sets are neighbours when "
RECORD = "(epsilon 1, delta 1e-05)-differential privacy for one record: data sets are neighbours when "
LESS = "; a patient with several records has less protection."
ENTRY = (
    "(epsilon 1, delta 1e-05)-differential privacy for one entry (one value of one patient's record): "
    "data sets are neighbours when "
)
IMPLIED = "; the same guarantee for one patient implies this one."


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, PATIENT + "one has all records of one patient more (add or remove); each patient is at one site."),
        (
            {"adjacency": "replace-one", "sites_per_patient": 2},
            PATIENT
            + "all records of one patient are those of another (replace one); each patient is at up to 2 sites.",
        ),
        (
            {"unit": "record"},
            RECORD + "one has one record more (add or remove); each patient is at one site" + LESS,
        ),
        (
            {"unit": "record", "adjacency": "replace-one"},
            RECORD + "one record is a different one (replace one); each patient is at one site" + LESS,
        ),
        (
            {"unit": "entry"},
            ENTRY + "one has one entry more (add or remove); each patient is at one site" + IMPLIED,
        ),
        (
            {"unit": "entry", "adjacency": "replace-one"},
            ENTRY + "one entry has a different value (replace one); each patient is at one site" + IMPLIED,
        ),
    ],
)
def test_a_guarantee_is_one_sentence(terms, sentence):
    assert str(Guarantee(1.0, 1e-5, **terms)) == sentence


def test_without_noise_the_sentence_promises_nothing():
    assert str(Guarantee(math.inf, 1e-5)).startswith("No differential privacy (epsilon is infinite) for one patient")


@pytest.mark.parametrize(
    ("terms", "where"),
    [
        ((-1e-9, 1e-5), "epsilon"),
        ((math.nan, 1e-5), "epsilon"),
        ((1.0, 0.0), "delta"),
        ((1.0, 1.0), "delta"),
        ((1.0, 1e-5, "visit"), "unit"),
        ((1.0, 1e-5, "patient", "remove"), "adjacency"),
        ((1.0, 1e-5, "patient", "add-remove", 0), "sites_per_patient"),
        ((1.0, 1e-5, "patient", "add-remove", 1.0), "sites_per_patient"),
        ((1.0, 1e-5, "patient", "add-remove", True), "sites_per_patient"),
    ],
)
def test_a_promise_that_makes_no_sense_is_refused(terms, where):
    with pytest.raises(ConfigurationError) as caught:
        Guarantee(*terms)
    assert caught.value.where == where


def test_a_guarantee_of_nothing_spent_is_one():
    assert str(Guarantee(0.0, 1e-5)).startswith("(epsilon 0, delta 1e-05)")


def test_an_unknown_unit_is_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match=r"^unit must be one of patient, record, entry"):
        Guarantee(1.0, 1e-5, "visit")
    with pytest.raises(ConfigurationError, match=r"^adjacency must be one of add-remove, replace-one"):
        Guarantee(1.0, 1e-5, adjacency="x")


@given(st.floats(1e-300, 1e300))
def test_three_digits_are_on_the_safe_side_of_a_number_and_near_it(value):
    up, down, exact = Decimal(rounded_up(value)), Decimal(rounded_down(value)), Decimal(value)
    slack = 1 + Decimal("2e-9")
    assert exact / slack <= up <= exact * Decimal("1.0101")
    assert exact * Decimal("0.99") <= down <= exact * slack


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0", "0"),
        (math.inf, "inf", "inf"),
        (1.0, "1", "1"),
        (1.001, "1.01", "1"),
        (0.12345, "0.124", "0.123"),
        (123456.0, "124000", "123000"),
        (2.9999999999, "3", "3"),
    ],
)
def test_numbers_of_a_promise_have_three_digits(value, up, down):
    assert (rounded_up(value), rounded_down(value)) == (up, down)
