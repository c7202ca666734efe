"""Where the tests look for data sets that the package does not ship, and which tests share processes."""

import os
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_SIBLING = _HERE.parents[1] / "shared" / "data"

if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))

_IN_ANY_CASE = {"test_fence.py", "test_hostile_coordinator.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests over real processes, and keep those of a file on one worker, so that processes start once."""
    for item in items:
        deployed = item.path.parent == _HERE / "end_to_end" / "flower"
        if deployed and item.path.name not in _IN_ANY_CASE:
            item.add_marker(pytest.mark.loopback)
        if deployed or item.path.name == "test_loopback.py":
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
