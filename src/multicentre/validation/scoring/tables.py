"""Models of tables as messages, and the site parts that score them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting.trees import Ensemble
from multicentre.core.messages import Message, texts
from multicentre.data.categories import families, read_level
from multicentre.data.missing.values import MissingValues
from multicentre.data.table import rows_for
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError
from multicentre.estimator.formula import HasFormula
from multicentre.formula.fitted import FittedDesign
from multicentre.regression.categorical.model import CategoricalModel
from multicentre.regression.linear_model import LinearModel
from multicentre.validation.scoring.classes.profiles import MAX_SUBGROUPS, ClassEvaluationPart, Subgroups
from multicentre.validation.scoring.classes.site import ClassScores
from multicentre.validation.scoring.gaps import TablePart
from multicentre.validation.scoring.numbers import NumberPart, NumberScores

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class BoostedTrees(Ensemble):
    """Additive tree ensemble of federated XGBoost."""

    complete: tuple[str, ...] = texts("columns whose missing entries leave a record out", default=())

    def valid_for(self, data: TableData) -> Self:
        """Return the model after a check against the records; see :meth:`Ensemble.check`."""
        self.checked()
        self._rows(data)
        data.require_classes(self.classes)
        return self.check()

    @property
    def evaluator(self) -> ClassScores | NumberScores:
        """Evaluator of the model, as a fitted estimator has one."""
        return CLASSES if self.classes else NUMBERS

    def chances(self, data: TableData) -> Floats:
        """Return the probability of each class, shape (n, k)."""
        margins = self._margins(data)
        if self.objective == "multi:softprob":
            return np.asarray(softmax(margins, axis=1), dtype=np.float64)
        second = expit(margins[:, 0])
        return np.column_stack([1 - second, second])

    def log_odds(self, data: TableData) -> Floats | None:
        """Return the log odds of the second of two classes, shape (n,)."""
        is_binary = self.objective == "binary:logistic"
        return self._margins(data)[:, 0] if is_binary else None

    def numbers(self, data: TableData) -> Floats:
        """Return predicted numbers, shape (n,)."""
        return self.means(self.predict_table(self._rows(data))[:, 0])

    def _margins(self, data: TableData) -> Floats:
        return self.predict_table(self._rows(data)).astype(np.float64)

    def _rows(self, data: TableData) -> Floats:
        return rows_for(data, self.table or self.columns, self.levels)


@dataclass(frozen=True)
class ScoredLinearModel(LinearModel):
    """Generalised linear model that is scored."""

    def valid_for(self, data: TableData) -> Self:
        """Return the model after a check against the records; see :meth:`LinearModel.check`."""
        self.check()
        self._rows(data)
        data.require_classes(self.classes)
        return self

    def _rows(self, data: TableData) -> Floats:
        """Return the columns of the data that the model reads, in its order."""
        return rows_for(data, self.columns, self.levels)

    @property
    def evaluator(self) -> ClassScores | NumberScores:
        """Evaluator of the model, as a fitted estimator has one."""
        return CLASSES if self.classes else NUMBERS

    def chances(self, data: TableData) -> Floats:
        """Return the probability of each class, shape (n, 2)."""
        second = self.numbers(data)
        return np.column_stack([1 - second, second])

    def log_odds(self, data: TableData) -> Floats | None:
        """Return the log odds of the second class, shape (n,); None for another link than the logit."""
        return self.linear(self._rows(data)) if self.link == "logit" else None

    def numbers(self, data: TableData) -> Floats:
        """Return predicted means, shape (n,)."""
        return self.mean(self._rows(data))


@dataclass(frozen=True)
class ScoredFormulaModel(FittedDesign, ScoredLinearModel):
    """Generalised linear model of a formula that is scored; it builds its columns from those of the records."""

    def valid_for(self, data: TableData) -> Self:
        """Return the model after a check against the records."""
        FittedDesign.check(self)
        LinearModel.check(self)
        self._rows(data)
        data.require_classes(self.classes)
        return self

    def _rows(self, data: TableData) -> Floats:
        return rows_for(data, tuple(self.used), self.data_levels)

    def linear(self, X: Floats) -> Floats:
        """Return linear predictors with the offset, shape (n,), for the columns of the data."""
        return LinearModel.linear(self, self.build(X, tuple(self.used)))


@dataclass(frozen=True)
class ScoredCategoricalModel(CategoricalModel):
    """Multinomial or ordinal model that is scored."""

    def valid_for(self, data: TableData) -> Self:
        """Return the model after a check against the records; see :meth:`CategoricalModel.check`."""
        self.check()
        self._rows(data)
        data.require_classes(self.classes)
        return self

    def _rows(self, data: TableData) -> Floats:
        return rows_for(data, self.columns, self.levels)

    def chances(self, data: TableData) -> Floats:
        """Return the probability of each class, shape (n, k)."""
        return self.probabilities(self._rows(data))


@dataclass(frozen=True)
class ScoredFormulaCategoricalModel(FittedDesign, ScoredCategoricalModel):
    """Multinomial or ordinal model of a formula that is scored; it builds its columns from those of the records."""

    def valid_for(self, data: TableData) -> Self:
        """Return the model after a check against the records."""
        FittedDesign.check(self)
        CategoricalModel.check(self)
        self._rows(data)
        data.require_classes(self.classes)
        return self

    def _rows(self, data: TableData) -> Floats:
        return self.build(rows_for(data, tuple(self.used), self.data_levels), tuple(self.used))


class TableClassPart(TablePart, ClassEvaluationPart):
    """Site part that scores classes of tables."""

    method: ClassVar[str] = "score-classes"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = TableData
    kinds: ClassVar[Mapping[str, type[Any]]] = {
        "BoostedTrees": BoostedTrees,
        "ScoredLinearModel": ScoredLinearModel,
        "ScoredFormulaModel": ScoredFormulaModel,
        "ScoredCategoricalModel": ScoredCategoricalModel,
        "ScoredFormulaCategoricalModel": ScoredFormulaCategoricalModel,
    }
    data: TableData

    def true_classes(self) -> Integers:
        """Return the class of every record, shape (n,)."""
        return self.records.y.astype(np.int64)

    def predict_chances(self) -> Floats:
        """Return the predicted probability of each class, shape (n, k)."""
        chances: Floats = self.model.chances(self.records)
        return chances

    def log_odds(self) -> Floats | None:
        """Return the log odds of the second class if the model has them before rounding, shape (n,)."""
        odds: Floats | None = self.model.log_odds(self.records) if hasattr(self.model, "log_odds") else None
        return odds

    def subgroups(self, request: Subgroups) -> tuple[Integers, tuple[str, ...]]:
        """Return the subgroup of every record, shape (n,), -1 without one, and the names of the subgroups."""
        return subgroups_of(self.records, request.column, request.cuts)


def subgroups_of(data: TableData, column: str, cuts: Floats) -> tuple[Integers, tuple[str, ...]]:
    """Return the level or interval of every record, shape (n,), -1 where it is missing, and their names.

    Parameters
    ----------
    data : TableData
    column : str
        Category, or column of numbers; empty for no subgroups.
    cuts : array of shape (c,)
        Limits between the c + 1 intervals of a column; a value at a limit is in the interval above it. None for a
        category.

    Raises
    ------
    ConfigurationError
        The column is unknown, or limits do not increase, or a category has limits.

    Examples
    --------
    >>> data = TableData([[30.0], [70.0]], [0, 1], columns=["age"])
    >>> subgroups_of(data, "age", np.array([50.0]))
    (array([0, 1]), ('age below 50', 'age from 50'))
    """
    if not column:
        return np.full(len(data), -1, dtype=np.int64), ()
    family = families(data.levels).get(column, ())
    good_cuts = len(cuts) <= MAX_SUBGROUPS and np.isfinite(cuts).all() and (np.diff(cuts) > 0).all()
    if not good_cuts or bool(family) == bool(len(cuts)) or not (family or column in data.columns):
        raise ConfigurationError(
            f"subgroups must name a category without limits, or a column of numbers with up to {MAX_SUBGROUPS} "
            f"increasing limits; got {column!r} with {len(cuts)}",
            where="subgroups",
            hint=f"Categories are {', '.join(families(data.levels)) or 'none'}; columns are "
            f"{', '.join(data.columns[:8])}.",
        )
    if not family:
        values = data.X[:, data.columns.index(column)]
        places = np.searchsorted(cuts, values, side="right")
        return np.where(np.isnan(values), -1, places).astype(np.int64), _intervals(column, cuts)
    levels = [read_level(data.X, data.columns, data.levels, name) for name in family]
    if any(level is None for level in levels):
        raise ConfigurationError(
            f"the category must have a column for all levels but one; {column!r} has fewer",
            where="subgroups",
            hint="Choose another category.",
        )
    table = np.column_stack([level for level in levels if level is not None])
    has_level = np.nan_to_num(table).sum(axis=1) > 0
    return np.where(has_level, np.argmax(np.nan_to_num(table), axis=1), -1).astype(np.int64), family


def _intervals(column: str, cuts: Floats) -> tuple[str, ...]:
    between = [f"{column} from {low:g} to below {high:g}" for low, high in pairwise(cuts.tolist())]
    return (f"{column} below {cuts[0]:g}", *between, f"{column} from {cuts[-1]:g}")


class TableNumberPart(TablePart, NumberPart):
    """Site part that scores numbers of tables."""

    method: ClassVar[str] = "score-numbers"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = TableData
    kinds: ClassVar[Mapping[str, type[Any]]] = {
        "BoostedTrees": BoostedTrees,
        "ScoredLinearModel": ScoredLinearModel,
        "ScoredFormulaModel": ScoredFormulaModel,
    }
    data: TableData

    def true_numbers(self) -> Floats:
        """Return the number of every record, shape (n,)."""
        return self.records.y.astype(np.float64)

    def predict_numbers(self) -> Floats:
        """Return the predicted numbers, shape (n,)."""
        numbers: Floats = self.model.numbers(self.records)
        return numbers


def table_model(model: Any) -> Message:
    """Return the message for a fitted estimator of tables, or the message itself.

    Raises
    ------
    ConfigurationError
        The estimator is not fitted or has no tree, or its outcomes are times that may be censored.
    """
    if isinstance(model, BoostedTrees | ScoredLinearModel):
        return model
    if isinstance(model, HasFormula):
        check_is_fitted(model, "model_")
        fields = {name: getattr(model.model_, name) for name in model.model_.declarations()}
        is_linear, design = isinstance(model.model_, LinearModel), model.fitted_design
        if design is None:
            return (ScoredLinearModel if is_linear else ScoredCategoricalModel)(**fields)
        fields |= {name: getattr(design, name) for name in FittedDesign.declarations()}
        fields |= {"complete": tuple(design.used) if model.model_.complete else ()}
        return (ScoredFormulaModel if is_linear else ScoredFormulaCategoricalModel)(**fields)
    check_is_fitted(model, "ensemble_")
    ensemble: Ensemble = model.ensemble_
    if ensemble.distribution:
        raise ConfigurationError(
            'errors of numbers require known outcomes; got times to an event ("survival:aft")',
            where="scoring",
            hint="Pass validation records to fit, and use evals_result_.",
        )
    complete = complete_columns(ensemble.columns, model.missing_values_)
    return BoostedTrees(**{name: getattr(ensemble, name) for name in Ensemble.declarations()}, complete=complete)


def complete_columns(columns: tuple[str, ...], gaps: MissingValues) -> tuple[str, ...]:
    """Return the columns whose missing entries leave a record out."""
    return columns if gaps.missing == "complete" else ()


CLASSES = ClassScores(TableClassPart, table_model)
NUMBERS = NumberScores(TableNumberPart, table_model)
