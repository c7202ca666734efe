"""A site withdraws sums that too few patients would decide, and says nothing else."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from multicentre.core.messages import Message, array, flag, number
from multicentre.core.steps import Release, SitePart
from multicentre.core.withdrawal import unless_few


@dataclass(frozen=True)
class At(Message):
    """Request."""

    tentative: bool = flag("answers may be withdrawn", default=True)


@dataclass(frozen=True)
class Sums(Release):
    """Sums."""

    n_patients: float = number("patients", unit="patients", bound=100.0)
    gradient: np.ndarray = array("derivatives", ("p",), bound=8.0)
    n_withdrawn: float = number("sites that withdrew their sums", unit="sites", bound=100.0, default=0.0)


def part(*, masked, least=10):
    made = SitePart("lyon", object())
    made.masked, made.least_in_answer = masked, least
    return made


def answer(patients):
    return Sums(50.0, np.array([1.0, -2.0, 3.0]), patients=patients)


@pytest.mark.parametrize("masked", [True, False])
def test_an_answer_over_enough_patients_stays(masked):
    sums = answer(10)
    assert unless_few(part(masked=masked), At(), sums, 50) is sums


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("patients", [0, 9])
def test_an_answer_over_too_few_is_withdrawn(masked, patients):
    withdrawn = unless_few(part(masked=masked), At(), answer(patients), 50)
    assert (withdrawn.n_withdrawn, withdrawn.patients) == (1.0, 50)
    withdrawn.checked()
    assert 0 <= withdrawn.n_patients <= 100
    assert np.abs(withdrawn.gradient).max() <= 8


def test_unmasked_a_withdrawn_answer_is_zero_everywhere_else():
    withdrawn = unless_few(part(masked=False), At(), answer(3), 50)
    assert withdrawn.n_patients == 0.0
    assert not withdrawn.gradient.any()


def test_masked_a_withdrawn_answer_does_not_depend_on_the_patients():
    drawn = [unless_few(part(masked=True), At(), answer(3), 50) for _ in range(4000)]
    numbers = np.array([one.n_patients for one in drawn])
    gradients = np.array([one.gradient for one in drawn])
    assert numbers.mean() == pytest.approx(50.0, abs=2.5)  # uniform from 0 to the bound
    assert numbers.std() == pytest.approx(100.0 / np.sqrt(12), abs=1.0)
    assert gradients.mean(axis=0) == pytest.approx(np.zeros(3), abs=0.4)
    assert gradients.std(axis=0) == pytest.approx(np.full(3, 16.0 / np.sqrt(12)), abs=0.2)


def test_what_the_guard_would_refuse_at_any_parameters_is_left_to_it():
    sums = answer(9)
    assert unless_few(part(masked=False), At(), sums, 9) is sums


def test_a_request_that_needs_the_answer_gets_it_or_a_refusal():
    sums = answer(3)
    assert unless_few(part(masked=True), At(tentative=False), sums, 50) is sums


def test_a_value_beyond_its_range_is_withdrawn():
    beyond = replace(answer(50), gradient=np.array([1.0, 9.0, 0.0]))
    assert unless_few(part(masked=False), At(), beyond, 50).n_withdrawn == 1.0


@dataclass(frozen=True)
class Cells(Release):
    """Sums and counts of many cells."""

    counts: np.ndarray = array("patients by cell", ("c",), bound=100.0, counts=True)
    sums: np.ndarray = array("sums by cell", ("c",), bound=8.0)
    n_withdrawn: float = number("sites that withdrew their sums", unit="sites", bound=100.0, default=0.0)


def test_under_a_mask_values_are_drawn_over_their_whole_range():
    """Counts are not negative. Of 5,000 values some are within 1 % of each end, except with a probability of 1e-21."""
    answer_ = Cells(np.zeros(5000), np.zeros(5000), patients=0)
    one, other = (unless_few(part(masked=True), At(), answer_, 50) for _ in range(2))
    for drawn, low, high in ((one.counts, 0.0, 100.0), (one.sums, -8.0, 8.0)):
        room = 0.01 * (high - low)
        assert low <= drawn.min() < low + room
        assert high - room < drawn.max() <= high
    assert not np.array_equal(one.sums, other.sums)
