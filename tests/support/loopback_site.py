"""A site's process for the contract suite: an agent with the data of whatever case a study is named after."""

import logging
import secrets
import signal
import sys
import threading
import warnings
from pathlib import Path

from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.estimator.registry import PARTS, find_part
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.secret_files import Secret
from multicentre.privacy.secure_sum.identity import Identity
from multicentre_sites.flower.agent import Agent
from support.method_cases import CASES
from support.remote_sites import OpenSiteService, policy_of


class CaseService:
    """The `place`-th site of every case; every site derives all identities, which only a test may."""

    def __init__(self, place, folder):
        self.place, self.folder, self.services = place, folder, {}

    def open(self, opening, store):
        self.services[opening.study] = self._service(opening)
        return self.services[opening.study].open(opening, store)

    def close(self, run, attempt):
        pass

    def offers(self, study, method):
        return self.services[study].offers(study, method)

    def facts(self, study):
        return self.services[study].facts(study)

    def _service(self, opening):
        case = CASES[opening.study]
        case.make()  # imports the method, as a site that installed the package can
        for part in PARTS:
            find_part(part)
        name, data = list(case.sites().items())[self.place]
        identities = {site: Identity.read(self.folder.parent / f"identity-{k}") for k, site in enumerate(opening.sites)}
        public = {site: one.public for site, one in identities.items()}
        ledger = Ledger(self.folder / f"{opening.run}.jsonl")
        return OpenSiteService(name, data, policy_of(case.policy, name), identities[name], public, None, ledger)


def main(place: str, address: str, authority: str, key: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.ERROR)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    own = Path(folder)
    handler = RequestHandler(
        f"place-{place}", CaseService(int(place), own), own / "vault", Secret(secrets.token_bytes(32))
    )
    Agent(
        address,
        root_certificates=Path(authority),
        private_key=Path(key),
        handle=handler.handle,
        refuse=handler.refuse,
        approved=lambda sha256: True,
        report=lambda line: print(line, flush=True),
    ).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
