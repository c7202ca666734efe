"""Keys, streams and signed bytes follow the published constructions, bit for bit, and differ by all that they name.

Both ends of a sum derive the same bytes, so a change that both make cancels in every sum; only a second implementation
shows it. HKDF-SHA256 (RFC 5869), BLAKE2b (RFC 7693) and ChaCha20 (RFC 8439) are computed here by other means than in
the package.
"""

import dataclasses
import functools
import hashlib
import json

import numpy as np
import pytest
from Crypto.Cipher import ChaCha20
from Crypto.Hash import BLAKE2b
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from multicentre.errors import IntegrityError
from multicentre.privacy.secure_sum.agreement import Chains
from multicentre.privacy.secure_sum.mask import (
    add_streams,
    check_of,
    derive,
    exchange,
    key_pair,
    pair_key,
    seed_of_sum,
    self_mask_key,
)
from multicentre.privacy.secure_sum.messages import Invitation
from multicentre.privacy.secure_sum.recovery import open_box, seal_box
from multicentre.privacy.secure_sum.shares import PRIME, combine_shares, new_seeds, split_seeds
from multicentre.privacy.secure_sum.unmasking import Opened, seal_answer

SEED = bytes(range(16))
TERMS = Invitation("study", "0.1", "first", ("lyon", "metz", "nice"), 2, 4, 0)
LABEL = TERMS.label(3, "fit", "transcript")


def hkdf(secret, *label, n_bytes=32):
    info = json.dumps(["multicentre secure sum", *label]).encode()
    return HKDF(algorithm=SHA256(), length=n_bytes, salt=None, info=info).derive(secret)


def blake(key, content):
    return BLAKE2b.new(key=key, digest_bits=256, data=content).digest()


def public(private):
    return private.public_key().public_bytes_raw()


LYON, NICE = key_pair(SEED), key_pair(bytes(16))
SHARED = LYON.exchange(NICE.public_key())


def test_keys_are_derived_as_published():
    assert derive(SEED, "a purpose", 7) == hkdf(SEED, "a purpose", 7)
    assert derive(SEED, "a purpose", n_bytes=16) == hkdf(SEED, "a purpose", n_bytes=16)
    assert key_pair(SEED).private_bytes_raw() == hkdf(SEED, "key pair")
    assert self_mask_key(SEED, LABEL) == hkdf(SEED, "own mask", *LABEL)
    assert seed_of_sum(SEED, 3) == hkdf(SEED, "own seed", 3, n_bytes=16)
    assert check_of(SEED) == hkdf(SEED, "check", n_bytes=16)
    assert exchange(LYON, public(NICE), "nice") == SHARED
    assert pair_key(LYON, public(NICE), "lyon", "nice", LABEL) == (hkdf(SHARED, "pair mask", *LABEL), 1)
    assert pair_key(NICE, public(LYON), "nice", "lyon", LABEL) == (hkdf(SHARED, "pair mask", *LABEL), -1)


@pytest.mark.parametrize("n", [1, 100, 4096, 4097, 40_000])
def test_streams_are_those_of_chacha20_from_block_one(n):
    one, two = bytes(range(32)), bytes(32)
    plain = [ChaCha20.new(key=key, nonce=bytes(12)).encrypt(bytes(64 + 8 * n)) for key in (one, two)]
    streams = [np.frombuffer(stream, dtype="<u8", offset=64) for stream in plain]
    vector = np.arange(n, dtype=np.uint64)
    add_streams(vector, [(one, 1), (two, -1)])
    np.testing.assert_array_equal(vector, np.arange(n, dtype=np.uint64) + streams[0] - streams[1])


def test_a_chain_is_keyed_blake2b_link_by_link():
    secrets = {"lyon": bytes(32), "nice": SEED * 2}
    chains = Chains("metz", secrets, ("study", "0.1", "first"))
    links = [hkdf(secrets["lyon"], "pair chain", "study", "0.1", "first", "lyon", "metz")]
    links.append(hkdf(secrets["nice"], "pair chain", "study", "0.1", "first", "metz", "nice"))
    for number, label in ((0, ("a",)), (1, ("b", 7)), (4, LABEL)):
        content = b"stream\n" + json.dumps(label).encode()
        at_number = [functools.reduce(blake, [b"next"] * number, link) for link in links]
        expected = [(blake(link, content), sign) for link, sign in zip(at_number, (-1, 1), strict=True)]
        assert chains.streams(number, label) == expected


def test_a_label_holds_all_that_tells_one_sum_from_another():
    assert LABEL == ("study", "0.1", "first", 3, "fit", "transcript")


def test_sites_sign_the_terms_and_their_own_keys():
    signed = TERMS.signed_by("nice", "run", b"channel", b"keys", b"checks", "fields")
    roster = hashlib.sha256(json.dumps(["lyon", "metz", "nice"]).encode()).hexdigest()
    terms = ["run", "study", "0.1", "first", roster, 2, 4, 0, "nice", "fields"]
    assert signed == b"multicentre secure sum, keys\n" + json.dumps(terms).encode() + b"\nchannelkeyschecks"


def test_a_list_of_one_sum_is_bound_to_one_set_of_keys():
    content = TERMS.list_content(3, ("lyon", "nice"), b"digest")
    told = ["study", "0.1", "first", 3, ["lyon", "nice"]]
    assert content == b"multicentre secure sum, survivors\n" + json.dumps(told).encode() + b"\ndigest"


def test_pads_and_the_key_of_an_answer_are_derived_as_published():
    key, digest = bytes(range(32)), bytes(range(1, 33))
    content = Opened(np.arange(16, dtype=np.uint8), np.zeros((0, 16), np.uint8))
    answer = seal_answer(content, 2, {0: key}, 2, 3, digest)
    pads = [
        BLAKE2b.new(key=key, digest_bits=128, data=digest + bytes([sharer, 0, 0, 0, helper, 0, 0, 0])).digest()
        for sharer, helper in ((2, 0), (0, 2))
    ]
    assert answer.pads.tobytes() == pads[1] + bytes(32)
    shares = {0: answer.shares[0] ^ np.frombuffer(pads[0], np.uint8), 2: answer.shares[2]}
    key_of_answer = hkdf(combine_shares(shares, 2), "unmasking", digest.hex())
    opened = ChaCha20Poly1305(key_of_answer).decrypt(bytes(12), answer.sealed.tobytes(), None)
    assert opened == bytes(range(16))


CHANGES = [
    {"study": "other"},
    {"session": "0.2"},
    {"agreement": "second"},
    {"sites": ("metz", "lyon", "nice")},
    {"threshold": 3},
    {"n_sums": 5},
    {"n_colluding": 1},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_no_signature_serves_other_terms(changes):
    other = dataclasses.replace(TERMS, **changes)
    assert other.signed_by("nice", "run", b"c", b"k", b"h", "f") != TERMS.signed_by(
        "nice", "run", b"c", b"k", b"h", "f"
    )


# Boxes and shares


def boxed(way=("lyon", "nice")):
    return seal_box(np.arange(64, dtype=np.uint8), SHARED, TERMS, way)


def test_a_box_is_read_by_its_receiver_alone():
    assert open_box(boxed(), exchange(NICE, public(LYON), "lyon"), TERMS, ("lyon", "nice")).tolist() == list(range(64))
    other = exchange(X25519PrivateKey.generate(), public(LYON), "lyon")
    with pytest.raises(IntegrityError, match=r"^lyon: the shares of this site must arrive unchanged.*run again"):
        open_box(boxed(), other, TERMS, ("lyon", "nice"))


def test_a_box_is_encrypted_as_published():
    label = ("shares", "study", "0.1", "first", "lyon", "nice")
    opened = ChaCha20Poly1305(hkdf(SHARED, *label)).decrypt(bytes(12), boxed(), repr(label).encode())
    assert opened == bytes(range(64))


@pytest.mark.parametrize("changes", CHANGES[:3])
def test_a_box_of_other_terms_is_refused(changes):
    with pytest.raises(IntegrityError, match=r"^lyon: the shares"):
        open_box(boxed(), SHARED, dataclasses.replace(TERMS, **changes), ("lyon", "nice"))


@pytest.mark.parametrize("way", [("nice", "lyon"), ("metz", "nice"), ("lyon", "metz")])
def test_a_box_is_bound_to_sender_and_receiver(way):
    with pytest.raises(IntegrityError, match=rf"^{way[0]}: the shares"):
        open_box(boxed(), SHARED, TERMS, way)


def test_the_two_ways_between_two_sites_are_encrypted_under_two_keys():
    # Both ways share one secret and one nonce: under one key, the two boxes would give away their difference.
    plain = np.zeros(64, dtype=np.uint8)
    there = seal_box(plain, SHARED, TERMS, ("lyon", "nice"))
    back = seal_box(plain, SHARED, TERMS, ("nice", "lyon"))
    assert there[:64] != back[:64]


def test_a_key_of_low_order_names_the_peer():
    with pytest.raises(IntegrityError, match=r"^metz: the public key must be a valid X25519 key.*run again"):
        exchange(LYON, bytes(32), "metz")


def test_as_many_shares_as_the_threshold_give_a_seed_and_one_fewer_does_not():
    seeds = [SEED, bytes(16)]
    shares = split_seeds(seeds, 3, 5)
    assert shares.shape == (5, 2, 16)
    for number, seed in enumerate(seeds):
        of_seed = {position: shares[position, number] for position in (4, 0, 2, 3)}
        assert combine_shares(of_seed, 3) == seed
        assert combine_shares({position: of_seed[position] for position in (3, 2)}, 3) != seed
    assert len({share.tobytes() for share in shares.reshape(-1, 16)}) == 10


@pytest.mark.parametrize(("threshold", "n_sites"), [(2, 3), (3, 5), (26, 50), (200, 300)])
def test_shares_are_values_of_one_polynomial_a_symbol(threshold, n_sites):
    """Divided differences in exact arithmetic: those of the order of the threshold are zero, one order lower not."""
    (seed,) = new_seeds(1)
    shares = split_seeds([seed], threshold, n_sites)[:, 0].copy().view("<u2").astype(object)
    values = np.concatenate([[np.frombuffer(seed, "<u2").astype(object)], shares])[: threshold + 1]
    order = 0
    while len(values) > 1 and (values % PRIME).any():
        values, order = (values[1:] - values[:-1]) % PRIME, order + 1
    assert order == threshold if len(values) == 1 else order < threshold
    assert not (values % PRIME).any()


def test_one_share_short_of_the_threshold_every_seed_is_as_likely():
    """Threshold 2 and one share: over all seeds and coefficients of a symbol, each share occurs once for each seed."""
    shares = np.concatenate([split_seeds(new_seeds(2000), 2, 3)[1].copy().view("<u2").ravel() for _ in range(2)])
    zeros = np.concatenate([split_seeds([bytes(16)] * 2000, 2, 3)[1].copy().view("<u2").ravel() for _ in range(2)])
    for drawn in (shares, zeros):
        assert drawn.max() < PRIME
        counts = np.bincount(drawn // 1024, minlength=64)[:63]
        assert abs(counts / len(drawn) - 1024 / PRIME).max() < 0.004


def test_seeds_have_symbols_below_the_prime_and_others_are_refused():
    drawn = np.frombuffer(b"".join(new_seeds(20_000)), "<u2")
    assert drawn.max() < PRIME
    assert len(np.unique(drawn)) > 0.85 * PRIME
    with pytest.raises(ValueError, match="symbols of seeds"):
        split_seeds([b"\xff" * 16], 2, 3)
    with pytest.raises(ValueError, match="number of sites"):
        split_seeds([bytes(16)], 2, PRIME)
