import dataclasses

import pytest

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre_sites.deployment.site_register import SiteRegister
from support.coordinators import make_card

LYON, BERN = make_card("lyon"), make_card("bern")


def test_register_is_read_as_written(tmp_path):
    register = SiteRegister().adding(LYON).registered("lyon", 2**63 + 1).adding(BERN)
    register.write(tmp_path / "register.json")
    assert SiteRegister.read(tmp_path / "register.json") == register
    assert (tmp_path / "register.json").stat().st_mode & 0o777 == 0o600


def test_register_that_was_never_written_is_empty(tmp_path):
    assert SiteRegister.read(tmp_path / "register.json") == SiteRegister()


@pytest.mark.parametrize(
    ("old", "new"), [("lyon", "lyom"), ('"version": 1', '"version": 2'), ("pending", "x"), ("}", "")]
)
def test_changed_register_is_refused(tmp_path, old, new):
    path = tmp_path / "register.json"
    SiteRegister().adding(LYON).write(path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(IntegrityError, match="was changed or damaged"):
        SiteRegister.read(path)


def test_roster_holds_registered_sites_alone():
    register = SiteRegister().adding(LYON).adding(BERN).registered("lyon", 1)
    assert register.roster.names == ("lyon",)
    assert [one.card.name for one in register.pending] == ["bern"]


def test_same_card_changes_nothing():
    register = SiteRegister().adding(LYON).registered("lyon", 1)
    assert register.adding(LYON) is register


@pytest.mark.parametrize("field", ["name", "public_key", "identity"])
def test_what_another_site_has_is_refused(field):
    with pytest.raises(ConfigurationError):
        SiteRegister().adding(LYON).adding(dataclasses.replace(BERN, **{field: getattr(LYON, field)}))


def test_removed_site_frees_its_name_and_never_its_key():
    register = SiteRegister().adding(LYON).registered("lyon", 1).removed("lyon")
    assert register.current == ()
    assert register.node_ids == {1}
    with pytest.raises(ConfigurationError, match="was removed"):
        register.adding(LYON)
    assert register.adding(make_card("lyon")).find("lyon").state == "pending"


def test_what_never_reached_flower_leaves_no_trace():
    assert SiteRegister().adding(LYON).removed("lyon") == SiteRegister()


def test_unknown_site_is_named_with_those_known():
    with pytest.raises(ConfigurationError, match="must be one of lyon"):
        SiteRegister().adding(LYON).find("bern")
