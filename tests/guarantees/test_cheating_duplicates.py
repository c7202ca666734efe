"""A coordinator that asks what it should not learns nobody's identifier, and not who is at two sites."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.duplicates.site import (
    MARK_BOUND,
    MAX_PAIRS,
    MAX_QUESTIONS,
    Agreeing,
    Agreement,
    Counting,
    DuplicatesPart,
    Marking,
)
from multicentre.linkage.keys.fold_check_site import MAX_TURNS, AuditedPart
from multicentre.linkage.keys.mixed_buckets import MODULUS as FOLD_MODULUS
from multicentre.linkage.keys.mixed_buckets import Checking, Reviewing, mark_folds
from multicentre.linkage.keys.occupied_buckets import MAX_BUCKETS, MIN_BUCKETS, MODULUS, mark_buckets, read_marks
from multicentre.linkage.keys.person_keys import soundex
from multicentre.linkage.persons import label_of
from multicentre.linkage.pseudonyms import PseudonymKey, pseudonymise

PERSONS = {"study": "hips", "person_key": "identifier", "kind": "identifier", "rules": "v1", "sites": (),
           "date_orders": (), "date_order": "iso"}  # fmt: skip
KEYS = {"patient_key": "", "key_columns": {"key 1": ("identifier",)}, "key_kinds": {"key 1": ("identifier",)}}
NAMES = [f"p{i}" for i in range(200)]
KEY = PseudonymKey.generate()
N_DRAWS = 20_000
RARE = 1e-8


def ready(part, *, masked=True, least=10):
    part.key, part.masked, part.least_behind = KEY, masked, least
    return part


def site(name="lyon", identifiers=tuple(NAMES), **terms):
    n = len(identifiers)
    return ready(DuplicatesPart(name, mc.data.TableData(np.zeros((n, 1)), np.arange(n) % 2, identifiers)), **terms)


def marking(*parts, **changed):
    nonces = {part.site: part.draw_nonce(Nothing()).nonce for part in parts}
    told = {**KEYS, "controls": (), "nonces": nonces, "n_buckets": 4096, "stratum": -1, "combination": 1}
    return Marking(**PERSONS, **{**told, **changed})


def marks_of_many(n_sites):
    """Return what a coordinator sees of one bucket that so many of five sites have, many times."""
    here, away = np.arange(N_DRAWS), np.arange(0)
    return sum(mark_buckets(here if k < n_sites else away, N_DRAWS, MARK_BOUND) for k in range(5))


@pytest.mark.parametrize("n_sites", [2, 3, 5])
def test_sums_do_not_tell_how_many_sites_have_a_bucket(n_sites):
    alone, shared = marks_of_many(1), marks_of_many(n_sites)
    assert stats.ks_2samp(alone, shared).pvalue > RARE
    assert stats.ks_2samp(alone % MODULUS, shared % MODULUS).pvalue > RARE
    parity = [np.bincount(total // MODULUS % 4, minlength=4) for total in (alone, shared)]
    assert stats.chi2_contingency(parity).pvalue > RARE


def test_without_the_random_multiples_they_would():
    """The control of the test above: residues alone, added as whole numbers, tell."""
    alone, shared = (sum(mark_buckets(np.arange(N_DRAWS), N_DRAWS, MODULUS) for _ in range(n)) for n in (1, 2))
    assert stats.ks_2samp(alone, shared).pvalue < 1e-10


def test_empty_buckets_look_like_others_but_for_their_residue():
    empty, occupied = marks_of_many(0), marks_of_many(1)
    assert stats.ks_2samp(empty // MODULUS, occupied // MODULUS).pvalue > RARE
    assert not read_marks(empty).any()
    assert read_marks(occupied).all()


@pytest.mark.parametrize("n_records", [2, 5])
def test_sums_by_fold_do_not_tell_how_many_records_a_bucket_has(n_records):
    here = np.arange(N_DRAWS)
    first, second = (
        np.sum([mark_folds(here, np.full(N_DRAWS, 3), N_DRAWS, MARK_BOUND) for _ in range(n)], axis=0)
        for n in (1, n_records)
    )
    for one, other in zip(first, second, strict=True):
        assert stats.ks_2samp(one % FOLD_MODULUS, other % FOLD_MODULUS).pvalue > RARE


def test_two_questions_cannot_be_laid_side_by_side():
    """Under labels that serve once, a person's bucket is elsewhere in each question: no average sharpens it."""
    lyon = site()
    patterns = np.array([read_marks(lyon.mark(marking(lyon)).marks) for _ in range(40)])
    expected = patterns.mean()
    assert patterns.sum(axis=0).max() < 40 * expected + 12 * np.sqrt(40 * expected)
    both = (patterns[0] & patterns[1]).sum()
    assert both <= stats.binom(4096, patterns[0].mean() * patterns[1].mean()).ppf(1 - RARE)


def test_a_label_is_not_answered_under_twice():
    """Nor for other records: what a site is asked of a fold and of all its records lies under different labels."""
    lyon, fold = site(), site(identifiers=tuple(NAMES[:50]))
    request = marking(lyon)
    lyon.mark(request)
    for part in (lyon, fold):
        with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
            part.mark(request)
    fold.draw_nonce(Nothing())
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
        fold.mark(request)


def test_no_answer_leaves_in_clear():
    lyon = site(masked=False)
    told = Counting(**PERSONS, **KEYS, controls=("TESTPATIENT1",))
    for step, request in ((lyon.mark, marking(lyon)), (lyon.count_persons, told), (lyon.find_controls, told)):
        with pytest.raises(DisclosureRefused, match="must be masked"):
            step(request)


@pytest.mark.parametrize("control", ["p7", "P-7", "943 476 5919", "test", "patient1"])
def test_a_site_does_not_tell_whether_it_knows_an_identifier(control):
    lyon = site()
    told = Counting(**PERSONS, **KEYS, controls=("TESTPATIENT1", control))
    for step, request in (
        (lyon.find_controls, told),
        (lyon.count_persons, told),
        (lyon.mark, marking(lyon, controls=(control,))),
    ):
        with pytest.raises(RefusedByPolicy, match="could be a person's"):
            step(request)


@pytest.mark.parametrize("n_buckets", [-1, 0, 1, MIN_BUCKETS - 1, MAX_BUCKETS + 1, 2**40])
def test_numbers_of_buckets_have_limits(n_buckets):
    lyon = site()
    with pytest.raises(ConfigurationError, match="n_buckets must be from 1024 to 8388608"):
        lyon.mark(marking(lyon, n_buckets=n_buckets))


@pytest.mark.parametrize("combination", [-1, 0, 2, 2**40])
def test_combinations_of_keys_that_there_are_not(combination):
    lyon = site()
    with pytest.raises(ConfigurationError, match="combination must be from 1 to 1"):
        lyon.mark(marking(lyon, combination=combination))


def test_more_keys_than_four_are_refused():
    """Each key more doubles the questions, and tells more of how people's columns agree."""
    lyon = site()
    columns = {f"key {k}": ("identifier",) for k in range(5)}
    request = marking(lyon, key_columns=columns, key_kinds=dict.fromkeys(columns, ("identifier",)))
    with pytest.raises(ConfigurationError, match="there must be from 1 to 4 keys; got 5"):
        lyon.mark(request)


@pytest.mark.parametrize("stratum", [-2, 2, 10**6])
def test_classes_that_there_are_not(stratum):
    lyon = site()
    with pytest.raises(ConfigurationError, match="stratum must be a class from 0 to 1, or -1 for all"):
        lyon.mark(marking(lyon, stratum=stratum))


def test_questions_of_a_session_are_numbered():
    lyon = site(identifiers=("a",))
    for _ in range(MAX_QUESTIONS):
        lyon.mark(marking(lyon, n_buckets=MIN_BUCKETS))
    with pytest.raises(ConfigurationError, match="a session must have at most 101 questions"):
        lyon.mark(marking(lyon))


def test_marks_are_never_the_same_twice():
    lyon, oslo = site(), site("oslo")
    request = marking(lyon, oslo)
    first, second = lyon.mark(request).marks, oslo.mark(request).marks
    occupied = read_marks(first)
    assert (read_marks(second) == occupied).all()  # the same people, in the same buckets
    assert (first[occupied] == second[occupied]).mean() < 0.01


def people_with_names(n=400):
    """Return a site whose people have a surname of few, and a birth date of many."""
    random = np.random.default_rng(3)
    surnames = random.choice(["MEYER", "SMITH", "GARCIA", "ROSSI", "IVANOVA", "NGUYEN", "KOVACS", "JENSEN"], n)
    births = np.datetime64("1930-01-01") + random.integers(0, 25_000, n)
    columns = {"surname": surnames.tolist(), "born": births.astype(str).tolist(), "number": [f"n{i}" for i in range(n)]}
    data = mc.data.TableData(np.zeros((n, 1)), np.arange(n) % 2).with_identifier(columns)
    return ready(DuplicatesPart("lyon", data)), columns


SEVERAL = {
    "key_columns": {"key 1": ("born",), "key 2": ("surname", "born")},
    "key_kinds": {"key 1": ("date",), "key 2": ("soundex", "year")},
    "patient_key": "number",
}


def test_the_keys_of_a_person_cannot_be_laid_side_by_side():
    """A person's bucket by one key says nothing of the bucket by another, nor of that by both keys together."""
    lyon, _ = people_with_names()
    patterns = [read_marks(lyon.mark(marking(lyon, **SEVERAL, combination=keys)).marks) for keys in (1, 2, 3, 1, 2, 3)]
    for k, one in enumerate(patterns):
        for other in patterns[k + 1 :]:
            expected = stats.binom(4096, one.mean() * other.mean())
            assert expected.ppf(RARE) <= (one & other).sum() <= expected.ppf(1 - RARE)


def test_values_of_coarse_keys_cannot_be_tried_out_without_the_key():
    """A coordinator hashes every birth date, year and sound that there is, under the labels that it has seen."""
    lyon, columns = people_with_names()
    for combination, values in ((1, columns["born"]), (2, None)):
        request = marking(lyon, **SEVERAL, combination=combination)
        occupied = read_marks(lyon.mark(request).marks)
        if values is None:
            sounds = sorted({soundex(name) for name in columns["surname"]})
            values = [f"{len(sound)}:{sound}4:{year}" for sound in sounds for year in range(1930, 1999)]
        else:
            values = [f"10:{value}" for value in values]
        purpose = f"duplicates/v2/{label_of(request.nonces)}/hips"
        hits = {
            name: occupied[pseudonymise(values, key, purpose=purpose, kind="combined").buckets(4096)].mean()
            for name, key in (("coordinator", PseudonymKey.generate()), ("site", KEY))
        }
        chance = stats.binom(len(values), occupied.mean())
        assert hits["coordinator"] * len(values) <= chance.ppf(1 - RARE)
        assert hits["site"] > 5 * occupied.mean()  # the control: the same attack with the key succeeds


def test_sensitivity_leaves_as_counts_behind_masks():
    lyon, _ = people_with_names()
    request = Agreeing(**PERSONS, **SEVERAL, controls=(), persons=1000.0)
    answer = lyon.count_agreement(request)
    assert {name for name, field in Agreement.declarations().items() if field.counts} == {"repeated"}
    assert answer.repeated.shape == (3, 2)
    lyon.masked = False
    with pytest.raises(DisclosureRefused, match="must be masked"):
        lyon.count_agreement(request)
    lyon.masked = True
    with pytest.raises(ConfigurationError, match="patient_key must be a column"):
        lyon.count_agreement(dataclasses.replace(request, patient_key=""))


@pytest.mark.parametrize("persons", [-1e300, 0.0, 1e300])
def test_numbers_of_persons_that_there_are_not_do_not_break_a_site(persons):
    lyon, _ = people_with_names()
    answer = lyon.count_agreement(Agreeing(**PERSONS, **SEVERAL, controls=(), persons=persons))
    assert 0 <= answer.chance <= MAX_PAIRS
    assert 0 <= answer.chance_variance <= MAX_PAIRS


class Divided(AuditedPart):
    method = "divided"

    @property
    def folds(self):
        return np.arange(len(self.data)) % 5


def audited(**terms):
    columns = {"identifier": NAMES, "birth_date": [f"19{10 + i % 80}-01-02" for i in range(200)]}
    data = mc.data.TableData(np.zeros((200, 1)), np.zeros(200)).with_identifier(columns)
    return ready(Divided("lyon", data), **terms)


def checking(part, turn=0, mixed=(), **changed):
    nonces = {"lyon": part.draw_nonce(Nothing()).nonce}
    told = {"nonces": nonces, "n_buckets": 1024, "turn": turn, "mixed": np.array(mixed, dtype=np.int64)}
    return Checking(**{**PERSONS, **told, **changed})


def test_an_audit_is_a_few_questions_in_turn():
    part = audited()
    with pytest.raises(ConfigurationError, match="consecutive questions"):
        part.mark_folds(checking(part, turn=1))
    for turn in range(MAX_TURNS):
        part.mark_folds(checking(part, turn, mixed=range(1024)))
    for turn in (MAX_TURNS, MAX_TURNS - 1, -1, 2**40):
        with pytest.raises(ConfigurationError, match="consecutive questions"):
            part.mark_folds(checking(part, turn))


@pytest.mark.parametrize("mixed", [[-1], [1024], [0, 2**40]])
def test_buckets_that_there_are_not(mixed):
    part = audited()
    part.mark_folds(checking(part))
    with pytest.raises(ConfigurationError, match="mixed must be buckets from 0 to 1023"):
        part.mark_folds(checking(part, 1, mixed))


def test_an_audit_is_about_one_identifier():
    """Else a bucket's person could be followed from a number to a birth date."""
    part = audited()
    part.mark_folds(checking(part))
    with pytest.raises(ConfigurationError, match="all questions of an audit must use the same identifier"):
        part.mark_folds(checking(part, 1, [3], person_key="birth_date", kind="date"))


def test_an_audit_answers_behind_masks_and_under_labels_that_serve_once():
    part = audited()
    request = checking(part)
    part.mark_folds(request)
    with pytest.raises(RefusedByPolicy, match="the label of a question must contain this site's current nonce"):
        part.mark_folds(request)
    unmasked = audited(masked=False)
    for step, told in (
        (unmasked.mark_folds, checking(unmasked)),
        (unmasked.review_folds, Reviewing(**PERSONS, patient_key="")),
    ):
        with pytest.raises(DisclosureRefused, match="must be masked"):
            step(told)


def test_nothing_is_audited_before_it_is_divided():
    part = ready(AuditedPart("lyon", mc.data.TableData(np.zeros((20, 1)), np.zeros(20), NAMES[:20])))
    with pytest.raises(ConfigurationError, match="records must be split into folds before an audit"):
        part.mark_folds(checking(part))


def test_few_records_at_a_site_are_refused_by_its_guard():
    sizes = {"lyon": 9, "oslo": 90}
    sites = {name: mc.data.TableData(np.zeros((n, 1)), np.zeros(n), NAMES[:n]) for name, n in sizes.items()}
    with pytest.raises(DisclosureRefused, match="the site has fewer patients than its policy's minimum of 10"):
        mc.linkage.estimate_duplicate_rate(mc.Federation.in_process(sites, secure_sum=True))


def test_marks_leave_under_masks_alone():
    sites = {name: mc.data.TableData(np.zeros((90, 1)), np.zeros(90), NAMES[:90]) for name in ("lyon", "oslo")}
    federation = mc.Federation.in_process(sites, secure_sum=True)
    mc.linkage.estimate_duplicate_rate(federation)
    for ledger in federation.ledgers.values():
        marks = [entry for entry in ledger.entries if entry.get("step") == "mark"]
        assert marks
        assert all(entry["protection"] == "masked" for entry in marks)
