"""The fitted ensemble as a genuine xgboost.Booster."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from multicentre.boosting.trees import Ensemble, find_children
from multicentre.federation.errors import MissingExtra

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
            "a Booster needs xgboost", where="to_booster", mend='Install the extra: pip install "multicentre[boost]".'
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
    n_trees, n_groups = len(ensemble.roots), len(ensemble.base)
    ends = [*ensemble.roots.tolist(), len(ensemble.column)]
    left = find_children(ensemble.roots, ensemble.column)
    trees = [_tree(ensemble, left, number, slice(ends[number], ends[number + 1])) for number in range(n_trees)]
    return {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(n_trees)},
        "iteration_indptr": list(range(0, n_trees + 1, n_groups)),
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
