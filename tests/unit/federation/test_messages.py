"""A message is checked against its declaration, and added field by field."""

from dataclasses import dataclass

import numpy as np
import pytest

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import (
    Message,
    add_messages,
    array,
    arrays,
    check_summable,
    count,
    flag,
    number,
    text,
    texts,
)


@dataclass(frozen=True)
class Sums(Message):
    """What can be added."""

    total: np.ndarray = array("x", ("d",))
    square: np.ndarray = array("x", ("d", "d"))
    views: dict = arrays("x", ("p",))
    n: int = count("x")
    loglik: float = number("x")
    ones: np.ndarray | None = array("x", ("d",), dtype="i4", optional=True)


def sums(**changes):
    values = {"total": np.ones(2), "square": np.eye(2), "views": {"a": np.ones(3)}, "n": 4, "loglik": -1.5}
    return Sums(**values | changes)


BAD = {
    "dtype": {"total": np.ones(2, "f4")},
    "byte order": {"total": np.ones(2, ">f8")},
    "objects": {"total": np.array([1.0, "a"], dtype=object)},
    "a list": {"total": [1.0, 2.0]},
    "a masked array": {"total": np.ma.masked_array([1.0, 2.0], [True, False])},
    "dimensions": {"total": np.ones((2, 1))},
    "letters that disagree": {"square": np.eye(3)},
    "letters that disagree within": {"square": np.ones((2, 3))},
    "not a number": {"total": np.array([1.0, np.nan])},
    "infinity": {"total": np.array([np.inf, -np.inf])},
    "a missing field": {"total": None},
    "a missing scalar": {"n": None},
    "a float for a count": {"n": 4.0},
    "a flag for a count": {"n": True},
    "a flag for a number": {"loglik": True},
    "a text for a number": {"loglik": "1"},
    "a complex number": {"loglik": 1j},
    "an infinite number": {"loglik": float("inf")},
    "a huge integer": {"loglik": 10**400},
    "a count beyond 64 bits": {"n": 2**63},
    "no mapping": {"views": np.ones(3)},
    "an empty name": {"views": {"": np.ones(3)}},
    "a name that is a number": {"views": {1: np.ones(3)}},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_what_differs_from_the_declaration_is_refused(changes):
    with pytest.raises(MessageError, match=rf"Sums\.{next(iter(changes))}"):
        sums(**changes).checked()


def test_errors_hold_no_value():
    with pytest.raises(MessageError) as caught:
        sums(total=np.array([123456.75, np.nan])).checked()
    assert "123456" not in str(caught.value)


def test_values_whose_sum_overflows_are_finite():
    assert sums(total=np.array([1.7e308, 1.7e308])).checked()


def test_letters_may_differ_by_name():
    assert sums(views={"a": np.ones(3), "b": np.ones(1)}).checked()


def test_an_undeclared_dtype_cannot_be_declared():
    with pytest.raises(MessageError, match="cannot travel"):
        array("x", ("n",), dtype="O")


def test_messages_add_field_by_field():
    one, two = sums(ones=np.ones(2, "i4")), sums(n=np.int64(6), ones=np.full(2, 2, "i4"))
    total = add_messages([one, two])
    assert total.total.tolist() == [2.0, 2.0]
    assert total.views["a"].tolist() == [2.0] * 3
    assert (total.n, total.loglik, type(total.n)) == (10, -3.0, int)
    assert total.ones.tolist() == [3, 3]
    assert one.total.tolist() == [1.0, 1.0]


def test_an_optional_field_is_added_where_all_have_it_or_none():
    assert add_messages([sums(), sums()]).ones is None
    with pytest.raises(MessageError, match="left the field empty"):
        add_messages([sums(), sums(ones=np.ones(2, "i4"))])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"views": {"b": np.ones(3)}}, "different names"),
        ({"views": {"a": np.ones(4)}}, "different shapes"),
        ({"ones": np.full(2, 2**31 - 1, "i4")}, "beyond what dtype i4"),
        ({"total": np.full(2, 1.7e308)}, "not finite"),
        ({"n": 2**63 - 1}, "beyond 64 bits"),
    ],
)
def test_what_cannot_be_added_is_said_and_never_wrapped_around(changes, reason):
    first = sums(ones=np.ones(2, "i4"), total=np.full(2, 1.7e308))
    with pytest.raises(MessageError, match=reason):
        add_messages([first, sums(**({"ones": np.ones(2, "i4"), "total": np.ones(2)} | changes))])


@pytest.mark.parametrize(
    ("declared", "kind"),
    [(flag("x"), "flag"), (text("x"), "text"), (texts("x"), "texts"), (array("x", (), dtype="b1"), "b1")],
)
def test_words_and_flags_cannot_be_summed(declared, kind):
    space = {"__annotations__": {"field": object}, "field": declared, "__module__": __name__}
    message = dataclass(frozen=True)(type("Words", (Message,), space))
    with pytest.raises(MessageError, match=f"kind {kind} cannot be summed"):
        check_summable(message)
