"""States of site parts between the rounds of a fit: stored, restored, and taken back if other sites cannot restore.

A stored state consists of the transcript's hash, a hash of the records that the state is about, and the state. The
store of a site may encrypt it (:class:`~multicentre.privacy.encrypted_store.EncryptedStore`).
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from multicentre.core.calls import DIGEST_BYTES, StateCommand
from multicentre.core.messages import Message, Nothing
from multicentre.core.site_sessions import SiteSessions
from multicentre.core.steps import SitePart
from multicentre.core.storage import Store
from multicentre.core.transcript import Content
from multicentre.core.wire import decode, encode
from multicentre.errors import IntegrityError, MessageError

_RECORDS_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, eq=False)
class _Replaced:
    """State that a restored one replaced.

    Parameters
    ----------
    name : str
        Name of the rounds whose state was restored.
    state : Message, optional
    content : tuple, optional
        Entry of the earlier state in the transcript.
    """

    name: str
    state: Message | None
    content: Content | None


class SavedStates:
    """Stored states of a site's parts.

    Parameters
    ----------
    sessions : SiteSessions
    store : Store, optional
        Without it nothing is stored or restored.
    log : Logger
        Log of the site.
    """

    def __init__(self, sessions: SiteSessions, store: Store | None, log: logging.Logger) -> None:
        self._sessions = sessions
        self._store = store
        self._log = log
        self._replaced: dict[tuple[str, type[SitePart]], _Replaced] = {}

    def run(self, command: StateCommand) -> None:
        """Store ("keep"), restore or reset the state of a part.

        Raises
        ------
        StateGone, IntegrityError
            The state is not in the store, or is about other records.
        """
        if self._store is not None and command.part.remembers is not Nothing:
            actions = {"keep": self._keep, "restore": self._restore, "reset": self._reset}
            actions[command.action](self._store, command)

    def settle(self, session: str) -> None:
        """Make the restored states of a session final."""
        for key in list(self._replaced):  # a session may be forgotten meanwhile
            if key[0] == session:
                self._replaced.pop(key, None)

    def _keep(self, store: Store, command: StateCommand) -> None:
        """Store the state of a part; only calls create parts, because they select the records."""
        part = self._sessions.parts.get((command.session, command.part))
        state = b"" if part is None or part.state is None else _digest_of_records(part) + encode(part.state)
        store.keep(command.name, command.number, self._sessions.transcripts.state_digest(command.session) + state)

    def _restore(self, store: Store, command: StateCommand) -> None:
        """Restore the stored state of a part, if any, and enter that in the transcript of the session.

        Without a state no records are selected: whether that succeeds would disclose something about the records.
        """
        stored = store.read(command.name, command.number)
        digest, stored = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        sessions, key = self._sessions, (command.session, command.part)
        part = sessions.parts.get(key)
        replaced = _Replaced(command.name, None if part is None else part.state, sessions.transcripts.restored(*key))
        try:
            if part is None and stored:
                part = sessions.part(command.session, command.part, command.selection)
            if part is not None and stored and stored[:_RECORDS_BYTES] != _digest_of_records(part):
                raise MessageError("the state must be about the records of its session; got other records")
            if part is not None:
                part.state = decode(command.part.remembers, stored[_RECORDS_BYTES:]) if stored else None
        except (Exception, SystemExit):  # the cause would disclose something about the records, past the guard
            self._log.exception("the state of a part could not be restored")
            raise IntegrityError(
                "the checkpoint must belong to the records of this run; it belongs to a different set of records",
                where=command.part.method,
                hint="Start the run again from the beginning.",
            ) from None
        # The entry says whether there was a state: the hash alone does not determine the stored part.
        sessions.transcripts.restore(*key, (command.name, command.number, digest.hex(), bool(stored)))
        if key not in self._replaced or self._replaced[key].name != command.name:
            self._replaced[key] = replaced

    def _reset(self, store: Store, command: StateCommand) -> None:
        """Undo what was restored under a name since the last call: other sites could not restore it."""
        key = (command.session, command.part)
        if key in self._replaced and self._replaced[key].name == command.name:
            replaced = self._replaced.pop(key)
            if key in self._sessions.parts:
                self._sessions.parts[key].state = replaced.state
            self._sessions.transcripts.restore(*key, replaced.content)


def _digest_of_records(part: SitePart) -> bytes:
    """Return a hash of a method and its records; a state is restored to a part with the same hash only."""
    return hashlib.sha256(f"{part.method}\0{part.within}".encode()).digest()
