"""Times that can be compared: one thread, medians of several runs, and a description of the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "multicentre",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "scikit-survival",
    "lifelines",
    "statsmodels",
    "xgboost",
    "xgboost-cpu",
    "mofapy2",
    "pyttb",
    "tensorly",
    "flwr",
    "ray",
)
PINNED = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def pin_threads() -> None:
    """Start this script again with one thread for linear algebra, unless it has been."""
    if any(os.environ.get(name) != value for name, value in PINNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | PINNED)


def median_seconds(run: Callable[[], Any], n_runs: int) -> float:
    """Return the median wall-clock time of some runs."""
    times = []
    for _ in range(n_runs):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def machine_facts() -> dict[str, Any]:
    """Return the date, the machine and the versions; no names of hosts, and no paths."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "threads": 1,
        "python": platform.python_version(),
        "system": platform.system(),
        "packages": versions,
    }


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(len(row[j]) for row in (headings, *rows)) for j in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in (headings, *rows)
    ]
    print(f"\n{title}\n{lines[0]}\n{'  '.join('-' * width for width in widths)}")
    print("\n".join(lines[1:]), flush=True)


def write_json(path: Path | None, results: dict[str, Any]) -> None:
    """Write results and machine facts where asked."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine_facts(), "results": results}, indent=2) + "\n", encoding="utf-8")


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _memory_gib() -> int | None:
    """Return the memory of the machine, or None on systems that do not tell."""
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    except (AttributeError, ValueError, OSError):
        return None
