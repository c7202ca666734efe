"""Analyst's process: sends a study to the coordinator's service, signs the run, and stores the files of the run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import shlex
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from multicentre.core.storage import check_site_name, write_atomically
from multicentre.engines.remote.opening import Opening, sign_opening
from multicentre.engines.remote.socket import receive_frame, send_frame
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, MulticentreError
from multicentre.studies import RunFolder, Study, read_study
from multicentre.studies.checks import check_models
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.analyst_link import Order, connect_to_service, read_error, send_order, unpack_opening
from multicentre_sites.deployment.analysts import Analyst
from multicentre_sites.deployment.signed_runs import SignedRun, SignedRuns

ORDER = "order.json"
_INTERRUPTED = 130  # exit status after SIGINT by convention: 128 + 2
_RESUMABLE = (6, _INTERRUPTED)  # 6: exit status of QuorumLost
# Read and write for the owner, nothing for others: the files contain the order's token and the results.
_OWNER_ONLY = 0o600
_ASK = "Nothing was signed. Ask the coordinator's administrator."
_STUDY = "study.toml"
_ANALYST_FILES = (_STUDY, ORDER)
Report = Callable[[str], None]


def run_at_service(path: Path, analyst: Analyst, study: Study, report: Report) -> RunFolder:
    """Run a study at the coordinator's service, signed by its analyst.

    Parameters
    ----------
    path : Path
        The service's socket.
    analyst : Analyst
    study : Study
        Its output is the parent of the run folder.
    report : callable
        Receives lines for the terminal.

    Raises
    ------
    MulticentreError
        The error that ended the run.
    KeyboardInterrupt
        The analyst interrupted the run; it can be resumed.
    """
    check_models(study, reads_files=True)
    study = study.with_models()
    order = Order(analyst.card, secrets.token_hex(16), study.to_toml())
    return _Client(path, analyst, order, study, report).run()


def resume_at_service(path: Path, analyst: Analyst, folder: Path, report: Report) -> RunFolder:
    """Resume an interrupted run at the coordinator's service; the analyst signs the new attempt.

    Raises
    ------
    ConfigurationError
        The folder is not of a run that this analyst signed.
    IntegrityError
        Its study differs from the signed one.
    MulticentreError, KeyboardInterrupt
        As for :func:`run_at_service`.
    """
    try:
        token = str(json.loads((folder / ORDER).read_bytes())["token"])
        text = (folder / _STUDY).read_bytes()
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(
            "the folder must be of a run that a coordinator's service carried out", where=str(folder)
        ) from None
    signed = SignedRuns(analyst.folder).read(token)
    signed.check_study(text, str(folder / _STUDY))
    study = read_study(folder / _STUDY).with_output(folder.absolute().parent)
    client = _Client(path, analyst, Order(analyst.card, token), study, report)
    client.resume(folder.absolute(), signed)
    return client.run()


class _Client:
    """One connection to the service, from the order to the end of the run."""

    def __init__(self, path: Path, analyst: Analyst, order: Order, study: Study, report: Report) -> None:
        self._path, self._analyst, self._order, self._study, self._report = path, analyst, order, study, report
        self._folder: Path | None = None
        self._before: SignedRun | None = None
        self._signed = False

    def resume(self, folder: Path, before: SignedRun) -> None:
        """Prepare to resume the run of a folder; `before` is its last signed attempt."""
        self._folder, self._before = folder, before

    def run(self) -> RunFolder:
        """Send the order and answer the service until the run has ended."""
        with contextlib.closing(connect_to_service(self._path)) as connection, _stopping(connection):
            try:
                send_order(connection, self._analyst, self._order)
                status, error = self._run_to_end(connection)
            except OSError as broken:
                raise self._connection_lost(broken.strerror or str(broken)) from None
            except KeyboardInterrupt as interrupted:
                raise self._with_notes(interrupted, _INTERRUPTED) from None
        self._remove_empty_run()
        if status == 0 and self._folder is not None:
            return RunFolder.open(self._folder)
        raise self._with_notes(
            KeyboardInterrupt() if status == _INTERRUPTED else error or _without_reason(status), status
        )

    def _run_to_end(self, connection: socket.socket) -> tuple[int, MulticentreError | None]:
        while (frame := receive_frame(connection)) is not None:
            header, body = frame
            if header.get("kind") == "end":
                return int(str(header.get("status"))), read_error(body) if body else None
            self._take(connection, header, body)
        raise self._connection_lost("it closed the connection")

    def _connection_lost(self, reason: str) -> MulticentreError:
        """Return the error of a lost service; its run may continue or be resumed, so that the folder stays."""
        return MessageError(f"the connection to the coordinator's service broke ({reason})", hint=self._resume_hint())

    def _with_notes(self, problem: BaseException, status: int) -> BaseException:
        """Return the error that ended a run, with notes on its folder and on how to resume it."""
        if self._folder is not None:
            problem.add_note(f"The folder of the run is {self._folder}")
            if status in _RESUMABLE:
                problem.add_note(self._resume_hint())
        return problem

    def _take(self, connection: socket.socket, header: Mapping[str, Any], body: bytes) -> None:
        kind = header.get("kind")
        if kind == "line":
            self._report(body.decode(errors="replace"))
        elif kind == "sign":
            opening = unpack_opening(body)
            self._check(opening)
            self._signed = True
            self._begin(str(header.get("folder")), opening)
            request = sign_opening(opening, self._analyst.identity, self._analyst.card.name)
            send_frame(connection, {"kind": "signed", **request.to_dict()})
        elif kind == "file":
            self._store_file(str(header.get("path")), body)
        else:
            raise MessageError("the coordinator's service sent a frame of an unknown kind")

    def _check(self, opening: Opening) -> None:
        """Refuse to sign anything but a run of the analyst's study."""
        study = self._study
        requested = (opening.study, opening.terms, sorted(opening.sites), opening.secure_sum)
        if requested != (study.name, digest_of(study), sorted(study.sites), study.masked):
            raise IntegrityError(
                "the coordinator must ask for a signature of the analyst's own study; it asked for another one's",
                where="coordinator",
                hint=_ASK,
            )
        before = self._before
        is_not_later = before is not None and (opening.run != before.run or opening.attempt <= before.attempt)
        if self._signed or is_not_later:
            raise IntegrityError(
                "the coordinator must ask for one signature per order, and for a later attempt of the same run if a "
                "run is resumed; it asked for more",
                where="coordinator",
                hint=_ASK,
            )

    def _begin(self, name: str, opening: Opening) -> None:
        """Create the run's folder with the analyst's study, and record the signature for a later resume."""
        if self._before is None:
            signed = SignedRun.of(opening.run, opening.attempt, self._study.to_toml().encode())
        else:
            signed = dataclasses.replace(self._before, attempt=opening.attempt)
        # Before the run's folder is created: the service chooses its name, which must not be that of the records.
        SignedRuns(self._analyst.folder).note(self._order.token, signed)
        if self._folder is None:
            check_site_name(name)
            folder = self._study.about.output.absolute() / name
            folder.mkdir(mode=0o700, parents=True)
            write_atomically(folder / _STUDY, self._study.to_toml().encode(), mode=_OWNER_ONLY)
            write_atomically(folder / ORDER, json.dumps({"token": self._order.token}).encode(), mode=_OWNER_ONLY)
            self._folder = folder

    def _store_file(self, name: str, content: bytes) -> None:
        """Write a file of the run within its folder; the analyst's study is never overwritten."""
        parts = _parts_of(name)
        if self._folder is None or not parts:
            raise MessageError("the coordinator's service sent a file with a place outside the run's folder")
        # Some file systems ignore case.
        if parts[0].casefold() not in _ANALYST_FILES:
            path = self._folder.joinpath(*parts)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, content, mode=_OWNER_ONLY)

    def _remove_empty_run(self) -> None:
        """Remove the folder of a run that ended before any site sent a result; the service does not store it either."""
        if self._folder is not None and self._before is None and not (self._folder / "run.json").exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            SignedRuns(self._analyst.folder).forget(self._order.token)
            self._folder = None

    def _resume_hint(self) -> str:
        folder = "RUN" if self._folder is None else shlex.quote(str(self._folder))
        paths = shlex.quote(str(self._path)), shlex.quote(str(self._analyst.folder))
        return f"Resume it with: multicentre run --resume {folder} --coordinator {paths[0]} --analyst {paths[1]}"


def _parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a relative path on any system; empty if it is not in normal form.

    Examples
    --------
    >>> _parts_of("sites/lyon/ledger.jsonl"), _parts_of("./study.toml"), _parts_of("model/..")
    (('sites', 'lyon', 'ledger.jsonl'), (), ())
    """
    parts = tuple(name.split("/"))
    try:
        for part in parts:
            check_site_name(part)  # no separator of any system, no drive, and no dot or blank at its end
    except ConfigurationError:
        return ()
    return parts


@contextlib.contextmanager
def _stopping(connection: socket.socket) -> Iterator[None]:
    """Stop the run at the first Ctrl-C; raise KeyboardInterrupt at the second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped = threading.Event()

    def stop(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        with contextlib.suppress(OSError):
            connection.shutdown(
                socket.SHUT_WR
            )  # the service stops the run when it reads the end of the stream, and still answers

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _without_reason(status: int) -> MulticentreError:
    return MessageError(f"the coordinator's service ended the run with status {status} and gave no reason")
