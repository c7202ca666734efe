"""Coordinator's part of intercepts of sites as fixed effects.

Sites maximise over their intercept in every round (:mod:`multicentre.regression.site_intercepts`), so that the rounds
need no intercept from them. At the end the sum over sites of the intercepts, weighted by patients, gives their mean.
The intercept of a single site leaves only on request of :meth:`HasSiteIntercepts.site_intercepts`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError, SeparationWarning
from multicentre.regression import messages
from multicentre.regression.maths import quantile
from multicentre.regression.results import RegressionResults
from multicentre.regression.rounds import Fit, Prepared
from multicentre.regression.site import RegressionSite

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
SiteEffects = Literal["fixed"]


def sum_intercepts(session: Session, agreed: Prepared, fit: Fit) -> messages.Intercepts:
    """Return the sums of the sites' intercepts.

    Raises
    ------
    DataError
        No site has a finite intercept.
    """
    sums = session.once(
        "intercepts",
        messages.Intercepts,
        lambda: session.sum(RegressionSite.sum_intercepts, agreed.at(fit.coefficients)),
    )
    if sums.n_finite < 0.5:
        raise DataError(
            "at least one site must have different outcomes; each has patients of one class, or only outcomes of 0",
            where="y",
            hint="Fit without site_effects.",
        )
    n_sites = round(sums.n_sites)
    if one_sided := round(n_sites - sums.n_finite):
        warnings.warn(
            f"{one_sided} of {n_sites} sites have outcomes of one class only, or counts of 0 only. They "
            "have no finite intercept, and their patients do not influence the coefficients.",
            SeparationWarning,
            stacklevel=5,
        )
    return sums


def deviance_without_covariates(session: Session, agreed: Prepared) -> float:
    """Return the deviance of a model with intercepts of sites only, on the scale of the rounds."""
    at, part = agreed.at(np.zeros(len(agreed.covariates) + 1)), cast(type[RegressionSite], session.part)
    return session.once("null", messages.Sums, lambda: session.sum(part.sum_derivatives, at)).deviance


def add_mean_intercept(covariance: Floats, sums: messages.Intercepts, dispersion: float) -> Floats:
    """Return the covariance of the mean intercept and the coefficients, shape (p, p).

    Parameters
    ----------
    covariance : array of shape (p, p)
        Model-based covariance of the coefficients; 0 for the intercept.
    sums : Intercepts
    dispersion : float
        Dispersion on the scale of the rounds.

    Notes
    -----
    The intercept of a site given the coefficients b is independent of b, and moves by minus the mean of the covariates
    times the change of b.

    Examples
    --------
    >>> sums = messages.Intercepts(1.0, 1.0, 10.0, 0.0, 20.0, np.array([10.0, 5.0]))
    >>> add_mean_intercept(np.diag([0.0, 4.0]), sums, 1.0).tolist()
    [[1.2, -2.0], [-2.0, 4.0]]
    """
    shares = sums.covariates / sums.weight
    result, moved = covariance.copy(), covariance @ shares
    result[0] = result[:, 0] = -moved
    result[0, 0] = dispersion * sums.variance / sums.weight**2 + float(shares @ moved)
    return result


class HasSiteIntercepts(RegressionResults):
    """Regression that can have an intercept per site."""

    site_effects: SiteEffects | None

    def site_intercepts(self) -> pd.DataFrame:
        """Request the intercept of each site, of a fit with ``site_effects="fixed"``.

        Each answer describes a single site: it leaves unmasked, the guard checks it and the ledger records it.

        Returns
        -------
        pandas frame
            A row per site: intercept at covariates of 0, standard error and limits of the interval. NaN where the site
            refuses (its reason is in ``attrs["refused"]``) or where no finite intercept exists.

        Raises
        ------
        ConfigurationError
            The fit has no intercepts of sites.
        DataError
            The fit has no model-based standard errors.
        """
        import pandas as pd

        if self.site_effects is None:
            raise ConfigurationError(
                'site_effects must be "fixed" for intercepts of sites; got None',
                where="site_effects",
                hint='Fit with site_effects="fixed".',
            )
        answers = self.session.ask(RegressionSite.tell_intercept, self._uncertainty(), skip_refusals=True)
        scale, none = self.scales_.scale, messages.OwnIntercept(np.nan, np.nan, patients=0)
        intercepts = [answers.get(site, none) for site in self.session.sites]
        rows = [
            (scale * answer.intercept, scale * answer.error) if answer.error else (np.nan, np.nan)
            for answer in intercepts
        ]
        frame = pd.DataFrame(rows, index=list(self.session.sites), columns=["intercept", "standard_error"])
        half = quantile(self.confidence_level, self._freedom) * frame["standard_error"]
        frame = frame.assign(lower=frame["intercept"] - half, upper=frame["intercept"] + half)
        frame.attrs["refused"] = answers.refused
        return frame

    def _uncertainty(self) -> messages.Uncertainty:
        covariance = self.covariance_[1:, 1:]
        if self.errors != "model" or np.isnan(covariance).any():
            raise DataError(
                "the fit must have model-based standard errors; it has none",
                where="errors",
                hint='Fit with errors="model" and alpha=0, and see the warnings of the fit.',
            )
        at, spread = self._at(), self.scales_.spread
        scaled = np.zeros((len(spread) + 1,) * 2)
        scaled[1:, 1:] = covariance * np.outer(spread, spread) / self.scales_.scale**2
        fields = {name: getattr(at, name) for name in messages.At.declarations()}
        return messages.Uncertainty(**fields, covariance=scaled, dispersion=self.dispersion_ / self.scales_.scale**2)
