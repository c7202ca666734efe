"""Public keys by which the sites of a register are known, whatever their notation."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)

from multicentre.federation.errors import ConfigurationError


def names_by_key(sites: Mapping[str, str]) -> dict[bytes, str]:
    """Return the names of a register's sites by their canonical keys.

    Raises
    ------
    ConfigurationError
        A key cannot be read, or two sites have the same.
    """
    names: dict[bytes, str] = {}
    for site, key in sites.items():
        canonical = canonical_key(key.encode())
        if canonical is None:
            raise ConfigurationError(
                "the register holds no readable public key", where=site, mend="Register the site's card anew."
            )
        if canonical in names:
            raise ConfigurationError("two sites of the register have the same key", where=f"{names[canonical]}, {site}")
        names[canonical] = site
    return names


def canonical_key(key: bytes) -> bytes | None:
    """Return the same bytes for the same key in any notation; None for what is no key."""
    try:
        read = load_pem_public_key(key) if key.startswith(b"-----") else load_ssh_public_key(key)
        return read.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm):
        return None
