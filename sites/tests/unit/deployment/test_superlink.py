import os
import socket
import sqlite3
from contextlib import closing, nullcontext

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import superlink
from multicentre_sites.deployment.connectivity import AddressUnreachable
from multicentre_sites.deployment.flower_commands import Command
from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium
from multicentre_sites.deployment.superlink import Coordinator, superexec_command, superlink_command, wipe_freed
from support.coordinators import make_consortium
from support.ports import free_ports


@pytest.fixture
def consortium(tmp_path, monkeypatch):
    monkeypatch.setattr("multicentre_sites.deployment.coordinator_folder.program", lambda name: name)
    return make_consortium(tmp_path / "new")


def test_superlink_listens_on_loopback_with_tls_and_authenticated_sites(consortium):
    command = superlink_command(consortium)
    said = " ".join(command.arguments)
    assert said.startswith(f"flower-superlink --host 127.0.0.1 --port {consortium.settings.loopback.superlink} ")
    for told in ("--ssl-certfile ", "--ssl-keyfile ", "--enable-supernode-auth", "--isolation process", "--database "):
        assert told in said
    assert "--disable-runtime-dependency-installation" in said
    assert "--insecure" not in said
    assert command.settings["FLWR_SUPERGRID_API_URL"] == consortium.hub_url


def test_both_processes_share_the_secret_by_its_file(consortium):
    secret = ("--superexec-auth-secret-file", str(consortium.superexec_secret))
    for command in (superlink_command(consortium), superexec_command(consortium)):
        position = command.arguments.index(secret[0])
        assert command.arguments[position : position + 2] == secret
        assert consortium.superexec_secret.read_text() not in command.as_typed()


@pytest.mark.parametrize("name", ["superlink_ca_key", "superlink_key", "release_key", "superexec_secret"])
def test_key_that_others_may_read_is_refused_before_anything_starts(consortium, monkeypatch, name):
    monkeypatch.setattr(superlink.ManagedProcess, "start", lambda _: pytest.fail("it was started"))
    getattr(consortium, name).chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Coordinator(consortium, "none", lambda _: None).run()


def test_missing_key_is_told(consortium):
    consortium.release_key.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Coordinator(consortium, "none", lambda _: None).run()


def test_freed_pages_keep_nothing_of_a_message(tmp_path):
    path = tmp_path / "superlink.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA secure_delete = OFF")  # some systems build SQLite with it
        opened.execute("CREATE TABLE messages (content BLOB)")
        opened.executemany("INSERT INTO messages VALUES (?)", [(b"what a site said" * 100,)] * 50)
        opened.commit()
        opened.execute("DELETE FROM messages")
        opened.commit()
    assert b"what a site said" in path.read_bytes()
    wipe_freed(path)
    assert b"what a site said" not in path.read_bytes()


def test_absent_or_broken_database_stops_nothing(tmp_path):
    wipe_freed(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "broken.db").write_bytes(b"no database" * 100)
    wipe_freed(tmp_path / "broken.db")


def test_taken_port_of_the_proxy_is_named_before_anything_starts(consortium, monkeypatch):
    monkeypatch.setattr(superlink.ManagedProcess, "start", lambda _: pytest.fail("it was started"))
    monkeypatch.setattr(superlink, "nginx_command", lambda _: Command(("nginx",), {}))
    address, _, port = consortium.settings.listen.rpartition(":")
    with socket.socket() as taken:
        taken.bind((address, int(port)))
        taken.listen()
        with pytest.raises(ConfigurationError, match=rf"coordinator\.toml, listen: port {port} of {address}"):
            Coordinator(consortium, "nginx", lambda _: None).run()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("proxy", ["none", "external", "nginx"])
def test_public_address_that_is_the_superlinks_own_is_refused_before_anything_starts(
    tmp_path, monkeypatch, host, proxy
):
    monkeypatch.setattr("multicentre_sites.deployment.coordinator_folder.program", lambda name: name)
    monkeypatch.setattr(superlink.ManagedProcess, "start", lambda _: pytest.fail("it was started"))
    monkeypatch.setattr(superlink, "nginx_command", lambda _: Command(("nginx",), {}))
    (port,) = free_ports(1)
    consortium = create_consortium(tmp_path / "new", ConsortiumOptions(host, port, superlink_port=port))
    with pytest.raises(ConfigurationError, match=r"port must differ from loopback\.superlink") as refused:
        Coordinator(consortium, proxy, lambda _: None).run()
    assert f"127.0.0.1:{port}" in refused.value.hint


@pytest.mark.parametrize("answers", [True, False], ids=["control routes answer", "nothing answers"])
def test_without_a_proxy_a_public_address_that_answers_control_routes_is_refused(consortium, monkeypatch, answers):
    """Somebody forwards the SuperLink's port to other machines."""

    def look(host, port, ca):
        raise ConfigurationError("open") if answers else AddressUnreachable("closed")

    told = []
    coordinator = Coordinator(consortium, "none", told.append)
    monkeypatch.setattr(superlink, "check_public_routes", look)
    monkeypatch.setattr(coordinator, "_begin", lambda _: None)
    monkeypatch.setattr(coordinator, "_await_health", lambda: None)
    with pytest.raises(ConfigurationError, match="open") if answers else nullcontext():
        coordinator._start()
    said = "\n".join(told)
    assert ("Ready:" in said) == (not answers)
    assert ("Warning: there is no proxy." in said) == (not answers)
    assert answers or f"never forward port {consortium.settings.loopback.superlink}" in said


@pytest.mark.parametrize(("runs", "told"), [("multicentre coordinator up", True), ("another program", False)])
def test_second_coordinator_hears_that_one_is_up_and_how_to_stop_it(consortium, monkeypatch, runs, told):
    monkeypatch.setattr(superlink, "command_line", {os.getpid(): runs}.get)
    first, second = (Coordinator(consortium, "none", lambda _: None) for _ in range(2))
    with first._exclusive(), pytest.raises(ConfigurationError, match=r"is up already.*Ctrl-C") as refused:
        second.run()
    assert (f"kill {os.getpid()}" in refused.value.hint) == told
    with second._exclusive():
        pass
    assert not (consortium.state / "coordinator.pid").exists()


def test_lock_that_cannot_be_taken_is_not_told_as_a_second_coordinator(consortium):
    (consortium.state / "coordinator.lock").write_bytes(b"no database" * 100)
    with pytest.raises(ConfigurationError, match="lock cannot be taken"):
        Coordinator(consortium, "none", lambda _: None).run()
