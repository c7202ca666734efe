"""Site part of the differentially private fit: sums in which each patient's term is bounded.

The bounds hold for every request: a step decides on a refusal only by the request, never by a patient's record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import step
from multicentre.errors import ConfigurationError
from multicentre.phenotyping.agreement import PATIENTS, TensorPart, Universe
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact.maths import private
from multicentre.phenotyping.dpfact.maths.cooccurrence import Marginals, fewest_in_pair, flatten_marginals
from multicentre.phenotyping.kernels.effective_counts import fewest_patients
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import cooccurrence

Floats = NDArray[np.float64]
# An answer is divided by the reach of one patient. The limit keeps the quotient within the bounds of messages.
MIN_REACH = 4 / PATIENTS
# Limits on requests, far above any fit, so that a coordinator cannot occupy a site with a single request.
MAX_SWEEPS = 1000
# The work of a request grows with the rank, which this limits; the scoring of events has the same limit.
MAX_PHENOTYPES = 1000


class PrivateSteps(TensorPart):
    """Steps whose releases declare their sensitivity: the largest change by one patient."""

    remembers: ClassVar[type[Message]] = messages.SiteMemory
    lengths: ClassVar[Lengths] = {
        "r": Length("phenotypes", "rank"),
        "p": "pairs of codes, or random directions",
        "g": "pairs of phenotypes",
    }

    @property
    def memory(self) -> messages.SiteMemory:
        """Agreed settings, with the factors and memberships of the last round."""
        memory = super().memory
        assert isinstance(memory, messages.SiteMemory)
        return memory

    @cached_property
    def marginals(self) -> Marginals:
        """Co-occurrences of the agreed codes, summed over the patients; the list cannot change within a fit."""
        return cooccurrence(self.tensor)

    @step(releases=messages.NoisedCodeCounts, when="once", summed=True)
    def spread_codes(self, request: Universe) -> messages.NoisedCodeCounts:
        """Sum the patients' codes, each patient with the same total weight, for a differentially private list."""
        aligned = self.data.align(request.codes)
        borders = np.cumsum([0, *(len(names) for names in request.codes.values())])
        shares = np.zeros(int(borders[-1]))
        pairs = np.unique(
            np.concatenate(
                [
                    aligned.coordinates[:, 0].astype(np.int64) * len(shares) + aligned.coordinates[:, axis] + border
                    for axis, border in enumerate(borders[:-1], start=1)
                ]
            )
        )
        patients, codes = np.divmod(pairs, max(len(shares), 1))
        codes_of_patient = np.bincount(patients, minlength=len(self.data))
        np.add.at(shares, codes, private.code_weights(codes_of_patient)[patients])
        fewest = len(self.data) if self.noised or self.masked else fewest_patients(np.bincount(codes), len(self.data))
        return messages.NoisedCodeCounts(shares, patients=fewest)

    @step(releases=messages.ClippedCooccurrence, when="once", summed=True)
    def sum_clipped_cooccurrence(self, request: Nothing) -> messages.ClippedCooccurrence:
        """Sum the co-occurrences of codes, with patients of length at most 1, including rare codes."""
        return messages.ClippedCooccurrence(flatten_marginals(self.marginals), patients=self._behind_pairs)

    @step(releases=messages.ClippedProducts, when="every round", summed=True)
    def sum_clipped_products(self, request: messages.ClipProducts) -> messages.ClippedProducts:
        """Fit memberships to public factors; return the sums for a factor's update, with each patient clipped."""
        factors, axis = self._public(request)
        bounds = request.largest_product, request.largest_gram
        require_within("largest_product, largest_gram", 1e-6, 1e6, *bounds)
        products, gram = private.sum_clipped_products(
            self.tensor, factors, axis, bounds=bounds, n_sweeps=request.n_sweeps
        )
        behind = (
            self.behind_places() if self._is_hidden else min(self.behind_places(), self._fewest_in_clipped(request))
        )
        return messages.ClippedProducts(products, gram, patients=behind)

    @step(releases=messages.ClippedFactor, when="every round", summed=True)
    def pass_clipped_patients(self, request: messages.PassPatients) -> messages.ClippedFactor:
        """Descend one factor from the public one, patient by patient, in units of its sensitivity."""
        moved = self._descended(request, self.tensor)
        reach = private.reach_of_descent(
            request.n_passes, request.step, request.largest_product, (len(moved), moved.shape[1])
        )
        require_within("step", MIN_REACH, np.inf, reach)
        return messages.ClippedFactor(moved / reach, patients=self.behind_descent(request))

    def behind_descent(self, request: messages.PassPatients) -> int:
        """Return the fewest patients that change an entry of a factor in passes; all if masks or noise hide them."""
        if self._is_hidden:
            return len(self.data)
        factors, axis = self._public(request)
        moves = private.count_movers(self.tensor, factors, axis, request.largest_product, request.n_sweeps)
        return min(self.behind_places(), moves)

    @property
    def _is_hidden(self) -> bool:
        """True if masks or noise hide each patient's term of the answer."""
        return self.noised or self.masked

    @property
    def _behind_pairs(self) -> int:
        return len(self.data) if self._is_hidden else fewest_in_pair(self.tensor)

    def _fewest_in_clipped(self, request: messages.ClipProducts) -> int:
        factors, axis = self._public(request)
        bounds = request.largest_product, request.largest_gram
        return private.count_clipped(self.tensor, factors, axis, bounds=bounds, n_sweeps=request.n_sweeps)

    def _descended(self, request: messages.PassPatients, tensor: SparseTensor) -> Floats:
        factors, axis = self._public(request)
        require_within("n_passes", 1, MAX_SWEEPS, request.n_passes)
        require_within("step", 1e-12, 1.0, request.step)
        require_within("largest_product", 1e-6, 1e6, request.largest_product)
        return private.descend_clipped(
            tensor,
            factors,
            axis,
            n_passes=request.n_passes,
            step=request.step,
            largest_product=request.largest_product,
            n_sweeps=request.n_sweeps,
            seed=request.seed,
        )

    def _public(self, request: messages.Wanted) -> tuple[list[Floats], int]:
        """Return the factors of the request, and the position of its mode."""
        codes = self.memory.codes
        require_fitting(request.factors, codes)
        if request.wanted not in codes:
            raise ConfigurationError(
                f"mode must be one of {', '.join(map(repr, codes))}; got {request.wanted!r}",
                where=f"mode {request.wanted!r}",
            )
        require_within("n_sweeps", 1, MAX_SWEEPS, request.n_sweeps)
        return list(request.factors.values()), 1 + list(codes).index(request.wanted)


def require_fitting(factors: Mapping[str, Floats], codes: Mapping[str, Sequence[str]]) -> None:
    """Raise ConfigurationError unless there is a factor for each mode, a row for each code, and one rank.

    Examples
    --------
    >>> require_fitting({"procedure": np.ones((2, 3))}, {"procedure": ("p1", "p2")})
    """
    shapes = [(mode, len(factor)) for mode, factor in factors.items()]
    sizes = [(mode, len(names)) for mode, names in codes.items()]
    if shapes != sizes:
        raise ConfigurationError(
            f"factors must have one row per agreed code, {sizes}; got {shapes}",
            where="factors",
        )
    ranks = {factor.shape[1] for factor in factors.values()}
    if len(ranks) != 1 or not 0 < max(ranks) <= MAX_PHENOTYPES:
        raise ConfigurationError(
            f"factors must have one rank from 1 to {MAX_PHENOTYPES}; got {sorted(ranks)}", where="factors"
        )


def require_within(name: str, least: float, most: float, *values: float) -> None:
    """Raise ConfigurationError unless the numbers lie between two others.

    Examples
    --------
    >>> require_within("step", 0.0, 1.0, 0.5)
    """
    if not all(least <= value <= most for value in values):
        raise ConfigurationError(
            f"{name} must be from {least:g} to {most:g}; got {', '.join(f'{value:g}' for value in values)}", where=name
        )
