"""Average marginal effects of a fitted generalised linear model, from sums over the sites of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError
from multicentre.formula.fitted import requested_effects
from multicentre.regression import messages
from multicentre.regression.maths import p_values, quantile
from multicentre.regression.results import RegressionResults
from multicentre.regression.site import RegressionSite
from multicentre.regression.site_effects import SiteEffects

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class HasMarginalEffects(RegressionResults):
    """Regression with average marginal effects."""

    site_effects: SiteEffects | None

    def marginal_effects(self) -> pd.DataFrame:
        """Request the average marginal effects from the sites of the last fit.

        Without a formula, the effect of a covariate is the mean over patients of the derivative of the predicted mean.
        With a formula, the effects are those of the columns of the data, through all of their terms; the effect of a
        level is the mean difference from the reference. Standard errors follow by the delta method.

        Returns
        -------
        pandas frame
            A row per covariate, or per column and level: effect, standard error, limits of the interval, p-value.

        Raises
        ------
        ConfigurationError
            The fit has a formula and effects of sites.
        QuorumLost
            A site of the fit no longer answers.
        """
        design = self.fitted_design
        if design is None:
            return self._effects_of_covariates()
        if self.site_effects:
            raise ConfigurationError(
                "marginal effects of a formula must be of a fit without effects of sites; got "
                f"site_effects={self.site_effects!r}",
                where="site_effects",
                hint="Fit the formula with site_effects=None, or fit columns without a formula.",
            )
        columns, levels, references = requested_effects(design)
        at = self._at()
        fields = {name: getattr(at, name) for name in messages.At.declarations()}
        request = messages.Effects(**fields, columns=tuple(columns), levels=tuple(levels), references=tuple(references))
        sums = self._sum_of_fit(cast(type[RegressionSite], self.session.part).sum_effects, request)
        scale = self.scales_.scale
        derivatives = np.linalg.solve(self._to_units().T, sums.derivatives.T / sums.weight).T
        jacobian = np.asarray(scale * derivatives, dtype=np.float64)
        errors = np.sqrt(np.einsum("ij,jk,ik->i", jacobian, self.covariance_, jacobian))
        return self._effects_frame(scale * sums.effects / sums.weight, errors, [*columns, *levels])

    def _effects_of_covariates(self) -> pd.DataFrame:
        """Return the average marginal effects without a formula."""
        sums = self._sum_of_fit(RegressionSite.sum_slopes, self._at())
        slope, effects = sums.slope / sums.weight, self.coef_ * (sums.slope / sums.weight)
        curvature = np.linalg.solve(self._to_units().T, sums.curvature / sums.weight)
        jacobian = np.outer(self.coef_, curvature)
        jacobian[:, 1:] += slope * np.eye(len(self.coef_))
        variances = np.einsum("ij,jk,ik->i", jacobian, self.covariance_, jacobian)
        variances = variances + self.dispersion_ * np.square(self.coef_ / sums.weight) * sums.intercepts
        return self._effects_frame(effects, np.sqrt(variances), self.feature_names_in_)

    def _effects_frame(self, effects: Floats, errors: Floats, names: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        half = quantile(self.confidence_level, self._freedom) * errors
        table = {"effect": effects, "standard_error": errors, "lower": effects - half, "upper": effects + half}
        return pd.DataFrame(table, index=list(names)).assign(p_value=p_values(effects / errors, self._freedom))
