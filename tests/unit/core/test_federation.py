"""What a coordinator may ask, what it does about sites that do not answer, and what two fits share: nothing."""

import contextlib
import copy
import dataclasses
import gc
import logging
import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Refused
from multicentre.core.messages import Message, text
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Terms
from multicentre.core.steps import SitePart, step
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    QuorumLost,
)
from support.toy_method import FedMean, Guess, MeanSite, Size, federate, toy_sites

ASK = Guess(np.zeros(3), 0)
SECRET = "patient 4711 has a haemoglobin of 6.2"


@dataclass(frozen=True)
class Order(Message):
    """What a site is to do."""

    what: str = text("what to do")


class RiskySite(SitePart):
    """Breaks in every way."""

    method = "risky"
    holds = np.ndarray

    @step(releases=Size)
    def act(self, request: Order) -> Size:
        """Break, refuse, or answer."""
        if self.site == "site-1":
            trouble = {"break": ValueError(SECRET), "exit": SystemExit(SECRET), "refuse": DataError("a bad column")}
            if request.what in trouble:
                raise trouble[request.what]
        return Size(1.0, patients=len(self.data))


class ChoosySite(SitePart):
    """Refuses everywhere but at the first site."""

    method = "choosy"
    holds = np.ndarray

    @step(releases=Size)
    def act(self, request: Order) -> Size:
        """Refuse, or answer."""
        if self.site != "site-0":
            raise DataError(f"{self.site} has a bad column")
        return Size(1.0, patients=len(self.data))


class SlySite(SitePart):
    """Answers for twelve patients at one site."""

    method = "sly"
    holds = np.ndarray

    @step(releases=Size)
    def act(self, request: Order) -> Size:
        """Answer."""
        return Size(1.0, patients=12 if self.site == "lyon" else len(self.data))


class Ear(Listener):
    def __init__(self):
        self.lost = {}

    def site_lost(self, site, reason):
        self.lost[site] = reason


def everything_said(error):
    """Return all that an error could carry along."""
    chain, seen = [error], []
    while chain:
        one = chain.pop()
        seen += [str(one), repr(one), repr(vars(one)), repr(one.args)]
        chain += [other for other in (one.__cause__, one.__context__) if other is not None]
    return " ".join(seen)


def test_ask_and_sum_go_only_where_they_are_declared():
    federation = federate().begin(MeanSite)
    with pytest.raises(ConfigurationError, match=r"residuals: .*must not be summed.*session\.sum"):
        federation.ask(MeanSite.residuals, ASK)
    with pytest.raises(ConfigurationError, match=r"size: .*not declared as summed.*session\.ask"):
        federation.sum(MeanSite.size, ASK)


def test_some_sites_are_asked_by_name():
    federation = federate().begin(MeanSite)
    each = dataclasses.replace(MeanSite.size, addressed="each")
    assert list(federation.ask(each, ASK, to=["site-2", "site-0", "site-2"])) == ["site-0", "site-2"]
    with pytest.raises(ConfigurationError, match="no such site takes part: lyon"):
        federation.ask(each, ASK, to=["lyon"])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("secure", [False, True])
def test_the_number_of_patients_behind_an_answer_does_not_travel(strict, secure):
    federation = federate(strict=strict, secure_sum=secure).begin(MeanSite)
    assert federation.sum(MeanSite.residuals, ASK).patients == {}
    assert {answer.patients == {} for answer in federation.ask(MeanSite.size, ASK).values()} == {True}


def test_the_sum_is_the_sum():
    sites = toy_sites()
    total = federate(sites).begin(MeanSite).sum(MeanSite.residuals, ASK)
    assert total.n == sum(len(rows) for rows in sites.values())
    assert np.allclose(total.total, 1.1 * sum(rows.sum(axis=0) for rows in sites.values()), atol=0.2)


def test_traffic_counts_bytes():
    federation = federate().begin(MeanSite)
    federation.ask(MeanSite.size, ASK)
    assert federation.traffic.calls == {"size": 1}
    assert federation.traffic.bytes_to_sites == {"size": 3 * (3 * 8 + 8)}
    assert federation.traffic.bytes_from_sites == {"size": 3 * 8}


@pytest.mark.parametrize("quorum", [0, -1, 4, "most", 2.5, True, None])
def test_a_quorum_that_cannot_be_met_is_refused(quorum):
    with pytest.raises(ConfigurationError, match="quorum"):
        federate(quorum=quorum)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_a_time_limit_must_be_positive(limit):
    with pytest.raises(ConfigurationError, match="time_limit_s"):
        Terms(time_limit_s=limit)


def test_a_federation_needs_sites_with_names_that_can_be_folders():
    with pytest.raises(ConfigurationError, match="number of sites, 0"):
        federate({})
    for name in ("", ".", "..", "a/b", "a\\b", "a|b", "a\nb", "\ud800", 3):
        with pytest.raises(ConfigurationError, match="printable"):
            federate({name: np.ones((30, 3))})


def test_a_lost_site_stays_out_for_the_session_and_is_back_in_the_next():
    ear = Ear()
    base = federate(quorum=2, listener=ear, faults=Faults(lose={"site-1": 0}))
    federation = base.begin(MeanSite)
    assert list(federation.ask(MeanSite.size, ASK)) == ["site-0", "site-2"]
    assert list(ear.lost) == ["site-1"]
    assert federation.sites == ("site-0", "site-2")
    assert len(federation) == 2
    assert federation.sum(MeanSite.residuals, ASK).n == 30 + 32
    assert base.begin(MeanSite).sites == base.sites == ("site-0", "site-1", "site-2")


@pytest.mark.parametrize(("quorum", "lose"), [("all", ["site-1"]), (2, ["site-1", "site-2"]), (1, list(toy_sites()))])
def test_fewer_sites_than_the_quorum_end_the_round(quorum, lose):
    federation = federate(quorum=quorum, faults=Faults(lose=dict.fromkeys(lose, 0))).begin(MeanSite)
    with pytest.raises(QuorumLost) as caught:
        federation.sum(MeanSite.residuals, ASK)
    assert caught.value.where == ", ".join(lose)
    assert f"{3 - len(lose)} of 3 sites answered" in caught.value.what
    assert str(caught.value).count("MC601") == 1
    assert str(caught.value).endswith(". [MC601]")
    assert caught.value.refusals == dict.fromkeys(lose, "no answer")
    assert caught.value.what.count("no answer") == 1


def test_sites_that_refuse_the_same_call_are_told_together():
    federation = federate().begin(ChoosySite)
    with pytest.raises(DataError, match=r"^site-1") as caught:
        federation.ask(ChoosySite.act, Order("anything"))
    assert caught.value.__notes__ == ["site-2 has a bad column. [MC302]"]


def test_a_late_site_is_a_lost_site():
    federation = federate(quorum=2, time_limit_s=5.0, faults=Faults(delay_s={"site-1": 9.0})).begin(MeanSite)
    assert list(federation.ask(MeanSite.size, ASK)) == ["site-0", "site-2"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("what", ["break", "exit"])
def test_a_step_that_breaks_is_a_loss_and_its_text_stays_at_the_site(what, strict, caplog):
    ear = Ear()
    with caplog.at_level(logging.CRITICAL, "multicentre"):
        federation = federate(quorum=2, listener=ear, strict=strict).begin(RiskySite)
        assert list(federation.ask(RiskySite.act, Order(what))) == ["site-0", "site-2"]
        assert "act of risky failed" in ear.lost["site-1"]
        assert SECRET not in ear.lost["site-1"]
        with pytest.raises(QuorumLost) as caught:
            federate(strict=strict).begin(RiskySite).ask(RiskySite.act, Order(what))
    assert SECRET not in everything_said(caught.value)


def test_the_sites_own_log_holds_the_details(caplog):
    with pytest.raises(QuorumLost, match=r"multicentre\.site\.site-1"):
        federate().begin(RiskySite).ask(RiskySite.act, Order("break"))
    assert SECRET in caplog.text
    assert {record.name for record in caplog.records} == {"multicentre.site.site-1"}


@pytest.mark.parametrize(("what", "kind"), [("break", "ValueError"), ("exit", "SystemExit"), ("refuse", "DataError")])
def test_a_step_that_breaks_is_in_the_sites_ledger(what, kind, caplog):
    federation = federate(quorum=1)
    with caplog.at_level(logging.CRITICAL, "multicentre"), contextlib.suppress(DataError):
        federation.begin(RiskySite).ask(RiskySite.act, Order(what))
    (entry,) = (one for one in federation.ledgers["site-1"].entries if one["event"] == "failure")
    assert (entry["step"], entry["reason"]) == ("act", kind)
    assert SECRET not in str(entry)


def test_a_refusal_is_no_loss():
    ear = Ear()
    federation = federate(quorum=1, listener=ear).begin(RiskySite)
    with pytest.raises(DataError, match=r"^site-1: a bad column"):
        federation.ask(RiskySite.act, Order("refuse"))
    assert ear.lost == {}
    assert len(federation.ask(RiskySite.act, Order("answer"))) == 3


def test_the_guards_refusal_reaches_the_coordinator_with_the_sites_name():
    sites = toy_sites() | {"lyon": np.ones((30, 3))}
    federation = federate(sites, policy=mc.Policy(min_patients=20))
    opened = federation.begin(SlySite)
    with pytest.raises(
        DisclosureRefused, match=r"^lyon, act, Size\.n: the answer must have at least 20 patients"
    ) as caught:
        opened.ask(SlySite.act, Order("anything"))
    assert "12" not in str(caught.value)
    (entry,) = federation.ledgers["lyon"].entries
    assert entry["event"] == "refusal"
    assert "the answer must have at least 20 patients" in entry["reason"]


def test_two_fits_share_nothing():
    federation = federate()
    one, two = FedMean().fit(federation), FedMean().fit(federation)
    assert one.mean_.tobytes() == two.mean_.tobytes()
    assert one.history_ == two.history_
    assert one.federation_.name != two.federation_.name


def test_a_fit_inside_a_fit_is_one_of_its_own():
    outer = federate().begin(MeanSite)
    outer.sum(MeanSite.residuals, ASK)
    inner = outer.federation.begin(MeanSite)
    assert inner.sum(MeanSite.residuals, ASK).calls == 3
    assert outer.sum(MeanSite.residuals, ASK).calls == 6


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_site_parts_are_forgotten_with_the_handle(secure):
    federation = federate(secure_sum=secure)
    runtimes = federation.engine._runtimes.values()
    handle = federation.begin(MeanSite)
    handle.sum(MeanSite.residuals, ASK)
    assert all(runtime.sessions.parts for runtime in runtimes)
    other = federation.begin(MeanSite)
    other.sum(MeanSite.residuals, ASK)
    del handle
    gc.collect()
    assert {key[0] for runtime in runtimes for key in runtime.sessions.parts} == {other.name}


@pytest.mark.slow
def test_a_federation_that_is_let_go_takes_its_threads_along():
    def names():
        return [thread for thread in threading.enumerate() if thread.name.startswith("site away-")]

    federation = federate({f"away-{i}": rows for i, rows in enumerate(toy_sites().values())}, time_limit_s=60.0)
    handle = federation.begin(MeanSite)
    handle.ask(MeanSite.size, ASK)
    threads = names()
    assert len(threads) == 3
    del federation, handle
    gc.collect()
    for thread in threads:
        thread.join(5.0)
    assert names() == []


def test_a_closed_federation_says_so():
    with federate() as federation:
        handle = federation.begin(MeanSite)
        handle.ask(MeanSite.size, ASK)
    with pytest.raises(ConfigurationError, match="is closed"):
        handle.ask(MeanSite.size, ASK)


def test_policy_by_site_and_columns_fail_closed():
    sites = toy_sites()
    with pytest.raises(ConfigurationError, match=r"^site-1: the site has no policy"):
        federate(sites, policy={"site-0": mc.Policy()})
    with pytest.raises(ConfigurationError, match=r"^site-0: the policy names columns, and ndarray has none"):
        federate(sites, policy=mc.Policy(columns=("age",)))


def test_sites_without_names_are_refused():
    with pytest.raises(ConfigurationError, match=r"^sites must be a mapping .*; got list"):
        mc.Federation.in_process(list(toy_sites().values()))


def test_a_policy_file_holds_for_every_site(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("min_patients = 31\n")
    with pytest.raises(DisclosureRefused, match=r"^site-0: the site has fewer patients than .* of 31"):
        federate(policy=path).begin(MeanSite).sum(MeanSite.residuals, ASK)


def test_a_ledger_that_was_edited_stops_the_federation(tmp_path):
    with federate(folder=tmp_path) as federation:
        federation.begin(MeanSite).ask(MeanSite.size, ASK)
    path = tmp_path / "sites" / "site-1" / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"records":31', b'"records":99'))
    with pytest.raises(IntegrityError, match="entry 1 must match its hash"):
        federate(folder=tmp_path)


def test_refusals_travel_as_errors_that_can_be_copied():
    refusal = Refused(DataError("x", where="lyon"))
    assert str(pickle.loads(pickle.dumps(refusal)).error) == str(copy.deepcopy(refusal).error) == str(refusal.error)
