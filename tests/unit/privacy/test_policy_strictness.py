"""A policy is compared with the one at the approval: every term that permits more is named, and no other."""

import dataclasses

import pytest

from multicentre.errors import RefusedByPolicy
from multicentre.privacy.policy import Policy
from multicentre.privacy.policy_strictness import check_as_strict, find_weaker_terms

# Pairs of values of a term, the second of which permits more.
WEAKER = [
    ("min_patients", 10, 9),
    ("min_patients_in_total", 5, 0),
    ("min_difference", 6, 5),
    ("min_difference", 5, 0),
    ("min_difference", None, 4),  # without a number, it is 5
    ("min_difference", 5, None),  # and records without ids are not compared
    ("min_patients_in_share", None, 5),
    ("min_patients_in_share", 5, 4),
    ("min_sites_in_sum", 3, 2),
    ("colluding_sites", 1, 0),
    ("max_parameters_per_patient", 0.2, 0.3),
    ("max_parameters_per_patient", 0.2, 0),  # 0 disables the limit
    ("epsilon", 1.0, 1.1),
    ("epsilon", 1.0, None),  # no budget
    ("methods", ["a", "b"], ["a", "c"]),
    ("methods", ["a"], None),
    ("methods", [], ["a"]),
    ("columns", ["age"], ["age", "sex"]),
    ("columns", ["age"], None),
    ("delta", 1e-6, 1e-5),
    ("secure_sums_only", True, False),
    ("exact_times", False, True),
    ("relations", "none", "summed"),
    ("relations", "listed", "dense"),
    ("account", "a", "b"),
    ("account", "a", None),
    ("cohorts", "a", "b"),
    ("a later term", 1, 2),
    ("a later term", 2, 1),
]
# Pairs of which each value permits something that the other does not, or is treated so.
BOTH = [
    ("min_difference", None, 4),
    ("account", "a", "b"),
    ("cohorts", "a", "b"),
    ("a later term", 1, 2),
    ("a later term", 2, 1),
    ("methods", ["a", "b"], ["a", "c"]),
]


@pytest.mark.parametrize(("name", "before", "now"), WEAKER)
def test_a_term_that_permits_more_is_named(name, before, now):
    (text,) = find_weaker_terms({name: before}, {name: now})
    assert text.startswith(name)


@pytest.mark.parametrize(("name", "now", "before"), [one for one in WEAKER if one not in BOTH])
def test_the_opposite_change_permits_less(name, now, before):
    assert find_weaker_terms({name: before}, {name: now}) == []


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("min_difference", 0, None),
        ("min_difference", None, 5),
        ("min_difference", None, 6),
        ("methods", ["a", "b"], ["b", "a"]),
        ("methods", None, []),
        ("epsilon", None, 1e6),
        ("max_parameters_per_patient", 0, 10.0),
    ],
)
def test_other_changes_permit_no_more(name, before, now):
    assert find_weaker_terms({name: before}, {name: now}) == []


def test_the_values_are_named_and_places_are_not():
    before = {"min_patients": 10, "epsilon": 1.0, "account": "/secret/a", "secure_sums_only": True, "relations": "none"}
    now = {"min_patients": 5, "epsilon": None, "account": "/secret/b", "secure_sums_only": False, "relations": "dense"}
    assert find_weaker_terms(before, now) == [
        "min_patients was 10 and is 5",
        "epsilon was 1.0 and is null",
        "account is at another place",
        "secure_sums_only was true and is false",
        'relations was "none" and is "dense"',
    ]


def test_equal_policies_are_as_strict_and_a_new_term_is_not():
    terms = dataclasses.asdict(Policy())
    assert find_weaker_terms(terms, dict(terms)) == []
    assert find_weaker_terms({}, {"min_patients": 10}) == ["min_patients was null and is 10"]
    assert find_weaker_terms({"min_patients": 10}, {}) == []


def test_a_weaker_policy_refuses_the_study_with_its_terms():
    strict, loose = ({"min_patients": n, "delta": 1e-5, "exact_times": n < 10} for n in (10, 5))
    check_as_strict(strict, strict, "bones")
    check_as_strict(loose, strict, "bones")
    check_as_strict(None, loose, "bones")  # an approval of an earlier version
    with pytest.raises(RefusedByPolicy) as caught:
        check_as_strict(strict, loose, "bones")
    assert caught.value.where == "bones"
    assert caught.value.what == (
        "the site's policy must be as strict as when the study was approved; min_patients was 10 and is 5; "
        "exact_times was false and is true"
    )
    assert caught.value.hint == (
        "Restore site.toml and its policy file, or approve the study again: multicentre site approve."
    )
