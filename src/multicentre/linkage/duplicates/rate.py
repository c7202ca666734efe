"""Result of the estimation of people with records at several sites, and the rules for test patients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.estimator.figures import Figure, Forest
from multicentre.linkage.keys.union import LEAST_BUCKETS, MOST_BUCKETS, QUANTILE
from multicentre.privacy.identifier_normalisation import normalise

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float]


@dataclass(frozen=True)
class DuplicateRate:
    """Estimated rate of people with records at more than one site.

    Attributes
    ----------
    rate : float
        1 - persons over all sites / sum of the sites' persons, from 0 to 1.
    interval : tuple of float
        95 % interval of `rate`; it covers only the error of the hash.
    n_records : int
        Number of records of all sites, without test patients.
    n_missing : int
        Number of records without an identifier. They enter no other count.
    n_within : int
        Number of records whose person has another record at the same site.
    n_local : int
        Sum over sites of the number of persons.
    n_union : float
        Estimated number of persons over all sites.
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
    interval: Interval
    n_records: int
    n_missing: int
    n_within: int
    n_local: int
    n_union: float
    n_buckets: int
    by_class: Mapping[str, tuple[float, Interval]] = field(default_factory=dict)
    controls: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def n_shared(self) -> float:
        """Number of duplicates: the sum over sites of their persons, minus the persons over all sites."""
        return max(self.n_local - self.n_union, 0.0)

    def to_frame(self) -> pd.DataFrame:
        """Return rate and limits, one row for all records and one per class of the outcome."""
        import pandas as pd

        rows = [[rate, *interval] for rate, interval in self._rows().values()]
        return pd.DataFrame(rows, index=list(self._rows()), columns=["rate", "lower", "upper"])

    def figures(self) -> list[Figure]:
        """Return the rates with their intervals as a figure."""
        rows = self._rows()
        return [
            Forest(
                "People at more than one site",
                "Share of the sites' persons who are also at another site: 1 - persons over all sites / sum of the "
                "sites' persons, with the 95 % interval of the estimate.",
                "data",
                "share",
                list(rows),
                [rate for rate, _ in rows.values()],
                [interval[0] for _, interval in rows.values()],
                [interval[1] for _, interval in rows.values()],
                n_pooled=0,
                reference=0.0,
            )
        ]

    def __repr__(self) -> str:
        low, high = self.interval
        controls = f"{len(self.controls)} controls at all sites" if self.controls else "no controls"
        return (
            f"DuplicateRate({self.rate:.4f} [{low:.4f}, {high:.4f}]; about {self.n_shared:.0f} of {self.n_local} "
            f"persons are duplicates, {controls})"
        )

    def _rows(self) -> dict[str, tuple[float, Interval]]:
        return {"all": (self.rate, self.interval), **self.by_class}


# A few test patients show that identifiers agree between sites; the limit bounds the look-ups per request.
MOST_CONTROLS = 20

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
    texts = normalise(controls, checked_kind)
    if not controls:
        return []
    if kind not in _RESERVED:
        raise RefusedByPolicy(
            f"controls must be of kind {', '.join(_RESERVED)}; got {kind}",
            where="controls",
            hint="Leave out the controls, or use identifiers of another kind.",
        )
    prefix, rule = _RESERVED[kind]
    reserved = [text is not None and text.startswith(prefix) and _is_late(text, kind) for text in texts]
    if not all(reserved):
        raise RefusedByPolicy(
            f"controls must {rule}; at least one could be a person's identifier",
            where="controls",
            hint="Name test patients only.",
        )
    if len(controls) > MOST_CONTROLS:
        raise RefusedByPolicy(
            f"there must be at most {MOST_CONTROLS} controls; got {len(controls)}",
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
    return min(max(per_record * n_persons, LEAST_BUCKETS), MOST_BUCKETS)


def duplicate_rate(union: float, deviation: float, n_local: float) -> tuple[float, tuple[float, float]]:
    """Return 1 - union / sum of the sites' persons, and its 95 % interval, both within 0 to 1.

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


def _clip(share: float) -> float:
    return min(max(share, 0.0), 1.0)
