"""Whether the data of several sites fit together, and, which only a simulation can do, all their patients as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from multicentre.data.kinds import kind_of
from multicentre.federation.errors import DataError

T = TypeVar("T")


def check_together(sites: Mapping[str, object]) -> None:
    """Check that the data of several sites are of one kind and describe their patients alike.

    Sites with views must have the same columns of a view that they share; sites with events, the same modes.

    Parameters
    ----------
    sites : mapping from str to data
        Data by site.

    Raises
    ------
    DataError
        There is no site, or (SchemaMismatch) two sites differ.
    ConfigurationError
        The data are of several kinds, or of a kind that studies do not know.

    Examples
    --------
    >>> import numpy as np
    >>> check_together({"lyon": np.zeros((4, 2)), "oslo": np.zeros((3, 2))})
    """
    _check_some(sites)
    kind_of(*sites.values()).check(sites)


def concatenate(sites: Mapping[str, T]) -> T:
    """Return the patients of all sites one below the other, in the order of the sites.

    Views and codes are those of any site; a patient of a site without them lacks them.

    Parameters
    ----------
    sites : mapping from str to data
        Data by site, all of one kind. Identifiers are kept as ``<site>/<id>`` when every site has them.

    Raises
    ------
    DataError, ConfigurationError
        As for :func:`check_together`.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.data import MultiViewData
    >>> lyon = MultiViewData({"blood": np.array([[4.1], [3.9]])})
    >>> oslo = MultiViewData({"image": np.array([[11.0]])})
    >>> concatenate({"lyon": lyon, "oslo": oslo})
    MultiViewData(3 patients; blood: 1 column, 2 patients; image: 1 column, 1 patient)
    """
    _check_some(sites)
    stacked: T = kind_of(*sites.values()).stack(sites)
    return stacked


def _check_some(sites: Mapping[str, object]) -> None:
    if not sites:
        raise DataError("there is no site", where="sites", mend="Give at least one site.")
