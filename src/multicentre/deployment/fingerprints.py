"""What a coordinator and its sites compare by telephone: a fingerprint of each file that every site is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from multicentre.deployment.proposals import recognise
from multicentre.deployment.roster import Roster
from multicentre.federation.errors import ConfigurationError


@dataclass(frozen=True)
class Fingerprints:
    """The fingerprints of a coordinator's public files, as the commands of a site print them.

    Parameters
    ----------
    authority : str
        SHA-256 of the certificate in ``ca.crt``, as ``multicentre site check`` prints it.
    release_key : str
        Of ``release.pub``, as ``multicentre site approve`` and ``ssh-keygen -l`` print it.
    bundle : str, optional
        SHA-256 of the bundle that ``bundle.toml`` names; None before one was signed.
    roster : str, optional
        SHA-256 of ``roster.toml``; None while it names no site.
    """

    authority: str
    release_key: str
    bundle: str | None
    roster: str | None

    @classmethod
    def of(cls, public: Path) -> Self:
        """Read the files of a coordinator's folder ``public``.

        Raises
        ------
        ConfigurationError
            A file is missing, or is not what it should be.
        """
        bundle, roster = public / "bundle.toml", public / "roster.toml"
        named = roster.exists() and Roster.read(roster).cards
        return cls(
            _authority(public / "ca.crt"),
            recognise(str(public / "release.pub")).fingerprint,
            recognise(str(bundle)).fingerprint if bundle.exists() else None,
            recognise(str(roster)).fingerprint if named else None,
        )

    def __str__(self) -> str:
        return "\n".join(
            [
                f"authority    SHA-256 {self.authority}",
                f"release key  {self.release_key}",
                f"bundle       {self.bundle or 'none was signed yet'}",
                f"roster       {self.roster or 'names no site yet'}",
            ]
        )


def _authority(path: Path) -> str:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(SHA256()).hex()
    except (OSError, ValueError):
        raise ConfigurationError(
            "there is no certificate in PEM here", where=str(path), mend="Bring the file back from a copy."
        ) from None
