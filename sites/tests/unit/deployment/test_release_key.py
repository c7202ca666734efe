import dataclasses
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import bundle
from multicentre_sites.deployment.bundle import Bundle, read_bundles, write_bundle
from multicentre_sites.deployment.release_key import (
    ReleaseKey,
    Signature,
    key_id_of,
    openssh_line,
    trusted_entities,
    verifies,
)
from support.coordinators import make_consortium, make_key

KEY = ReleaseKey.generate()
CONTENT = b"a bundle"
SIGNED = KEY.sign(CONTENT, 1_800_000_000)


def test_signature_is_over_time_and_hash():
    told = (1_800_000_000).to_bytes(8, "big") + hashlib.sha256(CONTENT).digest()
    KEY.public.verify(SIGNED.signature, told)


@pytest.mark.parametrize(
    "signature",
    [
        dataclasses.replace(SIGNED, signed_at=SIGNED.signed_at + 1),
        dataclasses.replace(SIGNED, signed_at=-1),
        dataclasses.replace(SIGNED, signature=SIGNED.signature[::-1]),
        dataclasses.replace(SIGNED, signature=b""),
        ReleaseKey.generate().sign(CONTENT, SIGNED.signed_at),
    ],
)
def test_other_signatures_do_not_hold(signature):
    assert verifies(KEY.public, SIGNED, CONTENT)
    assert not verifies(KEY.public, signature, CONTENT)
    assert not verifies(KEY.public, SIGNED, CONTENT + b".")


def test_signature_is_read_as_told():
    assert Signature.from_flower(json.loads(json.dumps(SIGNED.as_flower()))) == SIGNED


def test_flower_itself_takes_signature_and_trusted_key():
    pytest.importorskip("flwr")
    import yaml
    from flwr.supercore.fab import Fab
    from flwr.supernode.start_client_internal import _verify_fab

    told = {
        one.key_id: json.dumps({k: v for k, v in one.as_flower().items() if k != "public_key_id"}) for one in [SIGNED]
    }
    trusted = yaml.safe_load(trusted_entities([KEY.public, ReleaseKey.generate().public]))
    assert len(trusted) == 2
    assert _verify_fab(Fab(hash_str="", content=CONTENT, verifications=told), trusted)
    assert not _verify_fab(Fab(hash_str="", content=CONTENT + b".", verifications=told), trusted)


def test_key_is_read_as_written_and_private(tmp_path):
    KEY.write(tmp_path / "release")
    assert (tmp_path / "release").stat().st_mode & 0o777 == 0o600
    assert ReleaseKey.read(tmp_path / "release").key_id == KEY.key_id == key_id_of(KEY.public)
    line = load_ssh_public_key(openssh_line(KEY.public).encode())
    assert isinstance(line, ed25519.Ed25519PublicKey)


@pytest.mark.parametrize("kind", ["none", "other", "text"])
def test_what_is_no_release_key_is_refused(tmp_path, kind):
    path = tmp_path / "release"
    if kind == "other":
        make_key(path)
    elif kind == "text":
        path.write_text("hello")
    with pytest.raises(ConfigurationError, match="must be an Ed25519 key"):
        ReleaseKey.read(path)


def test_bundle_is_read_as_written(tmp_path):
    consortium, signed = make_consortium(tmp_path / "new"), Bundle("0.1.0", CONTENT, (SIGNED,))
    write_bundle(signed, consortium.bundles)
    assert read_bundles(consortium) == {"0.1.0": signed}


def test_bundle_that_was_changed_after_it_was_signed_is_left_out(tmp_path):
    consortium = make_consortium(tmp_path / "new")
    write_bundle(Bundle("0.1.0", CONTENT, (SIGNED,)), consortium.bundles)
    (consortium.bundles / "relay-0.1.0.fab").write_bytes(CONTENT + b".")
    assert read_bundles(consortium) == {}


def test_same_bytes_keep_their_signature_and_others_get_a_new_one(tmp_path, monkeypatch):
    consortium = make_consortium(tmp_path / "new")
    monkeypatch.setattr(bundle, "build", lambda *_: Bundle("0.1.0", CONTENT))
    first = bundle.sign_app(consortium, print)
    monkeypatch.setattr(bundle.time, "time", lambda: 2e9)
    assert bundle.sign_app(consortium, print) == first
    monkeypatch.setattr(bundle, "build", lambda *_: Bundle("0.1.0", CONTENT + b"."))
    assert bundle.sign_app(consortium, print).signatures[0].signed_at == 2_000_000_000


def test_key_that_the_bridge_sets_is_in_the_bundle():
    pytest.importorskip("flwr")
    import tomllib

    from multicentre_sites.flower.handshake import BRIDGE

    page = tomllib.loads(bundle._PROJECT.format(app="relay", version="0.1.0", publisher="multicentre"))
    assert page["tool"]["flwr"]["app"]["config"] == {BRIDGE: ""}
