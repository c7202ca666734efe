"""Process of one analyst's run at the coordinator: ``python -m multicentre_sites.deployment.analyst_run FOLDER FD``.

It runs under the coordinator's account. All paths and policies of the analyst's study are dropped, so that it opens no
file that the analyst names. Results are stored in a separate folder per analyst and sent over the connection.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from multicentre.core.parsing import parse_toml
from multicentre.core.rounds import Listener
from multicentre.engines.remote.opening import AnalystRequest, Opening
from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES, Carrier, receive_frame, send_frame
from multicentre.errors import ConfigurationError, MessageError, MulticentreError
from multicentre.reports import write_report
from multicentre.studies import RunFolder, Study, resume_run, run_study
from multicentre.studies.run_events import EVENTS
from multicentre.studies.saved_models import list_models
from multicentre.studies.study_file import study_from_mapping
from multicentre_sites.deployment.analyst_link import Order, pack_opening, send_end
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.site_connection import connect_sites

BUG, INTERRUPTED = 70, 130  # EX_SOFTWARE of sysexits.h; 128 + SIGINT
_SIGNING_S = 120.0  # no person is asked; a busy machine may be slow
_EVENTS_S = 2.0  # the record of a long run has megabytes, which a socket carries in milliseconds
_NOT_SENT = ("checkpoints", "run.lock")
Connect = Callable[[Path, Study], Carrier]


class Link:
    """Connection to the analyst, read by a thread: receives signatures and the request to stop the run."""

    def __init__(self, connection: socket.socket, stop: Callable[[], None]) -> None:
        self._connection, self._stop = connection, stop
        self._sending = threading.Lock()
        self._signed: queue.SimpleQueue[AnalystRequest] = queue.SimpleQueue()
        self.over = False
        threading.Thread(target=self._read, name="analyst", daemon=True).start()

    def send(self, header: Mapping[str, object], body: bytes = b"") -> None:
        """Send a frame; without effect if the analyst has disconnected."""
        with self._sending, contextlib.suppress(OSError):
            send_frame(self._connection, header, body)

    def report(self, line: str) -> None:
        """Send a line for the analyst's terminal."""
        self.send({"kind": "line"}, line.encode())

    def sign(self, opening: Opening, folder: str) -> AnalystRequest:
        """Request the analyst's signature of the opening of a run.

        Raises
        ------
        MessageError
            No signature arrived in time.
        """
        self.send({"kind": "sign", "folder": folder}, pack_opening(opening))
        try:
            return self._signed.get(timeout=_SIGNING_S)
        except queue.Empty:
            raise MessageError(
                f"the analyst's process must sign the run within {_SIGNING_S:g} s; it did not", where="analyst"
            ) from None

    def end(self, status: int, error: MulticentreError | None = None) -> None:
        """Send the end of the run."""
        self.over = True
        with self._sending, contextlib.suppress(OSError):
            send_end(self._connection, status, error)

    def _read(self) -> None:
        with contextlib.suppress(OSError, MulticentreError, KeyError):
            while (frame := receive_frame(self._connection)) is not None:
                header = dict(frame[0])
                if header.pop("kind", None) != "signed":
                    break
                self._signed.put(AnalystRequest.from_dict(header))
        if not self.over:
            self._stop()


class Relay(Listener):
    """Sends progress to the analyst while the study runs: lines, and the record of events for ``multicentre watch``.

    Parameters
    ----------
    link : Link
    output : Path
        Folder of the order, which contains the run's folder.
    """

    def __init__(self, link: Link, output: Path) -> None:
        self._link, self._report, self._output = link, link.report, output
        self._sent = -math.inf

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Send the record of events."""
        self._send_events()

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Send the record of events."""
        self._send_events()

    def rounds_ended(self, name: str, number: int) -> None:
        """Report the number of rounds of a loop."""
        self._report(f"{name}: {number} rounds")
        self._send_events()

    def site_lost(self, site: str, reason: str) -> None:
        """Report a lost site."""
        self._report(f"lost {site}: {reason}")

    def site_awaited(self, site: str, reason: str) -> None:
        """Report a site that is awaited."""
        self._report(f"waiting for {site}: {reason}")

    def _send_events(self) -> None:
        """Send the record as a whole, at most every few seconds; the analyst's process replaces its copy."""
        if time.monotonic() - self._sent < _EVENTS_S:
            return
        with contextlib.suppress(OSError, ConfigurationError):
            path = _only_run(self._output).path / EVENTS
            self._link.send({"kind": "file", "path": EVENTS}, path.read_bytes())
        self._sent = time.monotonic()


def carry_out(consortium: Consortium, order: Order, link: Link, connect: Connect) -> None:
    """Run or resume an analyst's study, and send its files and its end."""
    output = consortium.runs / order.card.fingerprint / order.token
    status, problem = 0, None
    try:
        with _warnings_to(link):
            _run(consortium, order, output, link, connect)
            write_report(_only_run(output).path)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except MulticentreError as error:
        status, problem = error.exit_code, error
        for note in getattr(error, "__notes__", []):
            if str(consortium.folder) not in note:  # the analyst cannot use a path of the coordinator
                link.report(note)
    except Exception:
        link.over = True
        link.end(BUG, ConfigurationError("the coordinator's process failed; its log analysts.log holds the details"))
        raise
    link.over = True  # a second Ctrl-C of the analyst must not interrupt the files that follow
    with contextlib.suppress(ConfigurationError):
        send_files(_only_run(output).path, link)
    link.end(status, problem)


def read_order(order: Order, output: Path) -> Study:
    """Return the study of an order without the paths that the analyst chose.

    Raises
    ------
    ConfigurationError
        The content is not a valid study, or a parameter is a fitted model.
    """
    content = parse_toml(order.study, "the study", "study")
    study = study_from_mapping(content, folder=output)
    _check_models_are_held(study)  # before any path in the order is read
    privacy = study.privacy.model_copy(update={"policy": None, "sites": {}})
    return study.model_copy(update={"sites": {site: {} for site in study.sites}, "privacy": privacy}).with_output(
        output
    )


def _check_models_are_held(study: Study) -> None:
    """Raise ConfigurationError unless the study holds its models."""
    for part in study.split().values():
        for model in list_models(part.parameters):
            if model.content is None:
                raise ConfigurationError(
                    "an order must hold its models; it names a file", where=f"parameters.{model.parameter}"
                )


def send_files(folder: Path, link: Link) -> None:
    """Send the files of a run, except those that only a resume needs."""
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if not path.is_file() or path.is_symlink() or place.parts[0] in _NOT_SENT:
            continue
        if path.stat().st_size > MAX_MESSAGE_BYTES:
            link.report(f"{place} is too large to send; ask the coordinator's administrator for it.")
            continue
        link.send({"kind": "file", "path": place.as_posix()}, path.read_bytes())


def _run(consortium: Consortium, order: Order, output: Path, link: Link, connect: Connect) -> None:
    def sign(opening: Opening) -> AnalystRequest:
        return link.sign(opening, _only_run(output).path.name)

    if order.study:
        if output.exists():
            raise ConfigurationError("an order must be new; got one that was run already", where="analyst")
        output.mkdir(mode=0o700, parents=True)
        study = read_order(order, output)
        run_study(study, listener=Relay(link, output), connect=lambda: connect(consortium.folder, study), sign=sign)
        return
    folder = _only_run(output)
    study = folder.study
    resume_run(folder.path, listener=Relay(link, output), connect=lambda: connect(consortium.folder, study), sign=sign)


def _only_run(output: Path) -> RunFolder:
    folders = [path for path in output.glob("[!.]*") if path.is_dir()]
    if len(folders) != 1:
        raise ConfigurationError(
            f"the coordinator must have one run of this order; got {len(folders)}",
            where="analyst",
            hint="Run the study again.",
        )
    return RunFolder.open(folders[0])


@contextlib.contextmanager
def _warnings_to(link: Link) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: link.report(f"Note: {message}")
        yield


def _connect(folder: Path, study: Study) -> Carrier:
    return connect_sites(folder, study.sites, print)  # Flower's commands go to the log


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(connect: Connect = _connect) -> None:
    """Run the order that is read from standard input."""
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, _interrupt)
    folder, handle = Path(sys.argv[1]), int(sys.argv[2])
    with contextlib.closing(socket.socket(fileno=handle)) as connection:
        order = Order.unpack(sys.stdin.buffer.read())
        link = Link(connection, lambda: os.kill(os.getpid(), signal.SIGINT))
        carry_out(Consortium.read(folder), order, link, connect)


if __name__ == "__main__":
    main()
