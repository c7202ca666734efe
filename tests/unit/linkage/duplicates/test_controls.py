"""Only what cannot be a person's identifier is a control."""

import pytest

from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.linkage.duplicates.rate import MAX_CONTROLS, check_controls, normalise_controls


@pytest.mark.parametrize(
    ("kind", "control"),
    [
        ("identifier", "test-patient 7"),
        ("name", "Test Patient Örebro"),
        ("date", "2150-01-01"),
        ("nhs-number", "999 000 0069"),
    ],
)
def test_reserved_forms_are_taken(kind, control):
    assert len(normalise_controls([control], kind)) == 1


@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        ("identifier", "P17"),
        ("identifier", "UNKNOWN"),
        ("identifier", "9991234567"),
        ("name", "Testa Patienti"),
        ("date", "1950-01-31"),
        ("date", "2149-12-31"),
        ("nhs-number", "943 476 5919"),
        ("nir", "2 55 08 14 168 025 38"),
        ("combined", "11:TESTPATIENT"),
    ],
)
def test_what_may_be_a_person_is_refused_and_not_quoted(kind, identifier):
    with pytest.raises(RefusedByPolicy) as refused:
        normalise_controls([identifier], kind)
    assert identifier not in str(refused.value)


def test_one_person_among_test_patients_is_refused():
    with pytest.raises(RefusedByPolicy, match="could be a person's"):
        normalise_controls(["TESTPATIENT1", "P17"], "identifier")


def test_many_controls_are_refused():
    with pytest.raises(RefusedByPolicy, match="there must be at most 20 controls"):
        normalise_controls([f"TESTPATIENT{i}" for i in range(MAX_CONTROLS + 1)], "identifier")


def test_unknown_kind_is_an_error():
    with pytest.raises(
        ConfigurationError, match="kind must be one of identifier, name, date, nhs-number, nir, combined"
    ):
        normalise_controls([], "passport")


def test_controls_that_a_site_lacks_are_named():
    assert check_controls([3, 3], ["T1", "T2"], 3) == {"T1": 3, "T2": 3}
    with pytest.raises(ConfigurationError, match="controls must be present at all 3 sites; got T2 at 2"):
        check_controls([3, 2], ["T1", "T2"], 3)
