"""Encrypted storage of states that a site keeps on disk between calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from multicentre.federation.errors import IntegrityError
from multicentre.federation.storage import Store
from multicentre.privacy.secrets import Secret

_NONCE_BYTES = 12


class EncryptedStore(Store):
    """A store of states that encrypts what it keeps (AES-256-GCM).

    Parameters
    ----------
    folder : Path
    key : Secret
    of : str
        What the store is for, a run, say.

    Notes
    -----
    What the store is for, and the name and number of a state, are authenticated with it: a file that is put in
    another's place is refused.

    Examples
    --------
    >>> import tempfile
    >>> store = EncryptedStore(Path(tempfile.mkdtemp()), Secret(os.urandom(32)))
    >>> store.keep("fit", 3, b"what the site remembers")
    >>> store.read("fit", 3)
    b'what the site remembers'
    """

    def __init__(self, folder: Path, key: Secret, *, of: str = "") -> None:
        super().__init__(folder)
        self._of = of
        self._cipher = AESGCM(key.reveal())

    def keep(self, name: str, number: int, state: bytes) -> None:
        """Keep `state` under a name and a number, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        super().keep(name, number, nonce + self._cipher.encrypt(nonce, state, self._place(name, number)))

    def read(self, name: str, number: int) -> bytes:
        """Return the state of a name and a number.

        Raises
        ------
        IntegrityError
            It was never kept, is gone, was changed, or was kept under another key.
        """
        kept = super().read(name, number)
        try:
            return self._cipher.decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], self._place(name, number))
        except (InvalidTag, ValueError):
            raise IntegrityError(
                "the state cannot be decrypted: it was changed, or kept under another key",
                where=name,
                mend="Bring the site's key or the file back from a copy, or start the run anew.",
            ) from None

    def _place(self, name: str, number: int) -> bytes:
        return json.dumps([self._of, name, number]).encode()
