"""A coordinator, its proxy and three hospitals as processes of this machine; every command is shown as it is run.

``up`` founds the consortium, starts it, runs a study over it and shows what left the hospitals; ``down`` ends all
processes that ``up`` started.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

HERE = Path(__file__).resolve().parent
SITES = ("lyon", "porto", "turin")
MULTICENTRE = str(Path(sys.executable).parent / "multicentre")
START_S, STOP_S = 90, 20


def up(folder: Path, mode: str) -> None:
    if folder.exists():
        sys.exit(f"{folder} exists: end it with the command down.")
    folder.mkdir(parents=True)
    deal_patients(folder)
    shutil.copy(HERE / "study.toml", folder)
    print("\n== The coordinator founds a consortium and starts; its proxy lets nothing but the sites' own routes in")
    found(folder)
    start(folder, "coordinator", "coordinator", "up", "--folder", "coordinator", "--proxy", proxy())
    wait_for(folder, "coordinator", "Ready")
    print("\n== Each hospital makes its keys; the coordinator registers the public halves and signs the bundle")
    for site in SITES:
        run(folder, "site", "keygen", site, "--folder", site, "--address", address(folder))
        shutil.copy(folder / "coordinator/public/ca.crt", folder / site)
        run(folder, "coordinator", "add-site", f"{site}/{site}.site.toml", "--folder", "coordinator")
    run(folder, "coordinator", "sign-app", "--folder", "coordinator")
    print("\n== Each hospital's steward approves the bundle, the other sites and the study, and starts the site")
    public = [f"coordinator/public/{name}" for name in ("bundle.toml", "release.pub", "roster.toml")]
    for site in SITES:
        run(folder, "site", "approve", *public, "study.toml", "--folder", site, "--yes", shown=site == SITES[0])
        start(folder, site, "site", "up", "--folder", site, "--mode", mode)
    for site in SITES:
        wait_for(folder, site, "Connected")
    print("\n== The analyst runs the study over the hospitals, and the same file in one process")
    run(folder, "run", "study.toml", "--coordinator", "coordinator", "--output", "runs/hospitals")
    run(folder, "run", "study.toml", "--output", "runs/one-process", shown=False)
    print(f"\nThe same numbers, bit by bit: {'yes' if same_model(folder) else 'NO'}")
    print("\n== What left the first hospital, from its own ledger")
    run(folder, "site", "log", "--folder", SITES[0])
    print(f"\nAll is in {folder}. The processes run on; end them with the command down.")


def down(folder: Path) -> None:
    if not (folder / "study.toml").exists():
        sys.exit(f"{folder} is no consortium of this example.")
    started = json.loads((folder / "processes.json").read_text()) if (folder / "processes.json").exists() else {}
    for process in reversed(started.values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while time.monotonic() < end and any(is_running(process) for process in started.values()):
        time.sleep(0.2)
    for process in filter(is_running, started.values()):
        os.killpg(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(started)} processes ended; {folder} is removed.")


def deal_patients(folder: Path) -> None:
    """Write each hospital's tables: simulated hospitals, real patients of a public data set."""
    table = load_breast_cancer(as_frame=True).data.round(4).rename(columns=lambda name: name.replace(" ", "_"))
    table.insert(0, "patient", [f"p{number:03d}" for number in range(len(table))])
    order = np.random.default_rng(0).permutation(len(table))
    for site, rows in zip(SITES, np.array_split(order, len(SITES)), strict=True):
        home = folder / "hospitals" / site
        home.mkdir(parents=True)
        for view, prefix in (("means", "mean_"), ("worst", "worst_")):
            columns = ["patient", *(name for name in table if name.startswith(prefix))]
            table.iloc[np.sort(rows)][columns].to_csv(home / f"{view}.csv", index=False)


def found(folder: Path) -> None:
    inner, hub, outer = free_ports(3)
    port = outer if proxy() == "nginx" else inner
    ports = ("--superlink-port", str(inner), "--hub-port", str(hub))
    where = ("--host", "localhost", "--port", str(port), "--listen", f"127.0.0.1:{outer}")
    run(folder, "study", "init", "coordinator", *where, *ports)
    (folder / "address").write_text(f"localhost:{port}")


def address(folder: Path) -> str:
    return (folder / "address").read_text()


def proxy() -> str:
    """Return who keeps outsiders out: nginx where it is installed; else nobody but this machine can connect."""
    return "nginx" if shutil.which("nginx") else "none"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def run(folder: Path, *arguments: str, shown: bool = True) -> None:
    print(f"\n$ multicentre {shlex.join(arguments)}", flush=True)
    ended = subprocess.run([MULTICENTRE, *arguments], cwd=folder, capture_output=not shown, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.stderr or f"The command ended with status {ended.returncode}; see {folder}.")


def start(folder: Path, name: str, *arguments: str) -> None:
    print(f"\n$ multicentre {shlex.join(arguments)} &", flush=True)
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [MULTICENTRE, *arguments], cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    known = folder / "processes.json"
    started = json.loads(known.read_text()) if known.exists() else {}
    known.write_text(json.dumps({**started, name: process.pid}))


def wait_for(folder: Path, name: str, word: str) -> None:
    """Wait until a process has printed a word."""
    process = json.loads((folder / "processes.json").read_text())[name]
    end = time.monotonic() + START_S
    while time.monotonic() < end and is_running(process):
        if word in (folder / f"{name}.log").read_text():
            return
        time.sleep(0.2)
    sys.exit(f"{name} did not start:\n{(folder / f'{name}.log').read_text()}")


def is_running(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def same_model(folder: Path) -> bool:
    """Compare what both runs fitted."""
    paths = [next((folder / "runs" / name).glob("*/model/model.npz")) for name in ("hospitals", "one-process")]
    ours, theirs = (np.load(path) for path in paths)
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs.files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, default=Path("build/consortium"), help="made by up, removed by down")
    parser.add_argument("--mode", choices=("auto", "fast", "standard"), default="auto", help="of the hospitals")
    given = parser.parse_args()
    folder = given.folder.absolute()
    if given.command == "up":
        up(folder, given.mode)
    else:
        down(folder)


if __name__ == "__main__":
    main()
