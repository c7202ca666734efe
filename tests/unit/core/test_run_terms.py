"""Terms that cannot be kept are refused, and traffic adds up by step."""

import pytest

from multicentre.core.run_terms import Attempt, Terms, Traffic, can_leave_out
from multicentre.core.storage import Store
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MessageError,
    ProtocolRefused,
    RefusedByPolicy,
)


def test_traffic_adds_up_by_step():
    traffic = Traffic()
    traffic.add("size", 8, 16)
    traffic.add("sums", 1, 2)
    traffic.add("size", 100, 1000)
    assert traffic.calls == {"size": 2, "sums": 1}
    assert traffic.bytes_to_sites == {"size": 108, "sums": 1}
    assert traffic.bytes_from_sites == {"size": 1016, "sums": 2}


def test_the_terms_of_a_study_without_wishes():
    terms = Terms()
    assert (terms.study, terms.quorum, terms.time_limit_s, terms.sites_per_patient) == ("study", "all", None, 1)


@pytest.mark.parametrize("sites", [0, -1, 1.0, "2", True, None])
def test_a_patient_has_records_at_a_whole_number_of_sites(sites):
    with pytest.raises(ConfigurationError, match=r"^sites_per_patient must be an int"):
        Terms(sites_per_patient=sites)


@pytest.mark.parametrize(("quorum", "needed"), [("all", 5), (1, 1), (3, 3), (7, 7)])
def test_a_quorum_is_a_number_of_sites(quorum, needed):
    assert Terms(quorum=quorum, time_limit_s=0.1, sites_per_patient=2).needed(5) == needed


# Attempts


LYON, OSLO = {"lyon": "too few"}, {"oslo": "no answer"}


def test_an_attempt_holds_the_sites_of_its_sums_and_of_those_around_it():
    outer = Attempt("0.1", restarts=True)
    inner = Attempt("0.1.1", outer)
    inner.note_sum(["lyon"])
    assert (outer.holds("lyon"), inner.holds("lyon"), inner.holds("oslo")) == (True, True, False)
    outer.note_sum(["oslo"])
    assert inner.holds("oslo")
    outer.restarts = False
    assert not inner.holds("oslo")
    assert outer.holds("oslo")


def test_a_resumed_run_leaves_out_the_same_sites(tmp_path):
    """Sites that refused and sites that were lost are stored apart."""
    first = Attempt("0.1", store=Store(tmp_path))
    first.note_left_out(LYON)
    first.note_left_out(OSLO, lost=True)
    again = Attempt("0.1", store=Store(tmp_path), restarts=True)
    roster = ("lyon", "oslo", "roma")
    assert again.left_out_before(roster) == LYON
    assert again.left_out_before(roster, lost=True) == OSLO
    assert again.left_out_before(("oslo", "roma")) == {}
    assert Store(tmp_path).numbers("0.1-left-out") == Store(tmp_path).numbers("0.1-lost") == [0]
    for other in (Attempt("0.1", store=Store(tmp_path)), Attempt("0.2", store=Store(tmp_path), restarts=True)):
        assert other.left_out_before(roster) == other.left_out_before(roster, lost=True) == {}


def test_a_resumed_run_remembers_the_sites_of_its_first_sum(tmp_path):
    first = Attempt("0.1", store=Store(tmp_path))
    first.note_sum(["lyon", "oslo"])
    first.note_sum(["roma"])
    again = Attempt("0.1", store=Store(tmp_path))
    assert again.summed == {"lyon", "oslo"}
    unnoted = Attempt("0.2", store=Store(tmp_path), notes_sums=False)
    unnoted.note_sum(["lyon"])
    assert unnoted.holds("lyon")
    assert Attempt("0.2", store=Store(tmp_path)).summed == set()


@pytest.mark.parametrize(
    ("errors", "may_go_on"),
    [
        ([DisclosureRefused("x"), RefusedByPolicy("x")], True),
        ([DisclosureRefused("x"), ProtocolRefused("x")], False),
        ([DataError("x")], False),
        ([MessageError("x"), RefusedByPolicy("x")], False),
        ([], True),
    ],
)
def test_only_refusals_of_policies_and_guards_leave_a_site_out(errors, may_go_on):
    assert can_leave_out(dict(enumerate(errors))) is may_go_on
