"""Judging a model beside the patients: what every site part of scoring shares, and the coordinator's side of it.

A model is a message, never code: a site knows the kinds that it takes, checks every array of what it is sent, and takes
in one model a session. Asks that followed one another with other bins of the same records would tell by their
differences, so that each step answers for one ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.federation.messages import Lengths, Message, Nothing, array, text, texts
from multicentre.federation.session import Session
from multicentre.federation.steps import Acknowledgement, R, Release, SitePart, Step, step
from multicentre.federation.wire import decode, encode

T = TypeVar("T")
Floats = NDArray[np.float64]
FIXED = 2.0**24
LARGEST_FIXED = 2.0**52
LARGEST_VALUE = 1e30
RECORDS = 2.0**31
LARGEST_MODEL = 2**30


class Predictor(Protocol):
    """A fitted model as a message."""

    def valid_for(self, data: Any) -> Any:
        """Return the model if its arrays make one that can be applied to the data; else raise."""


@dataclass(frozen=True)
class Judged(Message):
    """The model to be judged."""

    kind: str = text("kind of model, one of those that the site knows")
    packed: NDArray[np.uint8] = array("the model in the wire format of messages", ("b",), dtype="u1")


@dataclass(frozen=True)
class Memory(Judged):
    """What a site remembers between rounds; it never leaves."""

    asked: tuple[str, ...] = texts("digests of what was asked, each step once")


@dataclass(frozen=True)
class Wanted(Message):
    """Scores that a site is to tell of its own records."""

    names: tuple[str, ...] = texts("names of the scores")


@dataclass(frozen=True)
class OwnScores(Release):
    """A site's own scores."""

    values: Floats = array("score; 0 where too few records stand behind it", ("s",))
    told: NDArray[np.bool_] = array("whether enough records stand behind it", ("s",), dtype="b1")


class JudgingPart(SitePart):
    """Base of the site parts of scoring.

    A subclass names the kinds of models that it takes and adds steps that answer with sums.
    """

    kinds: ClassVar[Mapping[str, type[Any]]] = {}
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"s": "scores"}
    state: Memory | None = None
    data: Any
    _predicted: Floats | None = None

    @step(releases=Acknowledgement, when="once")
    def judge(self, ask: Judged) -> Acknowledgement:
        """Take in the model that is to be judged, once; nothing leaves."""
        digest = _digest("judge", ask)
        if self.state is None:
            self.read(ask)
            self.state = Memory(ask.kind, ask.packed, asked=(digest,))
        elif digest not in self.state.asked:
            raise ConfigurationError("the site judges another model", where="judge", hint="Begin a new session.")
        return Acknowledgement()

    @step(releases=OwnScores, when="on request", refusable=True)
    def score_own(self, ask: Wanted) -> OwnScores:
        """Tell how well the model does for the site's own records.

        A sum over sites cannot answer for one of them, so this is the site's own answer, one number a score. It is
        asked for when an analyst wants to know where a model serves worse.
        """
        self.answer_once("score_own", ask)
        least = max(self.least_behind, 2) if self.least_behind else 1
        found = [self.own_score(name) for name in ask.names]
        told = np.array([behind >= least and bool(np.isfinite(value)) for value, behind in found], dtype=np.bool_)
        values = np.array([value if tell else 0.0 for (value, _), tell in zip(found, told, strict=True)], dtype=float)
        patients = min((behind for (_, behind), tell in zip(found, told, strict=True) if tell), default=0)
        return OwnScores(values, told, patients=patients)

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        raise NotImplementedError

    def read(self, judged: Judged) -> Any:
        """Return the model of a message.

        Raises
        ------
        MessageError, SchemaMismatch
            It is of a kind that the site does not take, its arrays make no model, or one of other data.
        """
        kind = self.kinds.get(judged.kind)
        if kind is None or len(judged.packed) > LARGEST_MODEL:
            raise MessageError(
                "the model is too large, or of a kind that is not scored here",
                where="judge",
                hint="Install the same version everywhere.",
            )
        return decode(kind, judged.packed.tobytes()).valid_for(self.data)

    @cached_property
    def model(self) -> Any:
        """The model that is judged.

        Raises
        ------
        ConfigurationError
            None was sent.
        """
        return self.read(self.memory)

    @property
    def memory(self) -> Memory:
        """What the site remembers.

        Raises
        ------
        ConfigurationError
            There is no model yet.
        """
        if self.state is None:
            raise ConfigurationError("there is no model to be judged", where=self.method, hint="Begin a new session.")
        return self.state

    def predicted(self, predict: Callable[[], Floats]) -> Floats:
        """Return what the model predicts, worked out once.

        A prediction that is no finite number is the largest: no step breaks, and no score stays untold, because of what
        one record has.
        """
        if self._predicted is None:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._predicted = limited(predict())
        return self._predicted

    @property
    def n_records(self) -> int:
        """Records at the site."""
        return len(self.data)

    def answer_once(self, name: str, ask: Message) -> None:
        """Remember what a step was asked, and refuse to answer it for something else."""
        told = _digest(name, ask)
        known = self.memory.asked
        if any(other.partition(" ")[0] == name and other != told for other in known):
            raise ConfigurationError(
                "repeated requests of a session must be identical; got a different one",
                where=name,
                hint="Start a new session.",
            )
        if told not in known:
            self.state = replace(self.memory, asked=(*known, told))

    def behind(self, cells: NDArray[np.number]) -> int:
        """Return how many patients stand behind counts: all of them under a mask, where only totals show."""
        few = np.asarray(cells)
        return self.n_records if self.masked else int(few[few > 0].min(initial=self.n_records))

    def summed(self, terms: Floats) -> tuple[int, int]:
        """Return a sum of terms of records, as `fixed` has it, and how many patients stand behind it.

        Unmasked, as many stand behind it as its terms differ for (see `differing`), or all where none differs: a model
        can be made up under which all records but one have terms that are known beforehand.
        """
        return fixed(terms), self.n_records if self.masked else differing(terms) or len(terms)

    def told_apart(self, *predictions: Floats) -> int:
        """Return how many patients a model tells apart from the rest, where they are fewest; under a mask, all of them.

        A model that says the same of all but a few makes a sum a function of those few, whatever its terms are.
        """
        found = [] if self.masked else [differing(own) for own in predictions]
        return min((number for number in found if number), default=self.n_records)

    def own_mean(self, terms: Floats) -> tuple[float, int]:
        """Return the mean of terms of the site's own records as `summed` tells it, and how many stand behind it."""
        total, behind = self.summed(terms)
        return unfixed(total) / max(len(terms), 1), behind


def limited(values: Floats) -> Floats:
    """Return values of which none is beyond 1e30; what is no number is 1e30.

    Examples
    --------
    >>> limited(np.array([0.5, np.nan, -np.inf])).tolist()
    [0.5, 1e+30, -1e+30]
    """
    return np.clip(np.nan_to_num(values, nan=LARGEST_VALUE), -LARGEST_VALUE, LARGEST_VALUE)


def amount_to(terms: Floats) -> int:
    """Return how many records share a total alike, after Kish; all of them where every term is 0.

    Examples
    --------
    >>> amount_to(np.array([1.0, 1.0, 0.0])), amount_to(np.zeros(3))
    (2, 3)
    """
    largest = float(np.abs(terms).max(initial=0.0))
    if not largest > 0:
        return len(terms)
    shares = np.abs(terms) / largest
    return int(float(shares.sum()) ** 2 / float(np.square(shares).sum()) + 1e-6)


def differing(*groups: Floats) -> int:
    """Return for how many records terms differ from what they are for most of their group, after Kish; 0 for none.

    Examples
    --------
    >>> differing(np.array([7.0, 7.0, 7.0, 9.0])), differing(np.array([1.0, 2.0, 3.0])), differing(np.ones(3))
    (1, 2, 0)
    """
    distances = np.concatenate([_distances(terms) for terms in groups])
    return amount_to(distances) if distances.any() else 0


def _distances(terms: Floats) -> Floats:
    """Return how far terms are from their median, in multiples of 2^-24 as they are summed."""
    multiples = np.rint(limited(terms) * FIXED)
    return np.asarray(np.abs(multiples - np.median(multiples)) if len(multiples) else multiples, dtype=np.float64)


def fixed(terms: Floats) -> int:
    """Return the sum of terms in whole multiples of 2^-24, so that it does not depend on the order of records.

    A sum beyond 2^26 is 2^28, which `unfixed` takes for unknown. The terms are not limited by themselves: those of all
    records but one could be made to be the limit, and known.

    Examples
    --------
    >>> fixed(np.array([0.5, 0.25])) / FIXED, fixed(np.array([1e300, 1.0])) == LARGEST_FIXED
    (0.75, True)
    """
    total = float(np.rint(limited(terms) * FIXED).sum())
    return int(total) if abs(total) <= LARGEST_FIXED / 4 else int(np.copysign(LARGEST_FIXED, total))


def unfixed(total: float) -> float:
    """Return the sum that `fixed` tells, of one site or added over sites; not a number where it is out of range.

    Examples
    --------
    >>> unfixed(fixed(np.array([0.5, 0.25]))), unfixed(LARGEST_FIXED)
    (0.75, nan)
    """
    return float(total) / FIXED if abs(total) < LARGEST_FIXED / 2 else float("nan")


@dataclass(frozen=True)
class SiteScores:
    """Sites' own scores, and the reasons of sites that give none."""

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def judge(
    federation: Consortium, part: type[JudgingPart], model: Message, kind: str, work: Callable[[Session], T]
) -> T:
    """Have every site take one model in, and return what `work` makes of the session in which they did."""
    judged = Judged(kind, np.frombuffer(encode(model), dtype=np.uint8))
    for attempt in federation.attempts(part, _digest("judge", judged)):
        with attempt as opened:
            opened.once("judged", Nothing, partial(_hand_out, opened, part, judged))
            result = work(opened)
    return result


def _hand_out(opened: Session, part: type[JudgingPart], judged: Judged) -> Nothing:
    opened.ask(part.judge, judged)
    return Nothing()


def total(opened: Session, step: Step[Any, Any, R], ask: Message) -> R:
    """Return the sum over sites that a step gives, once; a refusal unmasked says what would do instead.

    Raises
    ------
    DisclosureRefused
        Too few of a site's patients stand behind it.
    """

    def summed() -> R:
        try:
            return opened.sum(step, ask)
        except DisclosureRefused as error:
            if opened.protection == "masked":
                raise
            hint = "Make the session with secure_sum=True, or take fewer folds or other scores."
            raise DisclosureRefused(error.what, where=error.where, hint=hint) from None

    return opened.once(step.name, step.releases, summed)


def ask_own(opened: Session, part: type[JudgingPart], names: Sequence[str]) -> SiteScores:
    """Return each site's own scores; see :func:`ask_sites`."""
    return ask_sites(opened, part.score_own, Wanted(tuple(names)), lambda answer: _by_name(answer, names))


def ask_sites(
    opened: Session, step: Step[Any, Any, R], ask: Message, read: Callable[[R], dict[str, float]]
) -> SiteScores:
    """Return what `read` makes of each site's own answer, and why the other sites refuse."""
    answers = opened.ask(step, ask, skip_refusals=True)
    return SiteScores({site: read(answer) for site, answer in answers.items()}, answers.refused)


def _by_name(answer: OwnScores, names: Sequence[str]) -> dict[str, float]:
    rows = zip(names, answer.values.tolist(), answer.told.tolist(), strict=True)
    return {name: value if told else float("nan") for name, value, told in rows}


def _digest(name: str, ask: Message) -> str:
    return f"{name} {hashlib.sha256(encode(ask)).hexdigest()}"
