"""FedXGBClassifier and FedXGBRegressor: the trees of XGBoost from histograms summed over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, mean_squared_error, r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from multicentre.boosting import agreement, messages
from multicentre.boosting.fitted import FedXGB
from multicentre.boosting.messages import MAX_SCALE, MAX_WEIGHT
from multicentre.boosting.parameters import is_name
from multicentre.boosting.trees import OBJECTIVES
from multicentre.core.session import Session
from multicentre.data.missing.values import Missing
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, SchemaMismatch
from multicentre.estimator.base import Metric
from multicentre.estimator.parameters import Applicable, OneOf, Only, ParameterRanges, Real, Where

Floats = NDArray[np.float64]
RegressionObjective = Literal["reg:squarederror", "count:poisson", "reg:gamma", "reg:tweedie", "survival:aft"]
TimeDistribution = Literal["normal", "logistic", "extreme"]


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
    subsample : float, default 1.0
        Share of the records that a round uses, above 0 and at most 1. A site draws them by `random_state` and a hash of
        their values, so that the draw does not depend on the split of records over sites.
    colsample_bytree, colsample_bylevel, colsample_bynode : float, default 1.0
        Share of the columns that are drawn for a tree, of these for a level, and of these for a node.
    monotone_constraints : mapping of str to int, optional
        1 for columns with which predictions must not fall, -1 for those with which they must not rise.
    interaction_constraints : list of lists of str, optional
        Sets of columns, or of categories, that may occur on the same path of a tree. As in xgboost, other columns can
        only be the first split.
    sample_weight : str, optional
        Column with the weights of the records, from 0 to 1,000,000; not a feature. Losses are weighted means. Cuts and
        `min_samples_leaf` count records.
    base_margin : str or list of str, optional
        Column with the first margin of each record, or one column per class; not features. It replaces `base_score`.
        Predictions require these columns, or first margins.
    eval_metric : "auc", optional
        Metric by which `n_iter_no_change` stops, for two classes: the area under the curve of the validation records
        instead of their loss. ``evals_result_["validation"]["auc_error"]`` is its largest error, see the notes.
    random_state : int, default 0
        Seed of the draws of records and columns.

    Attributes
    ----------
    classes_ : array of shape (k,)
        Names of the classes; numbers from 0 if they have no names.

    Notes
    -----
    The model itself discloses facts about the records. Its thresholds are common cuts, and the value of a leaf is a
    ratio of two sums over the records of all sites in the leaf. A leaf of few records discloses their outcomes.
    `min_child_weight` and `min_samples_leaf` keep leaves large.

    The area under the curve follows from counts of records in cells of their margin, down to about a millionth. Records
    of two classes in one cell count as tied, as records in the same leaves are.

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
        "scale_pos_weight": Real(0, MAX_WEIGHT, open="low"),
        "eval_metric": (None, OneOf("auc")),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Metric("accuracy", "higher", "", "share of records with the correct class"),
        "log_loss": Metric(
            "log loss", "lower", "", "mean negative log of the predicted probability of the correct class"
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
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        colsample_bylevel: float = 1.0,
        colsample_bynode: float = 1.0,
        monotone_constraints: Mapping[str, int] | None = None,
        interaction_constraints: Sequence[Sequence[str]] | None = None,
        sample_weight: str | None = None,
        base_margin: str | Sequence[str] | None = None,
        eval_metric: Literal["auc"] | None = None,
        random_state: int = 0,
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
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.colsample_bylevel = colsample_bylevel
        self.colsample_bynode = colsample_bynode
        self.monotone_constraints = monotone_constraints
        self.interaction_constraints = interaction_constraints
        self.sample_weight = sample_weight
        self.base_margin = base_margin
        self.eval_metric = eval_metric
        self.random_state = random_state

    @property
    def predicts(self) -> Literal["classifier"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "classifier"

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
        data = self._scored(data)
        return float((self._places(data) == data.y).mean())

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return accuracy, log loss and, if every class occurs, the area under the curve, without weights."""
        check_is_fitted(self, "ensemble_")
        data = self._scored(data)
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
        if self.base_score is not None or self.base_margin:
            return frozenset()
        return frozenset({"sum_outcomes" if self.sample_weight else "count_classes"})

    def _start(self, session: Session, described: messages.Described, n_records: int) -> dict[str, Any]:
        if not described.classes:
            raise SchemaMismatch(
                "the outcome must be a class; got a number", where="y", hint="Use FedXGBRegressor, or declare classes."
            )
        for name, usual in (("scale_pos_weight", 1), ("eval_metric", None)):
            if len(described.classes) > 2 and getattr(self, name) != usual:
                raise ConfigurationError(
                    f"{name} must be {usual} with more than two classes; got {getattr(self, name)}",
                    where=name,
                    hint=f"Set {name}={usual}.",
                )
        return agreement.class_settings(session, self.get_params(deep=False), len(described.classes), n_records)


class FedXGBRegressor(FedXGB):
    """XGBoost for numbers, counts or times, trained across sites: the trees of the pooled records.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of boosting rounds; each grows one tree.
    objective : str, default "reg:squarederror"
        Squared error; or the likelihood of counts (``"count:poisson"``), of positive numbers (``"reg:gamma"``), of
        numbers of which many are 0 (``"reg:tweedie"``), or of times to an event (``"survival:aft"``).
    max_depth : int, default 6
        Maximum number of splits on the path to a leaf, at most 12.
    learning_rate, reg_lambda, reg_alpha, gamma, min_child_weight : float
        Factor of steps, penalties of leaves and minima of splits, see :class:`FedXGBClassifier`.
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
    subsample, colsample_bytree, colsample_bylevel, colsample_bynode : float, default 1.0
        Shares of the records and columns that are drawn, see :class:`FedXGBClassifier`.
    monotone_constraints : mapping of str to int, optional
        Signs of the effect of columns, see :class:`FedXGBClassifier`.
    interaction_constraints : list of lists of str, optional
        Columns that may occur on the same path, see :class:`FedXGBClassifier`.
    sample_weight : str, optional
        Column with the weights of the records, see :class:`FedXGBClassifier`.
    base_margin : str, optional
        Column with the first margin of each record, for example the log of the time at risk of a count.
    tweedie_variance_power : float, default 1.5
        Power of the mean in the variance, between 1 and 2 (``"reg:tweedie"``).
    event : str, optional
        Column with 1 where a time ends with the event and 0 where the follow-up ends before it (``"survival:aft"``);
        not a feature. By default all times end with the event.
    aft_loss_distribution : {"normal", "logistic", "extreme"}, default "normal"
        Distribution of the standardised log time (``"survival:aft"``).
    aft_loss_distribution_scale : float, default 1.0
        Scale of the log time (``"survival:aft"``).
    random_state : int, default 0
        Seed of the draws of records and columns.

    Notes
    -----
    The notes of :class:`FedXGBClassifier` also apply, except those on classes.

    As in xgboost, a split requires a gain above 1e-6, so choose a unit in which outcomes are not tiny. Outcomes are
    rounded to single precision. Their sums are integer multiples of 2**-30 times a power of two that is above nine
    tenths of the outcomes, which follows from counts of records by order of magnitude.

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
        "objective": OneOf(*get_args(RegressionObjective)),
        "tweedie_variance_power": Real(1, 2, open="both"),
        "event": (None, Where("the name of a column", is_name)),
        "aft_loss_distribution": OneOf(*get_args(TimeDistribution)),
        "aft_loss_distribution_scale": Real(0, MAX_SCALE, open="low"),
    }
    applicable: ClassVar[Applicable] = {
        "tweedie_variance_power": Only('objective="reg:tweedie"', lambda model: model.objective == "reg:tweedie"),
        **dict.fromkeys(
            ("aft_loss_distribution", "aft_loss_distribution_scale"),
            Only('objective="survival:aft"', lambda model: model.objective == "survival:aft"),
        ),
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
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        colsample_bylevel: float = 1.0,
        colsample_bynode: float = 1.0,
        monotone_constraints: Mapping[str, int] | None = None,
        interaction_constraints: Sequence[Sequence[str]] | None = None,
        sample_weight: str | None = None,
        base_margin: str | Sequence[str] | None = None,
        tweedie_variance_power: float = 1.5,
        event: str | None = None,
        aft_loss_distribution: TimeDistribution = "normal",
        aft_loss_distribution_scale: float = 1.0,
        random_state: int = 0,
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
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.colsample_bylevel = colsample_bylevel
        self.colsample_bynode = colsample_bynode
        self.monotone_constraints = monotone_constraints
        self.interaction_constraints = interaction_constraints
        self.sample_weight = sample_weight
        self.base_margin = base_margin
        self.tweedie_variance_power = tweedie_variance_power
        self.event = event
        self.aft_loss_distribution = aft_loss_distribution
        self.aft_loss_distribution_scale = aft_loss_distribution_scale
        self.random_state = random_state

    @property
    def predicts(self) -> Literal["regressor"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "regressor"

    def predict(self, X: Any) -> Floats:
        """Return the expected outcome of each record, shape (n,).

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites; NaN for missing.
        """
        margin = self.predict_margin(X)[:, 0].astype(np.float64)
        return OBJECTIVES[self.ensemble_.objective].means(margin)

    def score(self, data: TableData, y: None = None) -> float:
        """Return the explained share of the variance of the outcomes."""
        self._check_scored()
        data = self._scored(data)
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
        self._check_scored()
        data = self._scored(data)
        expected = self.predict(data)
        return {"rmse": float(np.sqrt(mean_squared_error(data.y, expected))), "r2": float(r2_score(data.y, expected))}

    def _check_scored(self) -> None:
        """Raise ConfigurationError for times to an event: errors of censored times would be wrong."""
        check_is_fitted(self, "ensemble_")
        if self.ensemble_.distribution:
            raise ConfigurationError(
                'rmse and r2 require known outcomes; got times to an event ("survival:aft")',
                where="objective",
                hint="Pass validation records to fit, and use evals_result_.",
            )

    def _steps_of_base(self) -> frozenset[str]:
        return frozenset({"count_magnitudes"} | ({"sum_outcomes"} if self.base_score is None else set()))

    def _start(self, session: Session, described: messages.Described, n_records: int) -> dict[str, Any]:
        if described.classes:
            raise SchemaMismatch(
                "the outcome must be a number; got a class", where="y", hint='Set outcome="number" at every site.'
            )
        if self.event and self.objective != "survival:aft":
            raise ConfigurationError(
                f'event must be None unless objective is "survival:aft"; got {self.event!r}',
                where="event",
                hint="Leave the column out of the tables, or change the objective.",
            )
        return agreement.number_settings(session, self.get_params(deep=False), n_records)
