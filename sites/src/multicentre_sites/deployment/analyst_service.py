"""Coordinator's service for analysts: authenticates each order and runs each study in a separate process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from multicentre.engines.remote.request_handler import MAX_RUNS
from multicentre.errors import ConfigurationError, MulticentreError, RefusedByPolicy
from multicentre_sites.deployment.analyst_link import Order, listen_for_analysts, receive_order, send_end
from multicentre_sites.deployment.analysts import AdmittedAnalysts
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.process import end_process_groups
from multicentre_sites.deployment.waiting_connections import WaitingConnections

_GREETING_S = 30.0  # an analyst's process sends its order at once; a busy machine may be slow
_MAX_GREETINGS = 32  # each connection without an order holds a thread
_POLL_S = 0.2  # short for a person, and no measurable load
PROGRAMME = ("-m", "multicentre_sites.deployment.analyst_run")
Report = Callable[[str], None]


class AnalystService:
    """Accepts orders of analysts at a coordinator's socket.

    Parameters
    ----------
    consortium : Consortium
    path : Path
        Path of the socket.
    report : callable
        Receives lines for the administrator.
    programme : tuple of str
        Arguments of Python for the process that runs a study.

    Raises
    ------
    ConfigurationError
        The socket cannot be created.
    """

    def __init__(
        self, consortium: Consortium, path: Path, report: Report, *, programme: tuple[str, ...] = PROGRAMME
    ) -> None:
        self._consortium, self._path, self._report, self._programme = consortium, path, report, programme
        self._admitted = AdmittedAnalysts(consortium.analysts)
        self._listener = listen_for_analysts(path)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._greetings = WaitingConnections(_MAX_GREETINGS, _GREETING_S)
        self._thread = threading.Thread(target=self._serve, name="analysts", daemon=True)
        self._thread.start()

    def close(self, within_s: float) -> None:
        """Stop accepting orders and interrupt the open runs, which can be resumed."""
        self._stop.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        self._listener.close()
        with self._lock:
            running = list(self._running)
        end_process_groups(running, within_s)

    def _serve(self) -> None:
        self._listener.settimeout(_POLL_S)
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                threading.Thread(target=self._receive, args=(connection,), name="analyst", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        process = None
        with contextlib.closing(connection):
            try:
                with self._greetings.hold(connection):
                    order = receive_order(connection, self._consortium.settings.loopback.superlink, self._report)
                process = self._started(connection, order)
            except MulticentreError as error:
                self._report(f"An analyst was refused: {error}")
                with contextlib.suppress(OSError):
                    send_end(connection, error.exit_code, error)
            except OSError:
                pass
        if process is not None:
            process.wait()
            with self._lock:
                self._running.remove(process)

    def _started(self, connection: socket.socket, order: Order) -> subprocess.Popen[bytes]:
        """Start the process of an admitted analyst's run, which uses the connection."""
        if order.card not in self._admitted.cards:
            raise RefusedByPolicy(
                f"the coordinator must have admitted the analyst; {order.card.name} with fingerprint "
                f"{order.card.fingerprint} is not on its list",
                where="analyst",
                hint="Its administrator compares the fingerprint: multicentre coordinator admit-analyst CARD.",
            )
        with self._lock:
            if self._stop.is_set() or len(self._running) >= MAX_RUNS:
                raise ConfigurationError(
                    f"the coordinator must run at most {MAX_RUNS} studies at a time; wait until one has ended",
                    where="analyst",
                )
            process = self._start(connection)
            self._running.append(process)
        self._report(f"Analyst {order.card.name} (fingerprint {order.card.fingerprint}) requests a run.")
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as orders:
            orders.write(order.pack())
        return process

    def _start(self, connection: socket.socket) -> subprocess.Popen[bytes]:
        handle = connection.fileno()
        log = self._consortium.logs / "analysts.log"
        with log.open("ab") as printed:
            return subprocess.Popen(
                [sys.executable, *self._programme, str(self._consortium.folder), str(handle)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env={**os.environ, "MPLBACKEND": "Agg"},
                pass_fds=(handle,),
                start_new_session=True,
            )
