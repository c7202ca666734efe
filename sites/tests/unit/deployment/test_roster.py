import dataclasses

import pytest

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre_sites.deployment.site_register import Roster
from support.coordinators import make_card

LYON, BERN = make_card("lyon"), make_card("bern")


def test_roster_is_read_as_written_in_a_fixed_order(tmp_path):
    Roster((LYON, BERN)).write(tmp_path / "roster.toml")
    read = Roster.read(tmp_path / "roster.toml")
    assert read == Roster((BERN, LYON))
    assert read.names == ("bern", "lyon")
    assert read.identities["lyon"].hex() == LYON.identity
    assert read.public_keys["bern"] == BERN.public_key


def test_empty_roster_is_one(tmp_path):
    Roster(()).write(tmp_path / "roster.toml")
    assert Roster.read(tmp_path / "roster.toml").names == ()


@pytest.mark.parametrize("field", ["public_key", "identity"])
def test_shared_keys_are_refused(field):
    with pytest.raises(ConfigurationError, match="got that of"):
        Roster((LYON, dataclasses.replace(BERN, **{field: getattr(LYON, field)})))


@pytest.mark.parametrize("name", ["lyon", "LYON", "\uff4cyon"])
def test_names_that_look_the_same_are_refused(name):
    with pytest.raises(ConfigurationError, match="must have different names"):
        Roster((LYON, dataclasses.replace(BERN, name=name)))


def test_identity_put_in_by_another_is_refused(tmp_path):
    path = tmp_path / "roster.toml"
    Roster((LYON, BERN)).write(path)
    path.write_text(path.read_text().replace(LYON.identity, "ab" * 32))
    with pytest.raises(IntegrityError, match="fingerprint"):
        Roster.read(path)


@pytest.mark.parametrize("text", ["site = 1", "site = [1]", 'other = "x"', "[site]\nname = 'x'"])
def test_what_is_no_roster_is_refused(tmp_path, text):
    (tmp_path / "roster.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="a roster must have"):
        Roster.read(tmp_path / "roster.toml")
