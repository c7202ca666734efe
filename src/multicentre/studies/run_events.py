"""Record of a run's progress: ``events.jsonl`` of its folder, one JSON object per line.

The record serves ``multicentre watch`` and ``multicentre serve``. It contains names of sites and analyses, numbers of
rounds, and the metrics of rounds, which ``history.csv`` contains at the end of a run as well.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Traffic
from multicentre.core.storage import open_regular
from multicentre.errors import IntegrityError
from multicentre.studies.run_metadata import now
from multicentre.studies.study import Study

EVENTS = "events.jsonl"


class EventRecorder(Listener):
    """Forwards events, and appends each to the record of a run once its folder exists.

    Parameters
    ----------
    listener : Listener
        Receiver of the events.

    Attributes
    ----------
    losses : dict of str to str
        Fit, time and reason of the last loss, by site.
    left_out : dict of str to str
        Last fit that was made without a refusing site, and the reason, by site.
    """

    def __init__(self, listener: Listener) -> None:
        self.losses: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._listener = listener
        self._path: Path | None = None
        self._traffic: Traffic | None = None

    def open(self, folder: Path) -> None:
        """Append the events that follow to the record in a folder."""
        self._path = folder / EVENTS

    def count_with(self, traffic: Traffic) -> None:
        """Add the traffic of the sites to the events that follow."""
        self._traffic = traffic

    def begin(self, study: Study, *, engine: str, noised: bool, resumed: bool) -> None:
        """Record the start of a run, with the facts by which its progress is understood."""
        self.write(
            "run_began",
            study=study.name,
            method=study.method,
            engine=engine,
            protection="masked" if study.masked else "unmasked",
            sites=list(study.sites),
            analyses=[analysis.name for analysis in study.analyses],
            noised=noised,
            sites_per_patient=study.privacy.sites_per_patient,
            resumed=resumed,
        )

    def write(self, event: str, **facts: Any) -> None:
        """Append one event.

        A line is written by a single system call, so that a reader sees a whole line or none. A full disk ends the
        record, not the run.
        """
        if self._path is None:
            return
        line = f"{json.dumps({'time': now(), 'event': event, **facts}, ensure_ascii=False, allow_nan=False)}\n".encode()
        with contextlib.suppress(OSError, IntegrityError):
            handle = open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "record of events")
            try:
                if (written := os.write(handle, line)) < len(line):
                    os.ftruncate(handle, os.fstat(handle).st_size - written)
            finally:
                os.close(handle)

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Record and forward the start of a loop."""
        self.write("rounds_began", loop=name, rounds=n_rounds, done=done, **self._counts())
        self._listener.rounds_began(name, n_rounds, done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Record and forward the end of a round."""
        finite = {metric: value if math.isfinite(value) else None for metric, value in metrics.items()}
        self.write("round_ended", loop=name, round=number, metrics=finite, **self._counts())
        self._listener.round_ended(name, number, metrics)

    def rounds_ended(self, name: str, number: int) -> None:
        """Record and forward the end of a loop."""
        self.write("rounds_ended", loop=name, round=number, **self._counts())
        self._listener.rounds_ended(name, number)

    def site_lost(self, site: str, reason: str) -> None:
        """Record and forward the loss of a site."""
        self.losses[site] = reason
        self.write("site_lost", site=site, reason=reason)
        self._listener.site_lost(site, reason)

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Record and forward the sites that are left out of a fit."""
        self.left_out.update(reasons)
        self.write("sites_left_out", reasons=dict(reasons))
        self._listener.sites_left_out(reasons)

    def site_awaited(self, site: str, reason: str) -> None:
        """Record and forward the wait for a site."""
        self.write("site_awaited", site=site, reason=reason)
        self._listener.site_awaited(site, reason)

    def _counts(self) -> dict[str, int]:
        if self._traffic is None:
            return {}
        traffic = self._traffic
        return {
            "calls": traffic.round_trips,
            "bytes_from_sites": sum(traffic.bytes_from_sites.values()),
            "bytes_to_sites": sum(traffic.bytes_to_sites.values()),
        }
