"""A method of one step that adds up a few columns, for the cost of a round besides the method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import multicentre as mc
from multicentre.core.messages import Message, array, count
from multicentre.core.steps import Release, SitePart, step

N_PATIENTS = 20


@dataclass(frozen=True)
class Values(Message):
    """Values about which to sum."""

    values: np.ndarray = array("current values", ("d",))


@dataclass(frozen=True)
class Sums(Release):
    """Sums of columns."""

    total: np.ndarray = array("column sums", ("d",), bound=2.0**36)
    n: int = count("patients")


class ColumnSums(SitePart):
    """Adds up columns."""

    method = "benchmark-sums"
    holds = np.ndarray

    @step(releases=Sums, when="every round", summed=True)
    def add(self, request: Values) -> Sums:
        """Add up the rows about the values."""
        return Sums(self.data.sum(axis=0) - request.values, len(self.data), patients=len(self.data))


def rounds(n_sites: int, n_rounds: int, size: int, n_patients: int = N_PATIENTS, **options: Any) -> Callable[[], None]:
    """Return a function that runs rounds of a session; masks are agreed on before the first."""
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(n_patients, size)) for i in range(n_sites)}
    request = Values(np.zeros(size))
    session = mc.Federation.in_process(sites, **options).begin(ColumnSums)

    def run() -> None:
        for _ in range(n_rounds):
            session.sum(ColumnSums.add, request)

    return run
