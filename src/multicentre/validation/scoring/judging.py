"""Base class of the site parts of scoring, and the coordinator's rounds.

1. The coordinator sends the fitted model as a message to every site. A site checks its kind and all its arrays.
2. The coordinator requests sums over sites of the quantities that a score needs.
3. If scores by site are requested, each site returns the scores of its own records, as its policy allows.

A model is a message, never code. A session has one model. Each step answers one request only, because the difference
of two answers with different bins would reveal single records.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import FitFailedWarning

from multicentre.core.consortium import Consortium
from multicentre.core.messages import (
    Lengths,
    Message,
    ModelMessage,
    Nothing,
    array,
    digest_of_model,
    text,
    texts,
)
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, R, Release, SitePart, Step, step
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, QuorumLost

T = TypeVar("T")
ALONE_HINT = "Evaluate more records of this site, or this site together with others, under masked sums."
Floats = NDArray[np.float64]
# Terms are summed as integer multiples of 2^-24, so that sums do not depend on the order of records.
FIXED = 2.0**24
# Replaces a sum that is out of range; sums of up to two such values stay exact in a double (2^53).
MAX_FIXED = 2.0**52
# Predictions are clipped to this value, whose square is finite; it also replaces NaN.
MAX_VALUE = 1e30
# Declared bound of every count of records: about 2 billion, far more than a site has.
RECORDS = 2.0**31
# Sessions of a scoring during which sites are lost.
MAX_STARTS = 3
# Largest size of a model in bytes: 1 GiB bounds the memory of a site.
MAX_MODEL = 2**30


class Predictor(Protocol):
    """A fitted model as a message."""

    def valid_for(self, data: Any) -> Any:
        """Return the model if its arrays are valid for the data; otherwise raise."""


@dataclass(frozen=True)
class Scored(ModelMessage):
    """The model to score."""

    kind: str = text("kind of the model, one of those that the site supports")
    packed: NDArray[np.uint8] = array("the model in the wire format of messages", ("b",), dtype="u1")

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model."""
        return digest_of_model(self.kind, self.packed.tobytes())


@dataclass(frozen=True)
class Memory(Scored):
    """State of a site between rounds; it never leaves the site."""

    requests: tuple[str, ...] = texts("digests of the requests, one per step")


@dataclass(frozen=True)
class ScoreNames(Message):
    """Names of the scores that a site returns for its records."""

    names: tuple[str, ...] = texts("names of the scores")


@dataclass(frozen=True)
class OwnScores(Release):
    """Scores of one site's records."""

    values: Floats = array("score; 0 if it is based on too few records", ("s",))
    reliable: NDArray[np.bool_] = array("the score is based on enough records", ("s",), dtype="b1")


class ScoringPart(SitePart):
    """Base class of the site parts of scoring.

    A subclass sets the supported kinds of models and adds steps that return sums.
    """

    kinds: ClassVar[Mapping[str, type[Any]]] = {}
    remembers: ClassVar[type[Message]] = Memory
    lengths: ClassVar[Lengths] = {"s": "scores"}
    state: Memory | None = None
    data: Any
    # Also under masks, count the patients whose predictions differ from the rest.
    counts_under_masks: ClassVar[bool] = False
    # Names of the scores that describe a held-out site, each with its standard error where it has one.
    described_by: ClassVar[tuple[str, ...]] = ()
    _predicted: Floats | None = None
    _apart: int | None = None

    @step(releases=Acknowledgement, when="once")
    def judge(self, request: Scored) -> Acknowledgement:
        """Store the model to score, once; nothing leaves the site."""
        digest = request_digest("judge", request)
        if self.state is None:
            self.read(request)
            self.state = Memory(request.kind, request.packed, requests=(digest,))
        elif digest not in self.state.requests:
            raise ConfigurationError(
                "a session must score one model; got a second one", where="judge", hint="Start a new session."
            )
        return Acknowledgement()

    @step(releases=OwnScores, when="on request", refusable=True)
    def score_own(self, request: ScoreNames) -> OwnScores:
        """Return scores of the site's records, one number per score.

        They are not part of a sum over sites. An analyst requests them to compare the model's performance by site.
        """
        self.answer_once("score_own", request)
        least = max(self.least_behind, 2) if self.least_behind else 1
        scores = [self.site_score(name) for name in request.names]
        enough = np.array([behind >= least and bool(np.isfinite(value)) for value, behind in scores], dtype=np.bool_)
        values = np.array([value if is_enough else 0.0 for (value, _), is_enough in zip(scores, enough, strict=True)])
        patients = min((behind for (_, behind), is_enough in zip(scores, enough, strict=True) if is_enough), default=0)
        return OwnScores(values.astype(np.float64), enough, patients=patients)

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        raise NotImplementedError

    def read(self, judged: Scored) -> Any:
        """Return the model of a message.

        Raises
        ------
        MessageError, SchemaMismatch
            The kind is not supported, the arrays are invalid, or the model is for other data.
        """
        kind = self.kinds.get(judged.kind)
        if kind is None or len(judged.packed) > MAX_MODEL:
            raise MessageError(
                f"the model must be of kind {', '.join(self.kinds)} and have at most {MAX_MODEL:,} bytes; got "
                f"{len(judged.packed):,} bytes of kind {judged.kind[:40]!r}",
                where="judge",
                hint="Install the same version of the package at all sites.",
            )
        return decode(kind, judged.packed.tobytes()).valid_for(self.data)

    @cached_property
    def model(self) -> Any:
        """Model that is scored.

        Raises
        ------
        ConfigurationError
            No model was sent.
        """
        return self.read(self.memory)

    @property
    def memory(self) -> Memory:
        """State of the site.

        Raises
        ------
        ConfigurationError
            No model was sent.
        """
        if self.state is None:
            raise ConfigurationError(
                "the model must be sent (step judge) before any other step; it was not",
                where=self.method,
                hint="Start a new session.",
            )
        return self.state

    def predicted(self, predict: Callable[[], Floats]) -> Floats:
        """Return the model's predictions, computed once.

        NaN and infinite predictions are replaced by the largest value. A single record can therefore neither raise an
        error nor suppress a score.
        """
        if self._predicted is None:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._predicted = limited(predict())
        return self._predicted

    @property
    def n_records(self) -> int:
        """Records at the site."""
        return len(self.data)

    def answer_once(self, name: str, request: Message) -> None:
        """Store the request of a step; raise if the step has answered a different request."""
        digest = request_digest(name, request)
        earlier = self.memory.requests
        if any(other.partition(" ")[0] == name and other != digest for other in earlier):
            raise ConfigurationError(
                "repeated requests of a step must be identical in a session; got a different one",
                where=name,
                hint="Start a new session.",
            )
        if digest not in earlier:
            self.state = replace(self.memory, requests=(*earlier, digest))

    def behind(self, cells: NDArray[np.number]) -> int:
        """Return the number of patients behind counts; all if sums are masked, which reveal only totals."""
        return self.n_contributing(self.n_records, cells)

    def summed(self, terms: Floats) -> tuple[int, int]:
        """Return a sum of terms of records (see `fixed`) and the number of patients behind it.

        If sums are unmasked, this is the number of records whose terms differ from the rest (see `differing`), or all
        records if none differs. The reason is that a forged model can fix the terms of all records except one.
        """
        return fixed(terms), self.n_records if self.masked else differing(terms) or len(terms)

    def fewest_differing(self, *predictions: Floats) -> int:
        """Return the smallest number of patients whose predictions differ from the rest; all if sums are masked.

        If a model predicts the same for all patients except a few, every sum depends only on those few. The difference
        of two answers does, if two models predict the same except for a few; unmasked, the predictions are therefore
        also compared with those of earlier models.
        """
        if self.masked and not self.counts_under_masks:
            return self.n_records
        numbers = [differing(column) for column in predictions]
        if not self.masked and self.least_behind > 1 and self.earlier_predictions is not None:
            numbers.append(self._n_apart(np.column_stack(predictions)))
        return min((number for number in numbers if number), default=self.n_records)

    def _n_apart(self, predictions: Floats) -> int:
        """Return the fewest patients whose predictions tell this model from an earlier one; 0 for none."""
        if self._apart is None:
            records = f"{self.method} {getattr(self, 'records', self.data).digest()}"
            self._apart = int(self.earlier_predictions.fewest_apart(records, predictions, differing))
        return self._apart

    def site_mean(self, terms: Floats) -> tuple[float, int]:
        """Return the mean of terms of the site's records and the number of patients of `summed`."""
        total, behind = self.summed(terms)
        return unfixed(total) / max(len(terms), 1), behind


def limited(values: Floats) -> Floats:
    """Clip values to 1e30 and replace NaN by 1e30.

    Examples
    --------
    >>> limited(np.array([0.5, np.nan, -np.inf])).tolist()
    [0.5, 1e+30, -1e+30]
    """
    return np.clip(np.nan_to_num(values, nan=MAX_VALUE), -MAX_VALUE, MAX_VALUE)


def amount_to(terms: Floats) -> int:
    """Return Kish's effective number of records of a total; all records if every term is 0.

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
    """Return Kish's effective number of records whose terms differ from the median of their group; 0 for none.

    Examples
    --------
    >>> differing(np.array([7.0, 7.0, 7.0, 9.0])), differing(np.array([1.0, 2.0, 3.0])), differing(np.ones(3))
    (1, 2, 0)
    """
    distances = np.concatenate([_distances(terms) for terms in groups])
    return amount_to(distances) if distances.any() else 0


def _distances(terms: Floats) -> Floats:
    """Return absolute distances of terms from their median, in multiples of 2^-24."""
    multiples = np.rint(limited(terms) * FIXED)
    return np.asarray(np.abs(multiples - np.median(multiples)) if len(multiples) else multiples, dtype=np.float64)


def fixed(terms: Floats) -> int:
    """Return the sum of terms in integer multiples of 2^-24, so that it does not depend on the order of records.

    A sum beyond 2^26 is replaced by 2^28, which `unfixed` converts to NaN. Single terms are not clipped to that range,
    because a forged model could then fix the terms of all records except one.

    Examples
    --------
    >>> fixed(np.array([0.5, 0.25])) / FIXED, fixed(np.array([1e300, 1.0])) == MAX_FIXED
    (0.75, True)
    """
    total = float(np.rint(limited(terms) * FIXED).sum())
    return int(total) if abs(total) <= MAX_FIXED / 4 else int(np.copysign(MAX_FIXED, total))


def unfixed(total: float) -> float:
    """Convert a sum of `fixed`, of one site or over sites, to a float; NaN if it is out of range.

    Examples
    --------
    >>> unfixed(fixed(np.array([0.5, 0.25]))), unfixed(MAX_FIXED)
    (0.75, nan)
    """
    return float(total) / FIXED if abs(total) < MAX_FIXED / 2 else float("nan")


@dataclass(frozen=True)
class SiteScores:
    """Scores by site, and the reasons of sites that refuse."""

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def judge(
    federation: Consortium, part: type[ScoringPart], model: Message, kind: str, work: Callable[[Session], T]
) -> T:
    """Send a model to every site, and return the result of `work` in the same session.

    The model travels with the first requests of `work`.

    If a site is lost in between, scores of different sites would stand side by side. The work then begins again, at
    most `MAX_STARTS` times.

    Raises
    ------
    QuorumLost
        Sites were lost in every session.
    """
    judged = Scored(kind, np.frombuffer(encode(model), dtype=np.uint8))
    for _ in range(MAX_STARTS):
        for attempt in federation.attempts(part, request_digest("judge", judged)):
            with attempt as opened:
                result: T
                sites, result = opened.together([partial(send_model, opened, part, judged), partial(work, opened)])
                is_complete = opened.sites == sites
        if is_complete:
            return result
    raise QuorumLost(
        f"scores must be those of the same sites; sites were lost in each of {MAX_STARTS} sessions",
        where="scoring",
        hint="Score again when all sites answer.",
    )


def send_model(opened: Session, part: type[ScoringPart], judged: Scored) -> tuple[str, ...]:
    """Send the model, and return the sites that received it."""

    def request() -> Nothing:
        opened.ask(part.judge, judged)
        return Nothing()

    opened.once("judged", Nothing, request)
    return opened.sites


def total(opened: Session, step: Step[Any, Any, R], request: Message) -> R:
    """Return the sum of a step over sites, requested once.

    Raises
    ------
    DisclosureRefused
        The sum is based on too few patients of a site.
    """
    return opened.once(step.name, step.releases, lambda: opened.sum(step, request))


def is_alone(opened: Session) -> bool:
    """Return whether a single site answers, unmasked: its scores are then those of all records."""
    return opened.protection == "unmasked" and len(opened.sites) == 1


def score_alone(opened: Session, part: type[ScoringPart], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the scores of the only site, by site and name, with those that describe it.

    Raises
    ------
    DisclosureRefused
        The site refuses, or no requested score rests on enough of its patients.
    """
    (site,) = opened.sites
    every = tuple(dict.fromkeys((*names, *part.described_by)))
    scores = _by_name(opened.ask(part.score_own, ScoreNames(every))[site], every)
    if not any(np.isfinite(scores[name]) for name in names):
        raise DisclosureRefused(
            f"{', '.join(names)} must rest on the site's minimum of patients, of each class and with predictions that "
            "differ from the rest and from those of earlier models; it rests on fewer",
            where=site,
            hint=ALONE_HINT,
        )
    for name in names:
        if not np.isfinite(scores[name]):
            reason = f"the score {name} is undefined at {site}, or rests on fewer patients than its minimum"
            warnings.warn(reason, FitFailedWarning, stacklevel=2)
    return {site: scores}


def request_site_scores(opened: Session, part: type[ScoringPart], names: Sequence[str]) -> SiteScores:
    """Return scores by site; see :func:`ask_sites`."""
    return ask_sites(opened, part.score_own, ScoreNames(tuple(names)), lambda answer: _by_name(answer, names))


def ask_sites(
    opened: Session, step: Step[Any, Any, R], request: Message, read: Callable[[R], dict[str, float]]
) -> SiteScores:
    """Return `read` of each site's answer, and the reasons of the sites that refuse."""
    answers = opened.ask(step, request, skip_refusals=True)
    return SiteScores({site: read(answer) for site, answer in answers.items()}, answers.refused)


def _by_name(answer: OwnScores, names: Sequence[str]) -> dict[str, float]:
    rows = zip(names, answer.values.tolist(), answer.reliable.tolist(), strict=True)
    return {name: value if is_reliable else float("nan") for name, value, is_reliable in rows}


def request_digest(name: str, request: Message) -> str:
    """Return the name of a step and the hash of a request, as a site remembers it.

    Examples
    --------
    >>> request_digest("judge", Nothing()).partition(" ")[0]
    'judge'
    """
    return f"{name} {hashlib.sha256(encode(request)).hexdigest()}"
