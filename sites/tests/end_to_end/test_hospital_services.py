"""A study over a coordinator and three sites, each as a hospital's IT runs a service, with kernels that numba compiles.

Each has an account without a home and without rights to the package, sees a read-only system with one writable folder,
and gets neither HOME nor TMPDIR.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import multicentre as mc
from support.accounts import give_to
from support.consortia import SITES, Process, in_one_process, numbers_of
from support.namespaces import READ_ONLY, require_namespaces
from support.ports import free_ports
from support.processes import processes_of
from support.proxies import PROXY

pytest.importorskip("flwr", reason="flwr is not installed")
pytestmark = pytest.mark.slow

COORDINATOR = "coordinator"
ACCOUNTS = {COORDINATOR: 61010, "lyon": 61011, "oslo": 61012, "porto": 61013}
NAMED = (COORDINATOR, "lyon")  # in the list of accounts, as by useradd --system; the others have a number only
MODES = {"lyon": "fast", "oslo": "auto", "porto": "standard"}
# A private mount namespace imitates ProtectSystem=strict and ReadWritePaths= of systemd. Where an interpreter lies in
# the closed home of root, an empty folder with the interpreter stands in its place.
CONFINED = f"""
{READ_ONLY}
set -e
folder=$1 account=$2 list=$3 base=$4 closed=$5 stage=$6
shift 6
mount --make-rprivate /
mount --bind "$folder" "$folder"
mount --bind "$list" /etc/passwd
if [ -n "$closed" ]; then
    mount --bind "$base" "$stage"
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    mkdir -p "$base"
    mount --bind "$stage" "$base"
fi
read_only_but "$folder"
cd /
exec setpriv --reuid "$account" --regid "$account" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \\
    env -i PATH="$PATH" OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 "$@"
"""
STUDY = """
[study]
name = "services"
method = "fed-hazard-boost"
seed = 3
[parameters]
n_estimators = 3
max_depth = 2
n_times = 6
max_bins = 8
early_stopping = false
[data]
id_column = "patient"
[data.survival]
unit = "months"
columns = ["x0", "x1"]
[run]
compare = false
[sites]
"""


class Services:
    """Folders of the accounts below one folder, and commands as each of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[Process] = []
        closed = [one for one in Path(sys.base_prefix).parents if not one.stat().st_mode & 0o001]
        self._closed = closed[-1] if closed else ""
        (root / "stage").mkdir()
        for name, number in ACCOUNTS.items():
            (root / name).mkdir(mode=0o700)
            give_to(number, root / name)
            listed = f"{name}:x:{number}:{number}::/nonexistent:/usr/sbin/nologin\n" if name in NAMED else ""
            (root / f"{name}.accounts").write_text(Path("/etc/passwd").read_text() + listed)

    def folder(self, name: str) -> Path:
        """Return the folder of a service, within the one that it may write to."""
        return self.root / name / "service"

    def start(self, name: str, *words: object, programme: tuple[str, ...] = ("-m", "multicentre")) -> Process:
        """Start a command as the account of a service."""
        listed = self.root / f"{name}.accounts"
        places = (self.root / name, ACCOUNTS[name], listed, sys.base_prefix, self._closed, self.root / "stage")
        confined = ("unshare", "-m", "sh", "-c", CONFINED, "sh", *map(str, places))
        log = self.root / f"{name}-{len(self.processes)}.log"
        self.processes.append(Process(*words, log=log, programme=programme, within=confined))
        return self.processes[-1]

    def run(self, name: str, *words: object) -> str:
        """Run a command as the account of a service to its end, and return what it printed."""
        return self.run_each({name: words})[name]

    def run_each(self, words: Mapping[str, Sequence[object]]) -> dict[str, str]:
        """Run a command as each of several accounts, side by side, and return what each printed."""
        commands = {name: self.start(name, *each) for name, each in words.items()}
        for command in commands.values():
            status = command.wait()
            if "SKIP:" in command.printed:
                pytest.skip(command.printed.strip())
            assert status == 0, command.printed
        return {name: command.printed for name, command in commands.items()}

    def send(self, path: Path, name: str) -> Path:
        """Give a copy of a file to a service, as by e-mail."""
        copy = self.root / name / path.name
        shutil.copy(path, copy)
        give_to(ACCOUNTS[name], copy)
        return copy


@pytest.fixture(scope="module")
def services():
    require_namespaces("setpriv")
    root = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
    root.chmod(0o755)
    services = Services(root)
    try:
        yield services
    finally:
        running = [one for one in reversed(services.processes) if one.runs]
        for one in running:  # a proxy ends with its coordinator only if that ends in order
            one.send(signal.SIGTERM)
        for one in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait()
            one.end()
        remaining = processes_of(root)
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(root)
    assert remaining == []


def write_study(root: Path) -> Path:
    """Write the patients of each site, which its account may read, and the study."""
    lines = []
    for number, site in enumerate(SITES):
        path = root / "patients" / site / "survival.csv"
        path.parent.mkdir(parents=True)
        data = mc.datasets.simulate_survival(150 + 10 * number, n_columns=2, random_state=number)
        columns = [data.X[:, 0].round(6), data.X[:, 1].round(6), data.time.round(3), data.event.astype(int)]
        rows = [f"{number}-{row},{','.join(map(str, values))}" for row, values in enumerate(zip(*columns, strict=True))]
        path.write_text("\n".join(["patient,x0,x1,time,event", *rows]) + "\n")
        give_to(ACCOUNTS[site], path.parent)
        path.chmod(0o400)
        lines.append(f'{site} = {{ file = "{path}" }}')
    study = root / "study.toml"
    study.write_text("\n".join([STUDY, *lines]) + "\n")
    return study


@pytest.fixture(scope="module")
def connected(services):
    """A coordinator and three sites that are up, from the first key to the approval of a study."""
    study, hub = write_study(services.root), services.folder(COORDINATOR)
    port, superlink, bundles = map(str, free_ports(3))
    ports = ("--port", port, "--superlink-port", superlink, "--bundles-port", bundles)
    services.run(COORDINATOR, "study", "init", hub, "--host", "127.0.0.1", *ports)
    up = services.start(COORDINATOR, "coordinator", "up", "--folder", hub, "--proxy", PROXY)
    up.wait_until_printed("Ready:")
    services.run(COORDINATOR, "coordinator", "sign-app", "--folder", hub)
    address = f"127.0.0.1:{superlink if PROXY == 'none' else port}"
    folders = {site: services.folder(site) for site in SITES}
    services.run_each(
        {site: ("site", "keygen", site, "--folder", folders[site], "--address", address) for site in SITES}
    )
    for site in SITES:
        card = services.send(folders[site] / f"{site}.site.toml", COORDINATOR)
        services.run(COORDINATOR, "coordinator", "add-site", card, "--folder", hub)
    public = [hub / "public" / name for name in ("bundle.toml", "release.pub", "roster.toml")]
    approvals = {}
    for site, folder in folders.items():
        shutil.copy(hub / "public" / "ca.crt", folder / "ca.crt")
        give_to(ACCOUNTS[site], folder / "ca.crt")
        received = [services.send(path, site) for path in (*public, study)]
        approvals[site] = ("site", "approve", *received, "--folder", folder, "--yes")
    services.run_each(approvals)
    services.run_each({site: ("site", "check", "--folder", folder) for site, folder in folders.items()})
    running = {
        site: services.start(site, "site", "up", "--folder", folder, "--mode", MODES[site])
        for site, folder in folders.items()
    }
    for site, process in running.items():
        process.wait_until_printed("flower-superexec" if MODES[site] == "standard" else "Connected with")
    states = services.run_each(
        {site: ("site", "status", "--folder", folder, "--json") for site, folder in folders.items()}
    )
    return SimpleNamespace(
        study=study, hub=hub, up=up, running=running, states={site: json.loads(one) for site, one in states.items()}
    )


@pytest.fixture(scope="module")
def finished(services, connected):
    """The run of the study by the coordinator's administrator."""
    output, study = services.root / COORDINATOR / "runs", services.send(connected.study, COORDINATOR)
    run = services.start(COORDINATOR, "run", study, "--coordinator", connected.hub, "--output", output)
    return SimpleNamespace(run=run, status=run.wait(), output=output)


@pytest.mark.parametrize("site", SITES)
def test_monitoring_reads_that_a_site_works(connected, site):
    state = connected.states[site]
    assert (state["ok"], state["up"]) == (True, True)
    assert state["connected"] is (None if MODES[site] == "standard" else True)


def test_the_study_has_the_bits_of_one_process(connected, finished, tmp_path):
    assert finished.status == 0, finished.run.printed
    (folder,) = finished.output.glob("[!.]*")
    assert json.loads((folder / "run.json").read_text())["lost"] == []
    assert (folder / "report.html").exists()
    assert numbers_of(folder) == numbers_of(in_one_process(connected.study, tmp_path).path)


@pytest.mark.parametrize("site", SITES)
def test_compiled_kernels_of_a_site_are_in_its_folder(services, connected, finished, site):
    assert list((services.folder(site) / "kernels").rglob("*.nbi")), connected.running[site].printed
    assert "No folder for compiled kernels" not in connected.running[site].printed


@pytest.mark.parametrize("name", [*SITES, COORDINATOR])
def test_a_service_ends_when_it_is_told_to(connected, name):
    process = connected.up if name == COORDINATOR else connected.running[name]
    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.printed
