"""Proposals for a steward's approval, recognised by their content and shown with a fingerprint."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from multicentre.core.parsing import parse_toml
from multicentre.errors import ConfigurationError
from multicentre.privacy.secure_sum.identity import has_small_order
from multicentre.studies.checks import check_models
from multicentre.studies.study import Study
from multicentre.studies.study_file import study_from_mapping
from multicentre_sites.deployment.analysts import AnalystCard
from multicentre_sites.deployment.site_register import Roster

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Proposal:
    """Object that a steward can approve.

    Parameters
    ----------
    kind : {"app", "release key", "roster", "study", "analyst"}
    fingerprint : str
        Fingerprint, to be compared with the sender over another channel.
    name : str
        Name of a study or an analyst; empty otherwise.
    content : bytes
        Content of the file; empty for the hash of a bundle.
    folder : Path
        Folder of the file.
    """

    kind: str
    fingerprint: str
    name: str = ""
    content: bytes = b""
    folder: Path = Path()

    def study(self) -> Study:
        """Return the proposed study."""
        return study_from_mapping(self._tables(), folder=self.folder).without_files()

    def roster(self) -> Roster:
        """Return the proposed roster."""
        return Roster.from_tables(self._tables(), "roster")

    def analyst(self) -> AnalystCard:
        """Return the card of the proposed analyst."""
        return AnalystCard.from_mapping(self._tables(), "analyst")

    def _tables(self) -> dict[str, Any]:
        return parse_toml(self.content, "the file", self.name or self.kind)


def recognise(argument: str) -> Proposal:
    """Recognise a proposal: a bundle's SHA-256 or file, a release key, a roster, a study or an analyst.

    Raises
    ------
    ConfigurationError
        It is another content, or the file cannot be used.

    Examples
    --------
    >>> recognise("ab" * 32).kind
    'app'
    """
    digits = argument.lower().removeprefix("sha256:")
    if _HASH.fullmatch(digits):
        return Proposal("app", digits)
    path = Path(argument)
    content = _read(path)
    if content.startswith(b"ssh-"):
        line = _ed25519_line(content, path)
        return Proposal("release key", fingerprint_of(line), content=line.encode())
    sha256 = hashlib.sha256(content).hexdigest()
    tables = parse_toml(content, "the file", argument)
    bundle = str(tables.get("sha256"))
    if "app" in tables and _HASH.fullmatch(bundle):
        return Proposal("app", bundle)
    if isinstance(tables.get("site"), list):
        Roster.read(path)
        return Proposal("roster", sha256, content=content)
    if "study" in tables:
        try:
            study = study_from_mapping(tables, folder=path.parent)
            check_models(study)
        except ConfigurationError as error:
            raise error.at(argument) from None
        return Proposal("study", sha256, study.name, content, path.absolute().parent)
    if {"name", "public_key", "fingerprint"} == set(tables):
        card = AnalystCard.from_mapping(tables, argument)
        return Proposal("analyst", card.fingerprint, card.name, content)
    raise ConfigurationError(
        "the file must be a study, a roster, an analyst's card or a bundle.toml; got another content",
        where=argument,
        hint="A study has a table [study], a roster [[site]], a bundle.toml a key sha256, an analyst's card a name, "
        "a public_key and a fingerprint.",
    )


def fingerprint_of(line: str) -> str:
    """Return the fingerprint of an OpenSSH public key, as ``ssh-keygen -l`` prints it."""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"the argument must be a SHA-256 or a readable file; got another ({error.strerror})",
            where=str(path),
            hint="Give the SHA-256 of a bundle (64 digits), or a file: a release key, a roster, a study.",
        ) from None
    return content


def _ed25519_line(content: bytes, path: Path) -> str:
    try:
        words = content.decode("ascii").split("\n")[0].split()[:2]
        key = load_ssh_public_key(" ".join(words).encode())
        if isinstance(key, Ed25519PublicKey) and not has_small_order(key.public_bytes_raw()):
            return " ".join(words)
    except (ValueError, UnsupportedAlgorithm):
        pass
    raise ConfigurationError(
        "an Ed25519 public key is needed",
        where=str(path),
        hint="Ask the coordinator for release.pub of its folder public.",
    )
