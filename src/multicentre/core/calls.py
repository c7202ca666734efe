"""Calls to sites, their outcomes, and the protocol of an engine, which carries both."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from multicentre.core.messages import Message
from multicentre.core.noise_plan import Noise
from multicentre.core.rosters import roster_of
from multicentre.core.steps import SitePart, Step
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, MessageError, MulticentreError

Protection = Literal["unmasked", "masked"]


def suggest_masks(alternative: str = "", *, protection: Protection, n_sites: int) -> str:
    """Return the hint of a refusal: to mask the sums, if they are unmasked sums of several sites, or an alternative.

    Examples
    --------
    >>> suggest_masks("Use fewer folds.", protection="unmasked", n_sites=3)
    'Mask the sums (secure_sum=True). Use fewer folds.'
    >>> suggest_masks("Use fewer folds.", protection="masked", n_sites=3)
    'Use fewer folds.'
    """
    can_mask = protection == "unmasked" and n_sites > 1
    return " ".join(filter(None, ["Mask the sums (secure_sum=True)." if can_mask else "", alternative]))


@dataclass(frozen=True)
class Mask:
    """Masks of a summand.

    Parameters
    ----------
    agreement : str
        Name of the key agreement that the masks come from.
    number : int
        Number of the mask within the agreement; each mask is used once.
    threshold : int
        Smallest number of sites over which the sum can be read.
    colluding : int
        Largest number of sites that may collude with the coordinator.
    counted : bool
        Whether the number of patients behind each value is sent too, under the same mask.
    """

    agreement: str
    number: int
    threshold: int
    colluding: int = 0
    counted: bool = False

    @property
    def sharers(self) -> int:
        """Smallest number of sites whose shares make up a common noise."""
        return self.threshold - self.colluding


@dataclass(frozen=True)
class Selection:
    """Records that a session is about: those that a plan put into some folds.

    Parameters
    ----------
    plan : str
        Session in which the site divided its records; the folds themselves never leave the site.
    folds : tuple of int
    within : Selection, optional
        The records that were divided, if they are a selection themselves.
    """

    plan: str
    folds: tuple[int, ...]
    within: Selection | None = None

    def __str__(self) -> str:
        innermost = f"folds {', '.join(map(str, self.folds))} of {self.plan}"
        return innermost if self.within is None else f"{innermost}, within {self.within}"


@dataclass(frozen=True)
class Entry:
    """Entry of a transcript.

    Parameters
    ----------
    number : int
        Place in the transcript, from 0.
    call : int
        Number of the call within the session.
    step : Step
    peers : tuple of str
        Sites that take part in the call. For steps addressed to all sites, later calls may have fewer, never more.
    terms : str
        Hash of study, mask and noise.
    requests : str
        Hash of the message, or the commitment to the messages of all sites if the step is addressed to each.
    """

    number: int
    call: int
    step: Step[Any, Any, Any]
    peers: tuple[str, ...]
    terms: str
    requests: str


@dataclass(frozen=True)
class Place:
    """Place of a call in the transcript, as the coordinator states it.

    Parameters
    ----------
    number : int
        Number of the call's entry.
    missed : tuple of Entry
        Entries of steps addressed to each site since the last step addressed to all.
    requests : tuple of (str, str)
        Names of the called sites, each with the hash of its message; empty for a step addressed to all.
    """

    number: int
    missed: tuple[Entry, ...] = ()
    requests: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Mark:
    """Hashes of a call's message, of the transcript with the call's entry, and of the run; computed by the site."""

    request: str = ""
    transcript: str = ""
    run: str = ""


UNMARKED = Mark()


@dataclass(frozen=True)
class Call:
    """Request to one site to run a step.

    Parameters
    ----------
    study : str
        Name of the study.
    session : str
        Name of the fit that the call belongs to; a site part lives as long as its session.
    sequence : int
        Number of the call within the session, the same at every site.
    step : Step
        Step to run.
    request : Message
        Message passed to the step.
    peers : tuple of str
        Names of the sites that take part in the call, in their fixed order.
    mask : Mask, optional
        Mask under which the answer leaves as a summand; unmasked without it.
    noise : Noise, optional
        Noise that the site adds before the answer leaves.
    selection : Selection, optional
        Records that the session is about; all records by default.
    place : Place, optional
        Place in the transcript of the session; the next one by default.
    mark : Mark
        Hashes that the site computed when it entered the call in its transcript; they never travel.
    """

    study: str
    session: str
    sequence: int
    step: Step[Any, Any, Any]
    request: Message
    peers: tuple[str, ...] = ()
    mask: Mask | None = None
    noise: Noise | None = None
    selection: Selection | None = None
    place: Place | None = None
    mark: Mark = UNMARKED

    @property
    def protection(self) -> Protection:
        """Form in which the answer leaves: "unmasked", or "masked" as a summand."""
        return "unmasked" if self.mask is None else "masked"

    @property
    def n_peers(self) -> int:
        """Number of different sites that take part in the call."""
        return len(roster_of(self.peers).distinct)


@dataclass(frozen=True)
class Lost:
    """Site that did not answer, with the reason as far as the engine can determine it."""

    error: MulticentreError


@dataclass(frozen=True)
class Refused:
    """Site that answered with an error of the package, from its data, its policy or its guard."""

    error: MulticentreError


Outcome = Message | Lost | Refused


@dataclass(frozen=True)
class StateCommand:
    """Request to store ("keep"), restore, reset (undo a restore) or forget the state of a part. Nothing is released.

    Parameters
    ----------
    action : {"keep", "restore", "reset", "forget"}
    session : str
    part : type
        The site part.
    name : str
        Name of the rounds that the state belongs to.
    number : int
        Number of the round after which the state is stored.
    selection : Selection, optional
        Records that the session is about.
    """

    action: Literal["keep", "restore", "reset", "forget"]
    session: str
    part: type[SitePart]
    name: str = ""
    number: int = 0
    selection: Selection | None = None


class Engine(Protocol):
    """Carries calls to the sites and returns their outcomes.

    An engine guarantees that a call reaches a site at most once, that every call has an outcome within the time limit,
    and that the text of an unforeseen exception does not leave the site.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry each call to its site and return each site's outcome."""

    def exchange_together(
        self, batch: Sequence[Mapping[str, Call]], time_limit_s: float | None
    ) -> list[dict[str, Outcome]]:
        """Carry the calls of several exchanges in one request per site, and return the outcomes of each.

        A site carries out its calls in the order of the batch, and the time limit is that of each call.
        """

    def run_command(self, command: StateCommand, sites: tuple[str, ...]) -> None:
        """Run a command at `sites`."""

    def close(self) -> None:
        """Release threads and connections."""


def encode_call(call: Call) -> bytes:
    """Return a call as bytes: a JSON line that names the step, then the message."""
    line = {
        "study": call.study,
        "session": call.session,
        "sequence": call.sequence,
        "method": call.step.method,
        "step": call.step.name,
        "peers": list(call.peers),
        "mask": call.mask and dataclasses.asdict(call.mask),
        "noise": call.noise and dataclasses.asdict(call.noise),
        "selection": call.selection and encode_selection(call.selection),
        "place": call.place and encode_place(call.place),
    }
    return json.dumps(line).encode() + b"\n" + encode(call.request)


def decode_call(blob: bytes, offers: Callable[[str], type[SitePart]]) -> Call:
    """Read a call; its step is looked up among the parts that are installed at the site.

    Parameters
    ----------
    blob : bytes
    offers : callable
        Returns the site part of a method; raises ConfigurationError for a method that is not installed.
    """
    head, _, body = blob.partition(b"\n")
    try:
        if len(head) > _MAX_LINE:
            raise ValueError
        line = json.loads(head.decode())
        if {name: type(value) for name, value in line.items()} not in _LINES:
            raise TypeError
        step = offers(line.pop("method")).steps()[line.pop("step")]
        peers, mask, noise = tuple(line.pop("peers")), line.pop("mask"), line.pop("noise")
        selection, place = line.pop("selection"), line.pop("place")
        call = Call(
            **line,
            peers=peers,
            step=step,
            request=decode(step.request_type, body),
            mask=None if mask is None else _decode_mask(mask),
            noise=None if noise is None else _decode_noise(noise),
            selection=None if selection is None else decode_selection(selection),
            place=None if place is None else decode_place(place, offers),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError(
            "the call must be readable and name a step that the site offers; it does not",
            where="wire",
            hint=_SAME_VERSION,
        ) from None
    if not all(isinstance(name, str) for name in peers) or not _is_name(call.session):
        raise MessageError(
            f"the session must have a printable name of up to {_LONGEST} letters, and peers must be names; got others",
            where="wire",
            hint=_SAME_VERSION,
        )
    return call


def _decode_mask(fields: Mapping[str, Any]) -> Mask:
    mask = Mask(**fields)
    numbers = (mask.number, mask.threshold, mask.colluding)
    if type(mask.agreement) is not str or any(type(value) is not int for value in numbers) or max(numbers) >= 2**31:
        raise TypeError
    if type(mask.counted) is not bool:
        raise TypeError
    return mask


def _decode_noise(fields: Mapping[str, Any]) -> Noise:
    if not all(type(value) is float for value in fields["multipliers"].values()):
        raise TypeError
    try:
        return Noise(fields["mechanism"], fields["multipliers"])
    except ConfigurationError:
        raise ValueError from None


def encode_selection(selection: Selection) -> list[Any]:
    """Return a selection as plain values, the outermost first."""
    chain: list[Any] = [] if selection.within is None else encode_selection(selection.within)
    return [*chain, [selection.plan, list(selection.folds)]]


def decode_selection(chain: list[Any]) -> Selection | None:
    """Read a selection.

    Raises
    ------
    TypeError, ValueError
        The values do not have the form that :func:`encode_selection` gives them.
    """
    selection = None
    for plan, folds in chain:
        if (
            type(plan) is not str
            or not _is_name(plan)
            or any(type(fold) is not int for fold in folds)
            or len(chain) > _DEEPEST
        ):
            raise TypeError
        selection = Selection(plan, tuple(folds), selection)
    return selection


def encode_place(place: Place) -> dict[str, Any]:
    """Return a place as plain values."""
    missed = [[e.number, e.call, e.step.method, e.step.name, list(e.peers), e.terms, e.requests] for e in place.missed]
    return {"number": place.number, "missed": missed, "requests": [list(one) for one in place.requests]}


def decode_place(fields: Mapping[str, Any], offers: Callable[[str], type[SitePart]]) -> Place:
    """Read a place; its steps are looked up among the parts that are installed at the site.

    Raises
    ------
    KeyError, TypeError, ValueError
        The fields do not have the form that :func:`encode_place` gives them.
    ConfigurationError
        The site does not offer a method.
    """
    if {name: type(value) for name, value in fields.items()} != {"number": int, "missed": list, "requests": list}:
        raise TypeError
    requests = tuple((site, digest) for site, digest in fields["requests"])
    if fields["number"] < 0 or not all(type(site) is str and _is_digest(digest) for site, digest in requests):
        raise TypeError
    return Place(fields["number"], tuple(_decoded_entry(line, offers) for line in fields["missed"]), requests)


def _decoded_entry(line: Sequence[Any], offers: Callable[[str], type[SitePart]]) -> Entry:
    number, call, method, step, peers, terms, requests = line
    if [type(value) for value in (number, call, method, step, peers)] != [int, int, str, str, list]:
        raise TypeError
    if not (all(type(peer) is str for peer in peers) and _is_digest(terms) and _is_digest(requests)):
        raise TypeError
    return Entry(number, call, offers(method).steps()[step], tuple(peers), terms, requests)


def _is_digest(value: object) -> bool:
    return type(value) is str and len(value) == 2 * DIGEST_BYTES and set(value) <= _DIGEST_LETTERS


def _is_name(session: str) -> bool:
    """Return whether a session's name is fit for a ledger, which people read."""
    return len(session) <= _LONGEST and session.isprintable()


DIGEST_BYTES = 32  # of SHA-256
_DIGEST_LETTERS = frozenset("0123456789abcdef")
_DEEPEST = 8  # nested selections; cross-validation within cross-validation of an alignment has 3
_LONGEST = 256  # letters of a session's name, so that an entry of a ledger stays legible
_MAX_LINE = 2**20  # bytes; a line with the names of 1,000 sites is smaller
_SAME_VERSION = "Use the same version of multicentre at the coordinator and at the sites."
_LINE = {"study": str, "session": str, "sequence": int, "method": str, "step": str, "peers": list}
_ABSENT = type(None)
_LINES = [
    {**_LINE, "mask": mask, "noise": noise, "selection": selection, "place": place}
    for mask in (dict, _ABSENT)
    for noise in (dict, _ABSENT)
    for selection in (list, _ABSENT)
    for place in (dict, _ABSENT)
]
