"""What a private fit plans before anything is asked: its releases, their noise, and how the budget is divided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from multicentre.federation.noise import Noise, Plan, Planned, Unit
from multicentre.phenotyping.agreement import Codes, Vocabulary
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.privacy.accounting import rho_of_epsilon

Mechanism = Literal["dp-als", "bolt-on"]
SHARE_OF_CODES, SHARE_OF_START = 0.1, 0.75
GRAM_WEIGHT = 0.2
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
    def kept_codes(self) -> Vocabulary:
        """As many codes of every mode as will be kept."""
        wanted, listed = self.n_codes or {}, {mode: sorted(set(names)) for mode, names in self.vocabulary.items()}
        return Vocabulary({mode: tuple(names[: wanted.get(mode)]) for mode, names in listed.items()})

    @property
    def chooses_codes(self) -> bool:
        """Whether fewer codes than those of the list are wanted, so that a choice has to be paid for."""
        return any(size < len(set(self.vocabulary[mode])) for mode, size in self.kept_codes.sizes.items())

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
        """Noise of the first sum of codes together, or of products, in units of its sensitivity."""
        first = next(planned for planned in self.plan.releases if planned.step.name != "spread_codes")
        return next(iter(first.noise.multipliers.values()))

    @property
    def asked_steps(self) -> frozenset[str]:
        """Names of the steps that the fit may ask of a site."""
        return frozenset({"describe", "agree"} | {planned.step.name for planned in self.plan.releases})

    def multiplier(self, step: str, field: str) -> float:
        """Return the planned noise of a field, in units of its sensitivity."""
        return next(planned.noise.multipliers[field] for planned in self.plan.releases if planned.step.name == step)


def _noise(rho: float, **weights: float) -> Noise:
    """Return the noise of one release that costs rho: a field of weight w gets ``sqrt(sum w^2 / (2 rho)) / w``.

    The weighted fields together move by at most ``sqrt(sum w^2)``.
    """
    joint = math.sqrt(sum(weight**2 for weight in weights.values()) / (2 * rho))
    return Noise("gaussian", {field: joint / weight for field, weight in weights.items()})


def published_noise(
    epsilon: float, delta: float, *, n_modes: int, n_rounds: int, n_passes: int, step: float, lipschitz: float
) -> float:
    """Return the standard deviation of the published algorithm's noise: ``2 tau L eta / sqrt(2 rho)`` (Theorem 4.1).

    The theorem takes ``rho = epsilon^2 / (8 E log(1 / delta))`` for each of two factors and E epochs. Its proof does
    not hold: no L bounds the gradients, memberships and all factors move together, and a site's state outlives its
    release.

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
