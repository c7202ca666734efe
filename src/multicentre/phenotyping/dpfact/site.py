"""Site part of DPFact: the steps that a coordinator can request and their answers.

Steps inherited from other modules:

- ``describe``, ``name_codes``, ``count_codes`` and ``sum_sizes``, from phenotyping/agreement.py;
- ``spread_codes``, ``sum_clipped_cooccurrence``, ``sum_clipped_products`` and ``pass_clipped_patients`` of a
  differentially private fit, from phenotyping/dpfact/private_site.py.

Releases are declared in phenotyping/dpfact/messages.py, except those of ``sum_errors``, in
phenotyping/fitted/fit_sums.py, and of the first four inherited steps, in phenotyping/agreement.py. Most are terms of
sums over sites. Each site answers separately to ``describe`` (names of modes), ``name_codes`` and ``profile``.

A site keeps its patients' counts and their memberships in phenotypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.errors import ConfigurationError
from multicentre.phenotyping.agreement import count_rare_codes, prepare_tensor
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact.maths.cooccurrence import flatten_marginals, multiply_marginals
from multicentre.phenotyping.dpfact.maths.local import fit_near
from multicentre.phenotyping.dpfact.private_site import PrivateSteps, require_fitting
from multicentre.phenotyping.fitted.fit_sums import FitSums, sum_fit
from multicentre.phenotyping.kernels.effective_counts import effective_numbers, fewest_patients
from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.phenotyping.kernels.patients import effective_members, fit_memberships
from multicentre.phenotyping.kernels.poisson import fit_rates, patient_losses, poisson_loss, poisson_ratios

Floats = NDArray[np.float64]
# Sweeps of coordinate descent for the final memberships: more than in a round, as they start from ones.
N_SWEEPS = 20
# Least number of patients with a phenotype for its profile to leave the site, as in printed tables.
MIN_PROFILED = 10
# Multiplicative updates leave zeros at zero, so they start above it.
MIN_MEMBERSHIP = 1e-6


class DPFactSite(PrivateSteps):
    """Site part of DPFact."""

    method: ClassVar[str] = "dpfact"
    revision: ClassVar[int] = 2
    remembers: ClassVar[type[Message]] = messages.SiteMemory

    @step(releases=Acknowledgement, when="once")
    def agree(self, request: messages.Prepared) -> Acknowledgement:
        """Store the agreed codes; nothing leaves the site."""
        nothing = {mode: np.zeros((len(names), 0)) for mode, names in request.codes.items()}
        memory = messages.SiteMemory(request.codes, 0, nothing, np.zeros((len(self.data), 0)))
        return prepare_tensor(self, memory)

    @step(releases=messages.RareCodes, when="once", summed=True)
    def count_rare_codes(self, request: Nothing) -> messages.RareCodes:
        """Count the entries and the codes that the agreed list leaves out."""
        counts, patients = count_rare_codes(self.data, self.memory.codes)
        behind = len(self.data) if self.masked else fewest_patients(effective_numbers(patients), len(self.data))
        return messages.RareCodes(*counts, patients=behind)

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Begin) -> Acknowledgement:
        """Store the factors of the start, with memberships of 1; nothing leaves the site."""
        require_fitting(request.factors, self.memory.codes)
        memberships = np.ones((len(self.data), next(iter(request.factors.values())).shape[1]))
        self.state = dataclasses.replace(
            self.memory, seed=request.seed, factors=request.factors, memberships=memberships
        )
        return Acknowledgement()

    @step(releases=messages.Cooccurrence, when="once", summed=True)
    def sum_cooccurrence(self, request: Nothing) -> messages.Cooccurrence:
        """Sum the co-occurrences of codes, for the start."""
        return messages.Cooccurrence(flatten_marginals(self.marginals), patients=self._behind_pairs)

    @step(releases=messages.CooccurrenceProducts, when="once", summed=True)
    def multiply_cooccurrence(self, request: messages.Directions) -> messages.CooccurrenceProducts:
        """Multiply the co-occurrences of codes by directions, for the start with many codes."""
        products = multiply_marginals(self.marginals, self.tensor.shape[1:], request.directions)
        return messages.CooccurrenceProducts(products, patients=self._behind_pairs)

    @step(releases=messages.ProductsAndGram, when="every round", summed=True)
    def fit_memberships(self, request: messages.UpdateAndFit) -> messages.ProductsAndGram:
        """Fit the patients' memberships to the factors; return the sums for the update of the next factor."""
        factors = self._updated(request)
        memberships = fit_memberships(
            self.tensor,
            list(factors.values()),
            self.memory.memberships,
            n_sweeps=request.n_sweeps,
            sparsity=request.sparsity,
            nonnegative=request.nonnegative,
        )
        self._remember(factors, memberships)
        gram = memberships.T @ memberships
        entries, squares = float(self.tensor.nnz), self.tensor.norm_squared
        behind = min(self._behind_products(request.wanted), self.behind_totals())
        return messages.ProductsAndGram(self._products(request.wanted), gram, entries, squares, patients=behind)

    @step(releases=messages.Products, when="every round", summed=True)
    def sum_products(self, request: messages.Update) -> messages.Products:
        """Return the sums for the update of another factor, with unchanged memberships."""
        self._remember(self._updated(request), self.memory.memberships)
        return messages.Products(self._products(request.wanted), patients=self._behind_products(request.wanted))

    @step(releases=messages.RatiosAndTotals, when="every round", summed=True)
    def fit_rates(self, request: messages.UpdateAndFit) -> messages.RatiosAndTotals:
        """Fit the memberships by multiplicative updates (Poisson loss); return the sums for the next factor."""
        factors = self._updated(request)
        memberships = fit_rates(self.tensor, list(factors.values()), self._above_zero(), request.n_sweeps)
        self._remember(factors, memberships)
        everything = [memberships, *factors.values()]
        products, behind = self._ratios(request.wanted)
        if not self.masked:
            behind = min(behind, fewest_patients(effective_numbers(patient_losses(self.tensor, everything)), behind))
        totals, loss = memberships.sum(axis=0), poisson_loss(self.tensor, everything)
        return messages.RatiosAndTotals(products, totals, loss, float(self.tensor.nnz), patients=behind)

    @step(releases=messages.Ratios, when="every round", summed=True)
    def sum_ratios(self, request: messages.Update) -> messages.Ratios:
        """Return the sums for the update of another factor (Poisson loss), with unchanged memberships."""
        self._remember(self._updated(request), self.memory.memberships)
        products, behind = self._ratios(request.wanted)
        return messages.Ratios(products, patients=behind)

    @step(releases=messages.WeightedFactors, when="every round", summed=True)
    def fit_locally(self, request: messages.FitLocally) -> messages.WeightedFactors:
        """Fit memberships and local factors near the global ones (elastic averaging)."""
        behind = [len(self.data)]

        def count(used: Floats, near: Sequence[Floats], axis: int) -> None:
            behind.append(self.behind_cells(used, near, [axis]))

        memberships, local = fit_near(
            self.tensor,
            list(request.factors.values()),
            self.memory.memberships,
            n_passes=request.n_passes,
            elastic_penalty=request.elastic_penalty,
            n_sweeps=request.n_sweeps,
            sparsity=request.sparsity,
            count=count,
        )
        factors = dict(zip(request.factors, local, strict=True))
        self._remember(factors, memberships)
        weights = np.square(memberships).sum(axis=0)
        weighted = {mode: factor * weights for mode, factor in factors.items()}
        return messages.WeightedFactors(weighted, weights, patients=min(*behind, self.behind_cells(memberships)))

    @step(releases=messages.LocalFactor, when="every round", summed=True)
    def pass_patients(self, request: messages.PassPatients) -> messages.LocalFactor:
        """Descend one factor from the global one, patient by patient, each clipped; without noise."""
        return messages.LocalFactor(self._descended(request, self.tensor), patients=self.behind_descent(request))

    @step(releases=FitSums, when="at the end", summed=True)
    def sum_errors(self, request: messages.Final) -> FitSums:
        """Sum the errors of the fit and count the patients of every phenotype."""
        memory = self.memory
        factors, memberships = list((request.factors if request.refit else memory.factors).values()), memory.memberships
        if request.refit and request.poisson:
            memberships = fit_rates(self.tensor, factors, self._above_zero(), request.n_sweeps)
        elif request.refit:
            memberships = fit_memberships(
                self.tensor, factors, memberships, n_sweeps=request.n_sweeps, sparsity=request.sparsity
            )
        if request.keep:
            self._remember(request.factors, memberships)
        return sum_fit(self, memberships, factors, request.threshold)

    @step(releases=messages.Profile, when="on request", refusable=True)
    def profile(self, request: messages.Penalty) -> messages.Profile:
        """Return the root mean square membership of each phenotype at this site; the answer is not a term of a sum.

        A phenotype with an effective number of patients below the minimum is 0.
        """
        factors = list(self.memory.factors.values())
        if any((factor < 0).any() for factor in factors):
            raise ConfigurationError(
                "factors must be non-negative for profiles; got negative entries",
                where="profile",
                hint="Fit with nonnegative=True.",
            )
        fresh = np.ones_like(self.memory.memberships)
        fitted = fit_memberships(self.tensor, factors, fresh, n_sweeps=N_SWEEPS, sparsity=request.sparsity)
        members = np.minimum(effective_members(fitted), effective_numbers(np.square(fitted)))
        is_shown = members >= max(self.least_behind, MIN_PROFILED)
        lengths = np.sqrt(np.mean(fitted**2, axis=0)) * is_shown
        return messages.Profile(lengths, patients=int(members[is_shown].min(initial=len(self.data))))

    def _updated(self, request: messages.Update) -> dict[str, Floats]:
        factors = {**self.memory.factors, request.updated: request.factor}
        require_fitting(factors, self.memory.codes)
        return factors

    def _products(self, wanted: str) -> Floats:
        memory = self.memory
        return mttkrp(self.tensor, [memory.memberships, *memory.factors.values()], self._axis(wanted))

    def _behind_products(self, wanted: str) -> int:
        """Return the fewest patients behind a cell of the products of a mode, and of the memberships' Gram matrix."""
        memory = self.memory
        return self.behind_cells(memory.memberships, list(memory.factors.values()), [self._axis(wanted)])

    def _axis(self, wanted: str) -> int:
        codes = list(self.memory.codes)
        if wanted not in codes:
            raise ConfigurationError(
                f"mode must be one of {', '.join(map(repr, codes))}; got {wanted!r}", where=f"mode {wanted!r}"
            )
        return 1 + codes.index(wanted)

    def _above_zero(self) -> Floats:
        """Return the memberships, each large enough for a multiplicative update to bring it back."""
        return np.maximum(self.memory.memberships, MIN_MEMBERSHIP)

    def _ratios(self, wanted: str) -> tuple[Floats, int]:
        """Return the products of a mode with counts over predictions, and the fewest patients behind a cell."""
        memory, axis = self.memory, self._axis(wanted)
        factors = list(memory.factors.values())
        ratios = poisson_ratios(self.tensor, [memory.memberships, *factors])
        products = mttkrp(self.tensor, [memory.memberships, *factors], axis, values=ratios)
        return products, self.behind_cells(memory.memberships, factors, [axis], values=ratios, gram=False)

    def _remember(self, factors: dict[str, Floats], memberships: Floats) -> None:
        self.state = dataclasses.replace(self.memory, factors=factors, memberships=memberships)
