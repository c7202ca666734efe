"""No site's key is one under which anybody can sign, or whose shared secrets anybody knows, in whatever encoding."""

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_heads import Head, Statement
from multicentre.privacy.ledger_witnesses import Witness
from multicentre.privacy.secure_sum.identity import Identity, check_public, has_small_order, verify
from multicentre.privacy.secure_sum.mask import exchange
from multicentre.privacy.secure_sum.site import MaskingSeal
from multicentre.privacy.site_cards import SiteCard
from multicentre_sites.deployment.analysts import AnalystCard
from multicentre_sites.deployment.proposals import recognise
from support.coordinators import make_card

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def root(square):
    """Return a square root modulo the prime, or None."""
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square % P else x * pow(2, (P - 1) // 4, P) % P
    return x if x * x % P == square % P else None


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def times(number, point):
    total = (0, 1)
    for bit in bin(number)[2:]:
        total = add(total, total)
        total = add(total, point) if bit == "1" else total
    return total


def torsion():
    """Return the eight points whose order divides 8: multiples by the group's prime order of any point of order 8 L."""
    order = 2**252 + 27742317777372353535851937790883648493
    for y in range(2, 100):
        x = root((y * y - 1) * pow(D * y * y + 1, -1, P) % P)
        point = None if x is None else times(order, (x, y))
        if point is not None and times(4, point) != (0, 1):
            return [times(number, point) for number in range(8)]
    raise AssertionError


def encodings(y):
    """Return every string of 32 bytes that stands for a y-coordinate: reduced or not, either sign bit."""
    return [(value + sign * 2**255).to_bytes(32, "little") for value in (y, y + P) if value < 2**255 for sign in (0, 1)]


POINTS = torsion()
KEYS = sorted({key for _, y in POINTS for key in encodings(y)})


def u_of(y):
    return 0 if y == 1 else (1 + y) * pow(1 - y, -1, P) % P


def test_there_are_eight_points_and_all_are_known():
    assert len(set(POINTS)) == 8
    assert len(KEYS) == 14  # five y-coordinates with two signs, and two of them not reduced
    assert all(has_small_order(key) for key in KEYS)
    assert not any(has_small_order(Identity.generate().public) for _ in range(100))


def test_the_library_alone_accepts_a_signature_that_nobody_made():
    identity, forged = (1).to_bytes(32, "little"), (1).to_bytes(32, "little") + bytes(32)
    Ed25519PublicKey.from_public_bytes(identity).verify(forged, b"any message")
    assert not verify(identity, forged, b"any message")


@pytest.mark.parametrize("key", KEYS, ids=bytes.hex)
def test_no_such_key_enters_as_a_sites_identity(key):
    card = make_card("lyon")
    with pytest.raises(ConfigurationError, match="must be the public half of an Ed25519 key"):
        SiteCard("lyon", card.public_key, key.hex())
    with pytest.raises(ConfigurationError, match="must be the public half of an Ed25519 key"):
        SiteCard.from_mapping({**dataclasses.asdict(card), "identity": key.hex(), "fingerprint": ""}, "roster")
    with pytest.raises(ConfigurationError, match="must be the public half of an Ed25519 key"):
        MaskingSeal(Identity.generate(), {"lyon": key})
    with pytest.raises(ConfigurationError, match="must be the public half of an Ed25519 key"):
        AnalystCard("ada", key.hex())
    for signature in ((1).to_bytes(32, "little") + bytes(32), bytes(64), key + bytes(32)):
        assert not verify(key, signature, b"a message")
        head = Head(3, "ab" * 32, "s", key.hex(), signature.hex())
        assert not head.is_signed
        witness = Witness("oslo", Ledger(study="s"))
        witness.receive(Statement.signed({"lyon": head}, Identity.generate()).packed)
        assert witness.heads == {}


@pytest.mark.parametrize("key", [P.to_bytes(32, "little"), (P + 3).to_bytes(32, "little"), bytes(31)])
def test_no_key_in_another_form_than_the_canonical_one_enters(key):
    with pytest.raises(ConfigurationError):
        check_public(key, "site lyon")


@pytest.mark.parametrize("key", KEYS, ids=bytes.hex)
def test_no_such_key_is_approved_as_the_key_of_releases(key, tmp_path):
    file = tmp_path / "release.pub"
    file.write_bytes(Ed25519PublicKey.from_public_bytes(key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(ConfigurationError, match="Ed25519 public key is needed"):
        recognise(str(file))


def test_no_secret_is_shared_with_a_point_of_small_order():
    coordinates = {u_of(y) for _, y in POINTS} | {P - 1}  # the last is of order 4 on the curve's twist
    assert len(coordinates) == 5
    private = X25519PrivateKey.generate()
    for u in coordinates:
        for public in encodings(u):
            with pytest.raises(IntegrityError, match="the public key must be a valid X25519 key"):
                exchange(private, public, "lyon")
