"""When the coordinator gives a site up, what it says of it, and what becomes of an answer that comes after that."""

import re
import time
from functools import partial
from types import SimpleNamespace

import pytest

import multicentre as mc
from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, REQUEST_LESS
from multicentre.core.rounds import Listener
from multicentre.engines.faults import Faults
from multicentre.engines.remote import engine
from multicentre.engines.remote import socket as unix_socket
from multicentre.engines.remote.socket import Unreachable
from multicentre.errors import MessageError, QuorumLost, RefusedByPolicy
from support.remote_sites import ByHand, RequestHandlers
from support.toy_method import FedMean, federate, toy_sites

LAST = "site-2"
FIRST_CALL = 2  # after the letter that opens the run


class Heard(Listener):
    """Notes who was lost, and why."""

    def __init__(self):
        self.lost, self.awaited = [], []

    def site_awaited(self, site, reason):
        self.awaited.append((site, reason))

    def site_lost(self, site, reason):
        self.lost.append((site, reason))


class Late(ByHand):
    """Keeps one site's replies back from a letter on, until another letter is sent."""

    def __init__(self, handles, since):
        super().__init__(handles)
        self.since, self.late = since, {}

    def send(self, letters):
        self.waiting |= self.late
        super().send(letters)
        if self.sent[LAST] >= self.since and LAST in letters:
            self.late = {LAST: self.waiting.pop(LAST)}


class Slow(ByHand):
    """Carries one site's replies over a link that needs its time, and drops what an earlier message brought."""

    def __init__(self, handles, seconds):
        super().__init__(handles)
        self.seconds, self.under_way, self.sent_at = seconds, {}, 0.0

    def send(self, letters):
        super().send(letters)
        if LAST in letters:
            self.under_way, self.sent_at = {LAST: self.waiting.pop(LAST)}, engine.time.monotonic()

    def collect(self, wait_s):
        if self.under_way and engine.time.monotonic() - self.sent_at > self.seconds:
            self.waiting |= self.under_way
            self.under_way = {}
        return super().collect(wait_s)


class Swallowing(ByHand):
    """Loses one reply, and says nothing of it."""

    swallowed = False

    def collect(self, wait_s):
        if self.sent[LAST] == FIRST_CALL and not self.swallowed:
            self.swallowed = self.waiting.pop(LAST, None) is not None
        return super().collect(wait_s)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only looks for replies move, so that no limit passes because the machine is busy."""
    now, collect = [time.monotonic()], ByHand.collect

    def ticking(carrier, wait_s):
        now[0] += 0.01
        return collect(carrier, wait_s)

    monkeypatch.setattr(ByHand, "collect", ticking)
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(engine, "_PAUSES_S", (0.01,))


def over(carrier, **options):
    heard = Heard()
    return mc.Federation.over(carrier, listener=heard, **options), heard


def fitted_without(since):
    with federate(quorum=2, faults=Faults(lose={LAST: since})) as federation:
        return FedMean().fit(federation).mean_.tobytes()


def test_a_site_is_given_up_once_it_was_out_of_reach_for_longer_than_the_patience(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    carrier = ByHand(sites.handles, lambda site, n: "unsent" if site == LAST and n > FIRST_CALL else None)
    federation, heard = over(carrier, quorum=2, patience_s=0.2)
    with federation:
        assert FedMean().fit(federation).mean_.tobytes() == fitted_without(1)
    ((site, reason),) = heard.lost
    assert site == LAST
    since = rf"{LAST}: not reached since \d\d:\d\d:\d\d UTC: the site is not connected\. "
    assert re.fullmatch(since + r"multicentre site check at the site names the cause: .* \[MC601\]", reason)
    assert f"a clock that is more than {MAX_CLOCK_DIFFERENCE_S:g} s off" in reason
    assert carrier.sent[LAST] > FIRST_CALL + 3


@pytest.mark.parametrize(("after_s", "told"), [(0.05, 1), (0.4, 0)])
def test_a_site_that_stays_out_of_reach_is_told_once_for_each_letter(tmp_path, monkeypatch, after_s, told):
    monkeypatch.setattr(engine, "_REPORT_AFTER_S", after_s)
    carrier = ByHand(RequestHandlers(toy_sites(), tmp_path).handles, lambda site, n: "unsent" if site == LAST else None)
    federation, heard = over(carrier, quorum=2, patience_s=0.25)
    federation.close()
    assert heard.awaited == told * [(LAST, "not connected (patience 0.25 s)")]


def test_sites_that_refuse_the_opening_are_told_together(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    for site in ("site-1", LAST):
        sites.services[site].open = partial(refuse, site)
    with pytest.raises(RefusedByPolicy, match="not approved") as refused:
        over(ByHand(sites.handles))
    assert str(refused.value).startswith(f"refused by 2 of 3 sites (site-1, {LAST}): not approved. ")


def refuse(site, *_):
    raise RefusedByPolicy("not approved", where=site)


def test_a_site_that_comes_back_in_time_is_not_lost(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    away = range(FIRST_CALL, FIRST_CALL + 5)
    carrier = ByHand(sites.handles, lambda site, n: "unsent" if site == LAST and n in away else None)
    federation, heard = over(carrier, patience_s=30.0)
    with federation, federate() as alone:
        assert FedMean().fit(federation).mean_.tobytes() == FedMean().fit(alone).mean_.tobytes()
    assert heard.lost == []


def test_an_answer_after_the_time_limit_is_dropped(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    federation, heard = over(Late(sites.handles, FIRST_CALL + 1), quorum=2, time_limit_s=0.3)
    with federation:
        assert FedMean().fit(federation).mean_.tobytes() == fitted_without(1)
    ((site, reason),) = heard.lost
    assert site == LAST
    assert re.match(rf"{LAST}: no answer since \d\d:\d\d:\d\d UTC within the time limit\.", reason)


def test_a_site_that_was_given_up_is_not_waited_for_again(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    carrier = ByHand(sites.handles, lambda site, n: "unsent" if site == LAST and n > FIRST_CALL else None)
    federation, heard = over(carrier, quorum=2, time_limit_s=0.2)
    with federation:
        FedMean().fit(federation)
        sent = carrier.sent[LAST]
        FedMean().fit(federation)
    assert carrier.sent[LAST] == sent + 1
    assert "the site is not connected" in heard.lost[0][1]


def test_without_a_site_that_is_needed_the_run_says_since_when(tmp_path):
    sites = RequestHandlers(toy_sites(), tmp_path)
    carrier = ByHand(sites.handles, lambda site, n: "unsent" if site == LAST and n > FIRST_CALL else None)
    federation, _ = over(carrier, patience_s=0.1)
    with federation, pytest.raises(QuorumLost, match="not reached since") as lost:
        FedMean().fit(federation)
    assert lost.value.exit_code == 6
    assert re.fullmatch(
        rf"{LAST}: 2 of 3 sites answered, the study needs 3; "
        r"not reached since \d\d:\d\d:\d\d UTC: the site is not connected\. "
        r"multicentre site check at the site names the cause: .*\. "
        r"Bring the site back and resume the run, or lower the study's quorum\. \[MC601\]",
        str(lost.value),
    )


def test_a_letter_of_which_nothing_is_heard_for_long_is_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_SILENT_S", 0.2)
    sites = RequestHandlers(toy_sites(), tmp_path)
    carrier = Swallowing(sites.handles)
    federation, heard = over(carrier)
    with federation, federate() as alone:
        assert FedMean().fit(federation).mean_.tobytes() == FedMean().fit(alone).mean_.tobytes()
    assert carrier.swallowed
    assert heard.lost == []


def test_a_reply_that_a_slow_link_carries_for_longer_than_the_repeats_still_arrives(tmp_path, monkeypatch):
    """With repeats at fixed intervals, every reply would belong to a message that was given up."""
    monkeypatch.setattr(engine, "_SILENT_S", 0.2)
    carrier = Slow(RequestHandlers(toy_sites(), tmp_path).handles, seconds=1.0)
    federation, heard = over(carrier)
    with federation, federate() as alone:
        assert FedMean().fit(federation).mean_.tobytes() == FedMean().fit(alone).mean_.tobytes()
    assert heard.lost == []


def test_a_request_that_no_carrier_takes_is_refused_with_its_size(tmp_path, monkeypatch):
    carrier = ByHand(RequestHandlers(toy_sites(), tmp_path).handles)
    monkeypatch.setattr(unix_socket, "MAX_MESSAGE_BYTES", 100)
    with pytest.raises(MessageError, match=r"a message must have at most 0\.0 MiB; got 0\.0 MiB") as raised:
        over(carrier)
    assert REQUEST_LESS in str(raised.value)
    assert set(carrier.sent.values()) == {0}


def test_an_answer_that_arrives_in_part_only_names_the_limits(tmp_path):
    carrier = ByHand(RequestHandlers(toy_sites(), tmp_path).handles)
    partly = carrier.collect
    carrier.collect = lambda wait_s: (
        partly(wait_s) | dict.fromkeys([LAST] if carrier.sent[LAST] >= FIRST_CALL else [], Unreachable("partial"))
    )
    federation, heard = over(carrier, quorum=2, patience_s=0.1)
    with federation:
        FedMean().fit(federation)
    ((site, reason),) = heard.lost
    assert site == LAST
    assert "answer arrived only in part. The site needs a link that carries 5 MiB within 300 s" in reason
    assert REQUEST_LESS in reason
