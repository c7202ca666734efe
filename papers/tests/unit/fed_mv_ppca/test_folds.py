"""Nobody is in training and held out at once, and held-out patients keep all their views."""

import numpy as np
import pytest

from multicentre.datasets import simulate_sd
from multicentre_papers.fed_mv_ppca.folds import hold_out
from multicentre_papers.fed_mv_ppca.plan import FULL, Cell
from multicentre_papers.fed_mv_ppca.published import TABLE_2
from multicentre_papers.fed_mv_ppca.samples import scale_to_unit_interval


@pytest.mark.parametrize("cell", FULL.cells, ids=str)
def test_folds_partition_the_patients(cell):
    labelled = simulate_sd(0, n_patients=120)
    held_out = []
    for fold in hold_out(labelled, cell, 3, repetition=0):
        learnt = np.concatenate([one.data.ids for one in fold.training.values()])
        assert len(fold.training) == cell.n_sites
        assert sorted(learnt) == sorted(fold.pooled.data.ids)
        assert not set(learnt) & set(fold.held_out.data.ids)
        assert fold.held_out.data.views == fold.pooled.data.views == labelled.data.views
        held_out += fold.held_out.data.ids.tolist()
    assert sorted(held_out) == sorted(labelled.data.ids)


def test_repetitions_differ_and_can_be_repeated():
    def first(repetition):
        fold = next(hold_out(simulate_sd(0, n_patients=60), Cell("IID", 3), 3, repetition))
        return fold.held_out.data.ids.tolist()

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_columns_fill_the_unit_interval():
    scaled = scale_to_unit_interval(simulate_sd(0, n_patients=50)).data
    for view in scaled.views:
        assert np.allclose([scaled.array(view).min(axis=0), scaled.array(view).max(axis=0)], [[0.0], [1.0]])


def test_the_full_plan_has_the_cells_of_the_published_table():
    assert {(cell.scenario, cell.n_sites) for cell in FULL.cells} == {place[:2] for place in TABLE_2}
