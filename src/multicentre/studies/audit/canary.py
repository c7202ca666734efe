"""Choice of the canary: a patient who changes the answers of a site as much as the method allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from multicentre.core.noise_plan import Plan
from multicentre.data.records import add_record, amplify_record
from multicentre.errors import ConfigurationError, MulticentreError
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
            candidates.append(_measure_canary(replays, transcript, kind, exposed))
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
    >>> from multicentre.core.messages import Declaration
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


def _measure_canary(replays: Replays, transcript: Transcript, kind: str, exposed: Any) -> Canary:
    ratio, field, reach = measure(replays.noised_fields(transcript))
    return Canary(replays.site, kind, exposed, ratio, field, reach, tuple(replays.unprotected(transcript)))


def _scale(field: NoisedField) -> float:
    assert field.declaration.sensitivity is not None
    return field.multiplier * field.declaration.sensitivity
