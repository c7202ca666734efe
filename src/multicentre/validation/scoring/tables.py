"""Models of tables as messages, and the site parts that judge them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting.trees import Ensemble
from multicentre.data.tabledata import MOST_CLASSES, TableData
from multicentre.data.tabular import add_indicators, sources_of
from multicentre.federation.errors import ConfigurationError, DataError, MessageError, SchemaMismatch
from multicentre.federation.messages import Message, array, texts
from multicentre.missing import MissingValues
from multicentre.survival.boost.classes.trees import ClassTrees, most_votes, plurality
from multicentre.validation.scoring.classes.scores import ClassScores
from multicentre.validation.scoring.classes.site import ClassPart
from multicentre.validation.scoring.numbers.scores import NumberScores
from multicentre.validation.scoring.numbers.site import NumberPart

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_LABELS = 2**24
LARGEST_VOTE = 1e30


@dataclass(frozen=True)
class VotedTrees(ClassTrees):
    """Trees that vote, in hypotheses of one or several: AdaBoost.F and its kin."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order")
    centre: Floats = array("values that fill gaps", ("d",))
    sizes: Integers = array("trees of each hypothesis", ("r",), dtype="i8")
    votes: Floats = array("vote of each", ("r",))
    marked: tuple[str, ...] = texts("columns whose missing entries an indicator marks", default=())
    complete: tuple[str, ...] = texts("columns in which the model takes no missing entry", default=())

    def valid_for(self, data: TableData) -> Self:
        """Return the model if it is one of such records; see :meth:`ClassTrees.valid`."""
        self.checked()
        check_schema(self.columns, self.classes, data)
        check_complete(self.complete, data)
        n_columns = len(self.columns) + len(self.marked)
        if not set(self.marked) <= set(sources_of(data.columns, data.levels)):
            raise MessageError("an indicator marks no column", where="VotedTrees.marked")
        if self.centre.shape != (n_columns,) or len(self.sizes) != len(self.votes):
            raise MessageError("votes or gaps do not fit the trees", where="VotedTrees")
        if (self.sizes < 1).any() or sum(self.sizes.tolist()) != self.n_trees or not self.n_trees:
            raise MessageError("the hypotheses do not fit the trees", where="VotedTrees.sizes")
        if not 2 <= len(self.classes) <= MOST_CLASSES:
            raise MessageError(f"there are not from 2 to {MOST_CLASSES} classes", where="VotedTrees.classes")
        if (self.votes < 0).any() or (self.votes > LARGEST_VOTE).any() or not self.votes.sum() > 0:
            raise MessageError("there is no vote", where="VotedTrees.votes")
        return self.valid(n_columns, len(self.classes))

    def chances(self, data: TableData) -> Floats:
        """Return each class's share of the votes, shape (n, k)."""
        X = add_indicators(data.X, data.columns, data.levels, self.marked)
        step = max(MOST_LABELS // self.n_trees, 1)
        return np.vstack([self._chances_of(X[start : start + step]) for start in range(0, len(X), step)])

    def _chances_of(self, X: Floats) -> Floats:
        labels, n_classes = self.labels(np.where(np.isnan(X), self.centre, X)), len(self.classes)
        ends = np.cumsum(self.sizes).tolist()
        named = [plurality(labels[:, end - size : end], n_classes) for end, size in zip(ends, self.sizes, strict=True)]
        votes = most_votes(np.column_stack(named).astype(np.int32), self.votes, n_classes)
        return np.asarray(votes / votes.sum(axis=1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True)
class BoostedTrees(Ensemble):
    """Trees whose values add up: federated XGBoost."""

    complete: tuple[str, ...] = texts("columns in which the model takes no missing entry", default=())

    def valid_for(self, data: TableData) -> Self:
        """Return the model if it is one of such records; see :meth:`Ensemble.check`."""
        self.checked()
        check_schema(self.columns, self.classes, data)
        check_complete(self.complete, data)
        return self.check()

    def chances(self, data: TableData) -> Floats:
        """Return the chance of each class, shape (n, k)."""
        margins = self.predict_margin(data.X).astype(np.float64)
        if self.objective == "multi:softprob":
            return np.asarray(softmax(margins, axis=1), dtype=np.float64)
        second = expit(margins[:, 0])
        return np.column_stack([1 - second, second])

    def numbers(self, X: Floats) -> Floats:
        """Return predicted numbers, shape (n,)."""
        margins = self.predict_margin(X)[:, 0].astype(np.float64)
        return np.asarray(np.exp(margins) if self.objective == "count:poisson" else margins, dtype=np.float64)


KINDS: Mapping[str, type[Any]] = {"VotedTrees": VotedTrees, "BoostedTrees": BoostedTrees}


def check_schema(columns: tuple[str, ...], classes: tuple[str, ...], data: TableData) -> None:
    """Raise SchemaMismatch unless records have the columns of a model, and no class that it does not know."""
    if data.columns != columns:
        raise SchemaMismatch(
            f"{len(data.columns)} columns are here, the model has {len(columns)}, not all the same",
            where="columns",
            mend=f"Give, in this order, {', '.join(columns[:8])}.",
        )
    if classes[: len(data.classes)] != data.classes or bool(classes) != bool(data.classes):
        raise SchemaMismatch(
            "the classes are not those of the model", where="classes", mend="Declare all classes alike at every site."
        )


def check_complete(columns: tuple[str, ...], data: TableData) -> None:
    """Raise DataError if a column in which a model takes no missing entry has one."""
    if any(np.isnan(data.X[:, place]).any() for place, name in enumerate(data.columns) if name in columns):
        raise DataError(
            "records to be scored must have no missing values, as the fit left incomplete records out",
            where="judge",
            mend='Fit with another value of missing, such as "mean".',
        )


class TableClassPart(ClassPart):
    """The site part that scores classes of tables."""

    method: ClassVar[str] = "score-classes"
    holds: ClassVar[type] = TableData
    kinds: ClassVar[Mapping[str, type[Any]]] = KINDS
    data: TableData

    def true_classes(self) -> Integers:
        """Return the class of every record, shape (n,)."""
        return self.data.y.astype(np.int64)

    def predict_chances(self) -> Floats:
        """Return the chance that the model gives to each class, shape (n, k)."""
        chances: Floats = self.model.chances(self.data)
        return chances


class TableNumberPart(NumberPart):
    """The site part that scores numbers of tables."""

    method: ClassVar[str] = "score-numbers"
    holds: ClassVar[type] = TableData
    kinds: ClassVar[Mapping[str, type[Any]]] = {"BoostedTrees": BoostedTrees}
    data: TableData

    def true_numbers(self) -> Floats:
        """Return the number of every record, shape (n,)."""
        return self.data.y.astype(np.float64)

    def predict_numbers(self) -> Floats:
        """Return the predicted numbers, shape (n,)."""
        numbers: Floats = self.model.numbers(self.data.X)
        return numbers


def table_model(model: Any) -> Message:
    """Return a fitted estimator of tables as the message that sites take.

    Raises
    ------
    ConfigurationError
        It is not fitted, or has no tree.
    """
    from multicentre.survival.boost.classes.estimator import ClassBooster

    if isinstance(model, ClassBooster):
        if not hasattr(model, "known_") or not model._ensemble.n_trees:
            raise ConfigurationError("there is no tree to score", where=type(model).__name__, mend="Fit it first.")
        trees = {name: getattr(model._ensemble, name) for name in (*ClassTrees.declarations(), "sizes", "votes")}
        gaps = model.missing_values_
        columns = model.columns_[: len(model.columns_) - len(gaps.indicators)]
        marked = gaps.incomplete_columns if gaps.indicators else ()
        known: dict[str, Any] = {name: getattr(model.known_, name) for name in ("classes", "centre")}
        return VotedTrees(**trees, **known, columns=columns, marked=marked, complete=_complete(columns, gaps))
    check_is_fitted(model, "ensemble_")
    ensemble: Ensemble = model.ensemble_
    complete = _complete(ensemble.columns, model.missing_values_)
    return BoostedTrees(**{name: getattr(ensemble, name) for name in Ensemble.declarations()}, complete=complete)


def _complete(columns: tuple[str, ...], gaps: MissingValues) -> tuple[str, ...]:
    return columns if gaps.missing == "complete" else ()


CLASSES = ClassScores(TableClassPart, table_model)
NUMBERS = NumberScores(TableNumberPart, table_model)
