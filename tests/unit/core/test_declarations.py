"""A declaration holds all that its author wrote: guards, cards and masked sums read nothing else."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.messages import (
    Declaration,
    Length,
    Message,
    array,
    arrays,
    count,
    flag,
    lengths_of,
    number,
    place,
    text,
    texts,
)
from multicentre.core.release_declarations import check_permitted, check_ranged, check_without_values
from multicentre.core.steps import Release, step
from multicentre.errors import MessageError


def message_of(**fields):
    """Return a class of messages with the given declared fields."""
    columns = [(name, object, declared) for name, declared in fields.items()]
    return dataclasses.make_dataclass("Probe", columns, bases=(Message,), frozen=True)


NOISED = {"bound": 8.0, "sensitivity": 2.0}
WORDED = {"unit": "mmol/l", "permission": "exact_times"}
CASES = {
    "array": (lambda: array("x", ("n", 2)), Declaration("array", "x", ("n", 2), "f8")),
    "array in full": (
        lambda: array("x", (), dtype="i4", optional=True, finite=False, norm="l1", **NOISED, **WORDED),
        Declaration("array", "x", (), "i4", optional=True, finite=False, norm="l1", **NOISED, **WORDED),
    ),
    "arrays": (lambda: arrays("x", ("n",)), Declaration("array", "x", ("n",), "f8", keyed=True)),
    "arrays in full": (
        lambda: arrays("x", ("n",), dtype="u1", bound=8.0, **WORDED),
        Declaration("array", "x", ("n",), "u1", keyed=True, bound=8.0, **WORDED),
    ),
    "number": (lambda: number("x"), Declaration("number", "x", norm="l1")),
    "number in full": (
        lambda: number("x", optional=True, finite=False, **NOISED, **WORDED),
        Declaration("number", "x", optional=True, finite=False, norm="l1", **NOISED, **WORDED),
    ),
    "count": (lambda: count("x"), Declaration("count", "x", bound=2.0**40, norm="l1")),
    "count in full": (
        lambda: count("x", unit="visits", **NOISED),
        Declaration("count", "x", unit="visits", norm="l1", **NOISED),
    ),
    "counts": (lambda: count("x", keyed=True), Declaration("count", "x", keyed=True, bound=2.0**40, norm="l1")),
    "flag": (lambda: flag("x"), Declaration("flag", "x")),
    "text": (lambda: text("x"), Declaration("text", "x")),
    "texts": (lambda: texts("x"), Declaration("texts", "x")),
    "texts in full": (
        lambda: texts("x", keyed=True, public=True),
        Declaration("texts", "x", keyed=True, public=True),
    ),
}


@pytest.mark.parametrize(("declare", "expected"), CASES.values(), ids=CASES)
def test_a_field_is_declared_as_its_author_wrote(declare, expected):
    assert message_of(field=declare()).declarations() == {"field": expected}


def test_an_optional_field_may_be_left_out_and_another_may_not():
    assert message_of(field=array("x", ("n",), optional=True))().field is None
    with pytest.raises(TypeError, match="field"):
        message_of(field=array("x", ("n",)))()


def test_fields_without_a_declaration_do_not_travel():
    kind = dataclasses.make_dataclass("Mixed", [("n", int, count("x")), ("note", str)], bases=(Message,), frozen=True)
    assert list(kind.declarations()) == ["n"]
    assert [name for name, *_ in kind(1, "x").items()] == ["n"]


@pytest.mark.parametrize("dtype", ["O", "f2", "i2", "U8", "M8"])
def test_dtypes_without_a_wire_format_are_refused(dtype):
    with pytest.raises(MessageError, match="dtype must be one of"):
        arrays("x", ("n",), dtype=dtype)


@pytest.mark.parametrize("name", ["bound", "sensitivity"])
def test_bounds_and_sensitivities_must_leave_room_for_arithmetic(name):
    smallest, largest = 2.0**-500, 2.0**500
    for value in (smallest, 1.0, largest):
        declared = message_of(field=number("x", **{name: value})).declarations()["field"]
        assert getattr(declared, name) == value
    for value in (0.0, -1.0, smallest / 2, np.nextafter(largest, np.inf), float("inf"), float("nan")):
        with pytest.raises(MessageError, match=f"{name} must be from"):
            number("x", **{name: value})


@pytest.mark.parametrize(
    ("dtype", "fits"), [("f8", 1), ("f4", 1), ("i8", 1), ("i4", 1), ("u8", 0), ("u1", 0), ("b1", 0)]
)
def test_only_types_that_hold_negative_values_take_noise(dtype, fits):
    assert array("x", (), dtype=dtype)
    if fits:
        assert array("x", (), dtype=dtype, sensitivity=1.0)
    else:
        with pytest.raises(MessageError, match="may be negative"):
            array("x", (), dtype=dtype, sensitivity=1.0)


def test_counts_by_name_take_no_sensitivity():
    with pytest.raises(MessageError, match="names must have no sensitivity"):
        count("x", keyed=True, sensitivity=1.0)


def test_every_summed_field_needs_a_bound_and_every_individual_one_a_permission():
    bounded = message_of(one=number("x", bound=1.0), two=number("x"))
    with pytest.raises(MessageError, match=r"^Probe\.two: a summed field must declare its range"):
        check_ranged(bounded)
    check_ranged(message_of(one=number("x", bound=1.0), n=count("x")))
    permitted = message_of(one=number("x", permission="exact_times"), two=number("x"))
    with pytest.raises(MessageError, match=r"^Probe\.two: .*must name a permission of the policy"):
        check_permitted(permitted)
    check_permitted(message_of(one=number("x", permission="exact_times")))


PER_COLUMN = {"dtype": "i8", "counts": True}


@pytest.mark.parametrize(
    "field",
    [
        array("x", ("k",), **PER_COLUMN),
        array("x", ("d", "k"), **PER_COLUMN),
        array("x", ("d",), counts=True),
        array("x", ("d",), dtype="i8"),
        array("x", ("n",), dtype="u1"),
        count("x", signed=True),
        count("x", keyed=True),
        number("x"),
        flag("x"),
        text("x"),
        texts("x"),
    ],
)
def test_a_release_without_values_holds_counts_or_counts_per_column(field):
    with pytest.raises(MessageError, match=r"^Probe\.field: .*must be a count or a count per column.*without_values"):
        check_without_values(message_of(one=count("x"), field=field))


def test_counts_counts_per_column_names_of_columns_and_hashes_of_single_patients_are_without_values():
    check_without_values(
        message_of(one=count("x"), two=array("x", ("d",), **PER_COLUMN), three=texts("x", public=True))
    )
    hashes = message_of(one=array("x", ("n", 16), dtype="u1"))
    check_without_values(hashes, individual=True)
    with pytest.raises(MessageError, match="must be a count"):
        check_without_values(message_of(one=array("x", ("n",))), individual=True)


def test_a_step_does_not_take_a_release_without_values_that_holds_some():
    fields = [("total", float, number("x", bound=1.0))]
    kind = dataclasses.make_dataclass("Sums", fields, bases=(Release,), frozen=True, namespace={"without_values": True})
    with pytest.raises(MessageError, match=r"^Sums\.total: .*must be a count"):
        step(releases=kind)


def test_places_name_the_message_the_field_and_the_key():
    kind = message_of(field=number("x"))
    assert place(kind, "field") == "Probe.field"
    assert place(kind, "field", "imaging") == "Probe.field[imaging]"


@pytest.mark.parametrize(
    ("declare", "default"),
    [
        (lambda: number("x", default=2.5), 2.5),
        (lambda: number("x", default=0.0), 0.0),
        (lambda: count("x", default=3), 3),
        (lambda: count("x", default=0), 0),
        (lambda: flag("x", default=True), True),
        (lambda: flag("x", default=False), False),
        (lambda: texts("x", default=("a",)), ("a",)),
        (lambda: texts("x", default=()), ()),
    ],
)
def test_a_field_with_a_default_is_optional_and_passed_by_name(declare, default):
    """It may stand before fields without one."""
    kind = dataclasses.make_dataclass(
        "Probe", [("given", object, declare()), ("n", int, count("x"))], bases=(Message,), frozen=True
    )
    assert (kind(1).given, kind(1).n) == (default, 1)
    assert kind(1, given="other").given == "other"
    assert list(kind.declarations()) == ["given", "n"]
    with pytest.raises(TypeError):
        kind(1, "other")


def test_declarations_are_computed_once_per_class():
    kind = message_of(field=number("x"))
    assert kind.declarations() is kind.declarations()
    assert message_of(field=count("x")).declarations() != kind.declarations()


@pytest.mark.parametrize(
    ("parameters", "number_"),
    [
        ({"rank": 20}, "20"),
        ({"rank": 0}, "0"),
        ({"rank": True}, ""),
        ({"rank": 2.0}, ""),
        ({"rank": "20"}, ""),
        ({}, ""),
    ],
)
def test_a_parameter_that_is_a_whole_number_fixes_a_length(parameters, number_):
    assert Length("phenotypes", "rank").number(parameters) == number_
    assert Length("phenotypes").number(parameters) == ""


def test_a_subclass_may_give_a_letter_another_meaning():
    class Base:
        lengths: ClassVar = {"p": "columns", "k": Length("phenotypes", "rank")}

    class Plain(Base):
        pass

    class Heir(Plain):
        lengths: ClassVar = {"p": "codes", "n": "patients"}

    assert lengths_of(Plain) == {"p": Length("columns"), "k": Length("phenotypes", "rank")}
    assert lengths_of(Heir) == {"p": Length("codes"), "k": Length("phenotypes", "rank"), "n": Length("patients")}
