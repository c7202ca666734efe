"""State of a site or a coordinator for monitoring, without a request to another machine and without values of data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from multicentre.core.disk import MIN_FREE_BYTES, free_bytes
from multicentre.core.storage import is_held
from multicentre.errors import MulticentreError
from multicentre_sites.deployment.certificates import days_left
from multicentre_sites.deployment.connectivity import is_healthy
from multicentre_sites.deployment.coordinator_folder import LOOPBACK, Consortium
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.site_folder import Site

# A site sends a heartbeat at least every 20 s; three of them may be late.
CONNECTED_WITHIN_S = 60.0
_LONGEST_ENTRY = 2**20  # an entry has some kilobytes
_METRICS = {
    "ok": "1 if the service works",
    "up": "1 if the process runs",
    "superlink": "1 if the SuperLink answers",
    "connected": "1 if the coordinator answered within a minute",
    "last_heard": "time of the coordinator's last answer",
    "runs": "stored runs",
    "free_bytes": "free disk space",
    "certificate_days": "days until the coordinator's certificate expires",
    "authority_days": "days until the authority's certificate expires",
    "ledger_entries": "entries of the ledger of a study",
    "site_online": "1 if the site is connected",
}
_UNITS = {"last_heard": "_timestamp_seconds"}


def site_status(site: Site) -> dict[str, Any]:
    """Return the state of a site as JSON values.

    ``connected`` and ``last_heard`` are None if the process runs in the standard mode, where Flower's own log has them.
    """
    up, heard = is_held(site.running / "lock"), _time_of(site.running / "heard")
    connected = None if heard is None else up and time.time() - heard < CONNECTED_WITHIN_S
    free = free_bytes(site.folder)
    return {
        "name": site.name,
        "ok": up and connected is not False and (free is None or free >= MIN_FREE_BYTES),
        "up": up,
        "connected": connected,
        "last_heard": None if heard is None else _iso(heard),
        "runs": _n_folders(site.state),
        "free_bytes": free,
        "authority_days": _days(site.ca),
        "ledgers": {path.stem: _end_of(path) for path in sorted(site.ledgers.glob("*.jsonl"))},
    }


def coordinator_status(consortium: Consortium, report: Callable[[str], None]) -> dict[str, Any]:
    """Return the state of a coordinator as JSON values; `report` receives the Flower command that lists the sites."""
    up = is_held(consortium.state / "coordinator.lock")
    answers = up and is_healthy(LOOPBACK, consortium.settings.loopback.superlink, consortium.superlink_ca)
    sites = Enrolment(consortium, report).sites() if answers else []
    free, days = free_bytes(consortium.folder), _days(consortium.settings.tls.certificate)
    return {
        "ok": answers and days is not None and days > 0 and (free is None or free >= MIN_FREE_BYTES),
        "up": up,
        "superlink": answers,
        "sites": {one.entry.card.name: {"status": one.status, "since": one.since} for one in sites},
        "runs": _n_folders(consortium.runs),
        "free_bytes": free,
        "certificate_days": days,
        "authority_days": _days(consortium.superlink_ca),
    }


def metrics_of(service: Literal["site", "coordinator"], state: Mapping[str, Any]) -> str:
    """Return the state of a service in Prometheus's text format; values that are not known are left out.

    Examples
    --------
    >>> print(metrics_of("site", {"name": "lyon", "up": True}))
    # HELP multicentre_site_up 1 if the process runs
    # TYPE multicentre_site_up gauge
    multicentre_site_up{site="lyon"} 1.0
    """
    of_service = {"site": state["name"]} if "name" in state else {}
    samples = {name: [(of_service, state[name])] for name in _METRICS if state.get(name) is not None}
    if "last_heard" in samples:
        samples["last_heard"] = [(of_service, datetime.fromisoformat(state["last_heard"]).timestamp())]
    samples["ledger_entries"] = [
        ({**of_service, "study": study}, end["entries"]) for study, end in state.get("ledgers", {}).items() if end
    ]
    sites = state.get("sites", {})
    samples["site_online"] = [({"site": site}, one["status"] == "online") for site, one in sites.items()]
    lines = []
    for name, values in samples.items():
        metric = f"multicentre_{service}_{name}{_UNITS.get(name, '')}"
        lines += [f"# HELP {metric} {_METRICS[name]}", f"# TYPE {metric} gauge"] if values else []
        lines += [f"{metric}{_labels(labels)} {float(value)}" for labels, value in values]
    return "\n".join(lines)


def _labels(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample; names of sites and studies have no control characters, which JSON escapes."""
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _end_of(ledger: Path) -> dict[str, Any] | None:
    """Return the end of a ledger from its last complete entry, which is not verified; None without one."""
    with suppress(OSError, ValueError, KeyError, IndexError, TypeError), ledger.open("rb") as file:
        file.seek(max(ledger.stat().st_size - _LONGEST_ENTRY, 0))
        entry = json.loads(file.read().split(b"\n")[-2])
        return {"entries": entry["entry"], "hash": entry["hash"], "time": entry["time"]}
    return None


def _time_of(path: Path) -> float | None:
    return path.stat().st_mtime if path.exists() else None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _days(certificate: Path) -> float | None:
    with suppress(MulticentreError):
        return round(days_left(certificate), 1)
    return None


def _n_folders(folder: Path) -> int:
    return sum(one.is_dir() for one in folder.iterdir()) if folder.is_dir() else 0
