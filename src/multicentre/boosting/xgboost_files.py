"""Models of xgboost, read from its JSON into checked arrays without xgboost itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from multicentre.boosting.trees import OBJECTIVES, Ensemble
from multicentre.errors import ConfigurationError, MulticentreError
from multicentre.trees.table import MAX_NODES

_SUPPORTED = tuple(name for name in OBJECTIVES if name != "survival:aft")


class _Node(NamedTuple):
    """Node of a tree in the order of an ensemble: those of each split follow the ones before."""

    column: int
    threshold: float
    default_left: int
    value: float
    gain: float
    cover: float
    weight: float


def read_booster(
    described: Mapping[str, Any], columns: Sequence[str] | None = None, classes: Sequence[str] = ()
) -> Ensemble:
    """Return the trees of a booster that xgboost wrote as JSON.

    Parameters
    ----------
    described : mapping
        Parsed JSON of ``Booster.save_model``.
    columns : sequence of str, optional
        Names of the features; those of the file by default.
    classes : sequence of str, optional
        Names of the classes; their numbers by default.

    Raises
    ------
    ConfigurationError
        The content is not a booster of trees with numeric splits and a supported objective.
    """
    try:
        return _read(described, columns, classes).check()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = type(error).__name__
    except MulticentreError as error:
        reason = error.what
    raise ConfigurationError(
        f"the file must be a booster that xgboost wrote as JSON; reading it failed ({reason})",
        where="model",
        hint='Write it with Booster.save_model("model.json").',
    )


def _read(described: Mapping[str, Any], columns: Sequence[str] | None, classes: Sequence[str]) -> Ensemble:
    learner = described["learner"]
    booster, objective = learner["gradient_booster"], str(learner["objective"]["name"])
    if booster["name"] != "gbtree" or objective not in _SUPPORTED:
        raise ConfigurationError(
            f"the booster must be gbtree with an objective among {', '.join(_SUPPORTED)}; got "
            f"{str(booster['name'])[:40]} with {objective[:40]}"
        )
    n_groups = max(int(learner["learner_model_param"]["num_class"]), 1)
    trees = [_nodes_of(tree) for tree in booster["model"]["trees"]]
    sizes = [len(nodes) for nodes in trees]
    fields = np.array([node for nodes in trees for node in nodes], dtype=np.float64).reshape(-1, len(_Node._fields)).T
    column, threshold, default_left, value, gain, cover, weight = fields
    return Ensemble(
        objective,
        tuple(columns or learner.get("feature_names") or _numbered(learner)),
        _classes(objective, n_groups, classes),
        np.asarray(_margins(learner, objective, n_groups), dtype=np.float32),
        np.cumsum([0, *sizes[:-1]] if sizes else [], dtype=np.int32),
        np.asarray(booster["model"]["tree_info"], dtype=np.int32),
        column.astype(np.int32),
        threshold.astype(np.float32),
        default_left.astype(np.uint8),
        value.astype(np.float32),
        gain.astype(np.float32),
        cover.astype(np.float32),
        weight.astype(np.float32),
    )


def _numbered(learner: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"x{place}" for place in range(int(learner["learner_model_param"]["num_feature"])))


def _classes(objective: str, n_groups: int, classes: Sequence[str]) -> tuple[str, ...]:
    n_classes = n_groups if objective == "multi:softprob" else 2 * (objective == "binary:logistic")
    return tuple(classes) or tuple(str(number) for number in range(n_classes))


def _margins(learner: Mapping[str, Any], objective: str, n_groups: int) -> list[float]:
    """Return the first margin of each group; xgboost stores the mean outcome, from version 3.1 on in brackets."""
    text = str(learner["learner_model_param"]["base_score"]).strip("[]")
    means = np.array([float(part) for part in text.split(",")])
    if objective == "binary:logistic":
        means = np.log(means / (1 - means))
    elif OBJECTIVES[objective].is_log:
        means = np.log(means)
    return [float(value) for value in np.broadcast_to(means, n_groups)]


def _nodes_of(tree: Mapping[str, Any]) -> list[_Node]:
    """Return the nodes of a tree, level by level, so that the children of the j-th split are 1 + 2 j and 2 + 2 j."""
    if any(tree["split_type"]):
        raise ConfigurationError("splits must be numeric; got a split of categories")
    nodes: list[_Node] = []
    waiting = deque([0])
    while waiting:
        place = waiting.popleft()
        left, right = int(tree["left_children"][place]), int(tree["right_children"][place])
        is_leaf, condition = left < 0, float(tree["split_conditions"][place])
        if len(nodes) >= min(len(tree["left_children"]), MAX_NODES):
            raise ConfigurationError("nodes must form trees; got a node with two parents")
        nodes.append(
            _Node(
                -1 if is_leaf else int(tree["split_indices"][place]),
                0.0 if is_leaf else condition,
                0 if is_leaf else int(tree["default_left"][place]),
                condition if is_leaf else 0.0,
                float(tree["loss_changes"][place]),
                float(tree["sum_hessian"][place]),
                float(tree["base_weights"][place]),
            )
        )
        waiting.extend([] if is_leaf else [left, right])
    return nodes
