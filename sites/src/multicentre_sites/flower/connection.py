"""Connection of a site to its coordinator: trust, keys, and the meaning of failures."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S, PROXY_REFUSAL, proxy_refuses, too_large_for_proxy
from multicentre.errors import ConfigurationError, MessageError

_FEW, _AT_ONCE = 3, 2  # with more large parts at once, the SuperLink's database locks others out for too long
_HALF_SECOND = 0.5  # half the resolution of an HTTP date
_ACTIVATION_FAILED = 2004  # error code of Flower


class Lost(Exception):
    """The coordinator did not answer; the same request may succeed later.

    Parameters
    ----------
    what : str
        Description from a fixed list.
    unsaid : bool
        True if the request may have been carried out although no answer came.
    slow : bool
        True if the connection was open and the time was over.
    lasting : ConfigurationError, optional
        Error to raise if this does not pass by itself.
    """

    def __init__(
        self, what: str, *, unsaid: bool = False, slow: bool = False, lasting: ConfigurationError | None = None
    ) -> None:
        super().__init__(what)
        self.unsaid, self.slow, self.lasting = unsaid, slow, lasting


class Unfit(Exception):
    """Part of a message cannot pass the link, however often it is sent.

    Parameters
    ----------
    error : MessageError
        Size, limit and remedy.
    """

    def __init__(self, error: MessageError) -> None:
        super().__init__(error.what)
        self.error = error


class AuthenticationError(Exception):
    """The coordinator does not accept this site's key now; `clock_off_s` is set if the clocks differ too much."""

    def __init__(self, clock_off_s: float | None = None) -> None:
        super().__init__("not let in")
        self.clock_off_s = clock_off_s


class RunEnded(Exception):
    """The run that a message belongs to has ended, or the message itself is gone."""


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the site's private key."""
    hint = "Make a key with multicentre site keygen."
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        raise ConfigurationError(
            "the site's private key must be a readable OpenSSH key; got another file", where=str(path), hint=hint
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(
            "the site's private key must be on a NIST curve; got another kind of key", where=str(path), hint=hint
        )
    return key


def trust(root_certificates: Path) -> ssl.SSLContext:
    """Return a context that accepts certificates of this authority only."""
    try:
        context = ssl.create_default_context(cadata=root_certificates.read_text("ascii"))
    except (OSError, ValueError):
        raise ConfigurationError(
            "the authority's certificate must be a readable PEM file; got another file", where=str(root_certificates)
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def read_refusal(response: httpx.Response, address: str = "") -> Exception:
    """Return the exception for an answer without success."""
    status, code = response.status_code, _flower_code(response)
    if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return Unfit(too_large_for_proxy(len(response.request.content), address))
    if status == httpx.codes.UNAUTHORIZED:
        return AuthenticationError(_clock_off_s(response))
    if code == _ACTIVATION_FAILED:
        return AuthenticationError()
    if status == httpx.codes.FORBIDDEN and code is not None:
        return RunEnded()
    return Lost(f"the coordinator answers with status {status}", unsaid=True)


def read_failure(error: httpx.HTTPError, address: str) -> Exception:
    """Return the exception for a request without an answer."""
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return ConfigurationError(
            "the coordinator's certificate must be issued by the study's authority for this host; got another",
            where=address,
            hint="Compare the fingerprint of the authority's certificate with the coordinator by telephone, and ask "
            "for the current one; a proxy that decrypts TLS must exempt this address.",
        )
    if any(getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER" for cause in causes):
        return ConfigurationError(
            "the coordinator must use TLS at this address; got another protocol",
            where=address,
            hint="Check the host and the port.",
        )
    if isinstance(error, httpx.ProxyError) and str(error).startswith(PROXY_REFUSAL.split()[0]):
        refusal = proxy_refuses(address)
        return Lost(refusal.what, lasting=refusal)
    unsaid = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
    slow = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
    return Lost("no answer" if unsaid else "no connection", unsaid=unsaid, slow=slow)


def do_for_each(work: Callable[[str], None], names: Sequence[str]) -> None:
    """Run `work` for every name, a few at a time, on threads that never keep the process alive."""
    remaining = iter(names)
    lock = threading.Lock()
    failures: list[Exception] = []

    def take() -> None:
        while not failures:
            with lock:
                name = next(remaining, None)
            if name is None:
                return
            try:
                work(name)
            except Exception as error:
                failures.append(error)

    n_threads = len(names) if len(names) <= _FEW else _AT_ONCE
    threads = [threading.Thread(target=take, daemon=True) for _ in range(n_threads - 1)]
    for thread in threads:
        thread.start()
    take()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _flower_code(response: httpx.Response) -> int | None:
    try:
        code = json.loads(response.text)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None


def _clock_off_s(response: httpx.Response) -> float | None:
    try:
        off_s = (datetime.now(UTC) - parsedate_to_datetime(response.headers["date"])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
    off_s -= _HALF_SECOND  # the date may stand for any moment of its second
    return off_s if abs(off_s) > MAX_CLOCK_DIFFERENCE_S - _HALF_SECOND else None


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
