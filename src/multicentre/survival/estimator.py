"""Base class of survival estimators: predictions and scores of local patients, without requests to sites."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.data.missing.values import HandlesMissing
from multicentre.data.survival import SurvivalData
from multicentre.data.table import rows_for
from multicentre.data.tabular import add_indicators
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Lines
from multicentre.estimator.model_in_force import Phrases, reference_levels
from multicentre.estimator.parameters import OneOf, check_parameters
from multicentre.estimator.presentation import number_text
from multicentre.estimator.saved import Arrays, SavedAttributes, saved_message
from multicentre.formula.fitted import FittedDesign
from multicentre.survival.agreement.horizon import HasHorizon, horizon_in_force
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.rounds import Agreement, Needs, agree
from multicentre.survival.agreement.site import SurvivalMissing, SurvivalPart
from multicentre.survival.fitted_models import KINDS
from multicentre.survival.fitted_models.base import SurvivalModel, pack, unpack
from multicentre.survival.fitted_models.derived import Designed
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index
from multicentre.survival.times import StepFunction, at_times, cumulative_hazard, time_to_share

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Valid values of `missing` in all survival models.
MISSING = OneOf(*get_args(SurvivalMissing))
# Name of the predictions among the results that a fit lacks.
PREDICTIONS = "predictions"
# Largest number of importances in a summary, so that it fits a screen.
MAX_IMPORTANCES = 5


def cause_in_force(model: Any) -> str:
    """Return the event of interest, unless it is the only one that data without competing events have."""
    return "" if model.cause == 1 else f"events of cause {model.cause}, those of other causes censored"


class SurvivalEstimator(HasHorizon, HandlesMissing, FederatedEstimator):
    """Base of the survival methods.

    A subclass sets `model_` and `agreed_` when it is fitted.

    Attributes
    ----------
    model_ : SurvivalModel
        Fitted model, as arrays.
    agreed_ : Prepared
        Columns, grid and scales that the sites agreed on, and their numbers of patients and events.
    times_ : array of shape (K,)
        The K times of the grid; the last is the horizon.
    n_features_in_ : int
        Number of columns, d.
    feature_names_in_ : tuple of str
        Names of the d columns, in order.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    same_sites: ClassVar[bool] = False
    model_phrases: ClassVar[Phrases] = {"horizon": horizon_in_force, "cause": cause_in_force}
    metrics: ClassVar[Mapping[str, Metric]] = {
        "concordance": Metric("concordance", "higher", "", "share of comparable pairs with risks in the right order"),
        "ibs": Metric("integrated Brier score", "lower", "", "mean squared error of the survival curves over time"),
    }
    saved_attributes: ClassVar[SavedAttributes] = {"agreed_": saved_message(Prepared), **HasHorizon.saved_horizon}
    model_: SurvivalModel
    agreed_: Prepared
    missing: SurvivalMissing
    missing_results_: dict[str, str]

    @property
    def times_(self) -> Floats:
        """Times of the grid, shape (K,)."""
        return self.model_.times

    def _reference_levels(self) -> Mapping[str, str]:
        return reference_levels(self.agreed_.levels, self.feature_names_in_)

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self.agreed_.columns

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.feature_names_in_)

    def predict(self, X: Any) -> Floats:
        """Return each patient's risk: minus the mean time survived up to the horizon. Higher values mean higher risk.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
            The d columns of n patients, as at the sites. Columns of a frame are selected by name, and its categories
            are encoded as in the fit. Missing entries (NaN) are filled with the sites' mean, as in the fit. After a fit
            to complete records (``missing="complete"``) the risk of an incomplete record is NaN.

        Returns
        -------
        array of shape (n,)
        """
        return self._predicted(X, lambda rows: -self.model_.restricted_mean(rows))

    def predict_survival_function(self, X: Any, return_array: bool = False) -> Any:
        """Return each patient's survival curve.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        return_array : bool, default False
            Return the values on the grid, shape (n, K), instead of functions.

        Returns
        -------
        array of StepFunction of shape (n,), or of float of shape (n, K)
        """
        return self._as_asked(self._predicted(X, self.model_.survival), 1.0, return_array)

    def predict_cumulative_hazard_function(self, X: Any, return_array: bool = False) -> Any:
        """Return each patient's cumulative hazard: minus the logarithm of the survival curve.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        return_array : bool, default False
            Return the values on the grid, shape (n, K), instead of functions.
        """
        hazards = self._predicted(X, lambda rows: cumulative_hazard(self.model_.survival(rows)))
        return self._as_asked(hazards, 0.0, return_array)

    def predict_time(self, X: Any, kind: Literal["median", "restricted_mean"] = "median") -> Floats:
        """Return a time for each patient, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        kind : {"median", "restricted_mean"}, default "median"
            Median: the first time of the grid at which survival is at or below 0.5, or the horizon if it stays above.
            Restricted mean: the mean time survived up to the horizon.

        Raises
        ------
        ConfigurationError
            `kind` is not one of these.
        """
        check_parameters({"kind": kind}, {"kind": OneOf("median", "restricted_mean")})
        if kind == "median":
            return self._predicted(X, lambda rows: time_to_share(self.model_.survival(rows), self.times_))
        return self._predicted(X, self.model_.restricted_mean)

    def score(self, data: SurvivalData, y: None = None) -> float:
        """Return the concordance of the risks with the patients' times, from 0 to 1; 0.5 by chance.

        After a fit to complete records, incomplete records are left out, with a warning.
        """
        scored = self.predictable(data)
        return concordance_index(scored.time, self._happened(scored), self.predict(scored))

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return concordance and integrated Brier score of local patients.

        Parameters
        ----------
        data : SurvivalData
            Patients who were not part of the fit.
        labels : None
            Not used, present for API consistency by convention.
        training : SurvivalData, optional
            Patients from whom the censoring distribution is estimated; `data` by default.
        training_labels : None
            Not used, present for API consistency by convention.

        Returns
        -------
        dict
            ``concordance`` and ``ibs``; the latter is omitted if there are too few events.
        """
        censoring_data, data = data if training is None else training, self.predictable(data)
        scores = {"concordance": self.score(data)}
        times = brier_times(data.time, censoring_data.time, self._happened(censoring_data), self.times_[-1])
        if len(times) > 1:
            curves = at_times(self._predicted(data, self.model_.survival), self.times_, times)
            scores["ibs"] = integrated_brier_score(
                curves, times, data.time, self._happened(data), censoring_data.time, self._happened(censoring_data)
            )
        return scores

    def summary(self) -> pd.DataFrame:
        """Return patients, events, rounds and results of the fit as a frame with the column ``value``, one row each.

        The printed frame ends with sentences on missing values and on sites that were left out.
        """
        from multicentre.estimator.results import summarise

        check_is_fitted(self, "model_")
        sizes = {"patients": round(self.agreed_.n_patients), "events": round(self.agreed_.n_events)}
        rounds = {"rounds": self.n_iter_} if self.n_iter_ else {}
        return summarise({**sizes, **rounds, **self._results()}, self._remarks(), model=self.describe_model())

    def answer(self) -> str:
        """Return the size of the fit, and the predicted survival of a patient with mean values at the horizon."""
        check_is_fitted(self, "model_")
        horizon = f"{number_text(float(self.times_[-1]))} {self.agreed_.unit}".strip()
        sizes = f"{self.agreed_.n_patients:,.0f} patients with {self.agreed_.n_events:,.0f} events"
        survival = number_text(float(self._mean_curve()[-1]))
        predicted = f"Predicted survival at {horizon} with the mean of every column: {survival}."
        return self._stating_horizon(f"Fitted to {sizes}. {predicted}")

    def main_figure(self) -> Figure:
        """Return the predicted survival of a patient with the mean of every column."""
        check_is_fitted(self, "model_")
        curve = {"mean of every column": [1.0, *self._mean_curve().tolist()]}
        label = f"time ({self.agreed_.unit})" if self.agreed_.unit else "time"
        caption = "Survival that the model predicts for a patient with the mean of every column."
        return Lines("Predicted survival", caption, "model", label, "survival", [0.0, *self.times_.tolist()], curve, {})

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the predicted survival of a patient with the mean of every column."""
        return [self.main_figure()]

    def _mean_curve(self) -> Floats:
        return np.asarray(self.model_.survival(self.agreed_.centre[None, :])[0], dtype=np.float64)

    def _results(self) -> dict[str, Any]:
        """Return the results of a summary by label; a subclass adds its own."""
        return {}

    def _happened(self, data: SurvivalData) -> NDArray[np.bool_]:
        return np.asarray(data.event == self.agreed_.cause, dtype=np.bool_)

    def _agree(self, session: Session, needs: Needs) -> Prepared:
        """Agree on columns, grid and scales, with missing values handled according to `missing`."""
        part = cast("type[SurvivalPart]", self.site_part)
        return self._take(agree(session, part, needs, self.missing))

    def _take(self, agreement: Agreement) -> Prepared:
        """Store missing values and what lies after the end of follow-up, and return the agreement."""
        self.missing_values_ = agreement.missing
        self._count_after(agreement.after)
        return agreement.agreed

    def predicting_model(self) -> SurvivalModel:
        """Return the fitted model.

        Raises
        ------
        ConfigurationError
            The fit has no model for predictions; the message says why.
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        """
        check_is_fitted(self, "model_")
        reason = vars(self).get("missing_results_", {}).get(PREDICTIONS)
        if reason:
            raise ConfigurationError(
                f"predictions need a baseline hazard; this fit has none ({reason})",
                where="model_",
                hint="Coefficients and tests are not affected. A penalty (alpha=1.0) keeps coefficients finite.",
            )
        return self.model_

    @property
    def fitted_design(self) -> FittedDesign | None:
        """Design of the fit; None without a formula."""
        return None

    @property
    def model_columns(self) -> tuple[str, ...]:
        """Columns of the fitted model."""
        return self.agreed_.columns

    @property
    def _fill(self) -> Floats:
        """Values that replace missing entries of the columns of the fitted model."""
        return self.agreed_.centre

    def evaluated_model(self) -> SurvivalModel:
        """Return the fitted model of the columns of the data; see :meth:`predicting_model`."""
        model, design = self.predicting_model(), self.fitted_design
        return model if design is None else Designed.of_model(model, design, self._fill, self.model_columns)

    def _values(self, X: Any) -> Floats:
        """Return the columns of the fit, shape (n, d); NaN where missing."""
        self.predicting_model()
        missing_values = self.missing_values_
        columns = self.feature_names_in_[: len(self.feature_names_in_) - len(missing_values.indicators)]
        values = rows_for(X, columns, self.agreed_.levels)
        marked = missing_values.incomplete_columns if missing_values.indicators else ()
        return add_indicators(values, columns, self.agreed_.levels, marked)

    def filled(self, X: Any) -> Floats:
        """Return the columns in order, with missing entries filled with the means of the fit."""
        values = self._values(X)
        return np.where(np.isnan(values), self._fill, values)

    def _incomplete(self, X: Any) -> NDArray[np.bool_]:
        """Flag patients with a missing entry that the model cannot handle, shape (n,)."""
        incomplete = np.asarray(np.isnan(self._values(X)).any(axis=1))
        return incomplete if self.missing_values_.missing == "complete" else np.zeros_like(incomplete)

    def _predicted(self, X: Any, predict: Callable[[Floats], Floats]) -> Floats:
        """Return predictions of rows; NaN for patients with a missing entry that the model cannot handle."""
        predictions, incomplete = np.asarray(predict(self.filled(X)), dtype=np.float64), self._incomplete(X)
        if incomplete.any():
            _warn_of(int(incomplete.sum()), len(incomplete), "have missing values and no prediction (NaN)")
            predictions[incomplete] = np.nan
        return predictions

    def predictable(self, data: SurvivalData) -> SurvivalData:
        """Return the patients with a prediction."""
        incomplete = self._incomplete(data)
        if not incomplete.any():
            return data
        _warn_of(int(incomplete.sum()), len(data), "have missing values and are left out of the score")
        return data.take(np.flatnonzero(~incomplete))

    def _as_asked(self, curves: Floats, start: float, as_array: bool) -> Any:
        if as_array:
            return curves
        functions = np.empty(len(curves), dtype=object)
        functions[:] = [StepFunction(self.times_, curve, start) for curve in curves]
        return functions

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        return {**arrays, "model_": np.frombuffer(pack(self.model_), dtype=np.uint8)}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.agreed_.check(len(self.agreed_.columns))
        has_model = PREDICTIONS not in vars(self).get("missing_results_", {})
        self.model_ = unpack(arrays["model_"].tobytes(), KINDS, len(self.model_columns) if has_model else None)


def importance_frame(names: Sequence[str], shares: Floats) -> pd.DataFrame:
    """Return the importances of columns as a frame, largest first."""
    import pandas as pd

    frame = pd.DataFrame({"feature": list(names), "importance": shares})
    return frame.sort_values("importance", ascending=False, kind="stable", ignore_index=True)


def leading_importances(names: Sequence[str], shares: Floats) -> dict[str, float]:
    """Return the largest importances by label, for a summary.

    Examples
    --------
    >>> leading_importances(("age", "dose"), np.array([0.25, 0.75]))
    {'importance of dose': 0.75, 'importance of age': 0.25}
    """
    order = np.argsort(-shares, kind="stable")[:MAX_IMPORTANCES].tolist()
    return {f"importance of {names[place]}": float(shares[place]) for place in order}


def _warn_of(n_incomplete: int, n_patients: int, consequence: str) -> None:
    warnings.warn(
        f"{n_incomplete:,} of {n_patients:,} patients {consequence}: the model was fitted to complete records. "
        'Fit with missing="mean" or missing="indicator" to predict for them too.',
        UserWarning,
        stacklevel=4,
    )
