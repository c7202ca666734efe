"""Metadata of a run: the contents of ``run.json``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from multicentre.core.consortium import Consortium
from multicentre.core.published_counts import published
from multicentre.data.kinds import PatientData
from multicentre.estimator.base import Metric
from multicentre.privacy.patient_counts import People, people_of
from multicentre.privacy.policy import Policy
from multicentre.studies.comparison_result import Comparison, named_metrics
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.study import Study

# Four boxes of 11 rem with gaps of 0.8 rem fill one row of the report (46.4 of 47 rem).
N_HEADLINES = 4
ANALYSES = "analyses"
IN_PROCESS, FLOWER = "in-process", "flower"


def initial_metadata(study: Study, sites: Mapping[str, PatientData], policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return the contents of ``run.json`` at the start of a run.

    Parameters
    ----------
    study : Study
    sites : mapping from str to data
        Data by site; counts below the site's minimum are left out.
    policies : mapping from str to Policy
        Policy by site.

    Raises
    ------
    ConfigurationError
        The study states that there is one row per patient, and an identifier repeats at a site.
    """
    least = max(study.least_published, *(policy.min_patients for policy in policies.values()))
    one_row = study.data.one_row_per_patient
    people = {name: people_of(data, name, one_row_per_patient=one_row) for name, data in sites.items()}
    smallest = {name: max(policy.min_patients, study.least_published) for name, policy in policies.items()}
    counts = [_counts(name, data, people[name], smallest[name]) for name, data in sites.items()]
    return _metadata(study, IN_PROCESS, counts, least)


def initial_remote_metadata(study: Study) -> dict[str, Any]:
    """Return the contents of ``run.json`` at the start of a run over remote sites, before the first request."""
    counts: list[dict[str, Any]] = [{"name": name, "patients": None, "parts": {}} for name in study.sites]
    return {**_metadata(study, FLOWER, counts, 0), "simulated": False}


def _metadata(study: Study, engine: str, sites: list[dict[str, Any]], least: int) -> dict[str, Any]:
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
        "protection": "masked" if study.masked else "unmasked",
        "simulated": True,
        "vertical": study.is_vertical,
        "patients_aligned": None,
        "sites": sites,
        "counted": "patients",
        "min_patients": least,
        "quorum": study.run.quorum,
        "rounds": 0,
        "calls_per_site": 0,
        "bytes_from_sites": 0,
        "bytes_to_sites": 0,
        "lost": [],
        "losses": {},
        "left_out": {},
        "ledger_notices": {},
        "missing": "",
        "message": "",
        "headline": [],
        "answer": "",
        "tables": [],
        "analyses": [
            {
                "name": analysis.name,
                "title": analysis.title or analysis.name,
                "question": analysis.question,
                "method": analysis.method,
                "folder": f"{ANALYSES}/{analysis.name}",
                "status": "waiting",
                "message": "",
                "answer": "",
            }
            for analysis in study.analyses
        ],
    }


def _counts(name: str, data: PatientData, people: People, least: int) -> dict[str, Any]:
    """Return patients, records, and records by part of the data; None for counts below the site's minimum."""
    n_records = len(data)

    def unless_small(count: int) -> int | None:
        return None if published(n_records - count, least) is None else published(count, least)

    n_patients = people.among().fewest(n_records)
    parts = {part: unless_small(count) for part, count in data.parts.items()}
    return {
        "name": name,
        "patients": published(n_patients, least),
        "records": unless_small(n_records),
        "parts": parts,
    }


class Clock:
    """Time and traffic of this process, added to those of earlier processes of the run."""

    def __init__(self, folder: RunFolder) -> None:
        self._before = folder.metadata
        self._began = time.monotonic()

    def metadata(self, federation: Consortium | None) -> dict[str, Any]:
        """Return the end and the duration of the run, and the traffic of the sites."""
        seconds = self._before["seconds"] + time.monotonic() - self._began
        metadata: dict[str, Any] = {"ended": now(), "seconds": round(seconds, 3)}
        if federation is not None:
            traffic = federation.traffic
            counts = {
                "calls_per_site": traffic.round_trips,  # calls that travel together are one
                "bytes_from_sites": sum(traffic.bytes_from_sites.values()),
                "bytes_to_sites": sum(traffic.bytes_to_sites.values()),
            }
            metadata |= {name: self._before[name] + number for name, number in counts.items()}
        return metadata


def choose_headline(descriptions: Mapping[str, Metric], comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return the first metrics of the federated fit, for the top of a report."""
    if comparison is None:
        return []
    metrics = named_metrics(comparison, descriptions)
    return [
        {"name": metric.label, "value": comparison.federated[name], "unit": metric.unit, "meaning": metric.meaning}
        for name, metric in metrics.items()
        if name in comparison.federated
    ][:N_HEADLINES]


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
