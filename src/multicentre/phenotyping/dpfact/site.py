"""DPFact beside the patients: all that a coordinator can ask of a site, and all that the site answers.

A site keeps its patients' counts and their memberships in phenotypes. What leaves is declared in
:mod:`~multicentre.phenotyping.dpfact.messages`: sums over its patients, as terms of sums over sites.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import Acknowledgement, step
from multicentre.phenotyping.agreement import prepare_tensor
from multicentre.phenotyping.dpfact import messages as sent
from multicentre.phenotyping.dpfact.maths.cooccurrence import fewest_in_pair, flatten_marginals, multiply_marginals
from multicentre.phenotyping.dpfact.maths.local import fit_near
from multicentre.phenotyping.dpfact.maths.observed import Descent, add_published_noise, descend
from multicentre.phenotyping.dpfact.private_site import PrivateSteps, require_fitting
from multicentre.phenotyping.fitted.sums import FitSums, sum_fit
from multicentre.phenotyping.kernels.memberships import effective_members, fit_memberships
from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.phenotyping.kernels.patients import cooccurrence
from multicentre.phenotyping.kernels.poisson import fit_rates, poisson_loss, ratio_products

Floats = NDArray[np.float64]
N_SWEEPS = 20
LEAST_PROFILED = 10
LEAST_MEMBERSHIP = 1e-6


class DPFactSite(PrivateSteps):
    """The site part of DPFact."""

    method: ClassVar[str] = "dpfact"
    remembers: ClassVar[type[Message]] = sent.SiteMemory

    @step(releases=Acknowledgement, when="once")
    def agree(self, ask: sent.Agreed) -> Acknowledgement:
        """Take in the agreed codes."""
        nothing = {mode: np.zeros((len(names), 0)) for mode, names in ask.codes.items()}
        memory = sent.SiteMemory(ask.codes, 0, nothing, np.zeros((len(self.data), 0)))
        return prepare_tensor(self, memory)

    @step(releases=Acknowledgement, when="once")
    def begin(self, ask: sent.Begin) -> Acknowledgement:
        """Take in the factors to start from; memberships start at 1, or drawn up to the given number."""
        require_fitting(ask.factors, self.memory.codes)
        shape = (len(self.data), next(iter(ask.factors.values())).shape[1])
        memberships = ask.largest * self._private_stream(ask.seed).random(shape) if ask.largest else np.ones(shape)
        self.state = dataclasses.replace(self.memory, seed=ask.seed, factors=ask.factors, memberships=memberships)
        return Acknowledgement()

    @step(releases=sent.Cooccurrence, when="once", summed=True)
    def sum_cooccurrence(self, ask: Nothing) -> sent.Cooccurrence:
        """Sum how often two codes occur together, for the start."""
        return sent.Cooccurrence(flatten_marginals(cooccurrence(self.tensor)), patients=self._behind_pairs())

    @step(releases=sent.CooccurrenceProducts, when="once", summed=True)
    def multiply_cooccurrence(self, ask: sent.Directions) -> sent.CooccurrenceProducts:
        """Multiply the same with directions, where there are too many codes to send it."""
        products = multiply_marginals(cooccurrence(self.tensor), self.tensor.shape[1:], ask.directions)
        return sent.CooccurrenceProducts(products, patients=self._behind_pairs())

    @step(releases=sent.ProductsAndGram, when="every round", summed=True)
    def fit_memberships(self, ask: sent.UpdateAndFit) -> sent.ProductsAndGram:
        """Fit the patients' memberships to the factors; sum what the next factor needs of them."""
        factors = self._updated(ask)
        memberships = fit_memberships(
            self.tensor,
            list(factors.values()),
            self.memory.memberships,
            n_sweeps=ask.n_sweeps,
            sparsity=ask.sparsity,
            nonnegative=ask.nonnegative,
        )
        behind = self._remember(factors, memberships)
        gram = self.memory.memberships.T @ self.memory.memberships
        entries, squares = float(self.tensor.nnz), self.tensor.norm_squared
        return sent.ProductsAndGram(self._products(ask.wanted), gram, entries, squares, patients=behind)

    @step(releases=sent.Products, when="every round", summed=True)
    def sum_products(self, ask: sent.Update) -> sent.Products:
        """Sum what another factor needs; the memberships stay as they are."""
        behind = self._remember(self._updated(ask), self.memory.memberships)
        return sent.Products(self._products(ask.wanted), patients=behind)

    @step(releases=sent.RatiosAndTotals, when="every round", summed=True)
    def fit_rates(self, ask: sent.UpdateAndFit) -> sent.RatiosAndTotals:
        """Fit the memberships by multiplicative updates (Poisson loss); sum what the next factor needs of them."""
        factors = self._updated(ask)
        memberships = fit_rates(self.tensor, list(factors.values()), self._above_zero(), ask.n_sweeps)
        behind = self._remember(factors, memberships)
        kept = self.memory.memberships
        loss = poisson_loss(self.tensor, [kept, *factors.values()])
        entries = float(self.tensor.nnz)
        return sent.RatiosAndTotals(self._ratios(ask.wanted), kept.sum(axis=0), loss, entries, patients=behind)

    @step(releases=sent.Ratios, when="every round", summed=True)
    def sum_ratios(self, ask: sent.Update) -> sent.Ratios:
        """Sum what another factor needs (Poisson loss); the memberships stay as they are."""
        behind = self._remember(self._updated(ask), self.memory.memberships)
        return sent.Ratios(self._ratios(ask.wanted), patients=behind)

    @step(releases=sent.WeightedFactors, when="every round", summed=True)
    def fit_locally(self, ask: sent.FitLocally) -> sent.WeightedFactors:
        """Fit memberships and factors of the site's own near the global ones (elastic averaging)."""
        memberships, local = fit_near(
            self.tensor,
            list(ask.factors.values()),
            self.memory.memberships,
            n_passes=ask.n_passes,
            pull=ask.pull,
            n_sweeps=ask.n_sweeps,
            sparsity=ask.sparsity,
        )
        factors = dict(zip(ask.factors, local, strict=True))
        behind = self._remember(factors, memberships)
        weights = np.square(self.memory.memberships).sum(axis=0)
        weighted = {mode: factor * weights for mode, factor in factors.items()}
        return sent.WeightedFactors(weighted, weights, patients=behind)

    @step(releases=sent.LocalFactors, when="every round", summed=True)
    def pass_entries(self, ask: sent.PassEntries) -> sent.LocalFactors:
        """Run the published algorithm's passes over the entries above zero, for comparison alone."""
        own = self.memory
        how = Descent(ask.n_passes, ask.step, ask.pull, ask.shrinkage, ask.nonnegative)
        generator = self.generator(own.seed, ask.round_number)
        targets = list(ask.factors.values())
        memberships, local = descend(self.tensor, own.memberships, list(own.factors.values()), targets, how, generator)
        factors = dict(zip(own.codes, add_published_noise(local, ask.noise_sd), strict=True))
        behind = self._remember(factors, memberships)
        return sent.LocalFactors(factors, sites=1, patients=behind)

    @step(releases=sent.LocalFactor, when="every round", summed=True)
    def pass_patients(self, ask: sent.PassPatients) -> sent.LocalFactor:
        """Descend one factor from the global one, patient by patient, each clipped; without noise."""
        return sent.LocalFactor(self._descended(ask, self.tensor), patients=self.behind)

    @step(releases=FitSums, when="at the end", summed=True)
    def sum_errors(self, ask: sent.Final) -> FitSums:
        """Sum the errors of the fit and count the patients of every phenotype."""
        own = self.memory
        factors, memberships = list((ask.factors if ask.refit else own.factors).values()), own.memberships
        if ask.refit and ask.poisson:
            memberships = fit_rates(self.tensor, factors, self._above_zero(), ask.n_sweeps)
        elif ask.refit:
            memberships = fit_memberships(
                self.tensor, factors, memberships, n_sweeps=ask.n_sweeps, sparsity=ask.sparsity
            )
        if ask.keep:
            self._remember(ask.factors, memberships)
        return sum_fit(self, memberships, factors, ask.threshold)

    @step(releases=sent.Profile, when="on request")
    def profile(self, ask: sent.Penalty) -> sent.Profile:
        """Return how much of each phenotype the site's patients have: the site's own answer, not a term of a sum.

        A phenotype that few patients have in effect is left out, as 0.
        """
        factors = list(self.memory.factors.values())
        if any((factor < 0).any() for factor in factors):
            raise ConfigurationError("factors below zero have no members to count", where="profile")
        fresh = np.ones_like(self.memory.memberships)
        fitted = fit_memberships(self.tensor, factors, fresh, n_sweeps=N_SWEEPS, sparsity=ask.sparsity)
        members = effective_members(fitted)
        shown = members >= max(self.least_behind, LEAST_PROFILED)
        lengths = np.sqrt(np.mean(fitted**2, axis=0)) * shown
        return sent.Profile(lengths, patients=int(members[shown].min(initial=len(self.data))))

    def _behind_pairs(self) -> int:
        return len(self.data) if self.masked else fewest_in_pair(self.tensor)

    def _updated(self, ask: sent.Update) -> dict[str, Floats]:
        factors = {**self.memory.factors, ask.updated: ask.factor}
        require_fitting(factors, self.memory.codes)
        return factors

    def _products(self, wanted: str) -> Floats:
        own = self.memory
        return mttkrp(self.tensor, [own.memberships, *own.factors.values()], 1 + list(own.codes).index(wanted))

    def _private_stream(self, seed: int) -> np.random.Generator:
        """Return a random stream that depends on the site's data, so that no coordinator knows what it draws."""
        return self.generator(seed, int(self.data.digest()[:16], 16))

    def _above_zero(self) -> Floats:
        """Return the memberships, each large enough for a multiplicative update to bring it back."""
        return np.maximum(self.memory.memberships, LEAST_MEMBERSHIP)

    def _ratios(self, wanted: str) -> Floats:
        own = self.memory
        everything = [own.memberships, *own.factors.values()]
        return ratio_products(self.tensor, everything, 1 + list(own.codes).index(wanted))

    def _remember(self, factors: dict[str, Floats], memberships: Floats) -> int:
        """Keep factors and memberships; return how many patients stand behind sums over them."""
        self.state = dataclasses.replace(self.memory, factors=factors, memberships=memberships)
        return self.behind_sums(memberships)
