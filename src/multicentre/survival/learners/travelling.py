"""Models that a site fits alone and sends: patients as they may show them, and a warning where they show nothing.

Such a model is no sum: it leaves unmasked, and nothing hides its parts in a total. Only learners whose models travel
see their patients so; sums over sites are exact.
"""

from __future__ import annotations

import warnings

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.patients import Patients, flatten_rare
from multicentre.survival.agreement.sketch import public_times, public_values
from multicentre.survival.times.joining import joined_bins


def group_for_travel(data: SurvivalData, agreed: Agreed, least: int) -> Patients:
    """Return patients of whom a model that leaves the site shows no group of fewer than `least`.

    Patients of neighbouring times of the grid move to one time, so that at each time at least `least` patients have the
    event, or none, and at least `least` leave, or none. Where fewer have the event in all, nobody has. What only a few
    patients have of a column is left out (:func:`flatten_rare`).

    Follow-up is cut at the agreed times rounded up to public ones, and values are rounded before a tree splits them:
    an agreement that the coordinator made up finds no recorded time and no recorded value.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    least : int
        0 or 1: the patients as they are.

    Examples
    --------
    >>> import numpy as np
    >>> agreed = Agreed(("x0",), "", 1, 4.0, 4.0, np.arange(1.0, 5.0), np.zeros(1), np.ones(1), np.zeros(0),
    ...                 np.zeros(2, dtype=np.int64))
    >>> data = SurvivalData([[0.0], [0.0], [0.0], [1.0]], np.arange(1.0, 5.0), np.ones(4))
    >>> patients = group_for_travel(data, agreed, 2)
    >>> patients.bins.tolist(), patients.rows.ravel().tolist()
    ([1, 1, 3, 3], [0.0, 0.0, 0.0, 0.0])
    """
    if least <= 1:
        return Patients(data, agreed)
    X = flatten_rare(data.X, least)
    flat = SurvivalData(X, data.time, data.event, columns=data.columns, unit=data.unit)
    patients = Patients(flat, agreed, public_times(agreed.times))
    patients.binned = patients.bin_columns(public_values(X))
    patients.bins, patients.happened = joined_bins(patients.bins, patients.happened, len(agreed.times), least)
    return patients


def warn_of_constant(n_constant: int, n_models: int, instead: str) -> None:
    """Warn where at least half of the models that sites fitted alone predict the same for every patient.

    Parameters
    ----------
    n_constant, n_models : int
    instead : str
        Methods without this weakness.

    Examples
    --------
    >>> warn_of_constant(1, 3, "FedRSF")
    """
    # Some constant trees among others only draw predictions together; from half of them on the model says little.
    if n_constant and 2 * n_constant >= n_models:
        warnings.warn(
            f"{n_constant} of {n_models} models that sites fitted alone are constant: they predict the same for every "
            "patient. A site may have too few patients or events for two leaves of the size that may leave it: lower "
            f"min_leaf or min_events, or use {instead}, which sum over sites.",
            UserWarning,
            stacklevel=5,
        )
