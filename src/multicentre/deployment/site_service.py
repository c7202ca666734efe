"""What a real site brings to the desk that answers its letters: approved studies, data, its own policy, ledger."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from multicentre.consortium.federation import facts_of, open_site
from multicentre.data import EventTensor, MultiViewData, SurvivalData, TableData
from multicentre.data.kinds import PatientData
from multicentre.deployment.approvals import Approvals, ApprovedStudy, WatchedApprovals, check_named
from multicentre.deployment.authority import read_public_key
from multicentre.deployment.cards import SiteCard
from multicentre.deployment.file_watch import FileSnapshot
from multicentre.deployment.signed_runs import OpenedRuns
from multicentre.deployment.site import Site, read_again
from multicentre.deployment.site_register import Roster
from multicentre.deployment.study_permissions import StudyGuard, StudyPermissions, permissions_of
from multicentre.engines.remote.analyst_request import check_request
from multicentre.engines.remote.packing import Opening
from multicentre.federation.asker import COORDINATOR, UNSIGNED, Asker, current_asker
from multicentre.federation.errors import (
    ConfigurationError,
    DataError,
    MulticentreError,
    ProtocolRefused,
    RefusedByPolicy,
)
from multicentre.federation.requester import COORDINATOR, UNSIGNED, Requester, current_requester
from multicentre.federation.runtime import SiteRuntime
from multicentre.federation.steps import SitePart
from multicentre.federation.storage import Store
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.ledger import Ledger, entries_of_all, repair_ledger
from multicentre.privacy.ledger_witnesses import Witness
from multicentre.privacy.minimum_counts import NoisedAnswers
from multicentre.privacy.people import people_of
from multicentre.privacy.policy import Policy
from multicentre.privacy.run_ledgers import note_terms, terms_of
from multicentre.studies.checks import check_study
from multicentre.studies.methods import find_reader
from multicentre.studies.study import Study

_APPROVE = "The site's steward approves studies: multicentre site approve STUDY.toml."
_APPROVE_ANALYST = (
    "The site's steward compares the fingerprint with the analyst and approves her: multicentre site approve "
    "NAME.analyst.toml; for one study: multicentre site approve STUDY.toml --for NAME.analyst.toml."
)


@dataclass(frozen=True, eq=False)
class OpenStudy:
    """A study as this site holds it: its data in memory, and the one guard of all its runs.

    The guard lasts until the steward changes study, settings or data: what it remembers of steps that broke, and of
    noise without a budget, does not begin anew because a coordinator opens another run.
    """

    approved: ApprovedStudy
    rules: FileSnapshot
    files: FileSnapshot
    study: Study
    agreed: StudyPermissions
    guard: StudyGuard
    data: PatientData
    key: PseudonymKey | None
    witness: Witness
    earlier_answers: EarlierAnswers = field(default_factory=EarlierAnswers)


class DeployedSiteService:
    """The studies, data, policy and keys of one real site.

    Parameters
    ----------
    site : Site

    Notes
    -----
    Approvals, settings and policy are looked at with every call: when they change, runs under way end, and the next one
    is under the new. The data of a study are read once, and again by the first run after their files have changed.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._held: dict[str, OpenStudy] = {}
        self._rosters: dict[str, str] = {}
        self._noised = NoisedAnswers(lambda: entries_of_all(site.ledgers))
        self._approvals = WatchedApprovals(site.approved)
        self._log = logging.getLogger(f"multicentre.site.{site.name}")
        self._alone = threading.Lock()

    def open(self, opening: Opening, store: Store) -> SiteRuntime:
        """Return what answers the calls of a run.

        Raises
        ------
        RefusedByPolicy
            The study is not approved here, its terms are others than those approved, a site of it is not on the
            roster that is pinned, or the analyst who asks is not approved or did not sign this opening.
        ConfigurationError, DataError, IntegrityError
            The site's data or keys cannot be used. Where files lie is said in the site's own log.
        """
        approvals = self._approvals.now()
        requester = self._checked_requester(opening, approvals)  # before data are read for a stranger
        held = self._hold(opening, approvals)
        self._check_sites(opening, held)
        masked, roster = held.agreed.masked, approvals.roster()
        peers = self._peers(roster, opening) if masked else {} if roster is None else roster.identities
        held.witness.trust({name: [key.hex()] for name, key in peers.items()}, peers=held.study.sites)
        self._rosters[opening.study] = approvals.roster_sha256
        runtime = open_site(
            self.site.name,
            held.data,
            held.guard,
            identity=self.site.identity if masked else None,
            peers=peers,
            store=store,
            key=held.key,
            earlier_answers=held.earlier_answers,
            terms=opening.terms,
            witness=held.witness,
        )
        runtime.requester = requester
        return runtime

    def close(self, run: str, attempt: int) -> None:
        """Note that an attempt of a run is over, so that its request opens it no more, also after a restart.

        Raises
        ------
        IntegrityError
            The list of signed runs cannot be read.
        """
        OpenedRuns(self.site.opened).close(run, attempt)

    def offers(self, study: str, method: str) -> type[SitePart]:
        """Return the site part of this name, among those that the study needs.

        Raises
        ------
        ConfigurationError
            The study needs none of this name, or is not open here.
        RefusedByPolicy
            The steward took the approval back since the run was opened, or, where sums are masked, pinned another
            roster.
        """
        held, approvals = self._of(study), self._approvals.now()
        if study not in approvals.studies:
            raise RefusedByPolicy("the approval of the study was taken back", where=study, hint=_APPROVE)
        if held.agreed.masked and self._rosters.get(study) != approvals.roster_sha256:
            raise RefusedByPolicy(
                "another roster is pinned here than when the run was opened", where=study, hint="Open the run anew."
            )
        return held.agreed.part(method)

    def facts(self, study: str) -> dict[str, Any]:
        """Return what the coordinator is told of the site when a run is opened.

        No count below the policy's minimum, none at all under a privacy budget, and no value of the data: names of
        columns, what the policy asks, and a keyed hash by which a run that is taken up again knows its data.
        """
        held = self._of(study)
        policy, people = held.guard.policy, held.guard.people
        key = self.site.vault_key.reveal()
        digest = hmac.new(key, f"data/v1/{study}/{held.data.digest()}".encode(), hashlib.sha256).hexdigest()
        return {
            **facts_of(policy),
            "counted": people.counted,
            "schema": schema_of(held.data),
            "patients": _shown(people.among().fewest(len(held.data)), policy),
            "data": digest,
        }

    def _of(self, study: str) -> OpenStudy:
        held = self._held.get(study)
        if held is None:
            raise ConfigurationError("the study is not open here", where=study, hint="Open the run first.")
        return held

    def _hold(self, opening: Opening, approvals: Approvals) -> OpenStudy:
        approved = approvals.studies.get(opening.study)
        if approved is None:
            raise RefusedByPolicy("the study was not approved here", where=opening.study, hint=_APPROVE)
        if not hmac.compare_digest(approved.terms, opening.terms):
            raise RefusedByPolicy(
                "the terms of the study are not those that were approved here",
                where=opening.study,
                hint=f"Compare study files with the site's steward: method, parameters, data, privacy. {_APPROVE}",
            )
        with self._alone:
            held = self._held.get(opening.study)
            if held is None or held.approved != approved or not (held.rules.unchanged and held.files.unchanged):
                try:
                    held = self._held[opening.study] = self._taken_up(approvals, approved, opening.study)
                except MulticentreError as error:
                    self._log.error("study %s: %s", opening.study, error)
                    raise _unsaid(error, opening.study) from None
            return held

    def _taken_up(self, approvals: Approvals, approved: ApprovedStudy, name: str) -> OpenStudy:
        site = self.site = read_again(self.site)
        rules = FileSnapshot.of(site.rules_for(name))
        study = study_at_site(site, approvals.study(name))
        key = study.privacy.pseudonym_key
        files = FileSnapshot.of([*study.sites[site.name].values(), *([] if key is None else [key])])
        agreed, policy = permissions_of(study), site.policy_for(name)
        data, before = read_data(site, study), self._held.get(name)
        ledger = open_ledger(site, name) if before is None else before.guard.ledger
        note_terms(ledger, terms_of(policy, agreed=approved.terms))
        people = people_of(data, site.name, one_row_per_patient=study.data.one_row_per_patient)
        guard = StudyGuard(
            agreed,
            policy,
            ledger,
            people,
            site=site.name,
            n_records=len(data),
            stands=lambda: self._stands(name, approved) and rules.unchanged,
            noised=self._noised,
        )
        allowed = open_site(site.name, data, guard).data
        hashes = None if key is None else PseudonymKey.read(key)
        witness = Witness(site.name, ledger) if before is None else before.witness
        return OpenStudy(approved, rules, files, study, agreed, guard, allowed, hashes, witness)

    def _stands(self, name: str, approved: ApprovedStudy) -> bool:
        approvals, requester = self._approvals.now(), current_requester()
        if approvals.studies.get(name) != approved:
            return False
        return requester is None or not approvals.objection_to(name, requester.fingerprint)

    def _checked_requester(self, opening: Opening, approvals: Approvals) -> Requester:
        """Return who asks for the run: the analyst or the coordinator whose signature holds here, or nobody known."""
        check_request(opening)
        requester = _requester(opening, approvals)
        if objection := approvals.objection_to(opening.study, requester.fingerprint):
            by = "" if requester.fingerprint is None else f" ({requester.name}, fingerprint {requester.fingerprint})"
            raise RefusedByPolicy(f"{objection}{by}", where="analyst", hint=_APPROVE_ANALYST)
        OpenedRuns(self.site.opened).note(opening)
        return requester

    def _check_sites(self, opening: Opening, held: OpenStudy) -> None:
        if self.site.name not in opening.sites or len(set(opening.sites)) < len(opening.sites):
            raise ProtocolRefused("every site must be named once, this one too", where="sites")
        strangers = [site for site in opening.sites if site not in held.study.sites]
        if strangers:
            raise ProtocolRefused(
                f"the site refuses, since the study that was approved there does not name {', '.join(strangers)}",
                where=self.site.name,
            )
        if len(opening.sites) < held.agreed.quorum:
            raise ProtocolRefused(
                f"the study needs {held.agreed.quorum} sites, and the run has {len(opening.sites)}",
                where="run.quorum",
                hint="Bring all sites of the study in, or agree on another quorum.",
            )
        if opening.secure_sum != held.study.masked:
            raise ProtocolRefused("the study that was approved says otherwise", where="privacy.secure_sum")

    def _peers(self, roster: Roster | None, opening: Opening) -> dict[str, bytes]:
        """Return whose masks are trusted: those of the sites on the roster that is pinned here, and no others."""
        if roster is None:
            raise RefusedByPolicy(
                "no roster is pinned here, so that nobody's masks can be trusted",
                where=self.site.name,
                hint="Its steward approves one: multicentre site approve roster.toml.",
            )
        check_named(roster, card_of(self.site))
        strangers = [site for site in opening.sites if site not in roster.names]
        if strangers:
            raise RefusedByPolicy(
                f"the site refuses, since the roster that is pinned there lacks {', '.join(strangers)}",
                where=self.site.name,
                hint=f"The steward of {self.site.name} approves the new roster: multicentre site approve roster.toml.",
            )
        return roster.identities


def _requester(opening: Opening, approvals: Approvals) -> Requester:
    """Return the party that an opening names; the coordinator is known by the release key that was approved."""
    request = opening.request
    if request is None:
        return UNSIGNED
    if request.analyst != COORDINATOR:
        return Requester(request.analyst, request.fingerprint)
    known = approvals.release_key(request.public_key)
    if known is None and approvals.release_keys:
        raise RefusedByPolicy(
            "the coordinator must sign by the release key that is approved here; it signed by another",
            where="analyst",
            hint="Its steward compares fingerprints and approves the key: multicentre site approve release.pub.",
        )
    return Requester(COORDINATOR, known)


def study_at_site(site: Site, study: Study) -> Study:
    """Return a study as it holds at a site: with the site's own files, policy and key in place of those it names.

    Files of other sites are left out, and so is every policy: a study's file neither weakens nor replaces the site's.

    Raises
    ------
    ConfigurationError
        The study does not name the site, or the files do not go with it.
    """
    if site.name not in study.sites:
        raise ConfigurationError(
            f"the study names no site {site.name!r}", where=study.name, hint="Ask its analyst to name it."
        )
    own = site.files_for(study.name) or study.sites[site.name]
    key = site.pseudonym_key_for(study.name) or study.privacy.pseudonym_key
    policy = {"policy": site.policy_for(study.name), "sites": {}, "pseudonym_key": key}
    files = {name: own if name == site.name else {} for name in study.sites}
    held = study.model_copy(update={"sites": files, "privacy": study.privacy.model_copy(update=policy)})
    check_study(held)
    return held


def read_data(site: Site, study: Study) -> PatientData:
    """Read the site's data for a study.

    Raises
    ------
    DataError, ConfigurationError
        They cannot be used; the message names file and column, never a value.
    """
    return find_reader(study.method)(study, site.name).data


def open_ledger(site: Site, study: str) -> Ledger:
    """Return the ledger of a study at a site, continued; an entry that a crash cut off is set aside first.

    Raises
    ------
    IntegrityError
        An entry was changed, removed, inserted, or not signed with the site's identity.
    """
    path, signer = site.ledger_of(study), site.identity
    if path.exists():
        repair_ledger(path, signer=signer, study=study)
    return Ledger(path, durable=True, signer=signer, study=study)


def card_of(site: Site) -> SiteCard:
    """Return the site's public card, from its keys."""
    return SiteCard(site.name, read_public_key(site.keys.node), site.identity.public.hex())


def schema_of(data: object) -> dict[str, Any]:
    """Return names and kinds of columns, by which the coordinator sees that sites fit together; nothing of patients."""
    if isinstance(data, MultiViewData):
        return {"kind": "views", **data.schema.to_dict()}
    if isinstance(data, EventTensor):
        return {"kind": "events", "modes": list(data.parts)}
    if isinstance(data, SurvivalData):
        return {"kind": "survival", **_columns(data), "unit": data.unit}
    if isinstance(data, TableData):
        return {"kind": "table", **_columns(data), "outcome": data.outcome}
    return {"kind": type(data).__name__}


def _columns(data: SurvivalData | TableData) -> dict[str, list[str]]:
    return {"columns": list(data.columns), "levels": list(data.levels)}


def _unsaid(error: MulticentreError, study: str) -> MulticentreError:
    """Return an error of the same family that tells nothing of files, columns and keys of this site."""
    kind = type(error) if isinstance(error, DataError) else ConfigurationError
    return kind(
        "the site cannot take up this study: its data or settings do not go with it",
        where=study,
        hint="Its steward runs: multicentre site check. The site's own log holds the details.",
    )


def _shown(count: int, policy: Policy) -> int | None:
    return None if policy.epsilon is not None or 0 < count < policy.min_patients else count
