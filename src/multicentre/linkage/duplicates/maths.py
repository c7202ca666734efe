"""The duplicate rate from counts of persons."""

from __future__ import annotations

from multicentre.linkage.keys.union import LEAST_BUCKETS, MOST_BUCKETS, QUANTILE


def choose_buckets(n_persons: int, per_record: int) -> int:
    """Return the number of buckets M: `per_record` for each, from 1024 to 2**23.

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
