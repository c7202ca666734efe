"""What a fitted FedMVFCM or FedMVFPC can do with patients that its holder has; nothing here speaks to a site."""

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
from multicentre.estimator.base import Arrays, FederatedEstimator, Metric
from multicentre.estimator.figures import Bars, Figure, HeatMap
from multicentre.federation.errors import DataError
from multicentre_papers.baselines.fuzzy import limits
from multicentre_papers.baselines.fuzzy import messages as sent
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

N_SHOWN = 12
DISPERSION = Metric(
    "dispersion", "lower", "", "objective a patient: distances to the centres, weighted by memberships and views"
)


class FuzzyModel(FederatedEstimator):
    """Clusters of patients with several views, to which each patient belongs in part.

    Attributes
    ----------
    centres_ : dict of str to array of shape (c, d_k)
        Centre of every cluster by view, in the columns' own units; the largest cluster first.
    view_weights_ : dict of str to float
        Weight alpha of every view.
    shares_ : array of shape (c,)
        Share of the patients by cluster, each counted by its membership to the power of `fuzziness`.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {**CLUSTERING_METRICS, "dispersion": DISPERSION}
    fuzziness: float
    squared: bool
    shares_: Floats
    n_iter_: int
    converged_: bool
    _agreed: sent.Agreement
    _centres: Floats
    _alpha: Floats

    @property
    def missing_(self) -> pd.DataFrame:
        """Missing entries by view and column over all sites; see :func:`multicentre.data.missing.values.count_missing`.

        A patient has all columns of a view or none. None are left out or filled: a patient is clustered by the views
        that are there.
        """
        check_is_fitted(self, "_centres")
        observed = np.repeat(self._agreed.patients_by_view, list(self._agreed.sizes.values()))
        return count_missing(self._agreed.columns, observed, self._agreed.n_patients)

    @property
    def centres_(self) -> dict[str, Floats]:
        """Centre of every cluster by view, in the columns' own units."""
        check_is_fitted(self, "_centres")
        own = self._centres * self._agreed.spread + self._agreed.centre
        columns = view_columns(list(self._agreed.sizes.values()))
        return {view: own[:, at] for view, at in zip(self._agreed.views, columns, strict=True)}

    @property
    def view_weights_(self) -> dict[str, float]:
        """Weight alpha of every view."""
        check_is_fitted(self, "_centres")
        return dict(zip(self._agreed.views, self._alpha.tolist(), strict=True))

    def membership(self, data: MultiViewData) -> Floats:
        """Return how far each patient belongs to each cluster, shape (n, c); rows sum to 1.

        Parameters
        ----------
        data : MultiViewData
            Patients with some of the model's views; a patient may lack a view, but not entries of one.

        Raises
        ------
        DataError
            A patient has a view in part or none, or the data are of another kind.
        SchemaMismatch
            Views or columns are not those of the fit.
        """
        return share_memberships(self._distances(data), self._alpha, self.fuzziness, plain=not self.squared)

    def predict(self, data: MultiViewData) -> NDArray[np.int64]:
        """Return the cluster to which each patient belongs most, shape (n,); raises as :meth:`membership` does."""
        return np.asarray(self.membership(data).argmax(axis=1), dtype=np.int64)

    def assess(
        self,
        data: MultiViewData,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the dispersion of patients, and how well their clusters match known groups.

        Parameters
        ----------
        data : MultiViewData
        labels : sequence of str, optional
            Groups of the patients; the fit never uses them.
        training, training_labels
            Ignored.
        """
        distances = self._distances(data)
        u = share_memberships(distances, self._alpha, self.fuzziness, plain=not self.squared)
        dispersions = np.einsum("ij,pij->p", u**self.fuzziness, distances)
        metrics = {"dispersion": objective(dispersions, self._alpha) / len(data)}
        return metrics if labels is None else {**clustering_scores(np.asarray(labels), u.argmax(axis=1)), **metrics}

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the clusters' sizes, their centres in the columns that tell them apart most, and the view weights."""
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
                "Views in which patients lie nearer to their centres weigh more.",
                "model",
                "weight",
                list(self._agreed.views),
                weights,
                {},
            ),
        ]

    def _profiles(self, clusters: list[str]) -> HeatMap:
        names = [f"{view}: {column}" for view in self._agreed.views for column in self._agreed.columns[view]]
        chosen = np.argsort(-self._centres.std(axis=0), kind="stable")[:N_SHOWN]
        values = self._centres[:, chosen].T
        reach = max(float(np.abs(values).max()), 1e-12)
        return HeatMap(
            "Profiles of the clusters",
            "Centres in the columns in which they differ most, as distances from the mean of all patients.",
            "model",
            [names[column] for column in chosen],
            clusters,
            values.tolist(),
            "in the unit of the fit",
            -reach,
            reach,
        )

    def _distances(self, data: MultiViewData) -> Floats:
        check_is_fitted(self, "_centres")
        if not isinstance(data, MultiViewData):
            raise DataError(
                f"{type(data).__name__} was given", where="data", hint="Give a multicentre.data.MultiViewData."
            )
        limits.check_rows(data)
        limits.check_layout(data, self._agreed)
        standard = data.stacked(self._agreed.views, self._agreed.sizes) - self._agreed.centre
        rows = Rows.of(standard / self._agreed.spread, list(self._agreed.sizes.values()))
        return measure_distances(rows, self._centres, plain=not self.squared)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        agreed = self._agreed
        arrays = {"centres": self._centres, "view_weights": self._alpha, "shares": self.shares_}
        arrays |= {name: getattr(agreed, name) for name in ("centre", "spread", "patients_by_view")}
        facts = {name: getattr(agreed, name) for name in ("views", "columns", "kinds", "n_patients")}
        return arrays, {**facts, "n_rounds": self.n_iter_, "converged": self.converged_}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self._agreed = sent.Agreement(
            tuple(facts["views"]),
            {view: tuple(names) for view, names in facts["columns"].items()},
            arrays["centre"],
            arrays["spread"],
            {view: tuple(kinds) for view, kinds in facts["kinds"].items()},
            arrays["patients_by_view"],
            float(facts["n_patients"]),
        ).checked()
        self._centres, self._alpha, self.shares_ = (arrays[name] for name in ("centres", "view_weights", "shares"))
        limits.check_clusters(sent.Clusters(self._centres, self._alpha, self.fuzziness, not self.squared), self._agreed)
        self.n_iter_, self.converged_ = int(facts["n_rounds"]), bool(facts["converged"])
