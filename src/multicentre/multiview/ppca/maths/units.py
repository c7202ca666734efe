"""Units in which a hierarchical site's sums travel, so that fixed-point numbers carry them however small they become.

As the variances between sites shrink, a site's own parameters come as near to the global ones, and every sum of its
differences with them. Divided by the share of a difference that a typical site keeps, they stay of order one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, Layout
from multicentre.multiview.ppca.maths.prior import Prior, PriorSums

# Patients of a typical site; right to an order of magnitude is right enough.
TYPICAL_PATIENTS = 100.0


@dataclass(frozen=True)
class PriorUnits:
    """Units by view, arrays of shape (k,): the share that a site keeps of a difference, and the prior variance."""

    loadings_share: Floats
    mean_share: Floats
    loadings_variance: Floats
    mean_variance: Floats

    @classmethod
    def of(cls, prior: Prior, layout: Layout) -> PriorUnits:
        """Return the units that the prior which was broadcast implies; 1 where it is flat."""
        noise = np.add.reduceat(prior.centre(layout).noise, layout.starts) / np.asarray(layout.sizes)
        shares, variances = [], []
        for variance in (prior.loadings_variance, prior.mean_variance):
            proper = np.isfinite(variance)
            known = np.where(proper, variance, 1.0)
            shares.append(np.where(proper, known / (known + noise / TYPICAL_PATIENTS), 1.0))
            variances.append(known)
        return cls(*shares, *variances)

    def write(self, sums: PriorSums, layout: Layout) -> PriorSums:
        """Return a site's sums in these units."""
        return self._moved(sums, layout, 1.0 / self.loadings_share, 1.0 / self.mean_share, write=True)

    def read(self, sums: PriorSums, layout: Layout) -> PriorSums:
        """Return sums over sites in the units of the parameters."""
        return self._moved(sums, layout, self.loadings_share, self.mean_share, write=False)

    def _moved(self, sums: PriorSums, layout: Layout, loadings: Floats, mean: Floats, *, write: bool) -> PriorSums:
        q = sums.loadings.shape[1]
        of = layout.view_of
        sizes = np.asarray(layout.sizes, dtype=np.float64)
        columns = np.column_stack([np.repeat(loadings[:, None], q, axis=1), mean])
        turn = _write_spread if write else _read_spread
        return replace(
            sums,
            loadings=sums.loadings * loadings[of, None],
            mean=sums.mean * mean[of],
            loadings_square=sums.loadings_square * loadings**2,
            mean_square=sums.mean_square * mean**2,
            loadings_spread=turn(sums.loadings_spread, sums.sites * sizes * q, self.loadings_variance, loadings),
            mean_spread=turn(sums.mean_spread, sums.sites * sizes, self.mean_variance, mean),
            loadings_information=sums.loadings_information * loadings**2,
            mean_information=sums.mean_information * mean**2,
            weight=sums.weight * columns[:, None, :],
        )


def _write_spread(spread: Floats, count: Floats, variance: Floats, factor: Floats) -> Floats:
    """Posterior variances as what they fall short of the prior's, which is all that matters when both are small."""
    return (count - spread / variance) * factor


def _read_spread(short: Floats, count: Floats, variance: Floats, factor: Floats) -> Floats:
    return variance * (count - short * factor)
