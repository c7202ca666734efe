import contextlib
import json
import threading

import pytest

pytest.importorskip("flwr")

from multicentre.engines.remote.socket import listen_at, receive_frame, send_frame
from multicentre.errors import MessageError
from multicentre_sites.flower import internal
from multicentre_sites.flower import server as module
from multicentre_sites.flower.handshake import SOCKET, greet_app, write_token
from multicentre_sites.flower.internal import grid as internal_grid
from multicentre_sites.flower.server import serve_grid
from support.local_grid import LocalGrid
from support.waiting import GENEROUS_S, wait_for


@pytest.fixture
def served(tmp_path):
    """The coordinator's end of a connection to an app that runs in a thread."""
    tmp_path.chmod(0o700)
    token, grid, failures = write_token(tmp_path), LocalGrid({"lyon": bytes.upper, "turin": bytes.upper}), []

    def serve():
        try:
            serve_grid(grid, tmp_path, 7)
        except Exception as failure:
            failures.append(failure)

    app = threading.Thread(target=serve)
    with listen_at(tmp_path / SOCKET) as listener:
        app.start()
        connection, _ = listener.accept()
        connection.settimeout(GENEROUS_S)
        with connection:
            yield connection, token, grid, failures
    app.join(GENEROUS_S)
    assert not app.is_alive()


def test_app_serves_letters_until_the_socket_closes(served):
    connection, token, grid, failures = served
    assert greet_app(connection, token, grid.keys) == 7
    send_frame(connection, {"kind": "request", "sites": {"lyon": 4}, "more": False}, b"abc")
    assert receive_frame(connection) == ({"kind": "reply", "site": "lyon", "number": 4}, b"ABC")
    connection.close()
    assert failures == []


def test_letters_sent_together_are_posted_with_the_last(served):
    connection, token, grid, failures = served
    greet_app(connection, token, grid.keys)
    send_frame(connection, {"kind": "request", "sites": {"lyon": 1}, "more": True}, b"abc")
    send_frame(connection, {"kind": "request", "sites": {"turin": 2}, "more": False}, b"def")
    came = [receive_frame(connection) for _ in range(2)]
    assert sorted((header["number"], reply) for header, reply in came) == [(1, b"ABC"), (2, b"DEF")]
    assert failures == []


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "order", "sites": {"lyon": 1}},
        {"kind": "request"},
        {"kind": "request", "sites": ["lyon"]},
        {"kind": "request", "sites": {"elsewhere": 1}},
    ],
)
def test_frame_that_is_no_letter_closes_the_connection(served, header):
    connection, token, grid, failures = served
    greet_app(connection, token, grid.keys)
    send_frame(connection, header, b"abc")
    assert receive_frame(connection) is None
    assert grid.pushed == []
    assert failures == []


def test_bytes_that_are_no_frame_close_the_connection(served):
    connection, token, grid, failures = served
    greet_app(connection, token, grid.keys)
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):  # bytes that nobody read
        assert receive_frame(connection) is None
    assert failures == []


def test_app_serves_no_one_who_cannot_prove_to_be_the_coordinator(served):
    connection, _, grid, failures = served
    with pytest.raises(MessageError):
        greet_app(connection, bytes(32), grid.keys)
    connection.close()
    wait_for(lambda: failures)
    assert isinstance(failures[0], MessageError)


def test_token_is_in_no_frame(served):
    connection, token, grid, _ = served
    seen = []

    class Tapped:
        def recv(self, size):
            seen.append(connection.recv(size))
            return seen[-1]

        def sendall(self, sent):
            seen.append(bytes(sent))
            connection.sendall(sent)

    greet_app(Tapped(), token, grid.keys)
    assert json.dumps(["lyon", "turin"])[1:5].encode() in b"".join(seen)
    assert token not in b"".join(seen)
    assert token.hex().encode() not in b"".join(seen)


def test_replies_are_faster_only_where_flwr_is_known(monkeypatch):
    grid, quick = LocalGrid({"lyon": bytes.upper}), object()
    monkeypatch.setattr(internal_grid, "hasten", lambda given: quick)
    monkeypatch.setattr(internal, "self_test", lambda: None)
    assert module._faster(grid) is quick
    monkeypatch.setattr(internal, "self_test", lambda: "flwr 9.9 was never tried")
    assert module._faster(grid) is grid
