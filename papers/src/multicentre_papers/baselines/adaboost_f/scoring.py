"""Scores of voting trees on held-out records: the message to the sites and the site part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, texts
from multicentre.data.table import rows_for
from multicentre.data.tabledata import MAX_CLASSES, TableData
from multicentre.data.tabular import add_indicators, sources_of
from multicentre.errors import ConfigurationError, MessageError
from multicentre.validation.scoring.classes.site import ClassScores
from multicentre.validation.scoring.tables import TableClassPart, complete_columns
from multicentre_papers.baselines.adaboost_f.trees import ClassTrees, most_votes, plurality

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MAX_LABELS = 2**24  # labels held in memory at once: 64 MiB of 4-byte integers
MAX_VOTE = 1e30  # sums of votes stay far below the largest float


@dataclass(frozen=True)
class VotedTrees(ClassTrees):
    """Voting trees; a hypothesis consists of one or more trees."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order")
    centre: Floats = array("values that fill missing entries", ("d",))
    sizes: Integers = array("trees of each hypothesis", ("r",), dtype="i8")
    votes: Floats = array("vote of each hypothesis", ("r",))
    marked: tuple[str, ...] = texts("columns whose missing entries an indicator marks", default=())
    complete: tuple[str, ...] = texts("columns that must have no missing entry", default=())

    def valid_for(self, data: TableData) -> Self:
        """Return the model if it fits the records; see :meth:`ClassTrees.valid`."""
        self.checked()
        self._rows(data)
        data.require_classes(self.classes)
        n_columns = len(self.columns) + len(self.marked)
        if not set(self.marked) <= set(sources_of(data.columns, data.levels)):
            raise MessageError(
                "indicators must mark columns of the model; got other columns", where="VotedTrees.marked"
            )
        if self.centre.shape != (n_columns,) or len(self.sizes) != len(self.votes):
            raise MessageError(
                f"centre must have {n_columns} values and votes {len(self.sizes)}, one per column and per hypothesis; "
                f"got {len(self.centre)} and {len(self.votes)}",
                where="VotedTrees",
            )
        if (self.sizes < 1).any() or sum(self.sizes.tolist()) != self.n_estimators or not self.n_estimators:
            raise MessageError(
                f"sizes must be positive and sum to the number of trees, {self.n_estimators}; "
                f"got the sum {sum(self.sizes.tolist())}",
                where="VotedTrees.sizes",
            )
        if not 2 <= len(self.classes) <= MAX_CLASSES:
            raise MessageError(
                f"there must be 2 to {MAX_CLASSES} classes; got {len(self.classes)}", where="VotedTrees.classes"
            )
        if (self.votes < 0).any() or (self.votes > MAX_VOTE).any() or not self.votes.sum() > 0:
            raise MessageError(
                f"votes must lie in [0, {MAX_VOTE:g}], with one above 0; got other votes", where="VotedTrees.votes"
            )
        return self.valid(n_columns, len(self.classes))

    def chances(self, data: TableData) -> Floats:
        """Return each class's share of the votes, shape (n, k)."""
        X = add_indicators(self._rows(data), self.columns, data.levels, self.marked)
        step = max(MAX_LABELS // self.n_estimators, 1)
        return np.vstack([self._chances_of(X[start : start + step]) for start in range(0, len(X), step)])

    def _rows(self, data: TableData) -> Floats:
        return rows_for(data, self.columns)

    def _chances_of(self, X: Floats) -> Floats:
        labels, n_classes = self.labels(np.where(np.isnan(X), self.centre, X)), len(self.classes)
        ends = np.cumsum(self.sizes).tolist()
        predicted = [
            plurality(labels[:, end - size : end], n_classes) for end, size in zip(ends, self.sizes, strict=True)
        ]
        votes = most_votes(np.column_stack(predicted).astype(np.int32), self.votes, n_classes)
        return np.asarray(votes / votes.sum(axis=1, keepdims=True), dtype=np.float64)


class VotedClassPart(TableClassPart):
    """Site part that scores voting trees."""

    method: ClassVar[str] = "score-votes"
    revision: ClassVar[int] = 2
    kinds: ClassVar[Mapping[str, type[Any]]] = {"VotedTrees": VotedTrees}


def voting_message(model: Any) -> VotedTrees:
    """Return a fitted booster as a message to the sites.

    Raises
    ------
    ConfigurationError
        The model has no tree.
    """
    if not hasattr(model, "agreed_") or not model._ensemble.n_estimators:
        raise ConfigurationError(
            "the model must be fitted; got a model without trees", where=type(model).__name__, hint="Call fit first."
        )
    trees = {name: getattr(model._ensemble, name) for name in (*ClassTrees.declarations(), "sizes", "votes")}
    gaps = model.missing_values_
    columns = model.feature_names_in_[: len(model.feature_names_in_) - len(gaps.indicators)]
    marked = gaps.incomplete_columns if gaps.indicators else ()
    schema: dict[str, Any] = {name: getattr(model.agreed_, name) for name in ("classes", "centre")}
    return VotedTrees(**trees, **schema, columns=columns, marked=marked, complete=complete_columns(columns, gaps))


VOTES = ClassScores(VotedClassPart, voting_message)
