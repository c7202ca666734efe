"""Checks and warnings before a fit of DPFact as published."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.dpfact.checks import check_elastic_weight
from multicentre.phenotyping.fitted.checks import (
    MaskedLossWarning,
    check_codes,
    check_flags,
    check_numbers,
    check_whole,
)
from multicentre.privacy.accounting import require_fraction

_WHOLE = {"rank": 1, "max_iter": 1, "n_passes": 1, "min_code_patients": 0, "random_state": 0}


class ClaimWarning(UserWarning):
    """A privacy claim has no proof behind it."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind, and they agree."""
    check_whole(given, _WHOLE)
    check_numbers(given, least=dict.fromkeys(("tol", "sparsity", "pull", "learning_rate"), 0.0))
    check_numbers(given, above={"elastic_weight": 0.0})
    check_flags(given, "nonnegative", "track_errors")
    check_codes(given["vocabulary"], given["n_codes"])
    check_elastic_weight(given["elastic_weight"])
    if given["epsilon"] is not None:
        _check_claim(given)
    warnings.warn(
        "DPFactAsPublished minimises a loss over entries above zero alone, for which a constant tensor is nearly best: "
        "it learns no phenotypes. It is for comparison; use DPFact.",
        MaskedLossWarning,
        stacklevel=4,
    )


def _check_claim(given: Mapping[str, Any]) -> None:
    check_numbers(given, above={name: 0.0 for name in ("epsilon", "paper_lipschitz") if given[name] is not None})
    require_fraction(given["delta"])
    if given["paper_lipschitz"] is None:
        raise ConfigurationError(
            "the published noise needs a bound of gradients, which the paper takes for granted",
            where="paper_lipschitz",
            hint="Give a number, such as 1; no number makes the published proof hold.",
        )
    warnings.warn(
        "the published noise promises nothing: the gradients have no bound, memberships and factors that change with "
        "the data move together, and a site's state outlives its release. The result is not differentially private.",
        ClaimWarning,
        stacklevel=5,
    )
