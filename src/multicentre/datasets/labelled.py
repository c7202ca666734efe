"""Results of loaders and simulators: multi-view data with a label per patient, and events with a site per patient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data import EventTensor, MultiViewData
from multicentre.errors import DataError

Texts = NDArray[np.str_]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelledMultiView:
    """Views of the same patients and a group label for every patient.

    Parameters
    ----------
    data : MultiViewData
        The views.
    labels : array of str, shape (n,)
        Group of every patient.
    name : str
        Name of the data set.
    description : str
        Contents in one sentence.
    licence : str
        Terms of use.
    parts : array of str, shape (n,), optional
        Published part of every patient ("train" or "test").

    Raises
    ------
    DataError
        The number of labels or parts differs from the number of patients.
    """

    data: MultiViewData
    labels: Texts
    name: str
    description: str
    licence: str
    parts: Texts | None = None

    def __post_init__(self) -> None:
        for what, values in (("labels", self.labels), ("parts", self.parts)):
            if values is not None and values.shape != (self.data.n_patients,):
                raise DataError(
                    f"{what} must have shape ({self.data.n_patients},); got {values.shape}",
                    where=f"data set {self.name!r}",
                    hint="Pass one value per patient.",
                )

    def __len__(self) -> int:
        return len(self.data)

    @property
    def groups(self) -> tuple[str, ...]:
        """Labels in the data, sorted."""
        return tuple(str(label) for label in np.unique(self.labels))

    def take(self, rows: ArrayLike) -> LabelledMultiView:
        """Return the patients at `rows` (integers, or one truth value per patient)."""
        chosen = np.asarray(rows)
        data = self.data.take(chosen)
        parts = None if self.parts is None else self.parts[chosen]
        return LabelledMultiView(data, self.labels[chosen], self.name, self.description, self.licence, parts)

    def drop(self, views: Iterable[str]) -> LabelledMultiView:
        """Return the same patients without these views."""
        return replace(self, data=self.data.drop(views))


@dataclass(frozen=True, eq=False)
class SimulatedTruth:
    """True parameters of a simulated data set.

    Parameters
    ----------
    loadings : mapping from str to array, shape (d_k, q)
        ``W_k`` of every view.
    means : mapping from str to array, shape (d_k,)
        ``mu_k`` of every view.
    noise_sd : mapping from str to float
        Standard deviation of the noise of every view.
    shift : array, shape (q,)
        Difference between the second and the first group in the latent space.
    latent : array, shape (n, q)
        Latent position of every patient.
    """

    loadings: Mapping[str, Floats]
    means: Mapping[str, Floats]
    noise_sd: Mapping[str, float]
    shift: Floats
    latent: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedMultiView(LabelledMultiView):
    """Simulated multi-view data with their true parameters."""

    truth: SimulatedTruth


Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LabelledEvents:
    """Counts of codes that occur together, and the site of every patient.

    Parameters
    ----------
    tensor : EventTensor
        Counts, with the patients' outcomes if available.
    sites : array of str, shape (n,)
        Site of every patient.
    name : str
        Name of the data set.
    description : str
        Contents in one sentence.
    licence : str
        Terms of use.

    Raises
    ------
    DataError
        The number of sites differs from the number of patients.

    Examples
    --------
    >>> tensor = EventTensor([[0, 0, 0], [1, 1, 0]], [1, 2], {"procedure": ["p1", "p2"], "diagnosis": ["d1"]})
    >>> labelled = LabelledEvents(tensor, np.array(["north", "south"]), "toy", "A toy.", "CC0")
    >>> labelled.by_site()["south"]
    EventTensor(1 patients; 2 procedure codes x 1 diagnosis codes; 1 entries)
    """

    tensor: EventTensor
    sites: Texts
    name: str
    description: str
    licence: str

    def __post_init__(self) -> None:
        if self.sites.shape != (self.tensor.n_patients,):
            raise DataError(
                f"sites must have shape ({self.tensor.n_patients},); got {self.sites.shape}",
                where=f"data set {self.name!r}",
                hint="Pass one site per patient.",
            )

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def site_names(self) -> tuple[str, ...]:
        """Sites in the order of their first patients."""
        return tuple(dict.fromkeys(self.sites.tolist()))

    def by_site(self) -> dict[str, EventTensor]:
        """Return the patients of every site, with all codes."""
        return {name: self.tensor.take(self.sites == name) for name in self.site_names}


@dataclass(frozen=True, eq=False)
class PlantedTruth:
    """True phenotypes of simulated events: R phenotypes at T sites.

    Parameters
    ----------
    factors : mapping from str to array, shape (codes, R)
        Weights of a mode's codes in every phenotype: non-negative, in columns of length 1.
    memberships : array, shape (n, R)
        Share of every phenotype in a patient's events, without noise; rows sum to 1.
    sites : tuple of str, length T
        Sites in the order of the rows below.
    present : array of bool, shape (T, R)
        True if a site has patients with the phenotype.
    prevalence : array, shape (T, R)
        Probability that a phenotype is a patient's first; rows sum to 1. It is 0 for absent phenotypes.
    log_odds : array, shape (R,)
        Increase of the log odds of the outcome per unit of membership of each phenotype.
    intercept : float
        Log odds of the outcome without phenotypes.
    """

    factors: Mapping[str, Floats]
    memberships: Floats
    sites: tuple[str, ...]
    present: Flags
    prevalence: Floats
    log_odds: Floats
    intercept: float

    @property
    def exclusive(self) -> tuple[int, ...]:
        """Columns of the phenotypes that only one site has."""
        return tuple(np.flatnonzero(self.present.sum(axis=0) == 1).tolist())


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedEvents(LabelledEvents):
    """Simulated events with their true phenotypes."""

    truth: PlantedTruth
