"""The coordinator as real processes on loopback: kept up, and its register of sites."""

import json
import os
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from multicentre.privacy.site_cards import SiteCard
from multicentre_sites.deployment.connectivity import is_healthy
from multicentre_sites.deployment.flower_commands import Command, flower_settings, program
from multicentre_sites.deployment.site_register import Roster, SiteRegister
from support.coordinators import (
    Running,
    add_site,
    call,
    finished,
    make_card,
    make_consortium,
    make_key,
    running,
    supernode,
)
from support.processes import addresses_listened_on, command_line, processes_of
from support.proxies import NGINX, PROXY, needs_nginx
from support.waiting import GENEROUS_S, wait_for

pytest.importorskip("flwr", reason="flwr is not installed")
pytestmark = pytest.mark.slow
NAMES = ("lyon", "bern", "turin")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return make_consortium(tmp_path_factory.mktemp("consortium") / "coordinator")


@pytest.fixture(scope="module")
def up(consortium):
    with running(consortium) as started:
        yield started


@pytest.fixture(scope="module")
def cards(up, consortium, tmp_path_factory):
    """Three sites that were added."""
    folder = tmp_path_factory.mktemp("cards")
    made = {name: make_card(name, folder / name) for name in NAMES}
    for card in made.values():
        added = add_site(consortium, card, folder)
        assert added.returncode == 0, added.stderr
    return folder, made


def listed(consortium):
    ended = call("coordinator", "sites", "--folder", consortium.folder, "--json")
    assert ended.returncode == 0, ended.stderr
    return {one["name"]: one for one in json.loads(ended.stdout)}


def flwr(consortium, *arguments):
    command = consortium.command("flwr", *arguments)
    ended = finished(command)
    return json.loads(ended.stdout[ended.stdout.index("{") :])


def test_up_prints_what_it_runs_with_tls_and_authentication(up, consortium):
    line = next(line for line in up.printed.splitlines() if "flower-superlink" in line)
    for told in ("--host 127.0.0.1", "--ssl-certfile", "--enable-supernode-auth", "--isolation process", "--database"):
        assert told in line
    for told in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_UPDATE_CHECK=1",
        "--disable-runtime-dependency-installation",
    ):
        assert told in line
    assert "--superexec-auth-secret-file" in next(one for one in up.printed.splitlines() if "flower-superexec" in one)
    assert "--insecure" not in up.printed


def test_a_second_coordinator_in_the_same_folder_is_refused(up, consortium):
    ended = call("coordinator", "up", "--folder", consortium.folder, "--proxy", "none")
    assert ended.returncode == 3
    assert "this one is up already" in ended.stderr
    assert f"kill {up._process.pid}," in ended.stderr


def test_sites_are_listed_by_name_and_the_roster_holds_their_cards(cards, consortium):
    _, made = cards
    assert {name: one["status"] for name, one in listed(consortium).items()} == dict.fromkeys(NAMES, "registered")
    roster = Roster.read(consortium.public / "roster.toml")
    assert {card.name: card for card in roster.cards} == made


def test_the_same_card_twice_changes_nothing(cards, consortium):
    folder, made = cards
    before = consortium.register.read_bytes()
    assert add_site(consortium, made["lyon"], folder).returncode == 0
    assert consortium.register.read_bytes() == before


@pytest.mark.parametrize("shared", ["name", "public_key", "identity"])
def test_what_another_site_has_is_refused(cards, consortium, tmp_path, shared):
    _, made = cards
    before = consortium.register.read_bytes()
    lyon, new = made["lyon"], make_card("oslo")
    fields = {key: getattr(lyon if key == shared else new, key) for key in ("name", "public_key", "identity")}
    ended = add_site(consortium, SiteCard(**fields), tmp_path)
    assert ended.returncode == 3
    assert "[MC301]" in ended.stderr
    assert consortium.register.read_bytes() == before


def test_a_stock_site_with_a_registered_key_comes_online(cards, consortium, tmp_path):
    folder, _ = cards
    with supernode(consortium, folder / "bern", tmp_path) as process:
        wait_for(lambda: process.poll() is not None or listed(consortium)["bern"]["status"] == "online")
        assert process.poll() is None, (tmp_path / "supernode.log").read_text()


def test_a_stock_site_with_a_key_that_nobody_registered_is_turned_away(up, consortium, tmp_path):
    make_key(tmp_path / "key")
    with supernode(consortium, tmp_path / "key", tmp_path) as process:
        assert process.wait(GENEROUS_S) != 0
    assert "activate" in (tmp_path / "supernode.log").read_text()


def test_what_broke_off_after_flower_registered_is_recognised(cards, consortium, tmp_path):
    card = make_card("porto")
    (tmp_path / "porto.pub").write_text(card.public_key)
    known = SiteRegister.read(consortium.register).adding(card)
    known.write(consortium.register)
    answer = flwr(
        consortium, "supernode", "register", str(tmp_path / "porto.pub"), "consortium", "--name=porto", "--format=json"
    )
    assert listed(consortium)["porto"]["status"] == "pending"
    assert "porto" not in Roster.read(consortium.public / "roster.toml").names
    added = add_site(consortium, card, tmp_path)
    assert added.returncode == 0, added.stderr
    assert SiteRegister.read(consortium.register).find("porto").node_id == int(answer["node-id"])
    assert "porto" in Roster.read(consortium.public / "roster.toml").names


def test_what_broke_off_before_flower_registered_is_ended_with_the_next_site(cards, consortium, tmp_path):
    quito, riga = make_card("quito"), make_card("riga")
    SiteRegister.read(consortium.register).adding(quito).write(consortium.register)
    assert add_site(consortium, riga, tmp_path).returncode == 0
    states = {name: one["status"] for name, one in listed(consortium).items()}
    assert (states["quito"], states["riga"]) == ("registered", "registered")


def test_removed_site_is_gone_and_its_key_is_not_taken_again(cards, consortium, tmp_path):
    card = make_card("sofia")
    assert add_site(consortium, card, tmp_path).returncode == 0
    removals = [call("coordinator", "remove-site", "sofia", "--folder", consortium.folder) for _ in range(2)]
    assert [one.returncode for one in removals] == [0, 3]
    assert "sofia" not in listed(consortium)
    assert "sofia" not in Roster.read(consortium.public / "roster.toml").names
    again = add_site(consortium, card, tmp_path)
    assert again.returncode == 3
    assert "was removed" in again.stderr
    assert add_site(consortium, make_card("sofia"), tmp_path).returncode == 0


def test_signed_bundle_is_the_same_every_time(up, consortium):
    told = [json.loads(call("coordinator", "sign-app", "--folder", consortium.folder, "--json").stdout)]
    files = {path.name: path.read_bytes() for path in consortium.bundles.iterdir()}
    told.append(json.loads(call("coordinator", "sign-app", "--folder", consortium.folder, "--json").stdout))
    assert told[0] == told[1]
    assert {path.name: path.read_bytes() for path in consortium.bundles.iterdir()} == files
    published = tomllib.loads((consortium.public / "bundle.toml").read_text())
    assert published["sha256"] == told[0]["sha256"]


def test_killed_superlink_is_started_again_and_knows_its_sites(cards, up, consortium):
    before = set(listed(consortium))
    port = consortium.settings.loopback.superlink
    (pid,) = [one for one in processes_of(consortium.folder) if "flower-superlink" in command_line(one)]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "SuperLink ended with status" in up.printed)
    wait_for(lambda: is_healthy("127.0.0.1", port, consortium.superlink_ca))
    assert set(listed(consortium)) == before


def test_stop_leaves_no_process_and_later_commands_say_so(tmp_path):
    consortium = make_consortium(tmp_path / "coordinator")
    with running(consortium) as started:
        assert len(processes_of(consortium.folder)) >= (4 if PROXY == "nginx" else 3)
        assert started.stop() == 0, started.printed
        assert processes_of(consortium.folder) == []
    ended = add_site(consortium, make_card("lyon"), tmp_path)
    assert ended.returncode == 3
    assert "the coordinator must be running" in ended.stderr
    assert SiteRegister.read(consortium.register).entries == ()


def test_what_a_killed_coordinator_left_behind_does_not_stop_the_next(tmp_path):
    consortium = make_consortium(tmp_path / "coordinator")
    first = Running(consortium)
    try:
        first.wait_until_ready()
        os.kill(first._process.pid, signal.SIGKILL)
        first._process.wait(GENEROUS_S)
        with running(consortium) as second:
            assert "Ready:" in second.printed
            assert second.stop() == 0
        wait_for(lambda: processes_of(consortium.folder) == [])
    finally:
        first.end()


@pytest.fixture
def open_proxy(tmp_path):
    """A consortium behind a proxy that passes everything."""
    consortium = make_consortium(tmp_path / "coordinator")
    settings = consortium.settings
    (tmp_path / "nginx").mkdir()
    (tmp_path / "open.conf").write_text(f"""
        daemon off; pid {tmp_path}/open.pid; error_log {tmp_path}/open.log; events {{}}
        http {{
            access_log off; client_body_temp_path {tmp_path}/nginx/body; proxy_temp_path {tmp_path}/nginx/proxied;
            fastcgi_temp_path {tmp_path}/nginx/f; uwsgi_temp_path {tmp_path}/nginx/u; scgi_temp_path {tmp_path}/nginx/s;
            server {{
                listen 127.0.0.1:{settings.port} ssl;
                ssl_certificate {settings.tls.certificate}; ssl_certificate_key {settings.tls.key};
                location / {{ proxy_pass https://{consortium.superlink_address}; }}
            }}
        }}""")
    command = [NGINX, "-c", str(tmp_path / "open.conf")]
    process = subprocess.Popen([*command, "-e", str(tmp_path / "open.log")], start_new_session=True)
    try:
        yield consortium
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(GENEROUS_S)


@needs_nginx
def test_the_coordinator_does_not_start_behind_a_proxy_that_passes_everything(open_proxy):
    started = Running(open_proxy, "external")
    try:
        assert started.wait() == 3, started.printed
        for told in (
            "must refuse all routes but those of sites",
            "/v1/control/list-nodes (200)",
            "/health (200)",
            "proxy/site.conf",
        ):
            assert told in started.printed
        assert "Ready" not in started.printed
        assert [one for one in processes_of(open_proxy.folder) if "nginx" not in command_line(one)] == []
    finally:
        started.end()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_up_without_a_proxy_serves_this_machine_alone(tmp_path):
    with running(make_consortium(tmp_path / "coordinator"), "none") as started:
        assert f"connect to {started.consortium.superlink_address}" in started.printed
        assert "nginx" not in started.printed
        warning = next(line for line in started.printed.splitlines() if line.startswith("Warning: there is no proxy."))
        assert "every account on it can register sites and submit runs" in warning
        assert "never with real hospitals" in warning
        listening = addresses_listened_on(processes_of(started.consortium.folder))
        assert set(listening) == {("127.0.0.1", port) for port in vars(started.consortium.settings.loopback).values()}
        assert started.stop() == 0


def test_without_a_proxy_every_account_of_this_machine_can_submit_runs(tmp_path):
    """The page says so: whoever changes this changes the page and the warning."""
    consortium = make_consortium(tmp_path / "coordinator")
    (tmp_path / "config.toml").write_text(
        f'[superlink.out]\naddress = "{consortium.superlink_address}"\n'
        f'root-certificates = "{consortium.public / "ca.crt"}"\n'
    )
    with running(consortium, "none"):
        command = Command((program("flwr"), "list", "out", "--format", "json"), flower_settings(tmp_path))
        ended = finished(command)
    assert json.loads(ended.stdout)["success"] is True, ended.stdout


def test_up_refuses_when_no_proxy_answers(tmp_path):
    started = Running(make_consortium(tmp_path / "coordinator"), "external")
    try:
        assert started.wait() == 3
        assert "nothing answers" in started.printed
        assert processes_of(started.consortium.folder) == []
    finally:
        started.end()
