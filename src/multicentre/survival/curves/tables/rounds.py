"""Table of patients for curves and tests, as one sum over sites after the agreement.

The protocol consists of:

1. The coordinator and the sites agree on columns and a grid (see :mod:`multicentre.survival.agreement.rounds`).
2. The coordinator sends the definition of the groups and the causes of interest.
3. Each site returns counts of its patients by group, outcome and time, and the coordinator adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError
from multicentre.survival.agreement.coarsening import join_times, occupied_places, on_full_grid, places_to_keep
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.rounds import Needs, StatedTimes
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.curves.tables.risk import RiskTable
from multicentre.survival.curves.tables.site import ByGroup, ExactTable, Table, TablePart
from multicentre.survival.times import check_grid

Floats = NDArray[np.float64]
Times = Sequence[float] | Literal["exact"] | None


def needs_of(
    times: Times,
    n_times: int,
    horizon: float | None,
    cause: int,
    stated_times: StatedTimes | None = None,
) -> Needs:
    """Return the requirements of an estimator on the agreement.

    Raises
    ------
    ConfigurationError
        A parameter is invalid.

    Examples
    --------
    >>> needs_of("exact", 64, None, 1).exact
    True
    """
    if horizon is not None and not 0 < horizon < np.inf:
        raise ConfigurationError(f"horizon must be positive and finite; got {horizon!r}", where="horizon")
    if int(n_times) != n_times or not 2 <= n_times <= MAX_TIMES:
        raise ConfigurationError(f"n_times must be an integer from 2 to {MAX_TIMES}; got {n_times!r}", where="n_times")
    if isinstance(times, str) and times != "exact":
        raise ConfigurationError(
            f'times must be "exact" or increasing numbers; got {times!r}',
            where="times",
            hint='Pass "exact", or times in order.',
        )
    if times is None or isinstance(times, str):
        return Needs(int(n_times), horizon, exact=times == "exact", cause=int(cause), stated_times=stated_times)
    if horizon is not None:
        raise ConfigurationError(
            f"horizon must be None if times are set; got {horizon!r}",
            where="horizon",
            hint="The last of the times is the horizon: pass times= or horizon=.",
        )
    grid = np.asarray(times, dtype=np.float64)
    check_grid(grid)
    return Needs(times=grid, cause=int(cause))


def asks_exactly(times: Times) -> bool:
    """Return True for a grid that discloses recorded times: all of them, or more than 256.

    Examples
    --------
    >>> asks_exactly("exact"), asks_exactly([1.0, 2.0])
    (True, False)
    """
    return times is not None and (isinstance(times, str) or len(times) > MAX_TIMES)


def sum_table(
    session: Session,
    part: type[TablePart],
    agreed: Prepared,
    labels: tuple[str, ...],
    request: ByGroup,
    times: Times,
) -> tuple[RiskTable, int]:
    """Return the table of all sites' patients, and the number of patients without a group.

    If counts are too small for the sites' policies, the grid of the table has fewer times than the agreed one.

    Raises
    ------
    DataError
        A group has no patient at any site.
    """
    if asks_exactly(times):
        table: Table = session.once("table", ExactTable, lambda: session.sum(part.sum_exact_table, request))
    else:
        table = session.once("table", Table, lambda: session.sum(part.sum_table, request, coarsen=_coarsened))
    risks = as_risks(table, agreed.times, labels, times)
    if table.n_joined:
        places = occupied_places(risks.events, risks.leaving)
        events, leaving = join_times(risks.events, risks.leaving, places)
        risks = replace(risks, grid=risks.grid[places], events=events, leaving=leaving)
    empty = [label for label, patients in zip(labels, risks.n_patients, strict=True) if patients < 1]
    if empty:
        raise DataError(
            f"each group must have patients at one site or more; got none in {', '.join(empty[:5])}",
            where="group",
            hint="List only levels that occur.",
        )
    return risks, round(table.n_patients - float(risks.n_patients.sum()))


def _coarsened(table: Table, least: int) -> Table:
    """Return a total with neighbouring times joined until its counts meet the minimum, where that is possible."""
    places = places_to_keep(table.events, table.leaving, least)
    if places is None:
        return table
    events, leaving = on_full_grid(table.events, table.leaving, places)
    return replace(table, events=events, leaving=leaving, n_joined=float(events.shape[-1] - len(places)))


def as_risks(table: Table, grid: Floats, labels: tuple[str, ...], times: Times) -> RiskTable:
    """Convert counts to a table of risks."""
    return RiskTable(labels, grid, table.events, table.leaving, isinstance(times, str))


def plain(values: Any) -> Any:
    """Convert an array to a list, so that a model can be saved with it; other values are returned unchanged.

    Examples
    --------
    >>> plain(np.array([1.0, 2.0])), plain("exact")
    ([1.0, 2.0], 'exact')
    """
    return values.tolist() if isinstance(values, np.ndarray) else values
