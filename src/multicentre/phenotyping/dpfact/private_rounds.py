"""Differentially private fits: planned noise, rounds and estimates from noised sums.

The fit depends on patients only through the planned sums, each noised. Starts, thresholds, nonnegative factorisations
and weights are functions of them and cost no further privacy budget.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise, Plan, Planned, Unit
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, NoiseWarning
from multicentre.phenotyping.agreement import Codes, Universe, Vocabulary, agree_on_codes, check_rank
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact.maths import cooccurrence
from multicentre.phenotyping.dpfact.maths import local as noised
from multicentre.phenotyping.dpfact.maths.private import reach_of_descent
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.kernels.clipped import unpack_gram
from multicentre.phenotyping.kernels.factors import draw_factors, normalise_columns, relative_change
from multicentre.privacy.conversions import rho_of_epsilon

FitMechanism = Literal["dp-als", "bolt-on"]
# Solver to which each mechanism adds its noise.
SOLVER_OF: dict[str, str] = {"dp-als": "stat", "bolt-on": "psgd"}

# Shares of the budget. The choice of codes needs little. Of the rest most goes to the start: a larger share leaves too
# little for the rounds, a smaller one gives the rounds a worse start.
SHARE_OF_CODES, SHARE_OF_START = 0.1, 0.75

# Weight of the Gram matrix next to the products in one release. It has few cells, so it can carry more noise per cell.
GRAM_WEIGHT = 0.2

# Planned noise is this much larger than needed, so that rounding never takes a fit over its budget.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class PrivateTerms:
    """Public settings of a private fit.

    Parameters
    ----------
    epsilon, delta : float
    unit : {"patient", "entry"}
    mechanism : {"dp-als", "bolt-on"}
    vocabulary : mapping from str to sequence of str
        Public list of codes.
    n_codes : mapping from str to int or None
    from_cooccurrence : bool
        Start from a noised sum of co-occurrences; otherwise from random factors.
    n_starts : int
        Factorisations of the noised sum, the best of which is used.
    rank, n_rounds, n_passes, n_sweeps : int
    site_size : int or None
        Approximate public number of patients per site.
    seed : int
    """

    epsilon: float
    delta: float
    unit: Unit
    mechanism: FitMechanism
    vocabulary: Codes
    n_codes: Mapping[str, int] | None
    from_cooccurrence: bool
    n_starts: int
    rank: int
    n_rounds: int
    n_passes: int
    n_sweeps: int
    site_size: int | None
    seed: int

    @property
    def selected_codes(self) -> Vocabulary:
        """Vocabulary of the size that the fit will have: `n_codes` codes of every mode."""
        wanted, listed = self.n_codes or {}, {mode: sorted(set(names)) for mode, names in self.vocabulary.items()}
        return Vocabulary({mode: tuple(names[: wanted.get(mode)]) for mode, names in listed.items()})

    @property
    def chooses_codes(self) -> bool:
        """True if the fit selects codes of the list, which spends a part of the privacy budget."""
        return any(size < len(set(self.vocabulary[mode])) for mode, size in self.selected_codes.sizes.items())

    @property
    def n_releases(self) -> int:
        """Releases after the start: one per mode and round."""
        return self.n_rounds * len(self.vocabulary)

    @property
    def step(self) -> float:
        """Learning rate of the passes, ``R / I_t``."""
        assert self.site_size is not None  # checked with the estimator's parameters
        return min(1.0, self.rank / self.site_size)

    @cached_property
    def plan(self) -> Plan:
        """Every noised release; 10 % of rho for a choice of codes, 75 % of the rest for the start."""
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
        """Noise of the first sum of co-occurrences, or of products, in units of its sensitivity."""
        first = next(planned for planned in self.plan.releases if planned.step.name != "spread_codes")
        return next(iter(first.noise.multipliers.values()))

    @property
    def planned_steps(self) -> frozenset[str]:
        """Names of the steps that the fit may request from a site."""
        return frozenset({"describe", "agree"} | {planned.step.name for planned in self.plan.releases})

    def multiplier(self, step: str, field: str) -> float:
        """Return the planned noise of a field, in units of its sensitivity."""
        return next(planned.noise.multipliers[field] for planned in self.plan.releases if planned.step.name == step)


def _noise(rho: float, **weights: float) -> Noise:
    """Return the noise of one release that costs rho: a field of weight w gets ``sqrt(sum w^2 / (2 rho)) / w``.

    The weighted fields combined change by at most ``sqrt(sum w^2)``.
    """
    joint = math.sqrt(sum(weight**2 for weight in weights.values()) / (2 * rho))
    return Noise("gaussian", {field: joint / weight for field, weight in weights.items()})


Floats = NDArray[np.float64]

# Clips of a patient's terms, whose counts have length 1. A smaller clip lowers the noise and distorts more patients.
MAX_PRODUCT = MAX_GRAM = 0.1

# 64 MiB of noised numbers per answer.
MAX_CELLS = 2**23

# Simulations at six sites: some of 20 phenotypes were lost below about 100, half of them at about 40.
USABLE_SIGNAL, CLEAR_SIGNAL = 40.0, 100.0

# Sum of a patient's cells at length 1, which is the root of the number of equal cells: about nine cells per patient.
LENGTH_OF_PATIENT = 3.0


@dataclass(frozen=True)
class PrivateFit:
    """Result of a private fit.

    Parameters
    ----------
    vocabulary : Vocabulary
    rounds : Rounds
        Its state holds factors and weights.
    signal : float
        Patients for each phenotype over the noise, see :func:`warn_of_noise`.
    """

    vocabulary: Vocabulary
    rounds: Rounds[messages.PrivateState]
    signal: float


def fit(session: Session, terms: PrivateTerms) -> PrivateFit:
    """Run a private fit."""
    check_rank(terms.rank, terms.selected_codes.sizes)
    if terms.from_cooccurrence:
        check_cells(list(terms.selected_codes.sizes.values()))
    signal = math.inf
    if terms.site_size is not None:
        signal = _expected_signal(session, terms)
        warn_of_noise(signal, "expected", session)
    vocabulary = session.once("codes", Vocabulary, lambda: _agree(session, terms))
    if terms.from_cooccurrence:
        start, signal = _start(session, terms, vocabulary)
        warn_of_noise(signal, "measured", session)
    else:
        drawn = draw_factors(vocabulary.sizes, terms.rank, terms.seed)
        start = messages.PrivateState(drawn, np.ones(terms.rank))
    rounds = session.rounds(terms.n_releases, messages.PrivateState, lambda: start, name="rounds")
    update = _update_by_products if terms.mechanism == "dp-als" else _update_by_passes
    modes = list(vocabulary.codes)
    for number in rounds:
        mode = modes[(number - 1) % len(modes)]
        before = rounds.state
        factor, weights = update(session, terms, before, mode, number)
        revived = noised.revive(factor, np.random.default_rng([terms.seed, number]))
        rounds.state = messages.PrivateState({**before.factors, mode: revived}, weights)
        rounds.record(change=relative_change(rounds.state.factors, before.factors))
        if number == 1 and not terms.from_cooccurrence and terms.mechanism == "dp-als":
            signal = _signal_of_weights(session, terms, weights)
            warn_of_noise(signal, "measured", session)
    return PrivateFit(vocabulary, rounds, signal)


def warn_of_noise(signal: float, source: Literal["expected", "measured"], session: Session) -> None:
    """Warn if the noise is large for the number of patients.

    The signal is ``I / (R z)``: patients for each phenotype, over the standard deviation of the noise in a sum of which
    each patient makes up 1. Of 20 phenotypes of simulated patients at six sites some were lost below about 100, half
    of them at about 40, and nearly all at 20.
    """
    if not signal < CLEAR_SIGNAL:
        return
    masks = suggest_masks(protection=session.protection, n_sites=len(session.sites))
    verdict = (
        "are likely to be lost"
        if signal >= USABLE_SIGNAL
        else "can hardly be distinguished from it: treat the fit as unusable"
    )
    warnings.warn(
        f"the noise of differential privacy is large, and rare phenotypes {verdict} (signal {max(signal, 0):.0f} "
        f"{source}; {CLEAR_SIGNAL:.0f} or more is clear). Use more patients, fewer phenotypes, broader codes, "
        f"or a larger epsilon. {masks}".strip(),
        NoiseWarning,
        stacklevel=6,
    )


def _expected_signal(session: Session, terms: PrivateTerms) -> float:
    assert terms.site_size is not None
    n_sites = len(session.sites)
    spread = math.sqrt(n_sites) if session.protection == "unmasked" else 1.0
    return n_sites * terms.site_size / (terms.rank * terms.first_multiplier * spread)


def _agree(session: Session, terms: PrivateTerms) -> Vocabulary:
    vocabulary = agree_on_codes(
        session,
        DPFactSite,
        vocabulary=terms.vocabulary,
        n_codes=terms.n_codes,
        count=lambda universe: _ask_for_codes(session, terms, universe),
    )
    session.ask(DPFactSite.agree, messages.Prepared(vocabulary.codes))
    return vocabulary


def _ask_for_codes(session: Session, terms: PrivateTerms, universe: Universe) -> Floats:
    def request() -> messages.Noised:
        shares = session.sum(DPFactSite.spread_codes, universe).shares
        return messages.Noised(shares, terms.multiplier("spread_codes", "shares") * session.noise_spread)

    return session.once("histogram", messages.Noised, request).values


def _start(session: Session, terms: PrivateTerms, vocabulary: Vocabulary) -> tuple[messages.PrivateState, float]:
    sizes = vocabulary.sizes
    widths = list(sizes.values())
    start = session.once("start", messages.Noised, lambda: _ask_for_cooccurrence(session, terms))
    cells = noised.keep_above(start.values, noised.CUT_CELLS * start.noise_sd)
    blocks = cooccurrence.split_marginals(cells, widths)
    factors = cooccurrence.start_from_blocks(blocks, sizes, terms.rank, terms.seed, n_starts=terms.n_starts)
    weights = noised.weigh(blocks, list(factors.values()), list(itertools.combinations(range(len(widths)), 2)))
    signal = float(start.values.sum()) / (LENGTH_OF_PATIENT * terms.rank * start.noise_sd)
    return messages.PrivateState(factors, weights), signal


def _signal_of_weights(session: Session, terms: PrivateTerms, weights: Floats) -> float:
    """Return the signal from a noised Gram matrix, to whose trace a patient adds at most 1."""
    noise_sd = terms.first_multiplier * session.noise_spread
    return float((weights**2).sum()) / (MAX_GRAM * terms.rank * noise_sd)


def check_cells(widths: Sequence[int]) -> None:
    """Raise ConfigurationError if there are too many pairs of codes, each of which receives noise.

    Examples
    --------
    >>> check_cells([202, 316])
    """
    cells = sum(m * n for m, n in itertools.combinations(widths, 2))
    if cells > MAX_CELLS:
        raise ConfigurationError(
            f"pairs of codes must be at most {MAX_CELLS:,}, since each receives noise; got {cells:,}",
            where="vocabulary",
            hint="Roll the codes up to broader groups, keep fewer with n_codes, or use init='random'.",
        )


def _ask_for_cooccurrence(session: Session, terms: PrivateTerms) -> messages.Noised:
    values = session.sum(DPFactSite.sum_clipped_cooccurrence, Nothing()).marginals
    multiplier = terms.multiplier("sum_clipped_cooccurrence", "marginals")
    return messages.Noised(values, multiplier * session.noise_spread)


def _update_by_products(
    session: Session, terms: PrivateTerms, state: messages.PrivateState, mode: str, number: int
) -> tuple[Floats, Floats]:
    """One noised release of clipped products, and least squares with a threshold of the noise."""
    request = messages.ClipProducts(state.factors, mode, terms.n_sweeps, MAX_PRODUCT, MAX_GRAM)
    answer = session.sum(DPFactSite.sum_clipped_products, request)
    noise_sd = terms.multiplier("sum_clipped_products", "products") * session.noise_spread
    gram = MAX_GRAM * unpack_gram(answer.gram)
    axis = 1 + list(state.factors).index(mode)
    factor = noised.update_from_noised(
        MAX_PRODUCT * answer.products,
        gram,
        list(state.factors.values()),
        axis,
        noised.CUT_FACTOR * MAX_PRODUCT * noise_sd,
    )
    return factor, np.sqrt(np.maximum(np.diagonal(gram), 0.0))


def _update_by_passes(
    session: Session, terms: PrivateTerms, state: messages.PrivateState, mode: str, number: int
) -> tuple[Floats, Floats]:
    """One noised release of the sites' local factors after passes over their patients, and their mean."""
    request = messages.PassPatients(
        state.factors,
        mode,
        terms.n_sweeps,
        n_passes=terms.n_passes,
        step=terms.step,
        largest_product=MAX_PRODUCT,
        seed=number,
    )
    total = session.sum(DPFactSite.pass_clipped_patients, request).factor
    shape = (len(total), total.shape[1])
    one = reach_of_descent(terms.n_passes, terms.step, MAX_PRODUCT, shape) / len(session.sites)
    noise_sd = one * terms.multiplier("pass_clipped_patients", "factor") * session.noise_spread
    return normalise_columns(np.maximum(one * total - noised.CUT_FACTOR * noise_sd, 0.0))[0], state.weights


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless the parameters of DPFact agree with its differentially private fit."""
    mechanism, vocabulary = parameters["mechanism"], parameters["vocabulary"]
    if parameters["solver"] != SOLVER_OF[mechanism]:
        raise ConfigurationError(
            f"solver must be {SOLVER_OF[mechanism]!r} with mechanism={mechanism!r}; got {parameters['solver']!r}",
            where="solver",
            hint="Change the solver or the mechanism.",
        )
    if vocabulary is None or len(vocabulary) < 2:
        raise ConfigurationError(
            f"vocabulary must list the codes of at least two modes; got {len(vocabulary or ())} modes",
            where="vocabulary",
            hint="Set a public list of codes per mode: sites cannot name codes under differential privacy.",
        )
    if mechanism == "bolt-on" and parameters["public_site_size"] is None:
        raise ConfigurationError(
            "public_site_size must be an integer with mechanism='bolt-on'; got None",
            where="public_site_size",
            hint="The learning rate depends on it. Set it to a round number from public knowledge.",
        )
    # The group lasso, errors and free factors need sums over patients for which no noise is planned.
    for name, required in (("sparsity", 0.0), ("track_errors", False), ("nonnegative", True)):
        if parameters[name] != required:
            raise ConfigurationError(
                f"{name} must be {required!r} with an epsilon; got {parameters[name]!r}",
                where=name,
                hint=f"Set {name} to {required!r}: other values need sums that carry no noise.",
            )
