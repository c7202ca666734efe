"""Agents of sites as processes of this machine, and letters to them under the names of any case's sites."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from multicentre.privacy.secure_sum.identity import Identity
from multicentre_sites.deployment.site_connection import connect_sites
from support.coordinators import add_site, call, make_card, make_consortium, running
from support.method_cases import CASES
from support.processes import processes_of
from support.proxies import address_of
from support.waiting import GENEROUS_S, wait_for

N_SITES = max(len(case.sites()) for case in CASES.values())


class Renamed:
    """A carrier to the same machines under other names; it outlives the federations that it serves."""

    def __init__(self, carrier, names):
        self.carrier, self.sites = carrier, tuple(names)
        self.known = dict(zip(names, carrier.sites, strict=False))
        self.names = {known: name for name, known in self.known.items()}

    def send(self, letters):
        self.carrier.send({self.known[site]: letter for site, letter in letters.items()})

    def collect(self, wait_s):
        return {self.names[site]: reply for site, reply in self.carrier.collect(wait_s).items() if site in self.names}

    def close(self):
        pass


@contextlib.contextmanager
def connected_agents(folder: Path, n_sites: int = N_SITES) -> Iterator:
    """Run a coordinator and agents, each with the data of whatever case a study is named after; yield a carrier."""
    consortium = make_consortium(folder / "coordinator")
    agents = []
    try:
        with running(consortium):
            assert call("coordinator", "sign-app", "--folder", consortium.folder).returncode == 0
            names = [f"place-{place}" for place in range(n_sites)]
            for place, name in enumerate(names):
                (folder / name).mkdir()
                Identity.generate().write(folder / f"identity-{place}")
                added = add_site(consortium, make_card(name, folder / name / "node"), folder)
                assert added.returncode == 0, added.stderr
                agents.append(_agent(consortium, folder, place, name))
            wait_for(lambda: all("Connected" in (folder / f"{name}.log").read_text() for name in names))
            bridge = connect_sites(consortium.folder, names, lambda line: None)
            try:
                yield bridge
            finally:
                bridge.close()
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(GENEROUS_S)
    assert not processes_of(folder)


def _agent(consortium, folder, place, name):
    site = Path(__file__).with_name("loopback_site.py")
    command = [sys.executable, str(site), str(place), address_of(consortium)]
    command += [str(consortium.superlink_ca), str(folder / name / "node"), str(folder / name)]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
