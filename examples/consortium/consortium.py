"""A coordinator, its proxy and three hospitals as processes of this machine; every command is shown as it is run.

The proxy is nginx, where it is on the PATH. Without it the hospitals connect to the coordinator directly: other
machines still reach nothing, but every account on this machine can register sites and submit runs, so that is for a
trial alone.

``up`` founds the consortium, starts it, runs a study of five analyses over it and shows what left the hospitals. If
``down`` has kept an earlier consortium, ``up`` first moves it to a folder named after its date.
``down`` ends all processes that ``up`` started, and no others, however far ``up`` came. It removes the folder, except
if that holds ledgers or a report: then it asks in a terminal, and keeps the folder elsewhere. ``down --delete`` removes
the folder without a question.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from multicentre.datasets import write_example_study

HERE = Path(__file__).resolve().parent
FOLDER = Path("build/consortium")
SITES = ("lyon", "porto", "turin")
ANALYST = "ada"
STUDY = "first-paper"
# Only one process could compare the fits with those of pooled rows.
WITHOUT_COMPARISON = "\n[run]\ncompare = false\n"
MULTICENTRE = str(Path(sys.executable).parent / "multicentre")
MARKER = "processes.json"
KEPT = ("*/ledgers/*.jsonl", "runs/**/report.html")  # what a user may want to keep
# Both limits only stop what hangs: a process starts within seconds on an idle machine, within minutes on a busy one.
START_S, STOP_S = 600, 60
FENCE = {
    "nginx": "its proxy lets nothing but the sites' own routes in",
    "none": "there is no proxy without nginx, so this is for a trial alone: other machines reach nothing, but every "
    "account on this machine can register sites and submit runs",
}


def up(folder: Path, mode: str) -> None:
    write_study(folder)
    print(f"\n== The coordinator founds a consortium and starts; {FENCE[proxy()]}")
    found(folder)
    start(folder, "coordinator", "coordinator", "up", "--folder", "coordinator", "--proxy", proxy())
    wait_for(folder, "coordinator", "Ready")
    print("\n== Each hospital makes its keys; the coordinator registers the public halves and signs the bundle")
    for site in SITES:
        run(folder, "site", "keygen", site, "--folder", site, "--address", address(folder))
        shutil.copy(folder / "coordinator/public/ca.crt", folder / site)
        run(folder, "coordinator", "add-site", f"{site}/{site}.site.toml", "--folder", "coordinator")
    run(folder, "coordinator", "sign-app", "--folder", "coordinator")
    print("\n== The analyst makes a key, with which she signs what she asks for")
    run(folder, "analyst", "keygen", ANALYST)
    print("\n== Each hospital's steward approves the bundle, the other sites, the study and its analyst, and starts it")
    public = [f"coordinator/public/{name}" for name in ("bundle.toml", "release.pub", "roster.toml")]
    card = f"{ANALYST}/{ANALYST}.analyst.toml"
    for site in SITES:
        approved = (*public, f"{STUDY}/study.toml", "--for", card)
        run(folder, "site", "approve", *approved, "--folder", site, "--yes", shown=site == SITES[0])
        start(folder, site, "site", "up", "--folder", site, "--mode", mode)
    for site in SITES:
        wait_for(folder, site, "Connected")
    print("\n== The analyst runs the five analyses of the study over the hospitals, and the same file in one process")
    asked = ("--coordinator", "coordinator", "--analyst", ANALYST)  # an account of her own would name a socket
    run(folder, "run", f"{STUDY}/study.toml", *asked, "--output", "runs/hospitals")
    run(folder, "run", f"{STUDY}/study.toml", "--output", "runs/one-process", shown=False)
    print("\n== What left the first hospital, from its own ledger")
    run(folder, "site", "log", "--folder", SITES[0])
    print("\n== The end: one study over three hospitals and in one process")
    print(f"The same numbers, bit by bit: {'yes' if same_results(folder) else 'NO'}")
    print(f"Report: {next((folder / 'runs/hospitals').glob('*/report.html'))}")
    print(f"The processes run on. End them: {how_to_end(folder)}")


def down(folder: Path, *, delete: bool = False) -> None:
    if not folder.exists():
        print(f"Nothing to end: there is no {folder}.")
        return
    if any(folder.iterdir()) and not (folder / MARKER).exists():
        sys.exit(f"{folder} is no consortium of this example: it holds no {MARKER}. Nothing was ended or removed.")
    running = [process for process in reversed(started_in(folder).values()) if process.is_running()]
    for process in running:
        process.end()
    end = time.monotonic() + STOP_S
    while time.monotonic() < end and any(process.is_running() for process in running):
        time.sleep(0.2)
    for process in running:
        process.kill()
    print(f"{len(running)} processes ended.")
    if delete or not is_kept(folder):
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{folder} is removed.")


def is_kept(folder: Path) -> bool:
    """Print what a user may want to keep; return False if there is nothing, or if the user says in a terminal."""
    kept = worth_keeping(folder)
    if not kept:
        return False
    print("Ledgers of the hospitals, and reports:")
    print("\n".join(f"  {path}" for path in kept))
    if sys.stdin.isatty() and input(f"Delete them, with all of {folder}? [y/N] ").strip().lower() in ("y", "yes"):
        return False
    print("They are kept, and the keys next to them. The next start moves them to a folder named after their date.")
    print(f"To delete all: {how_to_delete(folder)}")
    return True


def worth_keeping(folder: Path) -> list[Path]:
    """Return the ledgers and reports of a consortium."""
    return sorted(path for pattern in KEPT for path in folder.glob(pattern))


@dataclass(frozen=True)
class Started:
    """A process by its number and by when it began: the system gives numbers of ended processes to others."""

    number: int
    began: str

    def is_running(self) -> bool:
        return bool(self.began) and began(self.number) == self.began

    def end(self) -> None:
        """Have it end what it started, and itself."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGTERM)

    def kill(self) -> None:
        """End it and its group at once."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.number, signal.SIGKILL)


def began(number: int) -> str:
    """Return when a process began, in the system's own words; nothing where none of this number runs."""
    if Path("/proc/self/stat").exists():
        try:
            state, *facts = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if state in "ZX" else f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {facts[18]}"
    command = ["ps", "-o", "state=", "-o", "lstart=", "-p", str(number)]
    plain = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    told = subprocess.run(command, env=plain, capture_output=True, text=True, check=False).stdout.split()
    return "" if not told or told[0].startswith("Z") else " ".join(told[1:])


def begin(folder: Path) -> None:
    """Make the folder, first of all with what tells ``down`` that it is this example's."""
    if folder.exists() and any(folder.iterdir()):
        move_aside(folder)
    folder.mkdir(parents=True, exist_ok=True)
    note(folder, {})


def move_aside(folder: Path) -> None:
    """Move a consortium that ``down`` has kept to a folder named after its date; refuse any other content."""
    if not (folder / MARKER).exists():
        sys.exit(f"{folder} exists and is not empty. Name another one with --folder.")
    # Without a ledger or a report, another start may have just begun here: it has started no process yet.
    if any(process.is_running() for process in started_in(folder).values()) or not worth_keeping(folder):
        sys.exit(f"{folder} holds a consortium that was not ended. End it: {how_to_end(folder)}")
    date = datetime.fromtimestamp((folder / MARKER).stat().st_mtime).astimezone()
    aside = name = folder.with_name(f"{folder.name}-{date:%Y-%m-%d-%H%M%S}")
    number = 1
    while aside.exists():
        number += 1
        aside = name.with_name(f"{name.name}-{number}")
    folder.rename(aside)
    print(f"The earlier consortium, with its ledgers and reports, is now {aside}. To delete it: {how_to_delete(aside)}")


def note(folder: Path, started: dict[str, Started]) -> None:
    fresh = folder.with_name(f"{folder.name}.{MARKER}")
    fresh.write_text(json.dumps({name: [process.number, process.began] for name, process in started.items()}))
    fresh.replace(folder / MARKER)


def started_in(folder: Path) -> dict[str, Started]:
    if not (folder / MARKER).exists():
        return {}
    return {name: Started(*facts) for name, facts in json.loads((folder / MARKER).read_text()).items()}


def how_to_end(folder: Path) -> str:
    """Return the command that ends what runs in a folder."""
    return how_to_run("make dissolve", folder)


def how_to_delete(folder: Path) -> str:
    """Return the command that ends what runs in a folder and deletes the folder."""
    return how_to_run("make dissolve YES=1", folder, "--delete")


def how_to_run(target: str, folder: Path, *options: str) -> str:
    script = shlex.join([sys.executable, str(Path(__file__).resolve()), "down", "--folder", str(folder), *options])
    return f"{target} (without make: {script})" if folder == HERE.parents[1] / FOLDER else script


def write_study(folder: Path) -> None:
    """Write the patients of simulated hospitals, and the study over them that is the package's example."""
    study = write_example_study(folder / STUDY)
    with study.open("a") as file:
        file.write(WITHOUT_COMPARISON)


def found(folder: Path) -> None:
    """Make the coordinator's folder, with free ports, and note the address that the hospitals connect to."""
    superlink, bundles, public = map(str, free_ports(3))
    run(
        folder,
        *("study", "init", "coordinator", "--host", "localhost", "--port", public),
        *("--superlink-port", superlink, "--bundles-port", bundles),
    )
    (folder / "address").write_text(f"localhost:{public if proxy() == 'nginx' else superlink}")


def address(folder: Path) -> str:
    return (folder / "address").read_text()


def proxy() -> str:
    """Return the proxy of ``coordinator up``: nginx where it is on the PATH, else none."""
    return "nginx" if shutil.which("nginx") else "none"


def free_ports(count: int) -> list[int]:
    """Return unused ports below those that systems give to outgoing connections, which could take one meanwhile."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 32_768), 1_000):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    sys.exit("This machine has no free port between 10000 and 32767.")


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
    note(folder, {**started_in(folder), name: Started(process.pid, began(process.pid))})


def wait_for(folder: Path, name: str, word: str) -> None:
    """Wait until a process has printed a word."""
    process = started_in(folder)[name]
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.is_running():
        if word in (folder / f"{name}.log").read_text():
            return
        time.sleep(0.2)
    sys.exit(f"{name} did not start:\n{(folder / f'{name}.log').read_text()}")


def same_results(folder: Path) -> bool:
    """Compare models and tables of all analyses of both runs."""
    ours, theirs = (results_of(folder / "runs" / name) for name in ("hospitals", "one-process"))
    return len(ours) > 0 and ours == theirs


def results_of(run: Path) -> dict[str, object]:
    """Return the arrays of the models of a run, and the rows of its tables, by analysis and name."""
    analyses = next(run.glob("*/analyses"))
    results: dict[str, object] = {}
    for path in analyses.glob("*/model/model.npz"):
        with np.load(path) as arrays:
            results |= {f"{path.parts[-3]} {name}": arrays[name].tobytes() for name in arrays.files}
    for path in analyses.glob("*/results/*.csv"):
        results[f"{path.parts[-3]} {path.name}"] = sorted(path.read_text().splitlines())
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="made by up, removed by down")
    parser.add_argument("--delete", action="store_true", help="of down: ledgers and the report, too")
    parser.add_argument("--mode", choices=("auto", "fast", "standard"), default="auto", help="of the hospitals")
    given = parser.parse_args()
    folder = given.folder.absolute()
    if given.command == "down":
        return down(folder, delete=given.delete)
    begin(folder)
    try:
        up(folder, given.mode)
    except BaseException:
        print(f"\nNot finished; {folder} holds what was begun. End it: {how_to_end(folder)}", file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
