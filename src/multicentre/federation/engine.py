"""What an engine carries, and the promise that it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from multicentre.federation.errors import MessageError, MulticentreError
from multicentre.federation.messages import Message
from multicentre.federation.steps import SitePart, Step
from multicentre.federation.wire import decode, encode

Protection = Literal["clear", "masked"]


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
    protection : {"clear", "masked"}
        Whether the answer may leave as it is or only as a masked summand.
    peers : tuple of str
        Names of the sites that take part in the call, in the coordinator's order.
    """

    study: str
    session: str
    sequence: int
    step: Step[Any, Any, Any]
    ask: Message
    protection: Protection = "clear"
    peers: tuple[str, ...] = ()


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
    """Have a site keep, restore or forget what a session's part remembers. Nothing is released.

    Parameters
    ----------
    action : {"keep", "restore", "forget"}
    session : str
    part : type
        The site part.
    name : str
        Which rounds the state belongs to.
    number : int
        After which round.
    """

    action: Literal["keep", "restore", "forget"]
    session: str
    part: type[SitePart]
    name: str = ""
    number: int = 0


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
        "protection": call.protection,
        "peers": list(call.peers),
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
        line = json.loads(head.decode())
        if {name: type(value) for name, value in line.items()} != _LINE:
            raise TypeError
        step = offers(line.pop("method")).steps()[line.pop("step")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError("the call cannot be read or names a step that is not offered", where="wire") from None
    peers = tuple(line.pop("peers"))
    if line["protection"] not in get_args(Protection) or not all(isinstance(name, str) for name in peers):
        raise MessageError("the call is not as declared", where="wire")
    return Call(**line, peers=peers, step=step, ask=decode(step.asks, body))


_LINE = {"study": str, "session": str, "sequence": int, "method": str, "step": str, "protection": str, "peers": list}
