"""Checks of sums over sites against the minimum number of patients in the sites' policies.

The coordinator's process checks a sum after it was read and before a method receives it. This keeps small numbers out
of results, reports and files. It does not protect against a person who controls that process.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.core.messages import place
from multicentre.core.steps import Release
from multicentre.errors import DisclosureRefused, IntegrityError

_MAX_PATIENTS = 2**40  # about 10^12: no total is about more patients
_ASK_STEWARDS = "One of the sites sent a wrong number; the masks hide which. Ask the stewards."
Behind = Mapping[tuple[str, str], int]
_HOW_TO_REACH_MINIMUM = (
    "Join groups, bins or columns, or include more sites. The minimum is min_patients_in_total, the largest among the "
    "policies of the sites."
)


def needs_minimum(kind: type[Release]) -> bool:
    """Return whether totals of a release must reach the minimum; values about single patients have none."""
    return kind.tells_of_patients() and not kind.individual


def check_behind(kind: type[Release], behind: Behind, least: int) -> None:
    """Raise DisclosureRefused if too few patients stand behind a value, IntegrityError if the number is impossible.

    Parameters
    ----------
    kind : type
        The release.
    behind : mapping of (str, str) to int
        Number of patients behind each value, by field and name; 0 where no site has any.
    least : int
        Smallest number of patients that is allowed, apart from 0.

    Examples
    --------
    >>> from multicentre.core.steps import Acknowledgement
    >>> check_behind(Acknowledgement, {("total", ""): 5}, 5)
    >>> check_behind(Acknowledgement, {("total", ""): 4}, 5)
    Traceback (most recent call last):
        ...
    multicentre.errors.DisclosureRefused: Acknowledgement.total: the total must rest on at least 5 ...
    """
    if impossible := [place(kind, *key) for key, patients in behind.items() if not 0 <= patients <= _MAX_PATIENTS]:
        raise IntegrityError(
            "the number of patients behind a total must be from 0 to 2^40; it is outside",
            where=", ".join(impossible),
            hint=_ASK_STEWARDS,
        )
    few = [place(kind, *key) for key, patients in behind.items() if 0 < patients < least]
    if few:
        raise DisclosureRefused(
            f"the total must rest on at least {least} patients of all sites; it rests on fewer",
            where=", ".join(few),
            hint=_HOW_TO_REACH_MINIMUM,
        )


def check_cells(total: Release, least: int) -> None:
    """Raise DisclosureRefused if a table of patients has cells above 0 and below the minimum.

    Fields declared with ``counts=True`` are such tables. See :func:`check_behind` for `least`.
    """
    small = {
        place(type(total), name, key): int(np.count_nonzero((value > 0) & (value < least)))
        for name, key, declaration, value in total.items()
        if declaration.counts
    }
    few = {where: n_cells for where, n_cells in small.items() if n_cells}
    if few:
        raise DisclosureRefused(
            f"each cell of the total must be 0 or at least {least} patients; "
            f"smaller cells: {', '.join(map(str, few.values()))}",
            where=", ".join(few),
            hint=_HOW_TO_REACH_MINIMUM,
        )
