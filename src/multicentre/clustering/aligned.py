"""What estimators have in common that find groups of patients from views at different sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.alignment import Alignment, align, find_places
from multicentre.clustering.metrics import clustering_scores
from multicentre.estimator import Arrays, FederatedEstimator, Figure
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import DataError
from multicentre.persons import Persons
from multicentre.privacy.normalisation import DateOrder
from multicentre.privacy.pseudonyms import PseudonymKey

Integers = NDArray[np.int64]

CLUSTERING_FIGURES: Mapping[str, Figure] = {
    "acc": Figure("Accuracy", "higher", "", "Patients in the cluster that best matches their group"),
    "purity": Figure("Purity", "higher", "", "Patients who belong to the commonest group of their cluster"),
    "nmi": Figure("NMI", "higher", "", "Mutual information of clusters and groups, over the larger entropy"),
    "nmi_arithmetic": Figure("NMI (mean)", "higher", "", "The same over the mean of both entropies"),
    "ari": Figure("Adjusted Rand", "higher", "", "Pairs that clusters and groups agree on, beyond chance"),
}


class AlignedClusterer(FederatedEstimator):
    """Base of the estimators over sites that hold different views of the same patients.

    A subclass takes `person_key` and `incomplete` among its parameters, writes its rounds in `_fit` and sets `labels_`.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of every patient, in the common order.
    pseudonyms_ : array of uint8, shape (n, 16)
        Who stands where in the common order, for those who hold the study's key.
    """

    figures: ClassVar[Mapping[str, Figure]] = CLUSTERING_FIGURES
    person_key: str
    incomplete: bool
    labels_: Integers
    pseudonyms_: NDArray[np.uint8]

    def fit(self, federation: Federation | Alignment, y: None = None) -> Self:
        """Fit the model over sites that hold different views of the same patients.

        Parameters
        ----------
        federation : Federation or Alignment
            The sites; they are aligned first by `person_key`. Or what :func:`multicentre.alignment.align` returned.
        y : None
            Ignored; groups that are known are never used.

        Returns
        -------
        self
        """
        if isinstance(federation, Federation):
            federation = align(federation, person_key=self.person_key, incomplete=self.incomplete)
        if isinstance(federation, Alignment):
            self.pseudonyms_, self._persons = federation.pseudonyms, federation.persons
            federation = federation.federation
        return super().fit(federation)

    def labels_for(
        self, records: Iterable[object], *, key: PseudonymKey | None = None, date_order: DateOrder = "iso"
    ) -> Integers:
        """Return the clusters of patients, to be called where their identifiers are known: at a site.

        Parameters
        ----------
        records : iterable, or data
            Identifiers as they were recorded, one a record; or data that has them.
        key : PseudonymKey, optional
            The study's key; that of a simulation by default.
        date_order : {"iso", "ymd", "dmy", "mdy"}
            How dates are written among them.

        Returns
        -------
        array of int64, shape (number of records,)
            -1 for a patient who was not aligned.
        """
        key = key or PseudonymKey.simulated(self._persons.study)
        places = find_places(records, self.pseudonyms_, self._persons, key, date_order=date_order)
        return np.where(places >= 0, self.labels_[places], -1)

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return how well the clusters match known groups of patients of the fit, in a simulation.

        Parameters
        ----------
        data : MultiViewData
            Patients with the identifiers that the sites were aligned by.
        labels : sequence of str
            Their groups; without them there is nothing to compare with.
        training, training_labels
            Ignored.

        Raises
        ------
        DataError
            None of the patients took part in the fit.
        """
        if labels is None:
            return {}
        found = self.labels_for(data)
        known = found >= 0
        if not known.any():
            raise DataError("none of these patients took part in the fit", where="data", mend="Look at their ids.")
        return clustering_scores(np.asarray(labels)[known], found[known])

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        terms = {name: getattr(self._persons, name) for name in Persons.declarations()}
        return {"labels": self.labels_, "pseudonyms": self.pseudonyms_}, {"persons": terms}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self.labels_ = np.asarray(arrays["labels"], dtype=np.int64)
        self.pseudonyms_ = np.asarray(arrays["pseudonyms"], dtype=np.uint8)
        told = facts["persons"]
        terms: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in told.items()}
        self._persons = Persons(**terms).checked()
