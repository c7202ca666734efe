"""Errors say what, where and how to mend it, and survive being copied."""

import copy
import pickle

import pytest

from multicentre.federation import errors
from multicentre.federation.errors import DataError, MulticentreError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MulticentreError)]


def test_codes_are_unique():
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes) >= 12


def test_families_have_an_exit_code_each():
    assert {kind.exit_code for kind in KINDS} == {3, 4, 5, 6, 7, 8, 70}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_is_the_same_error(kind, double):
    error = kind("it broke", where="lyon, imaging", mend="Repair it.")
    twin = double(error)
    assert type(twin) is kind
    assert str(twin) == str(error) == f"lyon, imaging: it broke. Repair it. [{kind.code}]"


def test_a_place_is_put_in_front_once():
    error = DataError("it broke", where="imaging")
    assert error.at("lyon").where == "lyon, imaging"
    assert error.at("lyon").at("lyon").where == "lyon, imaging"
    assert DataError("it broke", where="lyon").at("lyon").where == "lyon"
    assert DataError("it broke", where="lyon-2").at("lyon").where == "lyon, lyon-2"
    assert DataError("it broke", mend="Do.").at("lyon").mend == "Do."
    assert str(DataError("it broke")) == "it broke. [MC302]"
