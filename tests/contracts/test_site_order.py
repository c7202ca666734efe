"""The order in which the sites of a study are listed changes no bit of any fit."""

import itertools

import numpy as np
import pytest

from multicentre.engines.faults import Faults
from support.method_cases import CASES, EXACT, each_case
from support.toy_method import Guess, MeanSite, federate


def numbers_of(case, sites, secure_sum):
    with federate(sites, policy=case.policy, secure_sum=secure_sum, faults=Faults()) as federation:
        return case.numbers(case.make().fit(federation))


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@each_case
@pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning")
@pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning")
def test_the_order_of_the_sites_changes_no_bit(name, secure):
    case = CASES[name]
    sites = dict(case.sites())
    listed = numbers_of(case, sites, secure)
    turned = numbers_of(case, dict(reversed(sites.items())), secure)
    assert {key: value.tobytes() for key, value in listed.items()} == {
        key: value.tobytes() for key, value in turned.items()
    }


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
def test_sums_and_answers_are_taken_in_the_order_of_the_names(order):
    rows = {"a": 6e10, "b": -6e10, "c": 1 / 3}  # doubles near 6e10 are 7.6e-6 apart
    sites = {site: np.full((10, 1), rows[site] / 10) for site in order}
    guess = Guess(np.zeros(1), 7)
    with federate(sites, policy=EXACT, secure_sum=False) as federation:
        assert federation.sites == ("a", "b", "c")
        answers = federation.begin(MeanSite).collect(MeanSite.residuals, guess)
    assert list(answers) == ["a", "b", "c"]
    a, b, c = (answer.total for answer in answers.values())
    with federate(sites, policy=EXACT, secure_sum=False) as federation:
        assert federation.begin(MeanSite).sum(MeanSite.residuals, guess).total == (a + b) + c
    assert (a + b) + c != (a + c) + b  # rounding tells the orders apart
