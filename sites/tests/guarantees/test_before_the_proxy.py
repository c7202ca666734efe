"""Who has no key may hold up no site: limits of the proxy before anybody is authenticated, and its TLS."""

import contextlib
import re
import signal
import socket
import ssl
import subprocess

import pytest

from multicentre_sites.deployment.proxy import (
    CONNECTIONS,
    CONNECTIONS_PER_ADDRESS,
    REQUESTS_WAITING,
    TLS12_CIPHERS,
    nginx_command,
    render_site,
    render_standalone,
)
from support.coordinators import make_consortium
from support.proxies import needs_nginx
from support.waiting import GENEROUS_S, wait_for


def test_limits_stand_before_every_route_that_leads_to_the_superlink(tmp_path):
    page = render_site(make_consortium(tmp_path / "new"))
    server = page[page.index("server {") :]
    before = server[: server.index("location")]
    for line in (
        f"limit_conn multicentre_address {CONNECTIONS_PER_ADDRESS};",
        f"limit_conn multicentre_all {CONNECTIONS};",
        f"limit_req zone=multicentre_requests burst={REQUESTS_WAITING};",
        "client_header_timeout 10s;",
        "client_body_timeout 30s;",
    ):
        assert line in before
    routes = server[server.index("location") :]
    assert "limit_" not in routes.replace("limit_except", "")  # a location with one of its own would inherit none


def test_what_a_site_sends_too_fast_waits_and_does_not_fail():
    """Each connection has one request at a time: an address at its limit of connections fills no queue."""
    assert CONNECTIONS_PER_ADDRESS < REQUESTS_WAITING
    assert CONNECTIONS_PER_ADDRESS < CONNECTIONS


def test_an_nginx_of_its_own_has_connections_for_both_sides(tmp_path):
    (connections,) = re.findall(r"worker_connections (\d+);", render_standalone(make_consortium(tmp_path / "new")))
    assert int(connections) > 2 * CONNECTIONS


def test_ciphers_of_tls_1_2_are_authenticated_with_forward_secrecy(tmp_path):
    assert all(re.fullmatch(r"ECDHE-(ECDSA|RSA)-(AES\d+-GCM-SHA\d+|CHACHA20-POLY1305)", one) for one in TLS12_CIPHERS)
    page = render_site(make_consortium(tmp_path / "new"))
    assert f"ssl_ciphers {':'.join(TLS12_CIPHERS)};" in page
    assert "ssl_protocols TLSv1.2 TLSv1.3;" in page
    assert "ssl_session_tickets off;" in page


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """A consortium whose nginx runs, without what lies behind it."""
    consortium = make_consortium(tmp_path_factory.mktemp("proxy") / "coordinator")
    command = nginx_command(consortium)
    process = subprocess.Popen(command.arguments, start_new_session=True)
    try:
        wait_for(lambda: process.poll() is not None or _is_open(consortium.settings.port))
        assert process.poll() is None
        yield consortium
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(GENEROUS_S)


def _is_open(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def connected(consortium, *, version=None, ciphers=None):
    context = ssl.create_default_context(cafile=consortium.public / "ca.crt")
    if version is not None:
        context.maximum_version = version
    if ciphers is not None:
        context.set_ciphers(ciphers)
    plain = socket.create_connection(("127.0.0.1", consortium.settings.port), timeout=GENEROUS_S)
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


@needs_nginx
@pytest.mark.slow
def test_old_ciphers_are_refused_and_the_newest_protocol_is_taken(proxied):
    with connected(proxied) as new:
        assert new.version() == "TLSv1.3"
    with connected(proxied, version=ssl.TLSVersion.TLSv1_2) as older:
        assert older.version() == "TLSv1.2"
        assert older.cipher()[0] in TLS12_CIPHERS
    for ciphers in ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384"):
        with pytest.raises(ssl.SSLError):
            connected(proxied, version=ssl.TLSVersion.TLSv1_2, ciphers=ciphers)


@needs_nginx
@pytest.mark.slow
def test_one_address_holds_so_many_requests_open_and_no_more(proxied):
    began = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n"
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(connected(proxied)) for _ in range(CONNECTIONS_PER_ADDRESS + 8)]
        for one in many:
            one.sendall(began)
            one.setblocking(False)
        answers = dict.fromkeys(many, b"")

        def n_answered():
            for one in many:
                with contextlib.suppress(ssl.SSLWantReadError):
                    answers[one] += one.recv(100)
            return sum(map(bool, answers.values()))

        wait_for(lambda: n_answered() >= 8)
        assert n_answered() == 8  # the others' bodies are waited for
        assert all(answer.startswith(b"HTTP/1.1 429") for answer in answers.values() if answer)
