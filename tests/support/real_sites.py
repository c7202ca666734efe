"""Three real sites on one machine: a folder each, keys, approvals, and the handler of its requests."""

from functools import partial
from pathlib import Path

import multicentre as mc
from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.approvals import approve
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import Roster
from multicentre_sites.deployment.site_service import DeployedSiteService, card_of
from support.remote_sites import ByHand

NAMES = ("lyon", "oslo", "porto")


def approve_at(folder: Path, *what: Path | str) -> None:
    """Approve things at a site."""
    site = read_site(folder)
    for one in what:
        approve(site.approved, recognise(str(one)), card_of(site))


def set_terms(folder: Path, old: str, new: str) -> None:
    """Change a line of a site's settings."""
    path = folder / "site.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


class Hospitals:
    """Sites that approved one study, and the roster of all of them."""

    def __init__(self, root: Path, study: Path, names=NAMES, *, approved=True):
        self.root, self.names, self.study_path = root, names, study
        cards = {name: make_site(name, root / name).card for name in names}
        self.roster = root / "roster.toml"
        Roster(tuple(cards.values())).write(self.roster)
        if approved:
            for name in names:
                approve_at(root / name, study, self.roster)
        self.handlers = {}

    def handler(self, name: str) -> RequestHandler:
        """Return the request handler of a site; the same until the site is restarted."""
        if name not in self.handlers:
            site = read_site(self.root / name)
            site.state.mkdir(exist_ok=True)
            self.handlers[name] = RequestHandler(name, DeployedSiteService(site), site.state, site.vault_key)
        return self.handlers[name]

    def answer(self, name: str, letter: bytes) -> bytes:
        """Answer a letter to a site."""
        return self.handler(name).handle(letter)

    def federation(self, **changed) -> mc.Federation:
        """Return the sites as the coordinator of their study sees them."""
        study = read_study(self.study_path)
        told = {
            "secure_sum": study.privacy.secure_sum,
            "study": study.name,
            "agreed": digest_of(study),
            "quorum": study.run.quorum,
            "names": self.names,
            **changed,
        }
        return mc.Federation.over(ByHand({name: partial(self.answer, name) for name in told.pop("names")}), **told)
