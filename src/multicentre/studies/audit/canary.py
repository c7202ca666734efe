"""The choice of a patient who matters as much as a method lets anyone matter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from multicentre.data.records import add_record, amplify_record
from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.errors import ConfigurationError, MulticentreError
from multicentre.federation.noise import Plan
from multicentre.federation.rounds import Listener
from multicentre.studies.audit.transcript import AllReleased, Recording, Shown, Transcript, Witness

N_PATIENTS = 3

FACTORS = (0.0, 1.0, 1e3, 1e8)

ROUNDING = 1e-6


@dataclass(frozen=True)
class Canary:
    """A patient put into a site's data to see how much one can matter.

    Parameters
    ----------
    site : str
    kind : str
        How it was made, in words.
    exposed : data
        The site's data with it.
    ratio : float
        The most that it moves a field, over what the field declares.
    field : str
        That field.
    reach : float
        Length of all that it moves, in scales of the noise: the separation that an attacker can expect of it.
    betrayed : tuple of str
        Fields without noise that differ with it.
    """

    site: str
    kind: str
    exposed: Any
    ratio: float
    field: str
    reach: float
    betrayed: tuple[str, ...]

    @property
    def exceeds(self) -> bool:
        """Whether one patient matters more than declared."""
        return self.ratio > 1 + ROUNDING or bool(self.betrayed)


def choose_canary(plan: Plan, data: Mapping[str, Any], site: str, transcript: Transcript, seed: int) -> Canary:
    """Try a handful of records in a replay without noise and return the one that matters most.

    Parameters
    ----------
    plan : Plan
    data : mapping of str to data
        By site.
    site : str
        Where the canary goes.
    transcript : sequence of Heard
        Of a fit without it, whose asks are put again.
    seed : int
        Which patients are tried, and the signs of some of them.

    Raises
    ------
    ConfigurationError
        The method can work on the site's data with none of the records.
    """
    tried = []
    for kind, record in _records(data[site], np.random.default_rng(seed)):
        with suppress(MulticentreError, ArithmeticError, ValueError):  # such a record no method takes
            exposed = add_record(data[site], record)
            witness = Witness(plan, site, data, exposed)
            tried.append(_judged(witness, transcript, kind, exposed))
    if not tried:
        raise ConfigurationError(
            "the method cannot work on the site's data with any of the audit's records",
            where=site,
            mend="Name another.",
        )
    return max(tried, key=lambda canary: (bool(canary.betrayed), canary.ratio > 1 + ROUNDING, canary.reach))


def measure(shown: list[Shown]) -> tuple[float, str, float]:
    """Return the largest ratio to a declared sensitivity, its field, and the length of all in scales of the noise.

    Examples
    --------
    >>> from multicentre.federation.messages import Declaration
    >>> declared, zeros = Declaration("array", "sums", ("d",), sensitivity=2.0), np.zeros(2)
    >>> measure([Shown("Sums.total", zeros, zeros, np.array([0.0, 1.0]), declared, "gaussian", 4.0)])
    (0.5, 'Sums.total', 0.125)
    """
    worst = max(shown, key=lambda field: field.ratio)
    lengths = [np.linalg.norm(field.difference) / _scale(field) for field in shown]
    return worst.ratio, worst.where, math.hypot(*lengths)


def _records(data: Any, random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    for row in random.choice(len(data), min(N_PATIENTS, len(data)), replace=False):
        for factor in FACTORS:
            kind = "a patient of the site" if factor == 1 else f"a patient of the site, times {factor:g}"
            yield kind, amplify_record(data, int(row), factor)
            if factor > 1:
                yield f"{kind}, with signs drawn", amplify_record(data, int(row), factor, random)


def _judged(witness: Witness, transcript: Transcript, kind: str, exposed: Any) -> Canary:
    ratio, field, reach = measure(witness.shown(transcript))
    return Canary(witness.site, kind, exposed, ratio, field, reach, tuple(witness.betrayed(transcript)))


def _scale(field: Shown) -> float:
    assert field.declaration.sensitivity is not None
    return field.multiplier * field.declaration.sensitivity


def hear(estimator: FederatedEstimator, federation: Recording, site: str, *, enough: int | None = None) -> Transcript:
    """Fit a copy of the estimator and return what the coordinator heard about a site.

    Parameters
    ----------
    estimator : FederatedEstimator
    federation : Recording
    site : str
    enough : int, optional
        As for :class:`Watch`.

    Raises
    ------
    ConfigurationError
        The fit released nothing about the site's patients.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> blood = mc.data.MultiViewData({"blood": np.random.default_rng(0).normal(size=(40, 2))})
    >>> reference = {"blood": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    >>> model = mc.multiview.FedMvPPCA(n_components=1, epsilon=9.0, reference=reference)
    >>> with Recording.in_process({"lyon": blood}) as federation:
    ...     heard = hear(model, federation, "lyon", enough=1)
    >>> heard[-1].step.name, heard[-1].answer.products.shape
    ('sum_outer_products', (6,))
    """
    recording = federation.watching(site, enough=enough)
    with suppress(AllReleased):
        clone(estimator).fit(recording)
    heard = recording.watch.exchanges
    if not any(one.answer is not None and one.step.releases.tells_of_patients() for one in heard):
        raise ConfigurationError("the fit told nothing of the site's patients", where=site, mend="Name another site.")
    return heard


@dataclass
class Bench:
    """Two federations that differ by the canary.

    Parameters
    ----------
    estimator : FederatedEstimator
    witness : Witness
    exposed, without : Recording
        With the canary, and without it.
    enough : int
        Exchanges up to the last planned release.
    listener : Listener
        Hears of the runs as of rounds.

    Attributes
    ----------
    worst : tuple of float and str
        The most that the canary moved a field in a run, over what the field declares, and that field.
    """

    estimator: FederatedEstimator
    witness: Witness
    exposed: Recording
    without: Recording
    enough: int
    listener: Listener
    worst: tuple[float, str] = (0.0, "")

    def run(self, runs: int) -> tuple[list[float], list[float]]:
        """Return the scores of so many fits with the canary and of as many without."""
        name = "audit"
        self.listener.rounds_began(name, runs, 0)
        scores: tuple[list[float], list[float]] = ([], [])
        for number in range(1, runs + 1):
            scores[0].append(self._score(self.exposed))
            scores[1].append(self._score(self.without))
            self.listener.round_ended(name, number, {})
        self.listener.rounds_ended(name, runs)
        return scores

    def _score(self, federation: Recording) -> float:
        shown = self.witness.shown(hear(self.estimator, federation, self.witness.site, enough=self.enough))
        ratio, field, _ = measure(shown)
        self.worst = max(self.worst, (ratio, field))
        return sum(one.score for one in shown)
