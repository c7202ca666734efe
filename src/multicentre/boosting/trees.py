"""The fitted ensemble: boosted trees as arrays, checked before use, so that a stranger's model can be applied."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError, MessageError, MissingExtra
from multicentre.federation.messages import Message, array, text, texts

Floats = NDArray[np.float32]

Integers = NDArray[np.int32]

Flags = NDArray[np.uint8]

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson")

MOST_CLASSES = 1000

MOST_DEPTH = 12

MOST_NODES = 2**24

LARGEST_VALUE = float(np.finfo(np.float32).max)

LARGEST_MARGIN = 1e30

LARGEST_LOG_MEAN = 300.0


def find_children(roots: Integers, column: Integers) -> Integers:
    """Return the place of every node's left child among all nodes, -1 at a leaf; the right child follows it.

    A tree's nodes stand in the order in which they were split: the children of its j-th split are its nodes 1 + 2 j
    and 2 + 2 j.

    Parameters
    ----------
    roots : array of shape (t,)
    column : array of shape (m,)
        Column of a node's split, -1 at a leaf.

    Raises
    ------
    MessageError
        The nodes do not make so many trees of at most 12 splits on the way to a leaf.

    Examples
    --------
    >>> find_children(np.array([0, 3], dtype=np.int32), np.array([5, -1, -1, -1], dtype=np.int32)).tolist()
    [1, -1, -1, -1]
    """
    from multicentre.boosting.kernels import place_children

    if len(column) > MOST_NODES:
        raise MessageError("the nodes do not make trees", where="roots")
    left, depth = place_children(roots, column)
    if depth < 0:
        raise MessageError("the nodes do not make trees", where="column")
    if depth > MOST_DEPTH:
        raise MessageError(f"more than {MOST_DEPTH} splits on the way to a leaf", where="column")
    return left


def check_objective(objective: str, n_classes: int, n_margins: int) -> None:
    """Raise MessageError unless the objective is known and fits the numbers of classes and of margins.

    Examples
    --------
    >>> check_objective("multi:softprob", 3, 3)
    """
    many = objective == "multi:softprob"
    fits = 2 <= n_classes <= MOST_CLASSES if many else n_classes == 2 * (objective == "binary:logistic")
    if objective not in OBJECTIVES or not fits or n_margins != (n_classes if many else 1):
        raise MessageError("classes or margins do not fit the objective", where="objective")


def check_margins(objective: str, base: Floats, roots: Integers, value: Floats) -> None:
    """Raise MessageError unless every margin that the trees can add up to is finite, whatever the records.

    Parameters
    ----------
    objective : str
    base : array of shape (k,)
        Margins that records start from.
    roots : array of shape (t,)
    value : array of shape (m,)
        What a leaf adds to the margin.

    Notes
    -----
    The sum over trees of the largest magnitude, and that of the base, are at most 1e30 together; the log of a mean is
    at most 300, so that its exponential and the square of that are finite too.

    Examples
    --------
    >>> check_margins("reg:squarederror", np.zeros(1), np.array([0, 1]), np.array([1e29, -1e29]))
    """
    base, value = base.astype(np.float64), value.astype(np.float64)
    largest = np.abs(base).max() + (np.maximum.reduceat(np.abs(value), roots).sum() if len(roots) else 0.0)
    highest = base.max() + (np.maximum.reduceat(np.maximum(value, 0.0), roots).sum() if len(roots) else 0.0)
    if largest > LARGEST_MARGIN or (objective == "count:poisson" and highest > LARGEST_LOG_MEAN):
        hint = "Give outcomes in another unit, or lower learning_rate."
        raise MessageError("the trees' values add up to too much", where="value", hint=hint)


@dataclass(frozen=True)
class Ensemble(Message):
    """Boosted trees one after the other.

    A value below the threshold goes left, both taken in single precision; a missing value goes where `default_left`
    says.

    Examples
    --------
    >>> f4, i4 = (lambda *v: np.array(v, dtype=np.float32)), (lambda *v: np.array(v, dtype=np.int32))
    >>> none = np.zeros(3, dtype=np.uint8)
    >>> stump = Ensemble("reg:squarederror", ("age",), (), f4(1), i4(0), i4(0), i4(0, -1, -1), f4(60, 0, 0), none,
    ...                  f4(0, -0.5, 2), f4(3, 0, 0), f4(9, 4, 5), f4(0, -0.5, 2))
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
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())

    def check(self, columns: tuple[str, ...] | None = None) -> Self:
        """Return the ensemble if it is safe to apply.

        Parameters
        ----------
        columns : tuple of str, optional
            Columns of the records that it is to be applied to.

        Raises
        ------
        MessageError
            A field is not as declared, a value is out of range, the nodes are no trees, or the columns are others.

        Examples
        --------
        >>> none, f4 = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
        >>> Ensemble("reg:squarederror", ("age",), (), f4, none, none, none, f4, f4.astype(np.uint8), f4, f4, f4,
        ...          f4).check()
        Traceback (most recent call last):
        multicentre.federation.errors.MessageError: objective: classes or margins do not fit the objective. [MC802]
        """
        self.checked()
        find_children(self.roots, self.column)
        check_objective(self.objective, len(self.classes), len(self.base))
        check_margins(self.objective, self.base, self.roots, self.value)
        if _out_of(self.group, 0, len(self.base)) or _out_of(self.column, -1, len(self.columns)):
            raise MessageError("a tree's column or class is out of range", where="Ensemble.column")
        if columns is not None and columns != self.columns:
            hint = f"Give, in this order, {', '.join(self.columns[:8])}."
            raise MessageError("the columns are not those of the fit", where="Ensemble.columns", hint=hint)
        return self

    def predict_margin(self, X: object) -> Floats:
        """Return the sums of the trees' values, shape (n, k): log odds, a score for each class, a mean, or its log.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN for missing.

        Raises
        ------
        DataError
            There are other columns, or a value is beyond single precision.
        """
        from multicentre.boosting.kernels import add_trees

        rows = single(X)
        if rows.ndim != 2 or rows.shape[1] != len(self.columns):
            raise DataError(
                f"{len(self.columns)} columns are needed, shape {rows.shape} was given",
                where="X",
                hint="Give them all.",
            )
        margins = np.repeat(self.base[None, :], len(rows), axis=0)
        nodes = (self.column, self.threshold, self.default_left, find_children(self.roots, self.column), self.value)
        add_trees(margins, rows, self.roots, self.group, *nodes)
        return margins


def single(X: object) -> Floats:
    """Return values in single precision, as xgboost takes them.

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
        raise DataError("a value is beyond single precision", where="X", hint="Use another unit, or NaN for missing.")
    return values


def _out_of(values: Integers, least: int, end: int) -> bool:
    return bool(((values < least) | (values >= end)).any())


NO_PARENT = 2147483647


def to_booster(ensemble: Ensemble) -> Any:
    """Return the ensemble as a Booster of the installed xgboost, whose columns have no names.

    The trees are written into the JSON of an empty booster of that version.

    Raises
    ------
    MissingExtra
        xgboost is not installed.
    """
    try:
        import xgboost
    except ImportError:
        raise MissingExtra(
            "a Booster needs xgboost", where="to_booster", hint='Install the extra: pip install "multicentre[boost]".'
        ) from None
    n_groups, n_columns = len(ensemble.base), len(ensemble.columns)
    parameters: dict[str, Any] = {"objective": ensemble.objective, "base_score": _score(ensemble), "nthread": 1}
    if n_groups > 1:
        parameters["num_class"] = n_groups
    rows = xgboost.DMatrix(
        np.zeros((max(2, n_groups), n_columns)), label=np.arange(max(2, n_groups)) % max(2, n_groups)
    )
    empty = xgboost.train(parameters, rows, 0)
    described = json.loads(bytes(empty.save_raw("json")))
    described["learner"]["gradient_booster"]["model"] |= _model(ensemble)
    booster = xgboost.Booster()
    booster.load_model(bytearray(json.dumps(described).encode()))
    return booster


def _score(ensemble: Ensemble) -> float:
    """Return the margin that all records start from, as the outcome's mean."""
    margin = float(ensemble.base[0])
    if ensemble.objective == "binary:logistic":
        return float(1.0 / (1.0 + np.exp(-margin)))
    return float(np.exp(margin)) if ensemble.objective == "count:poisson" else margin


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
    own = np.where(inner, left[nodes] - nodes.start, -1)
    parents = np.full(n_nodes, NO_PARENT, dtype=np.int64)
    parents[own[inner]] = parents[own[inner] + 1] = np.flatnonzero(inner)
    zeros = [0] * n_nodes
    return {
        "id": number,
        "base_weights": ensemble.weight[nodes].tolist(),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": ensemble.default_left[nodes].tolist(),
        "left_children": own.tolist(),
        "right_children": np.where(inner, own + 1, -1).tolist(),
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
