"""Estimates of single sites: fits of each site alone, and their table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from multicentre.core.session import Answers
from multicentre.errors import ConfigurationError, LeftOutWarning, MulticentreError, SeparationWarning

if TYPE_CHECKING:
    import pandas as pd

    from multicentre.estimator.base import FederatedEstimator

M = TypeVar("M", bound="FederatedEstimator")
Floats = NDArray[np.float64]
Scale = Literal["identity", "log", "log-log"]
NO_ERROR = "no estimate with a standard error"


@dataclass(frozen=True)
class SiteEstimates:
    """Estimates of s sites, each from the patients of one site.

    Parameters
    ----------
    columns, sites : tuple of str
        Names of the d estimates and the s sites.
    estimates, standard_errors : arrays of shape (s, d)
        NaN where a site has no estimate.
    refused : mapping of str to str
        Reasons of the sites without estimates, by site: their policy or guard refused, or the fit failed.
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

    def to_frame(self) -> pd.DataFrame:
        """Return a row per site and column: the estimate, its standard error, and the reason of a missing one."""
        import pandas as pd

        index = pd.MultiIndex.from_product([self.sites, self.columns], names=["site", "column"])
        reasons = [self.refused.get(site, "") for site in self.sites for _ in self.columns]
        columns = {
            "estimate": self.estimates.ravel(),
            "standard_error": self.standard_errors.ravel(),
            "reason": reasons,
        }
        return pd.DataFrame(columns, index=index).reset_index()


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


def fit_each_site(model: M) -> Answers[M]:
    """Fit a copy of a fitted model to the patients of each site of its last fit; see `FederatedEstimator`.

    A site is asked through the same steps as in the fit, in a session of its own and without masks.
    """
    if model.aligned_by is not None:
        raise ConfigurationError(
            "a fit of each site must be of a method whose sites hold the same columns; sites of "
            f"{type(model).__name__} hold different views",
            where="by_site",
            hint="Compare the views with the method's own results.",
        )
    consortium = model.session.consortium
    models: dict[str, M] = {}
    refused: dict[str, str] = {}
    for site in model.session.sites:
        alone = replace(consortium.unmasked(), sites=(site,))
        try:
            with warnings.catch_warnings():
                for category in (ConvergenceWarning, SeparationWarning, LeftOutWarning):
                    warnings.simplefilter("ignore", category)
                models[site] = clone(model).fit(alone)
        except MulticentreError as error:
            reasons = getattr(error, "refusals", {})
            refused[site] = reasons.get(site) or error.without(site).placed
    return Answers(models, refused)


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
    fits = fit_each_site(model)
    sites = model.session.sites
    values = np.full((2, len(sites), len(columns)), np.nan)
    for place, site in enumerate(sites):
        if site in fits:
            table = fits[site].to_frame().reindex(list(columns))
            values[:, place] = table[["coefficient", "standard_error"]].to_numpy(np.float64).T
    return SiteEstimates(tuple(columns), tuple(sites), values[0], values[1], fits.refused, scale, label)
