"""FedXGBClassifier and FedXGBRegressor: the trees of XGBoost from histograms summed over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, mean_squared_error, r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement, messages
from multicentre.boosting.fitted import FedXGB
from multicentre.boosting.messages import LARGEST_WEIGHT
from multicentre.core.session import Session
from multicentre.data.missing.values import Missing
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.estimator.base import Metric
from multicentre.estimator.parameters import OneOf, ParameterRanges, Real

Floats = NDArray[np.float64]
RegressionObjective = Literal["reg:squarederror", "count:poisson"]


class FedXGBClassifier(FedXGB):
    """XGBoost for two classes or more, trained across sites: the trees of the pooled records.

    A site sums slopes and curvatures of the loss by node and bin of each column, as integer multiples of 2**-30. The
    coordinator receives the sums over sites, and splits nodes like xgboost's ``hist``, in the same arithmetic. With the
    same cuts, the trees are those that xgboost grows on the pooled records. They do not depend on the split of records
    over sites, nor on masks. Missing values (NaN) go to the side with the larger gain, as in xgboost.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of boosting rounds (one tree per round; one per class if multiclass).
    max_depth : int, default 6
        Maximum number of splits on the path to a leaf, at most 12. A round requires at most this number of sums over
        sites, for all its trees combined.
    learning_rate : float, default 0.3
        Factor of each Newton step, above 0 and at most 1.
    reg_lambda : float, default 1.0
        Penalty of the squares of leaves.
    reg_alpha : float, default 0.0
        Penalty of the magnitudes of leaves.
    gamma : float, default 0.0
        Minimum gain of a split.
    min_child_weight : float, default 1.0
        Minimum sum of curvatures on either side of a split.
    max_bins : int, default 256
        Number of bins per column, from 2 to 1024.
    scale_pos_weight : float, default 1.0
        Weight of the records of the second of two classes.
    base_score : float, optional
        Probability of the second class before the first tree; by default its share over all sites. For three or more
        classes the first margin of each class, by default 0.5.
    min_samples_leaf : int, default 0
        Minimum number of records over all sites on either side of a split; 0 gives the trees of xgboost.
    n_iter_no_change : int, optional
        Number of rounds without a lower validation loss after which the fit stops; the model ends with the best round.
    cuts : list of lists of float, optional
        Public cuts by column; values below a cut are in the bins before it. By default cuts are quantiles of all
        records, from secure sums. A site whose policy requires a minimum of patients compares values with cuts to
        within a 65,536th of the value.
    missing : {"native", "complete", "mean", "indicator"}, default "native"
        With ``"native"`` each split has a side for missing entries. With ``"complete"`` incomplete records
        are left out, and the model predicts for complete ones only. With ``"mean"`` missing entries are filled with the
        mean over all sites. With ``"indicator"`` a split can in addition separate missing entries from all others; it
        counts for its column in the importances. ``missing_`` counts missing entries.

    Attributes
    ----------
    classes_ : array of shape (k,)
        Names of the classes; numbers from 0 if they have no names.

    Notes
    -----
    The model itself discloses facts about the records. Its thresholds are common cuts, and the value of a leaf is a
    ratio of two sums over the records of all sites in the leaf. A leaf of few records discloses their outcomes.
    `min_child_weight` and `min_samples_leaf` keep leaves large.

    Deep trees separate single records. Without masks, a site therefore refuses the first sum of gradients if any group
    of records with equal bins and outcome is smaller than the minimum of its policy. It also refuses smaller counts of
    classes and thresholds, which come before. Mask the sums (``secure_sum=True``).

    References
    ----------
    .. [1] T. Chen, C. Guestrin, "XGBoost: A scalable tree boosting system", KDD 2016, 785-794.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> data = mc.data.TableData(X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int))
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = mc.boosting.FedXGBClassifier(n_estimators=20, max_depth=3).fit(federation)
    >>> bool((model.predict(X) == data.y).mean() > 0.95)
    True
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        **FedXGB.parameter_ranges,
        "scale_pos_weight": Real(0, LARGEST_WEIGHT, open="low"),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Metric("accuracy", "higher", "", "share of records with the correct class"),
        "log_loss": Metric(
            "log loss", "lower", "nats", "mean negative log of the predicted probability of the correct class"
        ),
        "auc": Metric("AUC", "higher", "", "probability that a record of a class is ranked above one of another class"),
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int = 6,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        max_bins: int = 256,
        scale_pos_weight: float = 1.0,
        base_score: float | None = None,
        min_samples_leaf: int = 0,
        n_iter_no_change: int | None = None,
        cuts: Sequence[Sequence[float]] | None = None,
        missing: Missing = "native",
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.max_bins = max_bins
        self.scale_pos_weight = scale_pos_weight
        self.base_score = base_score
        self.min_samples_leaf = min_samples_leaf
        self.n_iter_no_change = n_iter_no_change
        self.cuts = cuts
        self.missing = missing

    def decision_function(self, X: Any) -> Floats:
        """Return log odds of the second of two classes, shape (n,), or a score for each of more, shape (n, k)."""
        margins = self.predict_margin(X).astype(np.float64)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (n, k).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites; NaN for missing.
        """
        margins = self.predict_margin(X).astype(np.float64)
        if margins.shape[1] == 1:
            margins = np.concatenate([np.zeros_like(margins), margins], axis=1)
        shares = np.exp(margins - margins.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record, shape (n,); of ties the first."""
        return np.asarray(self.classes_[self._places(X)])

    def score(self, data: TableData, y: None = None) -> float:
        """Return the share of records with the correct class."""
        check_is_fitted(self, "ensemble_")
        data = self.leave_out_incomplete(data)
        return float((self._places(data) == data.y).mean())

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return accuracy and log loss on a TableData, and the area under the curve if every class occurs."""
        check_is_fitted(self, "ensemble_")
        data = self.leave_out_incomplete(data)
        probabilities = self.predict_proba(data)
        places = np.arange(probabilities.shape[1])
        values = {"accuracy": self.score(data), "log_loss": float(log_loss(data.y, probabilities, labels=places))}
        if len(np.unique(data.y)) == len(places):
            ranked = probabilities[:, 1] if len(places) == 2 else probabilities
            values["auc"] = float(roc_auc_score(data.y, ranked, multi_class="ovr", labels=places))
        return values

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes, shape (k,): their names, or numbers without names."""
        check_is_fitted(self, "ensemble_")
        names = self.ensemble_.classes
        numbered = names == tuple(str(place) for place in range(len(names)))
        return np.arange(len(names)) if numbered else np.array(names)

    def _places(self, X: Any) -> NDArray[np.int64]:
        margins = self.predict_margin(X)
        return (margins[:, 0] > 0).astype(np.int64) if margins.shape[1] == 1 else margins.argmax(axis=1)

    def _steps_of_base(self) -> frozenset[str]:
        return frozenset({"count_classes"} if self.base_score is None else ())

    def _start(self, session: Session, described: messages.Described) -> dict[str, Any]:
        if not described.classes:
            raise SchemaMismatch(
                "the outcome must be a class; got a number", where="y", hint="Use FedXGBRegressor, or declare classes."
            )
        binary = len(described.classes) == 2
        if self.scale_pos_weight != 1 and not binary:
            raise ConfigurationError(
                f"scale_pos_weight must be 1 with more than two classes; got {self.scale_pos_weight}",
                where="scale_pos_weight",
                hint="Set scale_pos_weight=1.",
            )
        units = {"slope_exponent": -agreement.DIGITS, "curvature_exponent": -agreement.DIGITS}
        return {
            "objective": "binary:logistic" if binary else "multi:softprob",
            "base": self._base(session) if binary else self._margins(len(described.classes)),
            "positive": float(self.scale_pos_weight),
            "loss_exponent": -agreement.LOSS_DIGITS,
            **units,
        }

    def _base(self, session: Session) -> NDArray[np.float32]:
        share = agreement.share_of_second(session) if self.base_score is None else float(self.base_score)
        if not 0 < share < 1:
            raise ConfigurationError(
                f"base_score must be between 0 and 1 for two classes; got {share:g}",
                where="base_score",
                hint="Set base_score=None for the share of the second class.",
            )
        return np.array([-np.log(np.float32(1.0) / np.float32(share) - np.float32(1.0))], dtype=np.float32)

    def _margins(self, n_classes: int) -> NDArray[np.float32]:
        return np.full(n_classes, 0.5 if self.base_score is None else self.base_score, dtype=np.float32)


class FedXGBRegressor(FedXGB):
    """XGBoost for numbers or counts, trained across sites: the trees of the pooled records.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of boosting rounds; each grows one tree.
    objective : {"reg:squarederror", "count:poisson"}, default "reg:squarederror"
        Squared error, or the likelihood of counts.
    max_depth : int, default 6
        Maximum number of splits on the path to a leaf, at most 12.
    learning_rate : float, default 0.3
        Factor of each Newton step, above 0 and at most 1.
    reg_lambda : float, default 1.0
        Penalty of the squares of leaves.
    reg_alpha : float, default 0.0
        Penalty of the magnitudes of leaves.
    gamma : float, default 0.0
        Minimum gain of a split.
    min_child_weight : float, default 1.0
        Minimum sum of curvatures on either side of a split.
    max_bins : int, default 256
        Number of bins per column, from 2 to 1024.
    base_score : float, optional
        Prediction before the first tree; by default the mean outcome over all sites.
    min_samples_leaf : int, default 0
        Minimum number of records over all sites on either side of a split; 0 gives the trees of xgboost.
    n_iter_no_change : int, optional
        Number of rounds without a lower validation loss after which the fit stops; the model ends with the best round.
    cuts : list of lists of float, optional
        Cuts of every column, see :class:`FedXGBClassifier`.
    missing : {"native", "complete", "mean", "indicator"}, default "native"
        Handling of missing values, see :class:`FedXGBClassifier`.

    Notes
    -----
    The notes of :class:`FedXGBClassifier` also apply, except those on classes.

    As in xgboost, a split requires a gain above 1e-6, so choose a unit in which outcomes are not tiny. Outcomes are
    rounded to single precision. Their sums are integer multiples of 2**-30 times a power of two that is above nine
    tenths of the outcomes. The power follows from counts of records by order of magnitude.

    References
    ----------
    .. [1] T. Chen, C. Guestrin, "XGBoost: A scalable tree boosting system", KDD 2016, 785-794.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> data = mc.data.TableData(X, 20 + 5 * X[:, 0], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = mc.boosting.FedXGBRegressor(n_estimators=30, max_depth=2).fit(federation)
    >>> model.score(data) > 0.99
    True
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        **FedXGB.parameter_ranges,
        "objective": OneOf("reg:squarederror", "count:poisson"),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "rmse": Metric("RMSE", "lower", "", "root of the mean squared error"),
        "r2": Metric("R2", "higher", "", "explained share of the variance of the outcomes"),
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        objective: RegressionObjective = "reg:squarederror",
        max_depth: int = 6,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        max_bins: int = 256,
        base_score: float | None = None,
        min_samples_leaf: int = 0,
        n_iter_no_change: int | None = None,
        cuts: Sequence[Sequence[float]] | None = None,
        missing: Missing = "native",
    ) -> None:
        self.n_estimators = n_estimators
        self.objective = objective
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.max_bins = max_bins
        self.base_score = base_score
        self.min_samples_leaf = min_samples_leaf
        self.n_iter_no_change = n_iter_no_change
        self.cuts = cuts
        self.missing = missing

    def predict(self, X: Any) -> Floats:
        """Return the expected outcome of each record, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites; NaN for missing.
        """
        margin = self.predict_margin(X)[:, 0].astype(np.float64)
        return np.exp(margin) if self.ensemble_.objective == "count:poisson" else margin

    def score(self, data: TableData, y: None = None) -> float:
        """Return the explained share of the variance of the outcomes."""
        check_is_fitted(self, "ensemble_")
        data = self.leave_out_incomplete(data)
        return float(r2_score(data.y, self.predict(data)))

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return ``rmse`` and ``r2`` on a TableData that the caller holds."""
        check_is_fitted(self, "ensemble_")
        data = self.leave_out_incomplete(data)
        expected = self.predict(data)
        return {"rmse": float(np.sqrt(mean_squared_error(data.y, expected))), "r2": float(r2_score(data.y, expected))}

    def _steps_of_base(self) -> frozenset[str]:
        return frozenset({"count_magnitudes"} | ({"sum_outcomes"} if self.base_score is None else set()))

    def _start(self, session: Session, described: messages.Described) -> dict[str, Any]:
        if described.classes:
            raise SchemaMismatch(
                "the outcome must be a number; got a class", where="y", hint='Set outcome="number" at every site.'
            )
        unit, squared_unit = agreement.outcome_exponents(session)
        counts = self.objective == "count:poisson"
        return {
            "objective": self.objective,
            "base": self._base(session, unit),
            "positive": 1.0,
            "slope_exponent": unit,
            "curvature_exponent": unit if counts else -agreement.DIGITS,
            "loss_exponent": unit if counts else squared_unit,
        }

    def _base(self, session: Session, unit: int) -> NDArray[np.float32]:
        start = agreement.mean_outcome(session, unit) if self.base_score is None else self.base_score
        mean = np.float32(start)
        if self.objective == "count:poisson":
            if not mean > 0:
                raise DataError(
                    f"the mean of the counts must be above 0; got {mean:g}",
                    where="base_score",
                    hint="Set base_score to a number above 0.",
                )
            mean = np.log(mean)
        return np.array([mean], dtype=np.float32)
