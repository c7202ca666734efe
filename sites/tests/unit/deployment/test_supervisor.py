"""Processes that belong together are started in order, started anew, and never left behind."""

import os
import subprocess
import sys
import threading

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import process
from multicentre_sites.deployment import supervisor as supervision
from multicentre_sites.deployment.flower_commands import Command
from multicentre_sites.deployment.supervisor import Service, Supervisor
from support.processes import is_alive
from support.waiting import GENEROUS_S, wait_for

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")

# Writes its own number and its child's, then waits; the child does not heed SIGTERM.
PARENT = """\
import os, subprocess, sys, time
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"
child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
child.stdout.readline()
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(3600)
"""
ENDS = "import sys; print('Exit Code: 305'); sys.exit(1)"


def service(code, *arguments, ready=lambda: True):
    return Service(Command((sys.executable, "-c", code, *map(str, arguments)), {}), ready)


def written(path):
    """Return the numbers of the processes that a parent wrote in whole lines."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [[int(one) for one in line.split()] for line in whole.splitlines()]


@pytest.fixture
def running(tmp_path):
    """Run supervisors in threads and stop them at the end."""
    stop, threads = threading.Event(), []

    def begin(*services, told=None, **more):
        told = [] if told is None else told
        supervisor = Supervisor(lambda: services, log=tmp_path / "log", report=told.append, stop_within_s=1.0, **more)
        threads.append(threading.Thread(target=supervisor.run, args=(stop,)))
        threads[-1].start()
        return told

    begin.stop = lambda: (stop.set(), [thread.join(GENEROUS_S) for thread in threads])
    try:
        yield begin
    finally:
        begin.stop()
        assert not any(thread.is_alive() for thread in threads)


def test_nothing_is_left_behind_not_even_what_does_not_heed(tmp_path, running):
    running(service(PARENT, tmp_path / "pids"))
    wait_for(lambda: written(tmp_path / "pids"))
    (pids,) = written(tmp_path / "pids")
    assert all(map(is_alive, pids))
    running.stop()
    wait_for(lambda: not any(map(is_alive, pids)))


@pytest.mark.slow
def test_when_one_ends_all_are_started_anew_and_the_steward_is_told_why(tmp_path, running, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setattr(supervision, "STEADY_S", float("inf"))  # the pause grows however long a slow machine takes
    pids, told = tmp_path / "pids", []
    running(
        service(PARENT, pids, ready=lambda: len(written(pids)) > len(told)),
        service(ENDS),
        told=told,
        explain=lambda printed: "no connection" if "305" in printed else "",
    )
    wait_for(lambda: len(written(pids)) >= 3)
    first = written(pids)[0]
    wait_for(lambda: not any(map(is_alive, first)))
    assert "ended: no connection." in told[0]
    assert [line.rpartition(" in ")[2] for line in told[:2]] == ["0.1 s.", "0.2 s."]


def test_what_holds_no_longer_is_ended_at_once_and_arranged_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 30.0)
    stop, wanted, arranged = threading.Event(), ["first"], []

    def arrange():
        arranged.append(wanted[0])
        return [service(PARENT, tmp_path / wanted[0])]

    supervisor = Supervisor(
        arrange, log=tmp_path / "log", report=print, outdated=lambda: wanted[0] != arranged[-1], stop_within_s=1.0
    )
    thread = threading.Thread(target=supervisor.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: written(tmp_path / "first"))
        wanted[0] = "second"
        wait_for(lambda: written(tmp_path / "second"))
        assert not any(map(is_alive, written(tmp_path / "first")[0]))
    finally:
        stop.set()
        thread.join(GENEROUS_S)
    assert arranged == ["first", "second"]


def test_pauses_last_long_enough_for_a_coordinator_to_forget():
    pauses, pause = [], supervision.FIRST_PAUSE_S
    for _ in range(8):
        pauses.append(pause)
        pause = min(2 * pause, supervision.LONGEST_PAUSE_S)
    assert sum(pauses) > 60
    assert max(pauses) <= 15


def test_what_ends_before_it_is_ready_does_not_start_the_next(tmp_path, running, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 30.0)
    told = running(service(ENDS, ready=lambda: False), service(PARENT, tmp_path / "pids"))
    wait_for(lambda: told)
    assert "holds the details" in told[0]


def test_a_programme_that_is_not_there_is_named(tmp_path):
    supervisor = Supervisor(
        lambda: [Service(Command((str(tmp_path / "flower-supernode"),), {}))], log=tmp_path / "log", report=print
    )
    with pytest.raises(ConfigurationError, match="flower-supernode"):
        supervisor.run(threading.Event())


def test_a_log_that_has_grown_large_is_set_aside(tmp_path, running, monkeypatch):
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 10)
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 600.0)
    (tmp_path / "log").write_text("x" * 11)
    told = running(service(ENDS))
    wait_for(lambda: told)
    assert (tmp_path / "log.old").read_text() == "x" * 11
    assert (tmp_path / "log").read_text() == "Exit Code: 305\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_what_a_killed_supervisor_started_ends_with_it(tmp_path):
    code = (
        "import sys, threading; from pathlib import Path;"
        "from multicentre_sites.deployment.flower_commands import Command;"
        "from multicentre_sites.deployment.supervisor import Service, Supervisor;"
        "code = 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid())); time.sleep(3600)';"
        "command = Command((sys.executable, '-c', code, sys.argv[1]), {});"
        "Supervisor(lambda: [Service(command)], log=Path(sys.argv[1] + '.log'), report=print).run(threading.Event())"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "pid")])
    try:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not is_alive(int((tmp_path / "pid").read_text())))
