"""What a site's policy makes of its data and its keys: the columns that may be used, the guard, and the seal of sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from multicentre.federation.errors import ConfigurationError
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.seal import MaskingSeal


def keep_allowed(data: Any, policy: Policy, site: str) -> Any:
    """Return the data with no columns but those that the policy allows.

    Raises
    ------
    ConfigurationError
        The policy names columns, and the data have none.

    Examples
    --------
    >>> from multicentre.data import TableData
    >>> data = TableData([[61.0, 1.0], [70.0, 0.0]], [0, 1], columns=["age", "smokes"])
    >>> keep_allowed(data, Policy(columns=("age",)), "lyon").columns
    ('age',)
    """
    if policy.columns is None:
        return data
    if not hasattr(data, "keep_columns"):
        raise ConfigurationError(
            f"the policy names columns, and {type(data).__name__} has none", where=site, mend="Leave out columns."
        )
    return data.keep_columns(policy.columns)


def ids_of(data: Any) -> Iterable[object]:
    """Return the identifiers of the patients, none where the data have none."""
    ids = getattr(data, "ids", None)
    return () if ids is None else ids


def seal_of(identity: Identity, peers: Mapping[str, bytes], policy: Policy) -> MaskingSeal:
    """Return how a site masks its answers: under its own identity, towards peers it knows, on its policy's terms."""
    return MaskingSeal(identity, peers, min_sites=policy.min_sites_in_sum, n_colluding=policy.colluding_sites)
