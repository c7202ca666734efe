"""Memory, file handles, threads and child processes of a process over time, from /proc (Linux)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COUNTS = ("handles", "threads", "children")
MAX_MORE = 2  # connections that wait for the next request come and go


@dataclass(frozen=True)
class Usage:
    """What a process holds after a number of rounds.

    Parameters
    ----------
    rounds : int
    memory_mb : float
        Anonymous memory in MB; files mapped into memory, such as libraries, are not counted.
    handles, threads, children : int
    """

    rounds: int
    memory_mb: float
    handles: int
    threads: int
    children: int

    @classmethod
    def of(cls, pid: int, rounds: int) -> Usage:
        """Read the usage of a process."""
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        memory = int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) * 1024 / 1e6
        threads = int(re.search(r"Threads:\s*(\d+)", status)[1])
        children = sum(len(one.read_text().split()) for one in folder.glob("task/*/children"))
        return cls(rounds, memory, len(list((folder / "fd").iterdir())), threads, children)


@dataclass(frozen=True)
class Trend:
    """How the usage of a process changed over its life, without the first part, in which caches fill.

    Parameters
    ----------
    rounds : int
        Rounds between the first and the last sample.
    mb_per_1000_rounds : float
        Slope of the least-squares line.
    first_mb, last_mb : float
        Memory of the first and the last sample.
    more : dict of str to float
        Increase of the median number of handles, threads and children between the first and the last third.
    """

    rounds: int
    mb_per_1000_rounds: float
    first_mb: float
    last_mb: float
    more: dict[str, float]


def trend_of(samples: Sequence[Usage], warm_up: float) -> Trend:
    """Return the trend of a process; `warm_up` is the share of the rounds that is left out at the beginning."""
    start = samples[0].rounds + warm_up * (samples[-1].rounds - samples[0].rounds)
    counted = [one for one in samples if one.rounds >= start]
    rounds = [one.rounds for one in counted]
    slope = float(np.polyfit(rounds, [one.memory_mb for one in counted], 1)[0])
    third = max(1, len(counted) // 3)
    more = {
        name: statistics.median(getattr(one, name) for one in counted[-third:])
        - statistics.median(getattr(one, name) for one in counted[:third])
        for name in COUNTS
    }
    return Trend(rounds[-1] - rounds[0], 1000 * slope, counted[0].memory_mb, counted[-1].memory_mb, more)


def find_leaks(trends: dict[str, Trend], most_mb_per_1000: float) -> list[str]:
    """Return a sentence for each process and resource that grew."""
    leaks = []
    for name, trend in trends.items():
        if trend.mb_per_1000_rounds > most_mb_per_1000:
            slope = f"{trend.mb_per_1000_rounds:.2f} MB per 1,000 rounds, above {most_mb_per_1000:g}"
            leaks.append(f"{name}: memory grows by {slope}")
        leaks += [f"{name}: {more:g} more {what}" for what, more in trend.more.items() if more > MAX_MORE]
    return leaks
