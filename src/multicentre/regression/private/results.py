"""Results of a differentially private regression."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Plan
from multicentre.core.session import Session
from multicentre.data.missing.values import MissingValues
from multicentre.data.schema import agree_tables
from multicentre.errors import ConfigurationError, NoiseWarning
from multicentre.estimator.parameters import Where
from multicentre.regression.coefficients import Scales
from multicentre.regression.linear_model import LinearModel
from multicentre.regression.maths import p_values, quantile, to_units
from multicentre.regression.messages import Described
from multicentre.regression.private import messages
from multicentre.regression.private.maths import PrivateFit
from multicentre.regression.private.rounds import N_ROUNDS, fit_private, plan_noise
from multicentre.regression.results import RegressionResults
from multicentre.regression.site import RegressionSite
from multicentre.statistics.chi_square import chi_square_test

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
# Steps that a private fit may request; only the names of columns leave without noise.
PRIVATE_STEPS = frozenset({"describe", "sum_private_moments", "sum_private_derivatives"})
# Share of patients beyond a bound from which a warning says that coefficients describe cut values.
MANY_CUT = 0.01
# Parameters that a private fit does not support, with the value that they must have.
NEEDED: Mapping[str, object] = {
    "formula": None,
    "offset": None,
    "weights": None,
    "site_effects": None,
    "alpha": 0.0,
    "errors": "model",
    "missing": "complete",
}


def _is_bounds(value: object) -> bool:
    try:
        low, high = map(float, value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite(high - low) and low < high)


BOUNDS = Where("two finite numbers, the lower first", _is_bounds)
BOUNDS_BY_COLUMN = Where(
    "a mapping from columns to two finite numbers, the lower first",
    lambda value: isinstance(value, Mapping) and all(map(_is_bounds, value.values())),
)


class HasPrivacy(RegressionResults):
    """Regression that can be differentially private.

    Attributes
    ----------
    cut_share_ : float
        Noised share of patients with a value beyond a bound; NaN without `epsilon`.
    noise_errors_ : array of shape (d + 1,)
        Part of the standard errors that is due to the noise of privacy; 0 without `epsilon`.
    """

    cut_share_: float
    noise_errors_: Floats
    epsilon: float | None
    delta: float
    bounds: Mapping[str, Bounds] | None
    outcome_bounds: Bounds | None

    def privacy_plan(self) -> Plan | None:
        """Return the noise of every release of a fit with `epsilon`; None without it."""
        if self.epsilon is None:
            return None
        self._check_parameters()
        return plan_noise(self._family, float(self.epsilon), float(self.delta))

    def _check_private(self) -> None:
        if self.epsilon is None:
            return
        if (self._family, self._link) not in (("gaussian", "identity"), ("binomial", "logit")):
            raise ConfigurationError(
                "epsilon must be of gaussian outcomes with the identity link, or of binomial ones with logit; got "
                f"{self._family} with {self._link}",
                where="epsilon",
                hint="Leave epsilon out, or choose another family.",
            )
        wrong = [name for name, value in NEEDED.items() if getattr(self, name) != value]
        if wrong:
            raise ConfigurationError(
                f"{wrong[0]} must be {NEEDED[wrong[0]]!r} with epsilon; got {getattr(self, wrong[0])!r}",
                where=wrong[0],
                hint="Leave it out.",
            )
        if self.bounds is None or (self.outcome_bounds is None) != (self._family == "binomial"):
            raise ConfigurationError(
                "a private fit must have bounds of all covariates, and outcome_bounds for a gaussian outcome only; "
                "got others",
                where="bounds",
                hint="Set them from the meaning of the columns, such as reference ranges; they must not be computed "
                "from these patients.",
            )

    def _fit_private(self, session: Session) -> None:
        described = session.once(
            "described", Described, lambda: agree_tables(session.ask(RegressionSite.describe, Nothing()))
        )
        bounds, columns = self.bounds or {}, described.columns
        if set(bounds) != set(columns):
            differing = sorted(set(bounds) ^ set(columns))[:5]
            raise ConfigurationError(
                f"bounds must name the columns of the sites; these differ: {', '.join(differing)}",
                where="bounds",
                hint="Set two bounds for each column, 0 and 1 for one of zeros and ones.",
            )
        ends = np.array([bounds[name] for name in columns], dtype=np.float64).reshape(-1, 2)
        low, high = map(float, self.outcome_bounds or (0.0, 1.0))
        box = messages.Box(self._family, ends[:, 0].copy(), ends[:, 1].copy(), low, high)
        fit, self.cut_share_ = fit_private(session, box)
        self.missing_values_ = MissingValues("complete", columns, (0,) * len(columns), 0, 0)
        n_rounds = N_ROUNDS if self._family == "binomial" else 0
        self.history_ = [{"round": float(number)} for number in range(1, n_rounds + 1)]
        self._set_private(fit, box, described)
        self._infer_privately()
        self._warn_of_noise(fit, session)

    def _set_private(self, fit: PrivateFit, box: messages.Box, described: Described) -> None:
        centre, spread = 0.5 * (box.lower + box.upper), 0.5 * (box.upper - box.lower)
        gaussian = self._family == "gaussian"
        scale = 0.5 * (box.outcome_upper - box.outcome_lower) if gaussian else 1.0
        middle = 0.5 * (box.outcome_upper + box.outcome_lower) if gaussian else 0.0
        matrix = to_units(centre, spread, scale)
        values = matrix @ fit.coefficients
        values[0] += middle
        self.scales_ = Scales(spread, middle, scale)
        self.model_ = LinearModel(
            self._family,
            self._link,
            described.columns,
            (),
            described.columns,
            () if gaussian else described.classes,
            described.levels,
            "",
            float(values[0]),
            values[1:],
            centre,
            complete=described.columns,
        )
        hidden = np.full_like(fit.noise, np.nan)
        sampling, noise = (fit.sampling, fit.noise) if fit.is_usable else (hidden, hidden)
        self.covariance_ = matrix @ (sampling + noise) @ matrix.T
        self.noise_errors_ = np.sqrt(np.diagonal(matrix @ noise @ matrix.T))
        self.n_patients_ = max(round(fit.n_patients), 0)
        self.residual_freedom_ = max(fit.n_patients - len(values), 1.0)
        self.dispersion_ = max(fit.dispersion, 0.0) * scale**2
        self.converged_ = fit.is_usable
        self.deviance_ = self.null_deviance_ = self.log_likelihood_ = self.aic_ = self.bic_ = np.nan
        self.overdispersion_, self.overdispersion_error_, self.pearson_dispersion_ = 0.0, np.nan, np.nan

    def _infer_privately(self) -> None:
        values = self.model_.values
        self.standard_errors_ = np.sqrt(np.diagonal(self.covariance_))
        self.p_values_ = p_values(values / self.standard_errors_, self._freedom)
        half = quantile(self.confidence_level, self._freedom) * self.standard_errors_
        self.intervals_ = np.column_stack([values - half, values + half])
        self.tests_, d = {}, len(values) - 1
        if d and self.converged_:
            block = self.covariance_[1:, 1:]
            self.tests_ = {"wald": chi_square_test(float(values[1:] @ np.linalg.solve(block, values[1:])), d)}

    def _warn_of_noise(self, fit: PrivateFit, session: Session) -> None:
        if not fit.is_usable:
            masks = suggest_masks(protection=session.protection, n_sites=len(session.sites))
            warnings.warn(
                "the noise of differential privacy hides a direction of the covariates: coefficients mean nothing, and "
                "there are no standard errors. Use more patients, fewer covariates, narrower bounds "
                f"or a larger epsilon. {masks}".strip(),
                NoiseWarning,
                stacklevel=5,
            )
        if self.cut_share_ > MANY_CUT:
            warnings.warn(
                f"about {100 * self.cut_share_:.0f} % of patients have a value beyond a bound, which was cut to it; "
                "coefficients describe the cut values. Set wider bounds.",
                NoiseWarning,
                stacklevel=5,
            )

    @property
    def missing_line_(self) -> str:
        """Handling of incomplete records, in one sentence."""
        if self.epsilon is None:
            return super().missing_line_
        return "Incomplete records were left out; their number is not released."

    def answer(self) -> str:
        """Return the effect of the first covariate, with its interval and p-value, and the noise in it."""
        answer = super().answer()
        return answer if self.epsilon is None else f"{answer[:-1]}; noisy, for epsilon {self.epsilon:g}."

    def _remarks(self) -> str:
        remarks = super()._remarks()
        if self.epsilon is None:
            return remarks
        part = "there are no standard errors, because the noise hides the result"
        if self.converged_:
            shares = 100.0 * np.square(self.noise_errors_ / self.standard_errors_)
            part = f"standard errors include the noise, {shares.min():.0f} to {shares.max():.0f} % of their square"
        cut = f"About {100 * self.cut_share_:.1f} % of patients were cut to a bound."
        return (
            f"Differentially private (epsilon {self.epsilon:g}, delta {self.delta:g}): coefficients and the number of "
            f"patients are noisy; {part}. {cut} {remarks}"
        )
