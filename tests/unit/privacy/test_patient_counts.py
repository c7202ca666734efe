"""Persons behind a site's records: how few they can be, who they are, and what nobody can tell."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.core.steps import SitePart
from multicentre.data import EventTensor, Identifiers, TableData
from multicentre.errors import ConfigurationError
from multicentre.privacy.patient_counts import People, people_of
from support.examples import examples

NOBODY = None
names = st.lists(st.sampled_from(["a", "b", "c", "d", NOBODY]), min_size=1, max_size=8)


class Clipping(SitePart):
    method = "clipping"
    clips_persons = True


def fewest_by_search(owners, n):
    """The smallest number of persons over all choices of n records; whoever has no name is taken for one of them."""
    known = [len({one for one in chosen if one is not NOBODY}) or 1 for chosen in combinations(owners, n)]
    return min(known)


@given(names)
@examples(200)
def test_the_fewest_persons_are_those_of_an_exhaustive_search(owners):
    crowd = People(owners).among()
    for n in range(1, len(owners) + 1):
        assert crowd.fewest(n) == fewest_by_search(owners, n)
    assert crowd.fewest(0) == 0


@given(names, st.data())
@examples(100)
def test_some_of_the_records_are_counted_by_themselves(owners, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(owners) - 1), min_size=1, unique=True)))
    chosen = [owners[row] for row in rows]
    assert People(owners).among(rows).fewest(len(rows)) == fewest_by_search(chosen, len(chosen))


def test_where_nobody_repeats_records_are_persons():
    for people in (People("abcd"), People(one_each=True), People()):
        assert [people.among().fewest(n) for n in (0, 3, 4)] == [0, 3, 4]
        assert people.most_records == 1
        assert people.patient_numbers() is None


def test_more_records_than_there_are_belong_to_everybody():
    assert People("aab").among().fewest(99) == 2


def test_what_is_counted_are_patients_unless_nobody_knows_whose_records_are():
    assert [one.counted for one in (People("ab"), People([None]), People(one_each=True), People())] == [
        "patients",
        "patients",
        "patients",
        "records",
    ]


@pytest.mark.parametrize(
    ("owners", "most", "hidden", "hidden_together"),
    [
        ("abc", 1, True, True),
        ("aba", 2, False, True),
        (["a", "b", None], 2, False, False),
        ([None, None], 2, False, False),
        ([None], 1, True, True),
    ],
)
def test_noise_hides_persons_of_one_record_or_those_that_are_clipped_together(owners, most, hidden, hidden_together):
    people = People(owners)
    assert (people.most_records, people.are_hidden_by(SitePart)) == (most, hidden)
    assert people.are_hidden_by(Clipping) == hidden_together


def test_owners_are_numbered_from_zero_and_only_where_all_have_a_name():
    assert People("bab").patient_numbers().tolist() == [0, 1, 0]
    assert People("babcc").patient_numbers(np.array([4, 1, 3])).tolist() == [1, 0, 1]
    assert People(["a", "a", None]).patient_numbers() is None


def test_tokens_tell_each_record_of_a_person_apart_wherever_it_is_chosen():
    people = People("babb")
    assert [one if isinstance(one, list) else one.tolist() for one in people.tokens()] == [list("babb"), [0, 0, 1, 2]]
    tokens, places = people.tokens(np.array([3, 1]))
    assert (tokens, places.tolist()) == (["b", "a"], [2, 0])
    for unnamed in (People(["a", None]), People(one_each=True), People()):
        assert unnamed.tokens()[0] == []


def site(**said):
    return SimpleNamespace(**said)


def test_ids_and_first_identifiers_go_before_what_the_study_states():
    born = Identifiers({"born": ["1950-01-31"] * 3, "card": ["7", "8", "9"]})
    card = Identifiers({"card": ["7", "8", None], "born": ["1950-01-31"] * 3})
    assert people_of(site(ids=["1", "2", "3"], identifier=card), one_row_per_patient=True).most_records == 1
    assert people_of(site(ids=["1", "2", "3"], identifier=Identifiers([None] * 3))).most_records == 1
    assert people_of(site(ids=["1", "1", "3"], identifier=card)).most_records == 2
    assert people_of(site(identifier=born)).most_records == 3
    assert people_of(site(identifier=Identifiers([None, None])), one_row_per_patient=True).counted == "patients"
    assert people_of(site(identifier=Identifiers([None, None]))).counted == "records"
    assert people_of(site()).counted == "records"
    assert people_of(site(), one_row_per_patient=True).counted == "patients"


def test_one_person_may_be_spelt_in_several_ways():
    assert people_of(site(identifier=Identifiers([" 00-12a", "0012A", "12a"]))).most_records == 2


def test_a_placeholder_is_one_person_and_no_crowd():
    assert people_of(site(identifier=Identifiers(["UNKNOWN"] * 12))).among().fewest(12) == 1


def test_a_statement_that_an_identifier_contradicts_is_refused_without_a_value():
    data = TableData([[1.0], [2.0]], [0, 1], identifier=["secret-7", "secret-7"])
    with pytest.raises(ConfigurationError, match=r"lyon.*one_row_per_patient must be false") as caught:
        people_of(data, "lyon", one_row_per_patient=True)
    assert "secret" not in str(caught.value)
    assert "id_column" in caught.value.hint


def test_a_statement_settles_whose_records_without_an_identifier_are():
    people = People(["a", None, None, "b"], one_each=True)
    assert (people.most_records, people.among().fewest(4)) == (1, 4)
    assert not people.names_all


def test_a_tensor_of_events_has_one_row_per_patient_unless_its_identifiers_say_otherwise():
    tensor = EventTensor([[0, 0, 0], [1, 0, 0]], [1.0, 1.0], {"procedure": ["p"], "diagnosis": ["d"]})
    assert people_of(tensor).counted == "patients"
    assert people_of(tensor.with_identifier(["7", "7"])).most_records == 2


def test_ids_that_are_finer_than_the_first_identifier_count_by_the_identifier():
    persons = Identifiers({"card": ["7", "7", "8"]})
    assert people_of(site(ids=["1", "2", "3"], identifier=persons)).most_records == 2
    with pytest.raises(ConfigurationError, match="an identifier repeats"):
        people_of(site(ids=["1", "2", "3"], identifier=persons), one_row_per_patient=True)


def test_records_are_of_one_patient_along_any_chain_of_ids_and_identifiers():
    chain = Identifiers({"card": ["7", "7", "8", "8", "9"]})
    assert people_of(site(ids=["1", "2", "2", "3", "4"], identifier=chain)).most_records == 4
