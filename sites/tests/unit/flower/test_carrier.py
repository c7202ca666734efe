import hashlib
import random
import resource
import sys
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from multicentre.engines.remote.socket import Unreachable
from multicentre.errors import ConfigurationError
from multicentre_sites.flower import carrier as module
from multicentre_sites.flower.carrier import GridCarrier
from support.local_grid import LocalGrid, local_carrier
from support.waiting import GENEROUS_S


def backwards(letter):
    return letter[::-1]


def collect_all(carrier, count, limit_s=GENEROUS_S):
    came, end = {}, time.monotonic() + limit_s
    while len(came) < count and time.monotonic() < end:
        came |= carrier.collect(1.0)
    return came


def test_letters_come_back_from_the_sites_named():
    carrier = local_carrier({"lyon": backwards, "turin": bytes.upper})
    assert carrier.sites == ("lyon", "turin")
    carrier.send({"lyon": b"abc", "turin": b"abc"})
    assert collect_all(carrier, 2) == {"lyon": b"cba", "turin": b"ABC"}
    assert carrier.collect(5.0) == {}


def test_equal_letters_are_packed_once_and_sent_with_a_limited_life():
    grid = LocalGrid({"lyon": backwards, "turin": backwards, "porto": backwards})
    carrier = GridCarrier(grid, grid.keys, life_s=77.0)
    carrier.send({"lyon": b"abc", "turin": b"abc", "porto": b"other"})
    first, second, third = grid.pushed
    assert first.content is second.content
    assert third.content is not first.content
    assert {message.metadata.ttl for message in grid.pushed} == {77.0}
    assert {message.metadata.message_type for message in grid.pushed} == {"query"}


def test_site_that_is_not_connected_is_told_at_once():
    grid = LocalGrid({"lyon": backwards, "turin": backwards})
    grid.offline.add("turin")
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"turin": b"abc"})
    assert carrier.collect(0.0) == {"turin": Unreachable("offline")}
    assert grid.pushed == []


def test_site_that_leaves_and_comes_back_is_found_again():
    grid = LocalGrid({"lyon": backwards})
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": b"cba"}
    grid.offline.add("lyon")
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": Unreachable("offline")}
    carrier.send({"lyon": b"abc"})
    assert carrier.collect(0.0) == {"lyon": Unreachable("offline")}
    grid.offline.clear()
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": b"cba"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "stopped"),
        (1, "stopped"),
        (2, "stopped"),
        (3, "lost"),
        (4, "lost"),
        (5, "offline"),
        (6, "stopped"),
        (7, "unverified"),
        (8, "stopped"),
        (99, "stopped"),
    ],
)
def test_codes_of_flower_become_reasons_without_its_text(code, reason):
    grid = LocalGrid({"lyon": backwards})
    grid.errors["lyon"] = code
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": Unreachable(reason)}


def test_message_that_flower_refuses_is_lost():
    grid = LocalGrid({"lyon": backwards, "turin": backwards})
    grid.push_messages = lambda messages: [None for _ in messages]
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"lyon": b"abc", "turin": b"abc"})
    assert carrier.collect(0.0) == dict.fromkeys(("lyon", "turin"), Unreachable("lost"))
    grid.push_messages = lambda messages: []
    carrier.send({"lyon": b"abc"})
    assert carrier.collect(0.0) == {"lyon": Unreachable("lost")}


def test_nodes_outside_the_register_are_not_spoken_to():
    grid, stranger = LocalGrid({"lyon": backwards}), LocalGrid({"lyon": backwards})
    carrier = GridCarrier(grid, stranger.keys)
    carrier.send({"lyon": b"abc"})
    assert carrier.collect(0.0) == {"lyon": Unreachable("offline")}
    assert grid.pushed == []


def test_register_needs_a_readable_key_of_its_own_for_each_site():
    grid = LocalGrid({"lyon": backwards})
    with pytest.raises(ConfigurationError, match="lyon: the public key of a site must be"):
        GridCarrier(grid, {"lyon": "ecdsa-sha2-nistp384 nonsense"})
    with pytest.raises(ConfigurationError, match="same key"):
        GridCarrier(grid, {"lyon": grid.keys["lyon"], "turin": grid.keys["lyon"].removesuffix(" lyon")})
    with pytest.raises(ConfigurationError, match="requests must go to sites of the register"):
        GridCarrier(grid, grid.keys).send({"turin": b"abc"})


def test_new_letter_replaces_the_one_under_way():
    gate = threading.Event()

    def handle(letter):
        assert gate.wait(GENEROUS_S)
        return letter

    grid = LocalGrid({"lyon": handle})
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"lyon": b"first"})
    assert carrier.collect(0.05) == {}
    carrier.send({"lyon": b"second"})
    gate.set()
    assert collect_all(carrier, 1) == {"lyon": b"second"}
    assert not carrier.under_way
    grid.close()


def test_nothing_is_waited_for_after_closing():
    gate = threading.Event()
    carrier = local_carrier({"lyon": lambda letter: letter if gate.wait(GENEROUS_S) else b"late"})
    carrier.send({"lyon": b"abc"})
    carrier.close()
    assert carrier.collect(20.0) == {}
    gate.set()


def test_reply_that_is_no_letter_counts_as_a_site_that_stopped():
    app = ClientApp()

    @app.query()
    def answer(message, context):
        return Message(RecordDict({"payload": ConfigRecord({"body": "text"})}), reply_to=message)

    carrier = local_carrier({"lyon": app})
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": Unreachable("stopped")}


def test_polls_stay_a_small_share_of_the_time_waited(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    carrier = local_carrier({"lyon": backwards})
    carrier.send({"lyon": b"abc"})
    pauses = []
    for waited_s in (0.0, 4.0, 3600.0):
        clock.now = 1000.0 + waited_s
        pauses.append(carrier.pause_s)
    assert pauses == pytest.approx([0.05, 0.2, 0.5])


def test_no_poll_is_made_while_no_recent_letter_was_answered_as_soon(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    carrier = local_carrier({"lyon": backwards})
    for turnaround_s in (0.8, 0.4):
        carrier.send({"lyon": b"letter"})
        clock.now += turnaround_s
        while not carrier.collect(0.0):
            time.sleep(0.01)
    carrier.send({"lyon": b"letter"})
    assert carrier.pause_s == pytest.approx(0.3)
    clock.now += 0.29
    assert carrier.pause_s == pytest.approx(0.05)


@pytest.mark.slow
def test_two_hundred_megabytes_go_there_and_back():
    letter = random.Random(3).randbytes(200 * 10**6)
    digest = hashlib.sha256(letter).hexdigest()
    carrier = local_carrier({"lyon": lambda came: came if hashlib.sha256(came).hexdigest() == digest else b"changed"})
    before = peak_bytes()
    carrier.send({"lyon": letter})
    assert collect_all(carrier, 1)["lyon"] == letter
    assert peak_bytes() - before < 6 * len(letter)


def peak_bytes():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_reply_without_content_arrived_in_part():
    app = ClientApp()

    @app.query()
    def answer(message, context):
        return Message(RecordDict(), reply_to=message)

    carrier = local_carrier({"lyon": app})
    carrier.send({"lyon": b"abc"})
    assert collect_all(carrier, 1) == {"lyon": Unreachable("partial")}
