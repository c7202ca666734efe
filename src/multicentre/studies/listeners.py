"""Labels of the fits of a run, and log of problems at sites."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from multicentre.core.rounds import Listener

_LOG_LIMIT_BYTES = 20 * 2**20  # enough for the time before a failure; one older file of this size is stored, too


class LabelledListener(Listener):
    """Forwards events with a label in place of the loop's name.

    Of loops side by side, such as those of folds, all but the first also have a number: "fit", "fit 2", "fit 3".

    Parameters
    ----------
    listener : Listener
        Receiver of the events.
    label : str
        "fit", or "compare: pooled" and the like.
    """

    def __init__(self, listener: Listener, label: str) -> None:
        self._listener = listener
        self._label = label
        self._labels: dict[str, str] = {}  # of the loops that run

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Forward the start of a loop."""
        labels = (f"{self._label} {number}" if number > 1 else self._label for number in itertools.count(1))
        self._labels[name] = next(label for label in labels if label not in self._labels.values())
        self._listener.rounds_began(self._labels[name], n_rounds, done)

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Forward the end of a round."""
        self._listener.round_ended(self._labels.get(name, self._label), number, metrics)

    def rounds_ended(self, name: str, number: int) -> None:
        """Forward the end of a loop."""
        self._listener.rounds_ended(self._labels.pop(name, self._label), number)

    def site_lost(self, site: str, reason: str) -> None:
        """Forward the loss of a site, with the fit."""
        self._listener.site_lost(site, f"{self._label}: {reason}")

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Forward the sites that are left out of a fit."""
        if len(self._labels) == 1:  # the only loop is abandoned, and the fit begins again
            self._labels = {}
        self._listener.sites_left_out({site: f"{self._label}: {reason}" for site, reason in reasons.items()})

    def site_awaited(self, site: str, reason: str) -> None:
        """Forward the wait for a site."""
        self._listener.site_awaited(site, reason)


@contextmanager
def site_log(path: Path) -> Iterator[None]:
    """Log problems at sites to a file, which is created with the first entry."""
    log = logging.getLogger("multicentre.site")
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=_LOG_LIMIT_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
        handler.close()
