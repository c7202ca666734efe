"""FedXGBClassifier and FedXGBRegressor: XGBoost's trees from histograms summed over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, mean_squared_error, r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement
from multicentre.boosting import messages as sent
from multicentre.boosting.fitted import FedXGB
from multicentre.data.missing.values import Missing
from multicentre.data.tabledata import TableData
from multicentre.estimator.base import Metric
from multicentre.federation.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.federation.session import Session

Floats = NDArray[np.float64]


class FedXGBClassifier(FedXGB):
    """XGBoost for two classes or more, trained across sites: the trees of the pooled records.

    A site sums the slopes and curvatures of its records' loss by node and bin of every column, as whole numbers of
    2**-30; the coordinator sees the sums over sites, and splits as xgboost's ``hist`` does, in its arithmetic. Given
    the common cuts, trees are those that xgboost grows on the pooled records, however these are split over sites,
    masked or not. Missing values (NaN) go where they gain most, as in xgboost.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of boosting rounds (one tree per round; one per class if multiclass).
    max_depth : int, default 6
        Maximum number of splits on the path to a leaf, at most 12. A round needs this number of sums over sites,
        for all its trees together.
    learning_rate : float, default 0.3
        Share of each Newton step that is taken, above 0 and at most 1.
    reg_lambda, reg_alpha : float, default 1.0 and 0.0
        Penalties of the squares and of the magnitudes of leaves.
    gamma : float, default 0.0
        Least gain of a split.
    min_child_weight : float, default 1.0
        Least sum of curvatures on either side of a split.
    max_bins : int, default 256
        Bins of every column, from 2 to 1024.
    scale_pos_weight : float, default 1.0
        Weight of the records of the second of two classes.
    base_score : float, optional
        Chance that all records start from; by default the share of the second class over all sites. For three classes
        or more the margin of each, by default 0.5.
    min_samples_leaf : int, default 0
        Least number of records, all sites together, on either side of a split; 0 for xgboost's own trees.
    n_iter_no_change : int, optional
        Rounds end after so many without a lower loss of the records watched, and only those up to the lowest are kept.
    cuts : list of lists of float, optional
        Cuts of every column, known beforehand; values below a cut are in the bins before it. By default they are found
        by secure sums, at quantiles of all records. Sites whose policy asks for a minimum of patients compare values
        with given cuts to within a 65,536th of the value.
    missing : {"native", "complete", "mean", "indicator"}, default "native"
        With ``"native"`` each split learns the side that missing entries go to. With ``"complete"`` incomplete records
        are left out, and the model predicts for complete ones only. With ``"mean"`` missing entries are filled with the
        mean over all sites. With ``"indicator"`` a split can in addition separate missing entries from all others; it
        counts for its column in the importances. ``missing_`` counts missing entries.

    Attributes
    ----------
    ensemble_ : Ensemble
        The trees.
    booster_ : xgboost.Booster
        The same as an xgboost model; needs the extra ``boost``.
    classes_ : array of shape (k,)
    columns_ : tuple of str
    feature_importances_ : array of shape (d,)
        Mean gain of each column's splits, as shares of their sum; others from :meth:`importances`.
    evals_result_ : dict
        Loss after each round: of the training records, and of those watched.
    best_iteration_ : int
        Place of the last round that was kept.
    traffic_ : dict of str to float
        Bytes that a site sent, on average: before the first tree, for each tree, in all.

    Notes
    -----
    The model itself tells of the records: its thresholds are common cuts, and a leaf's value is a ratio of two sums
    over the records that fell there, of all sites together. A leaf of few records shows their outcomes.
    `min_child_weight` and `min_samples_leaf` keep leaves large.

    Deep trees part records to the last one. Unmasked, a site's policy therefore refuses the first sum of gradients
    unless as many of its records as the policy's minimum share their bins and their outcome, whichever they are; counts
    of classes and thresholds are refused before, where they are of fewer. Mask the sums (``secure_sum=True``).

    References
    ----------
    .. [1] T. Chen, C. Guestrin, "XGBoost: A scalable tree boosting system", KDD 2016, 785-794.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> data = mc.data.TableData(X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int))
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = FedXGBClassifier(n_estimators=20, max_depth=3).fit(federation)
    >>> bool((model.predict(X) == data.y).mean() > 0.95)
    True
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Metric("accuracy", "higher", "", "share of the records whose class was named"),
        "log_loss": Metric("log loss", "lower", "nats", "mean negative log of the chance given to the record's class"),
        "auc": Metric("AUC", "higher", "", "chance that a record of a class is ranked above one of another"),
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
        """Return the chance of each class, shape (n, k).

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
        """Return the likeliest class of each record, shape (n,); the first of several."""
        return np.asarray(self.classes_[self._places(X)])

    def score(self, data: TableData, y: None = None) -> float:
        """Return the share of the records whose class is named."""
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
        """Return accuracy, log loss and, where every class occurs, the area under the curve, on a TableData."""
        data = self.leave_out_incomplete(data)
        chances = self.predict_proba(data)
        places = np.arange(chances.shape[1])
        found = {"accuracy": self.score(data), "log_loss": float(log_loss(data.y, chances, labels=places))}
        if len(np.unique(data.y)) == len(places):
            ranked = chances[:, 1] if len(places) == 2 else chances
            found["auc"] = float(roc_auc_score(data.y, ranked, multi_class="ovr", labels=places))
        return found

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes, shape (k,): numbers where none were named."""
        check_is_fitted(self, "ensemble_")
        names = self.ensemble_.classes
        numbered = names == tuple(str(place) for place in range(len(names)))
        return np.arange(len(names)) if numbered else np.array(names)

    def _places(self, X: Any) -> NDArray[np.int64]:
        margins = self.predict_margin(X)
        return (margins[:, 0] > 0).astype(np.int64) if margins.shape[1] == 1 else margins.argmax(axis=1)

    def _steps_of_base(self) -> frozenset[str]:
        return frozenset({"count_classes"} if self.base_score is None else ())

    def _start(self, session: Session, described: sent.Described) -> dict[str, Any]:
        if not described.classes:
            raise SchemaMismatch("the outcome is a number", where="y", hint="Use FedXGBRegressor, or declare classes.")
        binary = len(described.classes) == 2
        if self.scale_pos_weight != 1 and not binary:
            raise ConfigurationError("there are more than two classes", where="scale_pos_weight", hint="Leave it at 1.")
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
            raise ConfigurationError("a chance is between 0 and 1", where="base_score", hint="Give 0.5, say.")
        return np.array([-np.log(np.float32(1.0) / np.float32(share) - np.float32(1.0))], dtype=np.float32)

    def _margins(self, n_classes: int) -> NDArray[np.float32]:
        return np.full(n_classes, 0.5 if self.base_score is None else self.base_score, dtype=np.float32)


class FedXGBRegressor(FedXGB):
    """XGBoost for numbers or counts, trained across sites: the trees of the pooled records.

    As :class:`FedXGBClassifier`, whose parameters, attributes and notes hold here too, but for those of classes.

    Parameters
    ----------
    n_estimators, max_depth, learning_rate, reg_lambda, reg_alpha, gamma, min_child_weight, max_bins
        See :class:`FedXGBClassifier`.
    objective : {"reg:squarederror", "count:poisson"}, default "reg:squarederror"
        Squared error, or the likelihood of counts.
    base_score : float, optional
        Mean that all records start from; by default that of the outcomes over all sites.
    min_samples_leaf, n_iter_no_change, cuts
        See :class:`FedXGBClassifier`.

    Notes
    -----
    As in xgboost, a split that gains 1e-6 or less is not made: give outcomes in a unit in which they are not tiny.
    Outcomes are taken in single precision. Their sums are whole numbers of 2**-30 of a power of two that is above nine
    tenths of them; it is found from counts of records by order of magnitude.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> data = mc.data.TableData(X, 20 + 5 * X[:, 0], outcome="number")
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = FedXGBRegressor(n_estimators=30, max_depth=2).fit(federation)
    >>> model.score(data) > 0.99
    True
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "rmse": Metric("RMSE", "lower", "", "root of the mean squared error"),
        "r2": Metric("R2", "higher", "", "share of the outcomes' variance that is explained"),
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        objective: str = "reg:squarederror",
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
        """Return the share of the outcomes' variance that is explained."""
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
        data = self.leave_out_incomplete(data)
        expected = self.predict(data)
        return {"rmse": float(np.sqrt(mean_squared_error(data.y, expected))), "r2": float(r2_score(data.y, expected))}

    def _steps_of_base(self) -> frozenset[str]:
        return frozenset({"count_magnitudes"} | ({"sum_outcomes"} if self.base_score is None else set()))

    def _start(self, session: Session, described: sent.Described) -> dict[str, Any]:
        if described.classes:
            raise SchemaMismatch("the outcome is a class", where="y", hint='Say outcome="number" at every site.')
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
        given = self.base_score
        mean = np.float32(agreement.mean_outcome(session, unit) if given is None else given)
        if self.objective == "count:poisson":
            if not mean > 0:
                raise DataError("the mean of the counts is not above 0", where="base_score", hint="Give one above 0.")
            mean = np.log(mean)
        return np.array([mean], dtype=np.float32)
