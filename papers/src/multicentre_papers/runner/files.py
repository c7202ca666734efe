"""Atomic writing of the files of a reproduction."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multicentre.core.storage import write_atomically


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one line per row and one column per key, in order of appearance; write no file without rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
