"""Loaders of the data sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from multicentre import datasets
from multicentre.data.survival import SurvivalData
from multicentre.errors import MulticentreError

SIMULATED = "simulated"


def load(sample: str) -> SurvivalData:
    """Return a data set. As in the published scripts, METABRIC lacks its patient of time 0."""
    if sample == "metabric":
        data = datasets.load_metabric()
        return data.take(data.time > 0)
    if sample == "support":
        return datasets.load_support2()
    if sample == "support-leaky":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return datasets.load_support2(leakage="paper")
    return datasets.simulate_survival(n_patients=1500, n_columns=8, random_state=0, nonlinear=True)


def available(samples: tuple[str, ...]) -> Iterator[tuple[str, SurvivalData | str]]:
    """Yield every data set by name, or the reason if it is not available."""
    for sample in samples:
        try:
            yield sample, load(sample)
        except MulticentreError as error:
            yield sample, str(error)
