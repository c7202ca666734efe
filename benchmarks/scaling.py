"""Scaling curves of every method: seconds, memory, calls and bytes by patients, columns and sites.

Seconds are those of the processor, which other processes of the machine change least. Each method runs in a separate
process, sites one after another, one thread for linear algebra. A point whose expected time is above a limit
is omitted, and so are the larger ones; the reason is stored with the curve. All curves together are written to
benchmarks/results/scaling.json, from which docs/scaling.md is generated.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import pin_threads, show, write_json
from scaling_curves import slopes

RESULTS = Path(__file__).parent / "results" / "scaling.json"
# Seconds that a point may be expected to take, and that a curve may take in all: about 15 minutes for all methods.
POINT_S, CURVE_S = 6.0, 9.0
# Seconds without a new point after which the process of a method is ended.
PATIENCE_S = 120.0
# Short fits are repeated, and the median is taken.
REPEAT_BELOW_S, REPEATS = 0.5, 3
FULL = {
    "patients": (1_000, 10_000, 100_000, 1_000_000),
    "columns": (10, 30, 100),
    "sites": (2, 10, 50, 200, 500, 1_000),
}
QUICK = {"patients": (500, 1_000), "columns": (3, 6), "sites": (2, 4)}
QUICK_BASE = 500


def main() -> None:
    """Measure the methods that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="all by default")
    parser.add_argument("--quick", action="store_true", help="very small sizes, to try the script")
    parser.add_argument("--json", type=Path, help="write the points here")
    parser.add_argument("--renew", type=Path, help="replace methods of the stored results by those of this file")
    parser.add_argument("--slower", type=float, default=1.0, help="factor of the limits of time, for larger points")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    pin_threads()
    if options.worker:
        for point in measure_method(options.methods[0], quick=options.quick, slower=options.slower):
            print(json.dumps(point), flush=True)
        return
    if options.renew:
        renew(json.loads(options.renew.read_text()))
        importlib.import_module("pages").main()
        return
    from scaling_cases import CASES

    if unknown := sorted(set(options.methods) - set(CASES)):
        parser.error(f"methods must be of {', '.join(CASES)}; got {', '.join(unknown)}")
    path = options.json or (None if options.quick or options.methods else RESULTS)
    run(options.methods or list(CASES), quick=options.quick, path=path, slower=options.slower)
    if path == RESULTS:
        importlib.import_module("pages").main()


def run(methods: Sequence[str], *, quick: bool, path: Path | None, slower: float = 1.0) -> list[dict[str, Any]]:
    """Return, print and write the points of some methods."""
    began, points = time.perf_counter(), []
    for method in methods:
        method_began = time.perf_counter()
        measured = run_worker(method, quick=quick, slower=slower)
        points += measured
        show_curves(method, measured)
        print(f"{time.perf_counter() - method_began:.0f} s", flush=True)
        write_json(path, {"quick": quick, "points": points})  # an interrupted run keeps what it measured
    print(f"\nMeasured in {time.perf_counter() - began:.0f} s.", flush=True)
    return points


def renew(measured: Mapping[str, Any]) -> None:
    """Replace the points of the measured methods in the stored results, and note when they were measured."""
    stored, points = json.loads(RESULTS.read_text()), measured["results"]["points"]
    methods = {point["method"] for point in points}
    kept = [point for point in stored["results"]["points"] if point["method"] not in methods]
    stored["results"]["points"] = sorted(kept + points, key=lambda point: point["method"])  # stable: curves stay whole
    when = f"{measured['machine']['date']}, load {measured['machine']['load']:.1f}"
    stored["machine"]["renewed"] = stored["machine"].get("renewed", {}) | dict.fromkeys(sorted(methods), when)
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


def run_worker(method: str, *, quick: bool, slower: float) -> list[dict[str, Any]]:
    """Return the points of one method from a separate process, which is ended if a point takes far too long."""
    command = [sys.executable, __file__, method, "--worker", f"--slower={slower}", *(["--quick"] if quick else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    points = []
    stop = threading.Timer(PATIENCE_S * slower, process.kill)
    stop.start()
    for line in process.stdout:
        points.append(json.loads(line))
        stop.cancel()
        stop = threading.Timer(PATIENCE_S * slower, process.kill)
        stop.start()
    stop.cancel()
    if process.wait():
        reason = f"no point within {PATIENCE_S:.0f} s" if process.returncode < 0 else "the process failed"
        points.append({"method": method, "axis": "all", "masked": True, "size": 0, "omitted": reason})
    return points


def measure_method(method: str, *, quick: bool, slower: float) -> Iterator[dict[str, Any]]:
    """Yield the points of the curves of one method."""
    from scaling_cases import CASES, COLUMNS, PATIENTS, SITES

    warnings.simplefilter("ignore")  # fits of few rounds warn that they did not converge
    case, axes = CASES[method], QUICK if quick else FULL
    patients = QUICK_BASE if quick else PATIENTS
    of_sites = QUICK_BASE if quick else case.patients_of_sites
    sites = tuple(size for size in axes["sites"] if size <= case.most_sites)
    measure_point(method, QUICK_BASE, COLUMNS, SITES, masked=True)  # loads kernels and modules
    curves: list[tuple[str, bool, Sequence[int], Callable[[int], tuple[int, int, int]]]] = [
        ("patients", True, axes["patients"], lambda size: (size, COLUMNS, SITES)),
        ("columns", True, axes["columns"], lambda size: (patients, size, SITES)),
        ("sites", False, sites, lambda size: (of_sites, COLUMNS, size)),
        ("sites", True, sites, lambda size: (of_sites, COLUMNS, size)),
    ]
    for axis, masked, sizes, shape in curves:
        for point in measure_curve(method, sizes, shape, masked=masked, slower=slower):
            yield {"method": method, "axis": axis, "masked": masked, **point}


def measure_curve(
    method: str,
    sizes: Sequence[int],
    shape: Callable[[int], tuple[int, int, int]],
    *,
    masked: bool,
    slower: float = 1.0,
) -> Iterator[dict[str, Any]]:
    """Yield the points of one curve, and the reason why the others are omitted."""
    began, done = time.process_time(), list[tuple[int, float]]()
    for size in sizes:
        expected = expect(done, size)
        if expected > POINT_S * slower or time.process_time() - began > CURVE_S * slower:
            yield {"size": size, "omitted": f"about {expected:.0f} s expected"}
            return
        try:
            point = measure_point(method, *shape(size), masked=masked)
        except Exception as error:  # any refusal is a result, and its reason is stored
            yield {"size": size, "omitted": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
            return
        done.append((size, point["seconds"]))
        yield {"size": size, **point}


def expect(done: Sequence[tuple[int, float]], size: int) -> float:
    """Return the seconds expected at a size, by the slope of the last two points, at least 1."""
    if not done:
        return 0.0
    slope = 0.7  # of the first two points, where costs that do not depend on the size still count
    if len(done) > 1:
        (a, s), (b, t) = done[-2:]
        slope = max(1.0, math.log(t / s) / math.log(b / a))
    return done[-1][1] * (size / done[-1][0]) ** slope


def measure_point(method: str, n_patients: int, n_columns: int, n_sites: int, *, masked: bool) -> dict[str, Any]:
    """Return seconds, memory, calls and bytes of a fit."""
    from scaling_cases import CASES

    import multicentre as mc
    from multicentre.estimator.base import find_estimator

    case = CASES[method]
    sites = case.sites(n_patients, n_columns, n_sites)
    params = {name: value(sites) if callable(value) else value for name, value in case.params.items()}
    seconds, wall, held = list[float](), list[float](), memory_mib("VmRSS")
    forget_peak()
    while not seconds or (seconds[0] < REPEAT_BELOW_S and len(seconds) < REPEATS):
        with mc.Federation.in_process(sites, policy=policy(), secure_sum=masked) as federation:
            began, worked = time.perf_counter(), time.process_time()
            find_estimator(method)(**params).fit(federation)
            seconds.append(time.process_time() - worked)
            wall.append(time.perf_counter() - began)
    traffic = federation.traffic
    return {
        "seconds": float(f"{statistics.median(seconds):.5g}"),
        "wall_s": float(f"{statistics.median(wall):.5g}"),
        "repeats": len(seconds),
        "peak_mib": round(memory_mib("VmHWM") - held, 1),
        "calls": traffic.round_trips or sum(traffic.calls.values()),
        "bytes_from_site": round(sum(traffic.bytes_from_sites.values()) / n_sites),
        "bytes_to_site": round(sum(traffic.bytes_to_sites.values()) / n_sites),
    }


def policy() -> Any:
    """Return the policy of all sites."""
    from scaling_cases import OPEN

    return OPEN


def show_curves(method: str, points: Sequence[Mapping[str, Any]]) -> None:
    """Print slopes, then seconds and memory of every point."""
    rows = []
    for axis, masked in dict.fromkeys((point["axis"], point["masked"]) for point in points):
        curve = [point for point in points if (point["axis"], point["masked"]) == (axis, masked)]
        slope = slopes([point for point in curve if "seconds" in point])
        cells = [
            f"{one['size']:,}: {one['seconds']:.3g} s, {one['peak_mib']:.0f} MiB"
            if "seconds" in one
            else f"{one['size']:,}: omitted ({one['omitted']})"
            for one in curve
        ]
        over, last = (f"{value:.2f}" for value in slope) if slope else ("", "")
        rows.append([axis, "masked" if masked else "unmasked", over, last, "; ".join(cells)])
    show(method, ["axis", "sums", "slope", "at the end", "points"], rows)


def memory_mib(kind: str) -> float:
    """Return what the process holds (VmRSS) or held at most (VmHWM); not a number where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("nan")
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(kind)), float("nan"))


def forget_peak() -> None:
    """Reset the most that the process held."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return


if __name__ == "__main__":
    main()
