"""Recorded exchanges of a fit, and their replay without noise, with and without the canary."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Mask
from multicentre.core.messages import Declaration, Message, place
from multicentre.core.noise_plan import Mechanism, Noise, Plan
from multicentre.core.session import Answers, Session
from multicentre.core.steps import A, P, R, Release, SitePart, Step
from multicentre.core.wire import encode
from multicentre.federation import Federation
from multicentre.studies.audit.scores import log_likelihood_ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Exchange:
    """Exchange of a fit: one step, its requests and the answer.

    Parameters
    ----------
    session : str
        Session of the fit.
    step : Step
    requests : mapping of str to Message
        Request to each site.
    answer : Release or None
        Answer at the coordinator: that of the watched site, or the sum if sums are masked. None if the watched site
        received no request.
    is_sum : bool
        True if the answer is a sum over all sites with a request.
    """

    session: str
    step: Step[Any, Any, Any]
    requests: Mapping[str, Message]
    answer: Message | None
    is_sum: bool


Transcript = Sequence[Exchange]


class AllReleased(BaseException):
    """Raised after the last planned release; later values of a fit contain no further information."""


@dataclass
class Watch:
    """Exchanges of a coordinator with one site, as an attacker at the coordinator sees them.

    Parameters
    ----------
    site : str
    enough : int, optional
        Raise :class:`AllReleased` after this number of exchanges if the plan has no further releases.

    Attributes
    ----------
    exchanges : list of Exchange
        Each exchange of the following fits is appended.
    """

    site: str
    enough: int | None = None
    exchanges: list[Exchange] = field(default_factory=list)


class RecordingSession(Session):
    """Session that records the exchanges of its coordinator with one site."""

    def sum(self, step: Step[P, A, R], message: A, *, coarsen: Callable[[R, int], R] | None = None) -> R:
        """Return the sum over the sites' answers, and record it if sums are masked."""
        total = super().sum(step, message, coarsen=coarsen)
        if self.protection == "masked":
            self._record(Exchange(self.name, step, dict.fromkeys(self.sites, message), total, is_sum=True))
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
        """Return the sites' answers, and record that of the watched site unless it is masked."""
        called = self.sites if to is None else tuple(to)
        answers = super().collect(step, message, mask=mask, to=to, skip_refusals=skip_refusals)
        if mask is None and step.part is self.part:
            requests = {site: message if isinstance(message, Message) else message[site] for site in called}
            self._record(Exchange(self.name, step, requests, answers.get(self._watch.site), is_sum=False))
        return answers

    @property
    def _watch(self) -> Watch:
        assert isinstance(self.consortium, Recording)
        return self.consortium.watch

    def _record(self, exchange: Exchange) -> None:
        watch = self._watch
        watch.exchanges.append(exchange)
        if watch.enough is None or len(watch.exchanges) < watch.enough or self.plan is None:
            return
        if all(self._called[planned.step.name] >= planned.times for planned in self.plan.releases):
            raise AllReleased


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Federation):
    """Federation whose sessions record the exchanges of their coordinator with one site.

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
    """Return the sites' answers to recorded requests, before noise: for each exchange, by site.

    The contribution of a patient may depend on the requests, and these on earlier noised answers. Each transcript is
    therefore replayed from its first request, on new site parts.

    Parameters
    ----------
    sites : mapping of str to data
    transcript : sequence of Exchange

    Examples
    --------
    >>> from multicentre.core.messages import Nothing
    >>> from multicentre.core.steps import Acknowledgement, step
    >>> class Greeter(SitePart):
    ...     @step(releases=Acknowledgement)
    ...     def greet(self, request: Nothing) -> Acknowledgement:
    ...         return Acknowledgement()
    >>> greeting = Exchange("0.1", Greeter.greet, {"lyon": Nothing(), "oslo": Nothing()}, None, is_sum=False)
    >>> replay({"lyon": None}, [greeting])
    [{'lyon': Acknowledgement(patients={})}]
    """
    parts: dict[tuple[str, str, type[SitePart]], SitePart] = {}
    answers = []
    for exchange in transcript:
        by_site = {}
        for site in [name for name in sites if name in exchange.requests]:
            key = (exchange.session, site, exchange.step.part)
            if key not in parts:
                parts[key] = exchange.step.part(site, sites[site])
            by_site[site] = exchange.step.run(parts[key], exchange.requests[site])
        answers.append(by_site)
    return answers


@dataclass(frozen=True)
class NoisedField:
    """Noised field of a transcript, with its value before noise.

    Parameters
    ----------
    where : str
        Name of the field.
    noised : array
        Value at the coordinator.
    without : array
        Value before noise, without the canary.
    difference : array
        Change of that value by the canary.
    declaration : Declaration
    mechanism : {"gaussian", "laplace"}
    multiplier : float
        Scale of the noise in units of the declared sensitivity.
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
        """Change of the field by the canary, relative to the declared sensitivity."""
        assert self.declaration.sensitivity is not None  # the plan was checked for it
        order = 1 if self.declaration.norm == "l1" else 2
        return float(np.linalg.norm(self.difference.ravel(), order)) / self.declaration.sensitivity

    @property
    def score(self) -> float:
        """Log-likelihood ratio of the field."""
        assert self.declaration.sensitivity is not None
        scale = self.multiplier * self.declaration.sensitivity
        return log_likelihood_ratio(self.noised, self.without, self.difference, scale, self.mechanism)


class Replays:
    """Replays of a transcript at sites with and without the canary.

    Parameters
    ----------
    plan : Plan
    site : str
        Site of the canary.
    data : mapping of str to data
        Data of all sites, without the canary.
    exposed : data
        Data of the canary's site, with the canary.
    """

    def __init__(self, plan: Plan, site: str, data: Mapping[str, Any], exposed: Any) -> None:
        self.site = site
        self._noises = {planned.step.name: planned.noise for planned in plan.releases}
        self._data = data
        self._exposed = {site: exposed}
        self._requests: list[object] = []
        self._answers: list[tuple[dict[str, Release], Release | None]] = []

    def noised_fields(self, transcript: Transcript) -> list[NoisedField]:
        """Return every noised field of the transcript with its value before noise."""
        fields = []
        for exchange, (without, exposed) in zip(transcript, self._replay_pairs(transcript), strict=True):
            noise = self._noises.get(exchange.step.name)
            if noise is not None and exchange.answer is not None and exposed is not None:
                others = [one for name, one in without.items() if name != self.site]
                fields += _fields(exchange.answer, without[self.site], exposed, others, noise)
        return fields

    def unprotected(self, transcript: Transcript) -> list[str]:
        """Return the fields without noise that differ with the canary."""
        fields = []
        for exchange, (without, exposed) in zip(transcript, self._replay_pairs(transcript), strict=True):
            noise = self._noises.get(exchange.step.name)
            if exposed is not None:
                fields += _differing_fields(without[self.site], exposed, noise.multipliers if noise else ())
        return list(dict.fromkeys(fields))

    def _replay_pairs(self, transcript: Transcript) -> list[tuple[dict[str, Release], Release | None]]:
        """Return each answer without the canary, and the site's answer with it; equal requests are cached."""
        requests = [
            (exchange.step.name, [(site, encode(request)) for site, request in exchange.requests.items()])
            for exchange in transcript
        ]
        if requests != self._requests or not self._answers:
            summed = any(exchange.is_sum for exchange in transcript)
            without = replay(self._data if summed else {self.site: self._data[self.site]}, transcript)
            exposed = replay(self._exposed, transcript)
            self._requests = list(requests)
            self._answers = [
                (one if exchange.is_sum else {name: one[name] for name in one if name == self.site}, two.get(self.site))
                for exchange, one, two in zip(transcript, without, exposed, strict=True)
            ]
        return self._answers


def _differing_fields(one: Release, other: Release, noised: Container[str]) -> list[str]:
    return [
        place(type(one), name)
        for name in one.declarations()
        if name not in noised and not _same(getattr(one, name), getattr(other, name))
    ]


def _fields(
    answer: Message, without: Release, exposed: Release, others: Sequence[Release], noise: Noise
) -> list[NoisedField]:
    fields = []
    for name, declaration in answer.declarations().items():
        if name not in noise.multipliers or getattr(answer, name) is None:
            continue
        noised, unexposed, moved, *rest = (_array(one, name) for one in (answer, without, exposed, *others))
        multiplier = noise.multipliers[name]
        where = place(type(answer), name)
        difference = moved - unexposed if moved.shape == unexposed.shape else np.full(unexposed.shape, np.inf)
        fields.append(
            NoisedField(where, noised, unexposed + sum(rest), difference, declaration, noise.mechanism, multiplier)
        )
    return fields


def _array(message: Message, name: str) -> Floats:
    return np.asarray(getattr(message, name), dtype=np.float64)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))
