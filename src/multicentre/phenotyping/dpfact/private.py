"""Differentially private fits: what they plan, what they ask, and what they make of the noised sums (specification 4).

All that is learnt of patients are the planned sums, each noised; starts, thresholds, nonnegative factorisations and
weights are functions of them and cost nothing more.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, NoiseWarning
from multicentre.federation.messages import Nothing
from multicentre.federation.noise import Noise, Plan, Planned, Unit
from multicentre.federation.rounds import Rounds
from multicentre.phenotyping.agreement import Codes, Vocabulary, agree_on_codes
from multicentre.phenotyping.dpfact import messages as sent
from multicentre.phenotyping.dpfact.checks import check_rank
from multicentre.phenotyping.dpfact.maths import cooccurrence
from multicentre.phenotyping.dpfact.maths import private as maths
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.kernels.factors import draw_factors, normalise_columns, relative_change
from multicentre.phenotyping.kernels.patients import unpack_gram
from multicentre.privacy.accounting import rho_of_epsilon

Floats = NDArray[np.float64]
Mechanism = Literal["dp-als", "bolt-on"]
SHARE_OF_CODES, SHARE_OF_START = 0.1, 0.75
LARGEST_PRODUCT = LARGEST_GRAM = 0.1
GRAM_WEIGHT = 0.2
LARGEST_CELLS = 2**23
USABLE_SIGNAL, CLEAR_SIGNAL = 50.0, 150.0
LENGTH_OF_PATIENT = 2.2
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class PrivateTerms:
    """What a private fit depends on beside the patients, all of it public.

    Parameters
    ----------
    epsilon, delta : float
    unit : {"patient", "entry"}
    mechanism : {"dp-als", "bolt-on"}
    vocabulary : mapping from str to sequence of str
        Public list of codes.
    n_codes : mapping from str to int or None
    from_cooccurrence : bool
        Start from a noised sum of which codes occur together; otherwise from random factors.
    rank, n_rounds, n_passes, n_sweeps : int
    site_size : int or None
        Public number of patients of a site, about.
    seed : int
    """

    epsilon: float
    delta: float
    unit: Unit
    mechanism: Mechanism
    vocabulary: Codes
    n_codes: Mapping[str, int] | None
    from_cooccurrence: bool
    rank: int
    n_rounds: int
    n_passes: int
    n_sweeps: int
    site_size: int | None
    seed: int

    @property
    def chooses_codes(self) -> bool:
        """Whether fewer codes than those of the list are wanted, so that a choice has to be paid for."""
        wanted = self.n_codes or {}
        return any(wanted.get(mode, len(set(names))) < len(set(names)) for mode, names in self.vocabulary.items())

    @property
    def n_releases(self) -> int:
        """Releases after the start: one a mode and round."""
        return self.n_rounds * len(self.vocabulary)

    @property
    def step(self) -> float:
        """Learning rate of the passes, ``R / I_t``."""
        assert self.site_size is not None  # checked with the estimator's parameters
        return min(1.0, self.rank / self.site_size)

    @cached_property
    def plan(self) -> Plan:
        """Every noised release; 10 % of rho for a choice of codes, 75 % of the rest for the start (4.2)."""
        left = rho_of_epsilon(self.epsilon, self.delta) / _ROUNDING
        releases = []
        if self.chooses_codes:
            releases.append(Planned(DPFactSite.spread_codes, _noise(SHARE_OF_CODES * left, shares=1.0)))
            left *= 1 - SHARE_OF_CODES
        if self.from_cooccurrence:
            spent = SHARE_OF_START * left
            releases.append(Planned(DPFactSite.sum_clipped_cooccurrence, _noise(spent, marginals=1.0)))
            left -= spent
        each = left / self.n_releases
        if self.mechanism == "dp-als":
            noise, step = _noise(each, products=1.0, gram=GRAM_WEIGHT), DPFactSite.sum_clipped_products
            releases.append(Planned(step, noise, self.n_releases))
        else:
            releases.append(Planned(DPFactSite.pass_clipped_patients, _noise(each, factor=1.0), self.n_releases))
        return Plan(tuple(releases), self.delta, self.unit)

    @property
    def first_multiplier(self) -> float:
        """Noise of the first sum of codes together, or of products, in units of its sensitivity."""
        first = next(planned for planned in self.plan.releases if planned.step.name != "spread_codes")
        return next(iter(first.noise.multipliers.values()))

    def multiplier(self, step: str, field: str) -> float:
        """Return the planned noise of a field, in units of its sensitivity."""
        return next(planned.noise.multipliers[field] for planned in self.plan.releases if planned.step.name == step)


def _noise(rho: float, **weights: float) -> Noise:
    """Return the noise of one release that costs rho: a field of weight w gets ``sqrt(sum w^2 / (2 rho)) / w``.

    The weighted fields together move by at most ``sqrt(sum w^2)``, the joint bound of specification 4.2.
    """
    joint = math.sqrt(sum(weight**2 for weight in weights.values()) / (2 * rho))
    return Noise("gaussian", {field: joint / weight for field, weight in weights.items()})


def asked_steps(terms: PrivateTerms) -> frozenset[str]:
    """Return the names of the steps that a private fit may ask of a site."""
    return frozenset({"describe", "agree"} | {planned.step.name for planned in terms.plan.releases})


@dataclass(frozen=True)
class PrivateFit:
    """What a private fit found.

    Parameters
    ----------
    vocabulary : Vocabulary
    rounds : Rounds
        Its state holds factors and weights.
    signal : float
        Patients for each phenotype over the noise, see :func:`warn_of_noise`.
    """

    vocabulary: Vocabulary
    rounds: Rounds[sent.PrivateState]
    signal: float


def fit(federation: Federation, terms: PrivateTerms) -> PrivateFit:
    """Run a private fit."""
    if terms.site_size is not None:
        warn_of_noise(_expected_signal(federation, terms), "expected")
    vocabulary = federation.once("codes", Vocabulary, lambda: _agree(federation, terms))
    start, signal = _start(federation, terms, vocabulary)
    rounds = federation.rounds(terms.n_releases, sent.PrivateState, lambda: start, name="rounds")
    update = _update_by_products if terms.mechanism == "dp-als" else _update_by_passes
    modes = list(vocabulary.codes)
    for number in rounds:
        mode = modes[(number - 1) % len(modes)]
        before = rounds.state
        factor, weights = update(federation, terms, before, mode, number)
        revived = maths.revive(factor, np.random.default_rng([terms.seed, number]))
        rounds.state = sent.PrivateState({**before.factors, mode: revived}, weights)
        rounds.record(change=relative_change(rounds.state.factors, before.factors))
    return PrivateFit(vocabulary, rounds, signal)


def warn_of_noise(signal: float, told: Literal["expected", "measured"]) -> None:
    """Warn where the noise is large for the number of patients (specification 9.13).

    The signal is ``I / (R z)``: patients for each phenotype, over the standard deviation of the noise in a sum of which
    each patient makes up 1. On simulated patients phenotypes were lost below about 150, most of them below about 50.
    """
    if not signal < CLEAR_SIGNAL:
        return
    verdict = "are likely to be lost" if signal >= USABLE_SIGNAL else "cannot be told from it: the fit is unusable"
    warnings.warn(
        f"the noise of differential privacy is large, and rare phenotypes {verdict} (signal {max(signal, 0):.0f} "
        f"{told}; {CLEAR_SIGNAL:.0f} or more is clear). Use more patients, fewer phenotypes, broader codes, "
        "secure_sum=True (one noise for all sites), or a larger epsilon.",
        NoiseWarning,
        stacklevel=6,
    )


def _expected_signal(federation: Federation, terms: PrivateTerms) -> float:
    assert terms.site_size is not None
    n_sites = len(federation.sites)
    spread = math.sqrt(n_sites) if federation.protection == "clear" else 1.0
    return n_sites * terms.site_size / (terms.rank * terms.first_multiplier * spread)


def _agree(federation: Federation, terms: PrivateTerms) -> Vocabulary:
    vocabulary = agree_on_codes(
        federation, DPFactSite, vocabulary=terms.vocabulary, n_codes=terms.n_codes, fewest=0, private=True
    )
    check_rank(terms.rank, vocabulary)
    federation.ask(DPFactSite.agree, sent.Agreed(vocabulary.codes, 0))
    return vocabulary


def _start(federation: Federation, terms: PrivateTerms, vocabulary: Vocabulary) -> tuple[sent.PrivateState, float]:
    sizes = vocabulary.sizes
    if not terms.from_cooccurrence:
        drawn = draw_factors(sizes, terms.rank, terms.seed)
        return sent.PrivateState(drawn, np.ones(terms.rank)), math.inf
    widths = list(sizes.values())
    check_cells(widths)
    noised = federation.once("start", sent.Noised, lambda: _ask_for_cooccurrence(federation, terms))
    kept = maths.keep_above(noised.values, maths.CUT_CELLS * noised.noise_sd)
    blocks = cooccurrence.split_marginals(kept, widths)
    factors = cooccurrence.start_from_blocks(blocks, sizes, terms.rank, terms.seed)
    weights = maths.weigh(blocks, list(factors.values()), list(itertools.combinations(range(len(widths)), 2)))
    signal = float(noised.values.sum()) / (LENGTH_OF_PATIENT * terms.rank * noised.noise_sd)
    warn_of_noise(signal, "measured")
    return sent.PrivateState(factors, weights), signal


def check_cells(widths: Sequence[int]) -> None:
    """Raise ConfigurationError where a noised number for every pair of codes would be too many.

    Examples
    --------
    >>> check_cells([202, 316])
    """
    cells = sum(m * n for m, n in itertools.combinations(widths, 2))
    if cells > LARGEST_CELLS:
        raise ConfigurationError(
            f"{cells:,} pairs of codes would each get noise, up to {LARGEST_CELLS:,} can be handled",
            where="vocabulary",
            mend="Roll the codes up to broader groups, keep fewer with n_codes, or use init='random'.",
        )


def _ask_for_cooccurrence(federation: Federation, terms: PrivateTerms) -> sent.Noised:
    values = federation.sum(DPFactSite.sum_clipped_cooccurrence, Nothing()).marginals
    multiplier = terms.multiplier("sum_clipped_cooccurrence", "marginals")
    return sent.Noised(values, multiplier * federation.noise_spread)


def _update_by_products(
    federation: Federation, terms: PrivateTerms, state: sent.PrivateState, mode: str, number: int
) -> tuple[Floats, Floats]:
    """One noised release of clipped products, and least squares with a threshold of the noise (4.2)."""
    ask = sent.ClipProducts(state.factors, mode, terms.n_sweeps, LARGEST_PRODUCT, LARGEST_GRAM)
    answer = federation.sum(DPFactSite.sum_clipped_products, ask)
    noise_sd = terms.multiplier("sum_clipped_products", "products") * federation.noise_spread
    gram = LARGEST_GRAM * unpack_gram(answer.gram)
    axis = 1 + list(state.factors).index(mode)
    factor = maths.update_from_noised(
        LARGEST_PRODUCT * answer.products,
        gram,
        list(state.factors.values()),
        axis,
        maths.CUT_FACTOR * LARGEST_PRODUCT * noise_sd,
    )
    return factor, np.sqrt(np.maximum(np.diagonal(gram), 0.0))


def _update_by_passes(
    federation: Federation, terms: PrivateTerms, state: sent.PrivateState, mode: str, number: int
) -> tuple[Floats, Floats]:
    """One noised release of the sites' own factors after passes over their patients, and their mean (4.3)."""
    ask = sent.PassPatients(
        state.factors,
        mode,
        terms.n_sweeps,
        n_passes=terms.n_passes,
        step=terms.step,
        largest_product=LARGEST_PRODUCT,
        seed=number,
    )
    total = federation.sum(DPFactSite.pass_clipped_patients, ask).factor
    shape = (len(total), total.shape[1])
    one = maths.reach_of_descent(terms.n_passes, terms.step, LARGEST_PRODUCT, shape) / len(federation.sites)
    noise_sd = one * terms.multiplier("pass_clipped_patients", "factor") * federation.noise_spread
    return normalise_columns(np.maximum(one * total - maths.CUT_FACTOR * noise_sd, 0.0))[0], state.weights


# --- the published noise ------------------------------------------------------------------------------------------


def published_noise(
    epsilon: float, delta: float, *, n_modes: int, n_rounds: int, n_passes: int, step: float, lipschitz: float
) -> float:
    """Return the standard deviation of the published algorithm's noise: ``2 tau L eta / sqrt(2 rho)`` (Theorem 4.1).

    The theorem takes ``rho = epsilon^2 / (8 E log(1 / delta))`` for each of two factors and E epochs. Its proof does not
    hold: no L bounds the gradients, memberships and all factors move together, and a site's state outlives its release.

    Examples
    --------
    >>> round(published_noise(1.2139, 1e-4, n_modes=2, n_rounds=20, n_passes=2, step=0.01, lipschitz=1.0), 3)
    0.894
    """
    rho = epsilon**2 / (4 * n_modes * n_rounds * math.log(1 / delta))
    return 2 * n_passes * lipschitz * step / math.sqrt(2 * rho)


def claimed_epsilon(epsilon: float, *, planned_rounds: int, n_rounds: int) -> float:
    """Return what the paper's formula says of the rounds that were run; it grows with their root.

    Examples
    --------
    >>> claimed_epsilon(2.0, planned_rounds=40, n_rounds=10)
    1.0
    """
    return epsilon * math.sqrt(n_rounds / planned_rounds)
