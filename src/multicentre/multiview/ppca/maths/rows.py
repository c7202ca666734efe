"""One site's rows, in the form that its fits need: moments where views are whole, entries where some are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from multicentre.multiview.ppca.maths.entries import sum_entries, update_law
from multicentre.multiview.ppca.maths.groupstep import fit_around
from multicentre.multiview.ppca.maths.invariant import SharedSums, answer_round
from multicentre.multiview.ppca.maths.model import Booleans, Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import PatternMoments, reduce_chunks
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior
from multicentre.multiview.ppca.maths.problem import Noise
from multicentre.multiview.ppca.maths.start import StartSums, multiply_second_moments, sum_first_moments


@dataclass(frozen=True)
class SiteRows:
    """The rows of one site and what its fits ask of them.

    Parameters
    ----------
    blocks : callable
        Yields the rows in the agreed units, a block of shape (m, d) at a time, NaN where missing.
    layout : Layout
    entries : bool
        Treat entries as missing one by one, here or at another site; otherwise views are whole or absent.
    noise : {"isotropic", "diagonal"}
    case_mix_weight : float
        Further patients as by whom the site's latent covariance is drawn to the identity.
    """

    blocks: Callable[[], Iterable[Floats]]
    layout: Layout
    entries: bool
    noise: Noise
    case_mix_weight: float

    @cached_property
    def values(self) -> Floats:
        """All rows at once, shape (n, d): what missing entries and sampling need."""
        return np.concatenate(list(self.blocks()))

    @cached_property
    def shown(self) -> Booleans:
        """Features that some row holds, shape (d,)."""
        if self.entries:
            return np.asarray(~np.isnan(self.values).all(axis=0))
        return np.asarray(np.logical_or.reduce([pattern.features for pattern in self.patterns]))

    @cached_property
    def patterns(self) -> list[PatternMoments]:
        """Moments by pattern of views; where entries are missing, of the rows with column means put in."""
        return reduce_chunks([self._with_means_put_in()] if self.entries else self.blocks(), self.layout)

    def first_moments(self) -> StartSums:
        """Counts, sums and squares for the start."""
        return sum_first_moments(self.patterns, self.layout)

    def multiply_moments(self, directions: Floats, pairs: Floats) -> Floats:
        """Second moments times directions, for the start, shape (d, p)."""
        return multiply_second_moments(self.patterns, self.layout, directions, pairs)

    def answer(self, shared: Parameters, law: LatentLaw, *, n_repetitions: int = 5) -> tuple[SharedSums, LatentLaw]:
        """Sums for the shared parameters, and the site's latent law; entries allow one repetition."""
        if not self.entries:
            return answer_round(
                self.patterns,
                self.layout,
                shared,
                law,
                n_repetitions=n_repetitions,
                case_mix_weight=self.case_mix_weight,
            )
        sums = sum_entries(self.values, shared, law)
        if n_repetitions:
            law = update_law(sums.latent_first, sums.latent_second, sums.n_rows)
            law = law.shrunk(sums.n_rows, self.case_mix_weight)
        return sums, law

    def fit_around(
        self, start: Parameters, law: LatentLaw, prior: Prior, n_iterations: int
    ) -> tuple[LocalFit, LatentLaw, SharedSums]:
        """Local parameters and case mix around the global law."""
        return fit_around(
            self.answer, self.shown, self.layout, start, law, prior, n_iterations=n_iterations, noise=self.noise
        )

    def _with_means_put_in(self) -> Floats:
        filled = self.values.copy()
        means = np.zeros(self.layout.n_features)
        means[self.shown] = np.nanmean(filled[:, self.shown], axis=0)
        for view in self.layout.names:
            own = filled[:, self.layout.columns(view)]
            holds = ~np.isnan(own).all(axis=1)
            filled[holds, self.layout.columns(view)] = np.where(
                np.isnan(own[holds]), means[self.layout.columns(view)], own[holds]
            )
        return filled
