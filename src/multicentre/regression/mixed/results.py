"""Results of a fitted mixed model: coefficients, variances between sites, tests and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Answers
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Table
from multicentre.estimator.presentation import frame_of_tests, number_or_none
from multicentre.estimator.results import with_note
from multicentre.estimator.saved import PLAIN, SAVED_TESTS, Arrays, SavedAttributes
from multicentre.likelihood.newton import Maximum
from multicentre.regression.coefficients import (
    INTERCEPT,
    MAX_ROWS,
    SAVED_NUMBER,
    HasCoefficients,
    Scales,
)
from multicentre.regression.linear_model import LinearModel
from multicentre.regression.maths import Family, p_values, quantile, to_units, unit_deviances
from multicentre.regression.mixed.maths import variance_test
from multicentre.regression.mixed.messages import OwnEffects
from multicentre.regression.rounds import Prepared
from multicentre.statistics.chi_square import chi_square_test

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Smallest variance of a combination of effects, relative to that of its estimate at a site of mean size, that is not
# rounding. lme4 compares the square root with 1e-4.
SINGULAR = 1e-8


class MixedResults(HasCoefficients, FederatedEstimator):
    """Fitted mixed model.

    Attributes
    ----------
    model_ : LinearModel
        Columns and coefficients, from which predictions follow.
    scales_ : Scales
        Scales that the sites shared during the fit.
    coef_ : array of shape (d,)
        Coefficients per unit of each of the d covariates.
    intercept_ : float
        Intercept of a site with effects of 0.
    covariance_ : array of shape (d + 1, d + 1)
        Covariance of intercept and coefficients.
    standard_errors_ : array of shape (d + 1,)
        Standard errors of intercept and coefficients; NaN after rounds that did not converge.
    p_values_ : array of shape (d + 1,)
        Two-sided Wald tests by the normal distribution.
    intervals_ : array of shape (d + 1, 2)
        Lower and upper end of the intervals at `confidence_level`.
    random_covariance_ : array of shape (q, q)
        Covariance between sites of the intercept and the slopes, per unit of their covariates.
    icc_ : float
        Intraclass correlation: share of the variance between sites, for patients with mean values of `slopes`. For
        classes it is on the scale of the logit, and NaN for counts.
    singular_ : bool
        True if the estimated covariance between sites has no inverse: a variance is 0, or two effects are collinear.
    log_likelihood_ : float
        Log-likelihood; restricted for a linear model with ``reml=True``.
    aic_ : float
        Akaike's criterion.
    tests_ : dict of str to TestResult
        "wald": all coefficients except the intercept are 0. "random_effects", of a linear model: sites do not differ.
    n_patients_, n_sites_ : int
        Patients and sites of the fit.
    converged_ : bool
        True if the rounds ended at the maximum of the likelihood.
    effect_names_ : tuple of str
        Names of the effects that differ between sites: the intercept, then `slopes`.
    feature_names_in_ : tuple of str
        Names of the covariates.
    n_features_in_ : int
        Number of covariates, d.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "mean_deviance": Metric("mean deviance", "lower", "", "deviance per patient of a site with effects of 0")
    }
    lacks: ClassVar[Mapping[str, str]] = {
        "weights": "Weights of patients have no agreed meaning next to random effects",
        "robust errors": "Robust errors over sites need many more sites than random effects",
        "clusters": "The sites are the clusters",
        **dict.fromkeys(
            ("ridge penalty", "elastic net", "penalty by cross-validation"),
            "A penalty on slopes would bias the variances between sites",
        ),
        "estimates by site": "A site alone has no variance between sites",
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"covariance_", "standard_errors_", "p_values_", "intervals_"})
    saved_attributes: ClassVar[SavedAttributes] = {
        **HasCoefficients.saved_attributes,
        **dict.fromkeys(
            (
                "random_covariance_",
                "singular_",
                "log_likelihood_",
                "aic_",
                "n_patients_",
                "n_sites_",
                "converged_",
            ),
            PLAIN,
        ),
        "icc_": SAVED_NUMBER,
        "tests_": SAVED_TESTS,
    }
    random_covariance_: Floats
    icc_: float
    singular_: bool
    n_sites_: int
    slopes: Sequence[str]

    @property
    def effect_names_(self) -> tuple[str, ...]:
        """Names of the effects that differ between sites."""
        return (INTERCEPT, *self.slopes)

    @property
    def models_sites(self) -> bool:
        """True: sites have random effects."""
        return True

    def variances(self) -> pd.DataFrame:
        """Return a row per effect that differs between sites: variance, standard deviation and correlations."""
        import pandas as pd

        check_is_fitted(self, "model_")
        variances = np.diagonal(self.random_covariance_)
        deviations = np.sqrt(variances)
        with np.errstate(divide="ignore", invalid="ignore"):  # effects without variance have no correlation
            correlations = self.random_covariance_ / np.outer(deviations, deviations)
        table = {"variance": variances, "standard_deviation": deviations}
        for place, name in enumerate(self.effect_names_[:-1]):
            below = np.arange(len(variances)) > place
            table[f"correlation with {name}"] = np.where(below, correlations[:, place], np.nan)
        return pd.DataFrame(table, index=list(self.effect_names_))

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the variance between sites."""
        table = self.with_terms(self.to_frame())
        spread = ", ".join(f"{name} {value:.4g}" for name, value in self.variances()["standard_deviation"].items())
        icc = f"; intraclass correlation {self.icc_:.3g}" if np.isfinite(self.icc_) else ""
        remark = (
            f"{self._kind}; {self.n_patients_:,} patients of {self.n_sites_} sites; standard deviation between sites: "
            f"{spread}{icc}; log-likelihood {self.log_likelihood_:.6g}, AIC {self.aic_:.6g}."
        )
        remark = f"{remark} {self.joint_tests_text()}".rstrip()
        singular = " Singular fit: a variance between sites is 0, or effects are collinear." if self.singular_ else ""
        return with_note(table, self._remarks(), model=self.describe_model(), remark=remark + singular)

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the coefficients, the variances between sites, and the tests."""
        tables = {"coefficients": self.to_frame(), "variances": self.variances()}
        return {**tables, **({"tests": frame_of_tests(self.tests_)} if self.tests_ else {}), "terms": self.term_tests()}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the tables of coefficients and of variances between sites, and a forest plot."""
        coefficients = self.with_terms(self.to_frame()).iloc[:MAX_ROWS]
        tables = {"Coefficients": coefficients, "Variances between sites": self.variances()}
        caption = f"{self.n_patients_:,} patients of {self.n_sites_} sites."
        figures: list[Figure] = []
        for title, frame in tables.items():
            rows = [[name, *map(number_or_none, row)] for name, *row in frame.itertuples()]
            names = ["term", *(str(name).replace("_", " ") for name in frame.columns)]
            figures.append(Table(title, caption, "model", names, rows))
        main = self.main_figure()
        curves = [curve for curve in self.effect_figures() if curve.title != main.title]
        return [*figures, main, *self.terms_table(), *curves]

    def site_effects(self) -> pd.DataFrame:
        """Request the predicted effects of each site (best linear unbiased predictions, or modes).

        Each answer describes a single site: it leaves unmasked, the guard checks it and the ledger records it.

        Returns
        -------
        pandas frame
            A row per site and effect: predicted difference from the mean over sites, its standard error given the
            estimated parameters, and limits of its interval. NaN for a site that refuses; its reason is in
            ``attrs["refused"]``.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        answers = self._ask_effects()
        size, units = len(self.effect_names_), self._effect_units()
        none = OwnEffects(np.full(size, np.nan), np.full((size, size), np.nan), patients=0)
        rows = []
        for site in self.session.sites:
            answer = answers.get(site, none)
            errors = np.sqrt(np.diagonal(units @ answer.covariance @ units.T))
            rows += [(site, *row) for row in zip(self.effect_names_, units @ answer.effects, errors, strict=True)]
        frame = pd.DataFrame(rows, columns=["site", "effect", "value", "standard_error"])
        half = quantile(self.confidence_level, None) * frame["standard_error"]
        frame = frame.assign(lower=frame["value"] - half, upper=frame["value"] + half)
        frame.attrs["refused"] = answers.refused
        return frame

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_formula()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted mean of each patient at a site with effects of 0.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites.

        Returns
        -------
        array of shape (n,)
            Numbers; of two classes, the probability of the second.
        """
        return self._means(X)

    def _means(self, X: Any) -> Floats:
        return self.model_.mean(self._columns_of(X))

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the mean deviance of local patients, as those of a site with effects of 0.

        Parameters
        ----------
        data : TableData
            Patients who were not part of the fit.
        labels, training, training_labels : None
            Not used, present for API consistency by convention.
        """
        scored: TableData = self.leave_out_incomplete(data)
        family, link = self.model_.kind
        predictor = self.model_.linear(self._columns_of(scored))
        return {"mean_deviance": float(unit_deviances(family, link, self._outcomes(scored), predictor).mean())}

    @property
    def predicts(self) -> Literal["classifier", "regressor"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "classifier" if getattr(self, "family", "gaussian") == "binomial" else "regressor"

    @property
    def _kind(self) -> str:
        raise NotImplementedError

    def _ask_effects(self) -> Answers[OwnEffects]:
        raise NotImplementedError

    def _effect_units(self) -> Floats:
        """Return the matrix from effects of standardised covariates to effects per unit, shape (q, q)."""
        places = [self.model_.covariates.index(name) for name in self.slopes]
        return to_units(self.model_.centre[places], self.scales_.spread[places], self.scales_.scale)

    def _check_slopes(self, agreed: Prepared) -> tuple[str, ...]:
        """Return `slopes` if they are covariates of the fit."""
        if absent := sorted(set(self.slopes) - set(agreed.covariates)):
            raise ConfigurationError(
                f"slopes must be covariates; got {', '.join(absent)}",
                where="slopes",
                hint=f"The covariates are {', '.join(agreed.covariates[:10])}.",
            )
        return tuple(self.slopes)

    def _set_model(self, agreed: Prepared, coefficients: Floats, kind: tuple[Family, str], offset: str) -> None:
        centre = agreed.centre
        self.scales_ = Scales(agreed.spread, centre.mean, agreed.scale)
        values = to_units(centre.centre, agreed.spread, agreed.scale) @ coefficients
        self.model_ = LinearModel(
            *kind,
            agreed.unmarked,
            agreed.marked,
            agreed.covariates,
            agreed.classes if kind[0] == "binomial" else (),
            agreed.levels,
            offset,
            float(values[0]),
            values[1:],
            centre.centre,
            complete=agreed.complete,
        )

    def _infer(self, covariance: Floats, maximum: Maximum) -> None:
        """Set covariance, intervals and tests for the covariance of the coefficients."""
        self.converged_, self.history_ = maximum.converged, maximum.history
        self.covariance_ = covariance if maximum.settled else np.full_like(covariance, np.nan)
        self.standard_errors_ = np.sqrt(np.diagonal(self.covariance_))
        values = self.model_.values
        self.p_values_ = p_values(values / self.standard_errors_, None)
        half = quantile(self.confidence_level, None) * self.standard_errors_
        self.intervals_ = np.column_stack([values - half, values + half])
        self.tests_ = {}
        if np.isfinite(self.covariance_).all() and len(self.coef_):
            statistic = float(self.coef_ @ np.linalg.solve(self.covariance_[1:, 1:], self.coef_))
            self.tests_["wald"] = chi_square_test(statistic, len(self.coef_))

    def _set_variances(self, scaled: Floats, precision: float) -> None:
        """Set the covariance between sites, for that on the scale of the rounds.

        Parameters
        ----------
        scaled : array of shape (q, q)
        precision : float
            Variance of the estimate of an effect at a site of mean size.
        """
        values = np.linalg.eigvalsh(scaled)
        self.singular_ = bool(values[0] < SINGULAR * precision)
        # A variance that is only rounding is 0.
        exact = np.where(np.abs(scaled) < SINGULAR * precision, 0.0, scaled) if self.singular_ else scaled
        units = self._effect_units()
        self.random_covariance_ = units @ exact @ units.T

    def _test_variances(self, statistic: float) -> None:
        self.tests_["random_effects"] = variance_test(statistic, len(self.effect_names_))

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._check_saved()
