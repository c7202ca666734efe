"""All that can go wrong at a site before its first run, looked at one after the other."""

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

from multicentre.consortium.federation import open_site
from multicentre.deployment.approvals import Approvals, check_named, read_approvals
from multicentre.deployment.connectivity import check_connection, read_certificate
from multicentre.deployment.site import Site
from multicentre.deployment.site_process import find_modes
from multicentre.deployment.site_register import Roster
from multicentre.deployment.site_service import card_of, read_data, study_at_site
from multicentre.deployment.study_permissions import StudyGuard, StudyPermissions, permissions_of
from multicentre.federation.errors import (
    ConfigurationError,
    DataError,
    IntegrityError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import DisclosureCard
from multicentre.privacy.ledger import Ledger, verify_ledger
from multicentre.privacy.people import ONE_RECORD, PatientCounts, people_of
from multicentre.privacy.policy import Policy
from multicentre.studies.cards import study_card
from multicentre.studies.methods import make_estimator
from multicentre.studies.policy_conflicts import find_objections
from multicentre.studies.study import Study

Level = Literal["ok", "note", "fault"]
MOST_SKEW_S = 5.0
_FEW_DAYS = 30
_OTHERS_WRITE = 0o022
_HASHES_PEOPLE = ("alignment", "hashed-folds", "site-folds")


@dataclass(frozen=True)
class Finding:
    """What one look found.

    Parameters
    ----------
    what : str
        What was looked at.
    level : {"ok", "note", "fault"}
    said : str
    exit_code : int
        Of a fault.
    """

    what: str
    level: Level
    said: str
    exit_code: int = 0


_REGISTERED = "Whether it has registered this site's key is not looked at here: site up tells."
_NOT_ASKED = Finding("coordinator", "note", "not asked: that takes the certificate of its authority")


@dataclass
class Examination:
    """All that was found at a site, and what each approved study would let out of it."""

    findings: list[Finding] = field(default_factory=list)
    cards: dict[str, DisclosureCard] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """That of the first fault, 0 without one."""
        return next((one.exit_code for one in self.findings if one.level == "fault"), 0)

    def look(self, what: str, at: Callable[[], str | Finding]) -> bool:
        """Look at one thing and note what is found; return whether no error was raised."""
        try:
            found = at()
        except MulticentreError as error:
            self.findings.append(Finding(what, "fault", str(error), error.exit_code))
            return False
        self.findings.append(Finding(what, "ok", found) if isinstance(found, str) else found)
        return True


def examine(site: Site, *, far: bool = True, data: bool = True) -> Examination:
    """Look at everything that a run needs.

    Parameters
    ----------
    site : Site
    far : bool, default True
        Whether the coordinator is looked for as well.
    data : bool, default True
        Whether what only runs of approved studies need is held against the policy and the roster as well: their data
        and their sites. Without it a site that the roster lacks is a note.
    """
    found = Examination()
    found.look("folder", lambda: _folder(site))
    keys_hold = found.look("keys", lambda: f"{card_of(site).name}, card {card_of(site).fingerprint}")
    found.look("vault", lambda: f"its key can be read: {site.vault_key!r}")
    trusted = found.look("authority", lambda: _authority(site.ca))
    if far:
        found.look("coordinator", lambda: _coordinator(site) if trusted else _NOT_ASKED)
    approvals = Approvals(site.approved)
    if found.look("approvals", lambda: _counted(read_approvals(site.approved))):
        approvals = read_approvals(site.approved)
    if keys_hold:
        found.look("roster", lambda: _roster(site, approvals))
    found.look("Flower", _flower)
    found.findings.extend(_modes(approvals))
    for name in approvals.studies:
        found.look(f"study {name}", lambda name=name: _study(site, approvals, name, found, data))  # type: ignore[misc]
    return found


_UNBOUNDED = (
    "the study promises differential privacy for one fit; this site's policy has no budget (epsilon), so nothing "
    "limits how often it is fitted."
)


_ASK_FOR_ROSTER = (
    "and its sums are masked, so that every run would be refused. Ask the coordinator whether these sites are "
    "registered, and for the present roster; then: multicentre site approve roster.toml."
)


def card_at(site: Site, study: Study) -> DisclosureCard:
    """Return what a study would let out of this site under its own policy, with what that policy has against it."""
    study = study_at_site(site, study)
    card = study_card(study)
    objections = [f"this site's policy refuses this study: {said}." for said in _objections(site, study)]
    unbounded = make_estimator(study).privacy_plan() is not None and site.policy_for(study.name).epsilon is None
    return dataclasses.replace(card, warnings=(*card.warnings, *objections, *([_UNBOUNDED] if unbounded else [])))


def _objections(site: Site, study: Study) -> list[str]:
    found = find_objections(study, make_estimator(study), site.policy_for(study.name))
    return [one.reason for one in found]


def _folder(site: Site) -> str | Finding:
    open_to = [
        path.name for path in (site.folder, site.approved, site.ledgers) if path.exists() and _others_write(path)
    ]
    if open_to:
        said = f"others than its owner may write to {', '.join(open_to)}. Run: chmod -R go-w {site.folder}."
        return Finding("folder", "fault", said, ConfigurationError.exit_code)
    return str(site.folder)


def _others_write(path: Path) -> bool:
    return os.name == "posix" and bool(stat.S_IMODE(path.stat().st_mode) & _OTHERS_WRITE)


def _authority(ca: Path) -> str | Finding:
    read_certificate(ca)
    certificate, *more = x509.load_pem_x509_certificates(ca.read_bytes())
    if not any(_vouches(one) for one in (certificate, *more)):
        raise ConfigurationError(
            "this is the certificate of a server, not of an authority",
            where=str(ca),
            hint="Ask the coordinator for its file ca.crt, and compare its fingerprint by another way.",
        )
    digits = certificate.fingerprint(SHA256()).hex()
    said = f"SHA-256 {digits}, until {certificate.not_valid_after_utc:%Y-%m-%d}"
    days = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    if days < 0:
        return Finding("authority", "fault", f"{said}: it has ended", ConfigurationError.exit_code)
    return Finding("authority", "note", f"{said}: ask for the next") if days < _FEW_DAYS else said


def _vouches(certificate: x509.Certificate) -> bool:
    """Tell whether TLS can start from a certificate: that of an authority, or one that vouches for itself."""
    if certificate.issuer == certificate.subject:
        return True
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _coordinator(site: Site) -> str | Finding:
    reached = check_connection(site.address, site.ca)
    way = f" through the proxy {reached.proxy}" if reached.proxy else ""
    said = f"{site.address} answers{way}, its certificate holds for {reached.days_left:.0f} days"
    if reached.skew_s is None:
        return Finding("coordinator", "note", f"{said}, and it does not tell the time. {_REGISTERED}")
    said = f"{said}, this clock is {reached.skew_s:+.1f} s off (± {reached.uncertainty_s:.1f})"
    if abs(reached.skew_s) - reached.uncertainty_s > MOST_SKEW_S:
        hint = f"more than {MOST_SKEW_S:g} s, with which signatures do not count: set the clock (NTP)"
        return Finding("coordinator", "fault", f"{said}, {hint}", ConfigurationError.exit_code)
    level: Level = "note" if reached.days_left < _FEW_DAYS else "ok"
    return Finding("coordinator", level, f"{said}. {_REGISTERED}")


def _counted(approvals: Approvals) -> str | Finding:
    said = (
        f"{len(approvals.apps)} bundles, {len(approvals.release_keys)} release keys, {len(approvals.studies)} studies, "
        f"{len(approvals.analysts)} analysts"
    )
    if approvals.studies and not approvals.analysts:
        who = "no run can be signed" if approvals.signed_only else "runs need no signature, and nobody is known to ask"
        return Finding("approvals", "note", f"{said}: {who}")
    return said if approvals.studies else Finding("approvals", "note", f"{said}: no study can run yet")


def _roster(site: Site, approvals: Approvals) -> str | Finding:
    roster = approvals.roster()
    if roster is None:
        return Finding("roster", "note", "none is pinned: no masked sum can be joined")
    check_named(roster, card_of(site))
    return f"names this site among {', '.join(roster.names)}"


def _flower() -> str:
    try:
        return importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigurationError(
            "Flower is not installed here", hint="Install it: pip install 'multicentre[flower]'."
        ) from None


def _modes(approvals: Approvals) -> Iterator[Finding]:
    modes = find_modes(approvals)
    for name, against in (("standard", modes.standard), ("fast", modes.fast)):
        yield Finding(f"mode {name}", "note" if against else "ok", against or "possible")
    if modes.standard and modes.fast:
        hint = "Approve a release key or a bundle: multicentre site approve."
        yield Finding("modes", "fault", f"the site cannot run in any. {hint}", ConfigurationError.exit_code)


def _study(site: Site, approvals: Approvals, name: str, found: Examination, data: bool) -> str | Finding:
    study = study_at_site(site, approvals.study(name))
    agreed = permissions_of(study)
    found.cards[name] = card_at(site, study)
    if refused := _objections(site, study):
        raise RefusedByPolicy(
            f"this site's policy refuses it: {'; '.join(refused)}", where=name, hint="Change one of the two."
        )
    key = _pseudonym_key(study, agreed)
    if study.masked and approvals.roster() is None:
        raise ConfigurationError("its sums are masked, and no roster is pinned", where=name, hint="Approve one.")
    told = [_entries(site, name), *([f"key of pseudonyms {key}"] if key else [])]
    if data:
        told = [_patients(site, study, agreed, found.cards[name]), *told]
    return _with_roster(study, approvals.roster(), ", ".join(told), needed=data and study.masked)


def _patients(site: Site, study: Study, agreed: StudyPermissions, card: DisclosureCard) -> str:
    """Return how many patients can be read; raise where the policy cannot be kept with them."""
    policy, read = site.policy_for(study.name), read_data(site, study)
    people = people_of(read, site.name, one_row_per_patient=study.data.one_row_per_patient)
    patients = open_site(site.name, read, StudyGuard(agreed, policy, Ledger(), people, site=site.name)).data
    if policy.min_difference and not people.names_all:
        raise DataError(
            "the policy compares cohorts (min_difference), and not every record of these patients has an identifier",
            where=study.name,
            hint="Have the study name data.id_column, or write min_difference = 0.",
        )
    _check_enough(patients, people.among(), policy, card, study.name)
    if card.noised and not people.are_hidden_by(agreed.fitted):
        raise RefusedByPolicy(
            f"its noise hides one record, and a patient may have up to {people.most_records} here",
            where=study.name,
            hint=ONE_RECORD,
        )
    n_patients = people.among().fewest(len(patients))
    several = f"records of {n_patients} patients" if n_patients < len(patients) else people.counted
    return f"{len(patients)} {several} can be read"


def _check_enough(data: Any, crowd: PatientCounts, policy: Policy, card: DisclosureCard, name: str) -> None:
    """Raise RefusedByPolicy where so few patients are here that the guard would hold back what the study asks."""
    if all(step in card.individual for step, _ in card.steps):
        return
    counts = {} if card.noised else getattr(data, "n_patients_by_view", {})
    few = [f"its view {view} has" for view, count in counts.items() if 0 < crowd.fewest(count) < policy.min_patients]
    if 0 < crowd.fewest(len(data)) < policy.min_patients:
        few = ["its data have"]
    if few:
        raise RefusedByPolicy(
            f"{few[0]} fewer patients here than the {policy.min_patients} that this site's policy asks for "
            "(min_patients), so that every run would be refused",
            where=name,
            hint="Ask its analyst to leave this site or the view out, or change min_patients in the policy.",
        )


def _with_roster(study: Study, roster: Roster | None, said: str, *, needed: bool) -> str | Finding:
    """Return what is said of a study, with the sites that the pinned roster lacks."""
    lacking = () if roster is None else [name for name in study.sites if name not in roster.names]
    if not lacking:
        return said
    said = f"{said}; the roster that is pinned here does not name {', '.join(lacking)}"
    if needed:
        return Finding(f"study {study.name}", "fault", f"{said} {_ASK_FOR_ROSTER}", ConfigurationError.exit_code)
    return Finding(f"study {study.name}", "note", said)


def _entries(site: Site, study: str) -> str:
    """Return how many entries a ledger has, each verified; the site's process may be writing to it."""
    path = site.ledger_of(study)
    if not path.exists():
        return "no ledger yet"
    try:
        return f"{verify_ledger(path, keys=[site.identity.public.hex()]).entries} entries in the ledger"
    except IntegrityError as error:
        if "cut off" not in error.what:
            raise
        return "a ledger whose last entry was cut off, which is set aside when a run is opened"


def _pseudonym_key(study: Study, agreed: StudyPermissions) -> str:
    """Return the fingerprint of the study's key, empty where it needs none."""
    path = study.privacy.pseudonym_key
    if path is not None:
        return PseudonymKey.read(path).fingerprint(study.name)
    if any(part.method in _HASHES_PEOPLE for part in agreed.steps):
        raise ConfigurationError(
            "it finds persons by pseudonyms, and this site has no key for them",
            where=study.name,
            hint="One site makes it (multicentre secret new) and hands it to the others; each names it in site.toml as "
            f'pseudonym_key, under [studies."{study.name}"].',
        )
    return ""
