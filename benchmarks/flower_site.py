"""A site of ``flower.py``: the process that ``multicentre site up`` is, with a step that sends back what it was sent.

Request handler, guard, ledger and encryption at rest are those of every site; only study and data are the benchmark's.
"""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

import multicentre as mc
from multicentre.core.messages import Message, array
from multicentre.core.steps import Release, SitePart, step
from multicentre.federation import facts_of, new_guard, open_site
from multicentre.privacy.ledger import Ledger
from multicentre_sites.deployment import site_process
from multicentre_sites.deployment.site_folder import Site, read_site

STUDY = "benchmark"
PATIENTS = np.ones((20, 2))
POLICY = mc.Policy()


@dataclass(frozen=True)
class Parcel(Message):
    """Numbers to a site."""

    values: np.ndarray = array("numbers", ("d",))


@dataclass(frozen=True)
class Returned(Release):
    """The same numbers."""

    values: np.ndarray = array("numbers", ("d",))


class Echo(SitePart):
    """Sends back what it is sent."""

    method = "benchmark-echo"
    holds = np.ndarray

    @step(releases=Returned, when="every round")
    def echo(self, request: Parcel) -> Returned:
        """Send it back."""
        return Returned(request.values, patients=len(self.data))


class EchoService:
    """In place of the studies that a steward approved."""

    def __init__(self, site: Site) -> None:
        self.name = site.name
        ledger = Ledger(site.ledger_of(STUDY), durable=True, signer=site.identity, study=STUDY)
        self.guard = new_guard(site.name, PATIENTS, POLICY, ledger)

    def open(self, opening, store):
        return open_site(self.name, PATIENTS, self.guard, store=store, key=None)

    def offers(self, study, method):
        return Echo

    def facts(self, study):
        return facts_of(POLICY)


def main(folder: str, mode: str) -> None:
    stop = threading.Event()
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda *_: stop.set())
    with patch.object(site_process, "DeployedSiteService", EchoService):
        site_process.serve(read_site(Path(folder)), mode, report=lambda line: print(line, flush=True), stop=stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
