"""Answers of a site to the calls of one run.

:meth:`SiteRuntime.answer` shows the journey of one call. It ends with an error wherever a check fails.

1. The message must be the one that the step declares.
2. The session must refer to the same records as before, and the call is entered in the session's transcript, a running
   hash of all calls. A call that departs from the transcript is refused.
3. The gate checks the call against the site's policy, and the seal checks that the answer can be masked.
4. The step runs (:mod:`multicentre.core.step_runs`).
5. The gate checks the answer, adds the planned noise, and writes the release to the ledger.
6. The answer leaves: masked, or unmasked without its numbers of patients.

Refusals are written to the ledger and entered in the transcript.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from multicentre.core.calls import Call, Outcome, Refused, StateCommand
from multicentre.core.copies import with_fields
from multicentre.core.differencing import EarlierAnswers
from multicentre.core.disk import full_at_site
from multicentre.core.guard_protocol import Gate, Seal, SessionSeal, check_masking
from multicentre.core.messages import Message
from multicentre.core.requester import Requester
from multicentre.core.saved_states import SavedStates
from multicentre.core.site_sessions import PartFactory, SiteSessions, one_selection
from multicentre.core.step_runs import run_step
from multicentre.core.steps import Release, SitePart
from multicentre.core.storage import Store
from multicentre.core.transcript import SiteTranscript
from multicentre.errors import (
    ConfigurationError,
    IntegrityError,
    MessageError,
    MulticentreError,
    ProtocolRefused,
    SiteFailed,
)

# 128 bits: numbers of two runs do not coincide.
_NONCE_BYTES = 16


class Witness(Protocol):
    """Keeps the ends of the peers' ledgers that the coordinator passes on."""

    @property
    def head(self) -> Any:
        """The signed end of the site's own ledger; None without a signature."""

    def receive(self, packed: bytes) -> None:
        """Check and keep the ends of ledgers that the coordinator passes on."""


class SiteRuntime:
    """The site's side of a federation.

    Parameters
    ----------
    name : str
        Name of the site.
    data : object
        The site's data.
    gate : Gate
        The guard.
    seal : Seal, optional
        Masks the answers of secure sums; without it the site answers unmasked only.
    store : Store, optional
        Storage of the states of site parts between rounds.
    key : object, optional
        The key of the study's pseudonyms, for the parts that see identifiers.
    earlier_answers : EarlierAnswers, optional
        Records behind the answers of earlier runs over the same data; by default only those of this run.
    terms : str, optional
        Hash of the study that the site agreed to, with which every transcript begins.
    witness : Witness, optional
        Keeps the ends of the peers' ledgers; without it they are not stored.

    Attributes
    ----------
    requester : Requester, optional
        Party that requested the run; None in process.
    opening : str
        Hash of the request that opened the run, with its attempt; empty in process.
    nonce : str
        Random number of this site for the run.
    sessions : SiteSessions
        Records, transcripts and site parts of the run's sessions.
    """

    requester: Requester | None = None
    opening: str = ""

    def __init__(
        self,
        name: str,
        data: Any,
        gate: Gate,
        *,
        seal: Seal | None = None,
        store: Store | None = None,
        key: object = None,
        earlier_answers: EarlierAnswers | None = None,
        terms: str = "",
        witness: Witness | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self.nonce = secrets.token_hex(_NONCE_BYTES)
        self._gate = gate
        self._seal = seal
        self._witness = witness
        self._log = logging.getLogger(f"multicentre.site.{name}")
        self.sessions = SiteSessions(
            PartFactory(name, data, gate, seal, key), earlier_answers or EarlierAnswers(), terms
        )
        self._saved_states = SavedStates(self.sessions, store, self._log)

    def join(self, nonces: Mapping[str, str]) -> None:
        """Take the random numbers of all sites of the run. The hash that names the run follows from them.

        Transcripts begin with that hash, and sites sign it with their keys, so that neither is of use in another run.

        Raises
        ------
        IntegrityError
            The number of this site is not the one that it drew when the run was opened here.
        """
        if nonces.get(self.name) != self.nonce:
            raise IntegrityError(
                "the run must have the random number that this site drew when it was opened; got another",
                where=self.name,
                hint="Start the run again. If the error comes back, ask the operator of the coordinator.",
            )
        statement = json.dumps(["multicentre run", self.opening, sorted(nonces.items())])
        self.sessions.run = hashlib.sha256(statement.encode()).hexdigest()

    def answer(self, call: Call) -> Outcome:
        """Run the step that `call` names and return the release or the refusal.

        An unforeseen exception is logged at the site; only its class and the step's name leave.
        """
        try:
            _check_message(call)
            return self._answer_entered(self._enter(call))
        except MulticentreError as error:
            return Refused(error.at(self.name))
        except (Exception, SystemExit) as error:
            if (full := full_at_site(self.name, error, self._log)) is not None:
                return Refused(full)
            self._log.exception("step %s of %s failed", call.step.name, call.step.method)
            return Refused(
                SiteFailed(
                    f"the step {call.step.name} of {call.step.method} failed ({type(error).__name__})",
                    where=self.name,
                    hint=f"The site's own log, {self._log.name}, contains the details.",
                )
            )

    def run_command(self, command: StateCommand) -> None:
        """Store, restore, reset or forget the state of a session's part.

        Raises
        ------
        StateGone, IntegrityError
            The state to be restored is not in the store, or is about other records.
        """
        if command.action == "forget":
            self._forget(command.session, lambda part: True)
        else:
            self._saved_states.run(command)

    @property
    def head(self) -> Any:
        """The signed end of the site's ledger; None without a signature."""
        return None if self._witness is None else self._witness.head

    def receive_heads(self, statement: bytes) -> None:
        """Check and keep the ends of the peers' ledgers."""
        if self._witness is not None:
            self._witness.receive(statement)

    def _enter(self, call: Call) -> Call:
        """Enter a call in the transcript of its session, and return it with its mark."""
        try:
            transcript = self._begin(call)
        except (Exception, SystemExit) as error:
            self._gate.admit(call)  # for a call that the policy refuses, the error would disclose folds with records
            raise self._gate.note_failure(call, error) from None
        if not call.step.part.in_transcript:
            return with_fields(call, mark=transcript.mark(call))
        try:
            return with_fields(call, mark=transcript.enter(call, self.name))
        except ProtocolRefused as error:
            self._gate.note_departure(with_fields(call, mark=transcript.mark(call)), error)
            raise

    def _begin(self, call: Call) -> SiteTranscript:
        """Return the transcript of a call's session, which begins with its first call.

        A session that begins again forgets the states of its parts, since a state must not outlive its transcript. It
        stays about the same records, because keys of masks and the lists of fields signed with them outlive it.
        """
        self._saved_states.settle(call.session)
        transcripts, start = self.sessions.transcripts, None
        if transcripts.begins_again(call):
            start = transcripts[call.session].start
            self._forget(call.session, lambda part: part.in_transcript)
        transcript = self.sessions.begin(call.session, call.selection)
        if start not in (None, transcript.start):
            self._forget(call.session, lambda part: True)
            raise one_selection(call.session)
        return transcript

    def _answer_entered(self, call: Call) -> Message:
        """Return the answer to a call that was entered, or enter in the transcript that this site refused it."""
        try:
            self._gate.admit(call)
            is_hidden = call.mask is not None and check_masking(self._gate, call, self._session_seal(call))
            release = run_step(call, self.sessions, self._gate, is_hidden=is_hidden)
            release = self._gate.release(call, release, self.sessions.rows_behind(call))
            return self._protect(call, release)
        except (Exception, SystemExit):
            step = call.step
            if step.part.in_transcript and step.addressed == "all" and not step.refusable:
                self.sessions.transcripts[call.session].note_refusal()
            raise

    def _protect(self, call: Call, release: Release) -> Message:
        """Return a release in the form in which it leaves the site."""
        if call.mask is None:
            return with_fields(release, patients={})
        sealing = self._session_seal(call)
        return sealing.seal.protect(call, release, sealing.keys)

    def _session_seal(self, call: Call) -> SessionSeal:
        if self._seal is None:
            raise ConfigurationError(
                "a site that answers masked calls must have an identity; this one has none",
                where=self.name,
                hint="Create the site's keys, or set secure_sum to false where the policies allow it.",
            )
        return SessionSeal(self._seal, self.sessions.part(call.session, self._seal.keys, call.selection))

    def _forget(self, session: str, is_forgotten: Callable[[type[SitePart]], bool]) -> None:
        self.sessions.forget(session, is_forgotten)
        self._saved_states.settle(session)


def _check_message(call: Call) -> None:
    """Check that the message of a call is the one that its step declares."""
    if type(call.request) is not call.step.request_type:
        raise MessageError(
            f"the message must be {call.step.request_type.__name__}; got {type(call.request).__name__}",
            where=call.step.name,
            hint="Use the same version of multicentre at the coordinator and at the sites.",
        )
    call.request.checked()
