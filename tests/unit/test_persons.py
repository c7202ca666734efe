"""Labels of questions about people: every site has a hand in them, and each serves once."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.federation.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.federation.messages import Nothing
from multicentre.persons import KeyedPart, Persons, Study, label_of
from multicentre.privacy.pseudonyms import PseudonymKey, pseudonymise


def part(site="lyon", identifiers=("a", "b")):
    made = KeyedPart(site, mc.data.TableData(np.zeros((len(identifiers), 1)), np.zeros(len(identifiers)), identifiers))
    made.key = PseudonymKey.generate()
    return made


def persons(**changed):
    told = {"study": "hips", "person_key": "identifier", "kind": "identifier", "rules": "v1", "sites": ("lyon",),
            "date_orders": ("dmy",), "date_order": "iso"}  # fmt: skip
    return Persons(**{**told, **changed})


def test_a_label_serves_once():
    lyon = part()
    nonces = {"lyon": lyon.draw_nonce(Nothing()).nonce, "oslo": np.zeros(16, dtype=np.uint8)}
    assert lyon.use_label(nonces) == label_of(nonces)
    with pytest.raises(RefusedByPolicy, match="serves once"):
        lyon.use_label(nonces)


def test_an_older_nonce_is_void():
    lyon = part()
    nonces = {"lyon": lyon.draw_nonce(Nothing()).nonce}
    lyon.draw_nonce(Nothing())
    with pytest.raises(RefusedByPolicy, match="serves once"):
        lyon.use_label(nonces)


@pytest.mark.parametrize("nonces", [{}, {"oslo": np.ones(16, dtype=np.uint8)}, {"lyon": np.zeros(16, dtype=np.uint8)}])
def test_a_label_without_the_sites_own_nonce_is_refused(nonces):
    lyon = part()
    with pytest.raises(RefusedByPolicy, match="serves once"):
        lyon.use_label(nonces)
    lyon.draw_nonce(Nothing())
    with pytest.raises(RefusedByPolicy, match="serves once"):
        lyon.use_label(nonces)


def test_labels_depend_on_every_site_and_nonce_and_on_no_order():
    one, other = np.arange(16, dtype=np.uint8), np.ones(16, dtype=np.uint8)
    labels = [label_of(nonces) for nonces in ({"a": one, "b": other}, {"a": other, "b": one}, {"a": one}, {"ab": one})]
    assert len(set(labels)) == 4
    assert label_of({"b": other, "a": one}) == labels[0]


def test_tokens_are_those_of_the_key_the_purpose_and_the_study():
    lyon = part()
    made = lyon.tokens(["31/01/1950"], persons(kind="date"), "x/v1")
    same = pseudonymise(["1950-01-31"], lyon.key, purpose="x/v1/hips", kind="date")
    assert made.hex() == same.hex()


def test_a_site_without_a_key_or_with_other_rules_refuses():
    lyon = part()
    with pytest.raises(ConfigurationError, match="rules of normalisation"):
        lyon.tokens(["a"], persons(rules="v2"), "x/v1")
    lyon.key = None
    assert lyon.tell_fingerprint(Study("hips")).fingerprint == ""
    with pytest.raises(ConfigurationError, match="no key"):
        lyon.tokens(["a"], persons(), "x/v1")


def test_a_refused_value_is_placed_and_not_quoted():
    with pytest.raises(DataError, match=r"lyon, identifier: .*two-digit year") as refused:
        part().tokens(["31/01/50"], persons(kind="date"), "x/v1")
    assert not any(told in str(refused.value) for told in ("31/01/50", "value 1"))


def test_names_of_records_stand_in_for_the_one_column():
    named = KeyedPart("lyon", mc.data.SurvivalData([[1.0], [2.0]], [1.0, 2.0], [1, 0], ids=["r1", "r2"]))
    assert named.identifiers("identifier") == ["r1", "r2"]
    with pytest.raises(DataError, match="no identifiers"):
        named.identifiers("birth_date")
