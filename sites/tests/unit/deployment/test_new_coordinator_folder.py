import tomllib

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import new_coordinator_folder
from multicentre_sites.deployment.certificates import certify_host, days_left, new_authority, write_certified
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium, renew_certificate
from multicentre_sites.deployment.release_key import ReleaseKey
from multicentre_sites.deployment.site_register import Roster
from support.coordinators import make_consortium


def test_folder_holds_what_up_needs_and_keys_are_private(tmp_path):
    consortium = create_consortium(tmp_path / "new", ConsortiumOptions("fl.example.org"))
    assert consortium == Consortium.read(tmp_path / "new")
    assert consortium.address == "fl.example.org:443"
    assert consortium.settings.listen == "0.0.0.0:443"
    secret = [
        consortium.superlink_ca_key,
        consortium.superlink_key,
        consortium.release_key,
        consortium.superexec_secret,
    ]
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in secret} == {0o700}
    home = tomllib.loads((consortium.home / "config.toml").read_text())["superlink"]
    assert home["consortium"] == {"address": "127.0.0.1:18000", "root-certificates": str(consortium.superlink_ca)}
    assert Roster.read(consortium.public / "roster.toml").names == ()


def test_what_sites_are_given_holds_no_key(tmp_path):
    consortium = make_consortium(tmp_path / "new")
    given = {path.name: path.read_text() for path in consortium.public.iterdir()}
    assert set(given) == {"ca.crt", "release.pub", "trusted-entities.yaml", "roster.toml"}
    assert not any("PRIVATE" in text for text in given.values())
    release = ReleaseKey.read(consortium.release_key)
    assert given["trusted-entities.yaml"] == f"{release.key_id}: '{given['release.pub'].strip()}'\n"


def test_folder_with_content_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigurationError, match="has content"):
        create_consortium(tmp_path, ConsortiumOptions("localhost"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("existed", [True, False])
def test_folder_that_cannot_be_finished_is_as_it_was(tmp_path, monkeypatch, existed):
    folder = tmp_path / "new"
    if existed:
        folder.mkdir()
    monkeypatch.setattr(new_coordinator_folder, "write_proxy", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        create_consortium(folder, ConsortiumOptions("localhost"))
    assert folder.exists() == existed
    assert not existed or list(folder.iterdir()) == []


@pytest.mark.parametrize("host", ["", "https://fl.example.org", "fl.example.org:443", "999.1.1.1", "a b", "-x", "::1"])
def test_what_is_no_host_is_refused(host):
    with pytest.raises(ConfigurationError, match="name of a host"):
        ConsortiumOptions(host)


def given_files(folder, host):
    authority = new_authority(host)
    write_certified(authority, folder / "their-ca.crt", folder / "their-ca.key")
    write_certified(certify_host(authority, host), folder / "their.crt", folder / "their.key")
    return {"ca": folder / "their-ca.crt", "certificate": folder / "their.crt", "key": folder / "their.key"}


def test_certificate_from_elsewhere_stands_before_the_sites_and_the_own_one_inside(tmp_path):
    files = given_files(tmp_path, "fl.example.org")
    consortium = create_consortium(tmp_path / "new", ConsortiumOptions("fl.example.org", **files))
    assert (consortium.public / "ca.crt").read_bytes() == files["ca"].read_bytes()
    assert consortium.settings.tls.certificate.read_bytes() == files["certificate"].read_bytes()
    assert consortium.settings.tls.key.stat().st_mode & 0o777 == 0o600
    assert consortium.superlink_ca.read_bytes() != files["ca"].read_bytes()
    assert str(consortium.superlink_ca) in (consortium.home / "config.toml").read_text()


def test_certificate_for_another_host_is_refused_before_anything_is_written(tmp_path):
    files = given_files(tmp_path, "other.example.org")
    with pytest.raises(ConfigurationError, match="must be valid for"):
        create_consortium(tmp_path / "new", ConsortiumOptions("fl.example.org", **files))
    assert not (tmp_path / "new").exists()


def test_certificate_without_its_key_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="must be given together"):
        ConsortiumOptions("fl.example.org", ca=tmp_path)


def test_certificate_is_renewed_only_when_it_is_about_to_end(tmp_path, monkeypatch):
    consortium, told = make_consortium(tmp_path / "new"), []
    before = consortium.superlink_certificate.read_bytes()
    assert not renew_certificate(consortium, told.append)
    monkeypatch.setattr(new_coordinator_folder, "RENEWED_BEFORE_DAYS", 10_000)
    assert renew_certificate(consortium, told.append)
    assert consortium.superlink_certificate.read_bytes() != before
    assert days_left(consortium.superlink_certificate) > 700
    assert len(told) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("port = ", "prot = ", "port"),
        ('listen = "', 'listen = "nowhere', "listen"),
        ("superlink = ", "superlink = 0 #", "superlink"),
        ('host = "', 'host = "https://', "host"),
    ],
)
def test_settings_that_cannot_be_used_name_the_key(tmp_path, old, new, said):
    consortium = make_consortium(tmp_path / "new")
    path = consortium.folder / "coordinator.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=said):
        Consortium.read(consortium.folder)


def test_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="study init"):
        Consortium.read(tmp_path)


@pytest.mark.parametrize(("listen", "lines"), [("0.0.0.0:443", 2), ("0.0.0.0:8443", 0)])
def test_unit_has_the_right_to_a_low_port_where_the_proxy_listens_there(tmp_path, listen, lines):
    create_consortium(tmp_path / "new", ConsortiumOptions("fl.example.org", listen=listen))
    unit = (tmp_path / "new" / "README.md").read_text().partition("[Service]")[2]
    assert unit.count("=CAP_NET_BIND_SERVICE\n") == lines
    assert ("    AmbientCapabilities=CAP_NET_BIND_SERVICE\n" in unit) == bool(lines)


def test_handbook_names_what_is_compared_by_telephone(tmp_path):
    page = (make_consortium(tmp_path / "new").folder / "README.md").read_text()
    for name in ("ca.crt", "release.pub", "bundle.toml", "roster.toml"):
        assert f"`{name}` |" in page
