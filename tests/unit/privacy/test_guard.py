"""The guard fails closed, and every refusal is in the ledger."""

import dataclasses
import os
import re
import stat
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.calls import Call, Mask
from multicentre.core.messages import Message, Nothing, array, arrays, count, number, text
from multicentre.core.noise_plan import Noise
from multicentre.core.range_checks import check_ranges
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.core.storage import held
from multicentre.errors import (
    ConfigurationError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
    RefusedByPolicy,
)
from multicentre.privacy.cohort_memory import CohortMemory
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.patient_counts import People
from multicentre.privacy.policy import Policy


@dataclass(frozen=True)
class Sums(Release):
    """Sums by view, and one scalar."""

    views: dict = arrays("sums", ("d",))
    n: int = count("patients")


@dataclass(frozen=True)
class MoreSums(Sums):
    """A release that the step does not declare."""

    extra: float = number("extra")


@dataclass(frozen=True)
class Word(Release):
    """A text computed from patients."""

    word: str = text("the commonest code")


@dataclass(frozen=True)
class Hello(Release):
    """Nothing about patients."""

    concerns_patients: ClassVar[bool] = False
    version: str = text("installed version")


@dataclass(frozen=True)
class Bounded(Release):
    """Sums within a declared range."""

    total: np.ndarray = array("sums", ("d",), bound=8.0, sensitivity=1.0)


@dataclass(frozen=True)
class Loose(Message):
    """A message that is no release."""

    values: np.ndarray = array("x", ("n",))


class Part(SitePart):
    """Offers steps; the tests hand the answers over themselves."""

    method = "sums"

    @step(releases=Sums)
    def sums(self, request: Nothing) -> Sums:
        """Add up."""
        return None

    @step(releases=Word)
    def word(self, request: Nothing) -> Word:
        """Name the commonest code."""
        return None

    @step(releases=Hello)
    def hello(self, request: Nothing) -> Hello:
        """Say hello."""
        return None

    @step(releases=Loose)
    def loose(self, request: Nothing) -> Loose:
        """Answer with no release."""
        return None

    @step(releases=Bounded, summed=True)
    def bounded(self, request: Nothing) -> Bounded:
        """Add up within a range."""
        return None

    @step(releases=Acknowledgement)
    def take(self, request: Nothing) -> Acknowledgement:
        """Take something in."""
        return None


def guard(ids=None, **policy):
    people = People(one_each=True) if ids is None else People(map(str, ids))
    return Guard(Policy(**policy), Ledger(), people)


def call(which=Part.sums, protection="unmasked", peers=("a", "b", "c")):
    mask = Mask("first", 0, len(peers)) if protection == "masked" else None
    return Call("study", "0.1", 4, which, Nothing(), peers, mask)


def sums(patients, views=None, n=30):
    return Sums({"imaging": np.ones(2)} if views is None else views, n, patients=patients)


def refused(gate, release, which=Part.sums):
    """Let the gate refuse, and return what it wrote down."""
    with pytest.raises(DisclosureRefused):
        gate.release(call(which), release)
    entry = gate.ledger.entries[-1]
    assert entry["event"] == "refusal"
    assert (entry["study"], entry["method"], entry["step"], entry["call"]) == ("study", "sums", which.name, 4)
    assert "release" not in [entry["event"] for entry in gate.ledger.entries]
    return entry["reason"]


def test_a_release_is_recorded_field_by_field():
    gate = guard()
    gate.release(call(), sums({"imaging": 25, "n": 30}))
    (entry,) = gate.ledger.entries
    assert entry["event"] == "release"
    assert [(field["field"], field["shape"], field["bytes"], field["patients"]) for field in entry["fields"]] == [
        ("views[imaging]", [2], 16, 25),
        ("n", [], 8, 30),
    ]
    assert all(len(field["sha256"]) == 64 for field in entry["fields"])


def test_numpy_counts_are_counts():
    gate = guard()
    gate.release(call(), sums(np.int64(30)))
    assert gate.ledger.entries[0]["fields"][0]["patients"] == 30


@pytest.mark.parametrize(
    ("patients", "reason"),
    [
        ({}, "must state the number of patients"),
        ({"imaging": 30}, r"Sums\.n: the answer must state"),
        ({"n": 30}, r"Sums\.views\[imaging\]: the answer must state"),
        (None, "must state the number of patients"),
        (9, "at least 10 patients"),
        (1, "at least 10 patients"),
        ({"imaging": 30, "n": 9}, r"Sums\.n: the answer must have at least 10"),
        (0, "a value without patients behind it"),
        (-1, "must be an integer"),
        (-30, "must be an integer"),
        (True, "must be an integer"),
        (30.0, "must be an integer"),
        (np.float64(30), "must be an integer"),
        (float("nan"), "must be an integer"),
        (float("inf"), "must be an integer"),
        ("30", "must be an integer"),
        ([30], "must be an integer"),
        ({"imaging": 30, "n": None}, "must state"),
    ],
)
def test_an_answer_with_a_missing_small_or_invalid_count_is_refused(patients, reason):
    assert re.search(reason, refused(guard(), sums(patients)))


@pytest.mark.parametrize(
    "release",
    [
        MoreSums({"imaging": np.ones(2)}, 30, 1.0, patients=30),
        Hello("1.0"),
        Nothing(),
        None,
        {"n": 30},
        np.ones(3),
    ],
    ids=["subclass", "another release", "message", "nothing", "mapping", "array"],
)
def test_an_answer_of_another_class_is_refused(release):
    assert "must be a release of class Sums" in refused(guard(), release)


def test_a_message_that_is_not_a_release_is_refused():
    assert "must be a release of class Loose" in refused(guard(min_patients=0), Loose(np.ones(2)), Part.loose)


@pytest.mark.parametrize(
    "views",
    [
        {"imaging": np.array([1.0, np.nan])},
        {"imaging": np.ones(2, "f4")},
        {"imaging": np.eye(2)},
        {"": np.ones(2)},
        None,
    ],
)
def test_what_is_not_as_declared_is_refused(views):
    release = Sums(views, 30, patients=30)
    assert "must match its declaration" in refused(guard(), release)


def test_a_view_without_patients_leaves_as_zeros_only():
    gate = guard()
    gate.release(call(), sums({"imaging": 0, "n": 30}, {"imaging": np.zeros(2)}))
    assert gate.ledger.entries[0]["fields"][0]["patients"] == 0
    assert "a value without patients behind it" in refused(
        guard(), sums({"imaging": 0, "n": 30}, {"imaging": np.array([0.0, 1e-300])})
    )


def test_a_text_without_patients_is_refused():
    assert "a value without patients behind it" in refused(guard(), Word("C50.9", patients=0), Part.word)
    guard().release(call(Part.word), Word("", patients=0))
    guard().release(call(Part.word), Word("C50.9", patients=10))


def test_a_release_without_patients_needs_no_count():
    gate = guard(min_patients=1000)
    gate.release(call(Part.hello), Hello("1.0"))
    gate.release(call(Part.take), Acknowledgement())
    assert [entry["event"] for entry in gate.ledger.entries] == ["release", "release"]


def test_a_release_cannot_exempt_itself_from_the_minimum():
    release = sums(3)
    object.__setattr__(release, "concerns_patients", False)
    assert "the answer must have at least 10 patients behind it" in refused(guard(), release)


def test_no_refusal_contains_a_count_or_a_value_of_the_site():
    with pytest.raises(DisclosureRefused) as caught:
        guard(min_patients=20).release(call(), sums(12, {"imaging": np.array([123456.5, 1.0])}))
    assert "12 " not in str(caught.value)
    assert "123456" not in str(caught.value)
    assert "20 patients" in str(caught.value)


def admission(gate, asked):
    with pytest.raises(RefusedByPolicy):
        gate.admit(asked)
    assert gate.ledger.entries[-1]["event"] == "refusal"
    return gate.ledger.entries[-1]["reason"]


def test_only_listed_methods_run():
    assert "does not permit the method sums" in admission(guard(methods=("ppca",)), call())
    assert "does not permit the method sums" in admission(guard(methods=()), call())
    guard(methods=("sums",)).admit(call())
    guard(methods=()).admit(call(Part.hello))


def test_only_masked_sums_where_the_policy_says_so():
    gate = guard(secure_sums_only=True)
    assert "must be masked sums" in admission(gate, call())
    gate.admit(call(protection="masked"))
    gate.admit(call(Part.hello))


@pytest.mark.parametrize("peers", [(), ("a",), ("a", "b"), ("a", "b", "b"), ("a", "a", "a", "a")])
def test_a_masked_sum_needs_a_crowd_of_different_sites(peers):
    assert "requires sums over at least" in admission(guard(min_sites_in_sum=3), call(protection="masked", peers=peers))
    guard(min_sites_in_sum=3).admit(call(peers=peers))


@pytest.mark.parametrize(("threshold", "admitted"), [(2, False), (3, True), (5, True)])
def test_the_crowd_of_a_masked_sum_is_the_sites_it_can_be_read_with(threshold, admitted):
    # Sites beyond the threshold may drop out: the sum is then over `threshold` sites, however many were asked.
    asked = dataclasses.replace(call(peers=tuple("abcde")), mask=Mask("first", 0, threshold))
    gate = guard(min_sites_in_sum=3)
    if admitted:
        gate.admit(asked)
        assert gate.ledger.entries == ()
    else:
        assert f"requires sums over at least 3 sites; got {threshold}" in admission(gate, asked)


@pytest.mark.parametrize("value", [-8.0, 0.0, 8.0])
def test_a_range_holds_its_two_ends(value):
    check_ranges(Bounded(np.array([0.0, value]), patients=30))


@pytest.mark.parametrize("value", [np.nextafter(-8.0, -9.0), np.nextafter(8.0, 9.0), -1e300, 1e300])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_beyond_either_end_of_its_range_is_refused(value, place):
    values = np.zeros(3)
    values[place] = value
    with pytest.raises(MessageError, match=r"^Bounded\.total: a value is beyond the declared range of 8"):
        check_ranges(Bounded(values, patients=30))


@pytest.mark.parametrize("value", [-9.0, 9.0])
@pytest.mark.parametrize("protection", ["unmasked", "masked"])
def test_ranges_hold_masked_or_not(value, protection):
    gate, asked = guard(), call(Part.bounded, protection)
    release = Bounded(np.array([value]), patients=30)
    with pytest.raises(DisclosureRefused, match=r"beyond the declared range"):
        gate.release(asked, release)
    assert gate.ledger.entries[-1]["event"] == "refusal"


def hiding(multiplier, session="0.1", z=None):
    noise = Noise("gaussian", {"total": multiplier} if z is None else {"total": multiplier, "n": z})
    return dataclasses.replace(call(Part.bounded), noise=noise, session=session)


# One Gaussian answer of (3, 1e-5) has a multiplier of 1.3906; two fields of one answer add up.
@pytest.mark.parametrize(("multiplier", "hides"), [(0.05, False), (1.390, False), (1.391, True), (3.0, True)])
def test_noise_hides_where_one_answer_is_within_epsilon_3(multiplier, hides):
    assert guard().hides(hiding(multiplier)) is hides
    assert guard().hides(hiding(1e4, z=multiplier + 1e-4)) is hides


def test_without_a_budget_noise_hides_until_the_answers_of_the_guards_life_average_it_away():
    gate = guard()
    # Each answer has rho 1 / (2 * 3**2) = 0.056; (3, 1e-5) is a rho of 0.2586.
    assert [gate.hides(hiding(3.0, session=f"0.{n}")) for n in range(6)] == [True] * 4 + [False] * 2
    assert not gate.hides(hiding(3.0, session="another"))
    assert not gate.hides(call())


def test_with_a_budget_what_its_account_spent_counts():
    gate, asked, release = guard(epsilon=10.0, min_patients=1), hiding(3.0), Bounded(np.zeros(1), patients=30)
    hidden = []
    for _ in range(6):
        hidden.append(gate.hides(asked))
        gate.release(asked, release)
    assert hidden == [True] * 4 + [False] * 2
    assert not guard(epsilon=10.0).hides(hiding(0.5))


def test_cohorts_that_differ_by_few_patients_are_refused():
    gate = guard(range(100), min_difference=5)
    gate.release(call(), sums(30))
    gate.release(call(), sums(30))
    for other in (range(1, 100), range(101), range(2, 102)):
        gate.cohort = gate.memory.fingerprints(other)
        with pytest.raises(
            DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"
        ):
            gate.release(call(), sums(30))
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        gate.release(call(Part.word), Word("a", patients=30))
    gate.cohort = gate.memory.fingerprints(range(95))
    gate.release(call(), sums(30))
    gate.cohort = gate.memory.fingerprints(range(96))
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        gate.release(call(), sums(30))


def test_the_memory_outlives_the_guard(tmp_path):
    terms = {"min_difference": 5, "cohorts": str(tmp_path / "cohorts")}
    guard(range(100), **terms).release(call(), sums(30))
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        guard(range(99), **terms).release(call(), sums(30))
    guard(range(99, -1, -1), **terms).release(call(), sums(30))
    guard(range(95), **terms).release(call(), sums(30))
    if os.name == "posix":
        assert {
            stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cohorts").iterdir() if path.name != "lock"
        } == {0o600}


@pytest.mark.parametrize("gone", ["key", "answered.json", "*.cohort"])
def test_a_memory_that_lost_a_part_is_refused(gone, tmp_path):
    terms = {"min_difference": 5, "cohorts": str(tmp_path / "cohorts")}
    guard(range(100), **terms).release(call(), sums(30))
    (path,) = (tmp_path / "cohorts").glob(gone)
    path.unlink()
    with pytest.raises(IntegrityError, match="memory of cohorts"):
        guard(range(99), **terms).release(call(), sums(30))


@pytest.mark.parametrize("content", [b"[]", b"", b"3"])
def test_a_memory_that_cannot_be_read_is_refused(content, tmp_path):
    terms = {"min_difference": 5, "cohorts": str(tmp_path / "cohorts")}
    guard(range(100), **terms).release(call(), sums(30))
    (tmp_path / "cohorts" / "answered.json").write_bytes(content)
    with pytest.raises(IntegrityError, match="memory of cohorts"):
        guard(range(99), **terms)


def test_a_memory_is_held_while_it_is_looked_up_and_written(tmp_path):
    memory = CohortMemory(tmp_path)
    with memory.alone(), pytest.raises(ConfigurationError, match="another process"), held(tmp_path / "lock"):
        pass


def test_two_guards_of_one_memory_see_each_others_cohorts(tmp_path):
    terms = {"min_difference": 5, "cohorts": str(tmp_path / "cohorts")}
    one, two, three = (guard(range(n), **terms) for n in (100, 99, 98))
    one.release(call(), sums(30))
    for other in (two, three):
        with pytest.raises(
            DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"
        ):
            other.release(call(), sums(30))


@pytest.mark.parametrize("file", ["answered.json", "*.cohort"])
def test_a_memory_that_was_changed_is_refused(file, tmp_path):
    terms = {"min_difference": 5, "cohorts": str(tmp_path / "cohorts")}
    guard(range(100), **terms).release(call(), sums(30))
    (path,) = (tmp_path / "cohorts").glob(file)
    path.write_bytes(b"[" + path.read_bytes())
    with pytest.raises(IntegrityError, match="memory of cohorts"):
        guard(range(50), **terms).release(call(), sums(30))


def test_a_refused_answer_is_not_remembered_as_given():
    gate = guard(range(100), min_difference=5)
    with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
        gate.release(call(), sums(3))
    gate.cohort = gate.memory.fingerprints(range(99))
    gate.release(call(), sums(30))


def test_without_ids_the_differencing_memory_fails_closed():
    assert "records must have patient ids" in refused(guard(min_difference=5), sums(30))


def test_cohorts_are_compared_by_default_and_not_with_a_difference_of_0():
    gate = guard(range(100))
    gate.release(call(), sums(30))
    gate.cohort = gate.memory.fingerprints(range(99))
    with pytest.raises(DisclosureRefused, match="at least 5 patients"):
        gate.release(call(), sums(30))
    gate = guard(range(100), min_difference=0)
    gate.release(call(), sums(30))
    gate.cohort = gate.memory.fingerprints(range(99))
    gate.release(call(), sums(30))
