import contextlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.connectivity import (
    FLEET_ROUTE,
    FORBIDDEN_ROUTES,
    AddressUnreachable,
    check_public_routes,
    is_healthy,
)
from support.coordinators import make_consortium
from support.ports import free_ports


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return make_consortium(tmp_path_factory.mktemp("connectivity") / "new")


@contextlib.contextmanager
def answering(consortium, answers, server="nginx", body=b"<html>"):
    """Answer as a proxy would: a status for each route, 404 for the others, 0 to cut the line."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = server, ""

        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = answers.get(self.requestline.split()[1], 404)  # as it was asked: path loses a doubled slash
            if status:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(consortium.superlink_certificate, consortium.superlink_key)
    listening = ThreadingHTTPServer(("127.0.0.1", consortium.settings.port), Handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def look(consortium, ca=None):
    check_public_routes("127.0.0.1", consortium.settings.port, ca or consortium.superlink_ca)


def test_fleet_routes_alone_are_well(consortium):
    with answering(consortium, {FLEET_ROUTE: 401, "/v1/fleet/register-node": 403, "/docs": 0}):
        look(consortium)


@pytest.mark.parametrize("route", [route for _, route in FORBIDDEN_ROUTES])
@pytest.mark.parametrize("status", [200, *(pytest.param(status, marks=pytest.mark.slow) for status in (401, 405))])
def test_any_other_answer_is_named(consortium, route, status):
    with answering(consortium, {FLEET_ROUTE: 401, route: status}), pytest.raises(ConfigurationError) as caught:
        look(consortium)
    assert not isinstance(caught.value, AddressUnreachable)
    assert caught.value.what.endswith(f"{route} ({status})")
    assert "proxy/site.conf" in caught.value.hint


@pytest.mark.parametrize(("server", "body"), [("uvicorn", b""), ("nginx", b'{"detail":"Not Found"}')])
def test_refusal_by_the_superlink_itself_is_no_fence(consortium, server, body):
    with (
        answering(consortium, {FLEET_ROUTE: 401}, server, body),
        pytest.raises(ConfigurationError, match="must refuse"),
    ):
        look(consortium)


@pytest.mark.parametrize("status", [502, 404, 0])
def test_superlink_out_of_reach_is_told(consortium, status):
    with (
        answering(consortium, {FLEET_ROUTE: status}),
        pytest.raises(AddressUnreachable, match="do not reach the SuperLink"),
    ):
        look(consortium)


def test_silence_is_told(consortium):
    with pytest.raises(AddressUnreachable, match="nothing answers"):
        look(consortium)


def test_only_the_consortiums_authority_is_trusted(consortium, tmp_path):
    other = make_consortium(tmp_path / "other")
    with (
        answering(consortium, {FLEET_ROUTE: 401}),
        pytest.raises(AddressUnreachable, match="issued by the consortium"),
    ):
        look(consortium, other.superlink_ca)


def test_health_is_that_of_the_superlink(consortium):
    assert not is_healthy("127.0.0.1", free_ports(1)[0], consortium.superlink_ca)
    with answering(consortium, {"/health": 200}):
        assert is_healthy("127.0.0.1", consortium.settings.port, consortium.superlink_ca)
    with answering(consortium, {}):
        assert not is_healthy("127.0.0.1", consortium.settings.port, consortium.superlink_ca)
