"""Checks of a site before its first run."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from multicentre.core.disk import check_space
from multicentre.errors import (
    ConfigurationError,
    DataError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.federation import open_site
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import REFUSES, DisclosureCard
from multicentre.privacy.ledger import Ledger, TornLedger
from multicentre.privacy.patient_counts import ONE_RECORD, PatientCounts, people_of
from multicentre.privacy.policy import Policy
from multicentre.studies.brief import Brief, brief_of
from multicentre.studies.cross_validation import needs_pseudonym_key
from multicentre.studies.disclosure_cards import card_maker, study_card
from multicentre.studies.policy_conflicts import study_objections
from multicentre.studies.study import Study, make_estimators
from multicentre_sites.deployment.approvals import Approvals, ApprovedStudy, read_approvals
from multicentre_sites.deployment.connectivity import check_connection, read_certificate
from multicentre_sites.deployment.site_folder import Site
from multicentre_sites.deployment.site_opening import open_study_files
from multicentre_sites.deployment.site_process import find_modes
from multicentre_sites.deployment.site_register import Roster, check_named
from multicentre_sites.deployment.site_service import card_of, read_data, study_at_site
from multicentre_sites.deployment.study_permissions import StudyGuard, StudyPermissions, permissions_of

Level = Literal["ok", "note", "fault"]
_FEW_DAYS = 30  # time to request and install a new certificate
_OTHERS_WRITE = 0o022  # write permission of group and others


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Parameters
    ----------
    subject : str
    level : {"ok", "note", "fault"}
    detail : str
        Description of the result.
    exit_code : int
        Exit status of a fault.
    """

    subject: str
    level: Level
    detail: str
    exit_code: int = 0


_REGISTERED = "Registration of this site's key is not checked here: see site up."
_NOT_CHECKED = Finding("coordinator", "note", "not checked: this requires the certificate of its authority")


@dataclass
class Examination:
    """Results of all checks, and the disclosure card of each approved study."""

    findings: list[Finding] = field(default_factory=list)
    cards: dict[str, DisclosureCard] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit status of the first fault; 0 without one."""
        return next((one.exit_code for one in self.findings if one.level == "fault"), 0)

    def check(self, subject: str, run: Callable[[], str | Finding]) -> bool:
        """Run one check and store its result; return True if it raised no error."""
        try:
            result = run()
        except MulticentreError as error:
            self.findings.append(Finding(subject, "fault", error.with_notes, error.exit_code))
            return False
        self.findings.append(Finding(subject, "ok", result) if isinstance(result, str) else result)
        return True


def examine(site: Site, *, check_coordinator: bool = True, check_data: bool = True) -> Examination:
    """Check everything that a run needs.

    Parameters
    ----------
    site : Site
    check_coordinator : bool, default True
        Check the connection to the coordinator, too.
    check_data : bool, default True
        Check data and sites of approved studies against the policy and the roster, too. Otherwise a site that is
        missing from the roster is only a note.
    """
    examination = Examination()
    examination.check("folder", lambda: _folder(site))
    keys_valid = examination.check("keys", lambda: f"{card_of(site).name}, card {card_of(site).fingerprint}")
    examination.check("vault", lambda: _vault(site))
    trusted = examination.check("authority", lambda: _authority(site.ca))
    if check_coordinator:
        examination.check("coordinator", lambda: _coordinator(site) if trusted else _NOT_CHECKED)
    approvals = Approvals(site.approved)
    if examination.check("approvals", lambda: _count_approvals(read_approvals(site.approved))):
        approvals = read_approvals(site.approved)
    if keys_valid:
        examination.check("roster", lambda: _roster(site, approvals))
    examination.check("Flower", _flower)
    examination.findings.extend(_modes(approvals))
    for name in approvals.studies:
        examination.check(f"study {name}", lambda name=name: _study(site, approvals, name, examination, check_data))  # type: ignore[misc]
    return examination


_UNBOUNDED = (
    "the study promises differential privacy for one fit; this site's policy has no budget (epsilon), so nothing "
    "limits how often it is fitted."
)


_ASK_FOR_ROSTER = (
    "and its sums are masked, so that every run would be refused. Ask the coordinator whether these sites are "
    "registered, and for the current roster; then: multicentre site approve roster.toml."
)


def card_at(site: Site, study: Study) -> DisclosureCard:
    """Return the disclosure card of a study at this site, with the objections of the site's policy."""
    study = study_at_site(site, study)
    card = study_card(study)
    objections = [f"this site's policy {REFUSES}: {reason}." for reason in _objections(site, study)]
    has_plan = any(each.privacy_plan() is not None for each in make_estimators(study).values())
    unbounded = has_plan and site.policy_for(study.name).epsilon is None
    return dataclasses.replace(card, warnings=(*card.warnings, *objections, *([_UNBOUNDED] if unbounded else [])))


def brief_at(site: Site, study: Study, *, asked_by: str = "", previous: Study | None = None) -> Brief:
    """Return the brief of a study at this site, compared with the last study that it approved."""
    study = study_at_site(site, study)
    files = study.sites[site.name]
    return brief_of(study, card_maker(study), asked_by=asked_by, files=files, previous=previous)


def _objections(site: Site, study: Study) -> list[str]:
    return [one.reason for one in study_objections(study, site.policy_for(study.name))]


def _folder(site: Site) -> str | Finding:
    open_to = [
        path.name for path in (site.folder, site.approved, site.ledgers) if path.exists() and _others_write(path)
    ]
    if open_to:
        detail = f"others than its owner may write to {', '.join(open_to)}. Run: chmod -R go-w {site.folder}."
        return Finding("folder", "fault", detail, ConfigurationError.exit_code)
    check_space((site.folder, site.ledgers, site.state))
    return str(site.folder)


def _others_write(path: Path) -> bool:
    return os.name == "posix" and bool(stat.S_IMODE(path.stat().st_mode) & _OTHERS_WRITE)


def _authority(ca: Path) -> str | Finding:
    read_certificate(ca)
    certificate, *more = x509.load_pem_x509_certificates(ca.read_bytes())
    if not any(_is_trust_anchor(one) for one in (certificate, *more)):
        raise ConfigurationError(
            "ca must be the certificate of an authority; got the certificate of a server",
            where=str(ca),
            hint="Ask the coordinator for its file ca.crt, and compare its fingerprint over another channel.",
        )
    digits = certificate.fingerprint(SHA256()).hex()
    detail = f"SHA-256 {digits}, until {certificate.not_valid_after_utc:%Y-%m-%d}"
    days = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    if days < 0:
        return Finding("authority", "fault", f"{detail}: it has ended", ConfigurationError.exit_code)
    return Finding("authority", "note", f"{detail}: ask for the next") if days < _FEW_DAYS else detail


def _is_trust_anchor(certificate: x509.Certificate) -> bool:
    """Return True if TLS can trust a certificate directly: that of an authority, or a self-signed one."""
    if certificate.issuer == certificate.subject:
        return True
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _coordinator(site: Site) -> str | Finding:
    report = check_connection(site.address, site.ca)
    way = f" through the proxy {report.proxy}" if report.proxy else ""
    detail = f"{site.address} answers{way}, its certificate holds for {report.days_left:.0f} days"
    if report.skew_s is None:
        return Finding("coordinator", "note", f"{detail}, and it does not report its time. {_REGISTERED}")
    detail = f"{detail}, this clock is {report.skew_s:+.1f} s off (± {report.uncertainty_s:.1f})"
    if report.clock_error is not None:
        return Finding("coordinator", "fault", f"{detail}: {report.clock_error}", ConfigurationError.exit_code)
    level: Level = "note" if report.days_left < _FEW_DAYS else "ok"
    return Finding("coordinator", level, f"{detail}. {_REGISTERED}")


def _vault(site: Site) -> str:
    _ = site.vault_key  # raises if it cannot be read
    return f"the key that encrypts states can be read from {site.keys.vault}"


def _count_approvals(approvals: Approvals) -> str | Finding:
    counts = {
        ("bundle", "bundles"): approvals.apps,
        ("release key", "release keys"): approvals.release_keys,
        ("study", "studies"): approvals.studies,
        ("analyst", "analysts"): approvals.analysts,
    }
    detail = ", ".join(
        f"{len(items)} {singular if len(items) == 1 else plural}" for (singular, plural), items in counts.items()
    )
    if rejections := approvals.rejections:
        detail += f"; rejected: {', '.join(one.study for one in rejections)}"
    if approvals.studies and not approvals.analysts:
        note = (
            "no run can be signed"
            if approvals.signed_only
            else "runs need no signature, so that the analyst is unknown"
        )
        return Finding("approvals", "note", f"{detail}: {note}")
    return detail if approvals.studies else Finding("approvals", "note", f"{detail}: no study can run yet")


def _roster(site: Site, approvals: Approvals) -> str | Finding:
    roster = approvals.roster()
    if roster is None:
        return Finding("roster", "note", "none is pinned: this site cannot take part in masked sums")
    check_named(roster, card_of(site))
    return f"names this site among {', '.join(roster.names)}"


def _flower() -> str:
    try:
        return importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigurationError(
            "Flower must be installed; it was not found",
            hint="Install multicentre-sites; in a clone: pip install ./sites.",
        ) from None


def _modes(approvals: Approvals) -> Iterator[Finding]:
    modes = find_modes(approvals)
    for name, obstacle in (("standard", modes.standard), ("fast", modes.fast)):
        yield Finding(f"mode {name}", "note" if obstacle else "ok", obstacle or "possible")
    if modes.standard and modes.fast:
        hint = "Approve a release key or a bundle: multicentre site approve."
        yield Finding("modes", "fault", f"no mode is possible. {hint}", ConfigurationError.exit_code)


def _study(site: Site, approvals: Approvals, name: str, examination: Examination, check_data: bool) -> str | Finding:
    try:
        approvals.check_protocol(name)
    except RefusedByPolicy as error:
        if check_data:
            raise
        return Finding(f"study {name}", "note", str(error))  # the site starts, since other studies can run
    study = study_at_site(site, approvals.study(name))
    permissions = permissions_of(study)
    examination.cards[name] = card_at(site, study)
    if refused := _objections(site, study):
        raise RefusedByPolicy(
            f"this site's policy refuses the study: {'; '.join(refused)}", where=name, hint="Change one of the two."
        )
    key = _pseudonym_key(study)
    if study.masked and approvals.roster() is None:
        raise ConfigurationError(
            "a roster must be pinned for a study with masked sums; got none", where=name, hint="Approve one."
        )
    details = [_entries(site, name, approvals.studies[name]), *([f"key of pseudonyms {key}"] if key else [])]
    if check_data:
        details = [_patients(site, study, permissions, examination.cards[name]), *details]
    return _with_roster(study, approvals.roster(), ", ".join(details), needed=check_data and study.masked)


def _patients(site: Site, study: Study, permissions: StudyPermissions, card: DisclosureCard) -> str:
    """Return the number of patients that can be read; raise if they do not meet the policy."""
    policy, data = site.policy_for(study.name), read_data(site, study)
    people = people_of(data, site.name, one_row_per_patient=study.data.one_row_per_patient)
    patients = open_site(site.name, data, StudyGuard(permissions, policy, Ledger(), people, site=site.name)).data
    if policy.min_difference and not people.names_all:
        raise DataError(
            "every record must have a patient identifier if the policy has min_difference; got records without",
            where=study.name,
            hint="Have the study name data.id_column, or write min_difference = 0.",
        )
    _check_enough(patients, people.among(), policy, card, study)
    if card.noised and not all(map(people.are_hidden_by, permissions.noised_parts)):
        raise RefusedByPolicy(
            f"the noise of the study hides one record per patient; got up to {people.most_records} records per patient",
            where=study.name,
            hint=ONE_RECORD,
        )
    n_patients = people.among().fewest(len(patients))
    several = f"records of {n_patients:,} patients" if n_patients < len(patients) else people.counted
    return f"{len(patients)} {several} can be read"


def _check_enough(data: Any, crowd: PatientCounts, policy: Policy, card: DisclosureCard, study: Study) -> None:
    """Raise RefusedByPolicy if there are too few patients for the releases of the study."""
    if all(step in card.individual for step, _ in card.steps):
        return
    counts = {} if card.noised else getattr(data, "n_patients_by_view", {})
    least, key = (policy.least_in_share if study.masked else policy.min_patients), "min_patients"
    key += "_in_share" * (least < policy.min_patients)
    few = [f"view {view} has" for view, count in counts.items() if 0 < crowd.fewest(count) < least]
    if 0 < crowd.fewest(len(data)) < least:
        few = ["the data have"]
    if few:
        raise RefusedByPolicy(
            f"{few[0]} fewer patients here than the {least} that this site's policy requires "
            f"({key}), so that every run would be refused",
            where=study.name,
            hint=f"Ask its analyst to leave this site or the view out, or change {key} in the policy.",
        )


def _with_roster(study: Study, roster: Roster | None, detail: str, *, needed: bool) -> str | Finding:
    """Return the result for a study, with the sites that are missing from the pinned roster."""
    missing_sites = () if roster is None else [name for name in study.sites if name not in roster.names]
    if not missing_sites:
        return detail
    detail = f"{detail}; the roster that is pinned here does not name {', '.join(missing_sites)}"
    if needed:
        return Finding(f"study {study.name}", "fault", f"{detail} {_ASK_FOR_ROSTER}", ConfigurationError.exit_code)
    return Finding(f"study {study.name}", "note", detail)


def _entries(site: Site, study: str, approved: ApprovedStudy) -> str:
    """Open the files of a study as a run does and return the number of entries; the site may be writing to them."""
    begun = site.ledger_of(study).exists()
    try:
        n_entries = open_study_files(site, study, approved, repair=False).ledger.head.entries
    except TornLedger:
        return "a ledger whose last entry was cut off, which is set aside when a run is opened"
    return f"{n_entries:,} entries in the ledger" if begun else "no ledger yet"


def _pseudonym_key(study: Study) -> str:
    """Return the fingerprint of the study's pseudonym key; empty if it needs none."""
    path = study.privacy.pseudonym_key
    if path is not None:
        return PseudonymKey.read(path).fingerprint(study.name)
    if needs_pseudonym_key(study):
        raise ConfigurationError(
            "the study identifies patients by pseudonyms and needs a pseudonym key; got none",
            where=study.name,
            hint="One site makes it (multicentre secret new) and gives it to the others; each names it in site.toml as "
            f'pseudonym_key, under [studies."{study.name}"].',
        )
    return ""
