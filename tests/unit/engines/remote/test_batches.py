"""Several calls in one request: split, held, repeated, and lost with a restart as calls of their own."""

from functools import partial

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Refused
from multicentre.core.side_by_side import run
from multicentre.engines.remote import batches, engine, request_handler
from multicentre.engines.remote.batches import pack_several, unpack_outcomes, unpack_several
from multicentre.engines.remote.packing import Reply, Request
from multicentre.errors import MessageError
from support.remote_sites import ByHand, RequestHandlers
from support.toy_method import FedMean, Guess, MeanSite, federate, toy_sites

START = Guess(np.zeros(3), 7)
ROUNDS = (4, 2, 3)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


def fits(federation):
    branches = zip(federation.branches(len(ROUNDS)), ROUNDS, strict=True)
    return [one.tobytes() for one in run([lambda b=b, n=n: FedMean(n).fit(b).mean_ for b, n in branches])]


@pytest.fixture(scope="module")
def wanted():
    with federate() as federation:
        return fits(federation)


def mishaps(number):
    return {1: "unsent", 3: "unanswered", 4: "twice"}.get(number % 5)


@pytest.mark.parametrize("mishap", [lambda site, number: None, lambda site, number: mishaps(number)])
@pytest.mark.parametrize("split", ["neither", "requests", "calls", "replies"])
def test_batches_that_are_split_or_come_twice_are_carried_out_once(wanted, split, mishap, tmp_path, monkeypatch):
    if split == "requests":
        monkeypatch.setattr(batches, "MAX_BATCH", 1)
    if split == "calls":
        monkeypatch.setattr(batches, "MAX_CALLS", 2)
    if split == "replies":  # the second outcome is computed, and held until it is requested again
        monkeypatch.setattr(request_handler, "n_together", lambda sizes: 1)
    sites = RequestHandlers(toy_sites(), tmp_path)
    carrier = ByHand(sites.handles, mishap)
    with mc.Federation.over(carrier) as federation:
        assert fits(federation) == wanted
    for ledger in sites.ledgers.values():  # each step once
        calls = [(entry["session"], entry["call"]) for entry in ledger.entries if "call" in entry]
        assert len(calls) == len(set(calls)) == sum(ROUNDS) + len(ROUNDS) * 3


def test_a_site_that_restarts_loses_the_sessions_that_it_had_and_no_other(tmp_path):
    sites, letters = RequestHandlers(toy_sites(), tmp_path), []

    def mishap(site, number):
        if site == "site-1" and letters and number == letters[0]:
            sites.restart(site)

    carrier = ByHand(sites.handles, mishap)
    with mc.Federation.over(carrier, quorum=2, secure_sum=False) as federation:
        first, second = federation.branches(2)
        session = first.begin(MeanSite)
        session.ask(MeanSite.size, START)
        letters.append(carrier.sent["site-1"] + 1)
        answers = run(
            [partial(session.ask, MeanSite.size, START), lambda: second.begin(MeanSite).ask(MeanSite.size, START)]
        )
    assert [list(one) for one in answers] == [["site-0", "site-2"], ["site-0", "site-1", "site-2"]]


def test_a_site_holds_one_outcome_however_many_a_coordinator_leaves_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(request_handler, "n_together", lambda sizes: 1)
    sites = RequestHandlers(toy_sites(), tmp_path)
    with mc.Federation.over(ByHand(sites.handles), secure_sum=False) as federation:
        federation.begin(MeanSite).ask(MeanSite.size, START)
        handler = sites.handlers["site-1"]
        (name, run_at_site), number = next(iter(handler._runs.items())), 10**6
        for k in range(3):
            body = pack_several([b"no call", b"no call either %d" % k])
            attempt = run_at_site.opening.attempt
            reply = Reply.unpack(handler.handle(Request("calls", name, attempt, number + k, body=body).pack()))
            assert reply.kind == "answers"
            assert len(run_at_site.held) == 1


def test_one_malformed_call_of_a_batch_is_refused_and_the_others_are_answered(tmp_path, monkeypatch):
    encode = engine.encode_call

    def broken(call):
        return b"{}\n" if call.session.endswith("2.1") else encode(call)

    monkeypatch.setattr(engine, "encode_call", broken)
    carrier = ByHand(RequestHandlers(toy_sites(), tmp_path).handles)
    with mc.Federation.over(carrier, secure_sum=False) as federation:
        first, second = federation.branches(2)

        def refused():
            with pytest.raises(MessageError, match="readable"):
                second.begin(MeanSite).ask(MeanSite.size, START)

        answers, _ = run([lambda: first.begin(MeanSite).ask(MeanSite.size, START), refused])
        assert len(answers) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]\n",
        b'{"lengths": []}\n',
        b'{"lengths": [1, -1]}\n',
        b'{"lengths": [2]}\na',
        b'{"lengths": [1.0]}\na',
        b'{"lengths": [true]}\na',
        b'{"lengths": "1"}\na',
        pack_several([b""] * 1001),  # a small request for calls without end
    ],
)
def test_a_batch_without_its_lengths_is_refused(body):
    with pytest.raises(MessageError):
        unpack_several(body)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(1, "answer", b"x"),
        Reply(1, "closed", b"{}"),
        Reply(1, "answers", pack_several([b"answer\n", b"answer\n", b"answer\n"])),
        Reply(1, "answers", pack_several([b"opened\n"])),
        Reply(1, "answers", pack_several([b"\xff\n"])),
        Reply(1, "answers", b""),
    ],
)
def test_a_reply_that_does_not_answer_the_calls_is_a_refusal_of_all(reply):
    with pytest.raises(MessageError):
        unpack_outcomes(reply, 2)
    calls = [batches.WaitingCall(place, None, b"") for place in range(2)]
    outcomes = batches.outcomes_of("lyon", calls, reply)
    assert len(outcomes) == 2
    assert all(isinstance(one, Refused) and "lyon" in str(one.error) for one in outcomes)
