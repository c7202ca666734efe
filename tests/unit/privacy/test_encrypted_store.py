"""A sealed store reads what it kept, and nothing that was changed, moved or stored under another key."""

import os

import pytest

from multicentre.core.storage import Store
from multicentre.errors import IntegrityError, StateGone
from multicentre.privacy.encrypted_store import EncryptedStore
from multicentre.privacy.secret_files import Secret

KEY = Secret(bytes(range(32)))
STATE = b"what the site remembers"


def kept(folder, *, key=KEY, of="run", name="fit", number=3):
    store = EncryptedStore(folder, key, of=of)
    store.keep(name, number, STATE)
    return store


def refused(store, name="fit", number=3):
    with pytest.raises(IntegrityError) as caught:
        store.read(name, number)
    assert caught.value.what == "the state cannot be decrypted; it was changed, or stored under a different key"
    assert caught.value.where == name
    assert caught.value.hint == "Restore the site's key or the file from a copy, or start the run again."


def test_a_state_comes_back_and_is_not_on_the_disk(tmp_path):
    assert kept(tmp_path).read("fit", 3) == STATE
    assert EncryptedStore(tmp_path, Secret(bytes(range(32))), of="run").read("fit", 3) == STATE
    assert not any(STATE in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_one_state_is_encrypted_differently_each_time(tmp_path):
    for folder in ("a", "b"):
        kept(tmp_path / folder)
    one, two = (Store(tmp_path / folder).read("fit", 3) for folder in ("a", "b"))
    assert one[:12] != two[:12]
    assert one[12:] != two[12:]
    # 12 bytes of nonce, the state, 16 bytes of tag
    assert len(one) == 12 + len(STATE) + 16


@pytest.mark.parametrize(("key", "of"), [(Secret(bytes(32)), "run"), (KEY, "other"), (KEY, "")])
def test_another_key_or_run_reads_nothing(tmp_path, key, of):
    kept(tmp_path)
    refused(EncryptedStore(tmp_path, key, of=of))


def test_a_store_is_for_nothing_in_particular_by_default(tmp_path):
    EncryptedStore(tmp_path, KEY).keep("fit", 3, STATE)
    assert EncryptedStore(tmp_path, KEY, of="").read("fit", 3) == STATE


@pytest.mark.parametrize(("name", "number"), [("fit", 4), ("other", 3)])
def test_a_file_in_anothers_place_is_refused(tmp_path, name, number):
    kept(tmp_path)
    plain = Store(tmp_path)
    plain.keep(name, number, plain.read("fit", 3))
    refused(EncryptedStore(tmp_path, KEY, of="run"), name, number)


@pytest.mark.parametrize("place", [0, 11, 12, -1])
def test_a_changed_byte_is_refused(tmp_path, place):
    kept(tmp_path)
    plain = Store(tmp_path)
    content = bytearray(plain.read("fit", 3))
    content[place] ^= 1
    plain.keep("fit", 3, bytes(content))
    refused(EncryptedStore(tmp_path, KEY, of="run"))


@pytest.mark.parametrize("length", [0, 5, 12, 20])
def test_a_short_state_is_refused(tmp_path, length):
    kept(tmp_path)
    plain = Store(tmp_path)
    plain.keep("fit", 3, os.urandom(length))
    refused(EncryptedStore(tmp_path, KEY, of="run"))


def test_a_state_that_was_never_kept_is_gone(tmp_path):
    with pytest.raises(StateGone):
        kept(tmp_path).read("fit", 5)
