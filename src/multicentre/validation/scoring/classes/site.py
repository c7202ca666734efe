"""Scoring of classes beside the patients: all that a coordinator can ask of a site, and all that it answers.

Counts leave as they are: under a mask only their totals over sites show, and unmasked the guard refuses those of few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, MessageError
from multicentre.federation.messages import Lengths, Message, Nothing, array, count
from multicentre.federation.session import Session
from multicentre.federation.steps import Release, step
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.judging import (
    LARGEST_FIXED,
    RECORDS,
    JudgingPart,
    SiteScores,
    ask_own,
    differing,
    judge,
    total,
    unfixed,
)
from multicentre.validation.scoring.scores import Scores

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Edges(Message):
    """Log odds between bins, for each class that is ranked."""

    edges: Floats = array("log odds between bins", ("r", "e"))


@dataclass(frozen=True)
class Right(Release):
    """Records whose class is named, and the others."""

    counts: Integers = array(
        "records whose class is named, and the others", (2,), dtype="i8", bound=RECORDS, counts=True
    )


@dataclass(frozen=True)
class Losses(Release):
    """Sums of losses; whole numbers, so that they do not depend on how records are spread over sites."""

    n_records: int = count("records", unit="records", bound=RECORDS)
    log: int = count("sum of log losses, times 2^24", unit="nats", bound=LARGEST_FIXED)
    brier: int = count("sum of Brier scores, times 2^24", bound=LARGEST_FIXED)


@dataclass(frozen=True)
class Confusion(Release):
    """Records by true and by named class."""

    counts: Integers = array("records by true and by named class", ("k", "k"), dtype="i8", bound=RECORDS, counts=True)


@dataclass(frozen=True)
class Located(Release):
    """Records by log odds of each class that is ranked."""

    counts: Integers = array("records by coarse bin of log odds", ("r", "b"), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class Ranked(Release):
    """Records without and with each class, by bin of its log odds."""

    counts: Integers = array("records without and with the class by bin", ("r", 2, "b"), dtype="i8", bound=RECORDS)


class ClassPart(JudgingPart):
    """Base of the site parts that score classes; a subclass says what is true and what the model says."""

    lengths: ClassVar[Lengths] = {
        "k": "classes",
        "r": "classes that are ranked",
        "b": "bins of the log odds",
    }

    def true_classes(self) -> Integers:
        """Return the class of every record, a place among the model's, shape (n,)."""
        raise NotImplementedError

    def predict_chances(self) -> Floats:
        """Return the chance that the model gives to each class, shape (n, k)."""
        raise NotImplementedError

    @step(releases=Right, when="at the end", summed=True)
    def count_right(self, ask: Nothing) -> Right:
        """Count records whose class is named, and the others."""
        right = int((self.named == self.truth).sum())
        counts = np.array([right, len(self.truth) - right])
        return Right(counts, patients=min(self.behind(counts), self.apart))

    @step(releases=Losses, when="at the end", summed=True)
    def sum_losses(self, ask: Nothing) -> Losses:
        """Sum log losses and Brier scores."""
        log, brier = maths.log_losses(self.chances, self.truth), maths.brier_losses(self.chances, self.truth)
        (log_total, one), (brier_total, other) = self.summed(log), self.summed(brier)
        return Losses(len(self.truth), log_total, brier_total, patients=min(one, other, self.apart))

    @step(releases=Confusion, when="at the end", summed=True)
    def count_confusion(self, ask: Nothing) -> Confusion:
        """Count records by true and by named class."""
        return Confusion(self.confusion, patients=self.behind(self.confusion))

    @step(releases=Located, when="at the end", summed=True)
    def locate_scores(self, ask: Nothing) -> Located:
        """Count records by coarse bin of log odds, for bins that hold about as many."""
        edges = maths.coarse_edges()
        rows = [np.bincount(np.searchsorted(edges, own), minlength=len(edges) + 1) for own in self.scores.T]
        counts = np.array(rows)
        return Located(counts, patients=self.behind(counts))

    @step(releases=Ranked, when="at the end", summed=True)
    def count_scores(self, ask: Edges) -> Ranked:
        """Count records with and without each class by bin of its log odds."""
        self.answer_once("count_scores", ask)
        self._check_edges(ask.edges)
        counts = np.array([self._ranked(row, edges) for row, edges in enumerate(ask.edges)])
        return Ranked(counts, patients=self.behind(counts))

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        table = self.confusion
        if name == "accuracy":
            right = np.array([np.trace(table), table.sum() - np.trace(table)])
            return float(right[0] / right.sum()), min(self.behind(right), self.apart)
        if name in maths.FROM_CONFUSION:
            return maths.from_confusion(name, table.astype(np.float64)), min(self.behind(table), self.apart)
        if name in ("neg_log_loss", "neg_brier_score"):
            losses = maths.log_losses if name == "neg_log_loss" else maths.brier_losses
            mean, behind = self.own_mean(losses(self.chances, self.truth))
            return -mean, min(behind, self.apart)
        return self._own_ranks(name)

    @cached_property
    def truth(self) -> Integers:
        """Class of every record, shape (n,)."""
        return self.true_classes()

    @property
    def chances(self) -> Floats:
        """Chance of each class, shape (n, k)."""
        return np.clip(self.predicted(self.predict_chances), 0.0, 1.0)

    @property
    def named(self) -> Integers:
        """The class of the largest chance, the first of several, shape (n,)."""
        return np.asarray(np.argmax(self.chances, axis=1), dtype=np.int64)

    @property
    def confusion(self) -> Integers:
        """Records by true and by named class, shape (k, k)."""
        n_classes = self.chances.shape[1]
        cells: Integers = np.bincount(self.truth * n_classes + self.named, minlength=n_classes**2)
        return cells.reshape(n_classes, n_classes)

    @property
    def apart(self) -> int:
        """How many records the model tells apart from the rest."""
        return self.told_apart(*self.scores.T)

    @property
    def ranked(self) -> list[int]:
        """Classes that are ranked: the second of two, each of more."""
        n_classes = self.chances.shape[1]
        return [1] if n_classes == 2 else list(range(n_classes))

    @property
    def scores(self) -> Floats:
        """Log odds of each class that is ranked, shape (n, r)."""
        return maths.log_odds(self.chances[:, self.ranked])

    def _ranked(self, row: int, edges: Floats) -> Integers:
        """Return records without and with a class by bin, shape (2, b)."""
        bins, n_bins = np.searchsorted(edges, self.scores[:, row]), len(edges) + 1
        has_class = (self.truth == self.ranked[row]).astype(np.int64)
        cells: Integers = np.bincount(has_class * n_bins + bins, minlength=2 * n_bins)
        return cells.reshape(2, n_bins)

    def _own_ranks(self, name: str) -> tuple[float, int]:
        """Return a score of ranks, and how many records stand behind it.

        They are those of the rarer class, and those who are not placed among the other class as most of their class
        are; everybody where all are placed alike.
        """
        found, behind = [], self.n_records
        for row, own in enumerate(self.scores.T):
            has_class = self.truth == self.ranked[row]
            having, without = own[has_class], own[~has_class]
            if not len(having) or not len(without):
                return float("nan"), 0
            placed = maths.places_among(having, without), maths.places_among(without, having)
            behind = min(behind, len(having), len(without), differing(*placed) or self.n_records)
            if name == "average_precision":
                counts = self._ranked(row, np.unique(own)[:-1])
                found.append(maths.average_precision(counts.astype(np.float64)))
            else:
                found.append(float(placed[0].mean()))
        return float(np.mean(found)), behind

    def _check_edges(self, edges: Floats) -> None:
        rows, n_edges = edges.shape
        fits = rows == len(self.ranked) and 0 < n_edges < 4 * maths.N_BINS
        if not fits or (np.diff(edges, axis=1) <= 0).any():
            raise MessageError("the bins of scores do not fit the model, or do not rise", where="count_scores")


RANKS = ("roc_auc", "roc_auc_ovr", "average_precision")

LOSSES = {"neg_log_loss": "log", "neg_brier_score": "brier"}

NAMES = ("accuracy", *maths.FROM_CONFUSION, *LOSSES, *RANKS)


@dataclass(frozen=True)
class ClassScores:
    """Scores of a model of classes, under scikit-learn's names.

    Parameters
    ----------
    part : type
        The site part.
    message : callable
        From a fitted estimator to the message that sites take.
    usual : tuple of str
    """

    part: type[ClassPart]
    message: Callable[[Any], Message]
    usual: tuple[str, ...] = ("accuracy",)
    names: tuple[str, ...] = NAMES

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model by counts and sums over sites."""
        told = self.message(model)
        score = partial(self._score, names=names, by_site=by_site)
        return judge(federation, self.part, told, type(told).__name__, score)

    def _score(self, opened: Session, names: Sequence[str], *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        facts: dict[str, float] = {}
        n_records = np.nan
        if "accuracy" in names:
            right, wrong = total(opened, self.part.count_right, Nothing()).counts
            values["accuracy"], n_records = float(right / (right + wrong)), float(right + wrong)
        if set(names) & set(maths.FROM_CONFUSION):
            table = total(opened, self.part.count_confusion, Nothing()).counts.astype(np.float64)
            values |= {name: maths.from_confusion(name, table) for name in names if name in maths.FROM_CONFUSION}
            n_records = float(table.sum())
        if set(names) & set(LOSSES):
            losses = total(opened, self.part.sum_losses, Nothing())
            means = {name: unfixed(getattr(losses, field)) / losses.n_records for name, field in LOSSES.items()}
            values |= {name: -mean for name, mean in means.items() if name in names}
            n_records = float(losses.n_records)
        if set(names) & set(RANKS):
            ranked = self._rank(opened)
            found = [_score_ranks(name, ranked) for name in names if name in RANKS]
            values |= {name: value for name, value, _ in found}
            facts |= {f"bound_{name}": bound for name, _, bound in found if np.isfinite(bound)}
            n_records = float(ranked.counts[0].sum())
        own = ask_own(opened, self.part, names) if by_site else SiteScores()
        return Scores({name: values[name] for name in names}, n_records, own.scores, facts, own.refused)

    def _rank(self, opened: Session) -> Ranked:
        located = total(opened, self.part.locate_scores, Nothing())
        edges = maths.even_edges(located.counts.astype(np.float64))
        return total(opened, self.part.count_scores, Edges(edges))


def _score_ranks(name: str, ranked: Ranked) -> tuple[str, float, float]:
    """Return a score's name, its value, and by how much it may be off."""
    if name != "roc_auc_ovr" and len(ranked.counts) > 1:
        raise ConfigurationError(f"{name} is a score of two classes", where="scoring", hint="Use roc_auc_ovr.")
    counts = ranked.counts.astype(np.float64)
    areas = [maths.area_under_curve(each) for each in counts]
    if name == "average_precision":
        return name, float(np.mean([maths.average_precision(each) for each in counts])), np.nan
    return name, float(np.mean([area for area, _ in areas])), float(np.mean([bound for _, bound in areas]))
