"""The same numbers over real processes: a coordinator, its proxy where nginx is installed, and agents of sites."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.privacy.secure_sum.identity import Identity
from support.method_cases import CASES

pytest.importorskip("flwr", reason="the extra flower is not installed")

from multicentre.deployment.running import connect_sites
from support.coordinators import add_site, call, found, make_card, running
from support.processes import processes_of
from support.proxies import address_of
from support.waiting import GENEROUS_S, wait_for

# One method per kind of data: a call over real processes takes half a second, and only the content of requests differs.
UNMASKED = ("toy-mean", "fed-mv-ppca", "dpfact", "fed-msgl", "fed-xgb")
N_SITES = max(len(case.sites()) for case in CASES.values())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:every site's lists:multicentre.federation.errors.DisclosureWarning"),
    pytest.mark.filterwarnings('ignore:solver="observed" is the published algorithm:UserWarning'),
]


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
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "loopback_site.py"),
        str(place),
        address_of(consortium),
    ]
    command += [str(consortium.own_ca), str(folder / name / "node"), str(folder / name)]
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        )


@pytest.mark.parametrize(
    ("name", "secure"),
    [*((name, True) for name in CASES), *((name, False) for name in UNMASKED)],
    ids=lambda value: {True: "masked", False: "unmasked"}.get(value, value),
)
def test_real_processes_change_no_bit(name, secure, carrier):
    case = CASES[name]
    with mc.Federation.in_process(case.sites(), policy=case.policy, secure_sum=secure, study=name) as federation:
        numbers = case.numbers(case.make().fit(federation))
    with mc.Federation.over(Renamed(carrier, case.sites()), study=name, secure_sum=secure) as federation:
        others = case.numbers(case.make().fit(federation))
    assert numbers.keys() == others.keys()
    for key, value in numbers.items():
        assert np.array_equal(value, others[key]), key
