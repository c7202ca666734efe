"""Where the tests look for data sets that the package does not ship."""

import os
from pathlib import Path

_SIBLING = Path(__file__).resolve().parents[2] / "shared" / "data"

if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))
