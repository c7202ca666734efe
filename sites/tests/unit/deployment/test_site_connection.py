import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import site_connection
from support.coordinators import make_consortium


@pytest.fixture
def consortium(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.setattr("multicentre_sites.deployment.coordinator_folder.program", lambda name: name)
    return make_consortium(tmp_path / "new")


def hint(consortium):
    with pytest.raises(ConfigurationError) as told:
        site_connection.connect_sites(consortium.folder, ["lyon"], lambda _: None)
    return told.value.hint


def test_hint_to_sign_the_bundle_names_the_folder(consortium):
    assert f"coordinator sign-app --folder {consortium.folder}." in hint(consortium)


def test_hint_to_add_a_site_names_the_folder(consortium, monkeypatch):
    monkeypatch.setattr(site_connection, "_bundle_reference", lambda _: "@multicentre/relay==1.2.3")
    assert f"coordinator add-site NAME.site.toml --folder {consortium.folder}." in hint(consortium)
