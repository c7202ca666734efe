"""The compose files hold together, publish what they may, and run nothing as root."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multicentre_sites.deployment.new_site_folder import make_site
from support.coordinators import make_consortium

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("*/compose.yaml"))
TOP = {"name", "services", "secrets", "networks", "volumes"}
SERVICE = {
    *("image", "build", "command", "user", "network_mode", "depends_on", "ports", "extra_hosts", "volumes", "secrets"),
    *(
        "environment",
        "read_only",
        "tmpfs",
        "cap_drop",
        "security_opt",
        "init",
        "stop_grace_period",
        "restart",
        "healthcheck",
    ),
}


def test_the_unit_of_a_site_runs_without_a_home_on_a_read_only_system():
    unit = (DEPLOY / "site" / "site.service").read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    assert settings["ProtectSystem"] == "strict"
    assert settings["ProtectHome"] == settings["NoNewPrivileges"] == "true"
    assert settings["Restart"] == "always"
    assert settings["CapabilityBoundingSet"] == ""
    assert settings["ReadWritePaths"] in settings["ExecStart"]


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def services():
    return [
        pytest.param(path, name, id=f"{path.parent.name}-{name}") for path in FILES for name in read(path)["services"]
    ]


def test_there_is_one_for_the_coordinator_and_one_for_a_site():
    assert [path.parent.name for path in FILES] == ["coordinator", "site"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_names_that_are_used_are_declared_and_the_other_way_round(path):
    content = read(path)
    assert set(content) <= TOP
    for kind in ("secrets", "networks", "volumes"):
        used = {_name(one) for service in content["services"].values() for one in service.get(kind, []) if _named(one)}
        assert used == set(content.get(kind, {}))


@pytest.mark.parametrize(("path", "name"), services())
def test_service_is_well_formed_and_locked_down(path, name):
    content = read(path)
    service = content["services"][name]
    assert set(service) <= SERVICE
    assert re.fullmatch(r"\$\{MULTICENTRE_UID:-[1-9]\d+\}:\$\{MULTICENTRE_GID:-[1-9]\d+\}", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert set(service.get("depends_on", [])) <= set(content["services"])
    mode = service.get("network_mode", "")
    assert not mode or mode.removeprefix("service:") in set(content["services"]) - {name}
    assert not (mode and service.get("ports"))


@pytest.mark.parametrize(("path", "name"), services())
def test_secrets_are_files_and_never_settings(path, name):
    content = read(path)
    assert all(set(secret) == {"file"} for secret in content["secrets"].values())
    settings = content["services"][name].get("environment", {})
    assert set(settings) <= {"HTTPS_PROXY", "NO_PROXY"}


def test_only_the_proxys_port_is_published():
    published = {
        (path.parent.name, name): service["ports"]
        for path in FILES
        for name, service in read(path)["services"].items()
        if "ports" in service
    }
    assert published == {("coordinator", "proxy"): ["${COORDINATOR_PORT:-443}:8443"]}
    coordinator = read(DEPLOY / "coordinator" / "compose.yaml")["services"]["coordinator"]
    assert coordinator["network_mode"] == "service:proxy"
    assert coordinator["command"][-2:] == ["--proxy", "external"]


def test_proxy_sees_no_key_but_its_own():
    content = read(DEPLOY / "coordinator" / "compose.yaml")
    proxy = content["services"]["proxy"]
    mounted = [one["source"] for one in proxy["volumes"]]
    assert all(one["read_only"] for one in proxy["volumes"])
    assert not any(re.search(r"\.key$|secrets|pki$|consortium\}$", one) for one in mounted)
    assert list(content["secrets"].values()) == [{"file": "${CONSORTIUM:-./consortium}/pki/coordinator.key"}]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_health_checks_run_and_find_a_service_that_is_down(path, tmp_path):
    kind = path.parent.name
    services = read(path)["services"]
    (service,) = (one for one in services.values() if one["image"].startswith("multicentre:"))
    assert all("healthcheck" not in one for one in services.values() if one is not service)
    shell, check = service["healthcheck"]["test"]
    assert shell == "CMD-SHELL"
    place = service["command"][-1] if kind == "site" else service["command"][3]
    assert check == f"multicentre {kind} status --folder {place} --json || exit 1"
    folder = make_site("lyon", tmp_path / "lyon").folder if kind == "site" else make_consortium(tmp_path / "hub").folder
    (tmp_path / "multicentre").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m multicentre "$@"\n')
    (tmp_path / "multicentre").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["/bin/sh", "-c", check.replace(place, str(folder))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["up"] is False


@pytest.mark.parametrize(("path", "name"), services())
def test_commands_are_commands_of_multicentre(path, name):
    from typer.main import get_command
    from typer.testing import CliRunner

    from multicentre.cli import app

    command = read(path)["services"][name].get("command")
    if command is not None:
        assert get_command(app) is not None
        told = CliRunner().invoke(app, [*command[:2], "--help"])
        assert told.exit_code == 0
        assert all(one in told.stdout for one in command[2:] if one.startswith("--"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_image_is_built_from_a_file_that_drops_its_rights(path):
    builds = [service["build"] for service in read(path)["services"].values() if "build" in service]
    assert len(builds) == 1
    root = (path.parent / builds[0]["context"]).resolve()
    lines = (root / builds[0]["dockerfile"]).read_text(encoding="utf-8").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert all((root / source).exists() for sources in copied for source in sources)
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER 10001:10001"]
    assert lines.index(users[0]) > max(i for i, line in enumerate(lines) if line.startswith("RUN"))


def test_image_installs_what_the_lock_names_by_its_hashes_and_nothing_else():
    page = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]*)", page)
    assert len(installs) == 2
    assert all("--no-deps" in one for one in installs)
    assert "--require-hashes" in installs[0]
    assert installs[0].split()[-2:] == ["-r", "/src/requirements/flower.lock"]
    assert installs[1].split()[-2:] == ["/src", "/src/sites"]
    assert "--no-index" in installs[1]
    assert "--no-build-isolation" in installs[1]
    assert "pip check" in page


def test_lock_of_the_image_has_a_hash_for_each_package_and_what_the_package_needs():
    lock = (DEPLOY.parent / "requirements" / "flower.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"(?m)^([a-z0-9._-]+)==\S+(?: ;[^\\\n]*)? \\\n    --hash=sha256:[0-9a-f]{64}", lock)
    assert len(pinned) == len(re.findall(r"(?m)^[a-z0-9._-]+==", lock))
    assert {"flwr", "hatchling", "numpy", "cryptography"} <= set(pinned)


def test_every_image_from_elsewhere_is_named_by_its_digest():
    page = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    bases = [line.split()[1] for line in page.splitlines() if line.startswith("FROM")]
    images = [service["image"] for path in FILES for service in read(path)["services"].values()]
    foreign = [*bases, *(image for image in images if not image.startswith("multicentre:"))]
    assert len(set(bases)) == 1
    assert len(foreign) == 3
    assert all(re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", image) for image in foreign)


@pytest.mark.slow
def test_steps_are_told_in_order_with_commands_that_exist():
    from typer.testing import CliRunner

    from multicentre.cli import app

    told = (DEPLOY / "README.md").read_text(encoding="utf-8")
    pattern = r"(?m)^ {7,}.*?\b((?:study|coordinator|site) (?:init|sign-app|add-site|sites|keygen|approve|check|log))\b"
    found = list(dict.fromkeys(re.findall(pattern, told)))
    assert found == [
        *("study init", "coordinator sign-app", "coordinator add-site", "coordinator sites"),
        *("site keygen", "site approve", "site check", "site log"),
    ]
    assert all(CliRunner().invoke(app, [*one.split(), "--help"]).exit_code == 0 for one in found)


def _named(one):
    return isinstance(one, str) or one.get("type", "volume") == "volume"


def _name(one):
    return one.split(":")[0] if isinstance(one, str) else one["source"]
