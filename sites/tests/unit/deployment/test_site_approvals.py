"""What a steward approves is recognised, pinned, and taken back; a file that changes later is another file."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.estimator.registry import METHODS
from multicentre_sites.deployment.approvals import WatchedApprovals, approve, read_approvals, revoke
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposals import fingerprint_of, recognise
from multicentre_sites.deployment.site_register import Roster
from support.studies_toy import STUDY, TOY, write_study

HASH = "ab" * 32


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def release(tmp_path):
    line = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    (tmp_path / "release.pub").write_text(f"{line} the coordinator\n")
    return tmp_path / "release.pub"


def roster_of(path, *sites):
    Roster(tuple(site.card for site in sites)).write(path)
    return path


def test_a_bundle_is_approved_by_its_hash_alone(folder, lyon, tmp_path):
    (tmp_path / "bundle.toml").write_text(f'app = "@multicentre/relay"\nversion = "0.1.0"\nsha256 = "{HASH}"\n')
    for said in (HASH, HASH.upper(), f"sha256:{HASH}", str(tmp_path / "bundle.toml")):
        assert (recognise(said).kind, recognise(said).fingerprint) == ("app", HASH)
    assert list(approve(folder, recognise(HASH), lyon.card).apps) == [HASH]
    assert list(read_approvals(folder).apps) == [HASH]
    assert not revoke(folder, HASH).apps
    assert (folder / "approvals.json").stat().st_mode & 0o777 == 0o600


def test_a_release_key_is_kept_without_its_comment(folder, lyon, release):
    known = approve(folder, recognise(str(release)), lyon.card)
    ((fingerprint, line),) = known.release_keys.items()
    assert len(line.split()) == 2
    assert fingerprint == fingerprint_of(line)
    assert not revoke(folder, fingerprint).release_keys


def test_a_key_of_another_kind_is_refused(tmp_path, lyon):
    path = tmp_path / "release.pub"
    path.write_text("ssh-rsa AAAA")
    with pytest.raises(ConfigurationError, match="Ed25519"):
        recognise(str(path))
    path.write_text(f"ssh-{lyon.card.public_key}")
    with pytest.raises(ConfigurationError, match="Ed25519"):
        recognise(str(path))


@pytest.mark.parametrize("content", [b"", b"x = 1\n", b"[[", b"\xff\xfe", b"site = 3\n", b'app = "x"\nsha256 = "y"\n'])
def test_what_is_nothing_that_can_be_approved_is_refused(tmp_path, content):
    (tmp_path / "thing.toml").write_bytes(content)
    with pytest.raises(ConfigurationError):
        recognise(str(tmp_path / "thing.toml"))
    with pytest.raises(ConfigurationError, match="64 digits"):
        recognise(str(tmp_path / "missing.toml"))


def test_a_roster_must_name_this_site_with_its_own_keys(folder, lyon, tmp_path):
    oslo = make_site("oslo", tmp_path / "oslo")
    impostor = make_site("lyon", tmp_path / "impostor")
    path = tmp_path / "roster.toml"
    with pytest.raises(ConfigurationError, match="must name this site, 'lyon'"):
        approve(folder, recognise(str(roster_of(path, oslo))), lyon.card)
    with pytest.raises(ConfigurationError, match="with the keys of this site"):
        approve(folder, recognise(str(roster_of(path, oslo, impostor))), lyon.card)
    assert read_approvals(folder).roster() is None
    known = approve(folder, recognise(str(roster_of(path, oslo, lyon))), lyon.card)
    roster_of(path, lyon)  # what the sender writes later is not what was approved
    assert known.roster().names == ("lyon", "oslo")
    assert revoke(folder, "roster").roster() is None


def test_a_roster_that_was_changed_after_it_was_approved_is_refused(folder, lyon, tmp_path):
    known = approve(folder, recognise(str(roster_of(tmp_path / "roster.toml", lyon))), lyon.card)
    pinned = folder / f"{known.roster_sha256}.toml"
    pinned.write_text(pinned.read_text().replace("lyon", "oslo"))
    with pytest.raises(IntegrityError, match="must be unchanged"):
        read_approvals(folder).roster()
    pinned.unlink()
    with pytest.raises(IntegrityError, match="cannot be read"):
        read_approvals(folder).roster()


def test_a_study_is_pinned_as_it_was(folder, lyon, tmp_path):
    path = write_study(tmp_path)
    approve(folder, recognise(str(path)), lyon.card)
    path.write_text(STUDY.replace("n_rounds = 6", "n_rounds = 60"))
    study = read_approvals(folder).study("Ward 7")
    assert study.parameters == {"n_rounds": 6}
    assert study.sites["lyon"]["a"] == tmp_path / "site-0" / "a.csv"
    known = approve(folder, recognise(str(path)), lyon.card)
    assert known.study("Ward 7").parameters == {"n_rounds": 60}
    assert not revoke(folder, "Ward 7").studies
    with pytest.raises(ConfigurationError, match="study must be approved here"):
        read_approvals(folder).study("Ward 7")


def test_a_study_that_was_changed_after_it_was_approved_is_refused(folder, lyon, tmp_path):
    known = approve(folder, recognise(str(write_study(tmp_path))), lyon.card)
    pinned = folder / f"{known.studies['Ward 7'].sha256}.toml"
    pinned.write_text(pinned.read_text().replace("n_rounds = 6", "n_rounds = 7"))
    with pytest.raises(IntegrityError, match="must be unchanged"):
        known.study("Ward 7")


def test_a_study_whose_terms_are_read_otherwise_now_is_refused(folder, lyon, tmp_path):
    approve(folder, recognise(str(write_study(tmp_path))), lyon.card)
    told = json.loads((folder / "approvals.json").read_text())
    told["studies"]["Ward 7"]["terms"] = HASH
    (folder / "approvals.json").write_text(json.dumps(told))
    with pytest.raises(IntegrityError, match="the terms of the study must be"):
        read_approvals(folder).study("Ward 7")


def test_a_study_of_others_is_refused(folder, tmp_path):
    nice = make_site("nice", tmp_path / "nice")
    with pytest.raises(ConfigurationError, match="must name this site, 'nice'"):
        approve(folder, recognise(str(write_study(tmp_path))), nice.card)
    assert not (folder / "approvals.json").exists()


def test_what_was_not_approved_cannot_be_taken_back(folder):
    for what in (HASH, "roster", "Ward 7"):
        with pytest.raises(ConfigurationError, match="what is revoked must be approved"):
            revoke(folder, what)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "apps": {}, "x": 1, "studies": {}}']
)
def test_a_list_that_cannot_be_read_is_no_empty_list(folder, content):
    folder.mkdir()
    (folder / "approvals.json").write_text(content)
    with pytest.raises(IntegrityError, match="list of approvals"):
        read_approvals(folder)


def test_a_running_process_sees_what_is_taken_back(folder, lyon):
    watched = WatchedApprovals(folder)
    assert not watched.now().apps
    approve(folder, recognise(HASH), lyon.card)
    assert HASH in watched.now().apps
    revoke(folder, HASH)
    assert HASH not in watched.now().apps
