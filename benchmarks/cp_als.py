"""Seconds of a pass of CP-ALS beside pyttb in the same run, and of a round of DPFact by entries, sites and rank.

Sections: als, stat. Without arguments both are run. Times are those of the processor, one thread, least of some
repetitions: other users of the machine lengthen them, never shorten them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.data import EventTensor
from multicentre.datasets import simulate_paper_tensor, simulate_planted
from multicentre.phenotyping import DPFact
from multicentre_papers.baselines.cp import CPALS

RANK = 50
N_PASSES = 3
CMS = {
    "n_patients": 82_307,
    "sizes": {"procedure": 2532, "diagnosis": 10_983},
    "n_phenotypes": 50,
    "n_sites": 5,
    "windows": 1.85,
    "site_skew": 0.0,
}
DATA: dict[str, Callable[[], EventTensor]] = {
    "paper's synthetic": lambda: simulate_paper_tensor().tensor,
    "MIMIC-like": lambda: simulate_planted().tensor,
    "CMS-like": lambda: simulate_planted(**CMS).tensor,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: both")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of which the least is told")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {name: SECTIONS[name](given.runs) for name in given.sections or SECTIONS}
    write_json(given.json, results)


def compare_with_pyttb(n_runs: int) -> dict[str, Any]:
    """A pass over all three modes, from fits of one pass and of more, from the same start."""
    results, rows = {}, []
    for name, draw in DATA.items():
        tensor = draw()
        generator = np.random.default_rng(0)
        start = {mode: generator.random((len(names), RANK)) for mode, names in tensor.codes.items()}
        fits = {
            "ours": lambda n, t=tensor, s=start: fit_als(t, s, n, nonnegative=False),
            "nonnegative": lambda n, t=tensor, s=start: fit_als(t, s, n, nonnegative=True),
        }
        if (pyttb := pyttb_fit(tensor, start)) is not None:
            fits["pyttb"] = pyttb
        seconds, found = seconds_a_pass(fits, n_runs)
        ratio = seconds["pyttb"] / seconds["ours"] if "pyttb" in seconds else float("nan")
        apart = abs(found["pyttb"] - found["ours"]) if "pyttb" in found else float("nan")
        results[name] = {"entries": tensor.nnz, **seconds, "ratio": ratio, "fits_apart": apart}
        rows.append(
            [
                name,
                f"{tensor.nnz:,}",
                *(f"{seconds[one]:.3f}" if one in seconds else "" for one in ("ours", "nonnegative", "pyttb")),
                f"{ratio:.1f}",
                f"{apart:.0e}",
            ]
        )
    show(
        f"CP-ALS, rank {RANK}, seconds a pass (least of {n_runs})",
        ["data", "entries", "multicentre", "nonnegative", "pyttb", "times", "fits apart by"],
        rows,
    )
    return results


def fit_als(tensor: EventTensor, start: Mapping[str, np.ndarray], n: int, *, nonnegative: bool) -> float:
    return CPALS(RANK, init=start, max_iter=n, tol=0.0, nonnegative=nonnegative).fit(tensor).reconstruction_errors_.fit


def pyttb_fit(tensor: EventTensor, start: Mapping[str, np.ndarray]) -> Callable[[int], float] | None:
    try:
        import pyttb
    except ImportError:
        return None
    sparse = pyttb.sptensor(tensor.coordinates.astype(int), tensor.counts[:, None], tensor.shape)

    def fit(n: int) -> float:
        init = pyttb.ktensor([np.ones((len(tensor), RANK)), *(factor.copy() for factor in start.values())])
        return pyttb.cp_als(sparse, RANK, init=init, maxiters=n, stoptol=0.0, printitn=0)[2]["fit"]

    return fit


def seconds_a_pass(
    fits: Mapping[str, Callable[[int], float]], n_runs: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return least times of ``N_PASSES + 1`` passes less those of one, by fit in turn, and what the fits came to."""
    least: dict[tuple[str, int], float] = {}
    found = {}
    for _ in range(n_runs):
        for name, fit in fits.items():
            for n in (1, 1 + N_PASSES):
                began = time.process_time()
                found[name] = fit(n)
                least[name, n] = min(least.get((name, n), np.inf), time.process_time() - began)
    return {name: (least[name, 1 + N_PASSES] - least[name, 1]) / N_PASSES for name in fits}, found


class Clock(Listener):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def round_ended(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        self.ended.append(time.process_time())


def seconds_a_round(tensor: EventTensor, n_sites: int, rank: int, n_runs: int) -> float:
    """Return the least time between two rounds of DPFact, sites one after the other."""
    parts = np.array_split(np.arange(len(tensor)), n_sites)
    sites = {f"site-{number}": tensor.take(part) for number, part in enumerate(parts)}
    clock = Clock()
    # Nothing is left out, so that the work is the same however patients are cut into sites.
    federation = mc.Federation.in_process(sites, policy=mc.Policy(min_patients=1), listener=clock)
    model = DPFact(rank, init="random", max_iter=n_runs + 2, tol=0.0, vocabulary=tensor.codes, min_code_patients=1)
    model.fit(federation)
    return float(np.diff(clock.ended[-model.n_iter_ :])[1:].min())


def time_stat(n_runs: int) -> dict[str, Any]:
    """DPFact's exact solver by patients, rank and sites."""
    mimic, cms = DATA["MIMIC-like"](), DATA["CMS-like"]()
    shares = [(f"1/{part} of its patients", mimic.take(np.arange(len(mimic) // part)), 1, 20) for part in (8, 4, 2)]
    cases = [
        *(("MIMIC-like, " + name, *case) for name, *case in shares),
        *(("MIMIC-like", mimic, n_sites, 20) for n_sites in (1, 5, 10, 40)),
        *(("MIMIC-like", mimic, 1, rank) for rank in (10, 50, 100)),
        ("CMS-like", cms, 1, 50),
        ("CMS-like", cms, 5, 50),
    ]
    results, rows = {}, []
    for name, tensor, n_sites, rank in cases:
        seconds = seconds_a_round(tensor, n_sites, rank, n_runs)
        results[f"{name}, {n_sites} sites, rank {rank}"] = {"entries": tensor.nnz, "seconds": seconds}
        rows.append(
            [name, f"{tensor.nnz:,}", str(n_sites), str(rank), f"{seconds:.3f}", f"{1e9 * seconds / tensor.nnz:.0f}"]
        )
    show(
        f"DPFact, exact solver, seconds a round, sites one after the other (least of {n_runs})",
        ["data", "entries", "sites", "rank", "seconds", "ns an entry"],
        rows,
    )
    return results


SECTIONS: dict[str, Callable[[int], dict[str, Any]]] = {"als": compare_with_pyttb, "stat": time_stat}


if __name__ == "__main__":
    main()
