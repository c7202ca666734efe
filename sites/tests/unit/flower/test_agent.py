"""The fast mode of a site, against a coordinator that loses, refuses and repeats."""

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from multicentre.errors import ConfigurationError, MessageError
from multicentre_sites.flower import agent as agents
from multicentre_sites.flower.agent import Agent
from multicentre_sites.flower.connection import AuthenticationError, Lost, RunEnded, Unfit
from multicentre_sites.flower.records import Memory
from support.waiting import GENEROUS_S

SECRET = "patient 12345 has 7.77"


class Coordinator:
    """Stands in for a connection: hands out letters, notes what comes back, fails as it is told."""

    def __init__(self, *letters: bytes) -> None:
        self.letters = list(letters)
        self.replies: list[object] = []
        self.calls: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self.bundle = "agreed"
        self.takes = True
        self.short, self.whole = True, False
        self.done = threading.Event()

    def __call__(self, address, *, root_certificates, private_key, stop):
        self.stop = stop
        return self

    def __getattr__(self, name: str):
        return lambda *given: self._take(name)

    def _take(self, name: str) -> None:
        self.calls.append(name)
        if self.failures.get(name):
            raise self.failures[name].pop(0)

    def activate(self) -> int:
        self._take("activate")
        return 7

    def bundle_hash(self, run_id: int) -> str:
        self._take("bundle_hash")
        return self.bundle

    def pull(self):
        self._take("pull")
        if not self.letters:
            self.done.set()
            return None
        letter = self.letters.pop(0)
        return SimpleNamespace(
            run_id=1, letter=letter, is_short=self.short, is_whole=self.whole, to_bytes=lambda: letter
        )

    def fetch(self, delivery) -> bytes:
        self._take("fetch")
        return delivery.letter

    def push(self, reply) -> bool:
        self._take("push")
        self.replies.append(reply)
        return self.takes


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Run an agent against a coordinator until all letters are answered, or something ended it."""
    monkeypatch.setattr(agents, "reply_with", lambda letter, delivery: letter)
    monkeypatch.setattr(agents, "refuse_unverified", lambda delivery: 7)
    monkeypatch.setattr(agents, "refuse_stopped", lambda delivery: 8)
    monkeypatch.setattr(agents, "_FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(agents, "_AWAY_S", 0.01)
    monkeypatch.setattr(agents, "_RETRY_S", 0.01)
    monkeypatch.setattr(agents, "_LEAVE_WITHIN_S", GENEROUS_S)
    left = SimpleNamespace(from_bytes=lambda kept: SimpleNamespace(kept=kept))
    monkeypatch.setattr(agents, "Delivery", left)

    def run(coordinator: Coordinator, handle=bytes.upper, **options) -> list[str]:
        monkeypatch.setattr(agents, "FleetLink", coordinator)
        told: list[str] = []
        agent = Agent(
            "host:443",
            root_certificates=tmp_path / "ca.crt",
            private_key=tmp_path / "key",
            handle=handle,
            refuse=lambda letter, error: letter + f" refused: {error}".encode(),
            approved={"agreed"}.__contains__,
            report=told.append,
            poll_s=0.01,
            **options,
        )
        stop = threading.Event()
        ending = threading.Thread(target=lambda: (coordinator.done.wait(GENEROUS_S), stop.set()))
        ending.start()
        try:
            agent.run(stop)
        finally:
            coordinator.done.set()
            ending.join()
        return told

    return run


def without_beats(calls: list[str]) -> list[str]:
    """Return the calls without the signs of life, which another thread gives at any time."""
    return [call for call in calls if call != "beat"]


def test_letters_are_answered_and_leave_is_taken(serve) -> None:
    coordinator = Coordinator(b"one", b"two")
    told = serve(coordinator)
    assert coordinator.replies == [b"ONE", b"TWO"]
    assert coordinator.calls[0] == "activate"
    assert without_beats(coordinator.calls)[-2:] == ["deactivate", "close"]
    assert coordinator.calls.count("bundle_hash") == 1
    assert told == ["Connected with host:443."]


@pytest.mark.parametrize(("short", "whole", "confirmed"), [(True, True, 0), (False, False, 2)])
def test_letters_in_parts_are_confirmed_at_once(serve, short: bool, whole: bool, confirmed: int) -> None:
    coordinator = Coordinator(b"one", b"two")
    coordinator.short, coordinator.whole = short, whole
    serve(coordinator)
    assert coordinator.replies == [b"ONE", b"TWO"]
    assert coordinator.calls.count("confirm") == confirmed


class Pausing(Coordinator):
    """Has no more letters, and is done once a site that waits has confirmed and polled again."""

    def pull(self):
        if not self.letters:
            self.calls.append("pull")
            if "confirm" in self.calls:
                self.done.set()
            return None
        return super().pull()


def test_a_site_that_waits_confirms_the_last_whole_letter(serve, monkeypatch) -> None:
    monkeypatch.setattr(agents, "_IDLE_S", 0.0)
    coordinator = Pausing(b"one", b"two")
    coordinator.whole = True
    serve(coordinator)
    assert coordinator.replies == [b"ONE", b"TWO"]
    assert without_beats(coordinator.calls).count("confirm") == 1


def test_bundle_that_is_not_approved_is_refused_unread(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.bundle = "other"
    told = serve(coordinator)
    assert coordinator.replies == [7]
    assert "fetch" not in coordinator.calls
    assert "other is not approved" in told[-1]


def test_text_of_an_exception_stays(serve) -> None:
    def handle(letter: bytes) -> bytes:
        raise ValueError(SECRET)

    coordinator = Coordinator(b"one")
    told = serve(coordinator, handle)
    assert coordinator.replies == [8]
    assert "ValueError" in told[-1]
    assert SECRET not in "".join(told)


def test_message_without_a_letter_is_refused(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"fetch": [MessageError("no letter")]}
    serve(coordinator)
    assert coordinator.replies == [8]


def test_reply_is_handed_in_again_until_it_is_taken(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"push": [Lost("no answer", unsaid=True), Lost("no connection")]}
    told = serve(coordinator)
    assert coordinator.replies == [b"ONE"]
    assert [line for line in told if "reached" in line] == [
        "host:443 cannot be reached (no answer); retrying.",
        "host:443 can be reached again.",
    ]


def test_letter_of_a_run_that_ended_is_dropped(serve) -> None:
    coordinator = Coordinator(b"one", b"two")
    coordinator.failures = {"fetch": [RunEnded()]}
    serve(coordinator)
    assert coordinator.replies == [b"TWO"]


def test_lost_poll_makes_the_lost_letter_come_back_to_its_sender(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"pull": [Lost("no answer", unsaid=True)]}
    serve(coordinator)
    gone = coordinator.calls.index("deactivate")
    assert "beat" in coordinator.calls[gone:]
    assert coordinator.replies == [b"ONE"]


def test_refused_connection_needs_no_leave(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"pull": [Lost("no connection")]}
    serve(coordinator)
    assert coordinator.calls.count("deactivate") == 1


def test_key_is_tried_while_patience_lasts(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"activate": [AuthenticationError(), AuthenticationError()]}
    told = serve(coordinator)
    assert coordinator.replies == [b"ONE"]
    assert told[0].startswith("The coordinator refuses this site")


@pytest.mark.parametrize(
    ("clock_off_s", "said"), [(None, "must be registered at the coordinator"), (40.0, "40 s ahead")]
)
def test_key_that_is_never_accepted_is_an_error(serve, clock_off_s: float | None, said: str) -> None:
    coordinator = Coordinator()
    coordinator.failures = {"activate": [AuthenticationError(clock_off_s)] * 1000}
    with pytest.raises(ConfigurationError, match=said) as caught:
        serve(coordinator, patience_s=0.05)
    assert caught.value.where == "host:443"
    assert caught.value.hint
    assert "deactivate" not in coordinator.calls


def test_foreign_certificate_ends_the_agent(serve) -> None:
    coordinator = Coordinator()
    coordinator.failures = {"activate": [ConfigurationError("the certificate is foreign")]}
    with pytest.raises(ConfigurationError, match="foreign"):
        serve(coordinator)


def test_unforeseen_failure_starts_anew(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"pull": [RuntimeError(SECRET)]}
    told = serve(coordinator)
    assert coordinator.replies == [b"ONE"]
    assert "failed (RuntimeError)" in "".join(told)
    assert SECRET not in "".join(told)


def test_site_that_was_removed_asks_to_be_let_in_again(serve) -> None:
    coordinator = Coordinator(b"one")
    coordinator.failures = {"pull": [AuthenticationError()], "resume": [AuthenticationError()]}
    serve(coordinator)
    assert coordinator.calls.count("activate") == 2
    assert coordinator.replies == [b"ONE"]


@pytest.mark.parametrize("begun", [False, True], ids=["unanswered", "reply begun"])
def test_return_after_a_crash_is_immediate_and_gives_up_the_letter(serve, tmp_path, begun: bool) -> None:
    path = tmp_path / "memory.json"
    memory = Memory.open(path)
    memory.keep(node_id=7)
    memory.begin(b"letter that killed")
    coordinator = Coordinator(b"one")
    coordinator.takes = not begun
    serve(coordinator, memory=path)
    assert coordinator.calls[0] == "resume"
    assert "activate" not in coordinator.calls
    assert coordinator.replies == [8, b"ONE"]
    assert coordinator.calls.count("deactivate") == 1 + begun
    assert Memory.open(path).under_way is None


def test_two_agents_do_not_share_a_memory(serve, tmp_path) -> None:
    coordinator = Coordinator(b"one")
    second = Coordinator()

    def handle(letter: bytes) -> bytes:
        with pytest.raises(ConfigurationError):
            serve(second, memory=tmp_path / "memory.json")
        return letter

    serve(coordinator, handle, memory=tmp_path / "memory.json")
    assert coordinator.replies == [b"one"]
    assert second.calls == []


def test_stop_does_not_wait_for_a_step_and_signs_of_life_go_on_beside_it(serve, monkeypatch) -> None:
    monkeypatch.setattr(agents, "BEAT_S", 0.05)
    coordinator = Coordinator(b"one")
    release = threading.Event()

    def handle(letter: bytes) -> bytes:
        beats = coordinator.calls.count("beat")
        while coordinator.calls.count("beat") < beats + 3:
            time.sleep(0.01)
        coordinator.done.set()
        release.wait(GENEROUS_S)
        return letter

    try:
        serve(coordinator, handle)
        assert without_beats(coordinator.calls)[-2:] == ["deactivate", "close"]
        assert coordinator.replies == []
    finally:
        release.set()


@pytest.mark.parametrize("announced", [False, True])
def test_answer_that_never_fits_the_link_is_replaced_by_its_reason(serve, announced: bool) -> None:
    coordinator = Coordinator(b"one")
    coordinator.takes = not announced  # one reply per message: the announced answer stands in the way
    coordinator.failures = {"push": [Lost("no answer", unsaid=True), Unfit(MessageError("9 MiB are too many"))]}
    told = serve(coordinator)
    assert coordinator.replies == [b"one refused: 9 MiB are too many. [MC802]"]
    assert "Failed to send an answer: 9 MiB are too many" in " ".join(told)
    assert coordinator.calls.count("deactivate") == 1 + announced  # the sender repeats the request


def test_proxy_that_requires_credentials_for_long_is_an_error_and_is_named_at_once(serve) -> None:
    coordinator = Coordinator(b"one")
    lasting = ConfigurationError("the proxy answers 407")
    coordinator.failures = {"beat": [], "pull": [Lost(lasting.what, lasting=lasting)] * 1000}
    coordinator.failures["beat"] = coordinator.failures["pull"]
    with pytest.raises(ConfigurationError, match="the proxy answers 407"):
        serve(coordinator, patience_s=0.05)
