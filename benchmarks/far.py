"""Time, traffic and cost of a study over many hospitals, extrapolated from the scaling curves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaling_curves import Points, curves, extrapolate
from tables import DOCS

N_SITES, N_PATIENTS = 500, 50_000_000
# Assumed prices in euros, of the order of large clouds' price lists: a processor hour, and a GB that leaves a network.
EUR_PER_CPU_HOUR, EUR_PER_GB = 0.05, 0.08
# A coordinator has two processors, as the machine on which calls were measured.
COORDINATOR_CPUS = 2


@dataclass(frozen=True)
class Network:
    """A measurement of calls over Flower.

    Parameters
    ----------
    n_sites : int
        Sites of the measurement.
    call_s : float
        Median seconds of a call with the smallest payload.
    superlink_s : float
        Processor seconds of the SuperLink per call.
    megabytes_per_s : float
        Throughput of all sites together with the largest payload.
    """

    n_sites: int
    call_s: float
    superlink_s: float
    megabytes_per_s: float

    @property
    def per_site_s(self) -> float:
        """Seconds that each further site adds to a call, because the SuperLink serves sites one after another."""
        return self.superlink_s / self.n_sites

    def call(self, n_sites: float) -> float:
        """Return the seconds of a call to so many sites."""
        return self.call_s + self.per_site_s * max(0.0, n_sites - self.n_sites)


def read_network() -> Network:
    """Return the measurement of the fast mode alone on the page on Flower."""
    text = (DOCS / "flower-speed.md").read_text(encoding="utf-8")
    title = re.search(r"Fast mode alone: each of (\d+) sites.*?\n\n(\|.*?)\n\n", text, re.DOTALL)
    if title is None:
        raise ValueError("docs/flower-speed.md must have a table 'Fast mode alone: each of N sites'; got none.")
    lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in title[2].splitlines()]
    headings, rows = lines[0], lines[2:]

    def cell(row: Sequence[str], heading: str) -> float:
        return float(row[next(j for j, name in enumerate(headings) if name.startswith(heading))])

    smallest, largest = rows[0], rows[-1]
    return Network(
        int(title[1]),
        cell(smallest, "median s"),
        cell(smallest, "processor s of the SuperLink"),
        cell(largest, "MB/s"),
    )


@dataclass(frozen=True)
class Work:
    """What a method was measured to need.

    Parameters
    ----------
    calls : float
        Calls of a fit at default parameters.
    bytes_per_call : float
        Bytes to and from a site per call.
    patients, sites : sequence of points
        Curves of seconds.
    masked : bool
        Whether the curve by sites is of masked sums.
    """

    calls: float
    bytes_per_call: float
    patients: Points
    sites: Points
    masked: bool

    @property
    def bytes_per_site(self) -> float:
        """Bytes to and from a site in a fit."""
        return self.calls * self.bytes_per_call

    def at_a_site(self, n_patients: float) -> float:
        """Return processor seconds of a site, at most: the curve includes the coordinator and the other sites."""
        return self.calls * extrapolate(self.patients, n_patients)

    def at_a_coordinator(self, n_sites: float) -> float:
        """Return processor seconds of a coordinator, at most: the curve includes the sites."""
        return self.calls * extrapolate(self.sites, n_sites)


def work_of(points: Sequence[Mapping[str, Any]], default_calls: int) -> Work | None:
    """Return the work of a method from its points, or None where its curves are too short."""
    by_axis = curves(points)
    patients, masked = by_axis.get(("patients", True), []), by_axis.get(("sites", True), [])
    unmasked = by_axis.get(("sites", False), [])
    sites = masked if len(masked) > 1 else unmasked
    if len(patients) < 2 or len(sites) < 2:
        return None
    largest = sites[-1]
    per_call = (largest["bytes_from_site"] + largest["bytes_to_site"]) / largest["calls"]
    return Work(default_calls, per_call, patients, sites, sites is masked)


@dataclass(frozen=True)
class Estimate:
    """Seconds of a study by part, gigabytes of all sites, and euros."""

    calls_s: float
    transfer_s: float
    sites_s: float
    coordinators_s: float
    gigabytes: float
    euros: float

    @property
    def minutes(self) -> float:
        """Minutes from the first call to the last."""
        return (self.calls_s + self.transfer_s + self.sites_s + self.coordinators_s) / 60.0


def estimate(work: Work, network: Network, n_regions: int = 1) -> Estimate:
    """Return the estimate for `N_SITES` sites, which call one coordinator or those of `n_regions` regions."""
    per_region = math.ceil(N_SITES / n_regions)
    levels = [per_region] if n_regions == 1 else [per_region, n_regions]
    calls_s = work.calls * sum(network.call(n) for n in levels)
    transfer_s = sum(n * work.bytes_per_site for n in levels) / (1e6 * network.megabytes_per_s)
    sites_s = work.at_a_site(N_PATIENTS / N_SITES)
    coordinators_s = sum(work.at_a_coordinator(n) for n in levels)
    n_nodes = N_SITES + (n_regions if n_regions > 1 else 0)
    gigabytes = n_nodes * work.bytes_per_site / 1e9
    hours = (calls_s + transfer_s + sites_s + coordinators_s) / 3600.0
    n_coordinators = 1 if n_regions == 1 else 1 + n_regions
    processor_hours = N_SITES * sites_s / 3600.0 + n_coordinators * COORDINATOR_CPUS * hours
    euros = EUR_PER_CPU_HOUR * processor_hours + EUR_PER_GB * gigabytes
    return Estimate(calls_s, transfer_s, sites_s, coordinators_s, gigabytes, euros)
