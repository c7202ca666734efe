"""A site of ``soak.py``: a process with request handler, guard, durable ledger, witness, masks and encrypted states."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import multicentre as mc
from multicentre.core.messages import Message, array, count
from multicentre.core.steps import Release, SitePart, step
from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.engines.remote.socket import serve_socket
from multicentre.federation import facts_of, new_guard, open_site
from multicentre.privacy.ledger import Ledger, repair_ledger
from multicentre.privacy.ledger_witnesses import Witness
from multicentre.privacy.secret_files import Secret
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.site import MaskingKeys

STUDY = "soak"
SITES = ("north", "south", "west")
WEIGHTS = dict(zip(SITES, (1.0, 10.0, 100.0), strict=True))  # a sum says which sites are in it
N_NUMBERS = 50
SOCKET, LEDGER, IDENTITY, KEY = "socket", "ledger.jsonl", "identity", "key"
PATIENTS = np.ones((20, 2))
POLICY = mc.Policy()


@dataclass(frozen=True)
class Point(Message):
    """Numbers to every site."""

    values: np.ndarray = array("numbers", ("d",))


@dataclass(frozen=True)
class Weighted(Release):
    """The same numbers, times the weight of the site."""

    values: np.ndarray = array("weighted numbers", ("d",), bound=2.0**20)
    n_calls: int = count("calls so far")


@dataclass(frozen=True)
class Calls(Message):
    """State of a site between rounds."""

    n_calls: int = count("calls so far")


class SoakSite(SitePart):
    """Returns weighted numbers and counts its calls."""

    method = "soak"
    holds = np.ndarray
    remembers = Calls

    @step(releases=Weighted, when="every round", summed=True)
    def weigh(self, request: Point) -> Weighted:
        """Return the numbers times the site's weight."""
        self.state = Calls(1 + (self.state.n_calls if self.state else 0))
        values = WEIGHTS[self.site] * request.values
        return Weighted(values, self.state.n_calls, patients=len(self.data))


class SoakService:
    """In place of the studies that a steward approved."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        identities = {site: Identity.read(root / site / IDENTITY) for site in SITES}
        self.identity = identities[name]
        self.peers = {site: identity.public for site, identity in identities.items()}
        path = root / name / LEDGER
        if path.exists():
            repair_ledger(path, signer=self.identity, study=STUDY)  # the process may have been killed
        ledger = Ledger(path, durable=True, signer=self.identity, study=STUDY)
        self.witness = Witness(name, ledger, {site: [key.hex()] for site, key in self.peers.items()})
        self.guard = new_guard(name, PATIENTS, POLICY, ledger)

    def open(self, opening, store):
        return open_site(
            self.name,
            PATIENTS,
            self.guard,
            identity=self.identity,
            peers=self.peers,
            store=store,
            witness=self.witness,
        )

    def close(self, run, attempt):
        pass

    def offers(self, study, method):
        return {part.method: part for part in (SoakSite, MaskingKeys)}[method]

    def facts(self, study):
        return facts_of(POLICY)


def main(name: str, root: str) -> None:
    folder, stop = Path(root) / name, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    key = Secret((folder / KEY).read_bytes())
    handler = RequestHandler(name, SoakService(name, Path(root)), folder / "vault", key)
    serve_socket(folder / SOCKET, handler.handle, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
