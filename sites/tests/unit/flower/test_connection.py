"""What a site makes of refusals and failures on its way to the coordinator."""

import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from multicentre.errors import ConfigurationError
from multicentre_sites.flower.connection import (
    AuthenticationError,
    Lost,
    RunEnded,
    Unfit,
    do_for_each,
    read_failure,
    read_key,
    read_refusal,
    trust,
)
from support.waiting import GENEROUS_S


def test_key_that_is_not_activated_is_not_let_in() -> None:
    answer = httpx.Response(412, json={"code": 2004, "detail": "Failed to activate SuperNode."})
    assert isinstance(read_refusal(answer), AuthenticationError)


@pytest.mark.parametrize(("behind_s", "said"), [(0, False), (120, True)])
def test_clock_is_told_where_it_is_off(behind_s: int, said: bool) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=behind_s), usegmt=True)
    refusal = read_refusal(httpx.Response(401, headers={"date": date}))
    assert isinstance(refusal, AuthenticationError)
    assert (refusal.clock_off_s is not None) == said
    assert refusal.clock_off_s is None or -122 < refusal.clock_off_s < -118


def test_run_that_has_ended_is_over_but_a_proxy_that_forbids_is_not() -> None:
    assert isinstance(read_refusal(httpx.Response(403, json={"code": 2007, "detail": "no"})), RunEnded)
    assert isinstance(read_refusal(httpx.Response(403, text="<html>forbidden</html>")), Lost)


@pytest.mark.parametrize("answer", [httpx.Response(502), httpx.Response(307, headers={"location": "http://elsewhere"})])
def test_anything_else_may_succeed_later(answer: httpx.Response) -> None:
    refusal = read_refusal(answer)
    assert isinstance(refusal, Lost)
    assert refusal.unsaid


def _failed(kind: type[httpx.TransportError], cause: Exception | None) -> Exception:
    failure = kind("a text that is not told")
    failure.__cause__ = cause
    return read_failure(failure, "host:443")


def test_foreign_certificate_is_an_error_that_says_how_to_mend_it() -> None:
    error = _failed(httpx.ConnectError, ssl.SSLCertVerificationError("self-signed"))
    assert isinstance(error, ConfigurationError)
    assert error.where == "host:443"
    assert "fingerprint" in error.hint


def test_interrupted_handshake_may_succeed_later() -> None:
    error = _failed(httpx.ConnectError, ssl.SSLEOFError("eof"))
    assert isinstance(error, Lost)
    assert not error.unsaid


def test_lost_answer_may_have_been_an_answer() -> None:
    error = _failed(httpx.ReadError, None)
    assert isinstance(error, Lost)
    assert error.unsaid
    assert "not told" not in str(error)


def test_every_name_is_worked_on_once() -> None:
    done: list[str] = []
    names = [str(i) for i in range(50)]
    do_for_each(done.append, names)
    assert sorted(done) == sorted(names)


def test_failure_ends_the_work_and_is_raised() -> None:
    begun: list[str] = []
    gate = threading.Event()

    def work(name: str) -> None:
        begun.append(name)
        if name == "0":
            gate.set()
            raise Lost("no answer")
        gate.wait(GENEROUS_S)
        time.sleep(0.001)  # all names together take seconds, and the failure is noted meanwhile

    with pytest.raises(Lost):
        do_for_each(work, [str(i) for i in range(100_000)])
    assert len(begun) < 100_000


def test_unusable_files_are_named(tmp_path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(ConfigurationError, match="must be a readable"):
        read_key(absent)
    with pytest.raises(ConfigurationError, match="must be a readable"):
        trust(absent)
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ConfigurationError, match="PEM"):
        trust(tmp_path / "ca.crt")
    other = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with pytest.raises(ConfigurationError, match="NIST"):
        read_key(tmp_path / "key")


def test_part_that_a_proxy_rejects_by_its_size_is_named_with_limit_and_remedy() -> None:
    request = httpx.Request("POST", "https://host:443/v1/fleet/push-object", content=bytes(3 * 2**20))
    refusal = read_refusal(httpx.Response(413, request=request), "host:443")
    assert isinstance(refusal, Unfit)
    for text in ("3.0 MiB", "413", "host:443", "client_max_body_size 8m", "fewer columns"):
        assert text in str(refusal.error)
