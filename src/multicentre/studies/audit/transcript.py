"""All that a coordinator hears during a fit, and what the same asks would have brought without noise."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.consortium.federation import Federation
from multicentre.federation.engine import Mask
from multicentre.federation.messages import Declaration, Message, place
from multicentre.federation.noise import Mechanism, Noise, Plan
from multicentre.federation.session import Answers, Session
from multicentre.federation.steps import A, P, R, Release, SitePart, Step
from multicentre.federation.wire import encode
from multicentre.studies.audit.scores import log_likelihood_ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Heard:
    """One exchange of a fit.

    Parameters
    ----------
    session : str
        The fit that it belongs to.
    step : Step
    asks : mapping of str to Message
        What each site was told.
    answer : Release or None
        What the coordinator holds afterwards: the watched site's own answer, or the sum where sums are masked. None
        when the watched site was not asked.
    is_sum : bool
        The answer is a sum over all sites that were asked.
    """

    session: str
    step: Step[Any, Any, Any]
    asks: Mapping[str, Message]
    answer: Message | None
    is_sum: bool


Transcript = Sequence[Heard]


class AllReleased(BaseException):
    """The last planned release was heard: what a fit makes of it tells an attacker nothing more."""


@dataclass
class Watch:
    """What an attacker at the coordinator receives about one site, and when it is complete.

    Parameters
    ----------
    site : str
    enough : int, optional
        Raise :class:`AllReleased` after this many exchanges if the plan has no more releases.

    Attributes
    ----------
    exchanges : list of Heard
        Grows with each exchange of the fits that follow.
    """

    site: str
    enough: int | None = None
    exchanges: list[Heard] = field(default_factory=list)


class RecordingSession(Session):
    """A session that records what its coordinator receives about one site."""

    def sum(self, step: Step[P, A, R], message: A) -> R:
        """Return the sum over the sites' answers, and record it if sums are masked."""
        total = super().sum(step, message)
        if self.protection == "masked":
            self._record(Heard(self.name, step, dict.fromkeys(self.sites, message), total, is_sum=True))
        return total

    def collect(
        self,
        step: Step[Any, Any, R],
        message: Message | Mapping[str, Message],
        *,
        mask: Mask | None = None,
        to: Sequence[str] | None = None,
        skip_refusals: bool = False,
    ) -> Answers[R]:
        """Return the sites' answers, and record the watched site's unless it is masked."""
        called = self.sites if to is None else tuple(to)
        answers = super().collect(step, message, mask=mask, to=to, skip_refusals=skip_refusals)
        if mask is None and step.part is self.part:
            messages = {site: message if isinstance(message, Message) else message[site] for site in called}
            self._record(Heard(self.name, step, messages, answers.get(self._watch.site), is_sum=False))
        return answers

    @property
    def _watch(self) -> Watch:
        assert isinstance(self.consortium, Recording)
        return self.consortium.watch

    def _record(self, exchange: Heard) -> None:
        watch = self._watch
        watch.exchanges.append(exchange)
        if watch.enough is None or len(watch.exchanges) < watch.enough or self.plan is None:
            return
        if all(self._called[planned.step.name] >= planned.times for planned in self.plan.releases):
            raise AllReleased


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Federation):
    """A federation whose sessions record what their coordinator receives about one site.

    Parameters
    ----------
    watch : Watch
    """

    watch: Watch = field(default_factory=lambda: Watch(""))
    session_type: ClassVar[type[Session]] = RecordingSession

    def watching(self, site: str, *, enough: int | None = None) -> Recording:
        """Return the same federation with an empty transcript about a site; see :class:`Watch`."""
        return replace(self, watch=Watch(site, enough))


def replay(sites: Mapping[str, Any], transcript: Transcript) -> list[dict[str, Release]]:
    """Return sites' answers to recorded asks before noise: for each exchange, by site, of those that were asked.

    What a patient contributes may depend on the asks, and these on noised answers before them, so each transcript is
    replayed with its own asks, from the first, on fresh site parts.

    Parameters
    ----------
    sites : mapping of str to data
    transcript : sequence of Heard

    Examples
    --------
    >>> from multicentre.federation.messages import Nothing
    >>> from multicentre.federation.steps import Acknowledgement, step
    >>> class Greeter(SitePart):
    ...     @step(releases=Acknowledgement)
    ...     def greet(self, ask: Nothing) -> Acknowledgement:
    ...         return Acknowledgement()
    >>> asked = Heard("0.1", Greeter.greet, {"lyon": Nothing(), "oslo": Nothing()}, None, is_sum=False)
    >>> replay({"lyon": None}, [asked])
    [{'lyon': Acknowledgement(patients={})}]
    """
    parts: dict[tuple[str, str, type[SitePart]], SitePart] = {}
    answers = []
    for heard in transcript:
        given = {}
        for site in [name for name in sites if name in heard.asks]:
            key = (heard.session, site, heard.step.part)
            if key not in parts:
                parts[key] = heard.step.part(site, sites[site])
            given[site] = heard.step.run(parts[key], heard.asks[site])
        answers.append(given)
    return answers


@dataclass(frozen=True)
class Shown:
    """One noised field of a transcript beside what it is without noise.

    Parameters
    ----------
    where : str
        The field.
    noised : array
        As the coordinator holds it.
    without : array
        Before noise, without the canary.
    difference : array
        What the canary adds to that.
    declaration : Declaration
    mechanism : {"gaussian", "laplace"}
    multiplier : float
        Scale of the noise over the declared sensitivity.
    """

    where: str
    noised: Floats
    without: Floats
    difference: Floats
    declaration: Declaration
    mechanism: Mechanism
    multiplier: float

    @property
    def ratio(self) -> float:
        """How far the canary moves the field, over the declared sensitivity."""
        assert self.declaration.sensitivity is not None  # the plan was checked for it
        order = 1 if self.declaration.norm == "l1" else 2
        return float(np.linalg.norm(self.difference.ravel(), order)) / self.declaration.sensitivity

    @property
    def score(self) -> float:
        """The field's log-likelihood ratio."""
        assert self.declaration.sensitivity is not None
        scale = self.multiplier * self.declaration.sensitivity
        return log_likelihood_ratio(self.noised, self.without, self.difference, scale, self.mechanism)


class Witness:
    """Sites with and without the canary, by which a transcript is judged.

    Parameters
    ----------
    plan : Plan
    site : str
        The canary's.
    data : mapping of str to data
        All sites without the canary.
    exposed : data
        The canary's site with it.
    """

    def __init__(self, plan: Plan, site: str, data: Mapping[str, Any], exposed: Any) -> None:
        self.site = site
        self._noises = {planned.step.name: planned.noise for planned in plan.releases}
        self._data = data
        self._exposed = {site: exposed}
        self._asked: list[object] = []
        self._answers: list[tuple[dict[str, Release], Release | None]] = []

    def shown(self, transcript: Transcript) -> list[Shown]:
        """Return every noised field of the transcript beside what it is without noise."""
        found = []
        for heard, (without, exposed) in zip(transcript, self._replayed(transcript), strict=True):
            noise = self._noises.get(heard.step.name)
            if noise is not None and heard.answer is not None and exposed is not None:
                others = [one for name, one in without.items() if name != self.site]
                found += _fields(heard.answer, without[self.site], exposed, others, noise)
        return found

    def betrayed(self, transcript: Transcript) -> list[str]:
        """Return the fields that carry no noise and differ with the canary."""
        found = []
        for heard, (without, exposed) in zip(transcript, self._replayed(transcript), strict=True):
            noise = self._noises.get(heard.step.name)
            if exposed is not None:
                found += _differing(without[self.site], exposed, noise.multipliers if noise else ())
        return list(dict.fromkeys(found))

    def _replayed(self, transcript: Transcript) -> list[tuple[dict[str, Release], Release | None]]:
        """Return what makes up each answer without the canary, and the site's own with it; same asks, same answers."""
        asked = [(heard.step.name, [(site, encode(ask)) for site, ask in heard.asks.items()]) for heard in transcript]
        if asked != self._asked or not self._answers:
            summed = any(heard.is_sum for heard in transcript)
            without = replay(self._data if summed else {self.site: self._data[self.site]}, transcript)
            exposed = replay(self._exposed, transcript)
            self._asked = list(asked)
            self._answers = [
                (one if heard.is_sum else {name: one[name] for name in one if name == self.site}, two.get(self.site))
                for heard, one, two in zip(transcript, without, exposed, strict=True)
            ]
        return self._answers


def _differing(one: Release, other: Release, noised: Container[str]) -> list[str]:
    return [
        place(type(one), name)
        for name in one.declarations()
        if name not in noised and not _same(getattr(one, name), getattr(other, name))
    ]


def _fields(
    answer: Message, without: Release, exposed: Release, others: Sequence[Release], noise: Noise
) -> list[Shown]:
    found = []
    for name, declaration in answer.declarations().items():
        if name not in noise.multipliers or getattr(answer, name) is None:
            continue
        noised, own, moved, *rest = (_array(one, name) for one in (answer, without, exposed, *others))
        multiplier = noise.multipliers[name]
        where = place(type(answer), name)
        difference = moved - own if moved.shape == own.shape else np.full(own.shape, np.inf)
        found.append(Shown(where, noised, own + sum(rest), difference, declaration, noise.mechanism, multiplier))
    return found


def _array(message: Message, name: str) -> Floats:
    return np.asarray(getattr(message, name), dtype=np.float64)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))
