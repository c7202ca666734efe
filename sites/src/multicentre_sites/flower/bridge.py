"""Analyst's end of Flower: starts the coordinator's app with public commands and exchanges requests over a socket."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast, get_args

from multicentre.engines.remote.socket import (
    REQUEST_FRAME,
    CarrierReason,
    Unreachable,
    check_peer,
    listen_at,
    receive_frame,
    send_frame,
)
from multicentre.errors import ConfigurationError, MessageError, MulticentreError
from multicentre_sites.flower.handshake import SOCKET, greet_app, names_by_key, write_token
from multicentre_sites.flower.submission import Commands

# An app that runs answers at once: the limits only end processes that hang. On a machine with many processes per core,
# the import of Flower takes minutes.
_START_S = 600.0
# The app runs when it connects: two minutes suffice on a busy machine, and end a connection that stays silent.
_GREETING_S = 120.0
_GOODBYE_S = 5.0  # the results are complete; `flwr stop` ends an app that is slower
_SENDING_S = 60  # the app reads all the time; a busy machine may stop it for seconds
_POLL_S = 0.2  # short for a person, and no measurable load
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # each start costs seconds of processor time


class Bridge:
    """Carries requests through an app inside Flower, and restarts the app when it is lost.

    Parameters
    ----------
    sites : mapping from name to public key
        Keys as OpenSSH lines or PEM.
    submit : callable
        Takes the folder of the socket and returns the command that submits the app
        (``flwr run ... --format json --run-config`` with `handshake.run_config`).
    stop : callable
        Takes the number of a run and returns the command that stops it (``flwr stop``).
    environment : mapping, optional
        Variables that override those of this process for both commands; they are reported with them.
    report : callable, optional
        Receives each command before it is run, and its outcome, one line per call.
    start_s : float, default 600
        Time limit in seconds for the submission and the start of the app.

    Raises
    ------
    ConfigurationError
        A key cannot be read, the app could not be submitted, or it did not start in time.
    """

    def __init__(
        self,
        sites: Mapping[str, str],
        submit: Callable[[Path], Sequence[str]],
        *,
        stop: Callable[[int], Sequence[str]],
        environment: Mapping[str, str] | None = None,
        report: Callable[[str], None] = lambda line: None,
        start_s: float = _START_S,
    ) -> None:
        names_by_key(sites)  # a key that the app cannot read would end it at every restart
        self._register = dict(sites)
        self._submit, self._stop, self._report, self._start_s = submit, stop, report, start_s
        self._closed = threading.Event()
        self._commands = Commands(environment or {}, report, self._closed)
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._pending: dict[str, int] = {}
        self._queued: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes | Unreachable] = {}
        self._connection: socket.socket | None = None
        self._run: int | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="multicentre-"))
        self._thread = threading.Thread(target=self._run_bridge, name="bridge", daemon=True)
        try:
            self._token = write_token(self._folder)
            self._listener = listen_at(self._folder / SOCKET)
            self._connect()
            self._thread.start()
        except BaseException:
            self.close()
            raise

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of `sites`."""
        return tuple(self._register)

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Send one request to each of these sites; while the app restarts, requests wait for it."""
        if unknown := sorted(set(requests) - set(self._register)):
            raise ConfigurationError(
                f"requests must go to sites of the register; got {len(unknown)} other", where=", ".join(unknown)
            )
        with self._changed:
            for site in requests:
                self._outcomes.pop(site, None)
                self._pending.pop(site, None)
            self._queued |= requests
        self._send_queued()

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return the outcomes since the last call, by site; wait at most `wait_s` seconds for the first."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._outcomes), wait_s)
            outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    def close(self) -> None:
        """End the app, stop its run if it does not end, and remove the socket."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        if self._thread.is_alive():
            self._thread.join(_GOODBYE_S)
        self._disconnect()
        self._stop_run()
        if hasattr(self, "_listener"):
            self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send_queued(self) -> None:
        """Send the queued requests if there is a connection; a request to several sites is sent once."""
        with self._sending:
            with self._changed:
                connection = self._connection
                if connection is None or not self._queued:
                    return
                requests, self._queued = self._queued, {}
                numbers = {site: next(self._numbers) for site in requests}
                self._pending |= numbers
            sites_by_request: dict[bytes, dict[str, int]] = {}
            for site, request in requests.items():
                sites_by_request.setdefault(request, {})[site] = numbers[site]
            try:
                for left, (request, to) in zip(
                    range(len(sites_by_request) - 1, -1, -1), sites_by_request.items(), strict=True
                ):
                    send_frame(connection, {"kind": REQUEST_FRAME, "sites": to, "more": left > 0}, request)
            except OSError:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _run_bridge(self) -> None:
        """Receive outcomes; when the connection breaks, restart the app until it connects or the bridge is closed."""
        pauses: Iterator[float] = iter(())
        while not self._closed.is_set():
            if self._connection is not None:
                self._receive_all(self._connection)
                ended = self._disconnect()
                if self._closed.is_set():
                    self._run = None if ended else self._run
                    return
                self._report("The app inside Flower was lost; it is restarted.")
                pauses = itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1]))
            self._closed.wait(next(pauses))
            try:
                self._stop_run()
                self._connect()
                self._send_queued()
            except MulticentreError as error:
                self._report(str(error))

    def _receive_all(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, MessageError):
            while (frame := receive_frame(connection)) is not None:
                self._deliver(*frame)

    def _deliver(self, header: Mapping[str, object], body: bytes) -> None:
        site, outcome = str(header.get("site")), _read(header, body)
        with self._changed:
            if self._pending.get(site) == header.get("number"):
                del self._pending[site]
                self._outcomes[site] = outcome
                self._changed.notify_all()

    def _disconnect(self) -> bool:
        """Close the connection and mark its requests as lost; return False if there was none."""
        with self._changed:
            connection, self._connection = self._connection, None
            self._outcomes |= dict.fromkeys(self._pending, Unreachable("lost"))
            self._pending.clear()
            self._changed.notify_all()
        if connection is None:
            return False
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        return True

    def _connect(self) -> None:
        """Submit the app and wait until it has connected and proved its identity."""
        end = time.monotonic() + self._start_s
        self._run = self._commands.submit(self._submit(self._folder), self._start_s)
        self._listener.settimeout(_POLL_S)
        while time.monotonic() < end and not self._closed.is_set():
            with contextlib.suppress(OSError, MessageError):
                connection, _ = self._listener.accept()
                self._authenticate(connection)
                return
        raise ConfigurationError(
            f"the coordinator's app (run {self._run}) must start within {self._start_s:.0f} s; it did not",
            hint="Check that flower-superexec runs next to the SuperLink, under this account, and read `flwr log`.",
        )

    def _authenticate(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_GREETING_S)
            check_peer(connection)
            self._run = greet_app(connection, self._token, self._register)
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SENDING_S, 0))
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _stop_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._commands.run(self._stop(run))


def _read(header: Mapping[str, object], body: bytes) -> bytes | Unreachable:
    if header.get("kind") == "reply":
        return body
    if header.get("kind") != "failure" or header.get("reason") not in get_args(CarrierReason):
        raise MessageError("a frame from the app must be a reply or a failure; got another")
    return Unreachable(cast(CarrierReason, header["reason"]))
