"""A consortium on loopback, for tests: a real coordinator, real sites and analysts as processes of this machine."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.privacy.ledger import read_ledger
from multicentre.studies import RunFolder, read_study, run_study
from multicentre.studies.site_data import read_sites
from multicentre.studies.study import make_estimator
from multicentre_sites.deployment.approvals import approve
from multicentre_sites.deployment.bundle import sign_app
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.process import end_with_parent
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_service import card_of
from support.coordinators import Running, make_consortium
from support.processes import command_line, processes_of
from support.proxies import address_of
from support.waiting import GENEROUS_S, wait_for

# Policies of new sites ask for three sites in a masked sum.
UNMASKED = "[privacy]\nsecure_sum = false\n"
SITES = ("lyon", "oslo", "porto")
VIEWS = {"blood": ("iron", "sodium", "zinc"), "scan": ("area", "depth")}
MARKER = "Ysolde-1291"
MULTICENTRE = ("-m", "multicentre")


def _begin() -> None:
    """Hear Ctrl-C, which a shell hides from what runs in its background, and end when the tests are killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()


class Process:
    """A command of multicentre in a session of its own, within another command if one is named, and what it printed."""

    def __init__(
        self,
        *arguments: object,
        log: Path,
        programme: tuple[str, ...] = MULTICENTRE,
        within: tuple[str, ...] = (),
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        settings = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as printed:
            self._began = printed.tell()
            self._process = subprocess.Popen(
                [*within, sys.executable, *programme, *map(str, arguments)],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_begin,
            )

    @property
    def printed(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self._began)
            return file.read().decode()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def send(self, which: signal.Signals) -> None:
        self._process.send_signal(which)

    def wait(self, within_s: float = GENEROUS_S) -> int:
        return self._process.wait(within_s)

    def wait_until_printed(self, words: str, within_s: float = GENEROUS_S) -> None:
        wait_for(lambda: words in self.printed or not self.runs, within_s)
        assert words in self.printed, self.printed

    def end(self) -> None:
        """Kill it and what it started; nothing happens where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(GENEROUS_S)


class Site:
    """One hospital: its folder, and its process where it is up."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.mode = folder, mode
        self.name = folder.name
        self.process: Process | None = None

    def start(self, programme: tuple[str, ...] = MULTICENTRE) -> None:
        """Start it; nobody waits until it is connected."""
        log = self.folder.parent / f"{self.name}.log"
        arguments = ("site", "up", "--folder", self.folder, "--mode", self.mode)
        self.process = Process(*arguments, log=log, programme=programme)

    def wait_until_up(self) -> None:
        """Wait until its process stands; one in fast mode is connected then."""
        self.process.wait_until_printed("Connected with" if self.mode == "fast" else "flower-superexec")

    def stop(self) -> None:
        """Hold its process up, as a machine that hangs would; what the process started goes on."""
        self.process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill its process as a power cut would."""
        self.process.send(signal.SIGKILL)
        self.process.wait(GENEROUS_S)

    def shut_down(self) -> int:
        """End it as its administrator would; return its status."""
        self.process.send(signal.SIGTERM)
        return self.process.wait(GENEROUS_S)

    @property
    def supernode(self) -> int:
        """The number of its SuperNode, in standard mode."""
        return _only(self.folder, "flower-supernode")

    @property
    def open_requests(self) -> int:
        """How many sockets there are at the path where its letters come in standard mode: one listens."""
        address = f"{self.folder}/running/requests"
        return sum(address in line for line in Path("/proc/net/unix").read_text().splitlines())

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        for pid in processes_of(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def approve(self, *what: Path) -> None:
        site = read_site(self.folder)
        for one in what:
            approve(site.approved, recognise(str(one)), card_of(site))

    def releases(self, study: str) -> list[tuple[str, int, str]]:
        """Return fit, number of the call and step of each release of a study so far, in order."""
        return releases_in(read_site(self.folder).ledger_of(study))


class Analyst(Process):
    """`multicentre run` over the coordinator."""

    def __init__(self, coordinator: Path, output: Path, *arguments: object) -> None:
        self.output = output
        log = output.parent / f"{output.name}.log"
        super().__init__("run", *arguments, "--coordinator", coordinator, log=log)

    @property
    def folder(self) -> Path:
        (path,) = self.output.glob("[!.]*")
        return path

    @property
    def metadata(self) -> dict:
        return json.loads((self.folder / "run.json").read_text())

    @property
    def lost(self) -> str:
        """The lines that tell of lost sites."""
        return "\n".join(line for line in self.printed.splitlines() if line.startswith("lost "))


COHORT_SELECTION = 'where = "age >= 18"\ncomplete = "all"\n'
COHORT_BLOCKS = """
[[analysis]]
name = "table-1"
method = "describe"
parameters = { by = "arm", categorical = ["arm"], quartiles = false }
[[analysis]]
name = "curve"
method = "kaplan-meier"
parameters = { group = "arm", at = [12, 24] }
[[analysis]]
name = "cox"
method = "fed-cox"
by_site = ["arm"]
subgroups = ["sex"]
[[analysis]]
name = "older"
method = "fed-cox"
where = "age >= 50"
[[analysis]]
name = "relapse"
method = "fed-logistic-regression"
by_site = ["arm"]
[analysis.validation]
strategy = "random"
allow_leakage = true
folds = 3
"""
COHORT_DATA = """
[data.survival]
time = "months"
event = "died"
unit = "months"
columns = ["age", "arm", "sex"]
categories = {sex = ["f", "m"]}
references = {sex = "f"}
[data.table]
outcome = "relapse"
columns = ["age", "arm", "sex"]
categories = {sex = ["f", "m"]}
references = {sex = "f"}
[run]
compare = false
"""


class Consortium:
    """A coordinator that is up, three sites with patients, and the studies that they approved."""

    def __init__(
        self,
        root: Path,
        modes: Mapping[str, str],
        proxy: str,
        socket: Path | None = None,
        between: Callable[[str, str], str] = lambda name, address: address,
    ) -> None:
        self.root, self._between = root, between
        self.coordinator = make_consortium(root / "coordinator")
        if socket is not None:
            with (self.coordinator.folder / "coordinator.toml").open("a") as settings:
                settings.write(f'[analysts]\nsocket = "{socket}"\n')
        self._proxy = proxy
        self.up = Running(self.coordinator, proxy)
        self.sites: dict[str, Site] = {}
        self._analysts: list[Analyst] = []
        try:
            self.up.wait_until_ready()
            sign_app(self.coordinator, lambda line: None)
            for number, (name, mode) in enumerate(modes.items()):
                self._add(name, mode)
                write_patients(root / "patients" / name, number)
            public = [self.coordinator.public / one for one in ("bundle.toml", "release.pub", "roster.toml")]
            for site in self.sites.values():
                site.approve(*public)
        except BaseException:
            self.end()
            raise

    def _add(self, name: str, mode: str) -> None:
        address = self._between(name, address_of(self.coordinator, self._proxy))
        made = make_site(name, self.root / name, address)
        shutil.copy(self.coordinator.public / "ca.crt", made.folder)
        Enrolment(self.coordinator, lambda line: None).add(made.card)
        self.sites[name] = Site(made.folder, mode)

    def study(self, name: str, sites=SITES, *, rounds: int = 6, run: str = "", more: str = "") -> Path:
        """Write a study of so many rounds, whose sums fewer sites suffice for, and have its sites approve it."""
        files = {site: {view: f"../patients/{site}/{view}.csv" for view in VIEWS} for site in sites}
        fit = f"n_components = 1\ntol = 0.0\nmax_iter = {rounds}"
        return self._approved(name, "fed-mv-ppca", fit, files, f"{UNMASKED}[run]\ncompare = false\n{run}\n{more}")

    def short_study(self, name: str, sites=SITES) -> Path:
        """Write a study of five calls, and have its sites approve it."""
        files = {site: {"file": f"../patients/{site}/survival.csv"} for site in sites}
        more = '[data.survival]\nunit = "months"\ncolumns = ["arm"]\n[run]\ncompare = false'
        return self._approved(name, "log-rank", 'group = "arm"', files, more)

    def study_of_several(self, name: str, sites=SITES) -> Path:
        """Write a study of a table, a test and a model, and have its sites approve it."""
        files = {site: {"file": f"../patients/{site}/survival.csv"} for site in sites}
        more = (
            '[data.survival]\nunit = "months"\ncolumns = ["arm"]\n'
            '[data.table]\noutcome = "event"\ncolumns = ["arm"]\n[run]\ncompare = false'
        )
        blocks = (
            '[[analysis]]\nname = "table-1"\nmethod = "describe"\nparameters = { quartiles = false }\n'
            '[[analysis]]\nname = "test"\nmethod = "log-rank"\nparameters = { group = "arm" }\n'
            '[[analysis]]\nname = "cox"\nmethod = "fed-cox"\n'
        )
        return self._written(name, "", blocks, files, more)

    def study_of_a_cohort(self, name: str, sites=SITES) -> Path:
        """Write a study with a selection, estimates by site, subgroups and validation; its sites approve it."""
        files = {site: {"file": f"../patients/{site}/cohort.csv"} for site in sites}
        return self._written(name, "", COHORT_BLOCKS, files, COHORT_DATA, of_data=COHORT_SELECTION)

    def _approved(self, name: str, method: str, parameters: str, files: Mapping[str, Mapping], more: str) -> Path:
        return self._written(name, f'method = "{method}"\n', f"[parameters]\n{parameters}\n", files, more)

    def _written(
        self, name: str, method: str, analyses: str, files: Mapping[str, Mapping], more: str, of_data: str = ""
    ) -> Path:
        sites = "\n".join(f"{site} = {{ {_inline(paths)} }}" for site, paths in files.items())
        path = self.root / "studies" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f'[study]\nname = "{name}"\n{method}seed = 3\n{analyses}'
            f'[data]\nid_column = "patient"\n{of_data}[sites]\n{sites}\n{more}\n'
        )
        for site in files:
            self.sites[site].approve(path)
        return path

    def run(self, study: Path) -> Analyst:
        """Start the run of a study."""
        output = self.root / "runs" / study.stem
        return self._begun(Analyst(self.coordinator.folder, output, study, "--output", output))

    def resume(self, run: Analyst) -> Analyst:
        """Start to take up a run that was broken off."""
        return self._begun(Analyst(self.coordinator.folder, run.output, "--resume", run.folder))

    def restart(self) -> None:
        """Bring the coordinator up again."""
        self.up = Running(self.coordinator, self._proxy)
        self.up.wait_until_ready()

    @property
    def superlink(self) -> int:
        """The number of the SuperLink's process."""
        return _only(self.coordinator.folder, "flower-superlink")

    def wait_for_releases(self, study: Path, site: str, count: int, run: Analyst) -> None:
        """Wait until so many releases of a study have left a site."""
        releases = self.sites[site].releases
        wait_for(lambda: len(releases(study.stem)) >= count or not run.runs)
        assert run.runs, run.printed

    def end(self) -> None:
        """Leave no process behind."""
        for one in (*self._analysts, *self.sites.values()):
            one.end()
        self.up.end()

    def _begun(self, analyst: Analyst) -> Analyst:
        self._analysts.append(analyst)
        return analyst


def write_patients(folder: Path, number: int, patients: int = 60) -> None:
    """Write the tables of a site's simulated patients, the last of whom is named by the marker."""
    random = np.random.default_rng(number)
    names = [f"{number}{i:03d}" for i in range(patients - 1)] + [f"{MARKER}-{number}"]
    ill = random.normal(0.3 * number, 1.0, patients)
    folder.mkdir(parents=True)
    for view, columns in VIEWS.items():
        values = np.outer(ill, np.arange(1, len(columns) + 1)) + random.normal(0.0, 0.5, (patients, len(columns)))
        _write_table(folder / f"{view}.csv", names, columns, values.round(6))
    times, places = np.ceil(10 * random.exponential(1.0, patients)), np.arange(patients)
    outcomes = np.column_stack([places % 2, times, places // 2 % 2]).astype(int)
    _write_table(folder / "survival.csv", names, ("arm", "time", "event"), outcomes)
    write_cohort(folder / "cohort.csv", number)


def write_cohort(path: Path, number: int, patients: int = 150) -> None:
    """Write a site's patients of a study with a selection, by which children and incomplete records are left out."""
    random = np.random.default_rng(100 + number)
    age, arm, sex = random.normal(60, 9, patients).round(1), np.arange(patients) % 2, np.arange(patients) // 2 % 2
    age[:15] = 12.0
    hazard = np.exp(0.03 * (age - 60) - 0.4 * arm)
    time, end = random.exponential(20 / hazard), random.uniform(5, 60, patients)
    relapse = random.random(patients) < 1 / (1 + np.exp(-0.05 * (age - 60) + 0.3 * arm))
    columns = (age, arm, sex, np.ceil(10 * np.minimum(time, end)) / 10, time <= end, relapse)
    rows = [
        [str(values[0]), f"{values[1]}", "fm"[values[2]], *(f"{value:g}" for value in values[3:])]
        for values in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]
    for row in rows[20:35]:
        row[0] = ""
    lines = [",".join([f"{number}-{place}", *row]) for place, row in enumerate(rows)]
    path.write_text("\n".join(["patient,age,arm,sex,months,died,relapse", *lines]) + "\n")


def _write_table(path: Path, names: Sequence[str], columns: Sequence[str], values: np.ndarray) -> None:
    rows = [",".join([name, *map(str, row)]) for name, row in zip(names, values.tolist(), strict=True)]
    path.write_text("\n".join([",".join(["patient", *columns]), *rows]) + "\n")


def _inline(paths: Mapping[str, str]) -> str:
    return ", ".join(f'{view} = "{path}"' for view, path in paths.items())


def releases_in(ledger: Path) -> list[tuple[str, int, str]]:
    """Return fit, number of the call and step of each release of a ledger, in order."""
    released = [one for one in (read_ledger(ledger) if ledger.exists() else []) if one["event"] == "release"]
    return [(one["session"].partition(".")[2], one["call"], one["step"]) for one in released]


def _only(folder: Path, programme: str) -> int:
    """Return the one process of a programme that works for a folder."""
    (pid,) = [pid for pid in processes_of(folder) if f"/{programme} " in command_line(pid)]
    return pid


def numbers_of(folder: Path) -> dict[str, bytes]:
    """Return what a run computed, bit by bit: its model and its history."""
    return {**model_of(folder / "model"), "history": (folder / "history.csv").read_bytes()}


def model_of(folder: Path) -> dict[str, bytes]:
    """Return the arrays of a model, bit by bit."""
    with np.load(folder / "model.npz") as model:
        return {name: model[name].tobytes() for name in model.files}


def in_one_process(study: Path, output: Path) -> RunFolder:
    """Return the run of the same study file without any other process."""
    return run_study(read_study(study).with_output(output))


def model_without(study: Path, site: str, since: int, folder: Path) -> dict[str, bytes]:
    """Return the model of a study, in this process, of which a site answers no call from this number on."""
    read = read_study(study)
    data = {name: one.data for name, one in read_sites(read).items()}
    estimator, faults = make_estimator(read), Faults(lose={site: since})
    terms = {"study": read.name, "quorum": read.run.quorum, "secure_sum": read.masked}
    with mc.Federation.in_process(data, **terms, faults=faults) as federation:
        estimator.fit(federation)
    estimator.save(folder)
    return model_of(folder)
