import contextlib
import json
import os
import socket
import stat
import struct
import threading
import time

import pytest

from multicentre.engines.remote import socket as frames
from multicentre.engines.remote.socket import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    ask_socket,
    check_peer,
    connect_to,
    listen_at,
    receive_frame,
    send_frame,
    serve_socket,
)
from multicentre.errors import ConfigurationError, MessageError
from support.waiting import GENEROUS_S


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    for end in (one, other):
        end.settimeout(GENEROUS_S)
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def serve(tmp_path):
    """Start a service that answers letters; ended after the test."""
    started = []

    def start(handle, path=tmp_path / "private" / "socket"):
        stop = threading.Event()
        thread = threading.Thread(target=serve_socket, args=(path, handle, stop))
        thread.start()
        started.append((thread, stop))
        while not path.exists():
            assert thread.is_alive()
        return path

    yield start
    for thread, stop in started:
        stop.set()
        thread.join(GENEROUS_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("body", [b"", b"abc", bytes(5 * 2**20 + 7)])
def test_frame_arrives_as_sent(pair, body):
    sender = threading.Thread(target=send_frame, args=(pair[0], {"kind": "request", "n": 3}, body))
    sender.start()
    assert receive_frame(pair[1]) == ({"kind": "request", "n": 3}, body)
    sender.join()


def test_end_between_frames_is_an_end(pair):
    send_frame(pair[0], {"kind": "request"}, b"abc")
    pair[0].close()
    assert receive_frame(pair[1]) is not None
    assert receive_frame(pair[1]) is None


def framed(header, body=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(head)) + head + body


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00",
        struct.pack(">I", HEADER_BYTES + 1),
        struct.pack(">I", 10) + b"{",
        framed(b"not json"),
        framed(b"[" * 100_000),
        framed(b"\xff\xfe"),
        framed(["a", "list"]),
        framed({"kind": "request"}),
        framed({"size": "3"}, b"abc"),
        framed({"size": -1}),
        framed({"size": MAX_MESSAGE_BYTES + 1}),
        framed({"size": 3}, b"ab"),
    ],
)
def test_what_is_no_frame_is_refused(pair, sent):
    pair[0].sendall(sent)
    pair[0].close()
    with pytest.raises(MessageError):
        receive_frame(pair[1])


def test_frames_too_long_are_not_sent(pair):
    with pytest.raises(MessageError):
        send_frame(pair[0], {"kind": "x" * HEADER_BYTES})


def test_letters_are_answered_beside_each_other(serve):
    meeting = threading.Barrier(2, timeout=GENEROUS_S)

    def handle(letter):
        meeting.wait()
        return letter.upper()

    path = serve(handle)
    first = []
    other = threading.Thread(target=lambda: first.append(ask_socket(path, b"one", GENEROUS_S)))
    other.start()
    assert ask_socket(path, b"two", GENEROUS_S) == b"TWO"
    other.join()
    assert first == [b"ONE"]


def test_socket_and_folder_belong_to_this_account_alone(serve):
    path = serve(bytes.upper)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_handle_that_breaks_closes_its_connection_and_no_other(serve):
    path = serve(lambda letter: letter.upper() if letter != b"break" else 1 / 0)
    with pytest.raises(MessageError, match="gave no reply"):
        ask_socket(path, b"break", GENEROUS_S)
    assert ask_socket(path, b"abc", GENEROUS_S) == b"ABC"


def test_service_outlives_what_is_no_letter(serve):
    handled = []
    path = serve(lambda letter: handled.append(letter) or b"reply")
    for sent in (b"GET / HTTP/1.1\r\n\r\n", framed({"kind": "order", "size": 0}), b""):
        with connect_to(path) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):  # bytes that nobody read
                assert connection.recv(100) == b""
    assert handled == []
    assert ask_socket(path, b"abc", GENEROUS_S) == b"reply"


def test_reply_is_waited_for_within_a_limit(serve):
    gate = threading.Event()
    path = serve(lambda letter: letter if gate.wait(GENEROUS_S) else b"")
    with pytest.raises(TimeoutError):
        ask_socket(path, b"abc", 0.05)
    gate.set()


def test_service_ends_by_its_event_and_leaves_no_socket(tmp_path):
    path, stop = tmp_path / "private" / "socket", threading.Event()
    stop.set()
    serve_socket(path, bytes.upper, stop)
    assert not path.exists()


def test_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path):
    path = tmp_path / "private" / "socket"
    listen_at(path).close()
    assert path.exists()
    with listen_at(path), pytest.raises(ConfigurationError, match="already listens"):
        listen_at(path)


def test_other_file_in_its_place_is_kept(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "socket").write_text("mine")
    with pytest.raises(ConfigurationError, match="got another file"):
        listen_at(tmp_path / "socket")
    assert (tmp_path / "socket").read_text() == "mine"


def test_folder_open_to_others_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        listen_at(tmp_path / "socket")


def test_path_too_long_for_a_socket_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="shorter path"):
        listen_at(tmp_path / ("x" * 120) / "socket")


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell whose a peer is")
def test_peer_of_another_account_is_refused(pair, monkeypatch):
    check_peer(pair[0])
    monkeypatch.setattr(frames.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(MessageError, match="another account"):
        check_peer(pair[0])


def test_broken_asker_does_not_disturb_the_service(serve):
    done = threading.Event()

    def handle(letter):
        time.sleep(0.05)
        done.set()
        return bytes(2**22)

    path = serve(handle)
    with connect_to(path) as connection:
        send_frame(connection, {"kind": "request"}, b"abc")
    assert done.wait(GENEROUS_S)
    assert ask_socket(path, b"abc", GENEROUS_S) == bytes(2**22)
