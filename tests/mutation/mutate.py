"""Mutation testing of one package of ``multicentre``: `make mutate PACKAGE=core`.

mutmut generates the mutants and replaces every mutated function by a trampoline, which calls the mutant under test. The
tests are collected once. Each mutant then runs in a fork of that process, with the tests that call its function,
fastest first, until one fails. A first run without mutants measures which tests call which function; a second one, in
the order of their times, must pass as well.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
PAGE = ROOT / "docs" / "mutation.md"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

TESTS = {
    "core": ["tests/unit/core", "tests/unit/engines/test_in_process.py"],
    "privacy": ["tests/unit/privacy", "tests/unit/core/test_federation.py"],
}
# Mutants exist in the fork only: tests that start new processes cannot kill any.
IN_NEW_PROCESSES = [
    "tests/unit/engines/test_in_process.py::test_a_site_that_hangs_does_not_keep_the_process_from_ending",
    "tests/unit/engines/test_in_process.py::test_an_uncollected_handle_at_exit_is_quiet",
    "tests/unit/privacy/test_conversions.py::test_importing_the_module_does_not_import_scipy",
    "tests/unit/linkage/test_pseudonyms.py::test_the_examples_of_the_page_run",
]
# A mutated function runs in a frame of its trampoline, so that its warnings name that place.
ABOUT_FRAMES = [
    "tests/unit/core/test_consortium.py::test_the_warning_names_the_line_that_left_the_sites_out",
    "tests/unit/core/test_side_by_side.py::test_a_warning_for_the_caller_of_a_branch_names_the_place_that_ran_it",
]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--hypothesis-seed=0"]

# An endless loop exceeds the limit of processor time, an endless wait that of wall time. Both limits hold per test and
# grow with the time that it takes without a mutant. The wall limit is longer: other processes may use the processor.
PATIENCE = 10.0
CPU_LEAST_S, WALL_LEAST_S = 5.0, 30.0
FAILED, SURVIVED = 1, 0
KILLED, TIMEOUT, ALIVE, UNTESTED, EQUAL = "killed", "timeout", "survived", "no test", "equivalent"


@dataclass(frozen=True)
class Mutant:
    """One change of one function."""

    name: str
    path: Path
    function: str

    @cached_property
    def diff(self) -> str:
        """The change as a unified diff; only where the mutants were generated."""
        from mutmut.mutation.diff_apply import get_diff_for_mutant

        return get_diff_for_mutant(self.name, path=self.path)

    @property
    def change(self) -> tuple[str, str]:
        """Lines removed and added, without indentation."""
        lines = self.diff.splitlines()[2:]
        return tuple("\n".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")


@dataclass
class Reach:
    """Which tests call which function, and how long they take."""

    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[str, float] = field(default_factory=dict)

    def fastest_first(self, tests: Iterable[str]) -> list[str]:
        """Order tests by the time that they take."""
        return sorted(tests, key=lambda test: (self.seconds[test], test))


# --------------------------------------------------------------------------------------------------- generation


def generate(room: str) -> list[Mutant]:
    """Write the mutated sources of a room to the build folder and return their mutants."""
    from mutmut import __main__ as mutmut
    from mutmut.configuration import config
    from mutmut.utils.format_utils import mangled_name_from_mutant_name

    folder = BUILD / room
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    os.chdir(folder)
    config().only_mutate = [f"src/multicentre/{room}/*"]
    (folder / "mutants").mkdir()
    mutmut.copy_src_dir()
    mutmut.setup_source_paths()
    with contextlib.redirect_stdout(None):
        mutmut.create_mutants(1)
    found, _ = mutmut.collect_source_file_mutation_data(mutant_names=())
    return [Mutant(name, Path(data.path), mangled_name_from_mutant_name(name)) for data, name, _ in found]


def forget_callers() -> None:
    """Disable mutmut's record of callers: its context variables make Python 3.11 crash in threads."""
    from mutmut.core import MutmutCallStack

    MutmutCallStack.get = classmethod(lambda _: (None, 0))
    MutmutCallStack.set = classmethod(lambda *_: None)
    MutmutCallStack.reset = classmethod(lambda *_: None)


# ----------------------------------------------------------------------------------------------------- the tests


class Killer:
    """Runs the collected tests against each mutant; a plugin of pytest."""

    def __init__(self, mutants: list[Mutant], jobs: int, survivors: Path, scratch: Path) -> None:
        self.mutants = mutants
        self.survivors = survivors
        self.scratch = scratch
        self.survivors.write_text("")
        self.jobs = jobs
        self.outcome: dict[str, str] = {}
        self._by_fixture: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests that no mutant reaches."""
        left_out = [item for item in items if item.nodeid in (*IN_NEW_PROCESSES, *ABOUT_FRAMES)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Remember the functions that a shared fixture calls: every test that uses the fixture depends on them."""
        from mutmut.state import state

        if fixturedef.scope == "function":
            return (yield)
        before, state()._stats = state()._stats, set()
        try:
            return (yield)
        finally:
            self._by_fixture[fixturedef.argname] |= state()._stats
            state()._stats |= before

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure what the tests reach, then run them against every mutant."""
        if session.testsfailed:
            raise session.Interrupted("collection failed")
        reach = self._measured(session)
        items = {item.nodeid: item for item in session.items}
        self._check_control(session, reach, items)
        running: dict[int, tuple[Mutant, Path]] = {}
        for done, mutant in enumerate(self.mutants):
            tests = reach.fastest_first(reach.tests.get(mutant.function, ()))
            if not tests:
                self._note(mutant, UNTESTED)
                continue
            while len(running) >= self.jobs:
                self._reap(running)
            self._start(session, mutant, [items[test] for test in tests], reach, running)
            if done % 50 == 0:
                _say(f"{done} of {len(self.mutants)} mutants; {dict(Counter(self.outcome.values()))}")
        while running:
            self._reap(running)
        return True

    def _check_control(self, session: pytest.Session, reach: Reach, items: dict[str, pytest.Item]) -> None:
        """Run every test as for a mutant, without one: a test that fails in this order would kill everything."""
        control, running = Mutant("control", Path(), ""), {}
        self._start(session, control, [items[test] for test in reach.fastest_first(items)], reach, running)
        while running:
            self._reap(running)
        if self.outcome.pop(control.name) != ALIVE:
            raise session.Interrupted("the tests fail without a mutant when they run in the order of their times")

    def _start(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: list[pytest.Item],
        reach: Reach,
        running: dict[int, tuple[Mutant, Path]],
    ) -> None:
        """Start a fork that runs tests against a mutant."""
        scratch = Path(tempfile.mkdtemp(dir=self.scratch))
        pid = os.fork()
        if not pid:
            _attempt(session, mutant, items, reach, scratch)
        running[pid] = (mutant, scratch)

    def _note(self, mutant: Mutant, outcome: str) -> None:
        """Store an outcome and list survivors at once, so that an interrupted run leaves a list."""
        self.outcome[mutant.name] = outcome
        if outcome not in (KILLED, TIMEOUT) and mutant.function:
            with self.survivors.open("a") as listing:
                listing.write(f"{mutant.name}: {outcome}\n{mutant.diff}\n\n")

    def _measured(self, session: pytest.Session) -> Reach:
        """Run every test once without a mutant, in a fork, and note which functions it calls."""
        import pickle

        scratch = Path(tempfile.mkdtemp(dir=self.scratch))
        notes = self.scratch / "reach.pickle"
        pid = os.fork()
        if not pid:
            reach = self._run_all(session, scratch)
            notes.write_bytes(pickle.dumps((dict(reach.tests), reach.seconds)))
            os._exit(FAILED if session.testsfailed else 0)
        _, status = os.waitpid(pid, 0)
        shutil.rmtree(scratch, ignore_errors=True)
        if status:
            raise session.Interrupted("the tests fail without any mutant")
        tests, seconds = pickle.loads(notes.read_bytes())
        return Reach(tests, seconds)

    def _run_all(self, session: pytest.Session, scratch: Path) -> Reach:
        from mutmut.mutation.trampoline import set_mutant_under_test
        from mutmut.state import state

        reach = Reach()
        _move_in(scratch)
        set_mutant_under_test("stats")
        state()._stats.clear()
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            began = time.perf_counter()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            reach.seconds[item.nodeid] = time.perf_counter() - began
            if session.testsfailed:
                _say(f"fails without a mutant: {item.nodeid}")
                break
            calls = set(state()._stats).union(*(self._by_fixture[name] for name in item.fixturenames))
            state()._stats.clear()
            for function in calls:
                reach.tests[function].add(item.nodeid)
        return reach

    def _reap(self, running: dict[int, tuple[Mutant, Path]]) -> None:
        """Wait until one fork has ended and note its outcome."""
        pid, status = os.wait()
        mutant, scratch = running.pop(pid)
        self._note(mutant, _outcome(status))
        shutil.rmtree(scratch, ignore_errors=True)


def _outcome(status: int) -> str:
    if os.WIFSIGNALED(status):
        return TIMEOUT if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM) else KILLED
    return KILLED if os.WEXITSTATUS(status) else ALIVE


def _attempt(session, mutant: Mutant, items: list[pytest.Item], reach: Reach, scratch: Path) -> None:
    """Run tests against a mutant and end the process; never returns."""
    from mutmut.mutation.trampoline import set_mutant_under_test

    code = FAILED
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        _move_in(scratch)
        session.config.pluginmanager.unregister(name="terminalreporter")
        set_mutant_under_test(mutant.name)
        for item, following in zip(items, [*items[1:], None], strict=True):
            _limit(PATIENCE * reach.seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                break
        else:
            code = SURVIVED
    finally:
        os._exit(code)


def _limit(seconds: float) -> None:
    """Let the system end this process when the next test takes too long."""
    cpu = math.ceil(time.process_time() + CPU_LEAST_S + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, WALL_LEAST_S + seconds)


def _move_in(scratch: Path) -> None:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)


# ----------------------------------------------------------------------------------------------------- the table


def equivalents(room: str, mutants: list[Mutant]) -> set[str]:
    """Return the names of the mutants that the checked-in list calls equivalent; every entry must match one."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get(room, []) if EQUIVALENT.exists() else []
    names: set[str] = set()
    for entry in listed:
        path, change = f"src/multicentre/{room}/{entry['file']}", (entry["was"].strip(), entry["becomes"].strip())
        matches = [mutant.name for mutant in mutants if str(mutant.path) == path and mutant.change == change]
        if not matches:
            raise SystemExit(f"{EQUIVALENT.name} lists a mutant that does not exist: {entry}")
        names.update(matches)
    return names


def interval(killed: int, total: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    z, share = 1.959964, killed / total
    middle, spread = share + z * z / (2 * total), z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    return (middle - spread) / (1 + z * z / total), (middle + spread) / (1 + z * z / total)


def table(room: str, mutants: list[Mutant], outcome: dict[str, str], sample: int) -> str:
    """Return the outcome by file as Markdown."""
    heads = ["file", "mutants", "killed", "by timeout", "survived", "no test", "equivalent", "rate"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in mutants:
        by_file[str(mutant.path.relative_to(f"src/multicentre/{room}"))][outcome[mutant.name]] += 1
    for file, counts in [*sorted(by_file.items()), (f"**{room}**", sum(by_file.values(), Counter()))]:
        total = counts.total() - counts[EQUAL]
        dead = counts[KILLED] + counts[TIMEOUT]
        rate = f"{dead / total:.1%}" if total else "-"
        cells = [
            file,
            counts.total(),
            counts[KILLED],
            *(counts[kind] for kind in (TIMEOUT, ALIVE, UNTESTED, EQUAL)),
            rate,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    if sample:
        low, high = interval(dead, total)
        lines.append(f"\nA random sample of at most {sample} mutants per file; 95 % interval {low:.1%} to {high:.1%}.")
    return "\n".join(lines)


def write_page(room: str, text: str) -> None:
    """Replace a room's table in the page."""
    start, end = f"<!-- {room}: written by make mutate -->", f"<!-- end of {room} -->"
    before, _, rest = PAGE.read_text().partition(start)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}")


# ---------------------------------------------------------------------------------------------------- the command


def _say(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)


def chosen(mutants: list[Mutant], only: str, sample: int) -> list[Mutant]:
    """Return the mutants to run: those that match a pattern, or a seeded sample per file."""
    from fnmatch import fnmatch

    picked = [mutant for mutant in mutants if not only or fnmatch(mutant.name, only)]
    if not sample:
        return picked
    by_file: dict[Path, list[Mutant]] = defaultdict(list)
    for mutant in picked:
        by_file[mutant.path].append(mutant)
    draw = random.Random(0)
    return [mutant for file in by_file.values() for mutant in draw.sample(file, min(sample, len(file)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", choices=sorted(TESTS))
    parser.add_argument("--only", default="", help="pattern of mutants' names; writes no table to the page")
    parser.add_argument("--sample", type=int, default=0, help="mutants per file; 0 for all")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()

    began = time.monotonic()
    forget_callers()
    mutants = generate(arguments.room)
    equal = equivalents(arguments.room, mutants)
    mutants = chosen(mutants, arguments.only, arguments.sample)
    _say(f"{len(mutants)} mutants of {arguments.room}, {time.monotonic() - began:.0f} s")
    survivors = BUILD / f"{arguments.room}-survivors.txt"
    selection = [str(ROOT / path) for path in TESTS[arguments.room]]
    # Temporary files go to memory where the system offers it: tests that write spend most of their time on the disk.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory if os.access(memory, os.W_OK) else None) as scratch:
        tested = [mutant for mutant in mutants if mutant.name not in equal]
        killer = Killer(tested, arguments.jobs, survivors, Path(scratch))
        status = pytest.main([f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), *OPTIONS, *selection], [killer])
    if status != pytest.ExitCode.OK:
        return int(status)
    outcome = killer.outcome | dict.fromkeys(equal, EQUAL)
    text = table(arguments.room, mutants, outcome, arguments.sample)
    print(text)
    _say(f"Survivors: {survivors}; {(time.monotonic() - began) / 60:.1f} minutes")
    if not arguments.only:
        write_page(arguments.room, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
