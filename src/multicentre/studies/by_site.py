"""Estimates by site of the variables that a study names, combined by meta-analysis: ``by_site = ["arm"]``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from multicentre.analytics.meta_analysis import combine
from multicentre.errors import CombinationWarning, ConfigurationError, MulticentreError, nearest_name
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Figure, Table
from multicentre.estimator.presentation import variable_of
from multicentre.estimator.site_estimates import SiteEstimates, column_text, covariate_of
from multicentre.estimator.terms import HasTerms

if TYPE_CHECKING:
    import pandas as pd


def check_by_site(kind: type[FederatedEstimator]) -> None:
    """Check that a method has coefficients by site.

    Raises
    ------
    ConfigurationError
        The method has none.
    """
    if not (issubclass(kind, HasTerms) and hasattr(kind, "by_site")):
        raise ConfigurationError(
            f"by_site must belong to an analysis with coefficients; {kind.__name__} has none",
            where="by_site",
            hint="Use it with fed-cox or a regression model.",
        )


def by_site_note(variables: Sequence[str]) -> str:
    """Return the note of a disclosure card on estimates by site."""
    return (
        "by_site: a model is fitted to this site alone. Its sums leave unmasked, and from them the coordinator can "
        f"compute all coefficients at this site; the report and its files show those of {', '.join(variables)} and "
        "their standard errors. The site's minimum of patients applies to each sum: covariates in which fewer of its "
        "patients differ are named and left out of its fit. A site whose policy has secure_sums_only is left out."
    )


def estimates_by_site(
    estimator: FederatedEstimator, variables: Sequence[str]
) -> tuple[pd.DataFrame | None, list[Figure]]:
    """Return the estimates of the sites as a table, and a forest plot per coefficient, or the reason why not."""
    try:
        all_estimates: SiteEstimates = estimator.by_site()
        estimates = _restricted(all_estimates, variables)
    except MulticentreError as error:
        return None, [Table("Estimates by site", "No estimates by site.", "model", ["reason"], [[str(error)]])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CombinationWarning)  # captions say it
        combined = combine(estimates)
    fits = estimator.to_frame()[["coefficient", "standard_error"]]
    figures: list[Figure] = []
    for column, each in combined.items():
        coefficient, standard_error = map(float, fits.loc[[column]].to_numpy(np.float64)[0])
        title = f"{each.label[0].upper()}{each.label[1:]} of {column_text(column)}, site by site"
        figures.append(each.forest(title, fit=(coefficient, standard_error)))
    return estimates.to_frame(), figures


def _restricted(estimates: SiteEstimates, variables: Sequence[str]) -> SiteEstimates:
    """Return the estimates of some variables.

    Raises
    ------
    ConfigurationError
        A variable has no coefficient.
    """
    available = [variable_of(covariate_of(column)) for column in estimates.columns]
    if absent := [name for name in variables if name not in available]:
        raise ConfigurationError(
            f"by_site must name variables with coefficients; got {', '.join(absent)}",
            where="by_site",
            hint=f"{nearest_name(absent, available)}Splines and polynomials have no coefficient of their own.",
        )
    places = [place for place, name in enumerate(available) if name in variables]
    return replace(
        estimates,
        columns=tuple(estimates.columns[place] for place in places),
        estimates=estimates.estimates[:, places],
        standard_errors=estimates.standard_errors[:, places],
    )
