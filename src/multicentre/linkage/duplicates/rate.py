"""What was found of people with records at several sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multicentre.estimator.figures import Exhibit, Forest

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float]


@dataclass(frozen=True)
class DuplicateRate:
    """How many people have records at more than one site.

    Attributes
    ----------
    rate : float
        1 - persons over all sites / sum of the sites' persons, from 0 to 1.
    interval : tuple of float
        95 % interval of `rate`, of the hashing alone.
    n_records : int
        Records of all sites, test patients left out.
    n_missing : int
        Those without an identifier, which count nowhere else.
    n_within : int
        Records of a person whom the same site has another record of.
    n_local : int
        Sum over sites of the persons at each.
    n_union : float
        Persons over all sites, estimated.
    n_buckets : int
        Buckets of the hash.
    by_class : dict of str to (rate, interval)
        Among the records of each class of the outcome, where asked for.
    controls : dict of str to int
        At how many sites each test patient is known; empty where none were given.
    fingerprint : str
        Of the key that all sites hold.
    warnings : tuple of str
        What keeps the rate from being read as it stands.
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
        """Persons that sites count beyond one each: the sum of the sites' persons less those over all sites."""
        return max(self.n_local - self.n_union, 0.0)

    def to_frame(self) -> pd.DataFrame:
        """Return rate and limits, one row for all records and one a class of the outcome."""
        import pandas as pd

        rows = [[rate, *interval] for rate, interval in self._rows().values()]
        return pd.DataFrame(rows, index=list(self._rows()), columns=["rate", "lower", "upper"])

    def exhibits(self) -> list[Exhibit]:
        """Return the rates with their intervals as a figure."""
        rows = self._rows()
        return [
            Forest(
                "People at more than one site",
                "Share of the sites' persons that another site has too: 1 - persons over all sites / sum of the sites' "
                "persons, with the 95 % interval of the estimate.",
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
        controls = f"{len(self.controls)} controls found" if self.controls else "no controls"
        return (
            f"DuplicateRate({self.rate:.4f} [{low:.4f}, {high:.4f}]; about {self.n_shared:.0f} of {self.n_local} "
            f"persons counted at another site before, {controls})"
        )

    def _rows(self) -> dict[str, tuple[float, Interval]]:
        return {"all": (self.rate, self.interval), **self.by_class}
