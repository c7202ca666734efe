"""Certificates of a coordinator: its authority, checks of external certificates, node keys and fingerprints."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shlex
import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.private_files import write_private
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_register import Roster

# Sites must receive a new authority by hand, so that it is valid for ten years. A certificate is renewed at a start of
# the coordinator, and no study runs for two years without one.
AUTHORITY_DAYS, CERTIFICATE_DAYS, RENEWED_BEFORE_DAYS = 3650, 730, 60

_SKEW = timedelta(hours=1)  # clocks of sites may be slow when a certificate is new


@dataclass(frozen=True)
class CertifiedKey:
    """Private key with the certificate of its public key.

    Parameters
    ----------
    certificate : x509.Certificate
    key : ec.EllipticCurvePrivateKey
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """Certificate as PEM, for a public file."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """Key as PEM, for a private file."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_authority(host: str) -> CertifiedKey:
    """Return an authority that can only certify a host and the loopback address.

    The certificate constrains the names, so that a site trusts the authority for this host only.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name(f"multicentre authority of {host}"[:64])
    builder = (
        _certificate_builder(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certifies=True), critical=True)
        .add_extension(x509.NameConstraints([_permitted(one) for one in _names(host)], None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return CertifiedKey(builder.sign(key, SHA384()), key)


def certify_host(authority: CertifiedKey, host: str) -> CertifiedKey:
    """Return a new key with a certificate for a host, localhost and 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    parent = authority.key.public_key()
    builder = (
        _certificate_builder(_name(host[:64]), authority.certificate.subject, key.public_key(), CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certifies=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(one) for one in _names(host)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(parent), critical=False)
    )
    return CertifiedKey(builder.sign(authority.key, SHA384()), key)


def write_certified(certified: CertifiedKey, certificate: Path, key: Path) -> None:
    """Write key (mode 0600) and certificate."""
    write_private(key, certified.key_pem)
    write_atomically(certificate, certified.certificate_pem)


def read_certified(certificate: Path, key: Path) -> CertifiedKey:
    """Read the files of :func:`write_certified`.

    Raises
    ------
    ConfigurationError
        A file is missing or has another content.
    """
    try:
        private_key = load_pem_private_key(key.read_bytes(), password=None)
        public_certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError, TypeError):
        private_key = None
    if (
        not isinstance(private_key, ec.EllipticCurvePrivateKey)
        or public_certificate.public_key() != private_key.public_key()
    ):
        raise ConfigurationError(
            "certificate and key must be readable and belong together; got others",
            where=f"{certificate}, {key}",
            hint="Restore both files from a copy.",
        )
    return CertifiedKey(public_certificate, private_key)


def days_left(certificate: Path) -> float:
    """Return the number of days for which a certificate is valid.

    Raises
    ------
    ConfigurationError
        The file cannot be read or is not a certificate.
    """
    try:
        ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the file must be a certificate in PEM format; got another ({type(error).__name__})",
            where=str(certificate),
            hint="Restore it from a copy.",
        ) from None
    return (ends - datetime.now(UTC)) / timedelta(days=1)


def check_certificate(authority: Path, certificate: Path, key: Path, host: str) -> None:
    """Raise ConfigurationError unless a client that trusts `authority` accepts `certificate` for `host`.

    The check is a TLS handshake in memory, as at a site.
    """
    hint = "Give the authority, the certificate with its chain, and its key, all as PEM files."
    try:
        inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inside.load_cert_chain(certificate, key, password=lambda: b"")
        outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        outside.load_verify_locations(authority)
        _shake_hands(inside, outside, host)
    except ssl.SSLCertVerificationError as error:
        raise ConfigurationError(
            f"the certificate must be valid for {host} under {authority}; got: {error.verify_message.rstrip('.')}",
            where=str(certificate),
            hint=hint,
        ) from None
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"certificate and key must belong together ({error.reason or 'unreadable'})",
            where=f"{certificate}, {key}",
            hint=f"{hint} The key must be without a password.",
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"a file cannot be read ({error.strerror})", where=str(certificate), hint=hint
        ) from None


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _shake_hands(inside: ssl.SSLContext, outside: ssl.SSLContext, host: str) -> None:
    to_inside, to_outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        outside.wrap_bio(to_outside, to_inside, server_hostname=host),
        inside.wrap_bio(to_inside, to_outside, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()


def _certificate_builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certifies,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certifies,
        crl_sign=certifies,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _names(host: str) -> list[str]:
    return list(dict.fromkeys([host, "localhost", "127.0.0.1"]))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _permitted(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_network(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of a coordinator's public files, as the commands of a site print them.

    Parameters
    ----------
    authority : str
        SHA-256 of the certificate in ``ca.crt``, as ``multicentre site check`` prints it.
    release_key : str
        Fingerprint of ``release.pub``, as ``multicentre site approve`` and ``ssh-keygen -l`` print it.
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
            A file is missing or has another content.
        """
        bundle, roster = public / "bundle.toml", public / "roster.toml"
        has_sites = roster.exists() and Roster.read(roster).cards
        return cls(
            _authority(public / "ca.crt"),
            recognise(str(public / "release.pub")).fingerprint,
            recognise(str(bundle)).fingerprint if bundle.exists() else None,
            recognise(str(roster)).fingerprint if has_sites else None,
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
            "the file must be a certificate in PEM format; got another content",
            where=str(path),
            hint="Restore the file from a copy.",
        ) from None


_OTHERS = 0o077  # all permissions of group and others


def write_node_key(path: Path) -> str:
    """Write a new key to a new file that only its owner can read; return the public key as an OpenSSH line.

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
            "the file must be new, since keys are never overwritten; it exists",
            where=str(path),
            hint="Name another folder.",
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the key cannot be written ({error.strerror})", where=str(path)) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return _line(key)


def read_public_key(path: Path) -> str:
    """Return the public key of a private key file as an OpenSSH line.

    Raises
    ------
    ConfigurationError
        The file cannot be read, other accounts have rights to it, or it is not a key on P-384.
    """
    try:
        others = os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & _OTHERS
        content = b"" if others else path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"the key cannot be read ({error.strerror})",
            where=str(path),
            hint="Make a key with multicentre site keygen.",
        ) from None
    if others:
        raise ConfigurationError(
            "a key must be accessible to its owner only; others have rights to it",
            where=str(path),
            hint=f"Run: chmod 600 {shlex.quote(str(path))}. If others may have read it, make a new one.",
        )
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not (isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP384R1)):
        raise ConfigurationError(
            "the key must be an OpenSSH key on the curve P-384 without a passphrase; got another",
            where=str(path),
            hint="Make a key with multicentre site keygen.",
        )
    return _line(key)


def _line(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
