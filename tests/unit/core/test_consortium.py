"""A consortium without some of its sites: who takes part, what is said, and when too few are left."""

import itertools
import warnings
from types import SimpleNamespace

import pytest

from multicentre.core.calls import Selection
from multicentre.core.consortium import Consortium
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Terms
from multicentre.core.summation import PlainSummation
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    LeftOutWarning,
    ProtocolRefused,
    QuorumLost,
    RefusedByPolicy,
)

NAMES = ("bern", "lyon", "oslo", "roma")
LEAVE_OUT = Terms(refusing_sites="leave_out")
FEW = DisclosureRefused("the answer rests on too few patients", hint="Ask the steward.")
RULE = RefusedByPolicy("the method is not allowed")


class Notices(Listener):
    """Stores what it receives."""

    def __init__(self):
        self.left_out = []

    def sites_left_out(self, reasons):
        self.left_out.append(dict(reasons))


def consortium(names=NAMES, **options):
    engine = SimpleNamespace(sites=names, close=lambda: None)
    return Consortium(engine, listener=Notices(), **options)


def without(before, refused, **options):
    """Return a consortium without some sites, and the text of the warning."""
    with pytest.warns(LeftOutWarning) as caught:
        after = before.without(refused, **options)
    (warning,) = caught
    return after, str(warning.message)


def test_sites_are_in_the_order_of_their_names():
    assert consortium(("roma", "bern")).sites == tuple(consortium(("bern", "roma"))) == ("bern", "roma")
    assert len(consortium()) == 4


def test_sites_that_refuse_are_left_out_with_their_reasons():
    before = consortium()
    after, text = without(before, {"oslo": "too few", "bern": "too few", "graz": "takes no part"})
    assert text == "the result is without 2 of 4 sites, which refuse (oslo, bern: too few)"
    assert after.sites == ("lyon", "roma")
    assert after.left_out == {"oslo": "too few", "bern": "too few"}
    assert after.lost == frozenset()
    assert after.listener.left_out == [{"oslo": "too few", "bern": "too few"}]
    assert before.sites == NAMES


def test_sites_that_were_lost_are_left_out_and_reported_when_they_are_lost():
    once, text = without(consortium(), {"oslo": "no answer"}, lost=True)
    assert text == "the result is without 1 of 4 sites, which no longer take part (oslo: no answer)"
    assert (once.lost, once.left_out) == ({"oslo"}, {"oslo": "no answer"})
    assert once.listener.left_out == []
    twice, _ = without(once, {"bern": "too few"})
    assert (twice.lost, twice.left_out) == ({"oslo"}, {"oslo": "no answer", "bern": "too few"})
    thrice, _ = without(twice, {"roma": "no answer"}, lost=True)
    assert (thrice.lost, thrice.sites) == ({"oslo", "roma"}, ("lyon",))


def test_the_warning_names_the_line_that_left_the_sites_out():
    with pytest.warns(LeftOutWarning) as caught:
        consortium().without({"oslo": "too few"})
    assert [warning.filename for warning in caught] == [__file__]


def test_without_sites_that_take_no_part_nothing_changes():
    before = consortium()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert before.without({"graz": "too few"}) is before
        assert before.without({}, lost=True) is before


@pytest.mark.parametrize(("quorum", "needed"), [("all", 4), (1, 1), (3, 3), (4, 4)])
def test_the_quorum_is_a_number_of_the_sites(quorum, needed):
    assert consortium(terms=Terms(quorum=quorum)).needed == needed


@pytest.mark.parametrize("quorum", [0, 5, -1])
def test_a_quorum_beyond_the_number_of_sites_is_refused(quorum):
    with pytest.raises(ConfigurationError, match=f"quorum must be from 1 to the number of sites, 4; got {quorum}"):
        consortium(terms=Terms(quorum=quorum))


def test_a_consortium_needs_a_site():
    with pytest.raises(ConfigurationError, match="quorum must be from 1 to the number of sites, 0"):
        consortium(())


# Refusals


def test_sites_that_refuse_to_take_part_are_left_out_if_the_terms_allow_it():
    with pytest.warns(LeftOutWarning, match="without 2 of 4 sites"):
        after = consortium(terms=LEAVE_OUT).without_refusing({"lyon": FEW, "roma": RULE})
    assert after.sites == ("bern", "oslo")
    assert after.left_out["roma"] == "the method is not allowed"


def test_under_other_terms_a_refusal_ends_the_fit_and_names_them():
    with pytest.raises(DisclosureRefused) as caught:
        consortium().without_refusing({"lyon": FEW})
    assert caught.value.where == "lyon"
    assert 'set refusing_sites="leave_out"' in caught.value.hint


@pytest.mark.parametrize("error", [DataError("a column is missing"), ProtocolRefused("not agreed")])
def test_faults_are_not_left_out(error):
    for refusals in ({"roma": error}, {"roma": error, "lyon": FEW}):
        with pytest.raises(type(error), match="roma") as caught:
            consortium(terms=LEAVE_OUT).without_refusing(refusals)
        assert "refusing_sites" not in caught.value.hint


def test_where_all_sites_refuse_other_terms_would_not_help():
    refusals = dict.fromkeys(NAMES, FEW)
    assert "refusing_sites" not in consortium().join_refusals(refusals, 4, restarts=True).hint
    assert "refusing_sites" in consortium().join_refusals(refusals, 5, restarts=True).hint
    assert "refusing_sites" not in consortium().join_refusals(refusals, 5, restarts=False).hint
    assert "refusing_sites" not in consortium(terms=LEAVE_OUT).join_refusals(refusals, 5, restarts=True).hint


def quorum_lost(federation, refusals):
    with pytest.raises(QuorumLost) as caught:
        federation.without_refusing(refusals)
    return caught.value


def test_too_few_sites_after_refusals_end_the_fit():
    lost = quorum_lost(
        consortium(terms=Terms(quorum=3, refusing_sites="leave_out")), {"lyon": FEW, "roma": FEW, "bern": RULE}
    )
    assert lost.what == (
        "1 of 4 sites answered, the study needs 3; lyon, roma: the answer rests on too few patients; "
        "bern: the method is not allowed"
    )
    assert lost.where == "lyon, roma, bern"
    assert lost.hint == "Ask the steward. Ask the stewards of the sites that refuse, or bring more sites in."
    assert lost.refusals == {
        "lyon": "the answer rests on too few patients",
        "roma": "the answer rests on too few patients",
        "bern": "the method is not allowed",
    }
    assert "refusing_sites" not in lost.refusal.hint


def test_the_sites_left_out_before_are_named_and_counted():
    before, _ = without(consortium(terms=Terms(quorum=2, refusing_sites="leave_out")), {"oslo": "no answer"}, lost=True)
    lost = quorum_lost(before, {"lyon": FEW, "roma": FEW})
    assert lost.what == (
        "1 of 4 sites answered, the study needs 2; the answer rests on too few patients; "
        "before that it was left without oslo: no answer"
    )


@pytest.mark.parametrize(("n_refusing", "fits"), [(2, True), (3, True), (4, False)])
def test_the_quorum_all_is_of_the_sites_that_do_not_refuse(n_refusing, fits):
    refusals = dict.fromkeys(NAMES[:n_refusing], FEW)
    if fits:
        consortium(terms=LEAVE_OUT).check_remaining(refusals)
    else:
        with pytest.raises(QuorumLost):
            consortium(terms=LEAVE_OUT).check_remaining(refusals)


# Parts of a consortium


def test_branches_are_named_by_their_numbers():
    whole = consortium(name="0.2")
    branches = whole.branches(2) + whole.branches(1)
    assert [branch.name for branch in branches] == ["0.2.1", "0.2.2", "0.2.3"]
    assert [next(branch.openings) for branch in branches] == [1, 1, 1]
    assert len({id(branch.traffic) for branch in [whole, *branches]}) == 4


def test_fits_that_are_part_of_a_branch_have_its_names_and_traffic():
    whole = consortium()
    (branch,) = whole.branches(1)
    chosen = consortium(sites=("lyon",), selection=Selection("0.1", (0,)), openings=itertools.count(7))
    part = chosen.as_part_of(branch)
    assert (part.name, part.openings, part.traffic) == (branch.name, branch.openings, branch.traffic)
    assert (part.sites, part.selection) == (("lyon",), Selection("0.1", (0,)))


def test_sums_of_a_single_site_are_unmasked():
    masked = consortium(summation=SimpleNamespace(protection="masked"))
    assert masked.protection == "masked"
    assert masked.unmasked().protection == "unmasked"
    assert isinstance(masked.unmasked().summation, PlainSummation)


def test_a_consortium_is_printed_with_its_terms():
    whole = consortium(terms=Terms(quorum=2))
    assert repr(whole) == "Federation(bern, lyon, oslo, roma; sums unmasked, quorum 2)"
    after, _ = without(whole, {"oslo": "x", "bern": "x"})
    assert repr(after) == "Federation(lyon, roma; sums unmasked, quorum 2; without oslo, bern)"
