"""The data sets of the table, every column scaled to the unit interval once over all rows, as in the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from multicentre.data import MultiViewData
from multicentre.datasets import LabelledMultiView, load_wisconsin, simulate_sd


@dataclass(frozen=True)
class Sample:
    """A data set of the table.

    Parameters
    ----------
    label : str
        Label in the table.
    n_components : int
        Latent dimensions.
    why : str
        Reason for the number of latent dimensions.
    draw : callable
        Returns the data for the number of a repetition; real data are the same in every repetition.
    """

    label: str
    n_components: int
    why: str
    draw: Callable[[int], LabelledMultiView]


def generator(repetition: int, purpose: int, *parts: int) -> np.random.Generator:
    """Return the random stream of a repetition and a purpose (0 data, 1 centres, 2 folds)."""
    return np.random.default_rng([repetition, purpose, *parts])


def scale_to_unit_interval(labelled: LabelledMultiView) -> LabelledMultiView:
    """Return the same patients with every column scaled to [0, 1]; missing entries stay missing.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.datasets import simulate_sd
    >>> scaled = scale_to_unit_interval(simulate_sd(0))
    >>> float(scaled.data.array("view_1").min()), float(scaled.data.array("view_1").max())
    (0.0, 1.0)
    """
    data, scaled = labelled.data, {}
    for view in data.views:
        rows = data.array(view)
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
        scaled[view] = (rows - low) / (high - low)
    rescaled = MultiViewData(scaled, ids=None if data.ids is None else data.ids.tolist(), columns=data.columns)
    return replace(labelled, data=rescaled)


SAMPLES: dict[str, Sample] = {
    "sd": Sample(
        "SD (simulated, groups far apart as in the paper)",
        5,
        "the dimension that it was simulated with, as in the paper",
        lambda repetition: simulate_sd(generator(repetition, 0)),
    ),
    "sd-mild": Sample(
        "SD, groups that overlap",
        5,
        "the dimension that it was simulated with",
        lambda repetition: simulate_sd(generator(repetition, 0), shift="mild"),
    ),
    "wisconsin": Sample(
        "Breast cancer Wisconsin (569 patients, three views of ten columns)",
        5,
        "half the columns of a view; WAIC falls up to the limit of q = 9 because the columns are far from normal",
        lambda repetition: load_wisconsin(),
    ),
}
