"""Where the tests look for data sets that the package does not ship, and which of them take long."""

import os
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_SIBLING = _HERE.parents[1] / "shared" / "data"

if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))

_IN_ANY_CASE = {"test_fence.py", "test_hostile_coordinator.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of deployments, which take long."""
    for item in items:
        if item.path.parent == _HERE / "end_to_end" / "flower" and item.path.name not in _IN_ANY_CASE:
            item.add_marker(pytest.mark.loopback)
