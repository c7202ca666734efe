"""Suppression of small cells, and of further cells without which the small ones would follow from the margins.

A table is a list of cells and of equations between them: a row adds up to its total, a column to its own. The cells of
a level by group, its total, and its cells by site are a flow from groups through levels to sites. Tables with the same
published cells are therefore the whole numbers of a polytope whose corners are whole, and a cell is exposed if its
smallest and its largest value over the polytope are equal. What a mark says ("<5") is part of the polytope.

Numbers of patients of groups and sites are published, except those of hidden ones, whose columns are left out of every
table: the tables of all variables then agree with any division of the patients among the hidden groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from multicentre.core.published_counts import MIN_MARK, is_small

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Suppressed:
    """Entries of a table that are not published.

    Parameters
    ----------
    flags : array of bool
    is_marked : array of bool
        Entries among them whose mark may say that they are small; others have a mark that says nothing.
    """

    flags: Flags
    is_marked: Flags


@dataclass(frozen=True)
class Cells:
    """Cells of tables and their equations.

    Parameters
    ----------
    values : array of shape (m,)
        Patients by cell.
    equations : array of shape (k, m)
        Signed cells of each equation, which add up to 0.
    is_total : array of shape (m,)
        True for cells that are left out last.
    is_fixed : array of shape (m,)
        True for cells that were published before, or left out, and stay so.
    is_marked : array of shape (m,)
        True for cells whose mark, if they are left out, says whether they are small.
    least : int
        Counts of 1 to ``least - 1`` are small.
    """

    values: Counts
    equations: Floats
    is_total: Flags
    is_fixed: Flags
    is_marked: Flags
    least: int

    def suppress(self, suppressed: Flags) -> tuple[Flags, bool]:
        """Return the flags with further ones, until every flagged cell could be at least two different numbers.

        Cells are chosen by the number of equations that they share with exposed cells, then by size.

        Returns
        -------
        array of bool
        bool
            False if every other cell is flagged or fixed, and a flagged cell is still exposed.
        """
        suppressed = suppressed.copy()
        safe: Flags = np.zeros(len(suppressed), dtype=np.bool_)
        while (exposed := self._exposed(suppressed, safe)).any():
            partner = self._partner(suppressed, exposed)
            if partner is None:
                return suppressed, False
            suppressed[partner] = True
        return suppressed, True

    def _exposed(self, suppressed: Flags, safe: Flags) -> Flags:
        """Flag the suppressed cells that can be one number only, and note others in `safe`."""
        places = np.flatnonzero(suppressed)
        equations = self.equations[:, places]
        equations, hidden = equations[(equations != 0).any(axis=1)], self.values[places].astype(np.float64)
        constants, bounds = equations @ hidden, self._bounds(places)
        exposed: Flags = np.zeros(len(suppressed), dtype=np.bool_)
        for number, place in enumerate(places.tolist()):
            aim = np.zeros(len(places))
            for sign in (1.0, -1.0):
                if safe[place]:
                    break
                aim[number] = sign
                corner = _corner(aim, equations, constants, bounds)
                if corner is None:  # the cell has no upper limit
                    safe[place] = True
                else:
                    safe[places[np.abs(corner - hidden) > 0.5]] = True
            exposed[place] = not safe[place]
        return exposed

    def _bounds(self, places: Counts) -> Floats:
        """Return the smallest and largest number that a mark allows, shape (len(places), 2)."""
        values, marked = self.values[places], self.is_marked[places]
        small = marked & is_small(values, self.least)
        low = np.where(small, 1, np.where(marked & (values >= self.least), self.least, 0))
        return np.column_stack([low, np.where(small, self.least - 1.0, np.inf)])

    def _partner(self, suppressed: Flags, exposed: Flags) -> int | None:
        near = (self.equations[:, exposed] != 0).any(axis=1)
        # The mark of a zero says that it is 0 or large, so that a zero hides nothing.
        barred = suppressed | self.is_fixed | (self.is_marked & (self.values == 0))
        shared = np.where(barred, 0, (self.equations[near] != 0).sum(axis=0))
        if not shared.any():
            return None
        largest = int(self.values.max()) + 1
        # Totals, and cells of 0, follow only if nothing else is left.
        sizes = self.values + largest * (self.values == 0) + 2 * largest * self.is_total
        return int(np.argmin(np.where(shared == shared.max(), sizes, 4 * largest)))


def _corner(aim: Floats, equations: Floats, constants: Floats, bounds: Floats) -> Floats | None:
    """Return the corner of the polytope at which a sum of cells is smallest; None if it has no limit."""
    solution = linprog(aim, A_eq=equations, b_eq=constants, bounds=bounds, method="highs")
    return np.asarray(solution.x, dtype=np.float64) if solution.status == 0 else None


def with_totals(counts: Counts) -> Counts:
    """Return a table with a last row of column totals and, for two columns or more, a last column of row totals.

    Examples
    --------
    >>> with_totals(np.array([[1, 2], [3, 4]])).tolist(), with_totals(np.array([[1], [3]])).tolist()
    ([[1, 2, 3], [3, 4, 7], [4, 6, 10]], [[1], [3], [4]])
    """
    table = np.vstack([counts, counts.sum(axis=0)])
    return np.column_stack([table, table.sum(axis=1)]) if counts.shape[1] > 1 else table


def hidden_groups(sizes: Counts, least: int) -> Flags:
    """Flag the groups whose patients must not be shown at all, given the number of all patients.

    Parameters
    ----------
    sizes : array of shape (G,)
        Patients of each group.
    least : int
        Smallest number of patients that may be published, except 0.

    Examples
    --------
    >>> hidden_groups(np.array([3, 60, 40]), 5).tolist(), hidden_groups(np.array([60, 40]), 5).tolist()
    ([True, False, True], [False, False])
    """
    none = np.zeros(len(sizes), dtype=np.bool_)
    marked = np.full(len(sizes), least >= MIN_MARK)
    # One equation, with the number of all patients, which is published.
    cells = Cells(sizes, np.ones((1, len(sizes))), none, none, marked, least)
    return cells.suppress(is_small(sizes, least))[0]


def suppressed_cells(counts: Counts, least: int, hidden: Flags | None = None) -> Suppressed:
    """Flag the entries of a table with totals that must not be published.

    Entries of 1 to ``least - 1`` patients are flagged. Further entries follow, the smallest first, until every flagged
    entry could be at least two different numbers, given all entries and marks that are shown.

    Parameters
    ----------
    counts : array of shape (r, c)
        Patients by row and column, without totals.
    least : int
        Smallest number of patients that may be published, except 0.
    hidden : array of bool of shape (c,), optional
        Columns of which only zeros that follow anyway are shown; see :func:`hidden_groups`. The totals of the other
        columns, and of all, are published.

    Returns
    -------
    Suppressed
        Arrays of the shape of :func:`with_totals`.

    Examples
    --------
    >>> suppressed_cells(np.array([[3, 20], [40, 50], [30, 60]]), 5).flags.tolist()
    [[True, True, False], [False, False, False], [True, True, False], [False, False, False]]
    >>> suppressed_cells(np.array([[3], [40], [30]]), 5).flags.ravel().tolist()
    [True, False, True, False]
    """
    table, inner = with_totals(counts), counts.shape[1]
    places = np.arange(table.size).reshape(table.shape)
    equations = [_equation(table.size, column[:-1], column[-1:]) for column in places.T]
    if inner > 1:
        equations += [_equation(table.size, row[:-1], row[-1:]) for row in places]
    is_total: Flags = np.zeros(table.shape, dtype=np.bool_)
    is_total[:, inner:] = True
    is_fixed: Flags = np.zeros(table.shape, dtype=np.bool_)
    is_fixed[-1] = True
    start = is_small(table, least) & ~is_fixed
    is_hidden: Flags = np.zeros(table.shape, dtype=np.bool_)
    if hidden is not None and hidden.any():
        start[:-1, :inner] |= hidden[None, :] & (counts[:, hidden].sum(axis=1, keepdims=True) > 0)
        start[-1, :inner] = hidden
        is_hidden[:, :inner] = hidden
    # Marks are given up if they would expose a cell.
    for is_marked in (~is_hidden & (least >= MIN_MARK), np.zeros(table.shape, dtype=np.bool_)):
        total, fixed, marked = (each.ravel() for each in (is_total, is_fixed, is_marked))
        flags, is_safe = Cells(table.ravel(), np.array(equations), total, fixed, marked, least).suppress(start.ravel())
        if is_safe:
            break
    return Suppressed(flags.reshape(table.shape), is_marked)


def suppressed_by_site(
    groups: Counts,
    sites: Counts,
    published: Suppressed,
    least: int,
    *,
    hidden: Flags | None = None,
    refused: int = 0,
) -> Flags:
    """Flag the entries of a table by site that must not be published next to a table by group.

    Entries that are left out by site have a mark that says nothing. The numbers of patients of sites that are not
    hidden count as published.

    Parameters
    ----------
    groups : array of shape (r, c)
        Patients by row and group, without totals.
    sites : array of shape (r, s)
        Patients by row and site, without totals. If sites refused, their patients together are the last column.
    published : Suppressed
        Result of :func:`suppressed_cells` for `groups`; these entries stay as they are.
    least : int
    hidden : array of bool of shape (s,), optional
        Sites of which only zeros that follow anyway are shown; see :func:`hidden_groups`.
    refused : int, default 0
        Number of sites in the last column. All entries of a single one are left out.

    Returns
    -------
    array of bool of shape (r, s)

    Examples
    --------
    >>> by_group = np.array([[30], [40]])
    >>> suppressed_by_site(by_group, np.array([[3, 12, 15], [20, 10, 10]]), suppressed_cells(by_group, 5), 5).tolist()
    [[True, True, False], [True, True, False]]
    """
    by_group, by_site = with_totals(groups), np.vstack([sites, sites.sum(axis=0)])
    n_groups, size = by_group.size, by_group.size + by_site.size
    group_places = np.arange(n_groups).reshape(by_group.shape)
    site_places = n_groups + np.arange(by_site.size).reshape(by_site.shape)
    equations = [_equation(size, column[:-1], column[-1:]) for column in [*group_places.T, *site_places.T]]
    equations += [_equation(size, row, group_places[place, -1:]) for place, row in enumerate(site_places)]
    if groups.shape[1] > 1:
        equations += [_equation(size, row[:-1], row[-1:]) for row in group_places]
    start = is_small(by_site, least)
    start[-1] = False
    if refused == 1:
        start[:-1, -1] = sites[:, -1] > 0
    if hidden is not None and hidden.any():
        start[:-1] |= hidden[None, :] & (sites[:, hidden].sum(axis=1, keepdims=True) > 0)
        start[-1] = hidden
    is_fixed: Flags = np.zeros(by_site.shape, dtype=np.bool_)
    is_fixed[-1] = True
    fixed = np.concatenate([np.ones(n_groups, dtype=np.bool_), is_fixed.ravel()])
    marked = np.concatenate([published.is_marked.ravel(), np.zeros(by_site.size, dtype=np.bool_)])
    values = np.concatenate([by_group.ravel(), by_site.ravel()])
    flags, _ = Cells(values, np.array(equations), fixed, fixed, marked, least).suppress(
        np.concatenate([published.flags.ravel(), start.ravel()])
    )
    return flags[n_groups:].reshape(by_site.shape)[:-1]


def _equation(size: int, parts: Counts, total: Counts) -> Floats:
    row = np.zeros(size)
    row[parts], row[total] = 1.0, -1.0
    return row
