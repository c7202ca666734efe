"""A plan of noise names every release, fits its fields, and reads the same at a site as at the coordinator."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from multicentre.core.messages import Nothing, number, texts
from multicentre.core.noise_plan import Noise, Plan, Planned, PlanReview, PlanShown
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.errors import ConfigurationError, MessageError
from support.toy_method import MeanSite
from support.toy_private import ClippedSum

FITTING = Noise("gaussian", {"total": 2.0, "patients_counted": 3.0})


@dataclass(frozen=True)
class Labelled(Release):
    """Two fields, one of which is known without any patient."""

    amount: float = number("amount", bound=4.0, sensitivity=1.0)
    labels: tuple = texts("labels", public=True)


@dataclass(frozen=True)
class Bounded(Release):
    """A field that no noise can hide."""

    amount: float = number("amount", bound=4.0)


@dataclass(frozen=True)
class Unbounded(Release):
    """A field whose noise has no range."""

    amount: float = number("amount", sensitivity=1.0)


class Offers(SitePart):
    """Offers two private steps and one about no patient."""

    method = "toy-offers"

    @step(releases=ClippedSum)
    def first(self, request: Nothing) -> ClippedSum:
        """Never run."""

    @step(releases=ClippedSum)
    def second(self, request: Nothing) -> ClippedSum:
        """Never run."""

    @step(releases=Acknowledgement)
    def prepare(self, request: Nothing) -> Acknowledgement:
        """Never run."""


def plan():
    return Plan((Planned(Offers.first, FITTING, 2), Planned(Offers.second, FITTING, 1)))


@pytest.mark.parametrize("multiplier", [0, 0.0, -1.0, float("inf"), float("nan")])
def test_noise_has_a_positive_finite_scale(multiplier):
    with pytest.raises(ConfigurationError, match=r"^noise, total: "):
        Noise("gaussian", {"patients_counted": 1.0, "total": multiplier})


def test_only_known_laws_are_noise():
    assert Noise("laplace", {"total": 1e-9}).multipliers == {"total": 1e-9}
    with pytest.raises(ConfigurationError, match=r"mechanism must be one of .*got 'uniform'"):
        Noise("uniform", {"total": 1.0})


@pytest.mark.parametrize("names", [["total"], ["total", "patients_counted", "more"], []])
def test_noise_names_the_fields_of_its_release(names):
    with pytest.raises(ConfigurationError, match=r"^ClippedSum: .*fields \(total, patients_counted\)"):
        Noise("gaussian", dict.fromkeys(names, 1.0)).check(ClippedSum)
    FITTING.check(ClippedSum)


@pytest.mark.parametrize("kind", [Bounded, Unbounded])
def test_a_field_needs_a_sensitivity_and_a_bound(kind):
    with pytest.raises(ConfigurationError, match=rf"^{kind.__name__}\.amount: .*must declare its sensitivity"):
        Noise("gaussian", {"amount": 1.0}).check(kind)


def test_fields_known_without_patients_need_no_noise():
    Noise("laplace", {"amount": 1.0}).check(Labelled)


def test_laplace_noise_needs_the_l1_norm_in_every_field():
    with pytest.raises(
        ConfigurationError, match=r"^ClippedSum\.total: the sensitivity for Laplace noise must be in the l1"
    ):
        Noise("laplace", {"total": 1.0, "patients_counted": 1.0}).check(ClippedSum)


def test_a_plan_names_each_step_once_and_for_a_call_or_more():
    once = Planned(Offers.first, FITTING)
    assert once.times == 1
    for releases in ((once, once), (Planned(Offers.first, FITTING, 0),), (once, Planned(Offers.second, FITTING, -1))):
        with pytest.raises(ConfigurationError, match=r"^plan: "):
            Plan(releases)
    with pytest.raises(ConfigurationError, match="must name the release's fields"):
        Plan((once, Planned(Offers.second, Noise("gaussian", {"total": 1.0}))))


def test_a_step_has_its_noise_as_often_as_it_is_planned():
    assert [plan().noise_of(Offers.first, called) for called in (0, 1)] == [FITTING, FITTING]
    assert plan().noise_of(Offers.second, 0) == FITTING
    for offered, called, reason in (
        (Offers.first, 2, "planned 2 times"),
        (Offers.second, 5, "planned 1 times"),
        (MeanSite.size, 0, "not planned"),
    ):
        with pytest.raises(ConfigurationError, match=rf"^{offered.name}: .*it is {reason}"):
            plan().noise_of(offered, called)


def test_a_step_about_no_patient_needs_no_plan():
    assert plan().noise_of(Offers.prepare, 10**6) is None


def shown():
    other = Noise("gaussian", {"patients_counted": 5.0, "total": 6.0})
    return PlanShown.of(Plan((Planned(Offers.first, FITTING, 2), Planned(Offers.second, other, 7))), Offers)


def test_a_site_reads_the_plan_that_the_coordinator_wrote():
    read = shown().checked()
    assert (read.method, read.steps, read.mechanisms) == ("toy-offers", ("first", "second"), ("gaussian",) * 2)
    assert (read.times.dtype, read.times.tolist()) == (np.int64, [2, 7])
    (first, times_first), (second, times_second) = read.noises()
    assert (first, times_first) == (FITTING, 2)
    assert (dict(second.multipliers), times_second) == ({"patients_counted": 5.0, "total": 6.0}, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": ("first", "first")},
        {"steps": ("first", "third")},
        {"steps": ("first",)},
        {"mechanisms": ("gaussian",)},
        {"times": np.array([2, 0])},
        {"times": np.array([2])},
        {"fields": {"first": ("total", "total"), "second": ("patients_counted", "total")}},
        {"fields": {"first": ("total",), "second": ("patients_counted", "total")}},
        {"fields": {"second": ("patients_counted", "total")}},
        {"multipliers": {"first": np.ones(3), "second": np.ones(2)}},
        {"multipliers": {"first": np.ones(2)}},
    ],
    ids=repr,
)
def test_a_plan_whose_parts_do_not_fit_together_is_refused(change):
    with pytest.raises(MessageError, match=r"^plan: the fields of a plan must name"):
        replace(shown(), **change).noises()


def test_a_single_call_is_a_plan_of_one():
    assert replace(shown(), times=np.array([1, 1])).noises()[0] == (FITTING, 1)


def test_the_review_of_a_plan_is_the_sites_own():
    seen = []
    part = PlanReview("lyon", seen.append)
    assert (part.site, part.data) == ("lyon", None)
    told = shown()
    assert part.review(told) == Acknowledgement()
    assert seen == [told]
