"""A full or read-only disk is named before a run and during it, with its path and the remedy."""

import errno
import logging
import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from multicentre.core import disk
from multicentre.core.disk import cannot_write, check_space, free_bytes, full_at_site, is_full, use_folder
from multicentre.errors import ConfigurationError, SiteFailed

MEBIBYTE = 2**20
FULL = OSError(errno.ENOSPC, "No space left on device", "/var/lib/site/ledger.jsonl")
DENIED = PermissionError(errno.EACCES, "Permission denied", "/var/lib/site/ledger.jsonl")


def test_free_space_is_in_bytes_and_for_this_account(monkeypatch):
    """4,096 bytes per block; of 300 free blocks the system reserves 100."""
    status = SimpleNamespace(f_bavail=200, f_bfree=300, f_frsize=4096, f_bsize=1)
    monkeypatch.setattr(os, "statvfs", lambda folder: {Path("/data"): status}[folder])
    assert free_bytes(Path("/data")) == 200 * 4096


def test_a_system_may_not_state_the_free_space(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "statvfs")
    assert free_bytes(tmp_path) is None
    check_space([tmp_path])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_full_quota_are_full(code):
    assert is_full(OSError(code, "full"))


@pytest.mark.parametrize("error", [DENIED, OSError("no number"), ValueError(), MemoryError()])
def test_other_errors_are_not_about_a_full_disk(error):
    assert not is_full(error)
    assert full_at_site("lyon", error, logging.getLogger("test")) is None


def test_the_error_of_a_full_disk_names_the_space_that_is_needed():
    error = cannot_write(Path("/data"), FULL)
    assert type(error) is ConfigurationError
    assert error.where == "/data"
    assert error.what == "the folder must have at least 64 MiB free disk space; got: No space left on device"
    assert error.hint == "Free disk space."


def test_the_error_of_a_folder_without_permission_names_the_account():
    error = cannot_write(Path("/data"), DENIED)
    assert error.where == "/data"
    assert error.what == "the folder must have permission to write; got: Permission denied"
    assert error.hint == "Give the folder to the account of the service, on a writable disk."


def test_a_folder_with_room_passes_and_stays_empty(tmp_path):
    check_space([tmp_path, tmp_path / "absent"])
    assert list(tmp_path.iterdir()) == []


def test_every_folder_is_checked(monkeypatch, tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    free = dict(zip(folders, (64 * MEBIBYTE, 64 * MEBIBYTE - 1), strict=True))
    monkeypatch.setattr(disk, "free_bytes", free.__getitem__)
    check_space(folders[:1])
    with pytest.raises(ConfigurationError, match=r"at least 64 MiB free disk space; got: 64 MiB are free") as caught:
        check_space(folders)
    assert caught.value.where == str(folders[1])


def test_the_free_space_is_stated(monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 3 * MEBIBYTE)
    with pytest.raises(ConfigurationError, match=r"got: 3 MiB are free"):
        check_space([tmp_path])


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    """The check writes more than fits into a directory entry, readable by the owner only, and removes it."""
    written = []

    def refuse(path, content, *, mode, durable):
        written.append((path.parent, len(content), mode, durable))
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(disk, "write_atomically", refuse)
    with pytest.raises(ConfigurationError, match="permission to write; got: Read-only file system") as caught:
        check_space([tmp_path])
    assert caught.value.where == str(tmp_path)
    assert written == [(tmp_path, 64 * 1024, 0o600, False)]


def test_a_disk_that_is_full_during_a_run_is_logged_with_its_path(caplog):
    """The coordinator receives neither the path nor the system's message."""
    log = logging.getLogger("test")
    error = full_at_site("lyon", FULL, log)
    assert type(error) is SiteFailed
    assert error.where == "lyon"
    assert error.what == "the disk of the site is full; nothing was released"
    assert error.hint == "Its steward frees disk space; then resume the run."
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == str(cannot_write(Path("/var/lib/site/ledger.jsonl"), FULL))


def test_without_a_file_name_the_folder_is_logged(caplog):
    full_at_site("lyon", OSError(errno.ENOSPC, "No space left on device"), logging.getLogger("test"), Path("/data"))
    assert "/data: the folder must have at least 64 MiB" in caplog.text


@pytest.fixture
def nowhere_else(monkeypatch, tmp_path):
    """Return the folder of a service on a system where its account can write nowhere else."""

    def fail():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("TMPDIR", "/absent")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "service"


def test_a_service_without_a_writable_place_uses_its_folder(nowhere_else):
    use_folder(nowhere_else)
    temporary = nowhere_else / "tmp"
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    assert tempfile.tempdir == os.environ["TMPDIR"] == str(temporary)
    assert os.environ["NUMBA_CACHE_DIR"] == str(nowhere_else / "kernels")


def test_a_folder_of_kernels_that_is_set_remains(nowhere_else, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/var/cache/kernels")
    use_folder(nowhere_else)
    assert os.environ["NUMBA_CACHE_DIR"] == "/var/cache/kernels"


def test_an_account_without_a_home_has_no_writable_one(nowhere_else, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "access", lambda path, mode: "nonexistent" in str(path))
    use_folder(nowhere_else)
    assert os.environ["NUMBA_CACHE_DIR"] == str(nowhere_else / "kernels")


def test_where_a_home_can_be_written_nothing_changes(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: (Path(path), mode) == (tmp_path, os.W_OK))
    before = tempfile.gettempdir()
    use_folder(tmp_path / "service")
    assert tempfile.gettempdir() == before
    assert not (tmp_path / "service").exists()
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_where_the_package_can_be_written_its_kernels_stay_there(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    package = Path(disk.__file__).parents[1]
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) == package)
    use_folder(tmp_path / "service")
    assert "NUMBA_CACHE_DIR" not in os.environ
