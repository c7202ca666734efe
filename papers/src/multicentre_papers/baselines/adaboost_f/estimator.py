"""Estimators AdaBoost.F, DistBoost.F and PreWeak.F: boosting of the sites' trees via sums of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.core.tie_breaking import first_largest
from multicentre.data.missing.values import HandlesMissing
from multicentre.data.table import rows_for
from multicentre.data.tabledata import TableData
from multicentre.data.tabular import add_indicators
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.parameters import SEED, Integer, OneOf, ParameterRanges, Real
from multicentre.estimator.saved import Arrays, SavedAttributes, saved_message
from multicentre.survival.learners.cohort import warn_of_constant
from multicentre_papers.baselines.adaboost_f import messages
from multicentre_papers.baselines.adaboost_f.rounds import Plan, agree, boost
from multicentre_papers.baselines.adaboost_f.site import ClassSite
from multicentre_papers.baselines.adaboost_f.trees import most_votes, plurality

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class ClassBooster(HandlesMissing, FederatedEstimator):
    """Base class of the three methods, which differ in the candidate hypotheses of a round.

    Parameters
    ----------
    n_estimators : int, default 50
        Maximum number of hypotheses.
    max_depth : int, default 3
        Maximum depth of a site's tree.
    min_samples_leaf : int, default 15
        Smallest number of patients per leaf. Under a policy with a minimum: at least 15 and at least the minimum.
    learning_rate : float, default 1.0
        Factor of the votes, in (0, 1].
    missing : {"mean", "complete", "indicator"}, default "mean"
        Handling of missing entries. "mean" fills them with the mean over all sites. "complete" leaves out incomplete
        records; the model then predicts for complete records only. "indicator" also adds a column that marks missing
        entries, for each column with missing entries at any site. ``missing_`` counts missing entries.
    random_state : int, default 0
        Seed of the sites' trees.

    Attributes
    ----------
    votes_, training_errors_ : array of shape (R,)
        Vote and error of every hypothesis of the ensemble.
    chosen_ : tuple of str
        Origin of every hypothesis.
    dropped_ : tuple of str
        Sites and rounds without a valid tree.
    stopped_because_ : str
        Reason for fewer than `n_estimators` rounds; empty after all rounds.
    classes_ : array of shape (k,)
        Classes as numbers or declared names.
    feature_names_in_ : tuple of str
        Names of the columns, in order.
    agreed_ : Agreed
        Columns, classes and bins that the sites agreed on.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    site_part: ClassVar[type[SitePart]] = ClassSite
    same_sites: ClassVar[bool] = False
    candidates: ClassVar[str] = "best"
    parameter_ranges: ClassVar[ParameterRanges] = {
        **dict.fromkeys(("n_estimators", "max_depth", "min_samples_leaf"), Integer(1)),
        "learning_rate": Real(0, 1, open="low"),
        "missing": OneOf("complete", "indicator", "mean"),
        "random_state": SEED,
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        "agreed_": saved_message(messages.Prepared),
        "_ensemble": saved_message(messages.Ensemble),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Metric("accuracy", "higher", "", "share of patients with a correct class"),
        "balanced": Metric(
            "balanced accuracy", "higher", "", "mean over the classes of the share of patients with a correct class"
        ),
    }

    @property
    def evaluator(self) -> Any:
        """Scorer for held-out records."""
        from multicentre_papers.baselines.adaboost_f.scoring import VOTES

        return VOTES

    def __init__(
        self,
        n_estimators: int = 50,
        *,
        max_depth: int = 3,
        min_samples_leaf: int = 15,
        learning_rate: float = 1.0,
        missing: Literal["complete", "indicator", "mean"] = "mean",
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.learning_rate = learning_rate
        self.missing = missing
        self.random_state = random_state

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the most votes per patient, shape (n,); the first class wins a tie.

        Parameters
        ----------
        X : array of shape (n, d), pandas frame or TableData
            Columns as at the sites. Missing entries (NaN) are filled with the mean over all sites, as in the fit.

        Raises
        ------
        DataError
            An entry is missing, and the model was fitted with ``missing="complete"``.
        """
        return np.asarray(self.classes_[first_largest(self._votes(X), axis=1)])

    def predict_proba(self, X: Any) -> Floats:
        """Return each class's share of the votes, shape (n, k); shares are not calibrated probabilities."""
        votes = self._votes(X)
        return np.asarray(votes / votes.sum(axis=1, keepdims=True), dtype=np.float64)

    def score(self, data: TableData, y: None = None) -> float:
        """Return the accuracy: the share of patients with a correct class."""
        check_is_fitted(self, "agreed_")
        data = self.leave_out_incomplete(data)
        return float(accuracy_score(data.y, first_largest(self._votes(data), axis=1)))

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return ``accuracy`` and ``balanced`` accuracy on local data."""
        check_is_fitted(self, "agreed_")
        data = self.leave_out_incomplete(data)
        predicted = first_largest(self._votes(data), axis=1)
        return {
            "accuracy": float(accuracy_score(data.y, predicted)),
            "balanced": float(balanced_accuracy_score(data.y, predicted)),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return origin, vote and error of every hypothesis, one row each."""
        import pandas as pd

        check_is_fitted(self, "agreed_")
        columns = {"origin": self.chosen_, "vote": self.votes_, "error": self.training_errors_}
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.votes_) + 1, name="hypothesis"))

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; printed, it ends with the reason for fewer rounds, if any."""
        from multicentre.estimator.results import with_note

        frame = self.to_frame()
        note = " ".join(part for part in (self.stopped_because_, self._remarks()) if part)
        return with_note(frame, note, model=self.describe_model())

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes, shape (k,); numbers if no names were declared."""
        check_is_fitted(self, "agreed_")
        names = self.agreed_.classes
        numbered = names == tuple(str(place) for place in range(len(names)))
        return np.arange(len(names)) if numbered else np.array(names)

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Names of the columns."""
        check_is_fitted(self, "agreed_")
        return self.agreed_.columns

    def _plan(self) -> Plan:
        tree = int(self.max_depth), int(self.min_samples_leaf)
        return Plan(self.candidates, int(self.n_estimators), *tree, float(self.learning_rate), int(self.random_state))

    def _fit(self, session: Session) -> None:
        plan = self._plan()
        self.agreed_, self.missing_values_ = agree(session, self.missing)
        ensemble, self.history_ = boost(session, plan, self.agreed_)
        self._set(ensemble)
        n_constant = int((ensemble.column[ensemble.roots] < 0).sum())
        warn_of_constant(n_constant, len(ensemble.roots), "FedXGBClassifier")

    def _set(self, ensemble: messages.Ensemble) -> None:
        self._ensemble = ensemble
        self.votes_, self.training_errors_ = ensemble.votes, ensemble.errors
        self.chosen_, self.dropped_ = ensemble.names, ensemble.dropped
        self.stopped_because_ = ensemble.stopped

    def _votes(self, X: Any) -> Floats:
        """Return the votes for each class, shape (n, k)."""
        rows, ensemble, n_classes = self._rows(X), self._ensemble, len(self.agreed_.classes)
        labels = ensemble.labels(rows)
        ends = np.cumsum(ensemble.sizes)
        predicted = [
            plurality(labels[:, end - size : end], n_classes)
            for end, size in zip(ends.tolist(), ensemble.sizes.tolist(), strict=True)
        ]
        return most_votes(np.column_stack(predicted).astype(np.int32), ensemble.votes, n_classes)

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self, "agreed_")
        gaps, levels = self.missing_values_, self.agreed_.levels
        columns = self.feature_names_in_[: len(self.feature_names_in_) - len(gaps.indicators)]
        values = rows_for(X, columns, levels)
        self.require_complete(values)
        marked = add_indicators(values, columns, levels, gaps.incomplete_columns if gaps.indicators else ())
        return np.where(np.isnan(marked), self.agreed_.centre, marked)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.agreed_.checked()
        self._set(self._ensemble.valid(len(self.agreed_.columns), len(self.agreed_.classes)))


class AdaBoostF(ClassBooster):
    """AdaBoost.F: each round adds the site tree with the lowest weighted error over all sites.

    With one site this is scikit-learn's ``AdaBoostClassifier`` (SAMME). Parameters and attributes are those of
    :class:`ClassBooster`.

    References
    ----------
    .. [1] M. Polato, R. Esposito, M. Aldinucci, "Boosting the federation: cross-silo federated learning without
       gradient descent", IJCNN 2022.
    .. [2] J. Zhu, H. Zou, S. Rosset, T. Hastie, "Multi-class AdaBoost", Statistics and Its Interface 2 (2009), 349-360.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import AdaBoostF
    >>> from multicentre.data.tabledata import TableData
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> data = TableData(X, (X[:, 0] + X[:, 1] > 0).astype(int))
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> model = AdaBoostF(n_estimators=10).fit(mc.Federation.in_process(sites))
    >>> model.score(data) > 0.9
    True
    """

    candidates: ClassVar[str] = "best"


class DistBoostF(ClassBooster):
    """DistBoost.F: each round adds the committee (majority vote) of all sites' trees.

    The rounds often end early because the committee is no better than chance. Parameters and attributes are those of
    :class:`ClassBooster`, references those of :class:`AdaBoostF`.

    Examples
    --------
    >>> from multicentre_papers.baselines import DistBoostF
    >>> DistBoostF(n_estimators=10)
    DistBoostF(n_estimators=10)
    """

    candidates: ClassVar[str] = "committee"


class PreWeakF(ClassBooster):
    """PreWeak.F: each site first boosts locally; the rounds then select from this pool of trees without training.

    Each site grows ``ceil(n_estimators / n_sites)`` trees; a tree can be selected several times. Parameters and
    attributes are those of :class:`ClassBooster`, references those of :class:`AdaBoostF`.

    Examples
    --------
    >>> from multicentre_papers.baselines import PreWeakF
    >>> PreWeakF(n_estimators=10)
    PreWeakF(n_estimators=10)
    """

    candidates: ClassVar[str] = "pool"
