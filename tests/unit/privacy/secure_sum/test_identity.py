"""Signing keys of sites: what is signed is verified, and no key that others could use is accepted."""

import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from multicentre.errors import ConfigurationError
from multicentre.privacy.secure_sum.identity import Identity, bytes_of_hex, check_public, has_small_order, verify

P = 2**255 - 19

# RFC 8032, section 7.1, test 2.
SECRET = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
MESSAGE = b"\x72"
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
# The y-coordinate of the points of order 8 (the other is its negative), from the curve's equation.
ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7


def encoded(y, sign=0):
    return (y + sign * 2**255).to_bytes(32, "little")


def test_a_key_of_the_standard_signs_as_the_standard_says():
    identity = Identity(Ed25519PrivateKey.from_private_bytes(SECRET))
    assert identity.public == PUBLIC
    assert identity.sign(MESSAGE) == SIGNATURE
    assert repr(identity) == f"Identity({PUBLIC.hex()})"
    assert SECRET.hex() not in repr(identity)


def test_a_signature_is_of_one_message_and_one_key():
    assert verify(PUBLIC, SIGNATURE, MESSAGE)
    assert not verify(PUBLIC, SIGNATURE, b"\x73")
    assert not verify(PUBLIC, SIGNATURE[:-1] + b"\x01", MESSAGE)
    assert not verify(Identity.generate().public, SIGNATURE, MESSAGE)
    for public, signature in ((b"", SIGNATURE), (PUBLIC[:31], SIGNATURE), (PUBLIC, b""), (PUBLIC, SIGNATURE[:63])):
        assert not verify(public, signature, MESSAGE)


@pytest.mark.parametrize("y", [0, 1, P - 1, ORDER_8, P - ORDER_8, P, P + 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_points_of_small_order_are_found_in_every_encoding(y, sign):
    """y and y + p are the same coordinate; the highest bit is the sign of x."""
    assert has_small_order(encoded(y, sign))


@pytest.mark.parametrize("y", [2, 3, P - 2, P + 2, 2**254, ORDER_8 + 1, ORDER_8 - 1, 256, 2**248])
def test_other_points_are_not_of_small_order(y):
    """256 and 2^248 are the number 1 with its bytes in other orders."""
    assert not has_small_order(encoded(y))


def test_a_canonical_key_is_an_identity():
    check_public(PUBLIC, "site lyon, identity")
    check_public(encoded(P - 2), "site lyon, identity")
    check_public(encoded(P - 2, sign=1), "site lyon, identity")


@pytest.mark.parametrize(
    ("public", "got"),
    [
        (encoded(1), "a point of small order, under which anybody can sign"),
        (encoded(P - 1, 1), "a point of small order, under which anybody can sign"),
        (encoded(P + 1), "a point of small order, under which anybody can sign"),
        (encoded(P + 2), "32 other bytes"),  # not canonical
        (PUBLIC[:31], "31 other bytes"),
        (PUBLIC + b"\0", "33 other bytes"),
        (b"\x01", "1 other bytes"),
        (b"", "0 other bytes"),
    ],
)
def test_any_other_key_is_refused_with_the_reason(public, got):
    with pytest.raises(ConfigurationError) as caught:
        check_public(public, "site lyon, identity")
    assert caught.value.where == "site lyon, identity"
    assert caught.value.what == (
        f"an identity must be the public half of an Ed25519 key in its canonical form; got {got}"
    )
    assert caught.value.hint == "Ask the site for its card, which multicentre site keygen writes."


def test_an_identity_is_written_once_for_its_owner_and_read_back(tmp_path):
    path, identity = tmp_path / "identity", Identity.generate()
    identity.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Identity.read(path)
    assert again.public == identity.public
    assert again.sign(MESSAGE) == identity.sign(MESSAGE)
    with pytest.raises(ConfigurationError):
        Identity.generate().write(path)
    assert Identity.read(path).public == identity.public
    with pytest.raises(ConfigurationError) as caught:
        Identity.read(tmp_path / "absent")
    assert "Only this site has this key." in caught.value.hint


def test_two_identities_differ():
    assert Identity.generate().public != Identity.generate().public


def test_a_key_has_one_text_only():
    assert bytes_of_hex("00ff1e") == b"\x00\xff\x1e"
    for text in ("00FF1E", "00 ff 1e", "0", "0x", "xyz"):
        with pytest.raises(ValueError, match=r"^$|hexadecimal|hex"):
            bytes_of_hex(text)
