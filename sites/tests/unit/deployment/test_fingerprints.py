import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment import site_check
from multicentre_sites.deployment.certificates import Fingerprints
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_register import Roster
from support.coordinators import make_card, make_consortium


@pytest.fixture
def public(tmp_path):
    return make_consortium(tmp_path / "new").public


def test_they_are_what_the_commands_of_a_site_print(public):
    Roster((make_card("lyon"),)).write(public / "roster.toml")
    (public / "bundle.toml").write_text(f'app = "it"\nsha256 = "{"ab" * 32}"\n')
    told = Fingerprints.of(public)
    assert f"SHA-256 {told.authority}, until" in site_check._authority(public / "ca.crt")
    assert told.release_key == recognise(str(public / "release.pub")).fingerprint
    assert told.release_key.startswith("SHA256:")
    assert (told.bundle, told.roster) == ("ab" * 32, recognise(str(public / "roster.toml")).fingerprint)
    for one in (f"SHA-256 {told.authority}", told.release_key, told.bundle, told.roster):
        assert one in str(told)


def test_what_is_not_there_yet_is_said(public):
    told = Fingerprints.of(public)
    assert (told.bundle, told.roster) == (None, None)
    assert "none was signed yet" in str(told)
    assert "names no site yet" in str(told)


def test_broken_certificate_is_named(public):
    (public / "ca.crt").write_text("none")
    with pytest.raises(ConfigurationError, match=r"ca\.crt"):
        Fingerprints.of(public)
