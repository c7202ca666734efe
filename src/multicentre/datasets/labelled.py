"""Multi-view data with a label for every patient, as the loaders and the simulator return them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data import MultiViewData
from multicentre.federation.errors import DataError

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
        What it holds, in one sentence.
    licence : str
        Under which terms it may be used.
    parts : array of str, shape (n,), optional
        The part ("train", "test") that the publishers put every patient in, if they did.

    Raises
    ------
    DataError
        Labels or parts are not one a patient.
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
                    f"{what} of shape {values.shape} for {self.data.n_patients} patients",
                    where=f"data set {self.name!r}",
                    mend="Give one value a patient.",
                )

    def __len__(self) -> int:
        return len(self.data)

    @property
    def groups(self) -> tuple[str, ...]:
        """The labels that occur, sorted."""
        return tuple(str(label) for label in np.unique(self.labels))

    def take(self, rows: ArrayLike) -> LabelledMultiView:
        """Return the patients at `rows` (integers, or one truth value a patient)."""
        chosen = np.asarray(rows)
        data = self.data.take(chosen)
        parts = None if self.parts is None else self.parts[chosen]
        return LabelledMultiView(data, self.labels[chosen], self.name, self.description, self.licence, parts)

    def drop(self, views: Iterable[str]) -> LabelledMultiView:
        """Return the same patients without these views."""
        return replace(self, data=self.data.drop(views))


@dataclass(frozen=True, eq=False)
class SimulatedTruth:
    """The parameters that a simulated data set was drawn from.

    Parameters
    ----------
    loadings : mapping from str to array, shape (d_k, q)
        ``W_k`` of every view.
    means : mapping from str to array, shape (d_k,)
        ``mu_k`` of every view.
    noise_sd : mapping from str to float
        Standard deviation of the noise of every view.
    shift : array, shape (q,)
        How far the second group lies from the first in the latent space.
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
    """Simulated multi-view data with the parameters behind them."""

    truth: SimulatedTruth
