"""Sites in threads: late steps, repeated calls, and the same numbers with and without the wire format."""

import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from toy_method import FedMean, Size, federate, toy_sites

from multicentre.federation.errors import DisclosureRefused, QuorumLost
from multicentre.federation.messages import Message, count
from multicentre.federation.steps import SitePart, step


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
    def work(self, ask: Turn) -> Size:
        """Work, slowly."""
        self.log.append((self.site, ask.number, "began"))
        if self.site == "site-1" and ask.number == 0:
            self.gate.wait(30.0)
        self.state = ask
        self.log.append((self.site, ask.number, "ended"))
        return Size(float(ask.number), patients=len(self.data))


@pytest.fixture(autouse=True)
def gate():
    SlowSite.gate, SlowSite.log = threading.Event(), []
    yield SlowSite.gate
    SlowSite.gate.set()


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


def test_a_late_step_writes_to_its_own_session_only(gate):
    federation = federate(quorum=2, time_limit_s=0.15)
    first = federation.begin(SlowSite)
    first.ask(SlowSite.work, Turn(0))
    part = federation._engine._runtimes["site-1"]._parts[(first.session, SlowSite)]
    second = federation.begin(SlowSite)
    gate.set()
    while second.sites != federation.sites or "site-1" not in second.ask(SlowSite.work, Turn(5)):
        second = federation.begin(SlowSite)
    other = federation._engine._runtimes["site-1"]._parts[(second.session, SlowSite)]
    assert (part.state.number, other.state.number) == (0, 5)


def test_a_site_that_hangs_does_not_keep_the_process_from_ending():
    code = (
        "import sys, time; sys.path.insert(0, 'tests')\n"
        "from test_hang import HangSite, Turn, federate\n"
        "federation = federate(quorum=2, time_limit_s=0.2).begin(HangSite)\n"
        "print(list(federation.ask(HangSite.work, Turn(0))))\n"
    )
    script = (
        code.replace("from test_hang import HangSite, Turn, federate\n", "from toy_method import *\n")
        .replace("HangSite", "MeanSite")
        .replace("federation.ask(MeanSite.work, Turn(0))", "federation.ask(MeanSite.size, Guess(np.zeros(3), 0))")
    )
    hang = "size = MeanSite.size.run\nobject.__setattr__(MeanSite.size, 'run', lambda part, ask: time.sleep(60) if part.site == 'site-1' else size(part, ask))\n"
    script = script.replace("federation = ", hang + "federation = ")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "['site-0', 'site-2']"
    assert done.stderr == ""


def test_an_uncollected_handle_at_exit_is_quiet():
    script = (
        "import sys; sys.path.insert(0, 'tests')\nfrom toy_method import *\n"
        "model = FedMean().fit(federate(time_limit_s=9.0)); print('done')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.strip(), done.stderr) == ("done", "")


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
    with pytest.raises(QuorumLost, match=r"site-1: no answer within 0\.05 seconds"):
        federate(only, time_limit_s=0.05).begin(SlowSite).ask(SlowSite.work, Turn(0))


def test_hundreds_of_sites():
    sites = {f"site-{i:03d}": np.full((10, 3), float(i)) for i in range(300)}
    model = FedMean(6).fit(federate(sites))
    assert model.history_[-1]["calls"] == 6 * 300
