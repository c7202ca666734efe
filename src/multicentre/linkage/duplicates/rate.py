"""Result of the estimation of people with records at several sites, and the rules for test patients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.estimator.figures import Figure, Forest
from multicentre.linkage.keys.occupied_buckets import MAX_BUCKETS, MIN_BUCKETS, QUANTILE
from multicentre.privacy.identifier_normalisation import normalise

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Midpoints of 100 equal parts of a distribution; with 500, limits of a rate change by less than 1 % of its width.
_LEVELS = (np.arange(100) + 0.5) / 100

HIDDEN_ERRORS = (
    "the rate counts only people whose records agree in a key, and has no interval, because the share of people that "
    "typing errors hide is unknown; pass patient_key= (sites measure it on repeated records) or sensitivity="
)
NO_REPEATED = "no patient has two records at a site, so that the sensitivity of the keys cannot be measured"
COARSE = (
    "different people agree in a key too often for an interval, and are counted as duplicates; use keys that fewer "
    "people share"
)


@dataclass(frozen=True)
class Sensitivity:
    """Share of pairs of records of one person that agree in at least one key.

    Attributes
    ----------
    share : float
        Estimate, from 0 to 1.
    interval : tuple of float
        95 % interval of a measured share; limits of a declared one.
    n_patients : int
        Number of patients with repeated records on which it was measured; 0 if it was declared.
    by_key : tuple of float
        Measured share of each key alone.
    """

    share: float
    interval: Interval
    n_patients: int = 0
    by_key: tuple[float, ...] = ()


@dataclass(frozen=True)
class DuplicateRate:
    """Estimated rate of people with records at more than one site.

    Attributes
    ----------
    rate : float
        1 - persons over all sites / sum of the sites' persons, from 0 to 1. With `sensitivity`, people whom typing
        errors hide are included; without it, only people whose records agree in a key.
    interval : tuple of float or None
        95 % interval of `rate`, which includes the error of the hash, the people whom typing errors hide, and different
        people who agree in a key by chance. None if `sensitivity` is unknown.
    detected : float
        Rate of people whose records agree in a key, without any correction.
    detected_interval : tuple of float
        95 % interval of `detected`; it includes only the error of the hash.
    sensitivity : Sensitivity or None
        Share of pairs of records of one person that agree in a key.
    n_chance : float or None
        Expected number of pairs of different people at two sites who agree in a key, measured with `patient_key`.
    n_records : int
        Number of records of all sites, without test patients.
    n_missing : int
        Number of records without any key. Without `patient_key` they enter no other count; with it their patients do,
        and count as people whom errors hide.
    n_within : int
        Number of records whose person has another record at the same site.
    n_local : int
        Sum over sites of the number of persons.
    n_union : float
        Estimated number of persons over all sites, from `rate`.
    n_buckets : int
        Number of buckets of the hash.
    by_class : dict of str to (rate, interval)
        Rate and interval by class of the outcome, if requested.
    controls : dict of str to int
        Number of sites with each test patient; empty without test patients.
    fingerprint : str
        Fingerprint of the sites' common key.
    warnings : tuple of str
        Limitations of the estimate.
    """

    rate: float
    interval: Interval | None
    detected: float
    detected_interval: Interval
    n_records: int
    n_missing: int
    n_within: int
    n_local: int
    n_union: float
    n_buckets: int
    sensitivity: Sensitivity | None = None
    n_chance: float | None = None
    by_class: Mapping[str, tuple[float, Interval | None]] = field(default_factory=dict)
    controls: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def n_shared(self) -> float:
        """Number of duplicates: the sum over sites of their persons, minus the persons over all sites."""
        return max(self.n_local - self.n_union, 0.0)

    def to_frame(self) -> pd.DataFrame:
        """Return rate and limits, one row for all records and one per class; limits are NaN without an interval."""
        import pandas as pd

        rows = [[rate, *(interval or (math.nan, math.nan))] for rate, interval in self._rows().values()]
        return pd.DataFrame(rows, index=list(self._rows()), columns=["rate", "lower", "upper"])

    def figures(self) -> list[Figure]:
        """Return the rates with their intervals as a figure."""
        rows = self._rows()
        limits = "with the 95 % interval of the estimate." if self.interval else "without an interval: " + HIDDEN_ERRORS
        return [
            Forest(
                "People at more than one site",
                "Share of the sites' persons who are also at another site: 1 - persons over all sites / sum of the "
                f"sites' persons, {limits}",
                "data",
                "share",
                list(rows),
                [rate for rate, _ in rows.values()],
                [interval[0] if interval else None for _, interval in rows.values()],
                [interval[1] if interval else None for _, interval in rows.values()],
                n_pooled=0,
                reference=0.0,
            )
        ]

    def __repr__(self) -> str:
        controls = f"{len(self.controls)} controls at all sites" if self.controls else "no controls"
        people = f"about {self.n_shared:.0f} of {self.n_local} persons are duplicates, {controls}"
        if self.interval is None:
            return f"DuplicateRate({self.rate:.4f} by agreement in a key, without interval; {people})"
        low, high = self.interval
        return f"DuplicateRate({self.rate:.4f} [{low:.4f}, {high:.4f}]; {people})"

    def _rows(self) -> dict[str, tuple[float, Interval | None]]:
        return {"all": (self.rate, self.interval), **self.by_class}


# A few test patients show that identifiers agree between sites; the limit bounds the look-ups per request.
MAX_CONTROLS = 20

_RESERVED = {
    "identifier": ("TESTPATIENT", "begin with TESTPATIENT"),
    "name": ("TESTPATIENT", "begin with TESTPATIENT"),
    "nhs-number": ("999", "begin with 999, as test numbers of the NHS do"),
    "date": ("21", "be dates from 2150 on"),
}


def normalise_controls(controls: Sequence[str], kind: str) -> list[str]:
    """Return the normalised identifiers of test patients.

    Parameters
    ----------
    controls : sequence of str
        At most 20; dates in ISO 8601.
    kind : str
        Kind of the identifiers. The kinds "nir" and "combined" have no test patients.

    Raises
    ------
    RefusedByPolicy
        A control could be a person's identifier, there are too many controls, or the kind has none.
    ConfigurationError
        The kind is unknown.

    Examples
    --------
    >>> normalise_controls(["Test-Patient 01"], "identifier"), normalise_controls(["2199-05-01"], "date")
    (['TESTPATIENT01'], ['2199-05-01'])
    """
    checked_kind: Any = kind
    normalise([], checked_kind)  # refuses unknown kinds
    if not controls:
        return []
    if kind not in _RESERVED:
        raise RefusedByPolicy(
            f"controls must be of kind {', '.join(_RESERVED)}; got {kind}",
            where="controls",
            hint="Leave out the controls, or use identifiers of another kind.",
        )
    texts = normalise(controls, checked_kind)
    prefix, rule = _RESERVED[kind]
    reserved = [text is not None and text.startswith(prefix) and _is_late(text, kind) for text in texts]
    if not all(reserved):
        raise RefusedByPolicy(
            f"controls must {rule}; at least one could be a person's identifier",
            where="controls",
            hint="Name test patients only.",
        )
    if len(controls) > MAX_CONTROLS:
        raise RefusedByPolicy(
            f"there must be at most {MAX_CONTROLS} controls; got {len(controls)}",
            where="controls",
            hint="Name fewer test patients.",
        )
    return [text for text in texts if text is not None]


def check_controls(site_counts: Iterable[int], controls: Sequence[str], n_sites: int) -> dict[str, int]:
    """Return the number of sites with each control.

    Raises
    ------
    ConfigurationError
        A site lacks a control, so that identifiers cannot be compared.
    """
    sites = dict(zip(controls, map(int, site_counts), strict=True))
    lacking = {control: n for control, n in sites.items() if n < n_sites}
    if lacking:
        counts = ", ".join(f"{control} at {n}" for control, n in lacking.items())
        raise ConfigurationError(
            f"controls must be present at all {n_sites} sites; got {counts}. Identifiers of the same person may differ "
            "between sites, so that no rate can be estimated",
            where="controls",
            hint="Register the test patients at all sites. Use identifiers without local pseudonyms or date shifts.",
        )
    return sites


def _is_late(text: str, kind: str) -> bool:
    return kind != "date" or text >= "2150"


def choose_buckets(n_persons: int, per_record: int) -> int:
    """Return the number of buckets M: `per_record` per person, from 1024 to 2**23.

    Examples
    --------
    >>> choose_buckets(12_000, 32), choose_buckets(3, 32)
    (384000, 1024)
    """
    return min(max(per_record * n_persons, MIN_BUCKETS), MAX_BUCKETS)


def duplicate_rate(union: float, deviation: float, n_local: float) -> tuple[float, tuple[float, float]]:
    """Return 1 - union / sum of the sites' persons, and its 95 % interval, both within 0 to 1.

    The interval includes only the error of the hash.

    Examples
    --------
    >>> rate, interval = duplicate_rate(10_000.0, 12.0, 12_000.0)
    >>> round(rate, 4), tuple(round(limit, 4) for limit in interval)
    (0.1667, (0.1647, 0.1686))
    """
    if n_local <= 0:
        return 0.0, (0.0, 1.0)
    rate, half = 1 - union / n_local, QUANTILE * deviation / n_local
    return _clip(rate), (_clip(rate - half), _clip(rate + half))


def include_exclude(numbers: Sequence[float]) -> float:
    """Return the size of a union, from the sizes of the intersections of each combination of sets.

    Parameters
    ----------
    numbers : sequence of float, one per combination
        In the order of :func:`multicentre.linkage.keys.person_keys.combinations`.

    Examples
    --------
    >>> include_exclude([5, 7, 2])
    10
    """
    return sum(number if code.bit_count() % 2 else -number for code, number in enumerate(numbers, start=1))


def measured_sensitivity(repeated: Integers) -> tuple[Sensitivity, Floats]:
    """Return the sensitivity of the keys with its interval, and plausible values for the interval of the rate.

    With a agreeing pairs of n, the sensitivity has the posterior distribution Beta(a + 1/2, n - a + 1/2) of Jeffreys'
    prior.

    Parameters
    ----------
    repeated : array of int, shape (1 + K, 2)
        Number of patients whose two records agree, and who do not: in any key, and in each of the K keys.

    Examples
    --------
    >>> sensitivity, _ = measured_sensitivity(np.array([[95, 5], [90, 10], [40, 60]]))
    >>> round(sensitivity.share, 3), tuple(round(limit, 3) for limit in sensitivity.interval), sensitivity.by_key
    (0.946, (0.894, 0.981), (0.9, 0.4))
    """
    agree, differ = (int(number) for number in repeated[0])
    by_key = tuple(float(agreeing / max(agreeing + other, 1)) for agreeing, other in repeated[1:])
    low, high = betaincinv(agree + 0.5, differ + 0.5, [0.025, 0.975]).tolist()
    plausible: Floats = betaincinv(agree + 0.5, differ + 0.5, _LEVELS)
    return Sensitivity((agree + 0.5) / (agree + differ + 1), (low, high), agree + differ, by_key), plausible


def declared_sensitivity(sensitivity: float | tuple[float, float]) -> tuple[Sensitivity, Floats]:
    """Return a sensitivity that the analyst declares, as a number or as two limits, and the two limits.

    Raises
    ------
    ConfigurationError
        A limit is not above 0 and at most 1, or the limits are in the wrong order.

    Examples
    --------
    >>> declared_sensitivity((0.9, 1.0))[0]
    Sensitivity(share=0.95, interval=(0.9, 1.0), n_patients=0, by_key=())
    """
    low, high = sensitivity if isinstance(sensitivity, tuple) else (sensitivity, sensitivity)
    if not 0 < low <= high <= 1:
        raise ConfigurationError(
            f"sensitivity must be above 0 and at most 1, with the lower limit first; got {sensitivity}",
            where="sensitivity",
            hint="Example: (0.95, 1.0).",
        )
    return Sensitivity((low + high) / 2, (float(low), float(high))), np.array([low, high], dtype=np.float64)


def corrected_rate(
    detected: float, variance: float, n_local: float, n_sites: int, sensitivity: Sensitivity, plausible: Floats
) -> tuple[float, Interval]:
    """Return the rate with the people whom typing errors hide, and its 95 % interval.

    With sensitivity s, D duplicates are detected with mean s D and variance s (1 - s) D, to which the variance of the
    hash and of agreement by chance is added. The interval of a measured sensitivity contains the central 95 % of the
    mixture of the normal distributions of D over the plausible values of s. That of a declared one reaches from the
    lower limit of D at the largest s to the upper limit at the smallest. The rate assumes that a person is at two
    sites at most. The lower limit allows for people at all sites, see :func:`detected_share`.

    Parameters
    ----------
    detected : float
        Number of duplicates whose records agree in a key, without agreement by chance.
    variance : float
        Variance of this number by the hash and by agreement by chance.
    n_local : float
        Sum over sites of the number of persons.
    n_sites : int
    sensitivity, plausible
        See :func:`measured_sensitivity` and :func:`declared_sensitivity`.

    Examples
    --------
    >>> rate, interval = corrected_rate(90.0, 16.0, 1000.0, 2, *declared_sensitivity(0.9))
    >>> round(rate, 3), tuple(round(limit, 3) for limit in interval)
    (0.1, (0.089, 0.111))
    """
    if n_local <= 0:
        return 0.0, (0.0, 1.0)
    deviation = np.sqrt(variance + max(detected, 0.0) * (1 - plausible))
    largest = detected_share(plausible, n_sites)
    if sensitivity.n_patients:
        numbers = detected + np.outer(ndtri(_LEVELS), deviation)
        low, high = np.quantile(numbers / largest, 0.025), np.quantile(numbers / plausible, 0.975)
    else:
        low = ((detected - QUANTILE * deviation) / largest).min()
        high = ((detected + QUANTILE * deviation) / plausible).max()
    return _clip(detected / sensitivity.share / n_local), (_clip(float(low) / n_local), _clip(float(high) / n_local))


def detected_share(sensitivity: Floats, n_sites: int) -> Floats:
    """Return the expected share of detected duplicates of a person who is at all sites.

    A person at m sites has m - 1 duplicates. If each record is free of errors with probability q, records without
    errors agree, and all others agree with none, two records agree with probability s = q^2. On average
    m q - 1 + (1 - q)^m duplicates are detected: for two sites the share s, for more sites a larger one.

    Examples
    --------
    >>> detected_share(np.array([0.81]), 2), detected_share(np.array([0.81]), 5)
    (array([0.81]), array([0.8750025]))
    """
    faultless = np.sqrt(sensitivity)
    share: Floats = (n_sites * faultless - 1 + (1 - faultless) ** n_sites) / (n_sites - 1)
    return share


def _clip(share: float) -> float:
    return min(max(share, 0.0), 1.0)
