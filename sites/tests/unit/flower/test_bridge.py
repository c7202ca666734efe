"""The bridge with a ServerApp in a thread: only Flower's own commands are stood in for."""

import json
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from multicentre.engines.remote.socket import Unreachable, connect_to, receive_frame, send_frame
from multicentre.errors import ConfigurationError, MessageError
from multicentre_sites.flower import bridge as module
from multicentre_sites.flower import submission
from multicentre_sites.flower.apps import server_app
from multicentre_sites.flower.bridge import Bridge
from multicentre_sites.flower.handshake import greet_coordinator, run_config
from support.local_grid import LocalGrid
from support.waiting import GENEROUS_S, wait_for


def says(text, status=0):
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({status})"]


class Flower:
    """Stands in for a SuperLink: `submit` starts the app in a thread; what is stopped is noted in a file."""

    def __init__(self, folder, sites, app=None):
        self.grid = LocalGrid(sites)
        self.app = app or self.serve
        self.folders, self.apps, self.told = [], [], []
        self.stopped_file = folder / "stopped"

    def serve(self, folder, run):
        server_app(self.grid, Context(run, 1, {}, RecordDict(), {"bridge": str(folder)}))

    def submit(self, folder):
        run = 7 + len(self.folders)
        self.folders.append(folder)
        self.apps.append(threading.Thread(target=self.app, args=(folder, run), daemon=True))
        self.apps[-1].start()
        return says(json.dumps({"success": True, "run-id": str(run)}))

    def stop(self, run):
        return [sys.executable, "-c", f"open({str(self.stopped_file)!r}, 'a').write('{run} ')"]

    @property
    def stopped(self):
        return self.stopped_file.read_text().split() if self.stopped_file.exists() else []

    def bridge(self, **options):
        return Bridge(self.grid.keys, self.submit, stop=self.stop, report=self.told.append, **options)


@pytest.fixture
def flower(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PAUSES_S", (0.05,))
    monkeypatch.setattr(module, "_GOODBYE_S", GENEROUS_S)
    made = []

    def make(sites=None, app=None):
        made.append(Flower(tmp_path, sites or {"lyon": bytes.upper, "turin": lambda letter: letter[::-1]}, app))
        return made[-1]

    yield make
    for one in made:
        one.grid.close()
        for app in one.apps:
            app.join(GENEROUS_S)
            assert not app.is_alive()


def collect_all(carrier, count, limit_s=GENEROUS_S):
    came, end = {}, time.monotonic() + limit_s
    while len(came) < count and time.monotonic() < end:
        came |= carrier.collect(0.5)
    return came


def test_letters_cross_the_bridge_and_the_app_ends_with_it(flower):
    made = flower()
    bridge = made.bridge()
    assert bridge.sites == ("lyon", "turin")
    bridge.send({"lyon": b"abc", "turin": b"abc"})
    assert collect_all(bridge, 2) == {"lyon": b"ABC", "turin": b"cba"}
    bridge.send({"lyon": b"abc", "turin": b"other"})
    assert collect_all(bridge, 2) == {"lyon": b"ABC", "turin": b"rehto"}
    assert bridge.collect(0.0) == {}
    bridge.close()
    assert made.stopped == []
    assert not made.folders[0].exists()


@pytest.mark.slow
def test_large_letters_cross_in_both_directions_at_once(flower):
    made = flower({"lyon": bytes, "turin": bytes})
    bridge = made.bridge()
    letter = bytes(range(256)) * 30_000
    bridge.send({"lyon": letter, "turin": letter[:-1]})
    assert collect_all(bridge, 2) == {"lyon": letter, "turin": letter[:-1]}
    bridge.close()


def test_equal_letters_are_posted_together(flower):
    made = flower()
    bridge = made.bridge()
    bridge.send({"lyon": b"abc", "turin": b"abc"})
    collect_all(bridge, 2)
    bridge.close()
    first, second = made.grid.pushed
    assert first.content is second.content


def test_site_that_is_offline_is_told(flower):
    made = flower()
    made.grid.offline.add("turin")
    bridge = made.bridge()
    bridge.send({"lyon": b"abc", "turin": b"abc"})
    assert collect_all(bridge, 2) == {"lyon": b"ABC", "turin": Unreachable("offline")}
    bridge.close()


def test_command_is_told_as_it_is_run(flower, monkeypatch):
    made = flower()
    home = [sys.executable, "-c", "import os, json; print(json.dumps({'success': True, 'run-id': os.environ['RUN']}))"]
    bridge = Bridge(
        made.grid.keys,
        lambda folder: [made.submit(folder), home][1],
        stop=made.stop,
        environment={"RUN": "7", "FLWR_HOME": "/the coordinator"},
        report=made.told.append,
    )
    bridge.close()
    assert made.told[0].startswith(f"RUN=7 FLWR_HOME='/the coordinator' {sys.executable} -c ")


def test_configuration_of_the_run_names_the_folder_alone(tmp_path):
    assert run_config(tmp_path / 'a "b"') == f'bridge="{tmp_path}/a \\"b\\""'


@pytest.mark.parametrize(
    ("command", "match"),
    [
        (says('{"success": false, "error-message": "Connection\\nrefused"}', 1), "SuperLink \\(Connection refused\\)"),
        (
            says(json.dumps({"error-message": "a warning\n" * 50 + "It is down."}), 1),
            "a warning It is down\\)\\. Check",
        ),
        (says('{"success": true, "run-id": "x"}'), "could not be submitted"),
        (says('{"success": true, "run-id": "7"}', 1), "could not be submitted"),
        (says("Traceback"), "could not be submitted"),
        (["/nowhere/flwr"], "cannot be run"),
    ],
)
def test_submission_that_fails_is_told_and_leaves_nothing(flower, command, match):
    made, folders = flower(), []

    def submit(folder):
        folders.append(folder)
        return command

    with pytest.raises(ConfigurationError, match=match):
        Bridge(made.grid.keys, submit, stop=made.stop)
    assert not folders[0].exists()
    assert made.stopped == []


def sleeper(folder):
    """Return a command that never ends, and the file where it writes its number."""
    note = folder / "pid"
    code = f"import os, time; print(os.getpid(), file=open({str(note)!r}, 'w'), flush=True); time.sleep(3600)"
    return [sys.executable, "-c", code], note


def is_written(note):
    return note.exists() and note.read_text().endswith("\n")


def clock(has_come):
    """Return a clock that stands still until a condition holds, and passes every limit then."""
    return SimpleNamespace(monotonic=lambda: float("inf") if has_come() else 0.0)


def assert_ended(note):
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_submission_is_waited_for_within_a_limit(flower, tmp_path, monkeypatch):
    made, (command, note) = flower(), sleeper(tmp_path)
    monkeypatch.setattr(submission, "time", clock(lambda: is_written(note)))
    with pytest.raises(ConfigurationError, match="could not be submitted"):
        Bridge(made.grid.keys, lambda folder: command, stop=made.stop)
    assert_ended(note)


def test_register_that_cannot_be_read_submits_nothing(flower):
    made = flower()
    with pytest.raises(ConfigurationError, match="lyon: the public key of a site must be"):
        Bridge({"lyon": "no key"}, made.submit, stop=made.stop)
    assert made.folders == []


def test_app_that_never_comes_is_told_and_its_run_stopped(flower, monkeypatch):
    made, submit = flower(app=lambda folder, run: None), submission.Commands.submit
    submitted = threading.Event()

    def noted(commands, *given):
        run = submit(commands, *given)
        submitted.set()
        return run

    monkeypatch.setattr(submission.Commands, "submit", noted)
    monkeypatch.setattr(module, "time", clock(submitted.is_set))
    with pytest.raises(ConfigurationError, match="run 7\\) must start within"):
        made.bridge()
    assert made.stopped == ["7"]


@pytest.fixture
def heeded_interrupts():
    """Let SIGINT raise KeyboardInterrupt: what a shell runs in its background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
def test_interruption_while_the_app_starts_stops_its_run(flower, monkeypatch):
    def app(folder, run):
        with connect_to(folder / "socket") as connection:
            assert receive_frame(connection) is None

    monkeypatch.setattr(module, "check_peer", lambda connection: signal.raise_signal(signal.SIGINT))
    made = flower(app=app)
    with pytest.raises(KeyboardInterrupt):
        made.bridge()
    assert made.stopped == ["7"]
    assert not made.folders[0].exists()


def test_app_without_the_token_is_not_admitted(flower):
    refused = []

    def app(folder, run):
        stranger = folder.parent / f"{folder.name}-stranger"
        stranger.mkdir()
        (stranger / "token").write_bytes(bytes(32))
        with connect_to(folder / "socket") as connection:
            try:
                greet_coordinator(connection, stranger, run)
            except MessageError:
                refused.append(run)
        (stranger / "token").unlink()
        stranger.rmdir()
        made.serve(folder, run)

    made = flower(app=app)
    bridge = made.bridge()
    bridge.send({"lyon": b"abc"})
    assert collect_all(bridge, 1) == {"lyon": b"ABC"}
    assert refused == [7]
    bridge.close()


def test_app_that_proves_nothing_is_not_admitted(flower, monkeypatch):
    ended = []

    def app(folder, run):
        with connect_to(folder / "socket") as connection:
            send_frame(connection, {"kind": "hello", "nonce": "x", "run": str(run)})
            assert receive_frame(connection)[0]["kind"] == "challenge"
            send_frame(connection, {"kind": "proof", "proof": "0" * 64})
            ended.append(receive_frame(connection))

    made = flower(app=app)
    monkeypatch.setattr(module, "time", clock(lambda: ended))
    with pytest.raises(ConfigurationError, match="must start within"):
        made.bridge()
    assert ended == [None]


def breaking_app(made, breaks):
    """Serve letters; the first app breaks once `breaks` is set, as if its process were killed."""

    def app(folder, run):
        if breaks.is_set():
            return made().serve(folder, run)
        with connect_to(folder / "socket") as connection:
            greet_coordinator(connection, folder, run)
            assert breaks.wait(GENEROUS_S)
        return None

    return app


def test_broken_connection_loses_letters_and_starts_the_app_again(flower):
    breaks = threading.Event()
    made = flower(app=breaking_app(lambda: made, breaks))
    bridge = made.bridge()
    bridge.send({"lyon": b"abc", "turin": b"abc"})
    assert bridge.collect(0.05) == {}
    breaks.set()
    assert collect_all(bridge, 2) == dict.fromkeys(("lyon", "turin"), Unreachable("lost"))
    bridge.send({"lyon": b"abc"})
    assert collect_all(bridge, 1) == {"lyon": b"ABC"}
    bridge.close()
    assert made.stopped == ["7"]
    assert "The app inside Flower was lost; it is restarted." in made.told


def test_app_that_cannot_be_started_again_is_tried_until_the_bridge_closes(flower, monkeypatch):
    breaks = threading.Event()
    made = flower(app=breaking_app(lambda: made, breaks))
    tries = []

    def submit(folder):
        tries.append(folder)
        return made.submit(folder) if len(tries) in (1, 4) else says("{}", 1)

    bridge = Bridge(made.grid.keys, submit, stop=made.stop)
    breaks.set()
    bridge.send({"lyon": b"abc"})
    came = collect_all(bridge, 1)
    if came == {"lyon": Unreachable("lost")}:
        bridge.send({"lyon": b"abc"})
        came = collect_all(bridge, 1)
    assert came == {"lyon": b"ABC"}
    assert len(tries) == 4
    bridge.close()


def test_bridge_closes_while_the_app_is_being_started_again(flower, tmp_path):
    breaks = threading.Event()
    made, (command, note) = flower(app=breaking_app(lambda: made, breaks)), sleeper(tmp_path)
    bridge = Bridge(made.grid.keys, lambda f: command if made.folders else made.submit(f), stop=made.stop)
    bridge.send({"lyon": b"abc"})
    breaks.set()
    assert collect_all(bridge, 1) == {"lyon": Unreachable("lost")}
    wait_for(lambda: is_written(note) or not bridge._thread.is_alive())
    bridge.close()
    assert_ended(note)
    assert not made.folders[0].exists()


def test_app_that_does_not_end_is_stopped(flower, monkeypatch):
    monkeypatch.setattr(module, "_GOODBYE_S", 0.2)
    gate = threading.Event()

    def app(folder, run):
        with connect_to(folder / "socket") as connection:
            greet_coordinator(connection, folder, run)
            assert gate.wait(GENEROUS_S)

    made = flower(app=app)
    made.bridge().close()
    gate.set()
    assert made.stopped == ["7"]


def test_reply_to_a_letter_that_was_replaced_is_dropped(flower):
    gate = threading.Event()

    def app(folder, run):
        with connect_to(folder / "socket") as connection:
            greet_coordinator(connection, folder, run)
            first, second = receive_frame(connection)[0], receive_frame(connection)[0]
            for header, reply in ((first, b"late"), (second, b"right")):
                number = header["sites"]["lyon"]
                send_frame(connection, {"kind": "reply", "site": "lyon", "number": number}, reply)
            assert receive_frame(connection) is None
            gate.set()

    made = flower(app=app)
    bridge = made.bridge()
    bridge.send({"lyon": b"first"})
    bridge.send({"lyon": b"second"})
    assert collect_all(bridge, 1) == {"lyon": b"right"}
    assert bridge.collect(0.0) == {}
    bridge.close()
    assert gate.wait(GENEROUS_S)


def test_letter_to_a_site_outside_the_register_is_refused(flower):
    made = flower()
    bridge = made.bridge()
    with pytest.raises(ConfigurationError, match="requests must go to sites of the register"):
        bridge.send({"porto": b"abc"})
    bridge.close()
