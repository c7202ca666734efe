"""Ranges of the parameters of both estimators, and the plan of the rounds that follows from their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multicentre.boosting.maths import Columns, Penalty
from multicentre.boosting.messages import MAX_BASE, MAX_CUTS, MAX_ROUNDS, RECORDS, Start
from multicentre.boosting.rounds import Plan
from multicentre.boosting.trees import OBJECTIVES
from multicentre.data.tabular import sources_of
from multicentre.errors import ConfigurationError
from multicentre.estimator.parameters import Integer, ParameterRanges, Real, Where
from multicentre.trees.table import MAX_DEPTH

# Largest penalty: far above the sums of gradients and curvatures of any study, so every leaf is already near zero.
MAX_PENALTY = 1e12
_PENALTY = Real(0, MAX_PENALTY)
_SHARE = Real(0, 1, open="low")
# Largest cut: just below the largest number in single precision, about 3.4e38.
MAX_CUT = 3e38
# Largest seed: a message carries it as a number in double precision.
MAX_SEED = 2**53 - 1


def _are_cuts(value: Any) -> bool:
    """Return whether a value is a list of lists of numbers in single precision."""
    kinds, in_range = (list, tuple), Real(-MAX_CUT, MAX_CUT)
    return isinstance(value, kinds) and all(
        isinstance(column, kinds) and all(in_range.accepts(cut) for cut in column) for column in value
    )


def _are_directions(value: Any) -> bool:
    """Return whether a value maps names to -1, 0 or 1."""
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and type(sign) is int and sign in (-1, 0, 1) for name, sign in value.items()
    )


def _are_names(value: Any) -> bool:
    """Return whether a value is a list of names."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(name, str) and name for name in value)


def _are_sets(value: Any) -> bool:
    """Return whether a value is a list of lists of names."""
    return isinstance(value, (list, tuple)) and all(_are_names(each) for each in value)


def is_name(value: Any) -> bool:
    """Return whether a value is a name."""
    return _are_names([value])


def _is_name_or_names(value: Any) -> bool:
    return is_name(value) or _are_names(value)


RANGES: ParameterRanges = {
    "n_estimators": Integer(1, MAX_ROUNDS),
    "max_depth": Integer(1, MAX_DEPTH),
    "learning_rate": Real(0, 1, open="low"),
    "reg_lambda": _PENALTY,
    "reg_alpha": _PENALTY,
    "gamma": _PENALTY,
    "min_child_weight": _PENALTY,
    "max_bins": Integer(2, MAX_CUTS + 1),
    "min_samples_leaf": Integer(0, int(RECORDS)),
    "base_score": (None, Real(-MAX_BASE, MAX_BASE)),
    "n_iter_no_change": (None, Integer(1, MAX_ROUNDS)),
    "cuts": (None, Where("a list of lists of finite numbers", _are_cuts)),
    "subsample": _SHARE,
    "colsample_bytree": _SHARE,
    "colsample_bylevel": _SHARE,
    "colsample_bynode": _SHARE,
    "monotone_constraints": (None, Where("a mapping of names to -1, 0 or 1", _are_directions)),
    "interaction_constraints": (None, Where("a list of lists of names", _are_sets)),
    "sample_weight": (None, Where("the name of a column", is_name)),
    "base_margin": (None, Where("the name of a column, or a list of names", _is_name_or_names)),
    "random_state": Integer(0, MAX_SEED),
}


def plan_of(parameters: Mapping[str, Any], start: Start) -> Plan:
    """Return the plan of the rounds from the values of the parameters.

    Raises
    ------
    ConfigurationError
        A constraint names a column that does not exist.
    """
    penalty = Penalty(
        reg_lambda=float(parameters["reg_lambda"]),
        reg_alpha=float(parameters["reg_alpha"]),
        gamma=float(parameters["gamma"]),
        min_child_weight=float(parameters["min_child_weight"]),
        least_records=int(parameters["min_samples_leaf"]),
        largest_step=OBJECTIVES[start.objective].largest_step,
        slope_unit=2.0**start.slope_exponent,
        curvature_unit=2.0**start.curvature_exponent,
        monotone=_directions(parameters["monotone_constraints"] or {}, start),
    )
    by_tree, by_level, by_node = (float(parameters[f"colsample_by{unit}"]) for unit in ("tree", "level", "node"))
    groups = tuple(
        frozenset(place for name in names for place in _places_of(name, start))
        for names in parameters["interaction_constraints"] or ()
    )
    return Plan(
        int(parameters["n_estimators"]),
        int(parameters["max_depth"]),
        float(parameters["learning_rate"]),
        penalty,
        int(parameters["n_iter_no_change"] or 0),
        Columns(len(start.columns), by_tree, by_level, by_node, int(parameters["random_state"]), groups),
        parameters.get("eval_metric") == "auc",
    )


def _directions(constraints: Mapping[str, int], start: Start) -> tuple[int, ...]:
    """Return the monotone constraint of each column; empty without constraints."""
    directions = [0] * len(start.columns)
    for name, direction in constraints.items():
        if name not in start.columns:
            raise _unknown_column("monotone_constraints", name, start)
        directions[start.columns.index(name)] = direction
    return tuple(directions) if any(directions) else ()


def _places_of(name: str, start: Start) -> list[int]:
    """Return the places of a column, or of the columns of a category, with their indicators."""
    sources, wanted = sources_of(start.columns, start.levels), {name, f"missing_{name}"}
    places = [k for k, pair in enumerate(zip(start.columns, sources, strict=True)) if wanted & set(pair)]
    if not places:
        raise _unknown_column("interaction_constraints", name, start)
    return places


def _unknown_column(where: str, name: str, start: Start) -> ConfigurationError:
    return ConfigurationError(
        f"{where} must name columns of the fit; got {name!r}",
        where=where,
        hint=f"The columns begin with {', '.join(start.columns[:8])}.",
    )
