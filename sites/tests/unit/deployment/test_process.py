import errno
import os
import socket
import sys
import time

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import process
from multicentre_sites.deployment.flower_commands import Command
from multicentre_sites.deployment.process import (
    ManagedProcess,
    check_port_free,
    end_recorded_processes,
    record_processes,
    stop_processes,
)
from support.ports import free_ports
from support.processes import is_alive
from support.waiting import GENEROUS_S, wait_for

WITH_CHILD = """
import subprocess, sys, time
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(child.pid, flush=True)
time.sleep(3600)
"""


def python(code, *more):
    return Command((sys.executable, "-c", code, *more), {})


@pytest.fixture
def started(tmp_path):
    """Makes processes that the test leaves behind in no case."""
    made = []

    def start(command):
        made.append(ManagedProcess("it", command, tmp_path / "logs" / "it.log"))
        made[-1].start()
        return made[-1]

    yield start
    stop_processes(made, 0.0)


def test_stop_ends_what_a_process_started(started):
    one = started(python(WITH_CHILD))
    wait_for(lambda: one.last_log_line().isdecimal())
    child = int(one.last_log_line())
    assert is_alive(child)
    stop_processes([one], 1.0)
    assert one.exit_status() is not None
    wait_for(lambda: not is_alive(child))


def test_stop_waits_for_an_orderly_end(started):
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('x', flush=True); signal.pause()"
    one = started(python(code))
    wait_for(lambda: one.last_log_line() == "x")
    stop_processes([one], GENEROUS_S)
    assert one.exit_status() == 7


def test_ended_process_is_started_again_after_a_growing_pause(started, monkeypatch):
    told, now = [], [time.monotonic()]
    one = started(python("print('said', flush=True); raise SystemExit(3)"))
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
    pauses = []
    for _ in range(4):
        wait_for_end(one)
        one.restart_if_ended(told.append)
        before, paused = one.pid, 0.0
        while one.pid == before:
            now[0] += 0.5
            paused += 0.5
            one.restart_if_ended(told.append)
        pauses.append(paused)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert "it ended with status 3" in told[0]


def wait_for_end(one):
    one._process.wait(GENEROUS_S)


def test_process_that_stayed_up_is_restarts_after_the_shortest_pause(started, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
    one = started(python("pass"))
    for _ in range(5):
        one._backoff.next_pause(0.0)
    wait_for_end(one)
    now[0] += 61.0
    told = []
    one.restart_if_ended(told.append)
    assert "in 1 s" in told[0]


def test_leftovers_are_ended_by_number_and_command_line(started, tmp_path):
    mine, other = (started(python("import time; time.sleep(3600)", mark)) for mark in ("/my/folder", "/another"))
    record_processes(tmp_path / "record", [mine, other])
    end_recorded_processes(tmp_path / "record", ["/my/folder"])
    wait_for_end(mine)
    assert other.exit_status() is None
    assert not (tmp_path / "record").exists()


def test_large_log_is_set_aside(started, tmp_path, monkeypatch):
    one = started(python("print('first', flush=True)"))
    wait_for_end(one)
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 1)
    one.start()
    wait_for_end(one)
    assert (tmp_path / "logs" / "it.log.old").read_text() == "first\n"


def test_taken_port_is_told():
    (port,) = free_ports(1)
    check_port_free(port, "here")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            check_port_free(port, "here")


@pytest.mark.parametrize(("number", "said"), [(errno.EACCES, "CAP_NET_BIND"), (errno.EADDRNOTAVAIL, "0.0.0.0")])
def test_port_that_is_not_for_this_user_or_machine_is_told(monkeypatch, number, said):
    class Refusing(socket.socket):
        def bind(self, _):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(process.socket, "socket", Refusing)
    with pytest.raises(ConfigurationError, match=said):
        check_port_free(443, "here", "192.0.2.1")
