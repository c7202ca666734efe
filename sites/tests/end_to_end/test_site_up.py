"""A hospital's own commands against a real coordinator: keys, approvals, check, and both ways to answer letters."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from multicentre_sites.deployment.approvals import read_approvals
from multicentre_sites.deployment.site_folder import read_site
from support.coordinators import call, make_consortium, running
from support.processes import command_line, processes_of
from support.proxies import address_of
from support.real_sites import set_terms
from support.studies_toy import STUDY, write_study
from support.waiting import GENEROUS_S, wait_for

pytest.importorskip("flwr", reason="flwr is not installed")
pytestmark = pytest.mark.slow
UNMASKED = "\n[privacy]\nsecure_sum = false\n"
STUDY_HERE = (
    STUDY.replace('"toy"', '"fed-mv-ppca"').replace("n_rounds = 6", "max_iter = 5\nn_components = 1") + UNMASKED
)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    consortium = make_consortium(tmp_path_factory.mktemp("c") / "coordinator")
    with running(consortium):
        signed = call("coordinator", "sign-app", "--folder", consortium.folder)
        assert signed.returncode == 0, signed.stderr
        yield consortium


@pytest.fixture(scope="module")
def lyon(consortium, tmp_path_factory):
    """A site that made its keys, was registered, and approved a study and the bundle."""
    root = tmp_path_factory.mktemp("h")
    folder = root / "lyon"
    made = call("site", "keygen", "lyon", "--folder", folder, "--address", address_of(consortium), "--json")
    assert made.returncode == 0, made.stderr
    card = json.loads(made.stdout)["card"]
    added = call("coordinator", "add-site", card, "--folder", consortium.folder)
    assert added.returncode == 0, added.stderr
    shutil.copy(consortium.public / "ca.crt", folder / "ca.crt")
    given = [consortium.public / name for name in ("bundle.toml", "release.pub", "roster.toml")]
    approved = call("site", "approve", *given, write_study(root, STUDY_HERE), "--folder", folder, "--yes")
    assert approved.returncode == 0, approved.stderr
    return folder


def status_of(consortium, name):
    ended = call("coordinator", "sites", "--folder", consortium.folder, "--json")
    return {one["name"]: one["status"] for one in json.loads(ended.stdout)}[name]


@contextlib.contextmanager
def site_up(folder, *arguments):
    printed = folder / "up.txt"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "multicentre", "site", "up", "--folder", str(folder), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, printed.read_text
    finally:
        process.kill()
        process.wait()
        for pid in processes_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stopped(process, folder):
    """Stop a site as its administrator would; return its status once nothing is left of it."""
    process.send_signal(signal.SIGTERM)
    status = process.wait(GENEROUS_S)
    assert processes_of(folder) == []
    return status


def test_a_site_that_is_ready_has_no_fault(lyon):
    ended = call("site", "check", "--folder", lyon, "--json")
    told = json.loads(ended.stdout)
    assert ended.returncode == 0, told["findings"]
    levels = {one["what"]: one["level"] for one in told["findings"]}
    assert levels["coordinator"] == levels["mode standard"] == levels["mode fast"] == levels["roster"] == "ok"


def test_the_fast_mode_connects_and_leaves_nothing_behind(consortium, lyon):
    with site_up(lyon) as (process, printed):
        wait_for(lambda: "Connected" in printed() or process.poll() is not None)
        assert process.poll() is None, printed()
        assert status_of(consortium, "lyon") == "online"
        again = call("site", "up", "--folder", lyon)
        assert again.returncode == 3
        assert f"already up (process {process.pid})" in again.stderr
        assert stopped(process, lyon) == 0
    assert "no Flower command is run" in printed()


def test_the_standard_mode_comes_back_after_its_supernode_was_killed(consortium, lyon):
    log = lyon / "flower.log"

    def connected():
        return log.read_text().count("SuperNode ID") if log.exists() else 0

    with site_up(lyon, "--mode", "standard") as (process, printed):
        wait_for(lambda: connected() == 1 or process.poll() is not None)
        assert process.poll() is None, printed()
        assert "--trusted-entities" in printed()
        assert "--insecure --runtime-api-address 127.0.0.1:" in printed()  # between two processes of this machine
        supernode = [pid for pid in processes_of(lyon) if "flower-supernode" in command_line(pid)]
        os.kill(supernode[0], signal.SIGKILL)
        wait_for(lambda: connected() == 2 or process.poll() is not None)
        assert "flower-supernode ended" in printed()
        assert stopped(process, lyon) == 0


def test_a_release_key_that_is_taken_back_ends_what_trusted_it(consortium, lyon):
    (fingerprint,) = read_approvals(read_site(lyon).approved).release_keys
    try:
        with site_up(lyon, "--mode", "standard") as (process, printed):
            wait_for(lambda: "flower-supernode" in printed() or process.poll() is not None)
            assert call("site", "approve", "--revoke", fingerprint, "--folder", lyon).returncode == 0
            wait_for(lambda: process.poll() is not None)
            assert process.returncode == 3
            assert "got none. Approve the coordinator's" in printed()
        assert not processes_of(lyon)
    finally:
        call("site", "approve", consortium.public / "release.pub", "--folder", lyon, "--yes")


def test_a_key_that_the_coordinator_does_not_know_is_told(consortium, tmp_path):
    folder = tmp_path / "nice"
    call("site", "keygen", "nice", "--folder", folder, "--address", address_of(consortium))
    shutil.copy(consortium.public / "ca.crt", folder / "ca.crt")
    call("site", "approve", consortium.public / "release.pub", "--folder", folder, "--yes")
    with site_up(folder, "--mode", "standard") as (process, printed):
        wait_for(lambda: "is restarted" in printed() or process.poll() is not None)
        assert "its key is not registered" in printed() or "key is not registered" in printed()
        assert stopped(process, folder) == 0


def test_a_site_does_not_go_up_over_plain_http(lyon):
    set_terms(lyon, 'address = "', 'address = "http://')
    try:
        ended = call("site", "up", "--folder", lyon)
    finally:
        set_terms(lyon, 'address = "http://', 'address = "')
    assert ended.returncode == 3
    assert "https" in ended.stderr
