"""What every fitted survival method can do with patients that its holder has; nothing here speaks to a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.survival import SurvivalData
from multicentre.data.table import checked_columns, is_frame
from multicentre.estimator import Arrays, FederatedEstimator, Figure
from multicentre.federation.errors import DataError
from multicentre.federation.wire import decode, encode
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.models import KINDS
from multicentre.survival.models.base import SurvivalModel
from multicentre.survival.models.packing import pack, unpack
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index
from multicentre.survival.times.curves import at_times, cumulative_hazard, time_to_share
from multicentre.survival.times.step import StepFunction

if TYPE_CHECKING:
    pass

Floats = NDArray[np.float64]


class SurvivalEstimator(FederatedEstimator):
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

    figures: ClassVar[Mapping[str, Figure]] = {
        "concordance": Figure("concordance", "higher", "", "share of comparable pairs that the risks put in order"),
        "ibs": Figure("integrated Brier score", "lower", "", "mean squared error of the survival curves over time"),
    }
    model_: SurvivalModel
    agreed_: Agreed

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
            Columns as at the sites. A frame's are found by name. Gaps (NaN) are filled with the sites' mean.

        Returns
        -------
        array of shape (n,)
        """
        return -self.model_.restricted_mean(self._rows(X))

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
        return self._as_asked(self.model_.survival(self._rows(X)), 1.0, return_array)

    def predict_cumulative_hazard_function(self, X: Any, return_array: bool = False) -> Any:
        """Return each patient's cumulative hazard, minus the logarithm of the survival curve; arguments likewise."""
        return self._as_asked(cumulative_hazard(self.model_.survival(self._rows(X))), 0.0, return_array)

    def predict_time(self, X: Any, kind: Literal["median", "restricted_mean"] = "median") -> Floats:
        """Return a time for each patient, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or SurvivalData
        kind : {"median", "restricted_mean"}, default "median"
            The first time of the grid at which survival is at or below a half (the horizon where it never is), or the
            mean time survived up to the horizon.
        """
        rows = self._rows(X)
        if kind == "median":
            return time_to_share(self.model_.survival(rows), self.times_)
        return self.model_.restricted_mean(rows)

    def score(self, data: SurvivalData, y: None = None) -> float:
        """Return the concordance of the risks with the patients' times, from 0 to 1; 0.5 by chance."""
        return concordance_index(data.time, self._happened(data), self.predict(data))

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
        known = data if training is None else training
        found = {"concordance": self.score(data)}
        times = brier_times(data.time, known.time, self._happened(known), self.times_[-1])
        if len(times) > 1:
            curves = at_times(self.model_.survival(self._rows(data)), self.times_, times)
            found["ibs"] = integrated_brier_score(
                curves, times, data.time, self._happened(data), known.time, self._happened(known)
            )
        return found

    def _happened(self, data: SurvivalData) -> NDArray[np.bool_]:
        return np.asarray(data.event == self.agreed_.cause, dtype=np.bool_)

    def _rows(self, X: Any) -> Floats:
        """Return columns in order, gaps filled."""
        check_is_fitted(self, "model_")
        if isinstance(X, SurvivalData):
            values, names = X.X, X.columns
        elif is_frame(X):
            absent = [name for name in self.columns_ if name not in X.columns]
            if absent:
                what = f"there is no such column: {', '.join(absent[:5])}"
                raise DataError(what, where="X", mend="Give the columns of the fit.")
            values, names = checked_columns(X[list(self.columns_)], None)
        else:
            values, names = checked_columns(X, None)
            names = self.columns_ if values.shape[1] == len(self.columns_) else names
        if names != self.columns_:
            raise DataError(
                f"{len(names)} columns are given; the fit had {len(self.columns_)}",
                where="X",
                mend=f"Give, in this order, {', '.join(self.columns_[:8])}.",
            )
        return np.where(np.isnan(values), self.agreed_.centre, values)

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
