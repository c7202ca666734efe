"""What an engine carries, and the promise that it keeps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from multicentre.federation.errors import ConfigurationError, MessageError, MulticentreError
from multicentre.federation.messages import Message
from multicentre.federation.noise import Noise
from multicentre.federation.steps import SitePart, Step
from multicentre.federation.transcript import UNMARKED, Mark, Place, decode_place, encode_place
from multicentre.federation.wire import decode, encode

Protection = Literal["unmasked", "masked"]


@dataclass(frozen=True)
class Mask:
    """Which masks a summand is to wear.

    Parameters
    ----------
    agreement : str
        The key agreement that the masks come from.
    number : int
        Which of its masks; each serves once.
    threshold : int
        So many sites must remain for the sum to be read.
    colluding : int
        So many sites may show the coordinator what they hold.
    counted : bool
        The number of patients behind each value travels along, under the same mask.
    """

    agreement: str
    number: int
    threshold: int
    colluding: int = 0
    counted: bool = False

    @property
    def sharers(self) -> int:
        """So many sites' shares of a common noise must suffice."""
        return self.threshold - self.colluding


@dataclass(frozen=True)
class Selection:
    """Which of a site's records a session is about: those that a plan put into some folds.

    Parameters
    ----------
    plan : str
        The session in which the site divided its records; the folds themselves never leave it.
    folds : tuple of int
    within : Selection, optional
        The records that were divided, where they are a selection themselves.
    """

    plan: str
    folds: tuple[int, ...]
    within: Selection | None = None

    def __str__(self) -> str:
        own = f"folds {', '.join(map(str, self.folds))} of {self.plan}"
        return own if self.within is None else f"{own}, within {self.within}"


@dataclass(frozen=True)
class Call:
    """One ask to one site.

    Parameters
    ----------
    study : str
        Name of the study.
    session : str
        The fit that the call belongs to; a site part lives as long as its session.
    sequence : int
        Number of the call within the session, the same at every site.
    step : Step
        What to run.
    ask : Message
        What the step is told.
    peers : tuple of str
        Names of the sites that take part in the call, in the coordinator's order.
    mask : Mask, optional
        The answer may leave only as a summand under this mask; without it, as it is.
    noise : Noise, optional
        The noise that the site adds before anything leaves.
    selection : Selection, optional
        The records that the session is about; all without it.
    place : Place, optional
        Place in the transcript of the session; the next one without it.
    mark : Mark
        What the site entered in its transcript; it never travels.
    """

    study: str
    session: str
    sequence: int
    step: Step[Any, Any, Any]
    ask: Message
    peers: tuple[str, ...] = ()
    mask: Mask | None = None
    noise: Noise | None = None
    selection: Selection | None = None
    place: Place | None = None
    mark: Mark = UNMARKED

    @property
    def protection(self) -> Protection:
        """Whether the answer may leave as it is or only as a masked summand."""
        return "unmasked" if self.mask is None else "masked"


@dataclass(frozen=True)
class Lost:
    """A site that did not answer, and why as far as the engine can tell."""

    error: MulticentreError


@dataclass(frozen=True)
class Refused:
    """A site that answered with an error of the package: its data, its policy or its guard stand against the call."""

    error: MulticentreError


Outcome = Message | Lost | Refused


@dataclass(frozen=True)
class Upkeep:
    """Have a site keep, restore, reset (undo a restore) or forget what a part remembers. Nothing is released.

    Parameters
    ----------
    action : {"keep", "restore", "reset", "forget"}
    session : str
    part : type
        The site part.
    name : str
        Which rounds the state belongs to.
    number : int
        After which round.
    selection : Selection, optional
        The records that the session is about.
    """

    action: Literal["keep", "restore", "reset", "forget"]
    session: str
    part: type[SitePart]
    name: str = ""
    number: int = 0
    selection: Selection | None = None


class Engine(Protocol):
    """Carries calls to the sites and their outcomes back.

    An engine keeps three promises: a call reaches a site at most once, an outcome comes back for every call within
    the time limit, and the text of an unforeseen exception never comes back at all.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        """Carry each call to its site and return each site's outcome."""

    def upkeep(self, errand: Upkeep, sites: tuple[str, ...]) -> None:
        """Run an errand at `sites`."""

    def close(self) -> None:
        """Let go of threads and connections."""


def encode_call(call: Call) -> bytes:
    """Return a call as bytes: a JSON line that names the step, then the ask."""
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
    return json.dumps(line).encode() + b"\n" + encode(call.ask)


def decode_call(blob: bytes, offers: Callable[[str], type[SitePart]]) -> Call:
    """Read a call, looking its step up among the parts that the site itself installed.

    Parameters
    ----------
    blob : bytes
    offers : callable
        From a method's name to its site part; raises ConfigurationError for a method that is not installed.
    """
    head, _, body = blob.partition(b"\n")
    try:
        if len(head) > _LARGEST_LINE:
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
            ask=decode(step.asks, body),
            mask=None if mask is None else _mask(mask),
            noise=None if noise is None else _noise(noise),
            selection=None if selection is None else decode_selection(selection),
            place=None if place is None else decode_place(place, offers),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError("the call cannot be read or names a step that is not offered", where="wire") from None
    if not all(isinstance(name, str) for name in peers) or not _is_name(call.session):
        raise MessageError("the call is not as declared", where="wire")
    return call


def _mask(told: Mapping[str, Any]) -> Mask:
    mask = Mask(**told)
    whole = (mask.number, mask.threshold, mask.colluding)
    if type(mask.agreement) is not str or any(type(value) is not int for value in whole) or max(whole) >= 2**31:
        raise TypeError
    if type(mask.counted) is not bool:
        raise TypeError
    return mask


def _noise(told: Mapping[str, Any]) -> Noise:
    if not all(type(value) is float for value in told["multipliers"].values()):
        raise TypeError
    try:
        return Noise(told["mechanism"], told["multipliers"])
    except ConfigurationError:
        raise ValueError from None


def encode_selection(selection: Selection) -> list[Any]:
    """Return a selection as plain values, the outermost first."""
    chain: list[Any] = [] if selection.within is None else encode_selection(selection.within)
    return [*chain, [selection.plan, list(selection.folds)]]


def decode_selection(told: list[Any]) -> Selection | None:
    """Read a selection.

    Raises
    ------
    TypeError, ValueError
        It is none.
    """
    selection = None
    for plan, folds in told:
        if (
            type(plan) is not str
            or not _is_name(plan)
            or any(type(fold) is not int for fold in folds)
            or len(told) > _DEEPEST
        ):
            raise TypeError
        selection = Selection(plan, tuple(folds), selection)
    return selection


def _is_name(session: str) -> bool:
    """Tell whether a session's name can stand in a ledger, which a person reads."""
    return len(session) <= _LONGEST and session.isprintable()


_DEEPEST, _LONGEST, _LARGEST_LINE = 8, 256, 2**20
_LINE = {"study": str, "session": str, "sequence": int, "method": str, "step": str, "peers": list}
_ABSENT = type(None)
_LINES = [
    {**_LINE, "mask": mask, "noise": noise, "selection": selection, "place": place}
    for mask in (dict, _ABSENT)
    for noise in (dict, _ABSENT)
    for selection in (list, _ABSENT)
    for place in (dict, _ABSENT)
]
