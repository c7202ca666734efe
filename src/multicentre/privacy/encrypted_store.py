"""Encrypted storage of states that a site keeps on disk between calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from multicentre.core.storage import Store
from multicentre.errors import IntegrityError
from multicentre.privacy.secret_files import Secret

_NONCE_BYTES = 12  # the recommended length for AES-GCM (NIST SP 800-38D)


class EncryptedStore(Store):
    """Store of states that are encrypted on disk (AES-256-GCM).

    Parameters
    ----------
    folder : Path
    key : Secret
    of : str
        Purpose of the store, for example the name of a run.

    Notes
    -----
    The purpose of the store, and the name and number of a state, are authenticated together with the state. A file that
    replaces another is therefore refused.

    Examples
    --------
    >>> import tempfile
    >>> store = EncryptedStore(Path(tempfile.mkdtemp()), Secret(os.urandom(32)))
    >>> store.keep("fit", 3, b"a site's state")
    >>> store.read("fit", 3)
    b"a site's state"
    """

    def __init__(self, folder: Path, key: Secret, *, of: str = "") -> None:
        super().__init__(folder)
        self._of = of
        self._cipher = AESGCM(key.reveal())

    def keep(self, name: str, number: int, state: bytes) -> None:
        """Store `state` under a name and a number, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        super().keep(name, number, nonce + self._cipher.encrypt(nonce, state, self._place(name, number)))

    def read(self, name: str, number: int) -> bytes:
        """Return the state of a name and a number.

        Raises
        ------
        IntegrityError
            The state was never stored, is missing, was changed, or was stored under a different key.
        """
        encrypted = super().read(name, number)
        try:
            return self._cipher.decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], self._place(name, number))
        except (InvalidTag, ValueError):
            raise IntegrityError(
                "the state cannot be decrypted; it was changed, or stored under a different key",
                where=name,
                hint="Restore the site's key or the file from a copy, or start the run again.",
            ) from None

    def _place(self, name: str, number: int) -> bytes:
        return json.dumps([self._of, name, number]).encode()
