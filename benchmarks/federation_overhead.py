"""What a round costs besides the method: microseconds for each site and round with a small message."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measuring import median_seconds, pin_threads, show, write_json

import multicentre as mc
from multicentre.core.messages import Message, array, count
from multicentre.core.steps import Release, SitePart, step

SIZE = 10
ARRANGEMENTS = {
    "in process, sums unmasked": {"secure_sum": False},
    "in process, strict (through the wire format), sums unmasked": {"strict": True, "secure_sum": False},
    "in process, masked sums": {},
    "in process, strict, masked sums": {"strict": True},
}


@dataclass(frozen=True)
class Question(Message):
    """A small message to the sites."""

    values: np.ndarray = array("current values", ("d",))


@dataclass(frozen=True)
class Answer(Release):
    """A small message from a site."""

    total: np.ndarray = array("column sums", ("d",), bound=2.0**36)
    n: int = count("patients")


class ColumnSums(SitePart):
    """Adds up a few columns."""

    method = "benchmark-sums"
    holds = np.ndarray

    @step(releases=Answer, when="every round", summed=True)
    def add(self, request: Question) -> Answer:
        """Add up the rows about the values."""
        return Answer(self.data.sum(axis=0) - request.values, len(self.data), patients=len(self.data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10, 30])
    parser.add_argument("--rounds", type=int, default=50, help="rounds in a run")
    parser.add_argument("--runs", type=int, default=5, help="runs whose median is reported")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    alone = 1e6 * median_seconds(step_alone(given.rounds), given.runs) / given.rounds
    results = {
        name: {n: cost(n, given.rounds, given.runs, **options) - alone for n in given.sites}
        for name, options in ARRANGEMENTS.items()
    }
    show(
        f"Microseconds for each site and round, {SIZE} numbers each way (the step's own {alone:.1f} taken off)",
        ["federation", *(f"{n} sites" for n in given.sites)],
        [[name, *(f"{microseconds:.0f}" for microseconds in found.values())] for name, found in results.items()],
    )
    write_json(given.json, {"step_us": alone, "overhead_us": results})


def step_alone(n_rounds: int):
    """Return a run of the step without a federation."""
    part, request = ColumnSums("one", np.ones((20, SIZE))), Question(np.zeros(SIZE))

    def run() -> None:
        for _ in range(n_rounds):
            part.add(request)

    return run


def cost(n_sites: int, n_rounds: int, n_runs: int, **options: bool) -> float:
    """Return microseconds for each site and round."""
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(20, SIZE)) for i in range(n_sites)}
    request = Question(np.zeros(SIZE))
    federation = mc.Federation.in_process(sites, **options).begin(ColumnSums)

    def run() -> None:
        for _ in range(n_rounds):
            federation.sum(ColumnSums.add, request)

    run()
    return 1e6 * median_seconds(run, n_runs) / (n_rounds * n_sites)


if __name__ == "__main__":
    main()
