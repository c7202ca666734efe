"""Estimates of single sites and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    from multicentre.estimator.base import FederatedEstimator

Floats = NDArray[np.float64]
Scale = Literal["identity", "log", "log-log"]
NO_ERROR = "no estimate with a standard error"
NOT_ESTIMATED = (
    "{0} is not estimated at this site: fewer patients differ in it than the site's policy requires (the site's fit "
    "then leaves it out), or it has no information"
)
"""Reason of a missing estimate of a site with others; the site does not say which of the two it is."""


@dataclass(frozen=True)
class SiteEstimates:
    """Estimates of s sites, each from the patients of one site.

    Parameters
    ----------
    columns, sites : tuple of str
        Names of the d estimates and the s sites; of a multinomial model, pairs of class and covariate.
    estimates, standard_errors : arrays of shape (s, d)
        NaN where a site has no estimate.
    refused : mapping of str to str
        Reasons of the sites without estimates, by site: their policy or guard refused, or the fit failed.
    missing : mapping of (str, str) to str
        Reasons of single estimates that are missing, by site and column.
    scale : {"identity", "log", "log-log"}, default "identity"
        Scale of the estimates: "log" of ratios, "log-log" (``log(-log S)``) of shares of survivors.
    label : str, default "estimate"
        Name of the values after the scale is undone, for example "odds ratio".
    """

    columns: tuple[str, ...]
    sites: tuple[str, ...]
    estimates: Floats
    standard_errors: Floats
    refused: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = "identity"
    label: str = "estimate"
    missing: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def reason(self, site: str, column: str) -> str:
        """Return why an estimate is missing; empty if nothing is known."""
        return self.missing.get((site, column)) or self.refused.get(site, "")

    def to_frame(self) -> pd.DataFrame:
        """Return a row per site and column: the estimate, its standard error, and the reason of a missing one."""
        import pandas as pd

        index = pd.MultiIndex.from_product([self.sites, self.columns], names=["site", "column"])
        reasons = [self.reason(site, column) for site in self.sites for column in self.columns]
        columns = {
            "estimate": self.estimates.ravel(),
            "standard_error": self.standard_errors.ravel(),
            "reason": reasons,
        }
        return pd.DataFrame(columns, index=index).reset_index()


def column_text(column: str | tuple[str, str]) -> str:
    """Return the name of an estimate; of a pair of class and covariate, the covariate with its class.

    Examples
    --------
    >>> column_text("age"), column_text(("mild", "age"))
    ('age', 'age (mild)')
    """
    return column if isinstance(column, str) else f"{column[1]} ({column[0]})"


def covariate_of(column: str | tuple[str, str]) -> str:
    """Return the covariate of an estimate, without the class of a multinomial model."""
    return column if isinstance(column, str) else column[1]


def undo_scale(values: Floats, scale: Scale) -> Floats:
    """Return values on the scale of their label.

    Examples
    --------
    >>> undo_scale(np.array([0.0]), "log").tolist(), undo_scale(np.array([0.0]), "log-log").round(3).tolist()
    ([1.0], [0.368])
    """
    with np.errstate(over="ignore"):
        if scale == "log":
            return np.exp(values)
        return np.exp(-np.exp(values)) if scale == "log-log" else values


def coefficients_by_site(
    model: FederatedEstimator, columns: Sequence[str], *, scale: Scale = "identity", label: str = "coefficient"
) -> SiteEstimates:
    """Fit each site alone and return the columns "coefficient" and "standard_error" of its table.

    Parameters
    ----------
    model : FederatedEstimator
        Fitted model whose :meth:`to_frame` has a row per coefficient.
    columns : sequence of str
        Names of the rows; a row that a site's table lacks is NaN.
    scale, label
        As for :class:`SiteEstimates`.
    """
    fits = model.fit_each_site_without_rare_columns()
    sites = model.session.sites
    values = np.full((2, len(sites), len(columns)), np.nan)
    for place, site in enumerate(sites):
        if site in fits:
            table = fits[site].to_frame().reindex(list(columns))
            values[:, place] = table[["coefficient", "standard_error"]].to_numpy(np.float64).T
    missing = {
        (site, columns[place]): NOT_ESTIMATED.format(column_text(columns[place]))
        for row, site in enumerate(sites)
        if site in fits
        for place in np.flatnonzero(np.isnan(values[0, row])).tolist()
    }
    return SiteEstimates(tuple(columns), tuple(sites), values[0], values[1], fits.refused, scale, label, missing)
