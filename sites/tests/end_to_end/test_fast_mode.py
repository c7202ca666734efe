"""Sites in fast mode as processes, against a SuperLink with TLS, node authentication and a database."""

import os
import re
import select
import signal
import socket
import threading
import time

import pytest

pytest.importorskip("flwr")

from multicentre.engines.remote.socket import Unreachable
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.proxy import find_nginx
from multicentre_sites.flower.bridge import Bridge
from multicentre_sites.flower.handshake import run_config
from multicentre_sites.flower.internal import self_test
from support.flower_fleet import BIN, Fleet, end, make_authority, make_key
from support.waiting import GENEROUS_S, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(self_test() is not None, reason="the installed flwr offers no fast mode"),
]

SITES = ("lyon", "nantes")
SECRET = "patient 12345"


class Study:
    """A run under way, and the agents of its sites."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.bundle, self.approved = fleet.bundle("0.0.1")
        self.agents = {site: fleet.agent(site, self.approved) for site in SITES}
        for site in SITES:
            self.wait_for(site, "Connected")
        self.bridge = self.start(self.bundle)

    def start(self, bundle) -> Bridge:
        run = [str(BIN / "flwr"), "run", str(bundle), "fleet", "--format", "json", "--run-config"]
        keys = {site: self.fleet.keys[site] for site in SITES}
        return Bridge(
            keys,
            lambda folder: [*run, run_config(folder)],
            stop=lambda number: [str(BIN / "flwr"), "stop", str(number), "fleet"],
            environment=self.fleet.environment,
        )

    def ask(self, letters, bridge: Bridge | None = None):
        """Return the outcomes; letters to a site that is offline are sent again.

        A busy SuperLink handles the goodbye of an ended agent after the greeting of the next one, and then counts the
        site as offline until its next heartbeat.
        """
        bridge, pending, outcomes = bridge or self.bridge, dict(letters), {}
        limit = time.monotonic() + GENEROUS_S
        while pending and time.monotonic() < limit:
            bridge.send(pending)
            outcomes |= self.collect(set(pending), bridge)
            pending = {site: letters[site] for site, outcome in outcomes.items() if outcome == Unreachable("offline")}
            time.sleep(1.0 if pending else 0.0)
        return outcomes

    def collect(self, sites: set[str], bridge: Bridge | None = None):
        outcomes: dict[str, object] = {}
        limit = time.monotonic() + GENEROUS_S
        while not sites <= set(outcomes):
            assert time.monotonic() < limit, f"nothing came from {sites - set(outcomes)}"
            outcomes |= (bridge or self.bridge).collect(1.0)
        return {site: outcomes[site] for site in sites}

    def begin(self, site: str, letter: bytes) -> None:
        """Send a letter and return once the site works on it; send it again if the site is offline."""
        begun = self.fleet.told(site).count("At a letter.")
        self.bridge.send({site: letter})

        def works() -> bool:
            if self.bridge.collect(0.0).get(site) == Unreachable("offline"):
                self.bridge.send({site: letter})
            return self.fleet.told(site).count("At a letter.") > begun

        wait_for(works)

    def restart(self, site: str, **extra: str) -> None:
        end(self.agents[site])
        said = self.fleet.told(site).count("Connected")
        self.agents[site] = self.fleet.agent(site, self.approved, **extra)
        wait_for(lambda: self.fleet.told(site).count("Connected") > said)

    def wait_for(self, site: str, line: str) -> None:
        wait_for(lambda: line in self.fleet.told(site))

    def close(self) -> None:
        try:
            if hasattr(self, "bridge"):
                self.bridge.close()
        finally:
            for agent in self.agents.values():
                end(agent)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        fleet.start()
        fleet.register(*SITES)
        yield fleet
    finally:
        fleet.kill()


@pytest.fixture(scope="module")
def study(fleet):
    study = Study(fleet)
    try:
        yield study
    finally:
        study.close()


def test_letters_go_there_and_back(study) -> None:
    for number in range(3):
        letters = {site: f"{site} {number}".encode() for site in SITES}
        assert study.ask(letters) == letters


def test_equal_replies_of_several_sites_come_back(study) -> None:
    for _ in range(3):
        assert study.ask(dict.fromkeys(SITES, b"the same")) == dict.fromkeys(SITES, b"the same")


def test_text_of_an_exception_does_not_leave(study) -> None:
    assert study.ask({"lyon": b"raise "}) == {"lyon": Unreachable("stopped")}
    assert "ValueError" in study.fleet.told("lyon")
    for file in study.fleet.folder.glob("s*.*"):  # the SuperLink's log and database
        assert SECRET.encode() not in file.read_bytes()
    assert study.ask({"lyon": b"on"}) == {"lyon": b"on"}


def test_site_that_dies_at_a_letter_says_so_when_it_is_back(study) -> None:
    study.bridge.send({"lyon": b"die "})
    study.agents["lyon"].wait(GENEROUS_S)
    study.restart("lyon")
    assert study.collect({"lyon"}) == {"lyon": Unreachable("stopped")}
    assert study.ask({"lyon": b"back"}) == {"lyon": b"back"}


def test_site_that_forgot_is_let_in_once_it_was_silent(study) -> None:
    study.restart("lyon", AGENT_FORGETS="1")
    assert "The coordinator refuses this site" in study.fleet.told("lyon")
    assert study.ask({"lyon": b"back"}) == {"lyon": b"back"}
    study.restart("lyon")


def test_stop_ends_a_site_at_work(study) -> None:
    study.begin("lyon", b"sleep 3600")
    study.agents["lyon"].send_signal(signal.SIGTERM)
    assert study.agents["lyon"].wait(GENEROUS_S) == 0
    assert study.collect({"lyon"}) == {"lyon": Unreachable("offline")}
    study.restart("lyon")


def test_bundle_that_is_not_approved_is_refused(study) -> None:
    bundle, unknown = study.fleet.bundle("0.0.2")
    bridge = study.start(bundle)
    try:
        assert study.ask({"lyon": b"letter"}, bridge) == {"lyon": Unreachable("unverified")}
    finally:
        bridge.close()
    assert f"{unknown} is not approved" in study.fleet.told("lyon")


def test_key_that_is_not_registered_is_an_error(study) -> None:
    make_key(study.fleet.folder / "stranger")
    agent = study.fleet.agent("stranger", study.approved, AGENT_PATIENCE_S="1")
    assert agent.wait(GENEROUS_S) == ConfigurationError.exit_code
    assert "this site's key must be registered" in study.fleet.told("stranger")


def test_authority_of_another_study_is_an_error(study, tmp_path) -> None:
    make_authority(tmp_path)
    make_key(study.fleet.folder / "misled")
    agent = study.fleet.agent("misled", study.approved, authority=tmp_path / "ca.crt")
    assert agent.wait(GENEROUS_S) == ConfigurationError.exit_code
    assert "must be issued by the study's authority" in study.fleet.told("misled")


def test_proxy_of_the_hospital_is_used(study) -> None:
    with Tunnel() as tunnel:
        study.restart("nantes", HTTPS_PROXY=f"http://{tunnel.address}")
        assert study.ask({"nantes": b"through"}) == {"nantes": b"through"}
        assert set(tunnel.asked) == {study.fleet.address}
    study.restart("nantes")


def refusal_of(study, letter: bytes) -> str:
    """Return what lyon replies to a letter whose answer does not fit its link; the letter is sent again meanwhile."""
    limit = time.monotonic() + GENEROUS_S
    while isinstance(came := study.ask({"lyon": letter})["lyon"], Unreachable):
        assert time.monotonic() < limit, came
        assert came.reason in ("partial", "stopped", "lost")
    return came.decode()


@pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed")
def test_answer_that_a_proxy_rejects_by_its_size_ends_with_an_error(study) -> None:
    with study.fleet.proxy(limit="1m") as address:
        study.restart("lyon", address=address)
        said = refusal_of(study, b"turn " + os.urandom(3 * 2**20))
        assert re.search(r"refused: .* rejects a part of 3\.\d MiB \(413", said), said[:1000]
        assert "client_max_body_size 8m" in said
        assert study.ask({"lyon": b"after all"}) == {"lyon": b"after all"}
    study.restart("lyon")


def test_200_megabytes_go_there_and_back(study) -> None:
    letter = b"turn " + os.urandom(200 * 2**20)
    came = study.ask({"lyon": letter})
    assert came["lyon"] == letter[::-1]


def test_superlink_that_is_killed_and_started_again_is_found_again(study) -> None:
    study.begin("lyon", b"sleep 6")
    study.fleet.kill()
    assert study.collect({"lyon"}) == {"lyon": Unreachable("lost")}
    study.fleet.start()
    letters = dict.fromkeys(SITES, b"after all")
    limit = time.monotonic() + GENEROUS_S
    while (came := study.ask(letters)) != letters:
        assert time.monotonic() < limit, came
        time.sleep(1.0)


class Tunnel:
    """A proxy that knows CONNECT and nothing else."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        with caller:
            head = b""
            while b"\r\n\r\n" not in head:
                head += caller.recv(4096)
            address = head.split()[1].decode()
            self.asked.append(address)
            host, port = address.split(":")
            with socket.create_connection((host, int(port))) as there:
                caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                other = {caller: there, there: caller}
                while True:
                    for ready in select.select([caller, there], [], [])[0]:
                        try:
                            if not (data := ready.recv(65536)):
                                return
                            other[ready].sendall(data)
                        except OSError:
                            return
