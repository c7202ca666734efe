"""Location of the data sets that the package does not ship, and fixtures of many tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.noise import seed_noise

_HERE = Path(__file__).resolve().parent
_SIBLING = _HERE.parents[1] / "shared" / "data"

if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))


@pytest.fixture(autouse=True, scope="session")
def _without_fsync() -> Iterator[None]:
    """Skip fsync: it protects from power cuts alone, and takes most of the time of some tests on a slow disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the noise of differential privacy from a seed, where a test is not about the noise itself."""
    seed_noise(monkeypatch)
