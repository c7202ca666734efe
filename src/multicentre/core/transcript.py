"""Transcript of a session: a running hash of all calls since the session began, computed by every site.

Each call adds one entry: method, step, peers, mask, noise and the hash of the message. The hash after an entry follows
from the hash before it, so that sites which received different calls, or the same calls in another order, have
different hashes from then on. Masks of a sum follow from the hash (:mod:`multicentre.privacy.secure_sum`): those of
sites with different transcripts do not cancel.

1. A step is addressed to all sites by default: every site gets the same message, and the entry holds its hash.
2. A step that is declared as addressed to each site has messages that differ by site or reach only some of them. The
   entry holds a commitment to the list of all messages. Sites that are not called get the entry with the next call.
   Such a step does not change the state of a site part, so that it cannot decide what a later sum is about.

A step that changes the state of a site part is entered a second time after the change, and a step that a site refuses
is entered a second time at this site. A part may store more than its state, for example derived values; so sites that
ran a step and sites that did not have different transcripts. Later calls do not depend on steps that are declared
refusable: of these only changes of the state are entered.

A transcript begins with the hash of the run (:meth:`~multicentre.core.site_runtime.SiteRuntime.join`), the records that
the session is about and the transcript of the plan that divided them. A restored state is entered with the hash that
was stored together with it.

The steps that agree on masks are not entered: sites sign their terms (:class:`~multicentre.core.steps.SitePart`,
``in_transcript``).
"""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from multicentre.core.calls import DIGEST_BYTES, Call, Entry, Mark, Mask, Place
from multicentre.core.messages import Message
from multicentre.core.rosters import roster_of
from multicentre.core.steps import SitePart, Step
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, ProtocolRefused

Content = tuple[str | int, ...]  # content of the entry of a restored state
_BEGIN_AGAIN = "Begin the fit again. If the error comes back, ask the operator of the coordinator."


class SiteTranscript:
    """The transcript of one session at one site.

    Parameters
    ----------
    session : str
    records : sequence
        Identification of the records that the session is about, the same at all sites.
    run : str, optional
        Hash of the run, the same at all sites.

    Attributes
    ----------
    length : int
        Number of entries so far.
    start : str
        Hash of the session and of the identification of its records.

    Examples
    --------
    >>> SiteTranscript("0.1", []).value == SiteTranscript("0.1", []).value
    True
    >>> SiteTranscript("0.1", []).value == SiteTranscript("0.2", []).value
    False
    """

    def __init__(self, session: str, records: Sequence[Any], run: str = "") -> None:
        self.length = 0
        self.run = run
        self.start = self._value = self._settled = _hash(["multicentre transcript", run, session, list(records)])
        self._restored: dict[str, Content] = {}
        self._roster: tuple[str, ...] | None = None

    @property
    def value(self) -> str:
        """Running hash of all entries and restored states."""
        return self._with_restored(self._value)

    @property
    def state_digest(self) -> bytes:
        """Hash to be stored with a state; without steps addressed to each site, which change no state."""
        return bytes.fromhex(self._with_restored(self._settled))

    def mark(self, call: Call) -> Mark:
        """Return the mark of a call that is not entered."""
        return Mark(digest_of(call.request), self.value, self.run)

    def enter(self, call: Call, site: str) -> Mark:
        """Enter a call and return its mark.

        Raises
        ------
        ProtocolRefused
            This site missed an earlier call, a site takes part that did not before, or the messages of the sites differ
            although the step is addressed to all.
        """
        place = call.place or Place(self.length)
        missed = [entry for entry in place.missed if entry.number >= self.length]
        entry = _entry_of(call, place.number, _checked_requests(call, site))
        self._check_order([*missed, entry])
        self._check_missed(missed)
        for one in [*missed, entry]:
            self._add(one)
        return Mark(digest_of(call.request), self._value, self.run)

    def restored(self, part: type[SitePart]) -> Content | None:
        """Return the content of the entry of a part's restored state since the last call; None without an entry."""
        return self._restored.get(part.method)

    def restore(self, part: type[SitePart], content: Content | None) -> None:
        """Enter that the state of a part was replaced, or, with None, that this was undone.

        Notes
        -----
        For each part, only the last replacement before a call counts.
        """
        self._restored.pop(part.method, None)
        if content is not None:
            self._restored[part.method] = content

    def note_change(self, *, completed: bool) -> None:
        """Enter that the latest step changed the state or the records of its part, also if it failed after that."""
        self._value = self._settled = _hash([self._value, "state changed", completed])

    def note_refusal(self) -> None:
        """Enter that the latest call was refused, or failed, at this site."""
        self._value = self._settled = _hash([self._value, "refused"])

    def _check_order(self, entries: Sequence[Entry]) -> None:
        roster = self._roster
        for number, entry in enumerate(entries, start=self.length):
            if entry.number != number:
                raise _refusal("the site must receive all earlier calls of the fit; it missed some", entry.step)
            if roster is not None and roster is not entry.peers and not set(entry.peers) <= set(roster):
                raise _refusal("sites of a call must have taken part in the earlier calls; one did not", entry.step)
            roster = entry.peers if entry.step.addressed == "all" else roster

    def _check_missed(self, missed: Sequence[Entry]) -> None:
        for entry in missed:
            if entry.step.addressed != "each" or not entry.step.part.in_transcript:
                raise _refusal("a step addressed to all sites must reach this site; it did not", entry.step)

    def _add(self, entry: Entry) -> None:
        self._settled = self._with_restored(self._settled)
        self._value = _hash_of_texts(self._with_restored(self._value), *_content(entry))
        if entry.step.addressed == "all":
            self._settled, self._roster = self._value, entry.peers
        self._restored = {}
        self.length = entry.number + 1

    def _with_restored(self, value: str) -> str:
        return _hash([value, "restored", sorted(self._restored.items())]) if self._restored else value


class SiteTranscripts:
    """The transcripts of a site's sessions."""

    def __init__(self) -> None:
        self._transcripts: dict[str, SiteTranscript] = {}
        self._restored: defaultdict[str, dict[type[SitePart], Content | None]] = defaultdict(dict)

    def __getitem__(self, session: str) -> SiteTranscript:
        return self._transcripts[session]

    def begin(self, session: str, records: Sequence[Any], run: str) -> None:
        """Begin the transcript of a session, with the states restored before; see :class:`SiteTranscript`."""
        self._transcripts[session] = SiteTranscript(session, records, run)
        for part, content in self._restored.pop(session, {}).items():
            self._transcripts[session].restore(part, content)

    def begins_again(self, call: Call) -> bool:
        """Return whether a call is the first one of a session that has entries already."""
        transcript = self._transcripts.get(call.session)
        return transcript is not None and transcript.length > 0 and call.place is not None and call.place.number == 0

    def restored(self, session: str, part: type[SitePart]) -> Content | None:
        """Return the content of the entry of a part's restored state since the last call; None without an entry."""
        transcript = self._transcripts.get(session)
        return self._restored[session].get(part) if transcript is None else transcript.restored(part)

    def restore(self, session: str, part: type[SitePart], content: Content | None) -> None:
        """Enter a restored state in the transcript of its session, or have it entered when the session begins."""
        if session in self._transcripts:
            self._transcripts[session].restore(part, content)
        else:
            self._restored[session][part] = content

    def state_digest(self, session: str) -> bytes:
        """Return the hash to be stored with a state; zeros for a session without entries."""
        return self._transcripts[session].state_digest if session in self._transcripts else bytes(DIGEST_BYTES)

    def forget(self, session: str) -> None:
        """Forget the transcript of a session."""
        self._transcripts.pop(session, None)
        self._restored.pop(session, None)


class SessionOutline:
    """The coordinator's count of a session's entries, with the entries that some of the sites missed."""

    def __init__(self) -> None:
        self._number = 0
        self._missed: tuple[Entry, ...] = ()

    def placed(self, calls: Mapping[str, Call], sites: Sequence[str]) -> dict[str, Call]:
        """Return the calls of one exchange with their place in the transcript; `sites` are those that take part.

        Raises
        ------
        ConfigurationError
            The step is addressed to all sites, and some site is missing or the messages differ.
        """
        call = next(iter(calls.values()), None)
        if call is None or not call.step.part.in_transcript:
            return dict(calls)
        _DIGESTS.forget()
        requests = _listed(calls) if call.step.addressed == "each" else ()
        if not requests:
            _check_addressed_to_all(calls, sites, call)
        place = Place(self._number, self._missed, requests)
        self._missed = (*self._missed, _entry_of(call, self._number, _hash(requests))) if requests else ()
        self._number += 1
        return {site: replace(one, place=place) for site, one in calls.items()}


def digest_of(request: Message) -> str:
    """Return the SHA-256 of a message as it travels."""
    return _DIGESTS.of(request)


def _checked_requests(call: Call, site: str) -> str:
    """Return the hash of the message, or the commitment to all messages if it contains the one of this site."""
    digest = digest_of(call.request)
    if call.place is None:
        return digest if call.step.addressed == "all" else _hash([(site, digest)])
    requests = call.place.requests
    if call.step.addressed == "all":
        if requests:
            raise _refusal("a step addressed to all sites must have one message; got a list of messages", call.step)
        return digest
    if (
        len(dict(requests)) < len(requests)
        or dict(requests).get(site) != digest
        or not set(dict(requests)) <= roster_of(call.peers).distinct
    ):
        raise _refusal(
            "the list of the sites' messages must contain the message that this site received; it does not", call.step
        )
    return _hash(requests)


def _check_addressed_to_all(calls: Mapping[str, Call], sites: Sequence[str], call: Call) -> None:
    if set(calls) != set(sites) or any(one.request is not call.request for one in calls.values()):
        raise ConfigurationError(
            "the step must be sent to all sites with one message; got some of the sites, or several messages",
            where=call.step.name,
            hint='Declare it with addressed="each" if it does not change the state of the site part.',
        )


def _listed(calls: Mapping[str, Call]) -> tuple[tuple[str, str], ...]:
    return tuple((site, digest_of(call.request)) for site, call in calls.items())


def _entry_of(call: Call, number: int, requests: str) -> Entry:
    terms = _terms_without_noise(call.study, call.mask) if call.noise is None else _terms_of(call)
    return Entry(number, call.sequence, call.step, call.peers, terms, requests)


@lru_cache(maxsize=64)
def _terms_without_noise(study: str, mask: Mask | None) -> str:
    return _hash([study, *_mask_terms(mask), None])


def _terms_of(call: Call) -> str:
    noise = call.noise and [call.noise.mechanism, sorted(call.noise.multipliers.items())]
    return _hash([call.study, *_mask_terms(call.mask), noise])


def _mask_terms(mask: Mask | None) -> tuple[list[str | int] | None, bool]:
    if mask is None:
        return None, False
    return [mask.agreement, mask.number, mask.threshold, mask.colluding], mask.counted


def _content(entry: Entry) -> list[Any]:
    step = entry.step
    name = [step.method, step.name, step.addressed]
    return [entry.number, entry.call, *name, roster_of(entry.peers).digest, entry.terms, entry.requests]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@lru_cache(maxsize=64)
def _hash_of_texts(*content: Any) -> str:
    """Return the hash of texts and numbers; sites in one process enter the same calls."""
    return _hash(content)


def _refusal(reason: str, step: Step[Any, Any, Any]) -> ProtocolRefused:
    return ProtocolRefused(reason, where=f"{step.method}, {step.name}", hint=_BEGIN_AGAIN)


class _LatestDigest:
    """Cache of the digest of the latest message: sites in one process receive the same object.

    Arrays of a message may be changed after the exchange, so every exchange begins with :meth:`forget`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: tuple[weakref.ref[Message], str] | None = None

    def forget(self) -> None:
        """Compute the next digest from the message itself."""
        self._latest = None

    def of(self, request: Message) -> str:
        """Return the SHA-256 of a message; other threads wait for the first one that computes it."""
        with self._lock:
            latest = self._latest
            if latest is not None and latest[0]() is request:
                return latest[1]
            digest = hashlib.sha256(encode(request)).hexdigest()
            self._latest = (weakref.ref(request), digest)
            return digest


_DIGESTS = _LatestDigest()
