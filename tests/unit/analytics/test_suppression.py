"""No suppressed count follows from the published ones: all tables with the same published entries are enumerated."""

import numpy as np
import pytest

from multicentre.analytics.describe.suppression import suppressed_cells, with_totals


def tables_with(table, suppressed, largest):
    """Return the suppressed entries of every table with the same published entries, shape (tables, suppressed)."""
    totals, (n_rows, n_columns) = with_totals(table), table.shape
    if not suppressed.any():
        return np.zeros((1, 0))
    free = np.argwhere(suppressed[:n_rows, :n_columns])
    values = np.indices([largest + 1] * len(free)).reshape(len(free), -1).T
    tables = np.repeat(table[None], len(values), axis=0)
    tables[:, free[:, 0], free[:, 1]] = values
    tables = np.concatenate([tables, tables.sum(axis=1, keepdims=True)], axis=1)
    if n_columns > 1:
        tables = np.concatenate([tables, tables.sum(axis=2, keepdims=True)], axis=2)
    agrees = (tables == totals)[:, ~suppressed].all(axis=1)
    return tables[agrees][:, suppressed]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3), (3, 1), (4, 1)])
def test_every_suppressed_count_could_be_another_one(shape, seed):
    rng = np.random.default_rng([seed, *shape])
    table, least = rng.integers(0, 6, shape), 3
    suppressed = suppressed_cells(table, least)
    totals = with_totals(table)
    assert suppressed[(totals > 0) & (totals < least)].all()
    possible = tables_with(table, suppressed, 7)
    assert len(possible)
    assert (possible.max(axis=0) > possible.min(axis=0)).all()


def test_without_small_counts_nothing_is_suppressed():
    assert not suppressed_cells(np.array([[5, 0], [7, 9]]), 5).any()


def test_the_smallest_partner_is_chosen():
    suppressed = suppressed_cells(np.array([[2, 90, 80], [50, 6, 70], [60, 60, 60]]), 5)
    assert np.argwhere(suppressed).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
