"""Files are whole or absent, states keep their names apart, and site names can be folders anywhere."""

import sqlite3
import stat
import subprocess
import sys

import pytest

from multicentre.core.storage import Store, check_site_name, held, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError, StateGone


def test_a_file_is_written_with_its_folders_and_read_by_others_unless_said_otherwise(tmp_path):
    path = tmp_path / "deep" / "deeper" / "model.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    write_atomically(path, b"three", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_the_unfinished_file_is_hidden_next_to_the_old_one(tmp_path, monkeypatch):
    """Only a rename within one file system is atomic."""
    path = tmp_path / "model.json"
    seen = []

    def watch(handle):
        seen.extend(sorted(entry.name for entry in tmp_path.iterdir()))

    monkeypatch.setattr("os.fsync", watch)
    write_atomically(path, b"new")
    assert len(seen) == 1
    assert seen[0].startswith(".model.json.")


def test_the_error_of_a_failed_write_is_the_first_one(tmp_path, monkeypatch):
    def vanish(handle):
        for entry in tmp_path.iterdir():
            entry.unlink()
        raise OSError("disk gone")

    monkeypatch.setattr("os.fsync", vanish)
    with pytest.raises(OSError, match="disk gone"):
        write_atomically(tmp_path / "model.json", b"new")


@pytest.mark.parametrize("name", ["lyon", "São Paulo", "site-1", "X.1", "XX", "COM", "COM10", "a CON", "CONfig"])
def test_a_name_that_can_be_a_folder_is_allowed(name, tmp_path):
    check_site_name(name)
    (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    "name",
    [*'/\\|<>:"?*', "a.", "a ", "con", "Nul", "CON", "aux.txt", "lpt9", "COM1.x", ".hidden", "a\tb", "", None, b"lyon"],
)
def test_a_name_that_some_system_cannot_store_is_refused(name):
    with pytest.raises(ConfigurationError, match="must be printable"):
        check_site_name(name)


def test_states_of_many_rounds_are_listed_by_number_and_two_are_kept(tmp_path):
    store = Store(tmp_path)
    for number in (2, 1_234_567, 8, 30):
        store.keep("rounds", number, b"%d" % number)
    assert store.numbers("rounds") == [30, 1_234_567]
    assert store.read("rounds", 1_234_567) == b"1234567"
    with pytest.raises(StateGone, match=r"^rounds: the state after round 8 must be in the folder"):
        store.read("rounds", 8)


def test_names_that_no_file_can_have_are_kept_apart(tmp_path):
    store = Store(tmp_path)
    for name in ("fit-1_a", "fit/1 a", "é"):
        store.keep(name, 1, name.encode())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fit-1_a.000001.state",
        "fit_1_a.000001.state",
        "é.000001.state",
    ]
    assert store.read("fit-1_a", 1) == b"fit-1_a"
    assert store.read("fit/1 a", 1) == b"fit/1 a"


def test_a_state_that_vanishes_while_old_ones_are_removed_is_no_error(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.keep("rounds", 7, b"x")
    numbers = Store.numbers
    monkeypatch.setattr(Store, "numbers", lambda self, name: [3, *numbers(self, name), 8])
    store.keep("rounds", 8, b"y")
    assert store.read("rounds", 8) == b"y"


def test_a_changed_state_is_refused(tmp_path):
    store = Store(tmp_path)
    store.keep("rounds", 1, b"")
    assert store.read("rounds", 1) == b""
    (path,) = tmp_path.iterdir()
    assert len(path.read_bytes()) == 32
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(IntegrityError, match="was changed after it was written"):
        store.read("rounds", 1)


HOLDER = """
import sys
from pathlib import Path
from multicentre.core.storage import held
with held(Path(sys.argv[1])):
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_for_one_process_at_a_time(tmp_path):
    lock = tmp_path / "lock"
    # Not a fork: tests run in a process with threads, whose locks a fork would copy as they are.
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "taken\n"
        with pytest.raises(ConfigurationError, match="another process is at work here"), held(lock):
            pass
        other.stdin.close()
        assert other.wait(30.0) == 0
    with held(lock):
        pass


def test_a_lock_that_cannot_be_taken_says_why(tmp_path):
    with pytest.raises(ConfigurationError, match="the lock cannot be taken"), held(tmp_path / "absent" / "lock"):
        pass
    assert issubclass(sqlite3.OperationalError, sqlite3.Error)
