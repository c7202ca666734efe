"""Methods of a fitted FedMVFCM or FedMVFPC on local patients; independent of any site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.clustering.aligned import CLUSTERING_METRICS
from multicentre.clustering.metrics import clustering_scores
from multicentre.data.missing.values import count_missing
from multicentre.data.multiview import MultiViewData
from multicentre.errors import DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Bars, Figure, HeatMap
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes, saved_message
from multicentre_papers.baselines.fuzzy import limits, messages
from multicentre_papers.baselines.fuzzy.maths import (
    Floats,
    Rows,
    measure_distances,
    objective,
    share_memberships,
    view_columns,
)

if TYPE_CHECKING:
    import pandas as pd

N_PROFILE_COLUMNS = 12  # columns in the heat map of profiles; more are hard to read
DISPERSION = Metric(
    "dispersion", "lower", "", "objective per patient: distances to the centres, weighted by memberships and views"
)


class FuzzyModel(FederatedEstimator):
    """Fuzzy clusters of patients with several views.

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the original units; the largest cluster first.
    view_weights_ : dict of str to float
        Weight alpha of every view.
    shares_ : array of shape (c,)
        Share of the patients per cluster, counted by memberships to the power of `fuzziness`.
    missing_ : pandas frame
        A row per column: view, column, number of patients of all sites without an entry, and their share.
    """

    same_sites: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, Metric]] = {**CLUSTERING_METRICS, "dispersion": DISPERSION}
    saved_attributes: ClassVar[SavedAttributes] = {
        "_agreed": saved_message(messages.Agreement),
        **dict.fromkeys(("_centres", "_alpha", "shares_"), PLAIN),
        "converged_": Saved(unpack=bool),
    }
    fuzziness: float
    squared: bool
    shares_: Floats
    converged_: bool
    _agreed: messages.Agreement
    _centres: Floats
    _alpha: Floats

    @property
    def missing_(self) -> pd.DataFrame:
        """Missing entries by view and column over all sites; see :func:`multicentre.data.missing.values.count_missing`.

        A patient has all columns of a view or none. No entry is imputed and no patient is left out: patients are
        clustered by their available views.
        """
        check_is_fitted(self, "_centres")
        observed = np.repeat(self._agreed.patients_by_view, list(self._agreed.sizes.values()))
        return count_missing(self._agreed.columns, observed, self._agreed.n_patients)

    @property
    def centres_(self) -> dict[str, Floats]:
        """Centre of every cluster by view, in the original units."""
        check_is_fitted(self, "_centres")
        centres = self._centres * self._agreed.spread + self._agreed.centre
        columns = view_columns(list(self._agreed.sizes.values()))
        return {view: centres[:, at] for view, at in zip(self._agreed.views, columns, strict=True)}

    @property
    def view_weights_(self) -> dict[str, float]:
        """Weight alpha of every view."""
        check_is_fitted(self, "_centres")
        return dict(zip(self._agreed.views, self._alpha.tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return the centres in the original units, one row per view and column and one column per cluster."""
        import pandas as pd

        centres = np.hstack(list(self.centres_.values()))
        pairs = [(view, column) for view in self._agreed.views for column in self._agreed.columns[view]]
        index = pd.MultiIndex.from_tuples(pairs, names=["view", "column"])
        return pd.DataFrame(centres.T, index=index, columns=pd.RangeIndex(len(centres), name="cluster"))

    def summary(self) -> pd.DataFrame:
        """Return the numbers of the fit, the shares of the clusters and the weights of the views, one row each."""
        import pandas as pd

        from multicentre.estimator.results import with_note

        frame = super().summary()
        rows = {f"share of cluster {cluster}": share for cluster, share in enumerate(self.shares_.tolist())}
        rows |= {f"weight of view {view}": weight for view, weight in self.view_weights_.items()}
        details = pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object)
        return with_note(pd.concat([frame, details]), self._remarks(), model=self.describe_model())

    def membership(self, data: MultiViewData) -> Floats:
        """Return the membership of each patient in each cluster, shape (n, c); rows sum to 1.

        Parameters
        ----------
        data : MultiViewData
            Patients with some of the model's views. A view of a patient may be absent, but not incomplete.

        Raises
        ------
        DataError
            A patient has an incomplete view or no view, or `data` is not a MultiViewData.
        SchemaMismatch
            Views or columns differ from those of the fit.
        """
        return share_memberships(self._distances(data), self._alpha, self.fuzziness, plain=not self.squared)

    def predict(self, data: MultiViewData) -> NDArray[np.int64]:
        """Return the cluster of highest membership per patient, shape (n,); raises as :meth:`membership` does."""
        return np.asarray(self.membership(data).argmax(axis=1), dtype=np.int64)

    def assess(
        self,
        data: MultiViewData,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the dispersion of patients and, with labels, the agreement of clusters and groups.

        Parameters
        ----------
        data : MultiViewData
        labels : sequence of str, optional
            Groups of the patients; not used in the fit.
        training, training_labels
            Not used, present for API consistency by convention.
        """
        distances = self._distances(data)
        u = share_memberships(distances, self._alpha, self.fuzziness, plain=not self.squared)
        dispersions = np.einsum("ij,pij->p", u**self.fuzziness, distances)
        metrics = {"dispersion": objective(dispersions, self._alpha) / len(data)}
        return metrics if labels is None else {**clustering_scores(np.asarray(labels), u.argmax(axis=1)), **metrics}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return figures of the cluster sizes, of the most distinctive columns and of the view weights."""
        check_is_fitted(self, "_centres")
        clusters = [f"cluster {j + 1}" for j in range(len(self._centres))]
        shares = {"share of patients": self.shares_.tolist()}
        weights = {"weight": self._alpha.tolist()}
        return [
            Bars(
                "Sizes of the clusters", "Patients by cluster, as memberships.", "model", "share", clusters, shares, {}
            ),
            self._profiles(clusters),
            Bars(
                "Weights of the views",
                "A view weighs more if patients lie nearer to their centres.",
                "model",
                "weight",
                list(self._agreed.views),
                weights,
                {},
            ),
        ]

    def _profiles(self, clusters: list[str]) -> HeatMap:
        names = [f"{view}: {column}" for view in self._agreed.views for column in self._agreed.columns[view]]
        columns = np.argsort(-self._centres.std(axis=0), kind="stable")[:N_PROFILE_COLUMNS]
        values = self._centres[:, columns].T
        reach = max(float(np.abs(values).max()), 1e-12)
        return HeatMap(
            "Profiles of the clusters",
            "Centres in the columns that differ most between clusters, as distances from the mean of all patients.",
            "model",
            [names[column] for column in columns],
            clusters,
            values.tolist(),
            "in the unit of the fit",
            -reach,
            reach,
        )

    def _distances(self, data: MultiViewData) -> Floats:
        check_is_fitted(self, "_centres")
        if not isinstance(data, MultiViewData):
            raise DataError(f"data must be a multicentre.data.MultiViewData; got {type(data).__name__}", where="data")
        limits.check_rows(data)
        limits.check_layout(data, self._agreed)
        standard = data.stacked(self._agreed.views, self._agreed.sizes) - self._agreed.centre
        rows = Rows.of(standard / self._agreed.spread, list(self._agreed.sizes.values()))
        return measure_distances(rows, self._centres, plain=not self.squared)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._agreed.checked()
        limits.check_clusters(
            messages.Clusters(self._centres, self._alpha, self.fuzziness, not self.squared), self._agreed
        )
