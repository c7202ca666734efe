"""Review of a proposal: everything that a steward sees before approving it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multicentre.errors import MulticentreError
from multicentre.privacy.card import DisclosureCard
from multicentre.studies.brief import Brief
from multicentre.studies.study import Study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.approvals import Approvals
from multicentre_sites.deployment.decisions import Decision
from multicentre_sites.deployment.proposals import Proposal
from multicentre_sites.deployment.site_check import brief_at, card_at
from multicentre_sites.deployment.site_folder import Site
from multicentre_sites.deployment.site_service import study_at_site

Change = Literal["", "NEW", "NEW, SIGNED", "KEYS CHANGED", "REMOVED"]


@dataclass(frozen=True)
class RosterChange:
    """Site of a proposed roster, compared with the pinned one.

    Parameters
    ----------
    name, fingerprint : str
        The fingerprint is empty for a removed site.
    change : {"", "NEW", "NEW, SIGNED", "KEYS CHANGED", "REMOVED"}
        A site is "NEW, SIGNED" if a release key that is approved here signed the roster. The fingerprint of any other
        new or changed site must be compared with the site itself.
    """

    name: str
    fingerprint: str
    change: Change


@dataclass(frozen=True)
class Review:
    """Content of a proposal at a site.

    Parameters
    ----------
    proposal : Proposal
    permitted : str
        Persons who may run a study once it is approved, and those whose permission ends; empty for other proposals.
    files : mapping of str to Path
        Files of this site that a study reads.
    card : DisclosureCard, optional
        Disclosure card of a study under the policy of this site.
    brief : Brief, optional
        What a steward reads first of a study.
    sites : tuple of RosterChange
        Sites of a roster.
    rejection : Decision, optional
        Rejection of the study in force, which an approval would replace.
    """

    proposal: Proposal
    permitted: str
    files: Mapping[str, Path]
    card: DisclosureCard | None
    brief: Brief | None
    sites: tuple[RosterChange, ...]
    rejection: Decision | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the whole review, by which an approval is bound to what was displayed."""
        return hashlib.sha256(self.text(fields=True).encode()).hexdigest()

    def __str__(self) -> str:
        return self.text(fields=False)

    def text(self, *, fields: bool) -> str:
        """Return the review as text, with or without every field of a study's card."""
        proposal = self.proposal
        lines = [] if self.brief is None else [self.brief.text(fields=fields), ""]
        if self.card is not None:
            lines += [self.card.text(fields=fields), ""]
        lines += [f"{proposal.kind} {proposal.name}".rstrip(), f"  fingerprint {proposal.fingerprint}"]
        if self.card is not None:
            lines += [f"  {self.permitted}", *(f"  reads {key} from {path}" for key, path in self.files.items())]
        if self.rejection is not None:
            lines.append(f"  {self.rejection.objection} ({self.rejection.time}); an approval replaces this")
        for site in self.sites:
            lines.append("  ".join(["", *filter(None, (site.name, site.fingerprint, site.change))]))
        return "\n".join(lines)


def review(site: Site, proposal: Proposal, approvals: Approvals, chosen: Mapping[str, str]) -> Review:
    """Return the review of a proposal.

    Parameters
    ----------
    site : Site
    proposal : Proposal
    approvals : Approvals
        Current approvals.
    chosen : mapping of str to str
        Names of the only analysts who may run a study, by fingerprint; empty for every approved analyst.

    Raises
    ------
    ConfigurationError
        The study does not name this site.
    """
    if proposal.kind == "study":
        study = proposal.study()
        files = study_at_site(site, study).sites[site.name]
        rejection = approvals.rejection_of(proposal.name, digest_of(study))
        permitted = f"{_permitted_analysts(approvals, chosen)}{_ended_permissions(approvals, study.name, chosen)}"
        brief = brief_at(site, study, asked_by=_asking(approvals, chosen), previous=_last_approved(approvals, study))
        return Review(proposal, permitted, files, card_at(site, study), brief, (), rejection)
    changes = _roster_changes(proposal, approvals) if proposal.kind == "roster" else ()
    return Review(proposal, "", {}, None, None, changes)


def _asking(approvals: Approvals, chosen: Mapping[str, str]) -> str:
    """Return names and fingerprints of the analysts who may ask for a run; without one, the coordinator asks."""
    names = chosen or approvals.analysts
    return ", ".join(f"{name} ({fingerprint})" for fingerprint, name in names.items()) or "the coordinator"


def _last_approved(approvals: Approvals, study: Study) -> Study | None:
    """Return the study of the latest approval, preferring one of the same name; None without a readable one."""
    names = sorted(approvals.studies, key=lambda name: (name == study.name, approvals.studies[name].time))
    for name in reversed(names):
        with contextlib.suppress(MulticentreError):  # approved with an earlier version
            return approvals.study(name)
    return None


def _permitted_analysts(approvals: Approvals, chosen: Mapping[str, str]) -> str:
    """Return a line that names the persons who may run a study once it is approved."""
    if chosen:
        names = ", ".join(f"{name} ({fingerprint})" for fingerprint, name in chosen.items())
        return f"run by these analysts only: {names}"
    if approvals.analysts:
        names = ", ".join(f"{name} ({fingerprint})" for fingerprint, name in approvals.analysts.items())
        return f"run by every approved analyst: {names}"
    if approvals.signed_only:
        return "run by nobody: runs require a signature, and no analyst is approved at this site any more"
    return "run by everyone whom the coordinator admits: no analyst is approved, and requests need no signature"


def _ended_permissions(approvals: Approvals, study: str, chosen: Mapping[str, str]) -> str:
    """Return the analysts who may run the approved study of this name and may no more after the new approval."""
    if not chosen or study not in approvals.studies:
        return ""
    permitted = approvals.studies[study].analysts or approvals.analysts
    ended = [f"{approvals.analysts[one]} ({one})" for one in permitted if one in approvals.analysts.keys() - chosen]
    return f"; this ends the permission of {', '.join(ended)}" if ended else ""


def _roster_changes(proposal: Proposal, approvals: Approvals) -> tuple[RosterChange, ...]:
    roster, before = proposal.roster(), approvals.roster()
    removed_cards = {} if before is None else {card.name: card.fingerprint for card in before.cards}
    signed, changes = approvals.vouches_for(roster), []
    for card in roster.cards:
        previous = removed_cards.pop(card.name, None)
        change: Change = "" if before is None or previous == card.fingerprint else "KEYS CHANGED" if previous else "NEW"
        if signed and previous is None:
            change = "NEW, SIGNED"
        changes.append(RosterChange(card.name, card.fingerprint, change))
    return (*changes, *(RosterChange(name, "", "REMOVED") for name in removed_cards))
