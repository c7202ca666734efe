"""Loaders of the data sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from multicentre import datasets
from multicentre.data.survival import SurvivalData
from multicentre.errors import MulticentreError

SIMULATED = "simulated"


def load(sample: str) -> SurvivalData:
    """Return a data set, with an identifier per patient.

    As in the published scripts, METABRIC lacks its patient of time 0.
    """
    data = _load(sample)
    return data.with_identifier([f"{sample}-{row}" for row in range(len(data))])


def _load(sample: str) -> SurvivalData:
    if sample == "metabric":
        data = datasets.load_metabric()
        return data.take(data.time > 0)
    if sample == "support":
        return datasets.load_support2()
    if sample == "support-leaky":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return _in_thousands(datasets.load_support2(leakage="paper"), ("charges", "totcst"))
    return datasets.simulate_survival(n_patients=1500, n_columns=8, random_state=0, nonlinear=True)


def _in_thousands(data: SurvivalData, columns: tuple[str, ...]) -> SurvivalData:
    """Return the data with other units of some columns, whose squares in single dollars exceed the range of sums.

    Models standardise columns or split them, so the unit has no effect on them.
    """
    scale = np.where(np.isin(data.columns, columns), 1e-3, 1.0)
    return SurvivalData(data.X * scale, data.time, data.event, columns=data.columns, unit=data.unit)


def available(samples: tuple[str, ...]) -> Iterator[tuple[str, SurvivalData | str]]:
    """Yield every data set by name, or the reason if it is not available."""
    for sample in samples:
        try:
            yield sample, load(sample)
        except MulticentreError as error:
            yield sample, str(error)
