"""Where the tests look for data sets that the package does not ship, and which tests share processes."""

import os
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_SIBLING = _HERE.parents[1] / "shared" / "data"

if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file that shares real processes on one worker, so that they are started once."""
    for item in items:
        if item.path.parent == _HERE / "end_to_end" / "flower" or item.path.name == "test_loopback.py":
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
