"""Rounds over processes that are killed, stopped and cut off leave nothing behind; growth is reported."""

import importlib.util
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import GENEROUS_S

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="usage is read from /proc")


@pytest.fixture(scope="module")
def usage():
    spec = importlib.util.spec_from_file_location("soak_usage", BENCHMARKS / "soak_usage.py")
    module = sys.modules["soak_usage"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak_usage"]


def samples(usage, memory_mb=lambda rounds: 50.0, handles=lambda rounds: 9):
    return [usage.Usage(rounds, memory_mb(rounds), handles(rounds), 4, 0) for rounds in range(0, 3000, 30)]


def test_a_process_that_only_fills_its_caches_has_no_leak(usage):
    trend = usage.trend_of(samples(usage, lambda rounds: 40 + min(rounds, 900) / 100), 1 / 3)
    assert trend.mb_per_1000_rounds == pytest.approx(0, abs=1e-9)
    assert usage.find_leaks({"north": trend}, 0.5) == []


@pytest.mark.parametrize(
    ("resource", "leak"),
    [
        (
            {"memory_mb": lambda rounds: 50 + rounds / 1000},
            "north: memory grows by 1.00 MB per 1,000 rounds, above 0.5",
        ),
        ({"handles": lambda rounds: 9 if rounds < 2000 else 12}, "north: 3 more handles"),
    ],
)
def test_growth_is_a_leak(usage, resource, leak):
    assert usage.find_leaks({"north": usage.trend_of(samples(usage, **resource), 1 / 3)}, 0.5) == [leak]


def test_the_usage_of_a_process_is_read(usage):
    # The memory comes from the system: what the allocator has free in this process would not show.
    size = 20_000_000
    before = usage.Usage.of(os.getpid(), 0)
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
        Path(os.devnull).open() as _,
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block,
    ):
        block.write(b"x" * size)
        after = usage.Usage.of(os.getpid(), 1)
        process.communicate(b"\n")
    assert after.children == before.children + 1
    assert after.handles >= before.handles + 2
    assert after.memory_mb - before.memory_mb > 0.8 * size / 1e6


@pytest.mark.slow
def test_300_rounds_with_losses_and_restarts_leave_nothing_behind(tmp_path):
    # In so few rounds caches still fill: a leak of handles, threads or processes shows, and one of 15 kB per round.
    path = tmp_path / "soak.json"
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--rounds", "300", "--most-mb", "15", "--json", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3 * GENEROUS_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(path.read_text())["results"]["sockets"]
    assert figures["rounds"] == 300
    assert figures["events"]["kills"] == 1
    assert figures["events"]["requests delivered twice"] > 0
    assert set(figures["processes"]) == {"coordinator", "north", "south"}
    assert min(figures["ledger entries, verified"].values()) >= 250
