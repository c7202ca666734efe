"""Base class of estimators that cluster patients whose views are held by different sites."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.clustering.metrics import clustering_scores
from multicentre.core.consortium import Consortium
from multicentre.core.steps import SitePart
from multicentre.data.identifiers import Identified
from multicentre.errors import DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.saved import PLAIN, Arrays, SavedAttributes, saved_message
from multicentre.linkage.alignment import Alignment, align, find_places
from multicentre.linkage.alignment.site import AlignmentPart
from multicentre.linkage.persons import Persons
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.identifier_normalisation import DateOrder

if TYPE_CHECKING:
    import pandas as pd

Integers = NDArray[np.int64]

CLUSTERING_METRICS: Mapping[str, Metric] = {
    "acc": Metric("Accuracy", "higher", "", "Patients in the cluster that best matches their group"),
    "purity": Metric("Purity", "higher", "", "Patients who belong to the commonest group of their cluster"),
    "nmi": Metric("NMI", "higher", "", "Mutual information of clusters and groups, over the larger entropy"),
    "nmi_arithmetic": Metric("NMI (mean)", "higher", "", "The same over the mean of both entropies"),
    "ari": Metric("Adjusted Rand", "higher", "", "Pairs that clusters and groups agree on, beyond chance"),
}


# Smallest cluster whose size is shown, the default minimum of a site's policy.
MIN_SHOWN = 10


class AlignedClusterer(FederatedEstimator):
    """Base of the estimators over sites that hold different views of the same patients.

    A subclass has the parameters `person_key` and `incomplete`, runs its rounds in `_fit`, and sets `labels_` and
    `view_weights_`.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of every patient, in the common order; -1 for a patient without a cluster.
    view_weights_ : dict of str to float
        Weight of every view, by ``<site>/<view>``.
    pseudonyms_ : array of uint8, shape (n, 16)
        Pseudonyms of the patients in the common order; only holders of the study's key can compute them.
    alignment_counts_ : dict of str to dict of str to int
        By site: patients ``at_site``, those of them ``aligned``, and records left out as ``missing`` an identifier or
        ``repeated``; see :class:`multicentre.linkage.alignment.Alignment`.
    """

    aligned_by: ClassVar[type[SitePart] | None] = AlignmentPart
    same_sites: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, Metric]] = CLUSTERING_METRICS
    saved_attributes: ClassVar[SavedAttributes] = {
        "labels_": PLAIN,
        "pseudonyms_": PLAIN,
        "alignment_counts_": PLAIN,
        "_persons": saved_message(Persons),
    }
    person_key: str
    incomplete: bool
    labels_: Integers
    view_weights_: dict[str, float]
    pseudonyms_: NDArray[np.uint8]
    alignment_counts_: dict[str, dict[str, int]]
    _key: PseudonymKey | None = None

    def fit(self, federation: Consortium | Alignment, y: None = None) -> Self:
        """Fit the model over sites that hold different views of the same patients.

        Parameters
        ----------
        federation : Federation or Alignment
            Sites, which are first aligned by `person_key`, or the result of :func:`multicentre.linkage.align`.
        y : None
            Not used, present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of its range, or does not suit patients who lack a view.
        DataError
            There are too few patients, or a site's view cannot be fitted.
        RefusedByPolicy
            A site's policy does not allow the releases of the fit.
        """
        if not isinstance(federation, Consortium | Alignment):
            return super().fit(federation)
        self._check_parameters()  # before the alignment, which is the first call to a site
        aligned = self.aligned(federation)
        before = dict(self.__dict__)
        self.pseudonyms_, self._persons = aligned.pseudonyms, aligned.persons
        self.alignment_counts_ = _counts_of(aligned)
        try:
            return super().fit(aligned.federation)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def aligned(self, federation: Consortium | Alignment) -> Alignment:
        """Align a federation by the estimator's parameters; return an alignment unchanged."""
        if isinstance(federation, Alignment):
            return federation
        return align(federation, person_key=self.person_key, incomplete=self.incomplete)

    def hold_key(self, key: PseudonymKey) -> Self:
        """Use this key in later look-ups of patients, where all sites are in this process; it is not saved."""
        self._key = key
        return self

    def places_for(
        self, records: Iterable[object] | Identified, *, key: PseudonymKey | None = None, date_order: DateOrder = "iso"
    ) -> Integers:
        """Return the place of each record in the common order, -1 if it was not aligned.

        The parameters are those of :meth:`labels_for`.
        """
        check_is_fitted(self, "labels_")
        key = key or self._key or PseudonymKey.simulated(self._persons.study)
        identifiers: Any = records
        return find_places(identifiers, self.pseudonyms_, self._persons, key, date_order=date_order)

    def labels_for(
        self, records: Iterable[object] | Identified, *, key: PseudonymKey | None = None, date_order: DateOrder = "iso"
    ) -> Integers:
        """Return the clusters of patients, at a site, which holds their identifiers.

        Parameters
        ----------
        records : iterable, or data
            Identifiers as recorded, one per record; or data with identifiers.
        key : PseudonymKey, optional
            The study's key; that of a simulation by default.
        date_order : {"iso", "ymd", "dmy", "mdy"}
            Order of day, month and year in identifiers that are dates.

        Returns
        -------
        array of int64, shape (number of records,)
            -1 for a patient who was not aligned or has no relation to other patients.

        Raises
        ------
        NotFittedError
            The model was not fitted.
        """
        places = self.places_for(records, key=key, date_order=date_order)
        if len(places) and np.all(places < 0):
            warnings.warn(
                "No record took part in the fit, or they were aligned under another key: all labels are -1.",
                stacklevel=2,
            )
        return np.where(places >= 0, self.labels_[places], -1)

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the agreement of clusters with known groups of the fit's patients, in a simulation.

        Parameters
        ----------
        data : MultiViewData
            Patients with the identifiers that aligned the sites.
        labels : sequence of str
            Their groups; without them the result is empty.
        training, training_labels
            Not used, present for API consistency by convention.

        Raises
        ------
        DataError
            No patient took part in the fit.
        """
        check_is_fitted(self, "labels_")
        if labels is None:
            return {}
        clusters = self.labels_for(data)
        clustered = clusters >= 0
        if not clustered.any():
            raise DataError(
                "data must hold patients of the fit; got none",
                where="data",
                hint="Pass patients with the identifiers of the fit.",
            )
        return clustering_scores(np.asarray(labels)[clustered], clusters[clustered])

    def summary(self) -> pd.DataFrame:
        """Return the numbers of the fit, the sizes of the clusters and the weights of the views, one row each."""
        import pandas as pd

        from multicentre.estimator.results import with_note

        frame = super().summary()
        clusters, sizes = np.unique(self.labels_, return_counts=True)
        rows: dict[str, float] = {
            "patients without a cluster" if cluster < 0 else f"patients in cluster {cluster}": size
            for cluster, size in zip(clusters.tolist(), sizes.tolist(), strict=True)
        }
        rows |= {f"weight of view {view}": weight for view, weight in self.view_weights_.items()}
        details = pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object)
        return with_note(pd.concat([frame, details]), self._remarks(), model=self.describe_model())

    def to_frame(self) -> pd.DataFrame:
        """Return the patients of every cluster, one row per cluster: their number and their share of all patients."""
        import pandas as pd

        check_is_fitted(self, "labels_")
        clusters, sizes = np.unique(self.labels_[self.labels_ >= 0], return_counts=True)
        index = pd.Index(clusters, name="cluster")
        return pd.DataFrame({"n_patients": sizes, "share": sizes / len(self.labels_)}, index=index)

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the sizes of the clusters; counts from 1 to 9 are left out."""
        frame = self.to_frame()
        is_small = frame["n_patients"] < MIN_SHOWN
        return {"clusters": frame.astype(float).mask(is_small, axis=0)}

    def answer(self) -> str:
        """Return the number of clusters, patients and the sizes."""
        sizes = self.to_frame()["n_patients"].tolist()
        listed = ", ".join(f"fewer than {MIN_SHOWN}" if size < MIN_SHOWN else f"{size:,}" for size in sizes)
        return f"{len(sizes)} clusters of {len(self.labels_):,} patients: {listed}."

    def main_figure(self) -> Figure:
        """Return the sizes of the clusters; those of fewer than 10 patients are left out."""
        sizes = self.to_frame()["n_patients"]
        sizes = sizes[sizes >= MIN_SHOWN]
        series = {"patients": [float(size) for size in sizes]}
        names = [f"cluster {name}" for name in sizes.index]
        return Bars("Sizes of the clusters", "Patients of each cluster.", "model", "patients", names, series, {})

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.labels_ = np.asarray(self.labels_, dtype=np.int64)
        self.pseudonyms_ = np.asarray(self.pseudonyms_, dtype=np.uint8)
        self._persons.checked()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_key"}


def _counts_of(aligned: Alignment) -> dict[str, dict[str, int]]:
    return {
        "at_site": aligned.n_at_site,
        "aligned": aligned.n_aligned,
        "missing": aligned.n_missing,
        "repeated": aligned.n_repeated,
    }
