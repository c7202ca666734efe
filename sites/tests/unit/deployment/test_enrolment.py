"""The register and Flower's list, with Flower failing at every place where it can."""

import json
from pathlib import Path

import pytest

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre_sites.deployment import enrolment
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.site_register import Roster, SiteRegister
from support.coordinators import make_card, make_consortium

LYON, BERN = make_card("lyon"), make_card("bern")


class SuperLink:
    """What `flwr supernode` does, and what it can do wrong."""

    def __init__(self):
        self.nodes: dict[int, dict[str, str]] = {}
        self.up = True
        self.breaks: set[str] = set()

    def ask(self, command):
        verb = command.arguments[2]
        if f"before {verb}" in self.breaks:
            raise KeyboardInterrupt
        answer = getattr(self, verb)(*command.arguments[3:])
        if f"after {verb}" in self.breaks:
            raise KeyboardInterrupt
        return json.loads(json.dumps(answer))

    def register(self, path, *_):
        key = Path(path).read_text().strip()
        if key in {one["key"] for one in self.nodes.values()}:
            return {"success": False, "error-message": "[code: 23] Public key already in use"}
        node_id = 2**63 + len(self.nodes)
        self.nodes[node_id] = {"key": key, "status": "registered"}
        return {"success": True, "node-id": node_id}

    def unregister(self, node_id, *_):
        self.nodes[int(node_id)]["status"] = "unregistered"
        return {"success": True, "node-id": int(node_id)}

    def list(self, *_):
        nodes = [{"node-id": str(i), "status": one["status"], "created-at": "then"} for i, one in self.nodes.items()]
        return {"success": True, "nodes": nodes}

    @property
    def live(self):
        return {one["key"] for one in self.nodes.values() if one["status"] != "unregistered"}


@pytest.fixture
def superlink(monkeypatch):
    fake = SuperLink()
    monkeypatch.setattr(enrolment, "ask", fake.ask)
    monkeypatch.setattr(enrolment, "is_healthy", lambda *_: fake.up)
    monkeypatch.setattr("multicentre_sites.deployment.coordinator_folder.program", lambda name: name)
    return fake


@pytest.fixture
def consortium(tmp_path):
    return make_consortium(tmp_path / "new")


@pytest.fixture
def enrolled(consortium, superlink):
    return Enrolment(consortium, lambda _: None)


def states(consortium):
    return {one.card.name: one.state for one in SiteRegister.read(consortium.register).entries}


def published(consortium):
    return Roster.read(consortium.public / "roster.toml").names


def test_commands_are_told_as_they_run(consortium, superlink):
    told = []
    Enrolment(consortium, told.append).add(LYON)
    (line,) = told
    assert " flwr supernode register " in line
    assert line.endswith(" consortium --name=lyon --format json")


@pytest.mark.parametrize("place", ["before register", "after register"])
def test_adding_that_broke_off_is_ended_by_the_same_command(enrolled, consortium, superlink, place):
    superlink.breaks = {place}
    with pytest.raises(KeyboardInterrupt):
        enrolled.add(LYON)
    assert states(consortium) == {"lyon": "pending"}
    assert published(consortium) == ()
    superlink.breaks = set()
    assert enrolled.add(LYON).state == "registered"
    assert superlink.live == {LYON.public_key}
    assert published(consortium) == ("lyon",)


@pytest.mark.parametrize("place", ["before register", "after register"])
def test_adding_that_broke_off_is_ended_by_the_next_site(enrolled, consortium, superlink, place):
    superlink.breaks = {place}
    with pytest.raises(KeyboardInterrupt):
        enrolled.add(LYON)
    superlink.breaks = set()
    enrolled.add(BERN)
    by_key = {one["key"]: node_id for node_id, one in superlink.nodes.items()}
    register = SiteRegister.read(consortium.register)
    assert {one.card.public_key: one.node_id for one in register.entries} == by_key
    assert published(consortium) == ("bern", "lyon")


@pytest.mark.parametrize("place", ["before register", "after register"])
def test_adding_that_broke_off_can_be_taken_back(enrolled, consortium, superlink, place):
    superlink.breaks = {place}
    with pytest.raises(KeyboardInterrupt):
        enrolled.add(LYON)
    superlink.breaks = set()
    enrolled.remove("lyon")
    assert superlink.live == set()
    assert states(consortium).get("lyon") in (None, "removed")


@pytest.mark.parametrize("place", ["before unregister", "after unregister"])
def test_removal_that_broke_off_is_ended_by_the_same_command(enrolled, consortium, superlink, place):
    enrolled.add(LYON)
    superlink.breaks = {place}
    with pytest.raises(KeyboardInterrupt):
        enrolled.remove("lyon")
    superlink.breaks = set()
    enrolled.remove("lyon")
    assert superlink.live == set()
    assert states(consortium) == {"lyon": "removed"}
    assert published(consortium) == ()


def test_site_that_a_new_database_does_not_know_is_registered_again(enrolled, consortium, superlink):
    enrolled.add(LYON)
    superlink.nodes.clear()
    assert [one.status for one in enrolled.sites()] == ["unknown"]
    enrolled.add(LYON)
    assert [one.status for one in enrolled.sites()] == ["registered"]


def test_refusal_by_flower_keeps_the_site_pending_and_says_why(enrolled, consortium, superlink, monkeypatch):
    answer = {"success": False, "error-message": "the database\nis locked."}
    monkeypatch.setattr(superlink, "register", lambda *_: answer)
    with pytest.raises(ConfigurationError, match=r"site lyon.*the database is locked"):
        enrolled.add(LYON)
    assert states(consortium) == {"lyon": "pending"}
    assert [one.status for one in enrolled.sites()] == ["pending"]


def test_hint_names_the_folder(enrolled, consortium, superlink, monkeypatch):
    monkeypatch.setattr(superlink, "register", lambda *_: {"success": False})
    with pytest.raises(ConfigurationError) as told:
        enrolled.add(LYON)
    assert f"coordinator up --folder {consortium.folder}" in told.value.hint


def test_key_that_flower_had_before_is_told(enrolled, superlink):
    superlink.nodes[7] = {"key": LYON.public_key, "status": "unregistered"}
    with pytest.raises(IntegrityError, match="must be new to the SuperLink"):
        enrolled.add(LYON)


def test_strangers_in_the_superlink_are_not_taken_for_the_site(enrolled, superlink):
    superlink.nodes = {i: {"key": f"{i}", "status": "online"} for i in (7, 8)} | {
        9: {"key": LYON.public_key, "status": "online"}
    }
    with pytest.raises(IntegrityError, match="got 3 others"):
        enrolled.add(LYON)


@pytest.mark.parametrize("what", ["add", "remove", "sites"])
def test_coordinator_that_is_down_loses_nothing(enrolled, consortium, superlink, what):
    enrolled.add(LYON)
    before = consortium.register.read_bytes()
    superlink.up = False
    calls = {"add": lambda: enrolled.add(BERN), "remove": lambda: enrolled.remove("lyon"), "sites": enrolled.sites}
    with pytest.raises(ConfigurationError, match="must be running"):
        calls[what]()
    assert consortium.register.read_bytes() == before


def test_sites_that_the_superlink_lost_are_registered_again_at_the_start(consortium, superlink, enrolled):
    for card in (LYON, BERN):
        enrolled.add(card)
    before = published(consortium)
    superlink.nodes.clear()  # its database is gone
    reports = []
    Enrolment(consortium, reports.append).restore()
    assert superlink.live == {LYON.public_key, BERN.public_key}
    assert [one for one in reports if "lyon was lost at the SuperLink" in one]
    register = SiteRegister.read(consortium.register)
    assert {one.node_id for one in register.entries} == set(superlink.nodes)
    assert published(consortium) == before
    reports.clear()
    Enrolment(consortium, reports.append).restore()
    assert not [one for one in reports if "was lost" in one]


def test_nothing_is_asked_while_no_site_is_registered(consortium, superlink, enrolled):
    superlink.breaks.add("before list")
    enrolled.restore()
