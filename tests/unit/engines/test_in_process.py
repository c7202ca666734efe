"""Sites in threads: late steps, repeated calls, and the same numbers with and without the wire format."""

import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core import side_by_side
from multicentre.core.messages import Message, count
from multicentre.core.steps import SitePart, step
from multicentre.engines import in_process
from multicentre.errors import DisclosureRefused, QuorumLost
from support.held_answers import HeldAnswers
from support.toy_method import FedMean, Size, federate, toy_sites
from support.waiting import GENEROUS_S, wait_for

TESTS = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Turn(Message):
    """Which call this is."""

    number: int = count("number of the call")


class SlowSite(SitePart):
    """Waits, at one site and for one call, until a test lets it go on."""

    method = "slow"
    holds = np.ndarray
    remembers = Turn
    gate: ClassVar[threading.Event]
    log: ClassVar[list]

    @step(releases=Size)
    def work(self, request: Turn) -> Size:
        """Work, slowly."""
        self.log.append((self.site, request.number, "began"))
        if self.site == "site-1" and request.number == 0:
            self.gate.wait(GENEROUS_S)
        self.state = request
        self.log.append((self.site, request.number, "ended"))
        return Size(float(request.number), patients=len(self.data))


@pytest.fixture(autouse=True)
def gate():
    SlowSite.gate, SlowSite.log = threading.Event(), []
    yield SlowSite.gate
    SlowSite.gate.set()


@pytest.fixture
def held(gate, monkeypatch):
    """Let a time limit pass once only the site that waits for the gate has not answered."""
    monkeypatch.setattr(in_process, "SimpleQueue", HeldAnswers)
    monkeypatch.setattr(HeldAnswers, "released", gate)


@pytest.mark.usefixtures("held")
def test_a_late_step_keeps_no_other_site_waiting_and_its_answer_is_dropped(gate):
    federation = federate(quorum=2, time_limit_s=0.15)
    first = federation.begin(SlowSite)
    assert list(first.ask(SlowSite.work, Turn(0))) == ["site-0", "site-2"]
    for session in range(4):  # the site's one thread is still busy; the others answer, every time
        handle = federation.begin(SlowSite)
        assert list(handle.ask(SlowSite.work, Turn(1 + session))) == ["site-0", "site-2"]
    gate.set()
    back = federation.begin(SlowSite)
    while len(back.sites) == 3 and "site-1" not in back.ask(SlowSite.work, Turn(9)):
        back = federation.begin(SlowSite)
    assert back.ask(SlowSite.work, Turn(10))["site-1"].n == 10.0
    turns = [number for site, number, what in SlowSite.log if site == "site-1" and what == "began"]
    assert turns == sorted(turns)
    begun = [entry[2] for entry in SlowSite.log if entry[0] == "site-1"]
    assert begun == ["began", "ended"] * (len(begun) // 2)


@pytest.mark.usefixtures("held")
def test_a_late_step_writes_to_its_own_session_only(gate):
    federation = federate(quorum=2, time_limit_s=0.15)
    first = federation.begin(SlowSite)
    first.ask(SlowSite.work, Turn(0))
    wait_for(lambda: ("site-1", 0, "began") in SlowSite.log)  # the time limit may pass before the site's thread runs
    part = federation.engine._runtimes["site-1"].sessions.parts[(first.name, SlowSite)]
    second = federation.begin(SlowSite)
    gate.set()
    while second.sites != federation.sites or "site-1" not in second.ask(SlowSite.work, Turn(5)):
        second = federation.begin(SlowSite)
    other = federation.engine._runtimes["site-1"].sessions.parts[(second.name, SlowSite)]
    assert (part.state.number, other.state.number) == (0, 5)


def test_after_an_interrupt_a_site_ends_its_step_before_it_begins_another(gate, monkeypatch):
    federation = federate()
    first, second = federation.begin(SlowSite), federation.begin(SlowSite)
    runtime = federation.engine._runtimes["site-0"]

    def interrupted(call):
        wait_for(lambda: ("site-1", 0, "began") in SlowSite.log)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first.ask(SlowSite.work, Turn(0))
    second.sites = ("site-1", "site-2")  # threads are shared, and others would now serve these sites
    again = threading.Thread(target=second.ask, args=(SlowSite.work, Turn(1)), daemon=True)
    again.start()
    again.join(0.2)  # long enough for a step that would not wait
    gate.set()
    again.join(GENEROUS_S)
    assert [entry[1:] for entry in SlowSite.log if entry[0] == "site-1"] == [
        (0, "began"),
        (0, "ended"),
        (1, "began"),
        (1, "ended"),
    ]


class HeldOnce(HeldAnswers):
    """Lets the step that the time limit cut off go on after that."""

    others = 4  # answers of two sites to two calls

    def get(self, timeout=None):
        try:
            return super().get(timeout)
        except Empty:
            self.released.set()
            raise


def test_a_late_step_is_lost_in_its_branch_and_the_next_call_of_the_batch_has_its_own_time(gate, monkeypatch):
    monkeypatch.setattr(in_process, "SimpleQueue", HeldOnce)
    monkeypatch.setattr(HeldAnswers, "released", gate)
    federation = federate(quorum=2, time_limit_s=0.15)
    sessions = [branch.begin(SlowSite) for branch in federation.branches(2)]
    late, timely = side_by_side.run(
        [partial(session.ask, SlowSite.work, Turn(turn)) for turn, session in enumerate(sessions)]
    )
    assert list(late) == ["site-0", "site-2"]
    assert list(timely) == ["site-0", "site-1", "site-2"]


def test_a_site_lost_in_one_branch_of_a_session_is_in_no_later_answer_of_the_others(gate, monkeypatch):
    """It answers the second call in time, but a third one would no longer be sent to it."""
    monkeypatch.setattr(in_process, "SimpleQueue", HeldOnce)
    monkeypatch.setattr(HeldAnswers, "released", gate)
    session = federate(quorum=2, time_limit_s=0.15).begin(SlowSite)
    late, timely = session.together([partial(session.ask, SlowSite.work, Turn(turn)) for turn in range(2)])
    assert list(late) == list(timely) == list(session.sites) == ["site-0", "site-2"]


def run(script):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {TESTS!r})\nfrom support.toy_method import *\n{script}",
        ],
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_site_that_hangs_does_not_keep_the_process_from_ending():
    script = """
import time
from multicentre.engines import in_process
from support.held_answers import HeldAnswers

in_process.SimpleQueue = HeldAnswers

class HangSite(MeanSite):
    @step(releases=Size)
    def size(self, request: Guess) -> Size:
        time.sleep(3600.0 if self.site == "site-1" else 0.0)
        return MeanSite.size.run(self, request)

federation = federate(quorum=2, time_limit_s=1.0).begin(HangSite)
print(list(federation.ask(HangSite.size, Guess(np.zeros(3), 0))))
"""
    assert run(script) == "['site-0', 'site-2']"


def test_an_uncollected_handle_at_exit_is_quiet():
    assert run("model = FedMean().fit(federate(time_limit_s=600.0)); print('done')") == "done"


@pytest.mark.parametrize("secure", [False, True])
def test_strict_gives_the_same_bits(secure):
    one = FedMean().fit(federate(secure_sum=secure))
    other = FedMean().fit(federate(secure_sum=secure, strict=True))
    assert one.mean_.tobytes() == other.mean_.tobytes()
    assert one.history_ == other.history_


def test_strict_refuses_in_the_same_words():
    said = []
    for strict in (False, True):
        with pytest.raises(DisclosureRefused) as caught:
            FedMean().fit(federate({"lyon": np.ones((5, 3)), "oslo": np.ones((50, 3))}, strict=strict))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_all_late_is_quorum_lost(gate):
    only = {"site-1": toy_sites()["site-1"]}
    with pytest.raises(QuorumLost, match=r"^site-1: 0 of 1 .*; no answer within 0\.05 seconds\."):
        federate(only, time_limit_s=0.05).begin(SlowSite).ask(SlowSite.work, Turn(0))


@pytest.mark.slow
def test_hundreds_of_sites():
    sites = {f"site-{i:03d}": np.full((10, 3), float(i)) for i in range(300)}
    model = FedMean(6).fit(federate(sites))
    assert model.history_[-1]["calls"] == 6 * 300
