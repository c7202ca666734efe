"""What a fit of DPFact refuses or warns of before its first round."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.agreement import Vocabulary
from multicentre.phenotyping.dpfact.maths.elastic import contraction, largest_weight

CHOICES: dict[str, tuple[Any, ...]] = {
    "solver": ("stat", "easgd", "psgd", "observed"),
    "init": ("cooccurrence", "random"),
    "mechanism": ("dp-als", "bolt-on", "paper-literal"),
    "unit": ("patient", "entry"),
}
_WHOLE = {"rank": 1, "max_rounds": 1, "n_passes": 1, "n_sweeps": 1, "min_code_patients": 0, "random_state": 0}


class MaskedLossWarning(UserWarning):
    """The chosen loss looks at entries above zero alone."""


class ElasticWarning(UserWarning):
    """The elastic step oscillates."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind, and they agree."""
    for name, choices in CHOICES.items():
        if given[name] not in choices:
            raise ConfigurationError(
                f"{given[name]!r} is not known", where=name, mend=f"Use one of {', '.join(choices)}."
            )
    for name, least in _WHOLE.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)
    for name in ("tol", "sparsity", "pull", "learning_rate"):
        if not (_is_number(given[name]) and given[name] >= 0):
            raise ConfigurationError(f"{given[name]!r} is not a number of at least 0", where=name)
    for name in ("nonnegative", "track_errors"):
        if not isinstance(given[name], bool | np.bool_):
            raise ConfigurationError(f"{given[name]!r} is neither true nor false", where=name)
    if not given["nonnegative"] and given["solver"] not in ("stat", "observed"):
        raise ConfigurationError(
            "only stat and observed can leave factors free", where="nonnegative", mend="Keep nonnegative=True."
        )
    _check_elastic(given)
    _warn_of_loss(given)


def check_rank(rank: int, vocabulary: Vocabulary) -> None:
    """Raise ConfigurationError when there are more phenotypes than codes of some mode."""
    mode, size = min(vocabulary.sizes.items(), key=lambda item: item[1])
    if rank > size:
        raise ConfigurationError(
            f"{rank} phenotypes are more than the {size} codes of mode {mode!r}",
            where="rank",
            mend="Use fewer phenotypes, or keep more codes.",
        )


def _check_elastic(given: Mapping[str, Any]) -> None:
    weight = given["elastic_weight"]
    if not (_is_number(weight) and weight > 0):
        raise ConfigurationError(f"{weight!r} is not a number above 0", where="elastic_weight")
    observed = given["solver"] == "observed"
    kappa = contraction(given["learning_rate"], given["pull"], given["n_passes"]) if observed else 1.0
    limit = min(2.0, largest_weight(kappa))
    if weight >= limit:
        raise ConfigurationError(
            f"an elastic weight of {weight:g} makes the rounds diverge",
            where="elastic_weight",
            mend=f"It must stay below {limit:g}; up to 1 the rounds approach without overshooting.",
        )
    if weight > 1:
        warnings.warn(
            f"an elastic weight of {weight:g} overshoots the mean of the sites in every round; 1 or less does not.",
            ElasticWarning,
            stacklevel=6,
        )


def _warn_of_loss(given: Mapping[str, Any]) -> None:
    if given["solver"] == "observed":
        warnings.warn(
            'solver="observed" is the published algorithm: its loss looks at entries above zero alone, for which a '
            "constant tensor is nearly best, so it learns no phenotypes. It is for comparison; use stat or easgd.",
            MaskedLossWarning,
            stacklevel=6,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)
