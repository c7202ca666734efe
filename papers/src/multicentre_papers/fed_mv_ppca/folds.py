"""Centres of a scenario, and a cross-validation inside each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.datasets import LabelledMultiView, cross_validation_splits, split_scenario
from multicentre_papers.fed_mv_ppca.plan import Cell
from multicentre_papers.fed_mv_ppca.samples import generator


@dataclass(frozen=True)
class Fold:
    """Training rows by centre, and rows that are held out of the fits.

    Parameters
    ----------
    number : int
        From 0.
    training : dict from str to LabelledMultiView
        Rows of each centre, without the views that it lacks.
    pooled : LabelledMultiView
        The same patients with all their views: not available to any federation.
    held_out : LabelledMultiView
        Held-out patients of all centres with all their views.
    """

    number: int
    training: dict[str, LabelledMultiView]
    pooled: LabelledMultiView
    held_out: LabelledMultiView


def hold_out(labelled: LabelledMultiView, cell: Cell, n_folds: int, repetition: int) -> Iterator[Fold]:
    """Yield the folds of a repetition in one cell of the table."""
    centres = split_scenario(labelled, cell.scenario, cell.n_sites, generator(repetition, 1))
    splits = {
        name: cross_validation_splits(one, n_folds, generator(repetition, 2, c))
        for c, (name, one) in enumerate(centres.items())
    }
    for f in range(n_folds):
        training = {name: one.take(splits[name][f][0]) for name, one in centres.items()}
        is_training = rows_of(labelled, training)
        yield Fold(f, training, labelled.take(is_training), labelled.take(~is_training))


def rows_of(labelled: LabelledMultiView, parts: dict[str, LabelledMultiView]) -> NDArray[np.bool_]:
    """Return the mask of the patients of a data set that are in one of its parts."""
    if labelled.data.ids is None:
        raise ValueError("each patient of a data set that is split into centres must have an identifier; got none")
    ids = np.concatenate([one.data.ids for one in parts.values() if one.data.ids is not None])
    return np.isin(labelled.data.ids, ids)
