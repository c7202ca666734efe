"""Errors say what, where and how to fix it, and survive being copied."""

import copy
import pickle

import pytest

from multicentre import errors
from multicentre.errors import (
    DataError,
    DisclosureRefused,
    MulticentreError,
    RefusedByPolicy,
    joined,
    name_some,
)

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MulticentreError)]


def test_codes_are_unique():
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes) >= 12


def test_families_have_an_exit_code_each():
    assert {kind.exit_code for kind in KINDS} == {3, 4, 5, 6, 7, 8, 70}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_is_the_same_error(kind, double):
    error = kind("it broke", where="lyon, imaging", hint="Repair it.")
    twin = double(error)
    assert type(twin) is kind
    assert str(twin) == str(error) == f"lyon, imaging: it broke. Repair it. [{kind.code}]"


def test_refusals_of_several_sites_are_joined_each_with_its_place():
    refusals = {"lyon": DataError("no rows", where="lyon"), "porto": RefusedByPolicy("not approved", hint="Ask.")}
    both = joined(refusals, 5)
    assert str(both) == "lyon: no rows. [MC302]"
    assert both.__notes__ == ["porto: not approved. Ask. [MC401]"]
    assert both.refusals == {"lyon": "no rows", "porto": "not approved"}
    assert not hasattr(joined({"lyon": DataError("no rows")}, 5), "__notes__")


def test_equal_refusals_are_said_once_and_other_reasons_are_notes():
    few = {f"s{i:04}": DisclosureRefused("too few patients", where=f"s{i:04}, size", hint="Pool.") for i in range(147)}
    error = joined({**few, "lyon": RefusedByPolicy("not approved"), "oslo": RefusedByPolicy("not approved")}, 1000)
    assert str(error) == (
        "refused by 147 of 1,000 sites (s0000, s0001 and 145 more), size: too few patients. Pool. [MC501]"
    )
    assert error.__notes__ == ["refused by 2 of 1,000 sites (lyon, oslo): not approved. [MC401]"]
    assert len(error.refusals) == 149
    assert error.refusals["s0146"] == "size: too few patients"


def test_equal_faults_are_not_called_refusals():
    assert str(joined({"a": DataError("no rows"), "b": DataError("no rows")}, 3)) == (
        "at 2 of 3 sites (a, b): no rows. [MC302]"
    )


def test_errors_that_differ_in_kind_place_or_remedy_are_not_equal():
    one = DisclosureRefused("too few", where="size", hint="Pool.")
    for other in (
        RefusedByPolicy("too few", where="size", hint="Pool."),
        DisclosureRefused("too few", where="sum", hint="Pool."),
        DisclosureRefused("too few", where="size", hint="Ask."),
    ):
        assert len(joined({"a": one, "b": other}, 2).__notes__) == 1


def test_ten_sites_are_named_and_of_more_two():
    names = [f"site-{i}" for i in range(11)]
    assert name_some(names[:10]) == ", ".join(names[:10])
    assert name_some(names) == "site-0, site-1 and 9 more"


def test_an_error_is_an_exception_with_its_own_words():
    assert DataError("it broke", where="lyon", hint="Repair it.").args == ("it broke",)
    assert (DataError("it broke").where, DataError("it broke").hint) == ("", "")


def test_a_place_is_put_in_front_once():
    error = DataError("it broke", where="imaging")
    assert error.at("lyon").where == "lyon, imaging"
    assert error.at("lyon").at("lyon").where == "lyon, imaging"
    assert DataError("it broke", where="lyon").at("lyon").where == "lyon"
    assert DataError("it broke", where="lyon-2").at("lyon").where == "lyon, lyon-2"
    assert DataError("it broke", hint="Do.").at("lyon").hint == "Do."
    assert str(DataError("it broke")) == "it broke. [MC302]"
