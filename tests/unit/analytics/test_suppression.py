"""No suppressed count follows from the published ones: all tables with the same published entries are enumerated."""

import numpy as np
import pytest

from multicentre.analytics.describe.suppression import (
    Suppressed,
    hidden_groups,
    is_small,
    suppressed_by_site,
    suppressed_cells,
    with_totals,
)


def agrees_with(tables, true, suppressed, least):
    """Flag the tables whose shown entries are those of `true`, and whose other entries fit their marks."""
    fits = (tables == true)[:, ~suppressed.flags].all(axis=1)
    marked = suppressed.flags & suppressed.is_marked
    return fits & (is_small(tables, least) == is_small(true, least))[:, marked].all(axis=1)


def tables_of_counts(counts, suppressed, least):
    """Return all tables by group, with totals, that agree with what is shown."""
    n_columns, free = counts.shape[1], np.argwhere(suppressed.flags[:-1, : counts.shape[1]])
    values = np.indices([int(counts.sum()) + 1] * len(free)).reshape(len(free), -1).T if len(free) else np.zeros((1, 0))
    tables = np.repeat(counts[None], len(values), axis=0)
    tables[:, free[:, 0], free[:, 1]] = values
    full = np.concatenate([tables, tables.sum(axis=1, keepdims=True)], axis=1)
    if n_columns > 1:
        full = np.concatenate([full, full.sum(axis=2, keepdims=True)], axis=2)
    return full[agrees_with(full, with_totals(counts), suppressed, least)]


def varies(tables):
    return tables.max(axis=0) > tables.min(axis=0)


@pytest.mark.parametrize("least", [2, 3])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))])
@pytest.mark.parametrize("shape", [(2, 2), (3, 1), (4, 1), pytest.param((2, 3), marks=pytest.mark.slow)])
def test_every_suppressed_count_could_be_another_one(shape, seed, least):
    rng = np.random.default_rng([seed, *shape])
    table = rng.integers(0, 3 if shape == (2, 3) else 5, shape)
    hidden = hidden_groups(table.sum(axis=0), least)
    suppressed = suppressed_cells(table, least, hidden)
    totals, flags = with_totals(table), suppressed.flags
    small = is_small(totals, least)
    assert flags[:-1][small[:-1]].all()
    assert flags[-1, : shape[1]].tolist() == hidden.tolist()
    possible = tables_of_counts(table, suppressed, least)
    everything = np.ones_like(flags)
    everything[-1] = flags[-1]
    without = tables_of_counts(table, Suppressed(everything, np.zeros_like(flags)), least)
    # What follows from the numbers of patients alone cannot be protected, such as the only level of a variable.
    assert varies(possible)[flags & varies(without)].all()


def test_marks_are_given_up_if_they_would_tell_a_count():
    suppressed = suppressed_cells(np.array([[4], [4]]), 5)
    assert suppressed.flags.ravel().tolist() == [True, True, False]
    assert not suppressed.is_marked.any()  # "<5" twice of 8 patients is 4 and 4
    assert suppressed_cells(np.array([[4], [5]]), 5).is_marked.all()


def test_without_small_counts_nothing_is_suppressed():
    assert not suppressed_cells(np.array([[5, 0], [7, 9]]), 5).flags.any()


def test_the_smallest_partner_is_chosen():
    suppressed = suppressed_cells(np.array([[2, 90, 80], [50, 6, 70], [60, 60, 60]]), 5).flags
    assert {(0, 0), (1, 1)} <= {tuple(place) for place in np.argwhere(suppressed).tolist()}
    assert suppressed[:-1].sum() < 6


def split(table, weights, rng):
    """Divide every count among sites at random, shape (rows, sites)."""
    return np.array([rng.multinomial(count, weights) for count in table.sum(axis=1)])


def flows(groups, sites, published, site_flags, least):
    """Return the suppressed cells of all tables by group and by site that agree with what is shown."""
    by_totals, answers = {}, []
    for table in tables_of_counts(groups, published, least):
        totals = tuple(table[:2, -1].tolist())
        if totals not in by_totals:
            by_totals[totals] = tables_of_sites(sites, totals, ~site_flags)[:, site_flags]
        by_site = by_totals[totals]
        answers.append(np.column_stack([np.tile(table[published.flags], (len(by_site), 1)), by_site]))
    return np.concatenate(answers)


def tables_of_sites(sites, totals, shown):
    """Return the tables of two rows by site with given row totals, numbers of patients by site, and shown cells."""
    rows = []
    for place, total in enumerate(totals):
        ranges = [
            [count] if is_shown else range(total + 1)
            for count, is_shown in zip(sites[place], shown[place], strict=True)
        ]
        grid = np.array(np.meshgrid(*ranges, indexing="ij")).reshape(len(ranges), -1).T
        rows.append(grid[grid.sum(axis=1) == total])
    first, second = (each.ravel() for each in np.indices((len(rows[0]), len(rows[1]))))
    tables = np.stack([rows[0][first], rows[1][second]], axis=1)
    return tables[(tables.sum(axis=1) == sites.sum(axis=0)).all(axis=1)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 14))])
@pytest.mark.parametrize("refused", [0, 1, 2])
@pytest.mark.parametrize("n_groups", [1, 2])
def test_a_table_by_site_exposes_no_count_of_either_table(n_groups, refused, seed):
    rng = np.random.default_rng([seed, refused, n_groups])
    groups, least = rng.integers(0, 5, (2, n_groups)), 3
    sites = split(groups, [0.3, 0.3, 0.4], rng)
    published = suppressed_cells(groups, least, hidden_groups(groups.sum(axis=0), least))
    flags = suppressed_by_site(groups, sites, published, least, refused=refused)
    start = is_small(sites, least)
    if refused == 1:
        start[:, -1] |= sites[:, -1] > 0
    assert flags[start].all()
    possible = flows(groups, sites, published, flags, least)
    # Cells that are one number even if all cells by site are left out follow from numbers of patients alone.
    without = flows(groups, sites, published, np.ones_like(flags), least)
    of_shown = np.concatenate([np.ones(int(published.flags.sum()), bool), flags.ravel()])
    assert varies(possible)[varies(without)[of_shown]].all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_small_group_does_not_follow_from_any_number_of_variables(seed):
    """The number of patients of a hidden group could be another one in the tables of all variables at once."""
    rng = np.random.default_rng(seed)
    sizes, least = np.array([1, 4, 4]) + rng.integers(0, 2, 3), 3
    hidden = hidden_groups(sizes, least)
    assert hidden[0]
    assert hidden.sum() == 2
    possible_sizes = []
    for _ in range(3):
        table = np.array([rng.multinomial(size, [0.6, 0.4]) for size in sizes]).T
        suppressed = suppressed_cells(table, least, hidden)
        assert suppressed.flags[-1, :3].tolist() == hidden.tolist()
        possible_sizes.append({int(one[-1, 0]) for one in tables_of_counts(table, suppressed, least)})
    assert len(set.intersection(*possible_sizes)) > 1
