"""Seconds that a call costs over real processes, beside Flower's own minimal loop with the same payload in one run.

A coordinator with TLS, authenticated sites, nginx and a database on disk, and sites as processes of this machine. A
call sends numbers to every site and brings them back; with us through request handler, guard and ledger, which Flower's
loop does not have. First come the fast mode alone and its throughput; then sites of the standard mode and Flower's own
SuperNodes stand next to it, and all three are called in turn, so that a busy machine hits them alike.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flower_deployment import PROXY, Deployment, Usage
from flower_site import PATIENTS, POLICY, Echo, Parcel
from measuring import pin_threads, write_json

import multicentre as mc

N_SITES = 3
TINY, KB, MB = 80, 1_000, 1_000_000
SIZES, FEW_SIZES = (TINY, 10 * KB, MB, 50 * MB, 200 * MB), (TINY, 10 * KB, MB)
FAST_A_TURN, OTHERS_A_TURN = 8, 2
SPREAD = ("calls", "median s", "min", "max")
BAR_FAST_S, BAR_STANDARD, BAR_FASTER = 0.6, 1.2, 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6, help="turns of which the medians are told (default: 6)")
    parser.add_argument("--quick", action="store_true", help="few turns, small payloads: about three minutes")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Told to stop."))  # so that all processes are ended
    n_turns, sizes = (2, FEW_SIZES) if given.quick else (given.rounds, SIZES)
    results: dict[str, Any] = {"load at the beginning": os.getloadavg()}
    print(f"{N_SITES} sites, proxy: {PROXY}. Load at the beginning: {_load()}.", flush=True)
    with Deployment() as deployment:
        fast = begin_fast(deployment)
        results["strict"] = measure_strict(n_turns)
        results["payloads"] = measure_payloads(deployment, fast, sizes, n_turns)
        others = begin_others(deployment)
        for size in (TINY,) if given.quick else (TINY, MB):
            results[f"turns, {size}"] = measure_turns({"fast": fast, **others}, size, n_turns)
        show_starts(deployment.began)
        results["starts"] = deployment.began
    results["load at the end"] = os.getloadavg()
    print(f"\nLoad at the end: {_load()}.")
    write_json(given.json, results)


def begin_fast(deployment: Deployment) -> Callable[[int], float]:
    """Start the sites of the fast mode and a run over them; return a function that times a call."""
    return begin_run(deployment, deployment.add_sites("fast", N_SITES), "fast mode")


def begin_others(deployment: Deployment) -> dict[str, Callable[[int], float]]:
    """Start the sites of the standard mode and Flower's own, and a run over each."""
    names = {mode: deployment.add_sites(mode, N_SITES) for mode in ("standard", "flower")}
    standard = begin_run(deployment, names["standard"], "standard mode")
    loop = deployment.start_loop(names["flower"])
    deployment.began["run submitted, until the first requests are answered (Flower's loop)"] = (
        loop.submitted_s + loop.round(TINY)
    )
    return {"standard": standard, "flower": loop.round}


def begin_run(deployment: Deployment, names: Sequence[str], mode: str) -> Callable[[int], float]:
    began = time.perf_counter()
    call = caller(deployment.federate(names))
    deployment.began[f"run submitted, until the first requests are answered ({mode})"] = time.perf_counter() - began
    return call


def caller(federation: mc.Federation) -> Callable[[int], float]:
    """Return what sends so many bytes to every site and back, and returns the seconds that it took."""
    federation, rng = federation.begin(Echo), np.random.default_rng(0)

    def call(n_bytes: int) -> float:
        parcel = Parcel(rng.random(n_bytes // 8))
        began = time.perf_counter()
        answers = federation.ask(Echo.echo, parcel)
        seconds = time.perf_counter() - began
        if any(not np.array_equal(answer.values, parcel.values) for answer in answers.values()):
            raise RuntimeError("a site did not send back what it was sent")
        return seconds

    return call


def measure_strict(n_turns: int) -> list[float]:
    sites = {f"site-{number}": PATIENTS for number in range(N_SITES)}
    with mc.Federation.in_process(sites, policy=POLICY, strict=True) as federation:
        call = caller(federation)
        call(TINY)
        seconds = [call(TINY) for _ in range(n_turns * FAST_A_TURN)]
    print(f"\nThe strict engine in one process, {_bytes(TINY)}: {1000 * statistics.median(seconds):.1f} ms per call.")
    return seconds


def measure_payloads(
    deployment: Deployment, call: Callable[[int], float], sizes: Sequence[int], n_turns: int
) -> dict[int, Any]:
    """Time the fast mode alone, by payload, with the memory that it takes."""
    found: dict[int, Any] = {}
    rows = []
    for size in sizes:
        n_calls = n_turns * FAST_A_TURN if size <= MB else max(2, n_turns // 2) if size < 100 * MB else 2
        call(TINY)
        load, sites = _load(), [one.pid for name, one in deployment.processes.items() if name.startswith("fast")]
        users = {"site": sites, "SuperLink": [deployment.superlink], "analyst": [os.getpid()]}
        usage = {what: [Usage(pid) for pid in pids] for what, pids in users.items()}
        seconds = [call(size) for _ in range(n_calls)]
        peaks = {what: max(one.peak_mb for one in several) for what, several in usage.items()}
        processor_s = usage["SuperLink"][0].processor_s / n_calls
        rate = 2 * N_SITES * size / MB / statistics.median(seconds)
        found[size] = {"seconds": seconds, "MB/s": rate, "peak MB": peaks, "SuperLink s": processor_s, "load": load}
        used = [f"{rate:.2g}" if rate < 10 else f"{rate:.0f}", *(f"{mb:.0f}" for mb in peaks.values())]
        rows.append([_bytes(size), *_spread(seconds), *used, f"{processor_s:.2f}", load])
    held = [f"peak MB, {what}" for what in peaks]
    _table(
        f"Fast mode alone: each of {N_SITES} sites receives the payload and returns it",
        ["payload", *SPREAD, "MB/s, all sites", *held, "processor s of the SuperLink per call", "load"],
        rows,
    )
    tiny = statistics.median(found[TINY]["seconds"])
    print(f"\nTarget: {tiny:.2f} s per call, at most {BAR_FAST_S} s: {_met(tiny <= BAR_FAST_S)}.", flush=True)
    return found


def measure_turns(calls: dict[str, Callable[[int], float]], size: int, n_turns: int) -> dict[str, Any]:
    """Call fast sites, standard ones and Flower's own in turn."""
    first: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    load = _load()
    for _ in range(n_turns):
        first.append(calls["fast"](size))
        seconds["fast"] += [calls["fast"](size) for _ in range(FAST_A_TURN)]
        for _ in range(OTHERS_A_TURN):
            for name in ("standard", "flower"):
                seconds[name].append(calls[name](size))
    what = {
        "standard": "standard mode",
        "fast": "fast mode",
        "flower": "Flower's own loop (`grid.send_and_receive`)",
    }
    rows = [[what[name], *_spread(seconds[name])] for name in what]
    rows.insert(2, ["fast mode, the first call after a pause of some seconds", *_spread(first)])
    _table(
        f"In turn, {_bytes(size)} to each of {N_SITES} sites and back (load {load} before, {_load()} after)",
        ["what", *SPREAD],
        rows,
    )
    medians = {name: statistics.median(several) for name, several in seconds.items()}
    slower, faster = medians["standard"] / medians["flower"], medians["flower"] / medians["fast"]
    print(f"\nTarget: standard / Flower {slower:.2f}, at most {BAR_STANDARD}: {_met(slower <= BAR_STANDARD)}.")
    print(f"Target: Flower / fast {faster:.1f}, at least {BAR_FASTER:g}: {_met(faster >= BAR_FASTER)}.", flush=True)
    return {"seconds": seconds, "first": first, "standard/flower": slower, "flower/fast": faster}


def show_starts(began: dict[str, float]) -> None:
    _table("Starts", ["from, to", "s"], [[what, f"{seconds:.1f}"] for what, seconds in began.items()])


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    print(f"\n{title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines), flush=True)


def _spread(seconds: Sequence[float]) -> list[str]:
    """Return number, median, least and most."""
    several = (statistics.median(seconds), min(seconds), max(seconds))
    return [str(len(seconds)), *(f"{one:.4f}" if one < 0.01 else f"{one:.2f}" for one in several)]


def _bytes(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} kB" if size >= KB else f"{size} B"


def _met(yes: bool) -> str:
    return "met" if yes else "NOT met"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
