"""Agreement of the coordinator and the sites on columns, times, scales and thresholds, via sums.

The agreement consists of:

1. Each site returns the names of its columns and the unit of its times. The coordinator checks that they are equal.
2. The coordinator sends the cause of interest. Each site returns counts of patients and events, sums of its columns,
   and counts of patients by public bin of time.
3. The coordinator sends the means and the median follow-up. Each site returns squared differences, and a flag for times
   that seem to have another unit.
4. If columns are binned, each site returns counts by public bin of every column.
5. The coordinator sends the agreement: columns, grid, end of follow-up, means, standard deviations and thresholds. Each
   site stores it, and returns its numbers of patients and events after the end of follow-up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.core.ties import tied_times
from multicentre.core.wire import encode
from multicentre.data.missing.values import GAP_STEPS, Missing, MissingValues
from multicentre.data.schema import check_columns
from multicentre.errors import DataError, SchemaMismatch
from multicentre.formula.agreement import SharedColumns, share_columns
from multicentre.formula.grammar import Formula
from multicentre.survival.agreement import messages
from multicentre.survival.agreement.named_columns import NamedColumnsPart
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.agreement.sketch import (
    LATEST,
    bin_edges,
    column_edges,
    event_grid,
    horizon_of,
    move_to,
    rounded,
)
from multicentre.survival.times import check_grid

Floats = NDArray[np.float64]
# Sums of weights below this are the rounding of masked sums: the column is empty.
SMALLEST = 1e-5
# From the horizon and the unit of times to times at which results are stated.
StatedTimes = Callable[[float, str], Sequence[float]]


@dataclass(frozen=True)
class Needs:
    """Requirements of a method on the agreement.

    Parameters
    ----------
    n_times : int
        Largest number of times of the grid. The times are quantiles of the event times, the last is the horizon.
    horizon : float, optional
        Last time; by default the time by which 95 % of the follow-ups ended.
    times : array, optional
        Times of the grid, if set by the caller.
    exact : bool
        Use the times of all events as grid, which every site's policy must permit.
    n_bins : int
        Bins of every column, at most 256; 0 for none.
    cause : int
        Code of the event of interest.
    stated_times : callable, optional
        Function from the horizon and the unit to times at which results are stated; the nearest
        quantiles are moved to them.
    ends : float, optional
        End of follow-up, after which events do not count. By default the last time of the grid; with exact times the
        horizon, or none.
    """

    n_times: int = 64
    horizon: float | None = None
    times: Floats | None = None
    exact: bool = False
    n_bins: int = 0
    cause: int = 1
    stated_times: StatedTimes | None = None
    ends: float | None = None


class Agreement(NamedTuple):
    """Result of :func:`agree`: the agreement, its columns, and what lies after the end of follow-up."""

    agreed: messages.Prepared
    shared: SharedColumns
    after: messages.AfterHorizon

    @property
    def missing(self) -> MissingValues:
        """Missing values, over all sites."""
        return self.shared.missing_values


def agree(
    session: Session,
    part: type[SurvivalPart],
    needs: Needs,
    missing: Missing,
    *,
    formula: Formula | None = None,
    named: messages.NamedColumns | None = None,
    counted: Callable[[messages.Columns], Sequence[str]] = lambda described: described.columns,
    marked: Sequence[str] | None = None,
) -> Agreement:
    """Agree on the requirements of a method; every site stores the agreement.

    Parameters
    ----------
    session : Session
    part : type
        The method's site part.
    needs : Needs
    missing : {"complete", "indicator", "mean"}
        How missing entries are handled.
    formula : Formula, optional
        Formula whose columns the sites build; the columns of the data by default.
    named : NamedColumns, optional
        Columns that are no covariates, for a site part that sets them aside.
    counted : callable, optional
        Function from the sites' columns to those in which missing entries are counted; all by default. With a formula
        they are those it needs.
    marked : sequence of str, optional
        See :func:`multicentre.data.missing.values.handle_missing`.

    Returns
    -------
    Agreement

    Raises
    ------
    SchemaMismatch
        Sites differ in their columns, the order of columns, or the unit of times.
    DataError
        No site has an event, or a column is empty at all sites.
    """
    described = session.once(
        "described",
        messages.Columns,
        lambda: session.shared("survival columns", None, lambda: _describe(session, part)),
    )
    named = named if named is not None and named.names else None
    names = () if named is None else named.names
    shared = share_columns(
        session, part, described, formula, missing, named=names, counted=counted(described), marked=marked
    )
    if named is not None:
        session.ask(cast("type[NamedColumnsPart]", part).set_aside, named)
        shared = replace(shared, columns=tuple(name for name in shared.columns if name not in names))
    agreed = session.once(
        "agreed", messages.Prepared, lambda: _settle(session, part, needs, described.units[0], shared, named)
    )
    after = session.once("after horizon", messages.AfterHorizon, lambda: session.sum(part.agree, agreed))
    return Agreement(agreed, shared, after)


def steps_of_agreement(needs: Needs) -> frozenset[str]:
    """Return the names of the steps that :func:`agree` uses.

    Examples
    --------
    >>> sorted(steps_of_agreement(Needs()))
    ['add_indicators', 'agree', 'compare_units', 'count_gaps', 'count_times', 'describe', 'handle_gaps', 'report_gaps']
    """
    counting = {"count_times", "compare_units"} if needs.times is None else {"sum_sizes", "sum_squares"}
    steps = {"describe", "agree"} | GAP_STEPS | counting
    if needs.exact:
        steps |= {"tell_times"}
    if needs.n_bins:
        steps |= {"count_columns"}
    return frozenset(steps)


def _settle(
    session: Session,
    part: type[SurvivalPart],
    needs: Needs,
    unit: str,
    shared: SharedColumns,
    named: messages.NamedColumns | None,
) -> messages.Prepared:
    columns, gaps = shared.columns, shared.missing_values
    # Records that take part: those without a missing entry in some columns, or all.
    complete = gaps.columns if gaps.missing == "complete" and gaps.n_incomplete else ()
    made = tuple(b"" if each is None else encode(each) for each in (shared.design, named))
    of_cause, about = messages.OfCause(needs.cause), (needs.cause, columns, complete, made)
    counts = None
    if needs.times is None:
        counts = session.shared("survival times", about, lambda: session.sum(part.count_times, of_cause))
    sizes = counts or session.shared("survival sizes", about, lambda: session.sum(part.sum_sizes, of_cause))
    _check_sizes(sizes, columns)
    centre = sizes.total / sizes.present
    with_units = (*about, counts is not None)
    squares = session.shared("squares", with_units, lambda: _sum_squares(session, part, centre, counts))
    spread = np.sqrt(squares / sizes.present)
    spread[spread <= 1e-9 * (1.0 + np.abs(centre))] = 1.0
    scale = messages.Scale(rounded(centre, spread), rounded(spread, spread))
    edges, first = _thresholds(session, part, scale, needs.n_bins)
    grid = _grid(session, part, needs, counts, unit)
    return messages.Prepared(
        columns,
        unit,
        needs.cause,
        sizes.n_patients,
        sizes.n_events,
        grid,
        scale.centre,
        scale.spread,
        edges,
        first,
        levels=shared.levels,
        ends=_end_of_follow_up(needs, grid),
    )


def _end_of_follow_up(needs: Needs, grid: Floats) -> float:
    if needs.ends is not None:
        return needs.ends
    if needs.exact:
        return messages.LARGEST if needs.horizon is None else float(needs.horizon)
    return float(grid[-1])


def _describe(session: Session, part: type[SurvivalPart]) -> messages.Columns:
    described = session.ask(part.describe, Nothing())
    (first, answer), *others = described.items()
    for site, other in others:
        if other.units != answer.units:
            raise SchemaMismatch(
                f"times must have the unit of {first}, {answer.units[0] or 'none'!r}; got "
                f"{other.units[0] or 'no unit'!r}",
                where=f"site {site}",
                hint="Use the same unit at every site, and convert the times to it.",
            )
        check_columns(f"site {site}", other, first, answer)
    return answer


def _check_sizes(sizes: messages.Sizes, columns: tuple[str, ...]) -> None:
    if sizes.n_events < 0.5:
        raise DataError(
            "at least one patient must have an event; got no event at any site",
            where="event",
            hint="Write 1 where the event happened, 0 where not.",
        )
    empty = [name for name, present in zip(columns, sizes.present, strict=True) if present < SMALLEST]
    if empty:
        raise DataError(
            "at least one site must have values of every column; got none",
            where=f"columns {', '.join(empty[:5])}",
            hint="Leave the columns out.",
        )


def _thresholds(
    session: Session, part: type[SurvivalPart], scale: messages.Scale, n_bins: int
) -> tuple[Floats, NDArray[np.int64]]:
    n_columns = len(scale.centre)
    if not n_bins:
        return np.zeros(0), np.zeros(n_columns + 1, dtype=np.int64)
    counts = session.sum(part.count_columns, scale).counts
    edges = column_edges(scale.centre, scale.spread)
    column_edges_ = [bin_edges(counts[column], edges[column], n_bins) for column in range(n_columns)]
    return np.concatenate(column_edges_), np.cumsum([0, *(len(each) for each in column_edges_)], dtype=np.int64)


def _sum_squares(
    session: Session, part: type[SurvivalPart], centre: Floats, counts: messages.TimeCounts | None
) -> Floats:
    """Return sums of squared differences from the means; if times were counted, compare their units too."""
    if counts is None:
        return session.sum(part.sum_squares, messages.About(centre)).squares
    sums = session.sum(part.compare_units, messages.Typical(centre, horizon_of(counts.leaving, 0.5)))
    n_odd = round(sums.n_sites)
    if n_odd:
        warnings.warn(
            f"the median follow-up of {n_odd} of {len(session)} sites differs tenfold from that of all. Compare the "
            "units of their times. Each of these sites has a warning in its log.",
            UserWarning,
            stacklevel=6,
        )
    return sums.squares


def _warn_of_late_horizon(horizon: float, leaving: Floats) -> None:
    """Warn if nobody is followed up to the horizon: curves are constant and means extrapolated from the last time on.

    An evaluation without a separate horizon passes the last of the public times, `LATEST`.
    """
    last = horizon_of(leaving, 1.0)
    if last < horizon < LATEST:
        warnings.warn(
            f"horizon must be at most the last follow-up of all sites, about {last:.4g}; got {horizon:.6g}. Results "
            "after the last follow-up rest on no patient. Fit with an earlier horizon.",
            UserWarning,
            stacklevel=6,
        )


def _grid(
    session: Session, part: type[SurvivalPart], needs: Needs, counts: messages.TimeCounts | None, unit: str
) -> Floats:
    if needs.times is not None:
        check_grid(needs.times)
        return needs.times
    assert counts is not None
    horizon = horizon_of(counts.leaving) if needs.horizon is None else float(needs.horizon)
    _warn_of_late_horizon(horizon, counts.leaving)
    if needs.exact:
        answers = session.ask(part.tell_times, messages.OfCause(needs.cause))
        times = np.unique(tied_times(np.concatenate([answer.times for answer in answers.values()])))
        return times if needs.horizon is None else times[times <= horizon]
    grid = event_grid(counts.events, horizon, needs.n_times)
    if needs.stated_times is None:
        return grid
    return move_to(grid, np.asarray(needs.stated_times(horizon, unit), np.float64))
