"""Which sites a fit goes on without, what its result is then, and when it has to end."""

import dataclasses
import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Terms
from multicentre.core.steps import step
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    LeftOutWarning,
    ProtocolRefused,
    QuorumLost,
    RefusedByPolicy,
)
from support.engines import with_engine
from support.toy_method import FedMean, Guess, MeanSite, Residuals, Size, federate, toy_sites
from support.toy_private import PrivateMean

ASK = Guess(np.zeros(3), 0)
LEAVE_OUT = {"refusing_sites": "leave_out"}
WILLING = ("site-0", "site-2", "site-4")
UNWILLING = ("site-1", "site-3")
FEW = "the site has fewer patients than its policy's minimum of 10"
TROUBLE = {}
masked_or_not = pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])


class MoodySite(MeanSite):
    """Refuses, at the sites and from the call on that the test names."""

    method = "moody"

    @step(releases=Residuals, when="every round", summed=True)
    def residuals(self, request: Guess) -> Residuals:
        """Add up the residuals, or refuse."""
        error, since = TROUBLE.get(self.site, (None, 0))
        if error is not None and (self.state.calls if self.state else 0) >= since:
            raise error
        return MeanSite.residuals.run(self, request)

    @step(releases=Size, when="once")
    def size(self, request: Guess) -> Size:
        """Tell how many patients there are."""
        return MeanSite.size.run(self, request)


class MoodyMean(FedMean):
    """The toy method with the moody part."""

    part = MoodySite


class OneRound(FedMean):
    def __init__(self):
        super().__init__(n_rounds=1)


class Calls:
    """An engine that notes every call that it carries."""

    def __init__(self, engine):
        self.engine, self.seen = engine, []

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def exchange(self, calls, time_limit_s):
        self.seen += list(calls.items())
        return self.engine.exchange(calls, time_limit_s)


class Ear(Listener):
    def __init__(self):
        self.lost, self.left_out = {}, []

    def site_lost(self, site, reason):
        self.lost[site] = reason

    def sites_left_out(self, reasons):
        self.left_out.append(dict(reasons))


def complete(federation, work, **options):
    """Return what some work makes of the handle of a fit."""
    for attempt in federation.attempts(MoodySite, **options):
        with attempt as opened:
            found = work(opened)
    return found


@pytest.fixture(autouse=True)
def no_trouble():
    TROUBLE.clear()
    yield
    TROUBLE.clear()


def five_sites():
    return toy_sites(5)


def with_two_small():
    return {name: rows[:7] if name in UNWILLING else rows for name, rows in five_sites().items()}


def refuse(sites=UNWILLING, error=None, since=0):
    TROUBLE.update({site: (error or DisclosureRefused("too few in a cell"), since) for site in sites})


def fit(method=FedMean, sites=None, **options):
    with federate(five_sites() if sites is None else sites, **options) as federation:
        return method().fit(federation)


def fit_without(method, sites=None, without=UNWILLING, **options):
    """Fit while the sites named refuse, and see that this is said."""
    with pytest.warns(LeftOutWarning, match=f"^the result is without {len(without)} of 5 sites"):
        return fit(method, sites, **options, **LEAVE_OUT)


def reference(method=FedMean, names=WILLING, **options):
    """Fit over some of the sites, none of which refuses."""
    return fit(method, {name: rows for name, rows in five_sites().items() if name in names}, **options)


def assert_same(one, other):
    assert one.mean_.tobytes() == other.mean_.tobytes()
    assert one.history_ == other.history_


# What is said where a refusal ends the fit


@masked_or_not
def test_all_sites_with_few_patients_are_named_at_once_with_two_remedies(secure):
    with pytest.raises(DisclosureRefused) as caught:
        fit(sites=with_two_small(), secure_sum=secure)
    assert str(caught.value).startswith(f"refused by 2 of 5 sites (site-1, site-3): {FEW}. ")
    assert caught.value.refusals == dict.fromkeys(UNWILLING, FEW)
    assert "7" not in str(caught.value)
    for remedy in ("merge_sites", "multicentre docs small-sites", 'refusing_sites="leave_out"'):
        assert remedy in caught.value.hint
    assert "secure_sum" not in caught.value.hint


def test_147_of_1000_sites_are_one_paragraph_and_all_can_be_looked_up():
    sites = {f"s{i:04}": np.ones((7 if i % 6 == 5 and i < 6 * 147 else 12, 3)) for i in range(1000)}
    small = [name for name, rows in sites.items() if len(rows) == 7]
    with pytest.raises(DisclosureRefused) as caught:
        fit(sites=sites, secure_sum=False)
    assert str(caught.value).startswith(
        f"refused by 147 of 1,000 sites (s0005, s0011 and 145 more): {FEW}. Pool small sites"
    )
    assert not hasattr(caught.value, "__notes__")
    assert list(caught.value.refusals) == small


@pytest.mark.slow
def test_1000_sites_go_on_without_the_147_that_refuse():
    sites = {f"s{i:04}": np.full((7 if i < 147 else 12, 3), float(i)) for i in range(1000)}
    with pytest.warns(LeftOutWarning, match=r"without 147 of 1,000 sites, which refuse \(s0000, s0001 and 145 more: "):
        found = fit(OneRound, sites, secure_sum=False, **LEAVE_OUT)
    assert len(found.federation_.sites) == 853
    assert list(found.federation_.left_out) == list(sites)[:147]
    enough = {name: rows for name, rows in sites.items() if len(rows) == 12}
    assert_same(found, fit(OneRound, enough, secure_sum=False))


def test_the_terms_are_not_recommended_where_they_would_not_help():
    with pytest.raises(DisclosureRefused) as caught:
        fit(sites={name: rows[:7] for name, rows in five_sites().items()})
    assert "leave_out" not in caught.value.hint
    refuse(["site-1"], DataError("a bad column"))
    with pytest.raises(DataError) as caught:
        fit(MoodyMean)
    assert "leave_out" not in caught.value.hint
    with pytest.raises(DisclosureRefused) as caught:
        federate(with_two_small()).begin(MeanSite).ask(MeanSite.size, ASK)
    assert "leave_out" not in caught.value.hint


# What the result is without sites that refuse in time


@masked_or_not
def test_small_sites_are_as_if_they_were_not_in_the_roster(secure):
    found = fit_without(FedMean, with_two_small(), secure_sum=secure)
    assert_same(found, reference(secure_sum=secure))
    assert found.federation_.sites == WILLING
    assert found.federation_.left_out == dict.fromkeys(UNWILLING, FEW)
    assert repr(found.federation_).endswith("; without site-1, site-3)")


@masked_or_not
@pytest.mark.parametrize("quorum", ["all", 3])
def test_what_a_site_told_before_its_refusal_is_in_no_result(secure, quorum):
    refuse()
    found = fit_without(MoodyMean, secure_sum=secure, quorum=quorum)
    assert_same(found, reference(MoodyMean, secure_sum=secure))
    assert found.federation_.left_out == dict.fromkeys(UNWILLING, "too few in a cell")


@pytest.mark.parametrize("quorum", ["all", 2])
def test_no_site_masks_a_sum_twice_under_one_key_and_no_sum_of_an_ended_attempt_is_unmasked(quorum):
    refuse()
    with federate(five_sites(), quorum=quorum, **LEAVE_OUT) as federation:
        carried = Calls(federation.engine)
        federation = with_engine(federation, carried)
        with pytest.warns(LeftOutWarning):
            MoodyMean().fit(federation)
    masks = [(site, call.mask.agreement, call.mask.number) for site, call in carried.seen if call.mask is not None]
    assert len(set(masks)) == len(masks) == 5 + 4 * 3
    unmasked = {call.session for _, call in carried.seen if call.step.name == "unmask"}
    assert unmasked == ({"0.2"} if quorum == 2 else set())


def test_sites_that_refuse_one_after_another_are_all_left_out():
    sites = with_two_small()
    refuse(["site-0"])
    with pytest.warns(LeftOutWarning) as said:
        found = fit(MoodyMean, sites, **LEAVE_OUT)
    assert [str(one.message)[:33] for one in said] == [
        "the result is without 2 of 5 site",
        "the result is without 1 of 3 site",
    ]
    assert_same(found, reference(MoodyMean, ("site-2", "site-4")))
    assert found.federation_.left_out == {**dict.fromkeys(UNWILLING, FEW), "site-0": "too few in a cell"}


def test_the_listener_hears_of_sites_left_out_and_of_no_loss():
    ear = Ear()
    fit_without(FedMean, with_two_small(), listener=ear)
    assert ear.left_out == [dict.fromkeys(UNWILLING, FEW)]
    assert ear.lost == {}


def test_the_next_fit_asks_all_sites_again():
    with federate(five_sites(), **LEAVE_OUT) as federation:
        refuse()
        with pytest.warns(LeftOutWarning):
            MoodyMean().fit(federation)
        TROUBLE.clear()
        again = MoodyMean().fit(federation)
    assert federation.left_out == again.federation_.left_out == {}
    assert_same(again, reference(MoodyMean, tuple(five_sites())))


def test_a_plan_of_noise_that_a_site_refuses_costs_the_study_no_more_than_that_site(tmp_path):
    pytest.importorskip("opendp", reason="the extra dp is not installed")
    budgets = {site: 0.5 if site in UNWILLING else 1.0 for site in five_sites()}
    policy = {
        site: mc.Policy(epsilon=epsilon, account=str(tmp_path / f"{site}.jsonl")) for site, epsilon in budgets.items()
    }
    options = {"policy": policy, "one_row_per_patient": True, **LEAVE_OUT}
    with federate(five_sites(), **options) as federation, pytest.warns(LeftOutWarning):
        found = PrivateMean(epsilon=1.0).fit(federation)
    assert tuple(found.left_out_) == UNWILLING
    assert "budget" in found.left_out_["site-1"]
    paid = {site: [bool(e.get("epsilon")) for e in ledger.entries] for site, ledger in federation.ledgers.items()}
    assert {site: sum(releases) for site, releases in paid.items()} == {site: site in WILLING for site in budgets}


# Where a refusal ends the fit all the same


@masked_or_not
def test_fewer_sites_than_the_quorum_end_the_fit_and_name_those_that_refuse(secure):
    with pytest.raises(QuorumLost) as caught:
        fit(sites=with_two_small(), quorum=4, secure_sum=secure, **LEAVE_OUT)
    assert str(caught.value).startswith(f"site-1, site-3: 3 of 5 sites answered, the study needs 4; {FEW}. ")
    assert caught.value.refusals == dict.fromkeys(UNWILLING, FEW)
    assert isinstance(caught.value.refusal, DisclosureRefused)
    assert "leave_out" not in str(caught.value)


def test_all_means_all_that_do_not_refuse_and_a_masked_sum_needs_two():
    refuse(list(five_sites())[1:])
    with pytest.raises(QuorumLost, match="1 of 5 sites answered, the study needs 2"):
        fit(MoodyMean, **LEAVE_OUT)
    alone = fit_without(MoodyMean, without=list(five_sites())[1:], secure_sum=False)
    assert_same(alone, reference(MoodyMean, ("site-0",), secure_sum=False))


def test_data_that_cannot_be_used_end_the_fit_with_every_refusal_told():
    refuse(["site-1"], DataError("a bad column"))
    refuse(["site-3"])
    with pytest.raises(DataError, match=r"^site-1: a bad column") as caught:
        fit(MoodyMean, **LEAVE_OUT)
    assert caught.value.__notes__ == ["site-3: too few in a cell. [MC501]"]


@pytest.mark.parametrize("kind", [ProtocolRefused, ConfigurationError])
def test_a_broken_agreement_ends_the_fit(kind):
    refuse(["site-1"], kind("that was not agreed"))
    with pytest.raises(kind, match="that was not agreed"):
        fit(MoodyMean, **LEAVE_OUT)


def test_a_fit_that_cannot_be_made_without_a_site_ends():
    with federate(with_two_small(), **LEAVE_OUT) as federation, pytest.raises(DisclosureRefused, match="2 of 5 sites"):
        complete(federation, lambda opened: opened.ask(MoodySite.size, ASK), restarts=False)


def test_a_method_that_has_another_way_hears_the_refusal():
    def work(opened):
        try:
            with opened.handling_refusals():
                opened.sum(MoodySite.residuals, ASK)
        except DisclosureRefused:
            return "another way"

    refuse()
    assert complete(federate(five_sites(), **LEAVE_OUT), work) == "another way"


# After a sum with a site's summand was read


def test_a_site_that_refuses_later_is_lost_where_the_quorum_allows():
    ear = Ear()
    refuse(["site-1"], since=2)
    late = fit(MoodyMean, quorum=4, listener=ear, **LEAVE_OUT)
    assert late.federation_.sites == ("site-0", "site-2", "site-3", "site-4")
    assert late.federation_.left_out == {}
    assert list(ear.lost) == ["site-1"]
    assert "too few in a cell" in ear.lost["site-1"]
    TROUBLE.clear()
    lost = fit(MoodyMean, quorum=4, faults=Faults(lose={"site-1": 1 + 3 + 2 + 2}))
    assert_same(late, lost)


def test_a_site_that_refuses_later_ends_a_fit_that_needs_all():
    refuse(["site-1"], since=2)
    ear = Ear()
    with pytest.raises(QuorumLost, match=r"^site-1: 4 of 5 sites answered, the study needs 5; too few") as caught:
        fit(MoodyMean, listener=ear, **LEAVE_OUT)
    assert str(caught.value.refusal) == "site-1: too few in a cell. [MC501]"
    assert "lower the study's quorum" in caught.value.hint
    assert "Bring the site back" not in caught.value.hint
    assert ear.lost == {}


def test_a_refusal_after_a_loss_is_a_loss():
    refuse(["site-1"], since=2)
    with pytest.raises(QuorumLost, match=r"^site-1: 3 of 5 sites answered, the study needs 4") as caught:
        fit(MoodyMean, quorum=4, faults=Faults(lose={"site-3": 6}), **LEAVE_OUT)
    assert caught.value.refusal is None
    assert "Bring the site back" in caught.value.hint


def test_a_question_after_the_fit_is_refused_as_ever():
    with federate(five_sites(), **LEAVE_OUT) as federation:
        found = MoodyMean().fit(federation)
        refuse()
        with pytest.raises(DisclosureRefused, match="refused by 2 of 5 sites"):
            found.federation_.sum(MoodySite.residuals, ASK)


def test_a_site_in_a_sum_of_an_inner_fit_is_not_left_out_of_the_outer_one():
    def work(opened):
        complete(opened.federation, lambda inner: inner.sum(MoodySite.residuals, ASK))
        refuse(["site-1"])
        return opened.sum(MoodySite.residuals, ASK)

    with federate(five_sites(), **LEAVE_OUT) as federation, pytest.raises(QuorumLost, match=r"^site-1: 4 of 5"):
        complete(federation, work)


def test_an_inner_fit_after_the_sums_of_the_outer_one_loses_a_site_and_does_not_leave_it_out():
    def work(opened):
        opened.sum(MoodySite.residuals, ASK)
        refuse(["site-1"])
        return complete(opened.federation, lambda inner: inner.sum(MoodySite.residuals, ASK))

    with federate(five_sites(), **LEAVE_OUT) as federation, pytest.raises(QuorumLost, match=r"^site-1: 4 of 5"):
        complete(federation, work)


def test_an_inner_fit_leaves_a_site_out_and_then_the_outer_one_does():
    attempts = []

    def work(opened):
        attempts.append(opened.sites)
        inner = complete(opened.federation, lambda handle: handle.sum(MoodySite.residuals, ASK))
        return inner, opened.sum(MoodySite.residuals, ASK)

    refuse()
    with federate(five_sites(), **LEAVE_OUT) as federation, pytest.warns(LeftOutWarning):
        inner, outer = complete(federation, work)
    assert attempts == [tuple(five_sites()), WILLING]
    assert inner.n == outer.n == 30 + 32 + 34


# Answers of single sites


@pytest.mark.parametrize("terms", [{}, LEAVE_OUT])
def test_willing_answers_hold_the_reasons_of_sites_that_refuse(terms):
    opened = federate(with_two_small(), **terms).begin(MeanSite)
    answers = opened.ask(MeanSite.size, ASK, skip_refusals=True)
    assert tuple(answers) == WILLING
    assert answers.refused == dict.fromkeys(UNWILLING, FEW)
    assert len(opened.sites) == 5


def test_faults_are_raised_to_a_willing_method_too():
    refuse(["site-1"], DataError("a bad column"))
    with federate(five_sites()) as federation:
        opened = federation.begin(MoodySite)
        with pytest.raises(DataError, match=r"^site-1: a bad column"):
            opened.collect(MoodySite.residuals, ASK, skip_refusals=True)
        refuse(["site-1"], ProtocolRefused("not agreed"))
        with pytest.raises(RefusedByPolicy, match=r"^site-1: not agreed"):
            opened.collect(MoodySite.residuals, ASK, skip_refusals=True)


# Runs that are taken up again


@pytest.mark.parametrize(
    ("secure", "at"), [(secure, at) for secure, n in ((False, 7), (True, 11)) for at in range(1, n)]
)
def test_a_run_resumes_without_asking_the_sites_that_it_left_out(tmp_path, secure, at):
    refuse()
    terms = {"secure_sum": secure, "folder": tmp_path, **LEAVE_OUT}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        with pytest.raises(KeyboardInterrupt):
            fit(MoodyMean, faults=Faults(interrupt_at=at), **terms)
    with federate(five_sites(), **terms) as federation, pytest.warns(LeftOutWarning, match="without 2 of 5"):
        found = MoodyMean().fit(federation)
    refusals = [entry for entry in federation.ledgers["site-1"].entries if entry["event"] == "failure"]
    assert len(refusals) == 1
    assert found.federation_.left_out == dict.fromkeys(UNWILLING, "too few in a cell")
    assert_same(found, reference(MoodyMean, secure_sum=secure))


def test_a_resumed_run_does_not_leave_out_a_site_that_is_in_a_sum_already(tmp_path):
    terms = {"folder": tmp_path, **LEAVE_OUT}
    with pytest.raises(KeyboardInterrupt):
        fit(MoodyMean, faults=Faults(interrupt_at=5), **terms)
    refuse(["site-1"])
    with pytest.raises(QuorumLost, match=r"^site-1: 4 of 5 sites answered"):
        fit(MoodyMean, **terms)


# Terms


def test_terms_are_checked():
    with pytest.raises(ConfigurationError, match="refusing_sites must be one of 'stop', 'leave_out'; got 'ignore'"):
        Terms(refusing_sites="ignore")
    assert dataclasses.replace(Terms(), refusing_sites="leave_out").needed_of_willing(9, masked=True) == 2
    assert Terms().needed_of_willing(9, masked=True) == 9
    assert Terms(quorum=4, refusing_sites="leave_out").needed_of_willing(9, masked=True) == 4
