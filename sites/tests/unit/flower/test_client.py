import threading

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

from multicentre.engines.remote.socket import Unreachable, serve_socket
from multicentre_sites.flower.apps import client_app
from multicentre_sites.flower.carrier import GridCarrier
from multicentre_sites.flower.handshake import make_client_app, relay_to
from multicentre_sites.flower.records import pack_payload
from support.local_grid import LocalGrid


@pytest.fixture
def resident(tmp_path):
    """A site's resident process, as a thread: answers letters in capitals."""
    path, stop = tmp_path / "site" / "socket", threading.Event()

    def handle(letter):
        if letter == b"break":
            raise ValueError("patient 12345 has a bad value")
        return letter.upper()

    service = threading.Thread(target=serve_socket, args=(path, handle, stop))
    service.start()
    while not path.exists():
        assert service.is_alive()
    yield path
    stop.set()
    service.join(20.0)
    assert not service.is_alive()


def ask(grid, letter):
    carrier = GridCarrier(grid, grid.keys)
    carrier.send({"lyon": letter})
    return carrier.collect(20.0)


def test_installed_app_relays_to_the_resident_named_by_the_node(resident):
    grid = LocalGrid({"lyon": client_app}, {"requests": str(resident)})
    assert ask(grid, b"abc") == {"lyon": b"ABC"}


def test_resident_that_breaks_is_a_site_that_stopped(resident):
    grid = LocalGrid({"lyon": client_app}, {"requests": str(resident)})
    assert ask(grid, b"break") == {"lyon": Unreachable("stopped")}
    assert ask(grid, b"abc") == {"lyon": b"ABC"}


def replies_to(grid, records):
    (node,) = grid.get_node_ids()
    numbers = grid.push_messages([Message(records, node, "query")])
    grid.close()
    return grid.pull_messages(numbers)


@pytest.mark.parametrize("node_config", [{}, {"requests": "/nowhere/socket"}])
def test_node_without_a_resident_is_a_site_that_stopped(node_config):
    assert ask(LocalGrid({"lyon": client_app}, node_config), b"abc") == {"lyon": Unreachable("stopped")}


def test_no_text_of_an_exception_leaves_with_the_reply():
    def handle(letter):
        raise ValueError("patient 12345 has a bad value")

    (reply,) = replies_to(LocalGrid({"lyon": make_client_app(handle)}), pack_payload(b"abc"))
    assert not reply.has_error()
    assert dict(reply.content["failure"]) == {"reason": "stopped"}


def test_message_that_is_no_letter_is_not_handled():
    handled = []
    grid = LocalGrid({"lyon": make_client_app(handled.append)})
    (reply,) = replies_to(grid, RecordDict({"code": ConfigRecord({"run": "it"})}))
    assert dict(reply.content["failure"]) == {"reason": "stopped"}
    assert handled == []


def test_relay_answers_a_failure_instead_of_raising(tmp_path):
    assert relay_to(tmp_path / "socket")(b"abc") == Unreachable("stopped")
