"""Site part of class scores, and the coordinator's rounds.

1. For the accuracy, the sites return sums of correct and wrong predictions.
2. For scores of the confusion matrix, they return sums of records by true and predicted class.
3. For losses, they return sums of log losses and Brier scores.
4. For ranks, they return sums of records by coarse bin of log odds, then by class and bins of about equal counts.

Masked sums reveal only totals over sites. If sums are unmasked, the guard refuses counts of few patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Lengths, Message, Nothing, array, count
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.errors import ConfigurationError, MessageError
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.gaps import count_left_out
from multicentre.validation.scoring.judging import (
    MAX_FIXED,
    RECORDS,
    ScoringPart,
    SiteScores,
    differing,
    is_alone,
    judge,
    request_site_scores,
    score_alone,
    total,
    unfixed,
)
from multicentre.validation.scoring.scores import Scores

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]
# Suffix of the name of a score's standard error.
ERROR = ".error"


@dataclass(frozen=True)
class Edges(Message):
    """Log odds between bins, for each class that is ranked."""

    edges: Floats = array("log odds between bins", ("r", "e"))


@dataclass(frozen=True)
class CorrectCounts(Release):
    """Numbers of correct and wrong predictions."""

    counts: Integers = array("records with correct and wrong prediction", (2,), dtype="i8", bound=RECORDS, counts=True)


@dataclass(frozen=True)
class Losses(Release):
    """Sums of losses, as integers, so that they do not depend on the distribution of records over sites."""

    n_records: int = count("records", unit="records", bound=RECORDS)
    log: int = count("sum of log losses, times 2^24", bound=MAX_FIXED)
    brier: int = count("sum of Brier scores, times 2^24", bound=MAX_FIXED)


@dataclass(frozen=True)
class Confusion(Release):
    """Records by true and predicted class."""

    counts: Integers = array("records by true and predicted class", ("k", "k"), dtype="i8", bound=RECORDS, counts=True)


@dataclass(frozen=True)
class ScoreHistogram(Release):
    """Records by log odds of each class that is ranked."""

    counts: Integers = array("records by coarse bin of log odds", ("r", "b"), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class Ranked(Release):
    """Records without and with each class, by bin of its log odds."""

    counts: Integers = array("records without and with the class by bin", ("r", 2, "b"), dtype="i8", bound=RECORDS)


class ClassPart(ScoringPart):
    """Base class of the site parts that score classes; a subclass returns true classes and probabilities."""

    lengths: ClassVar[Lengths] = {
        "k": "classes",
        "r": "classes that are ranked",
        "b": "bins of the log odds",
    }

    def true_classes(self) -> Integers:
        """Return the class of every record as its index among the model's classes, shape (n,)."""
        raise NotImplementedError

    def predict_chances(self) -> Floats:
        """Return the predicted probability of each class, shape (n, k)."""
        raise NotImplementedError

    @step(releases=CorrectCounts, when="at the end", summed=True)
    def count_right(self, request: Nothing) -> CorrectCounts:
        """Count correct and wrong predictions."""
        right = int((self.predicted_classes == self.truth).sum())
        counts = np.array([right, len(self.truth) - right])
        return CorrectCounts(counts, patients=min(self.behind(counts), self.n_differing))

    @step(releases=Losses, when="at the end", summed=True)
    def sum_losses(self, request: Nothing) -> Losses:
        """Sum log losses and Brier scores."""
        log, brier = maths.log_losses(self.chances, self.truth), maths.brier_losses(self.chances, self.truth)
        (log_total, one), (brier_total, other) = self.summed(log), self.summed(brier)
        return Losses(len(self.truth), log_total, brier_total, patients=min(one, other, self.n_differing))

    @step(releases=Confusion, when="at the end", summed=True)
    def count_confusion(self, request: Nothing) -> Confusion:
        """Count records by true and predicted class."""
        return Confusion(self.confusion, patients=min(self.behind(self.confusion), self.n_differing))

    @step(releases=ScoreHistogram, when="at the end", summed=True)
    def locate_scores(self, request: Nothing) -> ScoreHistogram:
        """Count records by coarse bin of log odds, from which bins of about equal counts are derived."""
        edges = maths.coarse_edges()
        rows = [np.bincount(np.searchsorted(edges, column), minlength=len(edges) + 1) for column in self.scores.T]
        counts = np.array(rows)
        return ScoreHistogram(counts, patients=min(self.behind(counts), self.n_differing))

    @step(releases=Ranked, when="at the end", summed=True)
    def count_scores(self, request: Edges) -> Ranked:
        """Count records with and without each class by bin of its log odds."""
        self.answer_once("count_scores", request)
        self._check_edges(request.edges)
        counts = np.array([self._ranked(row, edges) for row, edges in enumerate(request.edges)])
        return Ranked(counts, patients=min(self.behind(counts), self.n_differing))

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        table = self.confusion
        if name == "accuracy":
            counts = np.array([np.trace(table), table.sum() - np.trace(table)])
            return float(counts[0] / counts.sum()), min(self.behind(counts), self.n_differing)
        if name in maths.FROM_CONFUSION:
            return maths.from_confusion(name, table.astype(np.float64)), min(self.behind(table), self.n_differing)
        if name in LOSSES or name.removesuffix(ERROR) in LOSSES:
            return self._site_losses(name)
        if name.removesuffix(ERROR) in ("prevalence", "observed_over_expected"):
            return self._site_events(name)
        return self._site_ranks(name)

    @cached_property
    def truth(self) -> Integers:
        """Class of every record, shape (n,)."""
        return self.true_classes()

    @property
    def chances(self) -> Floats:
        """Probability of each class, shape (n, k)."""
        return np.clip(self.predicted(self.predict_chances), 0.0, 1.0)

    @property
    def predicted_classes(self) -> Integers:
        """Class of the largest probability, the first in case of ties, shape (n,)."""
        return np.asarray(np.argmax(self.chances, axis=1), dtype=np.int64)

    @property
    def confusion(self) -> Integers:
        """Records by true and predicted class, shape (k, k)."""
        n_classes = self.chances.shape[1]
        cells: Integers = np.bincount(self.truth * n_classes + self.predicted_classes, minlength=n_classes**2)
        return cells.reshape(n_classes, n_classes)

    @property
    def n_differing(self) -> int:
        """Number of records whose predictions differ from the rest."""
        return self.fewest_differing(*self.scores.T)

    @property
    def ranked(self) -> list[int]:
        """Ranked classes: the second of two classes, or each of more than two."""
        n_classes = self.chances.shape[1]
        return [1] if n_classes == 2 else list(range(n_classes))

    @property
    def scores(self) -> Floats:
        """Log odds of each ranked class, shape (n, r)."""
        return maths.log_odds(self.chances[:, self.ranked])

    def _ranked(self, row: int, edges: Floats) -> Integers:
        """Return records without and with a class by bin, shape (2, b)."""
        bins, n_bins = np.searchsorted(edges, self.scores[:, row]), len(edges) + 1
        has_class = (self.truth == self.ranked[row]).astype(np.int64)
        cells: Integers = np.bincount(has_class * n_bins + bins, minlength=2 * n_bins)
        return cells.reshape(2, n_bins)

    def _site_losses(self, name: str) -> tuple[float, int]:
        """Return minus a mean loss, or its standard error, and the number of records that it is based on."""
        losses = maths.log_losses if name.startswith("neg_log_loss") else maths.brier_losses
        terms = losses(self.chances, self.truth)
        mean, behind = self.site_mean(terms)
        value = float(terms.std() / np.sqrt(max(len(terms) - 1, 1))) if name.endswith(ERROR) else -mean
        return value, min(behind, self.n_differing)

    def _site_events(self, name: str) -> tuple[float, int]:
        """Return the share of records of the second class, or their number over the sum of predictions."""
        events = int((self.truth == 1).sum())
        behind = min(len(self.truth) - events, events)
        if name == "prevalence":
            return events / max(len(self.truth), 1), behind
        expected, differing_records = self.summed(self.chances[:, 1])
        ratio = float(events / unfixed(expected)) if expected else float("nan")
        if name.endswith(ERROR):
            ratio = ratio / np.sqrt(events) if events else float("nan")
        return ratio, min(behind, differing_records, self.n_differing)

    def _site_ranks(self, name: str) -> tuple[float, int]:
        """Return a score of ranks and the number of records that it is based on.

        This number is the smaller of two: the number of records of the rarer class, and the number of records whose
        rank among the other class differs from that of most of their class (all records if none differs).
        """
        values, behind = [], self.n_records
        for row, column in enumerate(self.scores.T):
            has_class = self.truth == self.ranked[row]
            positives, negatives = column[has_class], column[~has_class]
            if not len(positives) or not len(negatives):
                return float("nan"), 0
            ranks = maths.places_among(positives, negatives), maths.places_among(negatives, positives)
            behind = min(behind, len(positives), len(negatives), differing(*ranks) or self.n_records)
            if name == "average_precision":
                counts = self._ranked(row, np.unique(column)[:-1])
                values.append(maths.average_precision(counts.astype(np.float64)))
            elif name.endswith(ERROR):  # DeLong's
                values.append(sum(each.var(ddof=1) / len(each) for each in ranks if len(each) > 1) ** 0.5)
            else:
                values.append(float(ranks[0].mean()))
        is_mean_of_errors = name.endswith(ERROR) and len(values) > 1
        return float("nan") if is_mean_of_errors else float(np.mean(values)), behind

    def _check_edges(self, edges: Floats) -> None:
        rows, n_edges = edges.shape
        fits = rows == len(self.ranked) and 0 < n_edges < 4 * maths.N_BINS
        if not fits or (np.diff(edges, axis=1) <= 0).any():
            raise MessageError(
                f"edges must have {len(self.ranked)} rows of 1 to {4 * maths.N_BINS - 1} increasing numbers; "
                f"got {rows} rows of {n_edges}",
                where="count_scores",
            )


RANKS = ("roc_auc", "roc_auc_ovr", "average_precision")

LOSSES = {"neg_log_loss": "log", "neg_brier_score": "brier"}

NAMES = ("accuracy", *maths.FROM_CONFUSION, *LOSSES, *RANKS)


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier, with the names of scikit-learn.

    Parameters
    ----------
    part : type
        The site part.
    message : callable
        Converts a fitted estimator to the message for the sites.
    usual : tuple of str
        Names of the default scores.
    """

    part: type[ClassPart]
    message: Callable[[Any], Message]
    usual: tuple[str, ...] = ("accuracy",)
    names: tuple[str, ...] = NAMES

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model by counts and sums over sites."""
        message = self.message(model)
        score = partial(self._score, message=message, names=names, by_site=by_site)
        return judge(federation, self.part, message, type(message).__name__, score)

    def _score(self, opened: Session, message: Message, names: Sequence[str], *, by_site: bool) -> Scores:
        if is_alone(opened):
            facts = count_left_out(opened, self.part, message)
            alone = score_alone(opened, self.part, names)
            (values,) = alone.values()
            return Scores({name: values[name] for name in names}, np.nan, alone, facts, {}, opened.absent, alone)
        counted = {"accuracy": self._accuracy, **dict.fromkeys(maths.FROM_CONFUSION, self._from_confusion)}
        counted |= dict.fromkeys(LOSSES, self._losses)
        works = dict.fromkeys(counted[name] for name in counted if name in names)
        requests: list[Callable[[], Any]] = [partial(count_left_out, opened, self.part, message)]
        requests += [partial(work, opened, names) for work in works]
        if set(names) & set(RANKS):
            requests.append(partial(self._from_ranks, opened, names))
        facts, *results = opened.together(requests)
        # Afterwards: a site that refuses these has another state, on which masks of later sums depend.
        site_scores = request_site_scores(opened, self.part, names) if by_site else SiteScores()
        values = {name: value for each in results for name, value in each.values.items()}
        facts |= {name: value for each in results for name, value in each.facts.items()}
        ordered = {name: values[name] for name in names}
        return Scores(ordered, results[-1].n_records, site_scores.scores, facts, site_scores.refused, opened.absent)

    def _accuracy(self, opened: Session, names: Sequence[str]) -> Scores:
        right, wrong = total(opened, self.part.count_right, Nothing()).counts
        return Scores({"accuracy": float(right / (right + wrong))}, float(right + wrong))

    def _from_confusion(self, opened: Session, names: Sequence[str]) -> Scores:
        table = total(opened, self.part.count_confusion, Nothing()).counts.astype(np.float64)
        values = {name: maths.from_confusion(name, table) for name in names if name in maths.FROM_CONFUSION}
        return Scores(values, float(table.sum()))

    def _losses(self, opened: Session, names: Sequence[str]) -> Scores:
        losses = total(opened, self.part.sum_losses, Nothing())
        means = {name: unfixed(getattr(losses, field)) / losses.n_records for name, field in LOSSES.items()}
        return Scores({name: -mean for name, mean in means.items() if name in names}, float(losses.n_records))

    def _from_ranks(self, opened: Session, names: Sequence[str]) -> Scores:
        located = total(opened, self.part.locate_scores, Nothing())
        edges = maths.even_edges(located.counts.astype(np.float64))
        ranked = total(opened, self.part.count_scores, Edges(edges))
        scores = [_score_ranks(name, ranked) for name in names if name in RANKS]
        facts = {f"bound_{name}": bound for name, _, bound in scores if np.isfinite(bound)}
        return Scores({name: value for name, value, _ in scores}, float(ranked.counts[0].sum()), facts=facts)


def _score_ranks(name: str, ranked: Ranked) -> tuple[str, float, float]:
    """Return a score's name, its value and its largest error."""
    if name != "roc_auc_ovr" and len(ranked.counts) > 1:
        raise ConfigurationError(
            f"{name} must be used for two classes; got {len(ranked.counts)}", where="scoring", hint="Use roc_auc_ovr."
        )
    counts = ranked.counts.astype(np.float64)
    areas = [maths.area_under_curve(each) for each in counts]
    if name == "average_precision":
        return name, float(np.mean([maths.average_precision(each) for each in counts])), np.nan
    return name, float(np.mean([area for area, _ in areas])), float(np.mean([bound for _, bound in areas]))
