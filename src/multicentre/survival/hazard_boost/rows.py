"""A site's patients in their intervals: margins under the trees so far, and sums over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.hazard_boost import messages as sent

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]


class Rows:
    """Margins of every patient in every interval, and the slopes of the log-loss that follow from them.

    Parameters
    ----------
    patients : Patients
    data : SurvivalData
    last : array of shape (n,)
        Last interval in which each patient counts, -1 for none.
    memory : Memory
        Where patients start, and whom a tree sees.

    Attributes
    ----------
    seen : array of shape (n,)
        Last interval of the patients that the present tree sees; -1 for all others.
    losses : array of shape (2, 2)
        Log-loss, in 2**-20, and number of the patients that the present tree sees, and of those that no tree sees.
    """

    def __init__(self, patients: Patients, data: SurvivalData, last: Integers, memory: sent.Memory) -> None:
        self._binned = patients.binned
        self._happened = patients.happened
        self._last = last
        self._memory = memory
        self._keys = _keys(data) if memory.subsample < 1 or memory.validation > 0 else None
        self._margins = np.repeat(memory.base[None, :], len(last), axis=0)
        self._n_trees = 0
        self._fewest, self._n_counted = len(last), 0
        self._derive()

    def catch_up(self, trees: sent.Ensemble) -> None:
        """Add the trees that are new, one after the other; after a return to fewer trees, all of them."""
        from multicentre.survival.kernels.hazard_rows import add_trees

        n_trees = len(trees.roots)
        if n_trees == self._n_trees:
            return
        if n_trees < self._n_trees:
            self._margins[:], self._n_trees = self._memory.base, 0
        cuts = trees.cut.astype(np.float64)
        nodes = (trees.column, cuts, trees.left, trees.right, trees.value)
        add_trees(self._margins, self._binned, self._last, trees.roots[self._n_trees :], *nodes)
        self._n_trees = n_trees
        self._derive()

    def sum_by_bin(self, tree: sent.Tree, wanted: Integers, first: Sums) -> tuple[Sums, Sums, Sums]:
        """Return sums of slopes and curvatures, and numbers of patients, at the wanted leaves, each (s, q)."""
        from multicentre.survival.kernels.hazard_histogram import sum_by_bin

        row = np.full(len(tree.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        cuts = tree.cut.astype(np.float64)
        nodes = (tree.column, cuts, tree.left, tree.right)
        return sum_by_bin(self._binned, self.seen, self._slopes, self._curvatures, *nodes, row, first)

    def fewest_in_leaf(self, trees: sent.Ensemble) -> int:
        """Return how many patients are in the leaf of any tree with the fewest but some.

        Those whom trees may see and those held out count separately, as their losses leave separately.
        """
        from multicentre.survival.kernels.hazard_rows import count_leaves

        for number in range(self._n_counted, len(trees.roots)):
            tree = trees.first(number + 1).last_tree
            nodes = tree.column, tree.cut.astype(np.float64), tree.left, tree.right
            for chosen in (self._held_out, ~self._held_out):
                last = np.where(chosen, self._last, -1).astype(np.int32)
                counts = count_leaves(self._binned, last, *nodes, self._margins.shape[1])
                self._fewest = int(counts[counts > 0].min(initial=self._fewest))
        self._n_counted = len(trees.roots)
        return self._fewest

    @property
    def _held_out(self) -> NDArray[np.bool_]:
        return self._draw(0) < self._memory.validation

    def _derive(self) -> None:
        from multicentre.survival.kernels.hazard_rows import derive_log_loss

        self._slopes, self._curvatures, losses = derive_log_loss(self._margins, self._last, self._happened)
        held_out = self._held_out
        drawn = self._draw(self._n_trees + 1) < self._memory.subsample
        self.seen = np.where(drawn & ~held_out, self._last, -1).astype(np.int32)
        counted = self._last >= 0
        groups = (self.seen >= 0, counted & held_out)
        self.losses = np.array([[losses[group].sum(), group.sum()] for group in groups], dtype=np.int64)

    def _draw(self, number: int) -> Floats:
        from multicentre.survival.kernels.patient_draws import draw_uniform

        if self._keys is None:
            return np.zeros(len(self._last))
        return draw_uniform(self._keys, self._memory.seed, number)


def _keys(data: SurvivalData) -> NDArray[np.uint64]:
    from multicentre.survival.kernels.patient_draws import patient_keys

    return patient_keys(data.X, data.time, data.event, data.ids)
