"""What ``run.json`` says of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from multicentre.data.kinds import PatientData
from multicentre.estimator import Figure
from multicentre.federation.coordinator import Federation
from multicentre.privacy.policy import Policy
from multicentre.studies.comparison import Comparison, named_figures
from multicentre.studies.folder import RunFolder
from multicentre.studies.sites import is_vertical
from multicentre.studies.study import Study

N_HEADLINES = 4
IN_PROCESS, FLOWER = "in-process", "flower"


def first_facts(study: Study, sites: Mapping[str, PatientData], policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return ``run.json`` as it stands when a run begins.

    Parameters
    ----------
    study : Study
    sites : mapping from str to data
        Data by site; counts below the site's minimum are left out.
    policies : mapping from str to Policy
        Policy by site.
    """
    least = max(policy.min_patients for policy in policies.values())
    counts = [_counts(name, data, policies[name].min_patients) for name, data in sites.items()]
    return _facts(study, IN_PROCESS, counts, least)


def remote_facts(study: Study) -> dict[str, Any]:
    """Return ``run.json`` as it stands when a run over sites on machines of their own begins: no site was asked yet."""
    counts: list[dict[str, Any]] = [{"name": name, "patients": None, "parts": {}} for name in study.sites]
    return {**_facts(study, FLOWER, counts, 0), "simulated": False}


def _facts(study: Study, engine: str, sites: list[dict[str, Any]], least: int) -> dict[str, Any]:
    return {
        "study": study.name,
        "method": study.method,
        "description": study.about.description,
        "status": "running",
        "started": now(),
        "ended": None,
        "seconds": 0.0,
        "seed": study.about.seed,
        "engine": engine,
        "protection": "masked" if study.privacy.secure_sum else "clear",
        "simulated": True,
        "vertical": is_vertical(study),
        "patients_aligned": None,
        "sites": sites,
        "min_patients": least,
        "quorum": study.run.quorum,
        "rounds": 0,
        "calls_per_site": 0,
        "bytes_from_sites": 0,
        "bytes_to_sites": 0,
        "lost": [],
        "losses": {},
        "message": "",
        "headline": [],
    }


def _counts(name: str, data: PatientData, least: int) -> dict[str, Any]:
    """Return patients by part of the data; None where a count or its rest is below the site's minimum."""
    n_patients = len(data)

    def shown(count: int) -> int | None:
        return None if 0 < count < least or 0 < n_patients - count < least else count

    parts = {part: shown(count) for part, count in data.parts.items()}
    return {"name": name, "patients": shown(n_patients), "parts": parts}


class Clock:
    """Time and traffic of this process, added to those of the processes that had the run before."""

    def __init__(self, folder: RunFolder) -> None:
        self._before = folder.facts
        self._began = time.monotonic()

    def facts(self, federation: Federation | None) -> dict[str, Any]:
        """Return when the run ended, how long it took, and what crossed the sites' boundary."""
        seconds = self._before["seconds"] + time.monotonic() - self._began
        told: dict[str, Any] = {"ended": now(), "seconds": round(seconds, 3)}
        if federation is not None:
            traffic = federation.traffic
            counts = {
                "calls_per_site": traffic.calls,
                "bytes_from_sites": traffic.bytes_from_sites,
                "bytes_to_sites": traffic.bytes_to_sites,
            }
            told |= {name: self._before[name] + sum(by_step.values()) for name, by_step in counts.items()}
        return told


def choose_headline(described: Mapping[str, Figure], comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return the first figures of the federated fit, for the top of a report."""
    if comparison is None:
        return []
    figures = named_figures(comparison, described)
    return [
        {"name": figure.label, "value": comparison.federated[name], "unit": figure.unit, "meaning": figure.meaning}
        for name, figure in figures.items()
        if name in comparison.federated
    ][:N_HEADLINES]


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
