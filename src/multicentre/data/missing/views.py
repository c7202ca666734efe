"""Missing entries of views, over all sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


def count_missing(
    columns: Mapping[str, Sequence[str]], observed: NDArray[np.float64], n_patients: float
) -> pd.DataFrame:
    """Return a row per column: view, column, patients of all sites without an entry, and their share.

    Patients who lack the whole view count as well, those of sites without it among them, as in a table of all sites'
    patients one below the other.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        Names of the columns by view, in stacking order.
    observed : array of shape (d,)
        Patients of all sites with an entry.
    n_patients : float
        Patients of all sites.

    Examples
    --------
    >>> count_missing({"blood": ["iron"], "mri": ["volume"]}, np.array([40.0, 30.0]), 40)
        view  column  missing  share
    0  blood    iron        0   0.00
    1    mri  volume       10   0.25
    """
    import pandas as pd

    names = [(view, column) for view, own in columns.items() for column in own]
    missing = np.rint(n_patients - observed).astype(np.int64)
    frame = pd.DataFrame(names, columns=["view", "column"])
    return frame.assign(missing=missing, share=missing / max(n_patients, 1.0))
