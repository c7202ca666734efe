"""How curves and tests come to their table: the agreement on a grid, then one sum over sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.session import Session
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.rounds import Needs
from multicentre.survival.agreement.site import MOST_TIMES
from multicentre.survival.curves.tables import site as sent
from multicentre.survival.curves.tables.risk import RiskTable
from multicentre.survival.curves.tables.site import TablePart
from multicentre.survival.times import check_grid

Times = Sequence[float] | Literal["exact"] | None


def needs_of(times: Times, n_times: int, horizon: float | None, cause: int) -> Needs:
    """Return what an estimator's parameters ask of the agreement.

    Raises
    ------
    ConfigurationError
        A parameter cannot be used.

    Examples
    --------
    >>> needs_of("exact", 64, None, 1).exact
    True
    """
    if horizon is not None and not 0 < horizon < np.inf:
        raise ConfigurationError(f"{horizon!r} is not a time above 0", where="horizon")
    if int(n_times) != n_times or not 2 <= n_times <= MOST_TIMES:
        raise ConfigurationError(f"{n_times!r} is not a number from 2 to {MOST_TIMES}", where="n_times")
    if isinstance(times, str) and times != "exact":
        raise ConfigurationError(f"{times!r} is not known", where="times", hint='Give "exact", or times in order.')
    if times is None or isinstance(times, str):
        return Needs(n_times=int(n_times), horizon=horizon, exact=times == "exact", cause=int(cause))
    if horizon is not None:
        raise ConfigurationError("the last time is the horizon", where="horizon", hint="Give times= or horizon=.")
    grid = np.asarray(times, dtype=np.float64)
    check_grid(grid)
    return Needs(times=grid, cause=int(cause))


def asks_exactly(times: Times) -> bool:
    """Tell whether a grid shows times as they were recorded: all of them, or more than 256.

    Examples
    --------
    >>> asks_exactly("exact"), asks_exactly([1.0, 2.0])
    (True, False)
    """
    return times is not None and (isinstance(times, str) or len(times) > MOST_TIMES)


def sum_table(
    session: Session,
    part: type[TablePart],
    agreed: Agreed,
    labels: tuple[str, ...],
    ask: sent.ByGroup,
    times: Times,
) -> tuple[RiskTable, int]:
    """Return the table of all sites' patients, and how many of them are not in it.

    Raises
    ------
    DataError
        A group has no patient at any site.
    """
    if asks_exactly(times):
        table: sent.Table = session.once("table", sent.ExactTable, lambda: session.sum(part.sum_exact_table, ask))
    else:
        table = session.once("table", sent.Table, lambda: session.sum(part.sum_table, ask))
    found = as_risks(table, agreed, labels, times)
    empty = [label for label, patients in zip(labels, found.n_patients, strict=True) if patients < 1]
    if empty:
        raise DataError(
            f"no patient of any site is in {', '.join(empty[:5])}",
            where="group",
            hint="Name the levels that occur.",
        )
    return found, round(table.n_patients - float(found.n_patients.sum()))


def as_risks(table: sent.Table, agreed: Agreed, labels: tuple[str, ...], times: Times) -> RiskTable:
    """Return counts as a table of risks."""
    exact = isinstance(times, str)
    return RiskTable(labels, agreed.times, table.events, table.leaving, exact)


def plain(values: Any) -> Any:
    """Return an array as a list, so that a model can be saved with it, and anything else as it is.

    Examples
    --------
    >>> plain(np.array([1.0, 2.0])), plain("exact")
    ([1.0, 2.0], 'exact')
    """
    return values.tolist() if isinstance(values, np.ndarray) else values
