import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError, IntegrityError, MulticentreError
from multicentre.privacy.site_cards import SiteCard, read_card, write_card
from support.coordinators import make_card, make_key

CARD = make_card("São Paulo")


def test_card_is_read_as_written(tmp_path):
    path = write_card(CARD, tmp_path)
    assert path.name == "São Paulo.site.toml"
    assert read_card(path) == CARD


def test_comment_of_a_key_is_dropped_and_does_not_change_the_fingerprint():
    commented = SiteCard(CARD.name, f"{CARD.public_key} someone@hospital", CARD.identity)
    assert commented == CARD
    assert commented.fingerprint == CARD.fingerprint


@pytest.mark.parametrize("field", ["name", "public_key", "identity"])
def test_fingerprint_covers_every_field(field):
    other = make_card("Bern")
    changed = dataclasses.replace(CARD, **{field: getattr(other, field)})
    assert changed.fingerprint != CARD.fingerprint


@pytest.mark.parametrize("field", ["name", "public_key", "identity"])
def test_changed_card_is_refused(tmp_path, field):
    path, other = write_card(CARD, tmp_path), make_card("Bern")
    text = path.read_text().replace(json.dumps(getattr(CARD, field), ensure_ascii=False), f'"{getattr(other, field)}"')
    path.write_text(text)
    with pytest.raises(IntegrityError, match="fingerprint"):
        read_card(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("identity", "identiti", "no 'identity'"),
        ("name =", 'extra = "1"\nname =', "'extra'"),
        ("name =", "name = 1 #", "a text is needed"),
        ("name =", "name", "must be valid TOML"),
        ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256", "P-384"),
    ],
)
def test_what_is_no_card_is_refused(tmp_path, old, new, said):
    path = write_card(CARD, tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_card(path)
    assert caught.value.where.startswith(str(path))


def test_missing_card_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_card(tmp_path / "none.site.toml")


@pytest.mark.parametrize("key", ["", "ssh-ed25519 AAAA", "ecdsa-sha2-nistp384 AAAA", make_key() + "\n" + make_key()])
def test_other_keys_are_refused(key):
    with pytest.raises(ConfigurationError, match="P-384"):
        SiteCard("lyon", key, "ab" * 32)


@pytest.mark.parametrize("identity", ["", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"])
def test_other_identities_are_refused(identity):
    with pytest.raises(ConfigurationError, match="64 lower-case hexadecimal digits"):
        SiteCard("lyon", CARD.public_key, identity)


@given(st.binary(max_size=300))
def test_no_file_breaks_the_reader(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("card") / "x.site.toml"
    path.write_bytes(content)
    with pytest.raises(MulticentreError):
        read_card(path)
