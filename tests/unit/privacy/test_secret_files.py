"""Secret files are their owner's alone, and a secret shows itself nowhere."""

import copy
import io
import os
import pickle
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.privacy import secret_files
from multicentre.privacy.secret_files import Secret, read_secret, write_secret

CONTENT = bytes(range(32))
HEX = CONTENT.hex()
posix = pytest.mark.skipif(os.name != "posix", reason="rights of group and others are POSIX's")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "secret.txt"
    write_secret(path, CONTENT)
    return path


def test_what_is_written_is_read(path):
    assert read_secret(path) == CONTENT
    assert path.read_text().startswith(f"multicentre secret v1 {HEX} ")
    assert path.read_text().endswith("\n")


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_file_is_its_owners_from_the_first_instant(tmp_path, monkeypatch, mask):
    seen = []
    opened = os.fdopen

    def look(handle, *arguments):
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return opened(handle, *arguments)

    monkeypatch.setattr(secret_files.os, "fdopen", look)
    before = os.umask(mask)
    try:
        write_secret(tmp_path / "new.txt", CONTENT)
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o600


def test_nothing_is_overwritten(path):
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="the path must be that of a new file") as caught:
        write_secret(path, bytes(32))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_link_to_nowhere_is_not_followed(tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(ConfigurationError):
        write_secret(link, CONTENT)
    assert not (tmp_path / "elsewhere.txt").exists()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(secret_files.os, "fsync", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        write_secret(tmp_path / "new.txt", CONTENT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_secret(tmp_path / "no" / "secret.txt", CONTENT)


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666, 0o777])
def test_rights_of_others_are_refused(path, mode):
    path.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        read_secret(path)
    assert f"chmod 600 {path}" in caught.value.hint
    assert caught.value.where == str(path)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_rights_of_the_owner_are_fine(path, mode):
    path.chmod(mode)
    assert read_secret(path) == CONTENT


def test_rights_are_not_looked_at_on_windows(path, monkeypatch):
    path.chmod(0o644)
    monkeypatch.setattr(secret_files, "_FILES_HAVE_MODES", False)
    assert read_secret(str(path)) == CONTENT


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "nothing.txt", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read") as caught:
            read_secret(path)
        assert caught.value.where == str(path)
        assert "multicentre secret new" in caught.value.hint


def rewrite(path, line):
    path.write_bytes(line)
    path.chmod(0o600)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        HEX.encode(),
        CONTENT,
        b"-----BEGIN PRIVATE KEY-----\n",
        f"multicentre secret v2 {HEX} 00000000".encode(),
        f"multicentre secret v1 {HEX}".encode(),
        f"multicentre secret v1 {HEX[:-1]} 00000000".encode(),
        f"multicentre secret v1 {HEX}0 00000000".encode(),
        f"multicentre secret v1 {HEX[:-1]}g 00000000".encode(),
        b"\xff" * 500,
    ],
)
def test_a_wrong_file_is_told_from_a_right_one(path, line):
    rewrite(path, line)
    with pytest.raises(ConfigurationError, match="must be a secret file") as caught:
        read_secret(path)
    assert HEX[:20] not in str(caught.value)


@pytest.mark.parametrize("position", [22, 50, 85, 87, 94])
def test_a_mistyped_digit_is_found(path, position):
    line = bytearray(path.read_bytes())
    line[position] = ord("0") if line[position] != ord("0") else ord("1")
    rewrite(path, bytes(line))
    with pytest.raises(ConfigurationError, match="checksum") as caught:
        read_secret(path)
    assert HEX[2:40] not in str(caught.value)


def test_two_lines_are_no_secret_file(path):
    rewrite(path, path.read_bytes() * 2)
    with pytest.raises(ConfigurationError, match="must be a secret file"):
        read_secret(path)


def test_capitals_and_other_line_ends_are_read(path):
    *mark, digits, checksum = path.read_text().split()
    rewrite(path, " ".join([*mark, digits.upper(), checksum.upper()]).encode() + b"\r\n")
    assert read_secret(path) == CONTENT


def test_a_secret_prints_nowhere():
    secret = Secret(CONTENT)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", repr([secret]), "%s" % secret]  # noqa: UP031
    assert all(text.strip("[] ") == "Secret(…)" for text in shown)
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_cannot_be_pickled(protocol):
    file = io.BytesIO()
    with pytest.raises(ConfigurationError, match="pickled"):
        pickle.dump({"key": Secret(CONTENT)}, file, protocol=protocol)
    assert CONTENT not in file.getvalue()
    with pytest.raises(ConfigurationError, match="pickled"):
        Secret(CONTENT).__getstate__()


def test_copies_are_the_same_secret():
    secret = Secret(CONTENT)
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_equality_is_that_of_the_bytes(one, other):
    assert (Secret(one) == Secret(other)) is (one == other)
    assert Secret(one) == Secret(bytes(one))
    assert Secret(one) != one


def test_equality_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(secret_files.hmac, "compare_digest", lambda *both: compared.append(both) or True)
    assert Secret(CONTENT) == Secret(bytes(32))
    assert compared == [(CONTENT, bytes(32))]


def test_a_secret_has_no_hash():
    with pytest.raises(TypeError):
        hash(Secret(CONTENT))


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_other_lengths_are_refused(tmp_path, length):
    content = b"\xab" * length
    for attempt in (lambda: Secret(content), lambda: write_secret(tmp_path / "new.txt", content)):
        with pytest.raises(ConfigurationError, match="32 bytes") as caught:
            attempt()
        assert "abab" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
