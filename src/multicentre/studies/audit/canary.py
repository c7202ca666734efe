"""Choice of the canary: a patient who changes the answers of a site as much as the method allows."""

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
from multicentre.studies.audit.transcript import NoisedField, Replays, Transcript

N_PATIENTS = 3  # five variants each give fifteen replays
FACTORS = (0.0, 1.0, 1e3, 1e8)  # a missing clip shows at 1e3, one after a scaling by the data at 1e8
ROUNDING = 1e-6  # of sums over hundreds of patients in double precision


@dataclass(frozen=True)
class Canary:
    """Patient who is added to a site's data to measure the influence of one patient.

    Parameters
    ----------
    site : str
    kind : str
        Description of the record.
    exposed : data
        Data of the site with the canary.
    ratio : float
        Largest change of a field by the canary, relative to the declared sensitivity.
    field : str
        Field with the largest change.
    reach : float
        Length of all changes in scales of the noise: the expected separation.
    unprotected : tuple of str
        Fields without noise that differ with the canary.
    """

    site: str
    kind: str
    exposed: Any
    ratio: float
    field: str
    reach: float
    unprotected: tuple[str, ...]

    @property
    def exceeds(self) -> bool:
        """True if one patient changes a field by more than declared."""
        return self.ratio > 1 + ROUNDING or bool(self.unprotected)


def choose_canary(plan: Plan, data: Mapping[str, Any], site: str, transcript: Transcript, seed: int) -> Canary:
    """Return the record that changes the answers most in a replay without noise.

    Parameters
    ----------
    plan : Plan
    data : mapping of str to data
        Data by site.
    site : str
        Site of the canary.
    transcript : sequence of Exchange
        Exchanges of a fit without the canary, whose requests are replayed.
    seed : int
        Seed of the choice of patients, and of the signs of some values.

    Raises
    ------
    ConfigurationError
        The method fails on the site's data with each of the records.
    """
    candidates = []
    for kind, record in _records(data[site], np.random.default_rng(seed)):
        with suppress(MulticentreError, ArithmeticError, ValueError):  # a method may reject such a record
            exposed = add_record(data[site], record)
            replays = Replays(plan, site, data, exposed)
            candidates.append(_measured(replays, transcript, kind, exposed))
    if not candidates:
        raise ConfigurationError(
            "the method must accept the site's data with one of the audit's records; it failed with each",
            where=site,
            hint="Name another site.",
        )
    return max(candidates, key=lambda canary: (bool(canary.unprotected), canary.ratio > 1 + ROUNDING, canary.reach))


def measure(fields: list[NoisedField]) -> tuple[float, str, float]:
    """Return the largest ratio to a declared sensitivity, its field, and the length of all changes in noise scales.

    Examples
    --------
    >>> from multicentre.federation.messages import Declaration
    >>> declared, zeros = Declaration("array", "sums", ("d",), sensitivity=2.0), np.zeros(2)
    >>> measure([NoisedField("Sums.total", zeros, zeros, np.array([0.0, 1.0]), declared, "gaussian", 4.0)])
    (0.5, 'Sums.total', 0.125)
    """
    worst = max(fields, key=lambda field: field.ratio)
    lengths = [np.linalg.norm(field.difference) / _scale(field) for field in fields]
    return worst.ratio, worst.where, math.hypot(*lengths)


def _records(data: Any, random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    for row in random.choice(len(data), min(N_PATIENTS, len(data)), replace=False):
        for factor in FACTORS:
            kind = "a patient of the site" if factor == 1 else f"a patient of the site, times {factor:g}"
            yield kind, amplify_record(data, int(row), factor)
            if factor > 1:
                yield f"{kind}, with signs drawn", amplify_record(data, int(row), factor, random)


def _measured(replays: Replays, transcript: Transcript, kind: str, exposed: Any) -> Canary:
    ratio, field, reach = measure(replays.noised_fields(transcript))
    return Canary(replays.site, kind, exposed, ratio, field, reach, tuple(replays.unprotected(transcript)))


def _scale(field: NoisedField) -> float:
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
