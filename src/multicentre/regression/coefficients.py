"""Coefficients of a fitted linear predictor with their intervals: the table, the sentence and the forest plot."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import Message, array, number
from multicentre.errors import PerfectFitWarning, SeparationWarning
from multicentre.estimator.figures import EffectCurve, Forest
from multicentre.estimator.formula import HasFormulaEffects
from multicentre.estimator.presentation import effect_text, number_or_none
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes, saved_message
from multicentre.estimator.terms import Estimates
from multicentre.regression.linear_model import HasLinearModel, LinearModel
from multicentre.regression.maths import to_units
from multicentre.statistics.chi_square import TestResult

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
INTERCEPT = "(intercept)"
# Largest number of rows in the table and the plot of a report.
MAX_ROWS = 40
# Names of exponentiated coefficients by link; other links have none.
RATIOS: Mapping[str, str] = {"logit": "odds_ratio", "cloglog": "hazard_ratio", "log": "ratio"}


# Share of the variance of the outcomes below which residuals are rounding.
PERFECT = 1e-20
HOW_TO_BOUND = " A penalty (alpha=1.0) keeps coefficients finite."
SAVED_NUMBER = Saved(number_or_none, lambda value: np.nan if value is None else value)
"""Form of a number that may be NaN."""


@dataclass(frozen=True)
class Scales(Message):
    """Scales that the sites shared during a fit."""

    spread: Floats = array("standard deviation of every covariate", ("d",))
    mean: float = number("mean of the outcome")
    scale: float = number("divisor of the outcome during the fit")


class HasCoefficients(HasFormulaEffects, HasLinearModel):
    """Estimator whose result is a linear predictor with standard errors, tests and intervals."""

    saved_attributes: ClassVar[SavedAttributes] = {
        **HasFormulaEffects.saved_attributes,
        "model_": saved_message(LinearModel),
        "scales_": saved_message(Scales),
        **dict.fromkeys(("covariance_", "standard_errors_", "p_values_", "intervals_"), PLAIN),
    }
    model_: LinearModel
    scales_: Scales
    covariance_: Floats
    standard_errors_: Floats
    p_values_: Floats
    intervals_: Floats
    log_likelihood_: float
    aic_: float
    tests_: dict[str, TestResult]
    n_patients_: int
    converged_: bool
    confidence_level: float

    @property
    def intercept_(self) -> float:
        """Intercept."""
        check_is_fitted(self, "model_")
        return self.model_.intercept

    def to_frame(self) -> pd.DataFrame:
        """Return a row for the intercept and each covariate.

        Columns: coefficient, standard error, limits of the interval, exponentiated coefficient with its limits (for
        links logit, log and cloglog), and p-value. Columns of splines and polynomials have no exponentiated
        coefficient, because none of them changes alone; see :meth:`term_tests` and :meth:`plot_effect`.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        values = self.model_.values
        lower, upper = self.intervals_.T
        table = {"coefficient": values, "standard_error": self.standard_errors_, "lower": lower, "upper": upper}
        if ratio := RATIOS.get(self.model_.link):
            with np.errstate(over="ignore"):
                limits = {f"{ratio}_lower": np.exp(lower), f"{ratio}_upper": np.exp(upper)}
                table |= {ratio: np.exp(values), **limits}
        table["p_value"] = self.p_values_
        frame = pd.DataFrame(table, index=[INTERCEPT, *self.feature_names_in_])
        frame.loc[[*self._bases], [name for name in frame if ratio and str(name).startswith(ratio)]] = np.nan
        parsed = self._parsed
        return frame if parsed is None or parsed.intercept else frame.drop(index=INTERCEPT)

    def answer(self) -> str:
        """Return the effect of the exposure (the first covariate by default), with its interval and p-value."""
        frame = self.with_terms(self.to_frame())
        effects = frame.drop(index=INTERCEPT) if len(frame) > 1 else frame
        ratio = RATIOS.get(self.model_.link, "")
        columns = [ratio, f"{ratio}_lower", f"{ratio}_upper"] if ratio else ["coefficient", "lower", "upper"]
        if by_term := self._answer_by_term(list(effects.index)):
            return f"{by_term}; see its curve."
        place = self.first_effect(list(effects.index))
        estimate, lower, upper = effects.iloc[place][columns]
        row = (str(effects.index[place]), float(estimate), float(lower), float(upper))
        p_value = float(effects["p_value"].iloc[place])
        return effect_text(ratio or "coefficient", row, p_value, self.confidence_level, effects.index)

    def main_figure(self) -> Forest | EffectCurve:
        """Return the forest plot, per unit of each covariate; without such covariates the first curve of an effect."""
        check_is_fitted(self, "model_")
        ratio = RATIOS.get(self.model_.link, "")
        bases = self._bases
        places = [place for place, name in enumerate(self.feature_names_in_) if name not in bases][:MAX_ROWS]
        if not places and (curves := self.effect_figures()):
            return curves[0]
        ends = np.column_stack([self.coef_, self.intervals_[1:]])[places]
        if ratio:
            with np.errstate(over="ignore"):
                ends = np.exp(ends)
        estimates, lower, upper = ([number_or_none(value) for value in column] for column in ends.T.tolist())
        label = ratio.replace("_", " ") or "coefficient"
        caption = f"Per unit of each covariate, with {100 * self.confidence_level:g} % intervals."
        caption += f" The effect of {', '.join(dict.fromkeys(bases.values()))} is a curve." if bases else ""
        rows = [self.feature_names_in_[place] for place in places]
        title = f"{label[0].upper()}{label[1:]}s of all sites"
        return Forest(title, caption, "model", label, rows, estimates, lower, upper, 0, 1.0 if ratio else 0.0)

    def _estimates(self) -> Estimates:
        has_errors = bool(np.isfinite(self.standard_errors_).all())
        covariance = self.covariance_ if has_errors else np.full_like(self.covariance_, np.nan)
        return Estimates(["", *self.feature_names_in_], self.model_.values, covariance, self._freedom)

    def _ratio_name(self) -> str:
        return RATIOS.get(self.model_.link, "")

    def _location(self) -> dict[str, tuple[float, float]]:
        pairs = zip(self.model_.centre.tolist(), self.scales_.spread.tolist(), strict=True)
        return dict(zip(self.feature_names_in_, pairs, strict=True))

    @property
    def _freedom(self) -> float | None:
        """Residual degrees of freedom of t distributions; None for normal ones."""
        return None

    def _to_units(self) -> Floats:
        return to_units(self.model_.centre, self.scales_.spread, self.scales_.scale)


def is_perfect(unexplained: float, size: float, rounding: float) -> bool:
    """Return whether what covariates leave of the variance of the outcomes is rounding, and warn if it is.

    Parameters
    ----------
    unexplained : float
        Sum of squared residuals of outcomes with a variance of about 1.
    size : float
        Patients, or the sum of their weights.
    rounding : float
        Largest error of the sum through the rounding of masked sums.
    """
    if unexplained > max(PERFECT * size, 2.0 * rounding):
        return False
    warnings.warn(
        "covariates predict the outcomes exactly, up to rounding. Standard errors would be 0; the fit has none. Check "
        "whether a column is computed from the outcome.",
        PerfectFitWarning,
        stacklevel=5,
    )
    return True


def warn_of_rounds(
    names: Sequence[str], diverging: NDArray[np.bool_], converged: bool, max_iter: int, hint: str = HOW_TO_BOUND
) -> None:
    """Warn of coefficients that grow without bound, or of rounds that ended early; for the estimator's ``_fit``."""
    if diverging.any():
        growing = [names[place] for place in np.flatnonzero(diverging)[:6].tolist()]
        warnings.warn(
            f"{', '.join(growing)}: the likelihood may rise without bound as the coefficient grows, because "
            "covariates separate the outcomes. These coefficients have no standard errors; those of the others are of "
            f"the patients whose outcomes are not separated.{hint}",
            SeparationWarning,
            stacklevel=4,
        )
    elif not converged:
        warnings.warn(
            f"the rounds ended at max_iter={max_iter} before the coefficients converged. The fit has no standard "
            "errors.",
            ConvergenceWarning,
            stacklevel=4,
        )
