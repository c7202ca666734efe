"""How the coordinator and the sites agree on columns, times, scales and thresholds, by sums."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.data.missing.values import GAP_STEPS, Missing, MissingValues, handle_missing
from multicentre.data.schema import check_columns
from multicentre.data.tabular import indicators_of
from multicentre.federation.errors import DataError, SchemaMismatch
from multicentre.federation.messages import Nothing
from multicentre.federation.session import Session
from multicentre.survival.agreement import messages as sent
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.agreement.sketch import bin_edges, column_edges, event_grid, horizon_of, rounded
from multicentre.survival.times import check_grid

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Needs:
    """What a method needs of the agreement.

    Parameters
    ----------
    n_times : int
        Length of the grid, at most; its times lie at quantiles of the events, its last at the horizon.
    horizon : float, optional
        Last time; by default the one by which 95 % of the follow-ups ended.
    times : array, optional
        The grid itself.
    exact : bool
        The grid holds all times of events, which every site's policy must permit.
    n_bins : int
        Bins of every column, at most 256; 0 for none.
    cause : int
        Which events count.
    """

    n_times: int = 64
    horizon: float | None = None
    times: Floats | None = None
    exact: bool = False
    n_bins: int = 0
    cause: int = 1


def agree(
    session: Session,
    part: type[SurvivalPart],
    needs: Needs,
    missing: Missing,
    *,
    counted: Callable[[sent.Columns], Sequence[str]] = lambda described: described.columns,
    marked: Sequence[str] | None = None,
) -> tuple[sent.Agreed, MissingValues]:
    """Agree on what a method needs; every site remembers it.

    Parameters
    ----------
    session : Session
    part : type
        The method's site part.
    needs : Needs
    missing : {"complete", "indicator", "mean"}
        How missing entries are handled.
    counted : callable, optional
        From the sites' columns to those in which a missing entry counts; all by default.
    marked : sequence of str, optional
        See :func:`multicentre.data.missing.values.handle_missing`.

    Returns
    -------
    tuple of Agreed and MissingValues

    Raises
    ------
    SchemaMismatch
        Sites have other columns, another order, or times in another unit.
    DataError
        No site has an event, or a column is empty at all of them.
    """
    described = session.once("described", sent.Columns, lambda: _describe(session, part))
    gaps = handle_missing(session, part, counted(described), described.levels, missing, marked=marked)
    flagged = gaps.incomplete_columns if marked is None else marked
    added = indicators_of(flagged) if missing == "indicator" else ()
    columns = (*described.columns, *added)
    agreed = session.once(
        "agreed", sent.Agreed, lambda: _settle(session, part, needs, replace(described, columns=columns))
    )
    return agreed, gaps


def steps_of_agreement(needs: Needs) -> frozenset[str]:
    """Return the names of the steps that :func:`agree` asks for.

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


def _settle(session: Session, part: type[SurvivalPart], needs: Needs, described: sent.Columns) -> sent.Agreed:
    columns = described.columns
    of_cause = sent.OfCause(needs.cause)
    counts = None if needs.times is not None else session.sum(part.count_times, of_cause)
    sizes = counts or session.sum(part.sum_sizes, of_cause)
    _check_sizes(sizes, columns)
    centre = sizes.total / sizes.present
    spread = np.sqrt(_sum_squares(session, part, centre, counts) / sizes.present)
    spread[spread <= 1e-9 * (1.0 + np.abs(centre))] = 1.0
    scale = sent.Scale(rounded(centre, spread), rounded(spread, spread))
    edges, first = _thresholds(session, part, scale, needs.n_bins)
    agreed = sent.Agreed(
        columns,
        described.units[0],
        needs.cause,
        sizes.n_patients,
        sizes.n_events,
        _grid(session, part, needs, counts),
        scale.centre,
        scale.spread,
        edges,
        first,
        levels=described.levels,
    )
    session.ask(part.agree, agreed)
    return agreed


def _describe(session: Session, part: type[SurvivalPart]) -> sent.Columns:
    described = session.ask(part.describe, Nothing())
    (first, answer), *others = described.items()
    for site, other in others:
        if other.units != answer.units:
            raise SchemaMismatch(
                f"times are in {other.units[0] or 'no unit'!r}; {first} has {answer.units[0] or 'none'!r}",
                where=f"site {site}",
                hint="Name the same unit everywhere, and convert the times to it.",
            )
        check_columns(f"site {site}", other, first, answer)
    return answer


def _check_sizes(sizes: sent.Sizes, columns: tuple[str, ...]) -> None:
    if sizes.n_events < 0.5:
        raise DataError(
            "no patient of any site has an event",
            where="event",
            hint="Write 1 where the event happened, 0 where not.",
        )
    empty = [name for name, present in zip(columns, sizes.present, strict=True) if present < 0.5]
    if empty:
        raise DataError("no site has a value", where=f"columns {', '.join(empty[:5])}", hint="Leave the columns out.")


def _thresholds(
    session: Session, part: type[SurvivalPart], scale: sent.Scale, n_bins: int
) -> tuple[Floats, NDArray[np.int64]]:
    n_columns = len(scale.centre)
    if not n_bins:
        return np.zeros(0), np.zeros(n_columns + 1, dtype=np.int64)
    counts = session.sum(part.count_columns, scale).counts
    edges = column_edges(scale.centre, scale.spread)
    found = [bin_edges(counts[column], edges[column], n_bins) for column in range(n_columns)]
    return np.concatenate(found), np.cumsum([0, *(len(each) for each in found)], dtype=np.int64)


def _sum_squares(session: Session, part: type[SurvivalPart], centre: Floats, counts: sent.TimeCounts | None) -> Floats:
    """Return sums of squared differences from the means; where times were counted, their units are compared too."""
    if counts is None:
        return session.sum(part.sum_squares, sent.About(centre)).squares
    sums = session.sum(part.compare_units, sent.Typical(centre, horizon_of(counts.leaving, 0.5)))
    n_odd = round(sums.n_sites)
    if n_odd:
        warnings.warn(
            f"the median follow-up of {n_odd} of {len(session)} sites differs tenfold from that of all: compare the "
            "units of their times. Each of these sites finds this in its own log.",
            UserWarning,
            stacklevel=6,
        )
    return sums.squares


def _grid(session: Session, part: type[SurvivalPart], needs: Needs, counts: sent.TimeCounts | None) -> Floats:
    if needs.times is not None:
        check_grid(needs.times)
        return needs.times
    assert counts is not None
    horizon = horizon_of(counts.leaving) if needs.horizon is None else float(needs.horizon)
    if needs.exact:
        told = session.ask(part.tell_times, sent.OfCause(needs.cause))
        times = np.unique(np.concatenate([answer.times for answer in told.values()]))
        return times if needs.horizon is None else times[times <= horizon]
    return event_grid(counts.events, horizon, needs.n_times)
