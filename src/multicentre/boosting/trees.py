"""Fitted ensemble: boosted trees as arrays, checked before use, so that models of other people are safe to apply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, number, text, texts
from multicentre.errors import DataError, MessageError, MissingExtra
from multicentre.trees.table import find_children

Floats = NDArray[np.float32]

Integers = NDArray[np.int32]

Flags = NDArray[np.uint8]

Doubles = NDArray[np.float64]

# Largest number of classes: a round sends one tree per class.
MAX_CLASSES = 1000
# Largest finite threshold: every other finite value is below it.
MAX_VALUE = float(np.finfo(np.float32).max)
# Largest margin: its sums stay finite in single precision.
MAX_MARGIN = 1e30
# Largest log of a mean: its exponential, 2e130, and the square of that are finite in double precision.
MAX_LOG_MEAN = 300.0


@dataclass(frozen=True)
class Objective:
    """Properties of an objective that do not depend on data.

    Parameters
    ----------
    metric : str
        Name of its mean loss, as in xgboost.
    is_log : bool, default False
        Margins are logs of means.
    lowest : float, optional
        Lower bound of the outcomes.
    open_below : bool, default False
        Outcomes equal to `lowest` are not permitted either.
    largest_step : float, default 0.0
        Largest magnitude of a step; 0 for no limit.
    largest_first_margin : float, default 80.0
        Largest magnitude of a record's own first margin. The exponential of 80 is finite in single precision.
    """

    metric: str
    is_log: bool = False
    lowest: float | None = None
    open_below: bool = False
    largest_step: float = 0.0
    largest_first_margin: float = 80.0

    def permits(self, outcomes: Doubles) -> bool:
        """Return whether all outcomes are in the range of the objective."""
        if self.lowest is None:
            return True
        return bool((outcomes > self.lowest if self.open_below else outcomes >= self.lowest).all())

    def means(self, margins: Doubles) -> Doubles:
        """Return the means of numbers from their margins, shape (n,)."""
        return np.exp(margins) if self.is_log else margins


# To add an objective: extend this table, whose order is the numbering in `kernels`, add its derivatives and its loss
# there, and the magnitude of its derivatives in `agreement.number_units`.
OBJECTIVES: dict[str, Objective] = {
    "binary:logistic": Objective("logloss"),
    "multi:softprob": Objective("mlogloss"),
    # As MAX_MARGIN in `trees`.
    "reg:squarederror": Objective("rmse", largest_first_margin=1e30),
    # 0.7 is xgboost's default for counts.
    "count:poisson": Objective("poisson-nloglik", is_log=True, lowest=0.0, largest_step=0.7),
    "reg:gamma": Objective("gamma-deviance", is_log=True, lowest=0.0, open_below=True),
    "reg:tweedie": Objective("tweedie-nloglik", is_log=True, lowest=0.0),
    "survival:aft": Objective("aft-nloglik", is_log=True, lowest=0.0, open_below=True),
}
# Distributions of log times of survival:aft, whose numbers in `kernels` follow those of the other objectives.
TIME_DISTRIBUTIONS = ("normal", "logistic", "extreme")


def number_of(objective: str, distribution: tuple[str, ...]) -> int:
    """Return the number of an objective in `kernels`.

    Examples
    --------
    >>> number_of("count:poisson", ()), number_of("survival:aft", ("logistic",))
    (3, 7)
    """
    return list(OBJECTIVES).index(objective) + (TIME_DISTRIBUTIONS.index(distribution[0]) if distribution else 0)


def check_objective(objective: str, n_classes: int, n_margins: int) -> None:
    """Raise MessageError unless the objective is known and fits the numbers of classes and of margins.

    Examples
    --------
    >>> check_objective("multi:softprob", 3, 3)
    """
    many = objective == "multi:softprob"
    fits = 2 <= n_classes <= MAX_CLASSES if many else n_classes == 2 * (objective == "binary:logistic")
    if objective not in OBJECTIVES or not fits or n_margins != (n_classes if many else 1):
        raise MessageError(
            f"classes and margins must fit {objective!r}; got {n_classes} classes and {n_margins} margins",
            where="objective",
        )


def check_margins(
    objective: str, base: Floats, roots: Integers, value: Floats, before: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float]:
    """Raise MessageError unless all possible margins are finite, for any records; return the sums for further trees.

    Parameters
    ----------
    objective : str
    base : array of shape (k,)
        First margins.
    roots : array of shape (t,)
    value : array of shape (m,)
        Term of a leaf in the margin.
    before : tuple of two float
        Sums over earlier trees, as returned: of the largest magnitude of a leaf, and of the largest value above 0.

    Notes
    -----
    The largest first margin plus the sum over trees of the largest leaf magnitude is at most 1e30. The log of a mean is
    at most 300, so that its exponential and the square of that are finite.

    Examples
    --------
    >>> check_margins("reg:squarederror", np.zeros(1), np.array([0, 1]), np.array([2.0, -3.0]), (1.0, 0.0))
    (6.0, 2.0)
    """
    base, value = base.astype(np.float64), value.astype(np.float64)
    magnitudes, rises = before
    if len(roots):
        magnitudes += float(np.maximum.reduceat(np.abs(value), roots).sum())
        rises += float(np.maximum.reduceat(np.maximum(value, 0.0), roots).sum())
    largest, highest = float(np.abs(base).max()) + magnitudes, float(base.max()) + rises
    if largest > MAX_MARGIN or (OBJECTIVES[objective].is_log and highest > MAX_LOG_MEAN):
        hint = "Use another unit of the outcome, or lower learning_rate."
        raise MessageError(
            f"margins must be at most {MAX_MARGIN:g} for any record; got values that sum to {largest:g}",
            where="value",
            hint=hint,
        )
    return magnitudes, rises


@dataclass(frozen=True)
class Ensemble(Message):
    """Boosted trees in sequence.

    A value below the threshold goes left; both are in single precision. `default_left` is the side of missing values.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> f4, i4 = (lambda *v: np.array(v, dtype=np.float32)), (lambda *v: np.array(v, dtype=np.int32))
    >>> none = np.zeros(3, dtype=np.uint8)
    >>> tree = (f4(1), i4(0), i4(0), i4(0, -1, -1), f4(60, 0, 0), none, f4(0, -0.5, 2), f4(3, 0, 0), f4(9, 4, 5))
    >>> stump = mc.boosting.Ensemble("reg:squarederror", ("age",), (), *tree, f4(0, -0.5, 2))
    >>> stump.check().predict_margin([[59.9], [60.0]]).ravel().tolist()
    [0.5, 3.0]
    """

    objective: str = text("loss, as xgboost names it")
    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order; none for numbers")
    base: Floats = array("margin that all records start from", ("k",), dtype="f4")
    roots: Integers = array("first node of every tree", ("T",), dtype="i4")
    group: Integers = array("margin that a tree adds to", ("T",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    threshold: Floats = array("values below it go left", ("m",), dtype="f4")
    default_left: Flags = array("1 where missing values go left", ("m",), dtype="u1")
    value: Floats = array("what a leaf adds to the margin", ("m",), dtype="f4")
    gain: Floats = array("by how much a split lowered the loss", ("m",), dtype="f4")
    cover: Floats = array("sum of the loss's curvatures", ("m",), dtype="f4")
    weight: Floats = array("Newton step of a node", ("m",), dtype="f4")
    power: float | None = number("power of the mean in the variance of a Tweedie outcome", optional=True)
    scale: float | None = number("scale of the log times of survival:aft", optional=True)
    distribution: tuple[str, ...] = texts("distribution of the log times of survival:aft", default=())
    margins: tuple[str, ...] = texts("columns of the records with the first margins", default=())
    table: tuple[str, ...] = texts("all columns of the sites' tables if some are not features", default=())
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())

    def check(self, columns: tuple[str, ...] | None = None) -> Self:
        """Return the ensemble if it is safe to apply.

        Parameters
        ----------
        columns : tuple of str, optional
            Columns of the records of the prediction.

        Raises
        ------
        MessageError
            A field differs from its declaration, a value is out of range, nodes are not trees, or columns differ.

        Examples
        --------
        >>> none, f4 = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
        >>> Ensemble("reg:squarederror", ("age",), (), f4, none, none, none, f4, f4.astype(np.uint8), f4, f4, f4,
        ...          f4).check()
        Traceback (most recent call last):
        multicentre.errors.MessageError: objective: classes and margins must fit ...
        """
        self.checked()
        find_children(self.roots, self.column)
        check_objective(self.objective, len(self.classes), len(self.base))
        check_margins(self.objective, self.base, self.roots, self.value)
        if _out_of(self.group, 0, len(self.base)) or _out_of(self.column, -1, len(self.columns)):
            raise MessageError(
                f"columns must be below {len(self.columns)} and groups below {len(self.base)}; got values outside",
                where="Ensemble.column",
            )
        if self.table and not {*self.columns, *self.margins} <= set(self.table):
            raise MessageError("a table must have all features and first margins; it has not", where="Ensemble.table")
        if columns is not None and columns != self.columns:
            hint = f"Pass, in this order, {', '.join(self.columns[:8])}."
            raise MessageError(
                f"columns must be the {len(self.columns)} of the fit; got {len(columns)}, others or in another order",
                where="Ensemble.columns",
                hint=hint,
            )
        return self

    def predict_margin(self, X: object, base_margin: Doubles | None = None) -> Floats:
        """Return first margins and sums of leaf values, shape (n, k): log odds, a score per class, a mean, or its log.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN for missing.
        base_margin : array of shape (n, k), optional
            First margins; required if those of the fit were columns of the records.

        Raises
        ------
        DataError
            The number of columns differs, a value is beyond single precision, or first margins are missing.
        """
        from multicentre.boosting.kernels.descent import add_trees

        rows, n_groups = self._checked_rows(X), len(self.base)
        if base_margin is None and self.margins:
            raise DataError(
                f"first margins must be given, as the fit read them from {', '.join(self.margins)}; got None",
                where="base_margin",
                hint="Pass records with these columns, or base_margin.",
            )
        margins = np.repeat(self.base[None, :], len(rows), axis=0)
        if base_margin is not None:
            margins = single(np.reshape(base_margin, (-1, n_groups))).copy()
            if len(margins) != len(rows) or np.isnan(margins).any():
                raise DataError(
                    f"base_margin must be {n_groups} numbers for each of {len(rows)} records; got {len(margins)} rows",
                    where="base_margin",
                )
        nodes = (self.column, self.threshold, self.default_left, find_children(self.roots, self.column), self.value)
        add_trees(margins, rows, self.roots, self.group, *nodes)
        return margins

    def predict_table(self, X: Doubles) -> Floats:
        """Return margins from all columns of the sites' tables, shape (n, k); see :meth:`predict_margin`.

        Parameters
        ----------
        X : array of shape (n, D)
            Features and, if the fit had them, columns with weights and first margins.
        """
        if not self.table:
            return self.predict_margin(X)
        place = {name: number for number, name in enumerate(self.table)}
        margins = X[:, [place[name] for name in self.margins]] if self.margins else None
        return self.predict_margin(X[:, [place[name] for name in self.columns]], margins)

    def find_nodes(self, X: object) -> Integers:
        """Return the number of each record's leaf among the nodes of each tree, shape (n, t), as in xgboost."""
        from multicentre.boosting.kernels.descent import find_nodes

        nodes = (self.column, self.threshold, self.default_left, find_children(self.roots, self.column))
        return find_nodes(self._checked_rows(X), self.roots, *nodes)

    def means(self, margins: Floats) -> Doubles:
        """Return the means of numbers from their margins, shape (n,)."""
        return OBJECTIVES[self.objective].means(margins.astype(np.float64))

    def _checked_rows(self, X: object) -> Floats:
        rows = single(X)
        if rows.ndim != 2 or rows.shape[1] != len(self.columns):
            raise DataError(
                f"X must have {len(self.columns)} columns; got shape {rows.shape}",
                where="X",
                hint="Pass all columns of the fit.",
            )
        return rows


def single(X: object) -> Floats:
    """Return values in single precision, as in xgboost.

    Raises
    ------
    DataError
        A value is infinite, or too large.

    Examples
    --------
    >>> single([[0.1]]).dtype
    dtype('float32')
    """
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(X, dtype=np.float32)
    if np.isinf(values).any():
        raise DataError(
            "values must be within single precision; got a larger or an infinite one",
            where="X",
            hint="Use another unit, or NaN for missing.",
        )
    return values


def _out_of(values: Integers, least: int, end: int) -> bool:
    return bool(((values < least) | (values >= end)).any())


# Parent of a root in the JSON of xgboost, the largest integer of 32 bits.
NO_PARENT = 2147483647


def to_booster(ensemble: Ensemble) -> Any:
    """Return the ensemble as a Booster of the installed xgboost, with the names of the columns.

    The trees are written into the JSON of an empty booster of that version. Of names, xgboost does not permit the
    characters ``[``, ``]`` and ``<``; they become ``(``, ``)`` and ``lt``.

    Raises
    ------
    MissingExtra
        xgboost is not installed.
    """
    try:
        import xgboost
    except ImportError:
        raise MissingExtra(
            "a Booster requires xgboost",
            where="to_booster",
            hint='Install the extra: pip install "multicentre[boost]".',
        ) from None
    n_groups, n_columns = len(ensemble.base), len(ensemble.columns)
    parameters: dict[str, Any] = {"objective": ensemble.objective, "base_score": _score(ensemble), "nthread": 1}
    if n_groups > 1:
        parameters["num_class"] = n_groups
    if ensemble.power is not None:
        parameters["tweedie_variance_power"] = ensemble.power
    if ensemble.distribution:
        parameters["aft_loss_distribution"] = ensemble.distribution[0]
        parameters["aft_loss_distribution_scale"] = ensemble.scale
    rows = xgboost.DMatrix(
        np.zeros((max(2, n_groups), n_columns)),
        label=np.arange(max(2, n_groups)),
        feature_names=booster_names(ensemble.columns),
    )
    empty = xgboost.train(parameters, rows, 0)
    described = json.loads(bytes(empty.save_raw("json")))
    described["learner"]["gradient_booster"]["model"] |= _model(ensemble)
    booster: Any = xgboost.Booster()
    booster.load_model(bytearray(json.dumps(described).encode()))
    return booster


def booster_names(columns: tuple[str, ...]) -> list[str]:
    """Return names of columns that xgboost permits.

    Examples
    --------
    >>> booster_names(("age", "dose [mg]"))
    ['age', 'dose (mg)']
    """
    return [name.replace("[", "(").replace("]", ")").replace("<", "lt") for name in columns]


def _score(ensemble: Ensemble) -> float:
    """Return the margin that all records start from, as the mean of the outcome."""
    margin = float(ensemble.base[0])
    if ensemble.objective == "binary:logistic":
        return float(1.0 / (1.0 + np.exp(-margin)))
    return float(np.exp(margin)) if OBJECTIVES[ensemble.objective].is_log else margin


def _model(ensemble: Ensemble) -> dict[str, Any]:
    n_estimators, n_groups = len(ensemble.roots), len(ensemble.base)
    ends = [*ensemble.roots.tolist(), len(ensemble.column)]
    left = find_children(ensemble.roots, ensemble.column)
    trees = [_tree(ensemble, left, number, slice(ends[number], ends[number + 1])) for number in range(n_estimators)]
    return {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(n_estimators)},
        "iteration_indptr": list(range(0, n_estimators + 1, n_groups)),
        "tree_info": ensemble.group.tolist(),
        "trees": trees,
    }


def _tree(ensemble: Ensemble, left: Any, number: int, nodes: slice) -> dict[str, Any]:
    column = ensemble.column[nodes]
    n_nodes, inner = len(column), column >= 0
    left_children = np.where(inner, left[nodes] - nodes.start, -1)
    parents = np.full(n_nodes, NO_PARENT, dtype=np.int64)
    parents[left_children[inner]] = parents[left_children[inner] + 1] = np.flatnonzero(inner)
    zeros = [0] * n_nodes
    return {
        "id": number,
        "base_weights": ensemble.weight[nodes].tolist(),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": ensemble.default_left[nodes].tolist(),
        "left_children": left_children.tolist(),
        "right_children": np.where(inner, left_children + 1, -1).tolist(),
        "loss_changes": ensemble.gain[nodes].tolist(),
        "parents": parents.tolist(),
        "split_conditions": np.where(inner, ensemble.threshold[nodes], ensemble.value[nodes]).tolist(),
        "split_indices": np.where(inner, column, 0).tolist(),
        "split_type": zeros,
        "sum_hessian": ensemble.cover[nodes].tolist(),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(ensemble.columns)),
            "num_nodes": str(n_nodes),
            "size_leaf_vector": "1",
        },
    }
