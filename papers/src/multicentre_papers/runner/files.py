"""Files of a reproduction, each written whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multicentre.federation.storage import write_atomically


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one line a row, with a column for every key of any row in order of appearance; nothing without rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
