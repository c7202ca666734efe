"""Labels of questions about people: every site has a hand in them, and each serves once."""

from types import SimpleNamespace

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.linkage import persons as drawing_labels
from multicentre.linkage.alignment import align
from multicentre.linkage.keys import occupied_buckets
from multicentre.linkage.persons import KeyedPart, Persons, Study, label_of
from multicentre.linkage.pseudonyms import PseudonymKey, pseudonymise


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
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
        lyon.use_label(nonces)


def test_an_older_nonce_is_void():
    lyon = part()
    nonces = {"lyon": lyon.draw_nonce(Nothing()).nonce}
    lyon.draw_nonce(Nothing())
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
        lyon.use_label(nonces)


@pytest.mark.parametrize("nonces", [{}, {"oslo": np.ones(16, dtype=np.uint8)}, {"lyon": np.zeros(16, dtype=np.uint8)}])
def test_a_label_without_the_sites_own_nonce_is_refused(nonces):
    lyon = part()
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
        lyon.use_label(nonces)
    lyon.draw_nonce(Nothing())
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
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
    assert lyon.send_fingerprint(Study("hips")).fingerprint == ""
    with pytest.raises(ConfigurationError, match="the site must have the study's key of pseudonyms"):
        lyon.tokens(["a"], persons(), "x/v1")


def test_a_refused_value_is_placed_and_not_quoted():
    with pytest.raises(DataError, match=r"lyon, identifier: .*two-digit year") as refused:
        part().tokens(["31/01/50"], persons(kind="date"), "x/v1")
    assert not any(told in str(refused.value) for told in ("31/01/50", "value 1"))


def test_names_of_records_stand_in_for_the_one_column():
    named = KeyedPart("lyon", mc.data.SurvivalData([[1.0], [2.0]], [1.0, 2.0], [1, 0], ids=["r1", "r2"]))
    assert named.identifiers("identifier") == ["r1", "r2"]
    with pytest.raises(DataError, match="must have identifiers"):
        named.identifiers("birth_date")


def test_a_sole_identifier_needs_no_name():
    def with_columns(*names):
        data = mc.data.TableData([[1.0], [2.0]], [0, 1])
        return KeyedPart("lyon", data.with_identifier({name: [f"{name}1", None] for name in names}))

    assert with_columns("born").identifiers("identifier") == ["born1", None]
    assert with_columns("born").identifiers("born") == ["born1", None]
    assert with_columns("born", "identifier").identifiers("identifier") == ["identifier1", None]
    for several in (with_columns("born", "number"), with_columns("born", "name")):
        with pytest.raises(DataError, match=r"must be one of born, .*; got 'identifier'.*person_key='born'"):
            several.identifiers("identifier")
    with pytest.raises(DataError, match="got 'number'"):
        with_columns("born").identifiers("number")


def federation_of(columns):
    """Return sites that share 20 people, each of whom a site knows by a column of a name of its own."""
    random, sites = np.random.default_rng(0), {}
    for first, (site, column) in enumerate(columns.items()):
        people = [f"p{number}" for number in range(80 * first, 80 * first + 100)]
        data = mc.data.TableData(random.normal(size=(100, 2)), np.arange(100) % 2)
        sites[site] = data.with_identifier({column: people})
    return mc.Federation.in_process(sites)


def questions():
    validation = mc.validation
    return {
        "duplicates": lambda federation, **key: (
            mc.linkage.estimate_duplicate_rate(federation, buckets_per_record=512, **key).n_shared
        ),
        "folds": lambda federation, **key: (
            validation.check_interfold(federation, validation.HashGroupKFold(2, **key).plan(federation)).n_violations
        ),
        "audit": lambda federation, **key: (
            validation.check_interfold(federation, validation.FederatedKFold(2).plan(federation), **key).n_shared
        ),
        "sites": lambda federation, **key: (
            validation.LeaveOneSiteOut(drop_shared=True, **key).plan(federation).counts.tolist()
        ),
        "alignment": lambda federation, **key: align(federation, **key).n_common,
    }


@pytest.mark.filterwarnings("ignore:.*not at all other sites:UserWarning", "ignore:a rate of 0:UserWarning")
@pytest.mark.parametrize("question", questions().values(), ids=questions())
def test_a_sole_identifier_is_found_without_its_name(question, monkeypatch):
    """Estimates vary with what sites draw, so that is fixed; sessions still have labels of their own."""
    federation = federation_of({"lyon": "born", "oslo": "born"})
    answers = []
    for key in ({}, {"person_key": "born"}):
        drawn = SimpleNamespace(token_bytes=np.random.default_rng(0).bytes)
        for module in (drawing_labels, occupied_buckets):
            monkeypatch.setattr(module, "secrets", drawn)
        answers.append(question(federation, **key))
    assert answers[0] == pytest.approx(answers[1], abs=3.0)


@pytest.mark.parametrize("question", questions().values(), ids=questions())
def test_sole_identifiers_of_other_names_are_not_compared(question):
    with pytest.raises(ConfigurationError, match="same identifier; got 'born' at lyon, 'number' at oslo"):
        question(federation_of({"lyon": "born", "oslo": "number"}))
