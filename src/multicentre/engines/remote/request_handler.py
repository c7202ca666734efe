"""Request handler of a site: runs the steps of a run, however requests arrive."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from multicentre.core.calls import Refused, decode_call
from multicentre.core.disk import full_at_site
from multicentre.core.requester import answering
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import SitePart
from multicentre.core.storage import Store
from multicentre.engines.remote.batches import n_together, pack_outcomes, unpack_several
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import (
    Reply,
    Request,
    pack_error,
    pack_outcome,
    unpack_command,
    unpack_nonces,
)
from multicentre.engines.remote.socket import check_size
from multicentre.errors import IntegrityError, MessageError, MulticentreError, SiteFailed
from multicentre.privacy.encrypted_store import EncryptedStore
from multicentre.privacy.secret_files import Secret

MAX_RUNS = 4  # open runs hold their data in memory
MAX_STORED_RUNS = 20  # states of older runs are deleted, so that the disk does not fill up
_TERMS = "terms"
Offers = Callable[[str], type[SitePart]]


class SiteService(Protocol):
    """Studies, data, policy and keys of a site."""

    def open(self, opening: Opening, store: Store) -> SiteRuntime:
        """Return the runtime that answers the calls of a run; `store` holds the state of its site parts.

        Raises
        ------
        MulticentreError
            The site refuses: the study is not approved there, its terms differ, or the data cannot be used.
        """

    def close(self, run: str, attempt: int) -> None:
        """Record that the coordinator closed an attempt of a run; its opening is not accepted again."""

    def offers(self, study: str, method: str) -> type[SitePart]:
        """Return the site part of this name if the study needs it; raise ConfigurationError otherwise."""

    def facts(self, study: str) -> Mapping[str, Any]:
        """Return facts for the coordinator when a run is opened: schema of the data, requirements of the policy."""


@dataclass(frozen=True, eq=False)
class _Run:
    opening: Opening
    runtime: SiteRuntime
    held: dict[bytes, Reply] = field(default_factory=dict)  # by the hash of the call


class RequestHandler:
    """Answers a site's requests, one at a time.

    Parameters
    ----------
    name : str
        Name of the site.
    service : SiteService
    folder : Path
        Folder of replies and of the state of site parts, encrypted.
    key : Secret
        Key of the encryption.

    Notes
    -----
    The requests of a run are numbered. A repeated request is answered with the stored reply, also after a restart of
    the site; an older one is refused. A step is therefore computed, charged to the budget and written to the ledger
    at most once. State in memory is lost with the process: a call of a run that this process did not open is answered
    with "closed", and the coordinator decides how to continue.
    """

    def __init__(self, name: str, service: SiteService, folder: Path, key: Secret) -> None:
        self.name = name
        self._service = service
        self._folder = folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = key
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._lock = threading.Lock()
        self._start_time = datetime.now(UTC).isoformat(timespec="seconds")
        self._version = version("multicentre")
        self._log = logging.getLogger(f"multicentre.site.{name}")

    def handle(self, packed: bytes) -> bytes:
        """Return the reply to a request. Unexpected errors are logged at the site, and their text is not sent."""
        number = 0
        try:
            check_size(packed, "request")
            request = Request.unpack(packed)
            number = request.number
            with self._lock:
                return self._reply(request, hashlib.sha256(packed).digest())
        except MulticentreError as error:
            self._log.warning("%s", error)
            return pack_error(number, error.at(self.name)).pack()
        except (Exception, SystemExit) as error:
            broken = full_at_site(self.name, error, self._log, self._folder)
            if broken is None:
                self._log.exception("failed to handle a request")
                what = f"failed to handle the request ({type(error).__name__})"
                hint = f"The site's own log, {self._log.name}, holds the details."
                broken = SiteFailed(what, where=self.name, hint=hint)
            return pack_error(number, broken).pack()

    def refuse(self, packed: bytes, error: MulticentreError) -> bytes:
        """Replace the stored reply to a request by one that states an error, and return it."""
        request = Request.unpack(packed)
        answer = pack_error(request.number, error.at(self.name)).pack()
        with self._lock:
            self._log.warning("%s", error)
            name = f"reply-{request.attempt}"
            self._replies(request).keep(name, request.number, hashlib.sha256(packed).digest() + answer)
        return answer

    def _replies(self, request: Request) -> EncryptedStore:
        return EncryptedStore(self._folder / request.run, self._key, of=f"{request.run}, replies")

    def _reply(self, request: Request, fingerprint: bytes) -> bytes:
        replies = self._replies(request)
        name = f"reply-{request.attempt}"
        numbers = replies.numbers(name)
        if request.number in numbers:
            stored_reply = replies.read(name, request.number)
            if stored_reply[: len(fingerprint)] != fingerprint:
                raise IntegrityError(
                    f"the numbers of requests must be unique; got {request.number} for two requests", where="request"
                )
            return stored_reply[len(fingerprint) :]
        if numbers and request.number < numbers[-1]:
            raise IntegrityError(
                f"the number of a request must be at least {numbers[-1]}; got {request.number}", where="request"
            )
        reply = self._open(request) if request.kind == "open" else self._work(request)
        answer = reply.pack()
        try:
            check_size(answer, "answer")
        except MessageError as error:  # stored as well: the step was computed and must not be computed again
            answer = pack_error(request.number, error.at(self.name)).pack()
        if reply.kind != "closed":
            replies.keep(name, request.number, fingerprint + answer)
        return answer

    def _open(self, request: Request) -> Reply:
        opening = Opening.of(request)
        open_run = self._runs.get(request.run)
        if open_run is not None and open_run.opening.attempt > opening.attempt:
            raise IntegrityError(
                f"the opening must be of attempt {open_run.opening.attempt} or later; got {opening.attempt}",
                where="request",
            )
        if open_run is None or open_run.opening != opening:
            initial_terms = EncryptedStore(self._folder / request.run, self._key, of=f"{request.run}, terms")
            parts = EncryptedStore(self._folder / request.run / "parts", self._key, of=f"{request.run}, parts")
            runtime = self._service.open(opening, parts)
            _check_terms(initial_terms, opening)
            runtime.opening = opening.digest
            self._runs[request.run] = _Run(opening, runtime)
            initial_terms.keep(_TERMS, 0, _terms_of(opening))
        self._runs.move_to_end(request.run)
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        self._forget_old_runs()
        facts = {"version": self._version, "since": self._start_time, **self._service.facts(opening.study)}
        facts["nonce"] = self._runs[request.run].runtime.nonce
        return Reply(request.number, "opened", json.dumps(facts).encode())

    def _work(self, request: Request) -> Reply:
        run = self._runs.get(request.run)
        if request.kind == "close":
            self._service.close(request.run, request.attempt)  # even if this process did not open the run
        if run is None or run.opening.attempt != request.attempt:
            return Reply(request.number, "closed", json.dumps({"since": self._start_time}).encode())

        def offers(method: str) -> type[SitePart]:
            return self._service.offers(run.opening.study, method)

        if request.heads:
            run.runtime.receive_heads(request.heads.encode())
        for command in request.commands:
            if (nonces := unpack_nonces(command)) is not None:
                run.runtime.join(nonces)
            else:
                run.runtime.run_command(unpack_command(command, offers))
        if request.kind == "close":
            del self._runs[request.run]
        if request.kind not in ("call", "calls"):
            return Reply(request.number, "done", ledger=run.runtime.head)
        if request.kind == "call":
            reply = self._answer(run, request.number, request.body, offers)
        else:
            reply = pack_outcomes(request.number, self._answer_several(run, request, offers))
        return dataclasses.replace(reply, ledger=run.runtime.head)

    def _answer_several(self, run: _Run, request: Request, offers: Offers) -> list[Reply]:
        """Return the replies to the first calls of a batch, as many as fit one message."""
        replies: list[Reply] = []
        for body in unpack_several(request.body):
            try:
                reply = self._answer(run, request.number, body, offers)
                check_size(reply.body, "answer")
            except MulticentreError as error:  # of this call only
                self._log.warning("%s", error)
                reply = pack_error(request.number, error.at(self.name))
            if n_together([len(one.body) for one in (*replies, reply)]) <= len(replies):
                run.held.clear()  # one that was not requested again, or a coordinator could fill the memory
                run.held[hashlib.sha256(body).digest()] = reply
                break
            replies.append(reply)
        return replies

    def _answer(self, run: _Run, number: int, body: bytes, offers: Offers) -> Reply:
        """Return the reply to a call, or the one that was held because it did not fit an earlier message."""
        if run.held and (held := run.held.pop(hashlib.sha256(body).digest(), None)) is not None:
            return dataclasses.replace(held, number=number)
        call = decode_call(body, offers)
        if call.study != run.opening.study or not set(call.peers) <= set(run.opening.sites):
            raise MessageError("the call must name the study and sites of the open run; got others", where="request")
        with answering(run.runtime.requester):
            outcome = run.runtime.answer(call)
        if isinstance(outcome, Refused):
            self._log.warning("%s", outcome.error)
        return pack_outcome(number, outcome)

    def _forget_old_runs(self) -> None:
        folders = sorted((one for one in self._folder.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for folder in folders[:-MAX_STORED_RUNS]:
            if folder.name not in self._runs:
                shutil.rmtree(folder, ignore_errors=True)


def _check_terms(initial_terms: Store, opening: Opening) -> None:
    """Refuse to resume a run under other terms than it began with, whether they are approved or not."""
    if initial_terms.numbers(_TERMS) and initial_terms.read(_TERMS, 0) != _terms_of(opening):
        raise IntegrityError(
            "the run must be resumed under the terms that it began with here; got others",
            where=opening.study,
            hint="Run the changed study as a new one.",
        )


def _terms_of(opening: Opening) -> bytes:
    return json.dumps([opening.study, opening.terms, opening.secure_sum]).encode()
