"""Thousands of rounds over three site processes that are killed, restarted, stopped and cut off: does anything grow?

Sites and coordinator are processes of this machine. Requests travel over Unix sockets, and pass request handler, guard,
durable ledger, masks, witnesses and encrypted states as in a study over Flower. Runs alternate between a quorum of two
sites and of all. Meanwhile requests and replies are lost, requests are delivered twice, the site west is killed and
restarted, and the site south is stopped, sometimes for longer than the time limit. Every sum is checked against its
sites. At the end, ledgers and witnesses are verified, and the memory, file handles, threads and children of each
process must not have grown. Exits with status 1 otherwise. With --flower, the same is measured over Flower's fast mode,
without losses: agents, coordinator's app, SuperLink and analyst.
"""

from __future__ import annotations

import argparse
import gc
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json
from soak_carrier import SoakCarrier
from soak_site import IDENTITY, KEY, LEDGER, N_NUMBERS, SITES, SOCKET, STUDY, WEIGHTS, Point, SoakSite
from soak_usage import COUNTS, Trend, Usage, find_leaks, trend_of

import multicentre as mc
from multicentre.errors import QuorumLost
from multicentre.privacy.ledger import read_ledger, verify_ledger
from multicentre.privacy.ledger_heads import read_statement
from multicentre.privacy.ledger_witnesses import HEADS, check_against, confirmed_in, peers_file
from multicentre.privacy.secure_sum.identity import Identity

ROUNDS, ROUNDS_PER_FIT, N_RUNS = 10_000, 50, 10
KILLED_EVERY, STOPPED_EVERY = 400, 150  # rounds
TIME_LIMIT_S, BRIEF_S, LONG_S = 5.0, 0.3, 7.0
STARTED_WITHIN_S = 120.0
# The first third of the rounds fills caches: that of checked signatures holds the ends of some hundred rounds.
WARM_UP = 1 / 3
MAX_MB_PER_1000 = 0.5  # a list of the releases in memory would be 3 MB per 1,000 rounds and more


class Site:
    """Process of a site, and the usage of each of its lives."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root
        self.lives: list[list[Usage]] = []
        self.start()

    def start(self) -> None:
        script = Path(__file__).with_name("soak_site.py")
        self.process = subprocess.Popen([sys.executable, str(script), self.name, str(self.root)])
        self.lives.append([])

    def kill(self) -> None:
        """Kill the process without notice, and start another."""
        self.process.kill()
        self.process.wait()
        self.start()

    def pause(self, seconds: float) -> None:
        """Stop the process for some seconds."""
        self.process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(seconds, self.process.send_signal, [signal.SIGCONT])
        timer.daemon = True
        timer.start()

    def end(self) -> int:
        """End the process; return its exit status."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(STARTED_WITHIN_S)


class Soak:
    """The rounds, and what happens during them."""

    def __init__(self, root: Path, n_rounds: int) -> None:
        self.root, self.n_rounds, self.done = root, n_rounds, 0
        self.usage: list[Usage] = []
        self.events: Counter[str] = Counter()
        self._every = max(1, n_rounds // 200)
        self._rng = np.random.default_rng(0)
        for site in SITES:
            (root / site).mkdir(mode=0o700)
            Identity.generate().write(root / site / IDENTITY)
            (root / site / KEY).write_bytes(secrets.token_bytes(32))
        self.sites = {name: Site(name, root) for name in SITES}
        _wait(lambda: all((root / name / SOCKET).exists() for name in SITES))

    def run(self) -> None:
        for number in range(N_RUNS):
            self._run_study(number, "all" if number % 2 else 2, self.n_rounds * (number + 1) // N_RUNS)

    def _run_study(self, number: int, quorum: Any, until: int) -> None:
        carrier = SoakCarrier({name: self.root / name / SOCKET for name in SITES}, self.events)
        with mc.Federation.over(
            carrier, study=STUDY, quorum=quorum, time_limit_s=TIME_LIMIT_S, folder=self.root / f"run-{number}"
        ) as federation:
            while self.done < until:
                try:
                    self._fit(federation, min(ROUNDS_PER_FIT, until - self.done))
                except QuorumLost:
                    self.events["fits begun again"] += 1
                    time.sleep(0.1)

    def _fit(self, federation: mc.Federation, n_rounds: int) -> None:
        session = federation.begin(SoakSite)
        rounds = session.rounds(n_rounds, Point, lambda: Point(np.zeros(N_NUMBERS)))
        for _ in rounds:
            values = self._rng.integers(-1000, 1000, N_NUMBERS).astype(float)
            total = session.sum(SoakSite.weigh, Point(values)).values
            if not np.array_equal(total, sum(WEIGHTS[site] for site in session.sites) * values):
                raise RuntimeError("a sum differs from that of the sites in it")
            rounds.state = Point(values)
            self.done += 1
            self.events["rounds without a site"] += len(session.sites) < len(SITES)
            self._disturb()
            if self.done % self._every == 0:
                self._sample()

    def _disturb(self) -> None:
        if self.done % KILLED_EVERY == KILLED_EVERY // 2:
            self.sites["west"].kill()
            self.events["kills"] += 1
        if self.done % STOPPED_EVERY == 0:
            is_long = self.done % (4 * STOPPED_EVERY) == 0
            self.sites["south"].pause(LONG_S if is_long else BRIEF_S)
            self.events["stops beyond the time limit" if is_long else "stops within the time limit"] += 1

    def _sample(self) -> None:
        gc.collect()
        self.usage.append(Usage.of(os.getpid(), self.done))
        for site in self.sites.values():
            site.lives[-1].append(Usage.of(site.process.pid, self.done))

    def end(self) -> None:
        for site in self.sites.values():
            if site.end() != 0:
                raise RuntimeError(f"{site.name} ended with status {site.process.returncode}")

    def trends(self) -> dict[str, Trend]:
        """Return the trend of the coordinator, and of the sites that were never restarted."""
        lives = {"coordinator": self.usage, **{name: self.sites[name].lives[-1] for name in ("north", "south")}}
        return {name: trend_of(samples, WARM_UP) for name, samples in lives.items()}

    def verify(self) -> dict[str, int]:
        """Verify ledgers, and that all other parties of the runs confirm them; return the numbers of entries.

        Raises
        ------
        IntegrityError
            A ledger was changed or shortened.
        """
        paths = {site: self.root / site / LEDGER for site in SITES}
        keys = {site: [Identity.read(self.root / site / IDENTITY).public.hex()] for site in SITES}
        entries = {site: list(read_ledger(path)) for site, path in paths.items()}
        recorded = {
            f"run {number}": list(read_statement(self.root / f"run-{number}" / HEADS).heads.items())
            for number in range(N_RUNS)
        }
        recorded |= {
            f"{site}, last ends": list(read_statement(peers_file(path)).heads.items()) for site, path in paths.items()
        }
        recorded |= {f"{site}, ledger": confirmed_in(of_site) for site, of_site in entries.items()}
        for site, path in paths.items():
            verify_ledger(path, keys=keys[site])
            n_parties = check_against(site, path, entries[site], recorded, keys[site])
            if n_parties < N_RUNS + 2 * (len(SITES) - 1):
                raise RuntimeError(f"only {n_parties} parties recorded the ledger of {site}")
        computed = Counter(entry.get("step") for entry in entries["north"] if entry["event"] == "release")
        if computed["weigh"] < self.done:
            raise RuntimeError("the ledger of north has fewer sums than there were rounds")
        return {site: len(of_site) for site, of_site in entries.items()}


def soak(n_rounds: int, most_mb_per_1000: float) -> tuple[dict[str, Any], list[str]]:
    """Run the rounds; return the figures, and a sentence for each leak."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mc-soak-") as folder:
        run = Soak(Path(folder), n_rounds)
        try:
            run.run()
        finally:
            run.end()
        trends, entries = run.trends(), run.verify()
    leaks = find_leaks(trends, most_mb_per_1000)
    if children := Usage.of(os.getpid(), run.done).children:
        leaks.append(f"{children} processes remain")
    figures = {
        "rounds": run.done,
        "seconds": time.perf_counter() - began,
        "events": dict(run.events),
        "ledger entries, verified": entries,
        "bound, MB per 1,000 rounds": most_mb_per_1000,
        "processes": {name: asdict(trend) for name, trend in trends.items()},
    }
    return figures, leaks


def show_soak(figures: dict[str, Any]) -> None:
    show_trends(f"{figures['rounds']} rounds over sockets, {figures['seconds']:.0f} s", figures)
    print("\n" + "\n".join(f"{what}: {number}" for what, number in figures["events"].items()))
    print(f"Entries of ledgers, verified with all witnesses: {figures['ledger entries, verified']}.")


def show_trends(title: str, figures: dict[str, Any]) -> None:
    rows = [
        [
            name,
            f"{one['rounds']}",
            f"{one['first_mb']:.1f}",
            f"{one['last_mb']:.1f}",
            f"{one['mb_per_1000_rounds']:.3f}",
        ]
        + [f"{one['more'][what]:+g}" for what in COUNTS]
        for name, one in figures["processes"].items()
    ]
    show(title, ["process", "rounds", "first MB", "last MB", "MB per 1,000 rounds", *COUNTS], rows)


def _wait(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + STARTED_WITHIN_S
    while not happened():
        if time.monotonic() > end:
            sys.exit("the sites did not start")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"over sockets (default: {ROUNDS})")
    parser.add_argument("--flower", type=int, metavar="ROUNDS", help="also this many rounds over Flower's fast mode")
    parser.add_argument("--most-mb", type=float, default=MAX_MB_PER_1000, help="bound of the slope per 1,000 rounds")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    pin_threads()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Told to stop."))  # so that all processes are ended
    results: dict[str, Any] = {}
    leaks: list[str] = []
    if options.rounds:
        results["sockets"], leaks = soak(options.rounds, options.most_mb)
        show_soak(results["sockets"])
    if options.flower:
        from soak_flower import soak_over_flower

        results["flower"], leaks_over_flower = soak_over_flower(options.flower)
        show_trends(f"{options.flower} rounds over Flower, {results['flower']['seconds']:.0f} s", results["flower"])
        leaks += leaks_over_flower
    write_json(options.json, results)
    print("\n" + ("\n".join(["Leaks:", *leaks]) if leaks else "Nothing grew."))
    sys.exit(bool(leaks))


if __name__ == "__main__":
    main()
