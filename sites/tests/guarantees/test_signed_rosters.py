"""A roster signed by the pinned release key spares telephone calls for new sites, and for nothing else."""

import dataclasses

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.approvals import approve, read_approvals
from multicentre_sites.deployment.enrolment import Enrolment
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposal_review import review
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.release_key import ReleaseKey, openssh_line
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import Roster, SiteRegister
from multicentre_sites.deployment.site_service import card_of
from support.coordinators import make_card, make_consortium

KEY = ReleaseKey.generate()
OSLO, PORTO, LATE = (make_card(name) for name in ("oslo", "porto", "late"))


class Steward:
    """The steward of Lyon, who has pinned a release key and a signed roster of three sites."""

    def __init__(self, folder):
        self.folder = folder
        self.site = read_site(make_site("lyon", folder / "lyon").folder)
        self.card = card_of(self.site)
        (folder / "release.pub").write_text(openssh_line(KEY.public))
        self.approve(folder / "release.pub")
        self.approve(self.write(self.roster(OSLO, PORTO).signed_by(KEY)))

    def roster(self, *others):
        return Roster((self.card, *others))

    def write(self, roster):
        path = self.folder / "roster.toml"
        roster.write(path)
        return path

    def approve(self, path):
        approve(self.site.approved, recognise(str(path)), self.card)

    def changes(self, roster):
        """Return the change of each site of a roster, as the review shows it."""
        shown = review(self.site, recognise(str(self.write(roster))), read_approvals(self.site.approved), {})
        return {one.name: one.change for one in shown.sites}


@pytest.fixture
def steward(tmp_path):
    return Steward(tmp_path)


def test_an_eleventh_hospital_on_a_signed_roster_needs_no_telephone_call(steward):
    signed = steward.roster(OSLO, PORTO, LATE).signed_by(KEY)
    assert steward.changes(signed) == {"late": "NEW, SIGNED", "lyon": "", "oslo": "", "porto": ""}
    steward.approve(steward.write(signed))
    assert read_approvals(steward.site.approved).roster().names == ("late", "lyon", "oslo", "porto")


def test_each_steward_can_still_confirm_each_fingerprint(steward):
    proposal = recognise(str(steward.write(steward.roster(OSLO, PORTO, LATE).signed_by(KEY))))
    text = str(review(steward.site, proposal, read_approvals(steward.site.approved), {}))
    assert f"late  {LATE.fingerprint}  NEW, SIGNED" in text


@pytest.mark.parametrize("attack", ["no signature", "another key", "another site", "other keys", "older"])
def test_a_new_site_without_a_valid_signature_is_only_new(steward, attack):
    roster = steward.roster(OSLO, PORTO, LATE)
    signed = roster.signed_by(KEY)
    forged = {
        "no signature": roster,
        "another key": roster.signed_by(ReleaseKey.generate()),
        "another site": dataclasses.replace(roster, signature=steward.roster(OSLO, PORTO).signed_by(KEY).signature),
        "other keys": dataclasses.replace(steward.roster(OSLO, PORTO, make_card("late")), signature=signed.signature),
        "older": dataclasses.replace(roster, signature=KEY.sign(roster.signed_content, 1_000_000_000)),
    }[attack]
    assert steward.changes(forged)["late"] == "NEW"


def test_the_key_id_in_the_file_decides_nothing(steward):
    stranger = ReleaseKey.generate()
    roster = steward.roster(OSLO, PORTO, LATE).signed_by(stranger)
    named = dataclasses.replace(roster, signature=dataclasses.replace(roster.signature, key_id=KEY.key_id))
    assert steward.changes(named)["late"] == "NEW"


def test_changed_keys_and_removed_sites_are_shown_whoever_signed(steward):
    changed = steward.roster(make_card("oslo")).signed_by(KEY)
    assert steward.changes(changed) == {"lyon": "", "oslo": "KEYS CHANGED", "porto": "REMOVED"}


@pytest.mark.parametrize("text", ["signature = 1", "[signature]", '[signature]\npublic_key_id = "x"\nsignature = "*"'])
def test_a_damaged_signature_is_refused_by_name(tmp_path, text):
    (tmp_path / "roster.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="the signature of a roster"):
        Roster.read(tmp_path / "roster.toml")


def test_the_coordinator_signs_what_it_publishes_once(tmp_path):
    consortium = make_consortium(tmp_path / "coordinator")
    key, register = ReleaseKey.read(consortium.release_key), SiteRegister().adding(OSLO).registered("oslo", 1)
    path = Enrolment(consortium, print).publish(register)
    written = path.read_bytes()
    assert Roster.read(path).is_signed_by([key.public])
    Enrolment(consortium, print).publish(register)
    assert path.read_bytes() == written
    Enrolment(consortium, print).publish(register.adding(PORTO).registered("porto", 2))
    assert path.read_bytes() != written
