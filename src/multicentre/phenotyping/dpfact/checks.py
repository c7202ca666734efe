"""What a fit of DPFact refuses or warns of before its first round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.dpfact.maths.local import largest_weight
from multicentre.phenotyping.fitted.checks import (
    check_codes,
    check_flags,
    check_numbers,
    check_whole,
)
from multicentre.privacy.accounting import require_fraction

CHOICES: dict[str, tuple[Any, ...]] = {
    "solver": ("stat", "poisson", "easgd", "psgd"),
    "init": ("cooccurrence", "random"),
    "mechanism": ("dp-als", "bolt-on"),
    "unit": ("patient", "entry"),
}
SOLVER_OF = {"dp-als": "stat", "bolt-on": "psgd"}
_WHOLE = {"rank": 1, "max_iter": 1, "n_passes": 1, "n_sweeps": 1, "min_code_patients": 0, "random_state": 0}
_PRIVATE_WHOLE = {"n_private_rounds": 1, "public_site_size": 1}


class ElasticWarning(UserWarning):
    """The elastic step oscillates."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind, and they agree."""
    for name, choices in CHOICES.items():
        if given[name] not in choices:
            raise ConfigurationError(
                f"{given[name]!r} is not known", where=name, hint=f"Use one of {', '.join(choices)}."
            )
    check_whole(given, _WHOLE)
    check_numbers(given, least=dict.fromkeys(("tol", "sparsity", "pull"), 0.0))
    check_numbers(given, above={"elastic_weight": 0.0})
    check_flags(given, "nonnegative", "track_errors")
    check_codes(given["vocabulary"], given["n_codes"])
    if not given["nonnegative"] and given["solver"] != "stat":
        raise ConfigurationError("only stat can leave factors free", where="nonnegative", hint="Keep nonnegative=True.")
    check_elastic_weight(given["elastic_weight"])
    if given["epsilon"] is not None:
        _check_privacy(given)


def check_elastic_weight(weight: float) -> None:
    """Raise ConfigurationError where elastic averaging diverges; warn where it overshoots."""
    limit = largest_weight(1.0)  # sites that come nearer to the global factor (kappa below 1) allow larger weights
    if weight >= limit:
        raise ConfigurationError(
            f"an elastic weight of {weight:g} makes the rounds diverge",
            where="elastic_weight",
            hint=f"It must stay below {limit:g}; up to 1 the rounds approach without overshooting.",
        )
    if weight > 1:
        warnings.warn(
            f"an elastic weight of {weight:g} overshoots the mean of the sites in every round; 1 or less does not.",
            ElasticWarning,
            stacklevel=6,
        )


def _check_privacy(given: Mapping[str, Any]) -> None:
    check_numbers(given, above={"epsilon": 0.0})
    require_fraction(given["delta"])
    check_whole(given, {name: least for name, least in _PRIVATE_WHOLE.items() if given[name] is not None})
    mechanism = given["mechanism"]
    if given["solver"] != SOLVER_OF[mechanism]:
        raise ConfigurationError(
            f"{mechanism} adds noise to {SOLVER_OF[mechanism]}, not to {given['solver']}",
            where="solver",
            hint=f"Use solver={SOLVER_OF[mechanism]!r}, or another mechanism.",
        )
    _check_needed(given)
    _check_unasked(given)


def _check_needed(given: Mapping[str, Any]) -> None:
    if given["vocabulary"] is None or len(given["vocabulary"]) < 2:
        raise ConfigurationError(
            "sites cannot name their codes under differential privacy",
            where="vocabulary",
            hint="Give a public list of codes for every mode.",
        )
    if given["mechanism"] == "bolt-on" and given["public_site_size"] is None:
        raise ConfigurationError(
            "the learning rate of bolt-on depends on the number of patients of a site, which is not asked for",
            where="public_site_size",
            hint="Give a round number from public knowledge.",
        )


def _check_unasked(given: Mapping[str, Any]) -> None:
    """Refuse what rests on sums over patients for which no noise is planned."""
    for name, least in (("sparsity", 0.0), ("track_errors", False), ("nonnegative", True)):
        if given[name] != least:
            raise ConfigurationError(
                f"{given[name]!r} is not part of a fit with an epsilon",
                where=name,
                hint=f"Use {least!r}: the group lasso, errors and free factors need sums that carry no noise.",
            )
