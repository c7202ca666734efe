"""Connections that send nothing, or half a request, keep nobody else from an answer, and end by themselves."""

import contextlib
import re
import shutil
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
import uvicorn

from multicentre.engines.remote.socket import ask_socket, serve_socket
from multicentre_sites.deployment import analyst_service, bundle_server
from multicentre_sites.deployment.analyst_link import connect_to_service, expect_frame
from multicentre_sites.deployment.analyst_service import AnalystService
from multicentre_sites.deployment.bundle_server import BundleServer
from multicentre_sites.serve import connections
from multicentre_sites.serve.server import serve_folder
from support.coordinators import make_consortium
from support.ports import free_ports
from support.steward_pages import make_lyon
from support.waiting import GENEROUS_S, wait_for

N_STRANGERS = 300
LONG_S = 10 * GENEROUS_S  # no time limit helps a reader within the test
BEGINNINGS = (
    b"",
    b"GET / HTT",
    b"GET / HTTP/1.1\r\nHost: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
)


@pytest.fixture
def short():
    """A folder with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Yield a function that serves the pages of a site in a thread, and returns address, port and server."""
    servers, lines = [], []
    serving = uvicorn.Server

    def noted(settings):
        servers.append(serving(settings))
        return servers[-1]

    monkeypatch.setattr(uvicorn, "Server", noted)
    thread = threading.Thread(target=serve_folder, args=(make_lyon(tmp_path), 0, lines.append), daemon=True)

    def start():
        thread.start()
        wait_for(lambda: servers and servers[0].started)
        return lines[0], int(re.search(r":(\d+)/", lines[0]).group(1)), servers[0]

    yield start
    servers[0].should_exit = True
    thread.join(GENEROUS_S)


@contextlib.contextmanager
def strangers(connect, beginnings=BEGINNINGS):
    """Open many connections that never complete a request."""
    with contextlib.ExitStack() as stack:
        opened = []
        for number in range(N_STRANGERS):
            opened.append(stack.enter_context(connect()))
            with contextlib.suppress(OSError):  # the other end has closed it for a newer one
                opened[-1].sendall(beginnings[number % len(beginnings)])
        yield opened


def to_port(port):
    return lambda: socket.create_connection(("127.0.0.1", port), timeout=GENEROUS_S)


def to_path(path):
    def connect():
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))  # waits for room in the queue, which a socket with a time limit would not
        connection.settimeout(GENEROUS_S)
        return connection

    return connect


def is_cut(connection):
    """Send a byte; return True once the other end has closed."""
    try:
        connection.sendall(b"a")
        connection.setblocking(False)
        return connection.recv(2**16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(GENEROUS_S)


def test_pages_answer_behind_half_open_connections(pages, monkeypatch):
    monkeypatch.setattr(connections, "_REQUEST_WITHIN_S", LONG_S)
    address, port, server = pages()
    with strangers(to_port(port)):
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with browser.open(address, timeout=GENEROUS_S) as response:
            assert "lyon" in response.read().decode()
        assert len(server.server_state.connections) <= connections.MAX_CONNECTIONS


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_pages_end_a_connection_without_a_complete_request(pages, monkeypatch, beginning):
    monkeypatch.setattr(connections, "_REQUEST_WITHIN_S", 0.3)
    with to_port(pages()[1])() as slow:
        slow.sendall(beginning)
        wait_for(lambda: is_cut(slow))  # although it sends a byte from time to time


def test_bundles_are_served_behind_half_open_connections(monkeypatch):
    monkeypatch.setattr(bundle_server, "_REQUEST_WITHIN_S", LONG_S)
    (port,) = free_ports(1)
    server = BundleServer(port, dict)
    with contextlib.closing(server), strangers(to_port(port)), contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=GENEROUS_S)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_bundle_server_ends_a_connection_without_a_complete_request(monkeypatch, beginning):
    monkeypatch.setattr(bundle_server, "_REQUEST_WITHIN_S", 0.3)
    (port,) = free_ports(1)
    with contextlib.closing(BundleServer(port, dict)), to_port(port)() as slow:
        slow.sendall(beginning)
        wait_for(lambda: is_cut(slow))


def test_an_analyst_is_greeted_behind_half_open_connections(tmp_path, short, monkeypatch):
    monkeypatch.setattr(analyst_service, "_GREETING_S", LONG_S)
    path = short / "analysts"
    service = AnalystService(make_consortium(tmp_path / "coordinator"), path, lambda line: None)
    with contextlib.ExitStack() as stack:
        stack.callback(service.close, 1.0)
        stack.enter_context(strangers(to_path(path), (b"", b"\0\0")))
        connection = stack.enter_context(connect_to_service(path))
        assert expect_frame(connection, "hello")[0]["nonce"]
        assert not is_cut(connection)


def test_a_site_answers_behind_half_open_connections(short):
    path, stop = short / "requests", threading.Event()
    serving = threading.Thread(target=serve_socket, args=(path, lambda request: request[::-1], stop), daemon=True)
    serving.start()
    wait_for(path.exists)
    with strangers(to_path(path), (b"", b"\0\0")), contextlib.closing(to_path(path)()):  # all but 128 are accepted
        answers = []
        wait_for(lambda: answers or _asked(path, answers))
        assert answers == [b"cba"]
    stop.set()
    serving.join(GENEROUS_S)


def _asked(path, answers):
    """Ask once; the queue of the socket may be full for a moment."""
    with contextlib.suppress(BlockingIOError):
        answers.append(ask_socket(path, b"abc", GENEROUS_S))
