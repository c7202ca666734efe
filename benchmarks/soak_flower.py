"""Part of ``soak.py`` over Flower's fast mode: memory of agents, coordinator's app, SuperLink, proxy and analyst."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flower_deployment import Deployment
from flower_site import STUDY, Echo, Parcel
from soak_usage import Usage, find_leaks, trend_of

from multicentre.privacy.ledger import verify_ledger

N_SITES, N_NUMBERS, N_SAMPLES = 3, 50, 100
WARM_UP = 0.6  # the cache of checked signatures holds the ends of ledgers of some 340 rounds
MAX_MB_PER_1000 = 2.0  # over some hundred rounds, single steps of the allocator (0.1 to 0.3 MB) count
OF_FLOWER = ("SuperLink", "SuperExec", "nginx")  # programs of others, which are reported and not judged
PROGRAMS = {
    "flower-superlink": "SuperLink",
    "flower-superexec": "SuperExec",
    "flwr-serverapp": "coordinator's app",
    "nginx": "nginx",
}


def soak_over_flower(n_rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Run the rounds; return the figures, and a sentence for each leak in the processes of this package."""
    began = time.perf_counter()
    with Deployment() as deployment:
        names = deployment.add_sites("fast", N_SITES)
        session = deployment.federate(names).begin(Echo)
        pids = {name: deployment.processes[name].pid for name in names}
        pids |= {"analyst": os.getpid(), "coordinator": deployment.processes["coordinator"].pid}
        pids |= _programs_under(pids["coordinator"])
        samples: dict[str, list[Usage]] = {name: [] for name in pids}
        rng = np.random.default_rng(0)
        for number in range(1, n_rounds + 1):
            parcel = Parcel(rng.random(N_NUMBERS))
            answers = session.ask(Echo.echo, parcel)
            if len(answers) != N_SITES or any(
                not np.array_equal(answer.values, parcel.values) for answer in answers.values()
            ):
                raise RuntimeError("a site did not send back what it was sent")
            if number % max(1, n_rounds // N_SAMPLES) == 0:
                gc.collect()
                for name, pid in pids.items():
                    samples[name].append(Usage.of(pid, number))
        database = deployment.consortium.state / "superlink.db"
        database_mb = sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*")) / 1e6
        ledgers = {name: deployment.folder / name / "ledgers" / f"{STUDY}.jsonl" for name in names}
        entries = {name: verify_ledger(path).entries for name, path in ledgers.items()}
    trends = {name: trend_of(one, WARM_UP) for name, one in samples.items()}
    leaks = find_leaks({name: one for name, one in trends.items() if name not in OF_FLOWER}, MAX_MB_PER_1000)
    leaks += [f"{name}: the process remains" for name, pid in pids.items() if name != "analyst" and _runs(pid)]
    figures = {
        "rounds": n_rounds,
        "seconds": time.perf_counter() - began,
        "ledger entries, verified": entries,
        "bound, MB per 1,000 rounds": MAX_MB_PER_1000,
        "database of the SuperLink, MB": database_mb,
        "processes": {name: asdict(trend) for name, trend in trends.items()},
    }
    return figures, leaks


def _programs_under(pid: int) -> dict[str, int]:
    """Return the known programs among the descendants of a process; of several, the first one."""
    programs: dict[str, int] = {}
    for child in _children(pid):
        words = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
        name = next((name for program, name in PROGRAMS.items() if program in words), None)
        programs = {**_programs_under(child), **({} if name is None else {name: child}), **programs}
    return programs


def _children(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
