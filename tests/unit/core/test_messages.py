"""A message is checked against its declaration, and added field by field."""

from dataclasses import dataclass

import numpy as np
import pytest

from multicentre.core.messages import (
    Message,
    array,
    arrays,
    count,
    flag,
    number,
    text,
    texts,
)
from multicentre.core.release_declarations import check_summable
from multicentre.core.summation import add_messages, check_integer_range
from multicentre.errors import MessageError


@dataclass(frozen=True)
class Sums(Message):
    """What can be added."""

    total: np.ndarray = array("x", ("d",))
    square: np.ndarray = array("x", ("d", "d"))
    views: dict = arrays("x", ("p",))
    n: int = count("x")
    loglik: float = number("x")
    ones: np.ndarray | None = array("x", ("d",), dtype="i4", optional=True)
    pair: np.ndarray | None = array("x", (2,), optional=True)
    large: np.ndarray | None = array("x", (), dtype="i8", optional=True)


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
    "an array shorter than its letter": {"square": np.ones((1, 1))},
    "an array longer than its letter": {"total": np.ones(3)},
    "an array shorter than a fixed side": {"pair": np.ones(1)},
    "an array longer than a fixed side": {"pair": np.ones(3)},
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
    # The later field of two that disagree is the one that is named.
    name = "square" if list(changes) == ["total"] and np.shape(changes["total"]) == (3,) else next(iter(changes))
    with pytest.raises(MessageError, match=rf"Sums\.{name}"):
        sums(**changes).checked()


def test_the_error_names_the_key_and_what_was_given():
    with pytest.raises(MessageError, match=r"^Sums\.views\[b\]: .*dtype f8; got <f4"):
        sums(views={"a": np.ones(3), "b": np.ones(3, "f4")}).checked()
    with pytest.raises(MessageError, match=r"^Sums\.total: .*dtype f8; got list"):
        sums(total=[1.0, 2.0]).checked()


def test_errors_hold_no_value():
    with pytest.raises(MessageError) as caught:
        sums(total=np.array([123456.75, np.nan])).checked()
    assert "123456" not in str(caught.value)


def test_values_whose_sum_overflows_are_finite():
    assert sums(total=np.array([1.7e308, 1.7e308])).checked()


def test_letters_may_differ_by_name():
    assert sums(views={"a": np.ones(3), "b": np.ones(1)}).checked()


def test_an_undeclared_dtype_cannot_be_declared():
    with pytest.raises(MessageError, match="dtype must be one of"):
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
    with pytest.raises(MessageError, match="some left it empty"):
        add_messages([sums(), sums(ones=np.ones(2, "i4"))])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"views": {"b": np.ones(3)}}, "the same names"),
        ({"views": {"a": np.ones(4)}}, "the same shape"),
        ({"ones": np.full(2, 2**31 - 1, "i4")}, "the range of dtype i4"),
        ({"total": np.full(2, 1.7e308)}, "must be finite"),
        ({"n": 2**63 - 1}, "beyond 64 bits"),
    ],
)
def test_what_cannot_be_added_is_said_and_never_wrapped_around(changes, reason):
    first = sums(ones=np.ones(2, "i4"), total=np.full(2, 1.7e308))
    with pytest.raises(MessageError, match=reason):
        add_messages([first, sums(**({"ones": np.ones(2, "i4"), "total": np.ones(2)} | changes))])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"views": {"a": np.ones(3), "b": np.ones(3)}}, r"^Sums\.views: .*the same names"),
        ({"views": {"a": np.ones(4)}}, r"^Sums\.views: .*the same shape"),
        ({"total": np.ones(3), "square": np.eye(3)}, r"^Sums\.total: .*the same shape"),
        ({"large": np.array(2**63 - 1)}, r"^Sums\.large: .*the range of dtype i8"),
    ],
)
def test_one_site_of_three_that_differs_is_enough(changes, reason, last):
    usual, odd = sums(large=np.array(1)), sums(**{"large": np.array(1)} | changes)
    with pytest.raises(MessageError, match=reason):
        add_messages([usual, usual, odd] if last else [odd, usual, usual])


def test_one_message_is_its_own_sum():
    total = add_messages([sums(ones=np.array([1, -(2**31)], "i4"))])
    assert (total.n, total.ones.tolist(), total.views["a"].tolist()) == (4, [1, -(2**31)], [1.0] * 3)


@pytest.mark.parametrize("dtype", ["i4", "u1", "i8", "u8"])
def test_a_sum_is_held_up_to_the_limits_of_its_type_and_not_beyond(dtype):
    limits = np.iinfo(dtype)
    like = np.zeros(2, dtype)
    # A total of 64 bits is added in floating point. Just below 2**63 its neighbours are 1024 apart, below 2**64 2048.
    spare = 2048 if limits.bits == 64 else 0
    highest = np.nextafter(float(limits.max), 0.0) if spare else float(limits.max)
    if dtype == "i8":
        highest = np.nextafter(highest, 0.0)
    check_integer_range(np.array([highest, float(limits.min)]), like, "here")
    for beyond in (np.nextafter(highest, np.inf), np.nextafter(float(limits.min), -np.inf)):
        for total in ([beyond, 0.0], [0.0, beyond]):
            with pytest.raises(MessageError, match=f"^here: a sum must be within the range of dtype {dtype}"):
                check_integer_range(np.array(total), like, "here")


def test_an_int64_sum_that_rounds_into_range_is_refused():
    # Four summands of 2**61 + 255 are 1020 beyond 2**63, and their sum in floating point is 2**63 exactly.
    with pytest.raises(MessageError, match=r"^Sums\.large: a sum must be within the range of dtype i8"):
        add_messages([sums(large=np.array(2**61 + 255))] * 4)
    with pytest.raises(MessageError, match=r"^Sums\.large: a sum must be within the range of dtype i8"):
        add_messages([sums(large=np.array(2**62 + 200)), sums(large=np.array(2**62 - 100))])
    held = add_messages([sums(large=np.array(2**62)), sums(large=np.array(2**62 - 4096))])
    assert int(held.large) == 2**63 - 4096


def test_arrays_without_dimensions_are_added():
    total = add_messages([sums(large=np.array(3)), sums(large=np.array(-5))])
    assert (total.large.shape, total.large.dtype, int(total.large)) == ((), np.int64, -2)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [(flag("x"), "flag"), (text("x"), "text"), (texts("x"), "texts"), (array("x", (), dtype="b1"), "b1")],
)
def test_words_and_flags_cannot_be_summed(declared, kind):
    space = {"__annotations__": {"field": object}, "field": declared, "__module__": __name__}
    message = dataclass(frozen=True)(type("Words", (Message,), space))
    with pytest.raises(MessageError, match=f"a summed field must be .*; got .*{kind}"):
        check_summable(message)
