"""How close the estimated duplicate rate comes: its error by true rate, size and buckets, beside published figures."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from measuring import machine_facts, pin_threads, show, write_json

import multicentre as mc

N_SITES = 5
CONTROLS = ("TESTPATIENT1", "TESTPATIENT2")
PUBLISHED = {
    (12_000, 0.0, 8): 0.0023,
    (12_000, 0.01, 8): 0.0025,
    (12_000, 0.164, 8): 0.0020,
    (12_000, 0.0, 32): 0.0011,
    (12_000, 0.01, 32): 0.0014,
    (12_000, 0.164, 32): 0.0011,
    (60_000, 0.01, 8): 0.0010,
    (60_000, 0.163, 8): 0.0009,
    (60_000, 0.01, 32): 0.0006,
    (60_000, 0.163, 32): 0.0003,
}


@dataclass(frozen=True)
class Row:
    """One size, rate and number of buckets a record."""

    n_records: int
    true_rate: float
    buckets_per_record: int
    rmse: float
    largest_error: float
    covered: float
    seconds: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12, help="simulations of each row")
    parser.add_argument("--small", action="store_true", help="12,000 records alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    settings = [
        (n_records, rate, per_record)
        for n_records, rates in ((12_000, (0.0, 0.01, 0.05, 0.167)), (60_000, (0.01, 0.163)))
        for rate in rates
        for per_record in (8, 32)
        if n_records == 12_000 or not given.small
    ]
    rows = [measure(*setting, given.runs) for setting in settings]
    show(
        "Duplicate rate, 5 sites: error of the estimate",
        ("records", "d", "M / n", "rmse", "published", "largest", "in interval", "seconds"),
        [
            (
                f"{row.n_records}",
                f"{row.true_rate:.3f}",
                f"{row.buckets_per_record}",
                f"{row.rmse:.4f}",
                _published(row),
                f"{row.largest_error:.4f}",
                f"{row.covered:.2f}",
                f"{row.seconds:.1f}",
            )
            for row in rows
        ],
    )
    if given.json:
        write_json(given.json, {"machine": machine_facts(), "rows": [asdict(row) for row in rows]})


def measure(n_records: int, rate: float, per_record: int, n_runs: int) -> Row:
    """Return the errors of some simulations under keys of their own."""
    n_copies = round(rate * n_records)
    errors, covered, began = [], 0, time.perf_counter()
    for run in range(n_runs):
        federation = mc.Federation.in_process(
            simulate(n_records - n_copies, n_copies, run),
            policy=mc.Policy(min_patients=0),
            study=f"run {run}",
            pseudonym_key=mc.privacy.pseudonyms.PseudonymKey.generate(),
        )
        found = mc.linkage.estimate_duplicate_rate(federation, buckets_per_record=per_record, controls=CONTROLS)
        true = n_copies / n_records
        errors.append(found.rate - true)
        covered += found.interval[0] <= true <= found.interval[1]
    seconds = (time.perf_counter() - began) / n_runs
    rmse = math.sqrt(float(np.mean(np.square(errors))))
    return Row(n_records, rate, per_record, rmse, float(np.abs(errors).max()), covered / n_runs, seconds)


def simulate(n_persons: int, n_copies: int, seed: int) -> dict[str, mc.data.TableData]:
    """Return sites where every person has a record at one, and copies are at others."""
    rng = np.random.default_rng(seed)
    held: list[set[int]] = [set() for _ in range(N_SITES)]
    for person, site in enumerate(rng.integers(0, N_SITES, n_persons)):
        held[site].add(person)
    while sum(map(len, held)) < n_persons + n_copies:
        held[rng.integers(N_SITES)].add(int(rng.integers(n_persons)))
    named = {f"site-{place}": [f"p{one}" for one in sorted(persons)] for place, persons in enumerate(held)}
    return {
        name: mc.data.TableData(np.zeros((len(people) + 2, 1)), np.zeros(len(people) + 2), [*people, *CONTROLS])
        for name, people in named.items()
    }


def _published(row: Row) -> str:
    key = (row.n_records, {0.167: 0.164}.get(row.true_rate, row.true_rate), row.buckets_per_record)
    return f"{PUBLISHED[key]:.4f}" if key in PUBLISHED else "-"


if __name__ == "__main__":
    pin_threads()
    main()
