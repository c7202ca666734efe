"""The key by which the coordinator knows a site's connection: ECDSA on P-384, as OpenSSH writes it."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from multicentre.federation.errors import ConfigurationError

_OTHERS = 0o077


def write_node_key(path: Path) -> str:
    """Write a new key to a new file that only its owner can read, and return its public half as an OpenSSH line.

    Raises
    ------
    ConfigurationError
        The file exists or cannot be written.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    content = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(
            "the file exists, and a key is never overwritten", where=str(path), mend="Name another folder."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the key cannot be written ({error.strerror})", where=str(path)) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return _line(key)


def read_public_key(path: Path) -> str:
    """Return the public half of a key file as an OpenSSH line.

    Raises
    ------
    ConfigurationError
        The file cannot be read, others than its owner have rights to it, or it holds no key on P-384.
    """
    try:
        others = os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & _OTHERS
        content = b"" if others else path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"the key cannot be read ({error.strerror})", where=str(path), mend="multicentre site keygen makes one."
        ) from None
    if others:
        raise ConfigurationError(
            "others than the file's owner have rights to this key",
            where=str(path),
            mend=f"Run: chmod 600 {shlex.quote(str(path))}. If others may have read it, make a new one.",
        )
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not (isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP384R1)):
        raise ConfigurationError(
            "this is no OpenSSH key on the curve P-384 without a passphrase",
            where=str(path),
            mend="multicentre site keygen makes one.",
        )
    return _line(key)


def _line(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
