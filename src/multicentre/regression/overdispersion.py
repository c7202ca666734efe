"""Results of negative binomial regression, and the dispersion of counts."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.utils.validation import check_is_fitted

from multicentre.errors import ConfigurationError, DispersionWarning
from multicentre.regression.count_rounds import CountFits, test_counts
from multicentre.regression.maths import Family
from multicentre.regression.results import RegressionResults
from multicentre.regression.rounds import Fit, Prepared

# Pearson dispersion from which Poisson errors are called too short: they are then by more than a tenth.
LARGE_DISPERSION = 1.25


class HasOverdispersion(RegressionResults):
    """Regression of counts with a variance above the mean.

    Attributes
    ----------
    overdispersion_ : float
        Maximum likelihood estimate of alpha in the variance ``mean + alpha * mean**2`` of negative binomial counts; 0
        where there is no overdispersion, and for other families.
    overdispersion_error_ : float
        Its standard error from the observed information; NaN at 0.
    theta_ : float
        1 / alpha; infinite where there is no overdispersion.
    pearson_dispersion_ : float
        Pearson statistic divided by the residual degrees of freedom; NaN for two classes. Far above 1 for Poisson
        counts, their standard errors are too short.
    """

    overdispersion_: float
    overdispersion_error_: float
    pearson_dispersion_: float

    @property
    def theta_(self) -> float:
        """1 / alpha of negative binomial counts; infinite where there is no overdispersion."""
        check_is_fitted(self, "model_")
        return 1.0 / self.overdispersion_ if self.overdispersion_ > 0 else np.inf

    def _check_counts(self, *, site_effects: object, l1_ratio: float) -> None:
        if self._family == "negative_binomial" and (site_effects or l1_ratio):
            raise ConfigurationError(
                "family negative_binomial must be without site_effects and l1_ratio; got one of them",
                where="family",
                hint='Use family="poisson" with errors="HC1", or a column for the site.',
            )

    def _set_overdispersion(self, agreed: Prepared, fit: Fit, counts: CountFits | None) -> None:
        self.overdispersion_, self.overdispersion_error_ = 0.0, np.nan
        family: Family = self._family
        pearson = max(fit.pearson, 0.0) * agreed.scale**2
        self.pearson_dispersion_ = np.nan if family == "binomial" else float(pearson / self.residual_freedom_)
        if counts is None:
            return
        self.overdispersion_, self.overdispersion_error_ = counts.full.overdispersion, counts.full.error
        if self._has_likelihood:
            n_parameters = len(fit.coefficients) + int(agreed.has_intercept)  # the overdispersion is one, too
            self.log_likelihood_ = counts.full.log_likelihood
            self.aic_ = 2.0 * n_parameters - 2.0 * self.log_likelihood_
            self.bic_ = float(np.log(agreed.totals.weight)) * n_parameters - 2.0 * self.log_likelihood_
        if fit.converged and not self.overdispersion_:
            warnings.warn(
                "counts vary no more than under the Poisson law: the overdispersion is 0 (theta is infinite), and the "
                'fit is that of family="poisson".',
                DispersionWarning,
                stacklevel=5,
            )

    def _add_count_tests(self, agreed: Prepared, counts: CountFits | None) -> None:
        if counts is not None and self.tests_ and self.errors == "model":
            d = len(self.coef_)
            self.tests_ |= test_counts(counts.full, counts.null, d, has_intercept=agreed.has_intercept)

    def _remarks(self) -> str:
        remarks = super()._remarks()
        if self._family == "negative_binomial":
            theta = (
                f"theta {self.theta_:.4g}" if self.overdispersion_ else "no overdispersion, as under the Poisson law"
            )
            return f"Overdispersion {self.overdispersion_:.4g} ({theta}). {remarks}"
        if self._family != "poisson":
            return remarks
        advice = ""
        if self.pearson_dispersion_ > LARGE_DISPERSION and self.errors == "model":
            advice = (
                ": the counts vary more than under the Poisson law, and standard errors are too short. Use "
                'family="negative_binomial" or errors="HC1"'
            )
        return f"Pearson dispersion {self.pearson_dispersion_:.3g}{advice}. {remarks}"
