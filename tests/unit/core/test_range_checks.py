"""Declared ranges: what is within them passes at its limit, what is beyond is named with its field and its sender."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from multicentre.core.calls import Lost, Refused
from multicentre.core.messages import Declaration, array, arrays, count, flag, number, text
from multicentre.core.noise_plan import Noise
from multicentre.core.range_checks import (
    arrivals,
    check_alike,
    check_ranges,
    check_total,
    extremes_of,
    is_tally,
    room_of,
)
from multicentre.core.steps import Acknowledgement, Release
from multicentre.errors import IntegrityError, MessageError, SiteFailed

GAUSSIAN = Noise("gaussian", {"smoothed": 2.0})


@dataclass(frozen=True)
class Sums(Release):
    """Fields of every kind."""

    total: np.ndarray = array("sum of a column", ("d",), bound=10.0)
    by_view: dict = arrays("sums by view", ("c",), bound=10.0)
    cells: np.ndarray = array("patients by bin", ("b",), bound=100.0, counts=True)
    n: int = count("patients")
    exponent: int = count("exponent", bound=8.0, signed=True)
    n_weighted: float = number("weighted patients", unit="patients")
    smoothed: float = number("sum with noise", bound=4.0, sensitivity=0.5)
    exact: float = number("sum without noise", bound=4.0)
    free: float = number("sum without a bound")
    label: str = text("label")
    done: bool = flag("whether it ended")
    extra: np.ndarray | None = array("optional sum", ("e",), bound=10.0, optional=True)


def sums(**values):
    """Return a release within its ranges, apart from these values."""
    good = {
        "total": np.array([10.0, -10.0]),
        "by_view": {"a": np.array([10.0]), "b": np.array([-10.0, 0.0])},
        "cells": np.array([0.0, 100.0]),
        "n": 2**40,
        "exponent": -8,
        "n_weighted": 2.0**40,
        "smoothed": -4.0,
        "exact": 4.0,
        "free": -1e300,
        "label": "x",
        "done": True,
    }
    return Sums(**{**good, **values})


TOO_LARGE = [
    ({"total": np.array([0.0, 10.001])}, "Sums.total", "10"),
    ({"total": np.array([-10.001, 0.0])}, "Sums.total", "10"),
    ({"by_view": {"a": np.array([0.0]), "b": np.array([11.0])}}, "Sums.by_view[b]", "10"),
    ({"cells": np.array([100.5])}, "Sums.cells", "100"),
    ({"n": 2**40 + 1}, "Sums.n", "1.1e+12"),
    ({"exponent": 9}, "Sums.exponent", "8"),
    ({"n_weighted": 2.0**40 + 1}, "Sums.n_weighted", "1.1e+12"),
    ({"smoothed": 4.001}, "Sums.smoothed", "4"),
    ({"extra": np.array([-11.0])}, "Sums.extra", "10"),
]


def test_values_at_their_limits_pass():
    check_ranges(sums())
    check_ranges(sums(extra=np.array([10.0]), total=np.zeros(0)))
    check_ranges(sums(extra=None, n=0, cells=np.zeros(2)))


@pytest.mark.parametrize(("values", "where", "bound"), TOO_LARGE)
def test_a_value_beyond_its_range_is_named_for_the_site(values, where, bound):
    with pytest.raises(MessageError) as caught:
        check_ranges(sums(**values))
    assert type(caught.value) is MessageError
    assert (caught.value.where, caught.value.what) == (where, f"a value is beyond the declared range of {bound}")
    assert caught.value.hint.startswith("Look for outliers at this site")


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"n": -1}, "Sums.n"),
        ({"cells": np.array([3.0, -0.5])}, "Sums.cells"),
        ({"n_weighted": -1e-9}, "Sums.n_weighted"),
    ],
)
def test_a_negative_count_is_named(values, where):
    with pytest.raises(MessageError) as caught:
        check_ranges(sums(**values))
    assert (caught.value.where, caught.value.what) == (
        where,
        "a value is a count and must not be negative; it is below 0",
    )
    assert caught.value.hint.startswith("Look for outliers at this site")


# Noise


@pytest.mark.parametrize(("mechanism", "room"), [("gaussian", 16.0), ("laplace", 50.0)])
def test_the_room_for_noise_is_16_deviations_or_50_scales(mechanism, room):
    """16 standard deviations, or 50 scales; the scale is the multiplier 2 times the sensitivity 0.5."""
    noise = Noise(mechanism, {"smoothed": 2.0, "exact": 3.0})
    assert room_of(Sums, "smoothed", noise) == room
    assert room_of(Sums, "smoothed", None) == 0.0
    assert room_of(Sums, "total", noise) == 0.0
    assert room_of(Sums, "exact", noise) == 0.0  # without a sensitivity there is no scale


def test_only_fields_with_noise_have_more_room():
    check_ranges(sums(smoothed=20.0), GAUSSIAN)
    for values in ({"smoothed": 20.01}, {"smoothed": -20.01}, {"exact": 4.01}):
        with pytest.raises(MessageError, match="beyond the declared range of 4"):
            check_ranges(sums(**values), GAUSSIAN)


@dataclass(frozen=True)
class Counted(Release):
    """A count that can leave with noise."""

    n: int = count("patients", bound=100.0, sensitivity=1.0)


def test_a_count_with_noise_may_be_negative():
    check_ranges(Counted(-16), Noise("gaussian", {"n": 1.0}))
    with pytest.raises(MessageError, match="must not be negative"):
        check_ranges(Counted(-16))
    with pytest.raises(MessageError, match="must not be negative"):
        check_ranges(Counted(-16), Noise("gaussian", {"other": 1.0}))


# Totals


def test_a_total_has_the_range_of_all_its_sites():
    """A sum of values at the bound may exceed it by rounding."""
    check_total(sums(total=np.array([30.0, -30.0 * (1 + 2.0**-41)])), ["lyon", "nice", "oslo"])
    with pytest.raises(IntegrityError) as caught:
        check_total(sums(total=np.array([30.001])), iter(["lyon", "nice", "oslo"]))
    assert type(caught.value) is IntegrityError
    assert caught.value.where == "Sums.total"
    assert caught.value.what == "the total over lyon, nice, oslo is beyond the declared range of 30"
    assert caught.value.hint.startswith("One of the sites sent a value beyond its range; the masks hide which.")


def test_a_total_over_one_site_has_no_room_for_rounding():
    with pytest.raises(IntegrityError, match="the total over lyon is beyond the declared range of 10"):
        check_total(sums(total=np.array([np.nextafter(10.0, 11.0)])), ["lyon"])


def test_a_total_of_noised_values_has_the_room_of_every_site():
    check_total(sums(smoothed=40.0), ["lyon", "nice"], GAUSSIAN)
    with pytest.raises(IntegrityError, match="beyond the declared range of 8"):
        check_total(sums(smoothed=40.1), ["lyon", "nice"], GAUSSIAN)


def test_a_negative_total_of_counts_is_refused():
    with pytest.raises(IntegrityError, match="the total over lyon, nice is a count and must not be negative") as caught:
        check_total(sums(n=-1), ["lyon", "nice"])
    assert caught.value.hint.startswith("One of the sites sent a value beyond its range")


# Arrivals


def call(*, mask=None, noise=None):
    return SimpleNamespace(step=SimpleNamespace(name="add", releases=Sums), mask=mask, noise=noise)


def test_answers_within_their_ranges_arrive_unchanged():
    good, lost, refused = sums(), Lost("no answer"), Refused(SiteFailed("failed"))
    outcomes = {"lyon": good, "nice": lost, "oslo": refused, "late": good}
    arrived = arrivals(dict.fromkeys(("lyon", "nice", "oslo"), call()), outcomes)
    assert list(arrived) == ["lyon", "nice", "oslo"]
    assert arrived["lyon"] is good
    assert arrived["nice"] is lost
    assert arrived["oslo"] is refused


@pytest.mark.parametrize(("values", "where", "bound"), TOO_LARGE)
def test_an_answer_beyond_its_range_becomes_an_error_of_its_sender(values, where, bound):
    arrived = arrivals({"lyon": call(), "nice": call()}, {"lyon": sums(**values), "nice": sums()})
    error = arrived["lyon"].error
    assert type(error) is MessageError
    assert error.where == f"lyon, {where}"
    assert error.what == f"a value is beyond the declared range of {bound}"
    assert error.hint.startswith("The site runs changed software or is not honest.")
    assert isinstance(arrived["nice"], Sums)


@pytest.mark.parametrize(
    ("answer", "named"), [(Acknowledgement(), "Acknowledgement"), ("text", "str"), (None, "NoneType")]
)
def test_an_answer_of_another_class_is_refused(answer, named):
    error = arrivals({"lyon": call()}, {"lyon": answer})["lyon"].error
    assert (error.where, error.what) == ("lyon, add", f"the answer must be Sums; got {named}")


def test_an_answer_that_is_not_as_declared_is_refused():
    error = arrivals({"lyon": call()}, {"lyon": sums(total=np.array([np.nan]))})["lyon"].error
    assert error.where == "lyon, Sums.total"
    masked = arrivals({"lyon": call(mask=object())}, {"lyon": sums(total=np.array([np.nan]))})["lyon"].error
    assert masked.where == "lyon, Sums.total"


def test_under_a_mask_neither_class_nor_range_can_be_checked():
    masked = {"lyon": sums(total=np.array([1e300])), "nice": Acknowledgement()}
    assert arrivals(dict.fromkeys(masked, call(mask=object())), masked) == masked
    error = arrivals({"lyon": call(mask=object())}, {"lyon": "text"})["lyon"].error
    assert error.what == "the answer must be Sums; got str"


def test_an_answer_with_noise_has_more_room():
    answers = {"lyon": sums(smoothed=20.0)}
    assert arrivals({"lyon": call(noise=GAUSSIAN)}, answers) == answers
    assert isinstance(arrivals({"lyon": call()}, answers)["lyon"], Refused)


# Answers to be summed


def test_answers_of_the_same_outline_are_alike():
    check_alike({"lyon": sums(), "nice": sums(n=3, total=np.array([1.0, 2.0]))})
    check_alike({"lyon": sums()})
    check_alike({})
    reordered = dict(reversed(sums().by_view.items()))
    check_alike({"lyon": sums(), "nice": sums(by_view=reordered)})


def difference(**answers):
    with pytest.raises(MessageError) as caught:
        check_alike(answers)
    assert caught.value.hint == "Compare the data and the software of the sites named."
    return caught.value.where, caught.value.what.removeprefix("answers to be summed must be alike; ")


def test_different_shapes_are_named_with_their_sites():
    longer = sums(total=np.zeros(3))
    assert difference(lyon=sums(), nice=longer, oslo=sums()) == (
        "Sums.total",
        "the sites answered with different shapes (lyon, oslo: 2; nice: 3)",
    )
    assert difference(lyon=sums(extra=np.zeros((2, 3))), nice=sums(extra=np.zeros((3, 2)))) == (
        "Sums.extra",
        "the sites answered with different shapes (lyon: 2 x 3; nice: 3 x 2)",
    )


def test_an_empty_field_is_named():
    assert difference(lyon=sums(), nice=sums(extra=np.array(1.0))) == (
        "Sums.extra",
        "the sites answered with and without a value: some left the field empty (lyon: empty; nice: one number)",
    )


def test_different_names_are_distinguished_from_different_shapes():
    one_view, other_view = {"a": np.zeros(1)}, {"b": np.zeros(1)}
    assert difference(lyon=sums(by_view=one_view), nice=sums(by_view=other_view)) == (
        "Sums.by_view",
        "the sites answered with different names (lyon: a 1; nice: b 1)",
    )
    wider = {"a": np.zeros(1), "b": np.zeros(3)}
    assert difference(lyon=sums(), nice=sums(by_view=wider)) == (
        "Sums.by_view",
        "the sites answered with different shapes (lyon: a 1, b 2; nice: a 1, b 3)",
    )


# Numbers and counts


@pytest.mark.parametrize(
    ("value", "extremes"),
    [
        (np.array([[3.0, -1.0], [2.0, 0.0]]), (-1.0, 3.0)),
        (np.array([7], dtype=np.uint8), (7, 7)),
        (np.array([-7, 2], dtype=np.int32), (-7, 2)),
        (np.zeros(0), None),
        (np.array([True]), None),
        (np.float32(0.5), (0.5, 0.5)),
        (np.int64(-3), (-3, -3)),
        (np.bool_(True), None),
        (2.5, (2.5, 2.5)),
        (4, (4, 4)),
        (True, None),
        ("text", None),
        (("a", "b"), None),
        (None, None),
    ],
)
def test_extremes_are_those_of_numbers_only(value, extremes):
    assert extremes_of(value) == extremes


def test_counts_tables_and_numbers_in_units_of_counts_are_tallies():
    tallies = {name for name, declaration in Sums.declarations().items() if is_tally(declaration)}
    assert tallies == {"cells", "n", "n_weighted"}


@pytest.mark.parametrize("unit", ["patients", "records", "persons", "pairs", "sites", "entries"])
def test_numbers_in_units_of_counts_are_never_negative(unit):
    assert is_tally(Declaration("number", "sum", unit=unit))
    assert not is_tally(Declaration("number", "sum", unit="years"))
