"""What monitoring reads, and what a service does by itself: logs, folders, damaged files, a SuperLink that forgot."""

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core import disk
from multicentre.core.storage import held
from multicentre.errors import MulticentreError
from multicentre.privacy.ledger import Ledger
from multicentre_sites.deployment import process
from multicentre_sites.deployment.analysts import AdmittedAnalysts, make_analyst
from multicentre_sites.deployment.coordinator_files import check_files
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import SiteRegister
from multicentre_sites.deployment.status import coordinator_status, metrics_of, site_status
from support.coordinators import make_card, make_consortium


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_state_of_a_site(tmp_path):
    site = read_site(make_site("lyon", tmp_path / "lyon").folder)
    down = call("site", "status", "--folder", site.folder, "--json")
    assert down.exit_code == 3
    state = json.loads(down.stdout)
    assert (state["up"], state["connected"], state["last_heard"], state["ledgers"]) == (False, None, None, {})
    ledger = Ledger(site.ledger_of("hips"), signer=site.identity, study="hips")
    last = [ledger.append("release", {}) for _ in range(3)][-1]
    site.running.mkdir(exist_ok=True)
    (site.running / "heard").touch()
    with held(site.running / "lock"):
        up = call("site", "status", "--folder", site.folder, "--json")
        state = json.loads(up.stdout)
        assert up.exit_code == 0
        assert (state["up"], state["connected"]) == (True, True)
        assert state["ledgers"]["hips"] == {"entries": 3, "hash": last["hash"], "time": last["time"]}
        assert state["free_bytes"] > 0
        assert "connected" in call("site", "status", "--folder", site.folder).stdout
        os.utime(site.running / "heard", (time.time() - 120,) * 2)
        silent = call("site", "status", "--folder", site.folder, "--json")
        assert (silent.exit_code, json.loads(silent.stdout)["connected"]) == (3, False)


def test_the_state_of_a_coordinator_that_is_down(tmp_path):
    consortium = make_consortium(tmp_path / "new")
    down = call("coordinator", "status", "--folder", consortium.folder, "--json")
    state = json.loads(down.stdout)
    assert (down.exit_code, state["ok"], state["up"], state["superlink"]) == (3, False, False, False)
    assert state["certificate_days"] > 30


def samples_in(text):
    """Return the samples of Prometheus's text format by metric and labels; a line of another form fails."""
    samples, declared = {}, set()
    for line in text.splitlines():
        if line.startswith("#"):
            _, kind, metric, words = line.split(" ", 3)
            assert kind == "HELP" or (kind, words) == ("TYPE", "gauge")
            declared.add(metric)
            continue
        metric, labels, value = re.fullmatch(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)+\})? (\S+)', line).groups()
        assert metric in declared
        assert (metric, labels or "") not in samples
        samples[metric, labels or ""] = float(value)
    return samples


def test_metrics_of_a_site_are_its_state(tmp_path):
    site = read_site(make_site("lyon", tmp_path / "lyon").folder)
    command, of_site = ("site", "status", "--folder", site.folder, "--format", "prometheus"), '{site="lyon"}'
    down = call(*command)
    assert down.exit_code == 0  # a timer that writes the text is no second alarm
    assert samples_in(down.stdout)["multicentre_site_ok", of_site] == 0
    ledger = Ledger(site.ledger_of("hips"), signer=site.identity, study="hips")
    for _ in range(3):
        ledger.append("release", {})
    site.running.mkdir(exist_ok=True)
    (site.running / "heard").touch()
    with held(site.running / "lock"):
        samples = samples_in(call(*command).stdout)
    assert {samples[f"multicentre_site_{name}", of_site] for name in ("ok", "up", "connected")} == {1}
    assert samples["multicentre_site_ledger_entries", '{site="lyon",study="hips"}'] == 3
    heard = (site.running / "heard").stat().st_mtime
    assert samples["multicentre_site_last_heard_timestamp_seconds", of_site] == int(heard)
    assert samples["multicentre_site_runs", of_site] == 0
    assert ("multicentre_site_authority_days", of_site) not in samples  # no certificate was placed here


def test_metrics_escape_names_and_count_sites():
    sites = {"a": {"status": "online"}, 'b "c"\\': {"status": "offline"}}
    samples = samples_in(metrics_of("coordinator", {"ok": False, "sites": sites, "certificate_days": 12.5}))
    assert samples == {
        ("multicentre_coordinator_ok", ""): 0,
        ("multicentre_coordinator_certificate_days", ""): 12.5,
        ("multicentre_coordinator_site_online", '{site="a"}'): 1,
        ("multicentre_coordinator_site_online", r'{site="b \"c\"\\"}'): 0,
    }


@pytest.mark.parametrize("service", ["site", "coordinator"])
def test_every_state_is_a_metric_that_the_page_names(tmp_path, service):
    if service == "site":
        state = site_status(read_site(make_site("lyon", tmp_path / "lyon").folder))
        state |= {"last_heard": "2026-01-01T00:00:00+00:00", "ledgers": {"hips": {"entries": 1}}}
    else:
        state = coordinator_status(make_consortium(tmp_path / "new"), print)
        state |= {"sites": {"lyon": {"status": "online"}}}
    state = {name: 1 if value is None else value for name, value in state.items()}
    printed = {metric for metric, _ in samples_in(metrics_of(service, state))}
    assert len(printed) == len(state) - ("name" in state)
    page = (Path(__file__).parents[4] / "docs" / "hospital-it.md").read_text(encoding="utf-8")
    assert set(re.findall(rf"`(multicentre_{service}_[a-z_]+)`", page)) == printed


FILES = ["register.json", "analysts.json", "pki/ca.crt", "pki/ca.key", "pki/coordinator.crt", "pki/coordinator.key"]


@pytest.mark.parametrize("name", [*FILES, "secrets/release"])
def test_a_damaged_file_of_a_coordinator_is_named_before_anything_starts(tmp_path, name):
    consortium = make_consortium(tmp_path / "new")
    SiteRegister().adding(make_card("lyon")).write(consortium.register)
    AdmittedAnalysts(consortium.analysts).add(make_analyst("ada", tmp_path / "ada").card)
    check_files(consortium)
    path = consortium.folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(MulticentreError) as caught:
        check_files(consortium)
    assert path.name.partition(".")[0] in str(caught.value)
    assert caught.value.exit_code in (3, 8)


def test_a_log_is_rotated_while_a_process_appends_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 1000)
    log = tmp_path / "a.log"
    with log.open("ab", buffering=0) as appended:
        appended.write(b"x" * 1001)
        process.rotate_running_log(log)
        appended.write(b"y")
    assert log.read_bytes() == b"y"
    assert (tmp_path / "a.log.old").stat().st_size == 1001
    process.rotate_running_log(log)
    process.rotate_running_log(tmp_path / "none.log")
    assert log.read_bytes() == b"y"


def test_a_service_without_other_places_uses_its_folder(tmp_path, monkeypatch):
    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(disk.os, "access", lambda path, mode: False)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    for name in ("TMPDIR", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    disk.use_folder(tmp_path)
    assert os.environ["TMPDIR"] == tempfile.tempdir == str(tmp_path / "tmp")
    assert (tmp_path / "tmp").stat().st_mode & 0o777 == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "kernels")


def test_a_full_disk_in_a_command_is_named_with_its_path(tmp_path):
    program = (
        "import errno\nfrom multicentre.cli.console import handle_errors\n"
        "@handle_errors\ndef run():\n    raise OSError(errno.ENOSPC, 'No space left on device', '/srv/runs/a')\n"
        "import typer\ntry:\n    run()\nexcept typer.Exit as error:\n    raise SystemExit(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "/srv/runs/a: the folder must have at least 64 MiB free disk space" in done.stderr
