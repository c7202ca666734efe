"""Entries of a ledger as texts of a table."""

import pytest

from multicentre.privacy.ledger_text import COLUMNS, REQUESTER, describe_entry

RELEASE = {
    "entry": 7,
    "time": "2026-01-02T03:04:05.678+00:00",
    "event": "release",
    "method": "fed-cox",
    "step": "sum_derivatives",
    "protection": "masked",
    "fields": [
        {"field": "Sums.gradient", "shape": [3], "records": 60, "patients": 31},
        {"field": "Sums.hessian", "shape": [3, 4], "records": 50, "patients": 32},
        {"field": "Sums.loglik", "shape": [], "records": 70, "patients": 33},
    ],
}


def test_a_release_is_described_by_its_fields_and_counts():
    assert describe_entry(RELEASE) == {
        "entry": "7",
        "time": "2026-01-02T03:04:05.678+00:00",
        "method": "fed-cox",
        "step": "sum_derivatives",
        "what": "Sums.gradient, Sums.hessian, Sums.loglik",
        "numbers": "16",  # 3 + 3 * 4 + 1
        "records": "50",
        "patients": "31",
        "left as": "masked",
        "asked by": "-",
    }


def test_every_column_has_a_text_where_an_entry_has_no_value():
    described = describe_entry({"entry": 1})
    assert tuple(described) == (*COLUMNS, REQUESTER)
    assert described == {**dict.fromkeys((*COLUMNS, REQUESTER), "-"), "entry": "1", "numbers": "0"}


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"event": "refusal", "reason": "min_patients"}, "REFUSED: min_patients"),
        ({"event": "refusal"}, "REFUSED: -"),
        ({"event": "failure", "reason": "ValueError"}, "FAILED: ValueError"),
        ({"event": "failure"}, "FAILED: -"),
        ({"event": "repaired", "reason": "x"}, "repaired"),
        ({"event": "release"}, "acknowledgement"),
        ({"event": "release", "fields": []}, "acknowledgement"),
        ({"event": "release", "fields": [{}]}, "-"),
        (
            {"event": "release", "fields": [{"field": "Sums.by_view[blood]"}, {"field": "Sums.n"}]},
            "Sums.by_view, Sums.n",
        ),
        ({"event": "release", "fields": [{"field": "Sums.v[blood]"}, {"field": "Sums.v[scan]"}]}, "Sums.v"),
    ],
)
def test_what_happened_is_named(entry, what):
    assert describe_entry({"entry": 1, **entry})["what"] == what


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ([{"records": None, "patients": None}], ("-", "-")),
        ([{"records": 0, "patients": 0}], ("-", "-")),
        ([{"records": 12}, {"records": 11, "patients": 9}, {"records": 0, "patients": 10}], ("11", "9")),
        ([], ("-", "-")),
    ],
)
def test_the_smallest_numbers_behind_a_value_are_shown(fields, texts):
    described = describe_entry({"entry": 1, "event": "release", "fields": fields})
    assert (described["records"], described["patients"]) == texts


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"protection": "unmasked"}, "unmasked"),
        ({"protection": "masked", "rho": 0.02, "epsilon": 0.72649}, "masked, epsilon 0.726"),
        ({"protection": "masked", "rho": 0.0, "epsilon": 0.5}, "masked"),
        ({"protection": "masked", "rho": 0.02, "epsilon": None}, "masked"),
        ({"protection": "masked", "epsilon": 0.5}, "masked"),
        ({"rho": 0.02, "epsilon": 1234.5}, "-, epsilon 1.23e+03"),
    ],
)
def test_the_cost_of_a_release_is_shown_with_its_protection(entry, text):
    assert describe_entry({"entry": 1, **entry})["left as"] == text


@pytest.mark.parametrize(
    ("requester", "text"),
    [
        (None, "-"),
        ({"name": "ada", "fingerprint": "0f1e 2d3c 4b5a 6978 8796 a5b4"}, "ada, 0f1e 2d3c 4b5a 6978"),
        ({"name": "coordinator", "fingerprint": None}, "coordinator, not signed"),
    ],
)
def test_the_requester_is_named_with_a_short_fingerprint(requester, text):
    assert describe_entry({"entry": 1, "requested_by": requester})["asked by"] == text
