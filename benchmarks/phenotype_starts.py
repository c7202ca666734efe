"""Errors and rounds of DPFact by its starts, and what `seed_stability` finds, on coded events of real patients.

Sets: the MIMIC-III demo (codes, and prefixes of codes), by which the defaults were chosen, and others, on which they
are reported: DE-SynPUF with prefixes of codes, and eICU if `--eicu` names a folder of its demo. `--trials` varies the
rounds of a trial on the first two sets. `--cms` times the start at the size of CMS's claims, in rounds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.data import EventTensor
from multicentre.datasets import simulate_planted
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.dpfact import rounds as loops

PREFIXES = {"icd9cm-dx": 3, "icd9cm-proc": 2, "hcpcs": 3}
RANK = 10
STARTS: dict[str, dict[str, Any]] = {
    "cooccurrence": {"init": "cooccurrence"},
    "random": {"init": "random", "n_starts": 1},
    "default": {},
    "both, 8 starts": {"n_starts": 8},
}
CMS: dict[str, Any] = {
    "n_patients": 82_307,
    "sizes": {"procedure": 2532, "diagnosis": 10_983},
    "n_phenotypes": 50,
    "n_sites": 5,
    "windows": 1.85,
    "site_skew": 0.0,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=10, help="fits per start")
    arguments.add_argument("--data", type=Path, help="folder with mimic3_demo and synpuf500")
    arguments.add_argument("--eicu", type=Path, help="folder with patient, diagnosis and treatment of eICU")
    arguments.add_argument("--cms", action="store_true", help="time the start at the size of CMS's claims instead")
    arguments.add_argument("--trials", action="store_true", help="vary the rounds from every start instead")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    pin_threads()
    warnings.simplefilter("ignore")
    if given.cms:
        write_json(given.json, time_start())
        return
    if given.trials:
        sets = {name: tensor for name, tensor in data_sets(given.data, None).items() if "chosen on" in name}
        write_json(given.json, {name: vary_trials(name, tensor, given.seeds) for name, tensor in sets.items()})
        return
    results = {name: compare(name, tensor, given.seeds) for name, tensor in data_sets(given.data, given.eicu).items()}
    write_json(given.json, results)


def data_sets(data: Path | None, eicu: Path | None) -> dict[str, EventTensor]:
    """Return the tensors by name: two sets to choose by, then the others."""
    sets = {"MIMIC-III demo, codes (chosen on)": mc.datasets.load_mimic3_demo(data).tensor}
    if data is not None:
        mimic = mc.data.read_mimic3(data / "mimic3_demo").events
        modes = {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}
        sets["MIMIC-III demo, prefixes (chosen on)"] = tensor_of(mimic, modes)
        claims = mc.data.read_synpuf(data / "synpuf500").events
        modes = {"procedure": ["hcpcs", "icd9cm-proc"], "diagnosis": "icd9cm-dx"}
        sets["DE-SynPUF, prefixes (reported on)"] = tensor_of(claims, modes)
    if eicu is not None:
        sets["eICU demo (reported on)"] = eicu_events(eicu)
    return sets


def tensor_of(events: Any, modes: Mapping[str, Any]) -> EventTensor:
    return EventTensor.from_events(mc.data.roll_up_to_prefix(events, PREFIXES), modes=modes)


def eicu_events(folder: Path) -> EventTensor:
    """Return the patients of the hospitals of eICU: treatments by the first three parts of their path."""
    events = mc.data.read_eicu(folder).events
    is_treatment = events["system"] == "eicu-treatment"
    parts = events["code"].str.split("|").str[:3].str.join("|")
    cut = events.assign(code=events["code"].where(~is_treatment, parts))
    rolled = mc.data.roll_up_to_prefix(cut, {"icd9cm-dx": 3})
    modes = {"treatment": "eicu-treatment", "diagnosis": "icd9cm-dx"}
    return EventTensor.from_events(rolled, modes=modes, anchor="admission")


def compare(name: str, tensor: EventTensor, n_seeds: int) -> dict[str, Any]:
    """Fit from every kind of start, and print errors over the lowest one, rounds and stability."""
    fits = {start: [fit(tensor, seed, **more) for seed in range(n_seeds)] for start, more in STARTS.items()}
    lowest = min(error for pairs in fits.values() for error, _ in pairs)
    rows = []
    for start, pairs in fits.items():
        above = 100 * (np.array([error for error, _ in pairs]) / lowest - 1)
        rows.append([start, f"{above.mean():.2f}", f"{above.max():.2f}", f"{np.mean([n for _, n in pairs]):.0f}"])
    show(f"{name}: {tensor}, rank {RANK}", ["starts", "error above lowest, %", "highest, %", "rounds"], rows)
    halves = np.array_split(np.random.default_rng(0).permutation(len(tensor)), 2)
    sites = {f"half-{number}": tensor.take(rows) for number, rows in enumerate(halves)}
    scores = {
        "starts and patients": mc.phenotyping.seed_stability(model(tensor), sites).attrs["score"],
        "starts alone, one each": mc.phenotyping.seed_stability(
            model(tensor, init="random", n_starts=1), sites, resample=False
        ).attrs["score"],
    }
    show("seed_stability", ["varied", "score"], [[what, f"{score:.2f}"] for what, score in scores.items()])
    return {"fits": fits, "stability": scores}


def vary_trials(name: str, tensor: EventTensor, n_seeds: int) -> dict[str, Any]:
    """Fit with more and fewer rounds from every start before one is chosen."""
    fits = {}
    for loops.N_TRIAL_ROUNDS in (3, 5, 10):
        fits[f"{loops.N_TRIAL_ROUNDS} rounds"] = [fit(tensor, seed) for seed in range(n_seeds)]
    rows = [
        [trial, f"{np.mean([error for error, _ in pairs]):.4f}", f"{np.mean([n for _, n in pairs]):.0f}"]
        for trial, pairs in fits.items()
    ]
    show(f"{name}: {tensor}, rank {RANK}", ["from every start", "error", "rounds"], rows)
    return fits


def model(tensor: EventTensor, seed: int = 0, **parameters: Any) -> DPFact:
    return DPFact(RANK, vocabulary=tensor.codes, random_state=seed, **parameters)


def fit(tensor: EventTensor, seed: int, **parameters: Any) -> tuple[float, int]:
    """Return the error and the rounds, with those of trials."""
    policy = mc.Policy(min_patients=0)
    with mc.Federation.in_process({"all": tensor}, policy=policy, secure_sum=False) as federation:
        fitted = model(tensor, seed, **parameters).fit(federation)
    return fitted.history_[-1]["rmse"], fitted.n_rounds_sent_


class Clock(Listener):
    """Notes the processor time at which loops begin and rounds end."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.ended: dict[str, list[float]] = {}

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        self.began[name.rpartition("-")[2]] = time.process_time()

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        self.ended.setdefault(name.rpartition("-")[2], []).append(time.process_time())


def time_start() -> dict[str, float]:
    """Time the start from co-occurrences and the trials of starts, over masked sums, in seconds and in rounds."""
    sites = simulate_planted(**CMS).by_site()
    codes = next(iter(sites.values())).codes
    clock = Clock()
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0), listener=clock) as federation:
        DPFact(50, vocabulary=codes, max_iter=6, tol=0.0).fit(federation)
    one_round = float(np.diff(clock.ended["rounds"]).min())
    trials = np.diff([clock.began["starts"], *clock.ended["starts"]])
    seconds = {"a round": one_round, "co-occurrence start": trials[0] - 5 * one_round, "all trials": trials.sum()}
    show(
        "Start at the size of CMS's claims, 5 sites, rank 50, masked",
        ["part", "seconds", "rounds"],
        [[part, f"{one:.2f}", f"{one / one_round:.1f}"] for part, one in seconds.items()],
    )
    return {part: float(one) for part, one in seconds.items()}


if __name__ == "__main__":
    main()
