"""The analyst's end: starts the coordinator's app inside Flower by public commands, and speaks with it by a socket."""

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

from multicentre.engines.flower.handshake import SOCKET, greet_app, names_by_key, write_token
from multicentre.engines.flower.submission import Commands
from multicentre.engines.remote.socket import (
    REQUEST_FRAME,
    Reason,
    Unreachable,
    check_peer,
    listen_at,
    receive_frame,
    send_frame,
)
from multicentre.federation.errors import ConfigurationError, MessageError, MulticentreError

# An app that runs answers at once, so the limits stop only what hangs. On a machine with many processes per core, the
# import of Flower alone takes minutes.
_START_S = 600.0
_GREETING_S = 120.0
_GOODBYE_S = 5.0
_SENDING_S = 60
_LOOK_S = 0.2
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


class Bridge:
    """Carries requests through an app that runs inside Flower, and starts it again where it is lost.

    Parameters
    ----------
    sites : mapping from name to public key
        The register: keys as OpenSSH lines or PEM.
    submit : callable
        Given the folder where the app finds this process, returns the command that submits it
        (``flwr run ... --format json --run-config`` with `handshake.run_config`).
    stop : callable
        Given a run's number, returns the command that stops it (``flwr stop``).
    environment : mapping, optional
        Variables to put over this process's own for both commands; they are told with them.
    report : callable, optional
        Given each command as it is run, and what becomes of it, a line at a time.
    start_s : float, default 600
        Longest time that the submission and the start of the app may take.

    Raises
    ------
    ConfigurationError
        A key of the register cannot be read, the app could not be submitted, or it did not start in time.
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
        names_by_key(sites)  # what the app could not read would end it again and again
        self._register = dict(sites)
        self._submit, self._stop, self._report, self._start_s = submit, stop, report, start_s
        self._closed = threading.Event()
        self._commands = Commands(environment or {}, report, self._closed)
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._pending: dict[str, int] = {}
        self._held: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes | Unreachable] = {}
        self._connection: socket.socket | None = None
        self._run: int | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="multicentre-"))
        self._keeper = threading.Thread(target=self._keep, name="bridge", daemon=True)
        try:
            self._token = write_token(self._folder)
            self._listener = listen_at(self._folder / SOCKET)
            self._connect()
            self._keeper.start()
        except BaseException:
            self.close()
            raise

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the register's order."""
        return tuple(self._register)

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Post one request to each site named; while the app is being started again, requests wait for it."""
        if unknown := sorted(set(requests) - set(self._register)):
            raise ConfigurationError("a request to a site that is not in the register", where=", ".join(unknown))
        with self._changed:
            for site in requests:
                self._outcomes.pop(site, None)
                self._pending.pop(site, None)
            self._held |= requests
        self._post()

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return what came back since the last call, by site; wait at most `wait_s` seconds for the first."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._outcomes), wait_s)
            came, self._outcomes = self._outcomes, {}
        return came

    def close(self) -> None:
        """Let the app end, stop its run where it does not, and clear away the socket."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        if self._keeper.is_alive():
            self._keeper.join(_GOODBYE_S)
        self._hang_up()
        self._stop_run()
        if hasattr(self, "_listener"):
            self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _post(self) -> None:
        """Send what is held, where there is a connection; a request that several sites are sent goes over it once."""
        with self._sending:
            with self._changed:
                connection = self._connection
                if connection is None or not self._held:
                    return
                requests, self._held = self._held, {}
                numbers = {site: next(self._numbers) for site in requests}
                self._pending |= numbers
            together: dict[bytes, dict[str, int]] = {}
            for site, request in requests.items():
                together.setdefault(request, {})[site] = numbers[site]
            try:
                for left, (request, to) in zip(range(len(together) - 1, -1, -1), together.items(), strict=True):
                    send_frame(connection, {"kind": REQUEST_FRAME, "sites": to, "more": left > 0}, request)
            except OSError:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _keep(self) -> None:
        """Take what comes; where the connection breaks, start the app again until it stands or all is closed."""
        pauses: Iterator[float] = iter(())
        while not self._closed.is_set():
            if self._connection is not None:
                self._take_all(self._connection)
                ended = self._hang_up()
                if self._closed.is_set():
                    self._run = None if ended else self._run
                    return
                self._report("The app inside Flower was lost; it is started again.")
                pauses = itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1]))
            self._closed.wait(next(pauses))
            try:
                self._stop_run()
                self._connect()
                self._post()
            except MulticentreError as error:
                self._report(str(error))

    def _take_all(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, MessageError):
            while (frame := receive_frame(connection)) is not None:
                self._deliver(*frame)

    def _deliver(self, header: Mapping[str, object], body: bytes) -> None:
        site, came = str(header.get("site")), _read(header, body)
        with self._changed:
            if self._pending.get(site) == header.get("number"):
                del self._pending[site]
                self._outcomes[site] = came
                self._changed.notify_all()

    def _hang_up(self) -> bool:
        """Close the connection, report the requests that went over it as lost; return whether there was one."""
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
        """Submit the app and wait until it has come and proved itself."""
        end = time.monotonic() + self._start_s
        self._run = self._commands.submit(self._submit(self._folder), self._start_s)
        self._listener.settimeout(_LOOK_S)
        while time.monotonic() < end and not self._closed.is_set():
            with contextlib.suppress(OSError, MessageError):
                connection, _ = self._listener.accept()
                self._admit(connection)
                return
        raise ConfigurationError(
            f"the coordinator's app was submitted as run {self._run} and did not start within {self._start_s:.0f} s",
            hint="See that flower-superexec runs beside the SuperLink, under this account, and what `flwr log` tells.",
        )

    def _admit(self, connection: socket.socket) -> None:
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
    if header.get("kind") != "failure" or header.get("reason") not in get_args(Reason):
        raise MessageError("a frame that is no reply came over the bridge")
    return Unreachable(cast(Reason, header["reason"]))
