"""Cells of a few patients joined with their neighbours, at places that nobody's records decide.

Cells are halved, halved again, and so on, as a ruler is. A half with too few joins the nearest block of the other half
and goes to its place; two halves with too few become one block, whose place is the end of both.
A place is thus known to everybody, but for a single cell that holds enough patients by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Block(NamedTuple):
    """Cells that are joined.

    Parameters
    ----------
    cells : tuple of int
        Those that hold patients.
    totals : tuple of float
        Of every row.
    place : int
        Where they go.
    """

    cells: tuple[int, ...]
    totals: tuple[float, ...]
    place: int


def find_places(counts: NDArray[np.generic], least: int) -> Integers:
    """Return where the patients of each cell go, shape (n,); -1 where all are too few.

    Parameters
    ----------
    counts : array of shape (r, n)
        Rows over n cells that are joined alike.
    least : int
        In each block every row holds so many, or none.

    Examples
    --------
    >>> find_places(np.array([[3, 8, 0, 0, 12, 0, 0, 1]]), 10).tolist()
    [1, 1, 2, 3, 4, 5, 6, 4]
    """
    n_cells = counts.shape[1]
    places = np.arange(n_cells)
    occupied = np.flatnonzero(counts.any(axis=0)).tolist()
    totals = {cell: tuple(counts[:, cell].tolist()) for cell in occupied}
    depth = int(np.ceil(np.log2(max(n_cells, 2))))
    for block in _blocks(occupied, totals, 0, 2**depth, least):
        place = min(block.place, n_cells - 1) if _is_enough(block, least) else -1
        places[list(block.cells)] = place
    return places


def joined_bins(bins: Integers, happened: Flags, n_times: int, least: int) -> tuple[Integers, Flags]:
    """Move patients to the places of their blocks: in each so many have an event or none, and so many leave or none.

    Patients beyond the horizon leave at its last time where they are too few. Where the events of all are too few
    nothing happened; where all patients are too few nobody leaves.

    Parameters
    ----------
    bins, happened : arrays of shape (n,)
    n_times : int
    least : int

    Examples
    --------
    >>> bins, happened = joined_bins(np.array([0, 1, 2, 2]), np.array([True, True, True, False]), 3, 2)
    >>> bins.tolist(), happened.tolist()
    ([1, 1, 1, 1], [True, True, True, False])
    """
    if least <= 1:
        return bins, happened
    if int(happened.sum()) < least:
        happened = np.zeros(len(bins), dtype=np.bool_)
    stays = (bins >= n_times) & (int((bins >= n_times).sum()) >= least)
    inside = np.minimum(bins, n_times - 1)
    leaving = np.bincount(inside[~stays], minlength=n_times)
    events = np.bincount(inside[happened], minlength=n_times)
    places = find_places(np.array([events, leaving]), least)[inside]
    nobody = places < 0
    return np.where(stays | nobody, n_times, places).astype(np.int64), happened & ~nobody


def _blocks(occupied: list[int], totals: dict[int, tuple[float, ...]], low: int, high: int, least: int) -> list[Block]:
    """Return the blocks of the cells from `low` to below `high`: each holds enough, or there is a single one."""
    if not occupied:
        return []
    if high - low == 1:
        return [Block((low,), totals[low], low)]
    border = (low + high) // 2
    left = _blocks([cell for cell in occupied if cell < border], totals, low, border, least)
    right = _blocks([cell for cell in occupied if cell >= border], totals, border, high, least)
    place = high - 1
    if left and not _is_enough(left[0], least):
        return _absorbed(left[0], right, place, least)
    if right and not _is_enough(right[0], least):
        return _absorbed(right[0], left[::-1], place, least)[::-1]
    return left + right


def _absorbed(few: Block, others: list[Block], place: int, least: int) -> list[Block]:
    """Join a block of too few with the nearest others, until it holds enough."""
    joined = few
    for number, other in enumerate(others):
        own = other.place if _is_enough(other, least) else place
        totals = tuple(one + two for one, two in zip(joined.totals, other.totals, strict=True))
        joined = Block(joined.cells + other.cells, totals, own)
        if _is_enough(joined, least):
            return [joined, *others[number + 1 :]]
    return [joined._replace(place=place)]


def _is_enough(block: Block, least: int) -> bool:
    return all(total == 0 or total >= least for total in block.totals)
