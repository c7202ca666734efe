"""Where a site answers requests: the one step runner of every way in which requests can come."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from multicentre.engines.remote.packing import Opening, Reply, Request, pack_error, pack_outcome, unpack_command
from multicentre.engines.remote.socket import MAX_MESSAGE_BYTES
from multicentre.federation.asker import answering
from multicentre.federation.engine import Refused, decode_call
from multicentre.federation.errors import IntegrityError, MessageError, MulticentreError, SiteFailed
from multicentre.federation.requester import answering
from multicentre.federation.runtime import SiteRuntime
from multicentre.federation.steps import SitePart
from multicentre.federation.storage import Store
from multicentre.privacy.encrypted_store import EncryptedStore
from multicentre.privacy.secrets import Secret

MOST_RUNS = 4
MAX_STORED_RUNS = 20
_BEGUN = "terms"


class SiteService(Protocol):
    """What a site brings along: its studies, data, policy and keys."""

    def open(self, opening: Opening, store: Store) -> SiteRuntime:
        """Return what answers the calls of a run, with the store for what its parts remember.

        Raises
        ------
        MulticentreError
            The site takes no part: the study was not approved here, its terms are others, its data cannot be used.
        """

    def close(self, run: str, attempt: int) -> None:
        """Note that the coordinator closed an attempt of a run; what opened it opens it no more."""

    def offers(self, study: str, method: str) -> type[SitePart]:
        """Return the site part of this name, among those that the study needs; ConfigurationError otherwise."""

    def facts(self, study: str) -> Mapping[str, Any]:
        """Return what the coordinator is told of the site when a run is opened: its schema, what its policy asks."""


@dataclass(frozen=True, eq=False)
class _Run:
    opening: Opening
    runtime: SiteRuntime


class RequestHandler:
    """Answers a site's requests, one at a time.

    Parameters
    ----------
    name : str
        Name of the site.
    service : SiteService
    folder : Path
        Where replies and what parts remember are kept, encrypted.
    key : Secret
        The key that they are encrypted under.

    Notes
    -----
    The requests of a run are numbered. One that comes again, also after a restart of the site, is answered with the
    reply that was kept; one that is older is refused. So a step is never computed, paid for or written to the ledger
    twice, however often its request is delivered. What site parts hold in memory ends with the process: a call of a run
    that this process did not open is answered with "closed", and the coordinator decides what that means for the run.
    """

    def __init__(self, name: str, service: SiteService, folder: Path, key: Secret) -> None:
        self.name = name
        self._service = service
        self._folder = folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = key
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._alone = threading.Lock()
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self._version = version("multicentre")
        self._log = logging.getLogger(f"multicentre.site.{name}")

    def handle(self, packed: bytes) -> bytes:
        """Return the reply to a request; whatever breaks is logged here, and its text does not leave."""
        number = 0
        try:
            _check_size(packed, "request")
            request = Request.unpack(packed)
            number = request.number
            with self._alone:
                return self._reply(request, hashlib.sha256(packed).digest())
        except MulticentreError as error:
            self._log.warning("%s", error)
            return pack_error(number, error.at(self.name)).pack()
        except (Exception, SystemExit) as error:
            self._log.exception("a request broke")
            broken = SiteFailed(
                f"a request could not be answered ({type(error).__name__})",
                where=self.name,
                hint=f"The site's own log, {self._log.name}, holds the details.",
            )
            return pack_error(number, broken).pack()

    def _reply(self, request: Request, fingerprint: bytes) -> bytes:
        kept = EncryptedStore(self._folder / request.run, self._key, of=f"{request.run}, replies")
        name = f"reply-{request.attempt}"
        numbers = kept.numbers(name)
        if request.number in numbers:
            known = kept.read(name, request.number)
            if known[: len(fingerprint)] != fingerprint:
                raise IntegrityError("two requests have the same number", where="request")
            return known[len(fingerprint) :]
        if numbers and request.number < numbers[-1]:
            raise IntegrityError("the request is older than one that was answered", where="request")
        reply = self._open(request) if request.kind == "open" else self._work(request)
        answer = reply.pack()
        try:
            _check_size(answer, "answer")
        except MessageError as error:  # kept as well: the step was computed, and is not computed again
            answer = pack_error(request.number, error.at(self.name)).pack()
        if reply.kind != "closed":
            kept.keep(name, request.number, fingerprint + answer)
        return answer

    def _open(self, request: Request) -> Reply:
        opening = Opening.of(request)
        known = self._runs.get(request.run)
        if known is not None and known.opening.attempt > opening.attempt:
            raise IntegrityError("the run was taken up again since", where="request")
        if known is None or known.opening != opening:
            begun = EncryptedStore(self._folder / request.run, self._key, of=f"{request.run}, terms")
            parts = EncryptedStore(self._folder / request.run / "parts", self._key, of=f"{request.run}, parts")
            runtime = self._service.open(opening, parts)
            _check_terms(begun, opening)
            self._runs[request.run] = _Run(opening, runtime)
            begun.keep(_BEGUN, 0, _terms_of(opening))
        self._runs.move_to_end(request.run)
        while len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        self._forget_old_runs()
        told = {"version": self._version, "since": self._began, **self._service.facts(opening.study)}
        return Reply(request.number, "opened", json.dumps(told).encode())

    def _work(self, request: Request) -> Reply:
        run = self._runs.get(request.run)
        if request.kind == "close":
            self._service.close(request.run, request.attempt)  # also where this process did not open the run
        if run is None or run.opening.attempt != request.attempt:
            return Reply(request.number, "closed", json.dumps({"since": self._began}).encode())

        def offers(method: str) -> type[SitePart]:
            return self._service.offers(run.opening.study, method)

        if request.heads:
            run.runtime.receive_heads(request.heads.encode())
        for command in request.commands:
            run.runtime.upkeep(unpack_command(command, offers))
        if request.kind == "close":
            del self._runs[request.run]
        if request.kind != "call":
            return Reply(request.number, "done", ledger=run.runtime.head)
        call = decode_call(request.body, offers)
        if call.study != run.opening.study or not set(call.peers) <= set(run.opening.sites):
            raise MessageError("the call is not of the run that was opened", where="request")
        with answering(run.runtime.asked_by):
            outcome = run.runtime.answer(call)
        if isinstance(outcome, Refused):
            self._log.warning("%s", outcome.error)
        return dataclasses.replace(pack_outcome(request.number, outcome), ledger=run.runtime.head)

    def _forget_old_runs(self) -> None:
        folders = sorted((one for one in self._folder.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for folder in folders[:-MAX_STORED_RUNS]:
            if folder.name not in self._runs:
                shutil.rmtree(folder, ignore_errors=True)


def _check_terms(begun: Store, opening: Opening) -> None:
    """Refuse a run that is taken up under other terms than those it began with here, approved since or not."""
    if begun.numbers(_BEGUN) and begun.read(_BEGUN, 0) != _terms_of(opening):
        raise IntegrityError(
            "the run must be taken up under the terms that it began with here; got others",
            where=opening.study,
            hint="Run the changed study as a new one.",
        )


def _terms_of(opening: Opening) -> bytes:
    return json.dumps([opening.study, opening.terms, opening.secure_sum]).encode()


def _check_size(packed: bytes, what: str) -> None:
    if len(packed) > MAX_MESSAGE_BYTES:
        raise MessageError(
            f"{len(packed) / 2**20:.0f} MiB are more than a request can carry ({MAX_MESSAGE_BYTES / 2**20:.0f} MiB)",
            where=what,
            hint="Ask for less at once: fewer columns, landmarks or trees.",
        )
