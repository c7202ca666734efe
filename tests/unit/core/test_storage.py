"""Files are whole or absent, states keep their names apart, and site names can be folders anywhere."""

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from multicentre.core import storage
from multicentre.core.storage import (
    Store,
    check_no_link,
    check_owner_writes_alone,
    check_site_name,
    held,
    is_held,
    make_private_folder,
    open_regular,
    read_regular,
    write_atomically,
)
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


def test_a_lock_shows_whether_it_is_held(tmp_path):
    lock = tmp_path / "run lock #1"
    assert not is_held(lock)
    assert not lock.exists()
    with held(lock):
        assert is_held(lock)
    assert not is_held(lock)
    lock.write_bytes(b"no lock file at all" * 100)
    assert not is_held(lock)


# Files and folders of others


def test_a_failed_write_names_the_file_and_not_the_temporary_one(tmp_path, monkeypatch):
    """The system's error names no file if the disk is full."""
    path = tmp_path / "model.json"
    write_atomically(path, b"old")

    def fail(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"not flushed", durable=False)
    assert path.read_bytes() == b"not flushed"


def test_a_regular_file_is_opened_and_a_new_one_is_its_owners(tmp_path):
    path = tmp_path / "ledger"
    os.close(open_regular(path, os.O_WRONLY | os.O_CREAT, "ledger"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"content")
    assert read_regular(path, "ledger") == b"content"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "absent", "ledger")


def refusal(read, path):
    with pytest.raises(IntegrityError) as caught:
        read(path, "ledger")
    assert caught.value.where == str(path)
    assert caught.value.hint.startswith("Use the path of the file itself.")
    return caught.value.what


def test_links_pipes_and_folders_are_not_read(tmp_path):
    """Opening a pipe that nobody writes to must not block."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    link = "the ledger must be a regular file or folder; got a symbolic link"
    other = "the ledger must be a regular file or folder; got a pipe, a device or a folder"
    for name, what in (("link", link), ("dangling", link), ("pipe", other), ("", other)):
        assert refusal(read_regular, tmp_path / name) == what
    for name in ("link", "dangling"):
        assert refusal(check_no_link, tmp_path / name) == link
        assert refusal(check_owner_writes_alone, tmp_path / name) == link
    for name in ("file", "pipe", "absent", ""):
        check_no_link(tmp_path / name, "ledger")


def test_a_link_that_appears_after_the_check_is_named(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    answers = iter([False, True])
    monkeypatch.setattr(Path, "is_symlink", lambda path: next(answers))
    what = "the ledger must be a regular file or folder; got a symbolic link"
    assert refusal(read_regular, tmp_path / "link") == what


def test_a_private_folder_and_its_new_parents_are_their_owners(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    for _ in range(2):
        make_private_folder(tmp_path / "one" / "two")
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "one" / "two").stat().st_mode) == 0o700
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
    monkeypatch.setattr(Path, "exists", lambda path: path == tmp_path)  # another process creates them meanwhile
    make_private_folder(tmp_path / "one" / "two")


@pytest.fixture
def trusted(tmp_path, monkeypatch):
    """Return a file in a folder, both writable by their owner only; no group is private."""
    monkeypatch.setattr(storage, "_is_private", lambda group, owner: False)
    path = tmp_path / "folder's" / "roster.toml"
    make_private_folder(path.parent)
    path.write_bytes(b"")
    path.chmod(0o644)
    path.parent.chmod(0o755)
    return path


def test_files_that_only_their_owner_writes_are_trusted(trusted):
    check_owner_writes_alone(trusted, "roster")
    check_owner_writes_alone(trusted.with_name("absent"), "roster")
    trusted.chmod(0o400)
    check_owner_writes_alone(trusted, "roster")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_write_is_not_trusted(trusted, mode):
    trusted.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        check_owner_writes_alone(trusted, "roster")
    assert caught.value.where == str(trusted)
    assert caught.value.what == f"the file of the roster must be writable by its owner only; got mode {mode:o}"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
@pytest.mark.parametrize("name", ["roster.toml", "absent"])
def test_a_folder_that_others_write_is_not_trusted(trusted, mode, name):
    """Whoever writes a folder can replace each of its files."""
    trusted.parent.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        check_owner_writes_alone(trusted.with_name(name), "roster")
    assert caught.value.where == str(trusted.parent)
    assert caught.value.what == f"the folder of the roster must be writable by its owner only; got mode {mode:o}"
    quoted = str(trusted.parent).replace("'", "'\"'\"'")
    assert caught.value.hint.startswith(f"Run: chmod go-w '{quoted}'.")


def test_a_folder_may_be_writable_for_the_group_of_its_owner_alone(trusted, monkeypatch):
    asked = []
    monkeypatch.setattr(storage, "_is_private", lambda group, owner: asked.append((group, owner)) or True)
    trusted.parent.chmod(0o775)
    check_owner_writes_alone(trusted, "roster")
    status = trusted.parent.stat()
    assert asked == [(status.st_gid, status.st_uid)]
    for path, mode in ((trusted.parent, 0o777), (trusted, 0o664)):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match=f"got mode {mode:o}"):
            check_owner_writes_alone(trusted, "roster")
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "members", "is_private"),
    [("ada", [], True), ("ada", ["ada"], True), ("ada", ["ada", "eve"], False), ("staff", [], False)],
)
def test_a_private_group_has_its_owners_name_and_no_other_member(monkeypatch, name, members, is_private):
    account = type("Account", (), {"pw_name": "ada"})
    group = type("Group", (), {"gr_name": name, "gr_mem": members})
    monkeypatch.setattr("pwd.getpwuid", {1001: account}.__getitem__)
    monkeypatch.setattr("grp.getgrgid", {2002: group}.__getitem__)
    assert storage._is_private(2002, 1001) is is_private
    assert not storage._is_private(2002, 7)
    assert not storage._is_private(7, 1001)
