"""Approvals of a site's steward: bundles, release keys, the roster, studies and analysts, each pinned by hash.

A study can also be rejected, with a reason for those who ask to run it. Every decision about a study is recorded.

An approved file is first copied under its hash. Then the list of approvals is replaced atomically: a crash leaves the
old list or the new one. The coordinator cannot approve anything, and a file that changes later is a different file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.core.parsing import load_json, parse_toml
from multicentre.core.protocol import describe_differences
from multicentre.core.storage import check_owner_writes_alone, held, read_regular, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError, RefusedByPolicy
from multicentre.privacy.policy import Policy
from multicentre.privacy.run_ledgers import terms_of
from multicentre.privacy.site_cards import SiteCard
from multicentre.studies.study import Study
from multicentre.studies.study_file import study_from_mapping
from multicentre.studies.terms import digest_of, study_protocol
from multicentre_sites.deployment.decisions import Decision, check_reason, current_time, rejections_among
from multicentre_sites.deployment.proposals import Proposal
from multicentre_sites.deployment.site_register import Roster, check_named

LIST = "approvals.json"
_FORMAT = 3  # of the list; raised when its keys change
_READABLE = (1, 2, _FORMAT)  # lists of format 1 have no decisions, and those of format 2 no policies
_KEYS = {"apps", "release_keys", "roster_sha256", "studies", "analysts", "signed_only", "decisions"}
# Read and write for the owner, nothing for others: a proposal or an approval must not be changed by others.
_OWNER_ONLY = 0o600
_LOCK_WAIT_S = 10.0  # another command holds the lock for milliseconds


@dataclass(frozen=True)
class ApprovedStudy:
    """A study that the steward approved.

    Parameters
    ----------
    sha256 : str
        SHA-256 of the approved file.
    terms : str
        Hash of the terms that all sites agreed to.
    folder : str
        Folder at which relative paths in the file start.
    time : str
        Time of the approval.
    analysts : tuple of str
        Fingerprints of the only analysts who may run the study; empty for every approved analyst.
    protocol : mapping of str to str
        Number of the wire protocol and digest of each method, which the terms contain.
    policy : mapping of str to value, optional
        Terms of the site's policy at the approval; None in approvals of earlier versions.
    """

    sha256: str
    terms: str
    folder: str
    time: str
    analysts: tuple[str, ...] = ()
    protocol: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Approvals:
    """All approvals of a site.

    Parameters
    ----------
    folder : Path
        Folder of approvals.
    apps : mapping of str to str
        Time of approval by SHA-256 of a bundle.
    release_keys : mapping of str to str
        OpenSSH line of a key whose bundles may run, by fingerprint.
    roster_sha256 : str
        SHA-256 of the pinned roster; empty without one.
    studies : mapping of str to ApprovedStudy
        Approved studies by name.
    analysts : mapping of str to str
        Name of an approved analyst by fingerprint.
    signed_only : bool
        True if runs need the signature of an approved analyst: since the first approval of an analyst, also after all
        of these are revoked.
    decisions : tuple of Decision
        All decisions about studies, in order.
    """

    folder: Path
    apps: Mapping[str, str] = field(default_factory=dict)
    release_keys: Mapping[str, str] = field(default_factory=dict)
    roster_sha256: str = ""
    studies: Mapping[str, ApprovedStudy] = field(default_factory=dict)
    analysts: Mapping[str, str] = field(default_factory=dict)
    signed_only: bool = False
    decisions: tuple[Decision, ...] = ()

    @property
    def rejections(self) -> list[Decision]:
        """Rejections in force."""
        return rejections_among(self.decisions)

    def rejection_of(self, study: str, terms: str) -> Decision | None:
        """Return the rejection of a study with these terms; None if they are not rejected."""
        return next((one for one in self.rejections if (one.study, one.terms) == (study, terms)), None)

    def objection_to(self, study: str, fingerprint: str | None) -> str:
        """Return the objection to a run of a study by an analyst; empty without one.

        Parameters
        ----------
        study : str
        fingerprint : str or None
            Fingerprint of the analyst, or of the release key if the coordinator signed; None if nobody signed.
        """
        chosen = self.studies[study].analysts if study in self.studies else ()
        if fingerprint is None or fingerprint in self.release_keys:
            signer = "nobody" if fingerprint is None else "the coordinator"
            unsigned = f"the request must be signed by an approved analyst; {signer} signed it"
            return unsigned if self.signed_only or chosen else ""
        if fingerprint not in self.analysts:
            return "the analyst must be approved here; this one is not"
        return "the study is approved here for other analysts only" if chosen and fingerprint not in chosen else ""

    def release_key(self, public_key: str) -> str | None:
        """Return the fingerprint of the approved release key with these hexadecimal digits; None for another key."""
        return {key.public_bytes_raw().hex(): fingerprint for fingerprint, key in self._keys().items()}.get(public_key)

    def vouches_for(self, roster: Roster) -> bool:
        """Return whether an approved release key signed a roster, not before that of the pinned roster.

        An older roster could bring back a site that was removed.
        """
        if roster.signature is None or not roster.is_signed_by(self._keys().values()):
            return False
        pinned = self.roster()
        earlier = None if pinned is None else pinned.signature
        return earlier is None or roster.signature.signed_at >= earlier.signed_at

    def _keys(self) -> dict[str, Ed25519PublicKey]:
        keys = {fingerprint: load_ssh_public_key(line.encode()) for fingerprint, line in self.release_keys.items()}
        return {fingerprint: key for fingerprint, key in keys.items() if isinstance(key, Ed25519PublicKey)}

    def roster(self) -> Roster | None:
        """Return the pinned roster; None without one.

        Raises
        ------
        IntegrityError
            The file is missing or was changed.
        """
        if not self.roster_sha256:
            return None
        self._read_pinned(self.roster_sha256)
        return Roster.read(self._path(self.roster_sha256))

    def study(self, name: str) -> Study:
        """Return an approved study.

        Raises
        ------
        ConfigurationError
            No study of this name is approved.
        IntegrityError
            Its file is missing or was changed.
        """
        study = self._read_study(name)
        self.check_protocol(name)
        if digest_of(study) != self.studies[name].terms:
            raise IntegrityError(
                "the terms of the study must be those that were approved; this version of multicentre reads others",
                where=name,
                hint="Approve the study again: multicentre site approve STUDY.toml.",
            )
        return study

    def check_protocol(self, name: str) -> None:
        """Check that this release exchanges the messages for an approved study that were approved.

        Raises
        ------
        RefusedByPolicy
            The wire protocol, or the steps of a method, differ.
        """
        changes = describe_differences(self.studies[name].protocol, study_protocol(self._read_study(name)))
        if changes:
            raise RefusedByPolicy(
                f"the study must use the protocol and steps that were approved; this release has others: {changes}",
                where=name,
                hint="All its sites and the coordinator upgrade, and each approves the study again: multicentre site "
                "approve STUDY.toml. Until then, the earlier release runs it.",
            )

    def _read_study(self, name: str) -> Study:
        approved = self.studies.get(name)
        if approved is None:
            raise ConfigurationError("the study must be approved here; got a name without an approval", where=name)
        content = parse_toml(self._read_pinned(approved.sha256), "the approved study", name)
        return study_from_mapping(content, folder=Path(approved.folder)).without_files()

    def _read_pinned(self, sha256: str) -> bytes:
        path = self._path(sha256)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise IntegrityError(
                f"the approved file cannot be read ({error.strerror})", where=str(path), hint="Approve it again."
            ) from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise IntegrityError(
                "the file must be unchanged since its approval; got another content",
                where=str(path),
                hint="Approve it again.",
            )
        return content

    def _path(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.toml"


def approve(
    folder: Path,
    proposal: Proposal,
    card: SiteCard,
    *,
    analysts: Collection[str] = (),
    policy: Policy | None = None,
) -> Approvals:
    """Approve a proposal and return all approvals.

    Parameters
    ----------
    folder : Path
        The site's folder of approvals.
    proposal : Proposal
    card : SiteCard
        Card of this site.
    analysts : collection of str
        Fingerprints of the only analysts who may run the proposed study.
    policy : Policy, optional
        Policy of the site for a proposed study. A run under a weaker one is refused; without it, none is compared.

    Raises
    ------
    ConfigurationError
        The study or the roster does not name this site, or names it with other keys; or an analyst of this name is
        approved with another key.
    """
    if proposal.kind == "roster":
        check_named(proposal.roster(), card)
    if proposal.kind == "study":
        _check_names(proposal, card)
    if proposal.kind in ("roster", "study"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{proposal.fingerprint}.toml"
        write_atomically(path, proposal.content, mode=_OWNER_ONLY)
    return _replace_approvals(folder, lambda approvals: _with(approvals, proposal, analysts, policy))


def reject(folder: Path, proposal: Proposal, card: SiteCard, reason: str) -> Approvals:
    """Reject a study and return all approvals.

    An approval of the same terms ends; one of other terms under the same name stays. A later approval replaces the
    rejection.

    Parameters
    ----------
    folder : Path
        The site's folder of approvals.
    proposal : Proposal
    card : SiteCard
        Card of this site.
    reason : str
        One line of text, sent to everyone who asks this site to run the study.

    Raises
    ------
    ConfigurationError
        The proposal is not a study, the study does not name this site, or the reason cannot be used.
    """
    reason = check_reason(reason)
    if proposal.kind != "study":
        raise ConfigurationError(
            f"only a study can be rejected; got a proposal of another kind ({proposal.kind})",
            where="site reject",
            hint="Other proposals have no effect without an approval.",
        )
    _check_names(proposal, card)
    terms = digest_of(proposal.study())
    decision = Decision(proposal.name, "rejected", proposal.fingerprint, terms, current_time(), reason)

    def rejected(approvals: Approvals) -> Approvals:
        studies = {
            name: study
            for name, study in approvals.studies.items()
            if (name, study.terms) != (decision.study, decision.terms)
        }
        return replace(approvals, studies=studies, decisions=(*approvals.decisions, decision))

    return _replace_approvals(folder, rejected)


def revoke(folder: Path, name: str) -> Approvals:
    """Revoke an approval: the hash of a bundle, fingerprint of a key or analyst, name of a study, or ``roster``.

    ``signatures`` allows unsigned runs again, once no analyst is approved.

    Raises
    ------
    ConfigurationError
        There is no approval of this name.
    """

    def without(approvals: Approvals) -> Approvals:
        if name == "roster" and approvals.roster_sha256:
            return replace(approvals, roster_sha256="")
        if name == "signatures" and approvals.signed_only and not approvals.analysts:
            return replace(approvals, signed_only=False)
        remaining: dict[str, Any] = {
            kind: {key: value for key, value in getattr(approvals, kind).items() if key != name}
            for kind in ("apps", "release_keys", "studies", "analysts")
        }
        if all(entries == getattr(approvals, kind) for kind, entries in remaining.items()):
            raise ConfigurationError(
                "what is revoked must be approved; got another name",
                where=name,
                hint="Name a bundle's SHA-256, the fingerprint of a release key or an analyst, a study, or the word "
                "roster.",
            )
        revoked = [
            Decision(key, "revoked", one.sha256, one.terms, current_time())
            for key, one in approvals.studies.items()
            if key == name
        ]
        return replace(approvals, **remaining, decisions=(*approvals.decisions, *revoked))

    return _replace_approvals(folder, without)


def read_approvals(folder: Path) -> Approvals:
    """Return the approvals of a site; empty before the first.

    Raises
    ------
    IntegrityError
        The list cannot be read.
    """
    path = folder / LIST
    if not path.exists():
        return Approvals(folder)
    try:
        check_owner_writes_alone(path, "list of approvals")
        content = load_json(read_regular(path, "list of approvals"))
        version = content.pop("format")
        if version not in _READABLE or (version == _FORMAT and content.keys() != _KEYS):
            raise ValueError  # a missing key would permit more than the steward did
        decisions = tuple(Decision(**one) for one in content.pop("decisions", ()))
        studies = {
            name: ApprovedStudy(**{**fields, "analysts": tuple(fields["analysts"])})
            for name, fields in content.pop("studies").items()
        }
        return Approvals(folder, studies=studies, decisions=decisions, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(
            "the list of approvals cannot be read",
            where=str(path),
            hint="Restore it from a copy, or approve again.",
        ) from None


class WatchedApprovals:
    """Current approvals; the list is read again when its file has changed.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_state: tuple[int, int, int] | None = None
        self._approvals = Approvals(folder)

    def now(self) -> Approvals:
        """Return the current approvals.

        Raises
        ------
        IntegrityError
            The list cannot be read.
        """
        try:
            status = (self._folder / LIST).stat()
        except FileNotFoundError:
            return Approvals(self._folder)
        file_state = (status.st_ino, status.st_mtime_ns, status.st_size)
        if file_state != self._file_state:
            self._approvals, self._file_state = read_approvals(self._folder), file_state
        return self._approvals


def _check_names(proposal: Proposal, card: SiteCard) -> None:
    """Check that a study names this site."""
    if card.name not in proposal.study().sites:
        raise ConfigurationError(
            f"the study must name this site, {card.name!r}; got others",
            where=proposal.name,
            hint=f"It names {', '.join(proposal.study().sites)}; ask its analyst.",
        )


def _with(approvals: Approvals, proposal: Proposal, analysts: Collection[str], policy: Policy | None) -> Approvals:
    now = current_time()
    if proposal.kind == "app":
        return replace(approvals, apps={**approvals.apps, proposal.fingerprint: now})
    if proposal.kind == "release key":
        return replace(
            approvals, release_keys={**approvals.release_keys, proposal.fingerprint: proposal.content.decode()}
        )
    if proposal.kind == "roster":
        return replace(approvals, roster_sha256=proposal.fingerprint)
    if proposal.kind == "analyst":
        return replace(approvals, analysts=_with_analyst(approvals.analysts, proposal), signed_only=True)
    study = proposal.study()
    entry = ApprovedStudy(
        proposal.fingerprint,
        digest_of(study),
        str(proposal.folder),
        now,
        tuple(sorted(analysts)),
        study_protocol(study),
        None if policy is None else terms_of(policy)["policy"],
    )
    decision = Decision(proposal.name, "approved", proposal.fingerprint, entry.terms, now)
    return replace(
        approvals,
        studies={**approvals.studies, proposal.name: entry},
        decisions=(*approvals.decisions, decision),
    )


def _with_analyst(approvals: Mapping[str, str], proposal: Proposal) -> dict[str, str]:
    before = [fingerprint for fingerprint, name in approvals.items() if name == proposal.name]
    if before not in ([], [proposal.fingerprint]):
        raise ConfigurationError(
            "analysts must have different names; one of this name is approved with another key",
            where=proposal.name,
            hint=f"Compare fingerprints; then first: multicentre site approve --revoke {before[0]}.",
        )
    return {**approvals, proposal.fingerprint: proposal.name}


def _replace_approvals(folder: Path, change: Callable[[Approvals], Approvals]) -> Approvals:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(folder / "approvals.lock", _LOCK_WAIT_S):
        changed = change(read_approvals(folder))
        content: dict[str, Any] = {
            "format": _FORMAT,
            "apps": dict(changed.apps),
            "release_keys": dict(changed.release_keys),
            "roster_sha256": changed.roster_sha256,
            "studies": {name: asdict(study) for name, study in changed.studies.items()},
            "analysts": dict(changed.analysts),
            "signed_only": changed.signed_only,
            "decisions": [asdict(one) for one in changed.decisions],
        }
        write_atomically(folder / LIST, json.dumps(content, indent=1).encode(), mode=_OWNER_ONLY)
    return changed
