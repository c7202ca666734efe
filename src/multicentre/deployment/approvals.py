"""What a steward approved: bundles, the key that signs them, the roster, studies and analysts, each pinned by hash.

A file that is approved is copied under its hash first, and the list of approvals is then replaced as a whole: a crash
leaves the old list or the new one. The coordinator has no part in this, and a file that changes later is another file.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.deployment.cards import SiteCard
from multicentre.deployment.proposals import Proposal
from multicentre.deployment.site_register import Roster
from multicentre.federation.errors import ConfigurationError, IntegrityError
from multicentre.federation.storage import check_owner_writes_alone, held, read_regular, write_atomically
from multicentre.studies.study import Study, digest_of

LIST = "approvals.json"
_FORMAT = 1
_FOR_THE_OWNER = 0o600
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class ApprovedStudy:
    """A study that the steward approved.

    Parameters
    ----------
    sha256 : str
        Of the file as it was approved.
    terms : str
        Hash of what all sites agreed to.
    folder : str
        Relative paths in the file start here.
    time : str
    analysts : tuple of str
        Fingerprints of the analysts who alone may run it; empty for every approved analyst.
    """

    sha256: str
    terms: str
    folder: str
    time: str
    analysts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Approvals:
    """All that is approved at a site.

    Parameters
    ----------
    folder : Path
        Where it is kept.
    apps : mapping of str to str
        Time of approval by SHA-256 of a bundle.
    release_keys : mapping of str to str
        OpenSSH line of a key whose bundles may run, by fingerprint.
    roster_sha256 : str
        Of the roster that is pinned; empty without one.
    studies : mapping of str to ApprovedStudy
        By name.
    analysts : mapping of str to str
        Name of an approved analyst by fingerprint.
    signed_only : bool
        Whether runs need the signature of an approved analyst: from the first that was approved on, also when the last
        is taken back.
    """

    folder: Path
    apps: Mapping[str, str] = field(default_factory=dict)
    release_keys: Mapping[str, str] = field(default_factory=dict)
    roster_sha256: str = ""
    studies: Mapping[str, ApprovedStudy] = field(default_factory=dict)
    analysts: Mapping[str, str] = field(default_factory=dict)
    signed_only: bool = False

    def objection_to(self, study: str, fingerprint: str | None) -> str:
        """Return what stands against a run of a study by an analyst; empty where nothing does.

        Parameters
        ----------
        study : str
        fingerprint : str or None
            Of the analyst, or of a release key where the coordinator asks by itself; None where nobody signed.
        """
        chosen = self.studies[study].analysts if study in self.studies else ()
        if fingerprint is None or fingerprint in self.release_keys:
            who = "nobody" if fingerprint is None else "the coordinator"
            unsigned = f"the request must be signed by an approved analyst; {who} signed it"
            return unsigned if self.signed_only or chosen else ""
        if fingerprint not in self.analysts:
            return "the analyst must be approved here; this one is not"
        return "the study is approved here for other analysts only" if chosen and fingerprint not in chosen else ""

    def release_key(self, public_key: str) -> str | None:
        """Return the fingerprint of the approved release key with these hexadecimal digits; None for another key."""
        for fingerprint, line in self.release_keys.items():
            key = load_ssh_public_key(line.encode())
            if isinstance(key, Ed25519PublicKey) and key.public_bytes_raw().hex() == public_key:
                return fingerprint
        return None

    def roster(self) -> Roster | None:
        """Return the pinned roster, None where there is none.

        Raises
        ------
        IntegrityError
            It is gone or was changed since.
        """
        if not self.roster_sha256:
            return None
        self._pinned(self.roster_sha256)
        return Roster.read(self._path(self.roster_sha256))

    def study(self, name: str) -> Study:
        """Return an approved study.

        Raises
        ------
        ConfigurationError
            No study of this name is approved.
        IntegrityError
            Its file is gone or was changed since.
        """
        known = self.studies.get(name)
        if known is None:
            raise ConfigurationError("no study of this name is approved here", where=name)
        content = tomllib.loads(self._pinned(known.sha256).decode())
        study = Study.from_mapping(content, folder=Path(known.folder))
        if digest_of(study) != known.terms:
            raise IntegrityError(
                "this version of multicentre reads other terms in the study than the one that approved it",
                where=name,
                hint="Approve the study anew: multicentre site approve STUDY.toml.",
            )
        return study

    def _pinned(self, sha256: str) -> bytes:
        path = self._path(sha256)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise IntegrityError(
                f"a file that was approved cannot be read ({error.strerror})", where=str(path), hint="Approve it anew."
            ) from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise IntegrityError("the file was changed after it was approved", where=str(path), hint="Approve it anew.")
        return content

    def _path(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.toml"


def approve(folder: Path, proposal: Proposal, card: SiteCard, *, analysts: Collection[str] = ()) -> Approvals:
    """Add a proposal to what is approved and return all of it.

    Parameters
    ----------
    folder : Path
        The site's folder of approvals.
    proposal : Proposal
    card : SiteCard
        The site's own.
    analysts : collection of str
        Fingerprints of the analysts who alone may run a study that is proposed.

    Raises
    ------
    ConfigurationError
        The study or the roster does not name this site, or names it with other keys; or an analyst of this name is
        approved with another key.
    """
    if proposal.kind == "roster":
        check_named(proposal.roster(), card)
    if proposal.kind == "study" and card.name not in proposal.study().sites:
        raise ConfigurationError(
            f"the study names no site {card.name!r}",
            where=proposal.name,
            hint=f"It names {', '.join(proposal.study().sites)}; ask its analyst.",
        )
    if proposal.kind in ("roster", "study"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{proposal.fingerprint}.toml"
        write_atomically(path, proposal.content, mode=_FOR_THE_OWNER)
    return _replaced(folder, lambda known: _with(known, proposal, analysts))


def revoke(folder: Path, what: str) -> Approvals:
    """Take an approval back: a bundle's hash, the fingerprint of a key or an analyst, ``roster``, or a study's name.

    ``signatures``, once no analyst is approved, takes back that runs need one.

    Raises
    ------
    ConfigurationError
        Nothing of this name is approved.
    """

    def without(known: Approvals) -> Approvals:
        if what == "roster" and known.roster_sha256:
            return replace(known, roster_sha256="")
        if what == "signatures" and known.signed_only and not known.analysts:
            return replace(known, signed_only=False)
        kept: dict[str, Any] = {
            name: {key: value for key, value in getattr(known, name).items() if key != what}
            for name in ("apps", "release_keys", "studies", "analysts")
        }
        if all(kept[name] == getattr(known, name) for name in kept):
            raise ConfigurationError(
                "nothing that is approved has this name",
                where=what,
                hint="Name a bundle's SHA-256, the fingerprint of a release key or an analyst, a study, or the word "
                "roster.",
            )
        return replace(known, **kept)

    return _replaced(folder, without)


def read_approvals(folder: Path) -> Approvals:
    """Return what is approved at a site; nothing where no list was written yet.

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
        told = json.loads(read_regular(path, "list of approvals"))
        if told.pop("format") != _FORMAT:
            raise ValueError
        studies = {
            name: ApprovedStudy(**{**known, "analysts": tuple(known.get("analysts", ()))})
            for name, known in told.pop("studies").items()
        }
        return Approvals(folder, studies=studies, **told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(
            "the list of approvals cannot be read", where=str(path), hint="Bring it back from a copy, or approve anew."
        ) from None


class WatchedApprovals:
    """What is approved now; the list is read again when its file has changed.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int, int] | None = None
        self._known = Approvals(folder)

    def now(self) -> Approvals:
        """Return what is approved.

        Raises
        ------
        IntegrityError
            The list cannot be read.
        """
        try:
            about = (self._folder / LIST).stat()
        except FileNotFoundError:
            return Approvals(self._folder)
        seen = (about.st_ino, about.st_mtime_ns, about.st_size)
        if seen != self._seen:
            self._known, self._seen = read_approvals(self._folder), seen
        return self._known


def check_named(roster: Roster, card: SiteCard) -> None:
    """Check that a roster names a site with the keys that it has.

    Raises
    ------
    ConfigurationError
        It does not.
    """
    if card.name not in roster.names:
        raise ConfigurationError(
            f"the roster names no site {card.name!r}",
            where="roster",
            hint="Send the coordinator this site's card, and ask for the roster anew.",
        )
    theirs = (roster.identities[card.name].hex(), roster.public_keys[card.name])
    if theirs != (card.identity, card.public_key):
        raise ConfigurationError(
            f"the roster names {card.name} with keys that are not this site's",
            where="roster",
            hint="Somebody else may have registered under this name. Compare fingerprints with the coordinator.",
        )


def _with(known: Approvals, proposal: Proposal, analysts: Collection[str]) -> Approvals:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if proposal.kind == "app":
        return replace(known, apps={**known.apps, proposal.fingerprint: now})
    if proposal.kind == "release key":
        return replace(known, release_keys={**known.release_keys, proposal.fingerprint: proposal.content.decode()})
    if proposal.kind == "roster":
        return replace(known, roster_sha256=proposal.fingerprint)
    if proposal.kind == "analyst":
        return replace(known, analysts=_with_analyst(known.analysts, proposal), signed_only=True)
    terms = digest_of(proposal.study())
    entry = ApprovedStudy(proposal.fingerprint, terms, str(proposal.folder), now, tuple(sorted(analysts)))
    return replace(known, studies={**known.studies, proposal.name: entry})


def _with_analyst(known: Mapping[str, str], proposal: Proposal) -> dict[str, str]:
    before = [fingerprint for fingerprint, name in known.items() if name == proposal.name]
    if before not in ([], [proposal.fingerprint]):
        raise ConfigurationError(
            "an analyst of this name is approved here with another key",
            where=proposal.name,
            hint=f"Compare fingerprints; then first: multicentre site approve --revoke {before[0]}.",
        )
    return {**known, proposal.fingerprint: proposal.name}


def _replaced(folder: Path, change: Callable[[Approvals], Approvals]) -> Approvals:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(folder / "approvals.lock", _PATIENCE_S):
        changed = change(read_approvals(folder))
        told: dict[str, Any] = {
            "format": _FORMAT,
            "apps": dict(changed.apps),
            "release_keys": dict(changed.release_keys),
            "roster_sha256": changed.roster_sha256,
            "studies": {name: asdict(study) for name, study in changed.studies.items()},
            "analysts": dict(changed.analysts),
            "signed_only": changed.signed_only,
        }
        write_atomically(folder / LIST, json.dumps(told, indent=1).encode(), mode=_FOR_THE_OWNER)
    return changed
