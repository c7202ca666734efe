"""What differential privacy costs DPFact: phenotypes found and outcomes ranked, by patients and epsilon."""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.datasets import simulate_planted
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.fitted.model import rank_outcome
from multicentre.phenotyping.scores import factor_match_score

RANK, N_SITES, TRAINING = 20, 6, 0.6
HEADINGS = ["patients", "mechanism", "epsilon", "sums", "match", "lowest", "AUC", "signal", "seconds"]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=3, help="data sets behind each mean")
    arguments.add_argument("--patients", type=int, nargs="+", default=[2000, 5000, 10_000, 40_662], help="of all sites")
    arguments.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 4.0, 2.0, 1.0, 0.5])
    arguments.add_argument("--mechanism", nargs="+", choices=["dp-als", "bolt-on"], default=["dp-als", "bolt-on"])
    arguments.add_argument("--rounds", type=int, default=1, help="private rounds after the start")
    arguments.add_argument("--delta", type=float, default=1e-5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    pin_threads()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    rows = []
    for n in given.patients:
        draws = [Draw(n, seed) for seed in range(given.seeds)]
        rows.append(_row(results, [str(n), "none", "", "masked"], [draw.level(solver="stat") for draw in draws]))
        for mechanism, epsilon, sums in itertools.product(given.mechanism, given.epsilon, ("masked", "unmasked")):
            parameters = {"epsilon": epsilon, "delta": given.delta, "n_private_rounds": given.rounds}
            parameters |= _of_mechanism(mechanism, n)
            levels = [draw.level(secure_sum=sums == "masked", **parameters) for draw in draws]
            rows.append(_row(results, [str(n), mechanism, f"{epsilon:g}", sums], levels))
    show(
        f"{N_SITES} sites, rank {RANK}, 202 x 316 codes, delta = {given.delta:g}; means over {given.seeds} data sets, "
        "in brackets the standard deviation",
        HEADINGS,
        rows,
    )
    write_json(given.json, results)


class Draw:
    """Patients of planted phenotypes at several sites, and a split of them for the outcome."""

    def __init__(self, n: int, seed: int) -> None:
        self.simulated = simulate_planted(n, n_phenotypes=RANK, n_sites=N_SITES, random_state=seed)
        self.sites = self.simulated.by_site()
        self.learns = np.random.default_rng(seed).random(n) < TRAINING

    def level(self, *, secure_sum: bool = True, **parameters: Any) -> tuple[float, float, float, float]:
        """Return factor match score to the truth, area under the curve from a refit, signal, and seconds of the fit."""
        tensor = self.simulated.tensor
        model = DPFact(RANK, vocabulary=tensor.codes, **parameters)
        began = time.perf_counter()
        policy = mc.Policy(min_patients=1)
        with mc.Federation.in_process(self.sites, secure_sum=secure_sum, policy=policy) as federation:
            model.fit(federation)
        seconds = time.perf_counter() - began
        match = factor_match_score(self.simulated.truth.factors, model.factors_).score
        memberships, outcome = model.transform(tensor), np.asarray(tensor.outcomes) == 1
        learns = self.learns
        auc = rank_outcome(memberships[learns], outcome[learns], memberships[~learns], outcome[~learns])
        signal = getattr(model, "noise_signal_", None)
        return match, auc, np.inf if signal is None else signal, seconds


def _of_mechanism(mechanism: str, n: int) -> Mapping[str, Any]:
    more = {"solver": "psgd", "public_site_size": n // N_SITES} if mechanism == "bolt-on" else {}
    return {"mechanism": mechanism, **more}


def _row(results: dict[str, Any], labels: list[str], levels: list[tuple[float, float, float, float]]) -> list[str]:
    results[", ".join(labels)] = levels
    match, auc, signal, seconds = np.array(levels).T
    told = [f"{values.mean():.3f} ({values.std(ddof=min(1, len(levels) - 1)):.3f})" for values in (match, auc)]
    print(*labels, *told, flush=True)
    return [*labels, told[0], f"{match.min():.3f}", told[1], f"{signal.mean():.0f}", f"{seconds.mean():.1f}"]


if __name__ == "__main__":
    main()
