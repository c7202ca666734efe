"""What estimators have in common that find groups of patients from views at different sites."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.metrics import clustering_scores
from multicentre.data.identifiers import Identified
from multicentre.estimator.base import Arrays, FederatedEstimator, Metric
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import DataError
from multicentre.federation.steps import SitePart
from multicentre.linkage.alignment import Alignment, align, find_places
from multicentre.linkage.alignment.site import AlignmentPart
from multicentre.linkage.persons import Persons
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.normalisation import DateOrder

Integers = NDArray[np.int64]

CLUSTERING_METRICS: Mapping[str, Metric] = {
    "acc": Metric("Accuracy", "higher", "", "Patients in the cluster that best matches their group"),
    "purity": Metric("Purity", "higher", "", "Patients who belong to the commonest group of their cluster"),
    "nmi": Metric("NMI", "higher", "", "Mutual information of clusters and groups, over the larger entropy"),
    "nmi_arithmetic": Metric("NMI (mean)", "higher", "", "The same over the mean of both entropies"),
    "ari": Metric("Adjusted Rand", "higher", "", "Pairs that clusters and groups agree on, beyond chance"),
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
    alignment_counts_ : dict of str to dict of str to int
        By site: patients ``at_site``, those of them ``aligned``, and records left out as ``missing`` an identifier or
        ``repeated``, as :class:`multicentre.linkage.alignment.Alignment` tells them.
    """

    aligned_by: ClassVar[type[SitePart] | None] = AlignmentPart
    metrics: ClassVar[Mapping[str, Metric]] = CLUSTERING_METRICS
    person_key: str
    incomplete: bool
    labels_: Integers
    pseudonyms_: NDArray[np.uint8]
    alignment_counts_: dict[str, dict[str, int]]
    _key: PseudonymKey | None = None

    def fit(self, federation: Consortium | Alignment, y: None = None) -> Self:
        """Fit the model over sites that hold different views of the same patients.

        Parameters
        ----------
        federation : Federation or Alignment
            The sites; they are aligned first by `person_key`. Or what :func:`multicentre.linkage.align` returned.
        y : None
            Ignored; groups that are known are never used.

        Returns
        -------
        self
        """
        if not isinstance(federation, Consortium | Alignment):
            return super().fit(federation)
        self._check_parameters()
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

    def _check_parameters(self) -> None:
        """Check what can be checked before anything leaves a site."""

    def aligned(self, federation: Consortium | Alignment) -> Alignment:
        """Return what was aligned already, or align a federation by the estimator's parameters."""
        if isinstance(federation, Alignment):
            return federation
        return align(federation, person_key=self.person_key, incomplete=self.incomplete)

    def hold_key(self, key: PseudonymKey) -> Self:
        """Find patients under this key from now on, where all sites are in this process; it is saved nowhere."""
        self._key = key
        return self

    def places_for(
        self, records: Iterable[object] | Identified, *, key: PseudonymKey | None = None, date_order: DateOrder = "iso"
    ) -> Integers:
        """Return the place of each record in the common order, -1 where it has none; parameters as `labels_for`."""
        key = key or self._key or PseudonymKey.simulated(self._persons.study)
        given: Any = records
        return find_places(given, self.pseudonyms_, self._persons, key, date_order=date_order)

    def labels_for(
        self, records: Iterable[object] | Identified, *, key: PseudonymKey | None = None, date_order: DateOrder = "iso"
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
            -1 for a patient who was not aligned, or has nothing in common with others.
        """
        places = self.places_for(records, key=key, date_order=date_order)
        if len(places) and np.all(places < 0):
            warnings.warn(
                "none of these records took part in the fit, or they were aligned under another key", stacklevel=2
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
            raise DataError("none of these patients took part in the fit", where="data", hint="Look at their ids.")
        return clustering_scores(np.asarray(labels)[known], found[known])

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        terms = {name: getattr(self._persons, name) for name in Persons.declarations()}
        facts = {"persons": terms, "alignment": self.alignment_counts_}
        return {"labels": self.labels_, "pseudonyms": self.pseudonyms_}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self.labels_ = np.asarray(arrays["labels"], dtype=np.int64)
        self.pseudonyms_ = np.asarray(arrays["pseudonyms"], dtype=np.uint8)
        self.alignment_counts_ = {name: dict(by_site) for name, by_site in facts["alignment"].items()}
        told = facts["persons"]
        terms: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in told.items()}
        self._persons = Persons(**terms).checked()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_key"}


def _counts_of(aligned: Alignment) -> dict[str, dict[str, int]]:
    return {
        "at_site": aligned.n_at_site,
        "aligned": aligned.n_aligned,
        "missing": aligned.n_missing,
        "repeated": aligned.n_repeated,
    }
