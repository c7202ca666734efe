"""The same numbers over real processes: a coordinator, its proxy, and sites that are agents of their own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from method_cases import CASES
from multicentre.privacy.secure_sum.identity import Identity

pytest.importorskip("flwr", reason="the extra flower is not installed")

from coordinators import add_site, call, found, make_card, processes_of, running, wait_for
from multicentre.deployment.running import connect_sites

A_FEW = ("toy-mean", "fed-mv-ppca", "dpfact", "fed-msgl", "fed-xgb")
N_SITES = max(len(case.sites()) for case in CASES.values())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:every site's lists:multicentre.federation.errors.DisclosureWarning"),
    pytest.mark.filterwarnings('ignore:solver="observed" is the published algorithm:UserWarning'),
]
every = pytest.mark.parametrize(
    "name", [name if name in A_FEW else pytest.param(name, marks=pytest.mark.loopback) for name in CASES]
)


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


@pytest.fixture(scope="module")
def carrier(tmp_path_factory):
    """Carry letters to as many agents as the largest case has sites."""
    folder = tmp_path_factory.mktemp("loopback")
    consortium = found(folder / "coordinator")
    agents = []
    try:
        with running(consortium):
            assert call("coordinator", "sign-app", "--folder", consortium.folder).returncode == 0
            names = [f"place-{place}" for place in range(N_SITES)]
            for place, name in enumerate(names):
                (folder / name).mkdir()
                Identity.generate().write(folder / f"identity-{place}")
                added = add_site(consortium, make_card(name, folder / name / "node"), folder)
                assert added.returncode == 0, added.stderr
                agents.append(_agent(consortium, folder, place, name))
            wait_for(lambda: all("Connected" in (folder / f"{name}.log").read_text() for name in names), 120.0)
            bridge = connect_sites(consortium.folder, names, lambda line: None)
            try:
                yield bridge
            finally:
                bridge.close()
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(20)
    assert not processes_of(folder)


def _agent(consortium, folder, place, name):
    command = [sys.executable, str(Path(__file__).parents[1] / "loopback_site.py"), str(place), consortium.address]
    command += [str(consortium.own_ca), str(folder / name / "node"), str(folder / name)]
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        )


@every
@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
def test_real_processes_change_no_bit(name, secure, carrier):
    case = CASES[name]
    with mc.Federation.in_process(case.sites(), policy=case.policy, secure_sum=secure, study=name) as federation:
        numbers = case.numbers(case.make().fit(federation))
    with mc.Federation.over(Renamed(carrier, case.sites()), study=name, secure_sum=secure) as federation:
        others = case.numbers(case.make().fit(federation))
    assert numbers.keys() == others.keys()
    for key, value in numbers.items():
        assert np.array_equal(value, others[key]), key
