"""Summary of a ledger: one row per step, for a person who reads it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("method", "step", "left_as", "times", "numbers", "bytes", "fewest")


def summarise_entries(entries: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per step that released values or was refused.

    Parameters
    ----------
    entries : iterable of mapping
        Entries of one site's ledger.

    Returns
    -------
    DataFrame
        Columns `method`, `step`, `left_as` ("masked", "unmasked", the kind of noise, or "refused"), `times` (number of
        calls), `numbers` and `bytes` (over all calls), and `fewest` (smallest number of patients behind a value, or of
        records if the site cannot count patients; missing where no value rests on patients).
    """
    import pandas as pd

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for entry in entries:
        if entry["event"] not in ("release", "refusal"):
            continue
        left_as = entry.get("protection", "") if entry["event"] == "release" else "refused"
        key = (entry.get("method", ""), entry.get("step", ""), left_as)
        start = dict(zip(COLUMNS, (*key, 0, 0, 0, None), strict=True))
        row = rows.setdefault(key, start)
        fields = entry.get("fields", ())
        row["times"] += 1
        row["numbers"] += sum(math.prod(field["shape"]) for field in fields)
        row["bytes"] += sum(field["bytes"] for field in fields)
        behind = [count for field in fields if (count := field.get("patients") or field.get("records"))]
        row["fewest"] = min((*behind, *([row["fewest"]] if row["fewest"] else [])), default=None)
    return pd.DataFrame(rows.values(), columns=list(COLUMNS)).astype({"fewest": "Int64"})
