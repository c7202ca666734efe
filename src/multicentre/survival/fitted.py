"""What every fitted survival method can do with patients that its holder has; nothing here speaks to a site."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.missing.values import HandlesMissing, Missing
from multicentre.data.survival import SurvivalData
from multicentre.data.table import rows_for
from multicentre.data.tabular import add_indicators
from multicentre.estimator.base import Arrays, FederatedEstimator, Metric
from multicentre.federation.session import Session
from multicentre.federation.wire import decode, encode
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.models import KINDS
from multicentre.survival.models.base import SurvivalModel, pack, unpack
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index
from multicentre.survival.times import StepFunction, at_times, cumulative_hazard, time_to_share

Floats = NDArray[np.float64]


class SurvivalEstimator(HandlesMissing, FederatedEstimator):
    """Base of the survival methods.

    A subclass sets `model_` and `agreed_` when it is fitted.

    Attributes
    ----------
    model_ : SurvivalModel
        The model, as arrays.
    agreed_ : Agreed
        Columns, grid and scales that the sites agreed on.
    times_ : array of shape (K,)
        The grid; its last time is the horizon.
    columns_ : tuple of str
        Names of the columns, in order.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "concordance": Metric("concordance", "higher", "", "share of comparable pairs that the risks put in order"),
        "ibs": Metric("integrated Brier score", "lower", "", "mean squared error of the survival curves over time"),
    }
    model_: SurvivalModel
    agreed_: Agreed
    missing: Missing

    @property
    def times_(self) -> Floats:
        """The grid, shape (K,)."""
        return self.model_.times

    @property
    def columns_(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self.agreed_.columns

    def predict(self, X: Any) -> Floats:
        """Return each patient's risk: minus the mean time survived up to the horizon; higher is riskier.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
            Columns as at the sites. A frame's are found by name, and its categories are encoded as at the fit.
            Missing entries (NaN) are filled with the sites' mean, as in the fit; after a fit to complete records
            (``missing="complete"``) an incomplete one gets NaN.

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
            Return the values on the grid, shape (n, K), in place of functions.

        Returns
        -------
        array of StepFunction of shape (n,), or of float of shape (n, K)
        """
        return self._as_asked(self._predicted(X, self.model_.survival), 1.0, return_array)

    def predict_cumulative_hazard_function(self, X: Any, return_array: bool = False) -> Any:
        """Return each patient's cumulative hazard, minus the logarithm of the survival curve; arguments likewise."""
        hazards = self._predicted(X, lambda rows: cumulative_hazard(self.model_.survival(rows)))
        return self._as_asked(hazards, 0.0, return_array)

    def predict_time(self, X: Any, kind: Literal["median", "restricted_mean"] = "median") -> Floats:
        """Return a time for each patient, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        kind : {"median", "restricted_mean"}, default "median"
            The first time of the grid at which survival is at or below a half (the horizon where it never is), or the
            mean time survived up to the horizon.
        """
        if kind == "median":
            return self._predicted(X, lambda rows: time_to_share(self.model_.survival(rows), self.times_))
        return self._predicted(X, self.model_.restricted_mean)

    def score(self, data: SurvivalData, y: None = None) -> float:
        """Return the concordance of the risks with the patients' times, from 0 to 1; 0.5 by chance.

        After a fit to complete records, incomplete ones are left out, with a warning.
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
        """Return concordance and integrated Brier score on patients that the caller holds.

        Parameters
        ----------
        data : SurvivalData
            Patients that the fit did not see.
        labels : None
            Unused.
        training : SurvivalData, optional
            Patients from whom the censoring is estimated; `data` itself otherwise.
        training_labels : None
            Unused.

        Returns
        -------
        dict
            ``concordance`` and ``ibs``; the latter is left out where there are too few events for it.
        """
        known, data = data if training is None else training, self.predictable(data)
        found = {"concordance": self.score(data)}
        times = brier_times(data.time, known.time, self._happened(known), self.times_[-1])
        if len(times) > 1:
            curves = at_times(self._predicted(data, self.model_.survival), self.times_, times)
            found["ibs"] = integrated_brier_score(
                curves, times, data.time, self._happened(data), known.time, self._happened(known)
            )
        return found

    def _happened(self, data: SurvivalData) -> NDArray[np.bool_]:
        return np.asarray(data.event == self.agreed_.cause, dtype=np.bool_)

    def _agree(self, session: Session, needs: Needs) -> Agreed:
        """Agree on columns, grid and scales, with missing values handled as `missing` says."""
        part = cast("type[SurvivalPart]", self.site_part)
        agreed, self.missing_values_ = agree(session, part, needs, self.missing)
        return agreed

    def _values(self, X: Any) -> Floats:
        """Return the columns of the fit, shape (n, d); NaN where missing."""
        check_is_fitted(self, "model_")
        found = self.missing_values_
        own = self.columns_[: len(self.columns_) - len(found.indicators)]
        values = rows_for(X, own, self.agreed_.levels)
        marked = found.incomplete_columns if found.indicators else ()
        return add_indicators(values, own, self.agreed_.levels, marked)

    def filled(self, X: Any) -> Floats:
        """Return columns in order, missing entries filled with the means of the fit."""
        values = self._values(X)
        return np.where(np.isnan(values), self.agreed_.centre, values)

    def _incomplete(self, X: Any) -> NDArray[np.bool_]:
        """Return which patients have a missing entry that the model does not take, shape (n,)."""
        incomplete = np.asarray(np.isnan(self._values(X)).any(axis=1))
        return incomplete if self.missing_values_.missing == "complete" else np.zeros_like(incomplete)

    def _predicted(self, X: Any, predict: Callable[[Floats], Floats]) -> Floats:
        """Return predictions of rows, NaN for patients with a missing entry that the model does not take."""
        found, incomplete = np.asarray(predict(self.filled(X)), dtype=np.float64), self._incomplete(X)
        if incomplete.any():
            _warn_of(int(incomplete.sum()), len(incomplete), "have missing values and get no prediction (NaN)")
            found[incomplete] = np.nan
        return found

    def predictable(self, data: SurvivalData) -> SurvivalData:
        """Return the patients who get a prediction."""
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
        packed = {"model": pack(self.model_), "agreed": encode(self.agreed_)}
        return {name: np.frombuffer(blob, dtype=np.uint8) for name, blob in packed.items()}, {}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self.agreed_ = decode(Agreed, arrays["agreed"].tobytes())
        self.agreed_.check(len(self.agreed_.columns))
        self.model_ = unpack(arrays["model"].tobytes(), KINDS, len(self.agreed_.columns))


def _warn_of(n_incomplete: int, n_patients: int, what: str) -> None:
    warnings.warn(
        f"{n_incomplete} of {n_patients} patients {what}: the model was fitted to complete records. "
        'Fit with missing="mean" or missing="indicator" to predict for them too.',
        UserWarning,
        stacklevel=4,
    )
