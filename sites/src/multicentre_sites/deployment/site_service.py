"""Service of a real site for its request handler: approved studies, data, policy and ledger."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from multicentre.core.differencing import EarlierAnswers
from multicentre.core.protocol import describe_differences
from multicentre.core.requester import COORDINATOR, UNSIGNED, Requester, current_requester
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import SitePart
from multicentre.core.storage import Store
from multicentre.data import EventTensor, MultiViewData, SurvivalAndTable, SurvivalData, TableData
from multicentre.data.kinds import PatientData
from multicentre.engines.remote.opening import Opening, check_request
from multicentre.errors import (
    ConfigurationError,
    DataError,
    IntegrityError,
    MulticentreError,
    ProtocolRefused,
    RefusedByPolicy,
)
from multicentre.federation import facts_of, open_site
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.ledger import entries_of_all
from multicentre.privacy.ledger_witnesses import LostEntries, acknowledged_losses
from multicentre.privacy.minimum_counts import NoisedAnswers
from multicentre.privacy.patient_counts import people_of
from multicentre.privacy.run_ledgers import note_terms, terms_of
from multicentre.privacy.site_cards import SiteCard
from multicentre.studies.checks import check_study
from multicentre.studies.site_data import reader_of
from multicentre.studies.study import Study
from multicentre_sites.deployment.approvals import Approvals, ApprovedStudy, WatchedApprovals
from multicentre_sites.deployment.certificates import read_public_key
from multicentre_sites.deployment.private_files import FileSnapshot
from multicentre_sites.deployment.signed_runs import OpenedRuns
from multicentre_sites.deployment.site_folder import Site, read_again
from multicentre_sites.deployment.site_opening import StudyFiles, open_study_files
from multicentre_sites.deployment.site_register import Roster, check_named
from multicentre_sites.deployment.study_permissions import StudyGuard, StudyPermissions, permissions_of

_APPROVE = "The site's steward approves studies: multicentre site approve STUDY.toml."
_REJECTED = "Write to the steward. A study with other terms needs a new decision, and an approval replaces a rejection."
_APPROVE_ANALYST = (
    "The site's steward compares the fingerprint with the analyst and approves her: multicentre site approve "
    "NAME.analyst.toml; for one study: multicentre site approve STUDY.toml --for NAME.analyst.toml."
)


@dataclass(frozen=True, eq=False)
class OpenStudy:
    """A study with its data in memory and the one guard of all its runs.

    The guard lasts until the steward changes the study, the settings or the data. Its records of failed steps and of
    noise without a budget are therefore not reset when a coordinator opens another run.
    """

    approved: ApprovedStudy
    rules: FileSnapshot
    files: FileSnapshot
    study: Study
    permissions: StudyPermissions
    guard: StudyGuard
    data: PatientData
    key: PseudonymKey | None
    opened: StudyFiles
    earlier_answers: EarlierAnswers = field(default_factory=EarlierAnswers)


class DeployedSiteService:
    """Studies, data, policy and keys of a real site.

    Parameters
    ----------
    site : Site

    Notes
    -----
    Approvals, settings and policy are checked with every call: when they change, open runs end and the next run uses
    the new ones. The data of a study are read once, and again by the first run after their files have changed.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._open_studies: dict[str, OpenStudy] = {}
        self._rosters: dict[str, str] = {}
        self._noised = NoisedAnswers(lambda: entries_of_all(site.ledgers))
        self._approvals = WatchedApprovals(site.approved)
        self._log = logging.getLogger(f"multicentre.site.{site.name}")
        self._lock = threading.Lock()

    def open(self, opening: Opening, store: Store) -> SiteRuntime:
        """Return the runtime that answers the calls of a run.

        Raises
        ------
        RefusedByPolicy
            The study is rejected or not approved here, its terms differ from the approved ones, a site is not on the
            pinned roster, or the analyst is not approved or did not sign this opening.
        ConfigurationError, DataError, IntegrityError
            The site's data or keys cannot be used. Only the site's log names the files.
        """
        approvals = self._approvals.now()
        requester = self._check_requester(opening, approvals)  # before data are read for an unknown analyst
        open_study = self._open_study(opening, approvals)
        self._check_sites(opening, open_study)
        masked, roster = open_study.permissions.masked, approvals.roster()
        peers = self._peers(roster, opening) if masked else {} if roster is None else roster.identities
        open_study.opened.witness.trust(
            {name: [key.hex()] for name, key in peers.items()}, peers=open_study.study.sites
        )
        self._rosters[opening.study] = approvals.roster_sha256
        runtime = open_site(
            self.site.name,
            open_study.data,
            open_study.guard,
            identity=self.site.identity if masked else None,
            peers=peers,
            store=store,
            key=open_study.key,
            earlier_answers=open_study.earlier_answers,
            terms=opening.terms,
            witness=open_study.opened.witness,
        )
        runtime.requester = requester
        return runtime

    def close(self, run: str, attempt: int) -> None:
        """Record that an attempt of a run is over; its request is not accepted again, even after a restart.

        Raises
        ------
        IntegrityError
            The list of signed runs cannot be read.
        """
        OpenedRuns(self.site.opened).close(run, attempt)

    def offers(self, study: str, method: str) -> type[SitePart]:
        """Return the site part of this name if the study needs it.

        Raises
        ------
        ConfigurationError
            The study needs no part of this name, or is not open here.
        RefusedByPolicy
            The steward revoked the approval or rejected the study since the run was opened, or pinned another roster
            while sums are masked.
        """
        open_study, approvals = self._of(study), self._approvals.now()
        _check_not_rejected(approvals, study, open_study.approved.terms)
        if study not in approvals.studies:
            raise RefusedByPolicy(
                "the study must be approved here; its approval was revoked", where=study, hint=_APPROVE
            )
        if open_study.permissions.masked and self._rosters.get(study) != approvals.roster_sha256:
            raise RefusedByPolicy(
                "the pinned roster must be that of the opening of the run; got another",
                where=study,
                hint="Resume the run.",
            )
        return open_study.permissions.part(method)

    def facts(self, study: str) -> dict[str, Any]:
        """Return the facts for the coordinator when a run is opened.

        They contain no value and no count of the data: names of columns, requirements of the policy, a keyed hash by
        which a resumed run recognises its data, the ends of the peers' ledgers on file here, and losses of the ledger.
        """
        open_study = self._of(study)
        policy = open_study.guard.policy
        key = self.site.vault_key.reveal()
        digest = hmac.new(key, f"data/v1/{study}/{open_study.data.digest()}".encode(), hashlib.sha256).hexdigest()
        return {
            **facts_of(policy),
            "counted": open_study.guard.people.counted,
            "schema": schema_of(open_study.data),
            "identity": self.site.identity.public.hex(),
            "ends": open_study.opened.witness.stated,
            "losses": acknowledged_losses(open_study.guard.ledger),
            "data": digest,
        }

    def _of(self, study: str) -> OpenStudy:
        open_study = self._open_studies.get(study)
        if open_study is None:
            raise ConfigurationError(
                "a run of the study must be open here; got none", where=study, hint="Open the run first."
            )
        return open_study

    def _open_study(self, opening: Opening, approvals: Approvals) -> OpenStudy:
        _check_not_rejected(approvals, opening.study, opening.terms)
        approved = approvals.studies.get(opening.study)
        if approved is None:
            raise RefusedByPolicy("the study must be approved here; it is not", where=opening.study, hint=_APPROVE)
        approvals.check_protocol(opening.study)
        if opening.protocol and (changes := describe_differences(approved.protocol, opening.protocol)):
            raise RefusedByPolicy(
                f"the coordinator must use the protocol and steps that are approved here; it has others: {changes}",
                where=opening.study,
                hint="Its release and that of the approval differ in what they exchange: install the same one, and "
                "approve the study again.",
            )
        if not hmac.compare_digest(approved.terms, opening.terms):
            raise RefusedByPolicy(
                "the terms of the study must be those that are approved here; got others",
                where=opening.study,
                hint=f"Compare study files with the site's steward: method, parameters, data, privacy. {_APPROVE}",
            )
        with self._lock:
            open_study = self._open_studies.get(opening.study)
            if (
                open_study is None
                or open_study.approved != approved
                or not (open_study.rules.unchanged and open_study.files.unchanged)
            ):
                try:
                    open_study = self._open_studies[opening.study] = self._load_study(
                        approvals, approved, opening.study
                    )
                except MulticentreError as error:
                    self._log.error("study %s: %s", opening.study, error)
                    raise _without_details(error, opening.study) from None
            return open_study

    def _load_study(self, approvals: Approvals, approved: ApprovedStudy, name: str) -> OpenStudy:
        site = self.site = read_again(self.site)
        rules = FileSnapshot.of(site.rules_for(name))
        study = study_at_site(site, approvals.study(name))
        key = study.privacy.pseudonym_key
        files = FileSnapshot.of([*study.sites[site.name].values(), *([] if key is None else [key])])
        permissions, previous = permissions_of(study), self._open_studies.get(name)
        opened = open_study_files(site, name, approved, None if previous is None else previous.opened, repair=True)
        data = read_data(site, study)
        note_terms(opened.ledger, terms_of(opened.policy, agreed=approved.terms))
        people = people_of(data, site.name, one_row_per_patient=study.data.one_row_per_patient)
        guard = StudyGuard(
            permissions,
            opened.policy,
            opened.ledger,
            people,
            site=site.name,
            n_records=len(data),
            stands=lambda: self._stands(name, approved) and rules.unchanged,
            noised=self._noised,
        )
        allowed = open_site(site.name, data, guard).data
        hashes = None if key is None else PseudonymKey.read(key)
        return OpenStudy(approved, rules, files, study, permissions, guard, allowed, hashes, opened)

    def _stands(self, name: str, approved: ApprovedStudy) -> bool:
        approvals, requester = self._approvals.now(), current_requester()
        if approvals.studies.get(name) != approved:
            return False
        return requester is None or not approvals.objection_to(name, requester.fingerprint)

    def _check_requester(self, opening: Opening, approvals: Approvals) -> Requester:
        """Return the requester of a run: the analyst or coordinator with a valid signature, or an unsigned one."""
        check_request(opening)
        requester = _requester(opening, approvals)
        if objection := approvals.objection_to(opening.study, requester.fingerprint):
            by = "" if requester.fingerprint is None else f" ({requester.name}, fingerprint {requester.fingerprint})"
            raise RefusedByPolicy(f"{objection}{by}", where="analyst", hint=_APPROVE_ANALYST)
        OpenedRuns(self.site.opened).note(opening)
        return requester

    def _check_sites(self, opening: Opening, open_study: OpenStudy) -> None:
        if self.site.name not in opening.sites or len(set(opening.sites)) < len(opening.sites):
            raise ProtocolRefused("every site must be named once, including this one; got others", where="sites")
        strangers = [site for site in opening.sites if site not in open_study.study.sites]
        if strangers:
            raise ProtocolRefused(
                f"sites must be named by the study that is approved here; got {', '.join(strangers)}",
                where=self.site.name,
            )
        if len(opening.sites) < open_study.permissions.quorum:
            raise ProtocolRefused(
                f"the study requires at least {open_study.permissions.quorum} sites; got {len(opening.sites)}",
                where="run.quorum",
                hint="Include all sites of the study, or agree on another quorum.",
            )
        if opening.secure_sum != open_study.study.masked:
            raise ProtocolRefused(
                "secure_sum must be that of the approved study; got another value", where="privacy.secure_sum"
            )

    def _peers(self, roster: Roster | None, opening: Opening) -> dict[str, bytes]:
        """Return the peers whose masks are trusted: the sites on the pinned roster, and no others."""
        if roster is None:
            raise RefusedByPolicy(
                "a roster must be pinned here for masked sums; got none",
                where=self.site.name,
                hint="Its steward approves one: multicentre site approve roster.toml.",
            )
        check_named(roster, card_of(self.site))
        strangers = [site for site in opening.sites if site not in roster.names]
        if strangers:
            raise RefusedByPolicy(
                f"sites must be on the roster that is pinned here; got {', '.join(strangers)}",
                where=self.site.name,
                hint=f"The steward of {self.site.name} approves the new roster: multicentre site approve roster.toml.",
            )
        return roster.identities


def _check_not_rejected(approvals: Approvals, study: str, terms: str) -> None:
    """Raise RefusedByPolicy with the steward's reason if these terms are rejected."""
    if rejection := approvals.rejection_of(study, terms):
        raise RefusedByPolicy(rejection.objection, where=study, hint=_REJECTED)


def _requester(opening: Opening, approvals: Approvals) -> Requester:
    """Return the requester that an opening names; a coordinator is identified by its approved release key."""
    request = opening.request
    if request is None:
        return UNSIGNED
    if request.analyst != COORDINATOR:
        return Requester(request.analyst, request.fingerprint)
    key_fingerprint = approvals.release_key(request.public_key)
    if key_fingerprint is None and approvals.release_keys:
        raise RefusedByPolicy(
            "the coordinator must sign by the release key that is approved here; it signed by another",
            where="analyst",
            hint="Its steward compares fingerprints and approves the key: multicentre site approve release.pub.",
        )
    return Requester(COORDINATOR, key_fingerprint)


def study_at_site(site: Site, study: Study) -> Study:
    """Return a study with the files, policy and key of this site in place of those it names.

    Files of other sites and policies of the study are dropped: a study neither weakens nor replaces a site's policy.

    Raises
    ------
    ConfigurationError
        The study does not name the site, or its files do not fit the study.
    """
    if site.name not in study.sites:
        raise ConfigurationError(
            f"the study must name this site, {site.name!r}; got others",
            where=study.name,
            hint="Ask its analyst to name it.",
        )
    site_files = site.files_for(study.name) or study.sites[site.name]
    key = site.pseudonym_key_for(study.name) or study.privacy.pseudonym_key
    policy = {"policy": site.policy_for(study.name), "sites": {}, "pseudonym_key": key}
    files = {name: site_files if name == site.name else {} for name in study.sites}
    local_study = study.model_copy(update={"sites": files, "privacy": study.privacy.model_copy(update=policy)})
    check_study(local_study)
    return local_study


def read_data(site: Site, study: Study) -> PatientData:
    """Read the site's data for a study.

    Raises
    ------
    DataError, ConfigurationError
        They cannot be used; the message names file and column, never a value.
    """
    return reader_of(study)(study, site.name).data


def card_of(site: Site) -> SiteCard:
    """Return the site's public card, from its keys."""
    return SiteCard(site.name, read_public_key(site.keys.node), site.identity.public.hex())


def schema_of(data: object) -> dict[str, Any]:
    """Return names and kinds of columns, for the comparison of sites; no values."""
    if isinstance(data, MultiViewData):
        return {"kind": "views", **data.schema.to_dict()}
    if isinstance(data, EventTensor):
        return {"kind": "events", "modes": list(data.parts)}
    if isinstance(data, SurvivalAndTable):
        return {"kind": "survival and table", "survival": schema_of(data.survival), "table": schema_of(data.table)}
    if isinstance(data, SurvivalData):
        return {"kind": "survival", **_columns(data), "unit": data.unit}
    if isinstance(data, TableData):
        return {"kind": "table", **_columns(data), "outcome": data.outcome}
    return {"kind": type(data).__name__}


def _columns(data: SurvivalData | TableData) -> dict[str, list[str]]:
    return {"columns": list(data.columns), "levels": list(data.levels)}


def _without_details(error: MulticentreError, study: str) -> MulticentreError:
    """Return an error of the same family without files, columns and keys of this site.

    That entries of its ledger are lost concerns the other parties, who may have copies of what it signed.
    """
    if isinstance(error, LostEntries):
        hint = "Its steward restores the ledger, or acknowledges the loss: multicentre site acknowledge STUDY."
        return IntegrityError(error.what, where=study, hint=hint)
    kind = type(error) if isinstance(error, DataError) else ConfigurationError
    return kind(
        "the site cannot open this study: its data or settings do not fit the study",
        where=study,
        hint="Its steward runs: multicentre site check. The site's own log holds the details.",
    )
