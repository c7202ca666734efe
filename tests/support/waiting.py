"""Waiting for conditions, with limits that only something broken exceeds."""

from __future__ import annotations

import time
from collections.abc import Callable

# Ten minutes: on two cores next to eight busy processes, a process starts in well under a minute. A test that waits for
# a condition ends as soon as it holds, so a generous limit costs time only where something is broken.
GENEROUS_S = 600.0
_LOOK_S = 0.02


def wait_for(condition: Callable[[], object], within_s: float = GENEROUS_S) -> None:
    """Return once a condition holds; fail if it does not hold in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {within_s:g} s"
        time.sleep(_LOOK_S)
