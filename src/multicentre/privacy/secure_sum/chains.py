"""Hash chains between pairs of sites: keys for one sum after another, none of which reveals an earlier one.

Both sites of a pair hold the same link. For a sum, they derive the key of their stream from the link and from what
identifies the sum, and replace the link by its successor. Both are keyed BLAKE2b (RFC 7693), which cannot be inverted:
the link that a site holds after a sum reveals neither the stream of this sum nor an earlier one. The successor does not
depend on what was asked: a site that refused a sum moves past it and agrees with its peers on the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from multicentre.privacy.secure_sum.streams import Label, Sign, derive, sign_of, text_of


class Chains:
    """The chains that one site holds, one per peer.

    Parameters
    ----------
    site : str
        The site that holds them.
    secrets : mapping of str to bytes
        Result of the key exchange with each peer.
    label : tuple
        Names the agreement.

    Examples
    --------
    >>> lyon = Chains("lyon", {"nice": bytes(32)}, ("study", "first agreement"))
    >>> nice = Chains("nice", {"lyon": bytes(32)}, ("study", "first agreement"))
    >>> lyon.streams(0, ("age",))[0][0] == nice.streams(0, ("age",))[0][0]
    True
    """

    def __init__(self, site: str, secrets: Mapping[str, bytes], label: Label) -> None:
        self._next = 0
        self._signs = [sign_of(site, peer) for peer in secrets]
        self._links = [derive(secret, "pair chain", *label, *sorted((site, peer))) for peer, secret in secrets.items()]

    def streams(self, number: int, label: Label) -> list[tuple[bytes, Sign]]:
        """Return key and sign of every stream of one sum, and replace the links by those of the next sum.

        Parameters
        ----------
        number : int
            Number of the sum, not below that of the next one; the keys of sums in between are skipped for good.
        label : tuple
            Identifies the sum; sites with different labels derive keys that do not match.
        """
        for _ in range(number - self._next):
            self._advance()
        content = b"stream\n" + text_of(label)
        keys = [_derive(link, content) for link in self._links]
        self._advance()
        return list(zip(keys, self._signs, strict=True))

    def _advance(self) -> None:
        self._links = [_derive(link, b"next") for link in self._links]
        self._next += 1


def _derive(link: bytes, content: bytes) -> bytes:
    return blake2b(content, key=link, digest_size=32).digest()
