"""Time the hot paths beside what a user would pick instead, and write the rows that the page is made of.

Without groups, all are run, the rows are written to benchmarks/results/peers.json, and docs/benchmarks.md is written
again. With groups, or with --quick, rows are printed, and written only where --json says.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import pin_threads, show, write_json
from pairing import measure

GROUPS = ("tensors", "views", "clusters", "survival", "boosting", "regression", "rounds", "sums")
RESULTS = Path(__file__).parent / "results" / "peers.json"
# Seconds of the turns of a pair. With some 20 pairs, whose slowest turns take more, all take about 12 minutes.
FULL_S, QUICK_S = 20.0, 0.5


def main() -> None:
    """Run the groups that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes and few turns (about 90 s)")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    if unknown := sorted(set(options.groups) - set(GROUPS)):
        parser.error(f"groups must be of {', '.join(GROUPS)}; got {', '.join(unknown)}")
    pin_threads()
    path = options.json or (None if options.quick or options.groups else RESULTS)
    run(options.groups or GROUPS, quick=options.quick, path=path)
    if path == RESULTS:
        importlib.import_module("pages").main()


def run(groups: Sequence[str], *, quick: bool, path: Path | None) -> dict[str, Any]:
    """Return, print and write the rows of some groups."""
    began = time.perf_counter()
    rows, absent = [], []
    for group in groups:
        group_began = time.perf_counter()
        for pair in importlib.import_module(f"pairs.{group}").pairs(quick):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fits of few rounds warn that they did not converge
                measured, missing = measure(group, pair, QUICK_S if quick else FULL_S)
            rows += measured
            absent += missing
            print_rows(f"{pair.task} ({pair.data})", measured)
        print(f"\n{group}: {time.perf_counter() - group_began:.0f} s", file=sys.stderr, flush=True)
    for one in absent:
        print(f"Absent: {one['way']} ({one['task']}): {one['reason']}.")
    results = {"quick": quick, "rows": rows, "absent": absent}
    print(f"\nMeasured in {time.perf_counter() - began:.0f} s.", flush=True)
    write_json(path, results)
    return results


def print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print ratios first."""
    headings = ["ours", "peer", "times as long as ours", "spread", "ours s", "peer s", "turns", "figures"]
    show(
        title,
        headings,
        [
            [
                row["ours"],
                row["peer"],
                f"{row['ratio']['median']:.3g}",
                f"{row['ratio']['least']:.3g}-{row['ratio']['most']:.3g}",
                f"{row['ours_s']['median']:.3g}",
                f"{row['peer_s']['median']:.3g}",
                str(row["turns"]),
                ", ".join(f"{name} {value:.3g}" for name, value in row["figures"].items()),
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
