"""Noise has the scale that its plan names, lies on a grid, and comes from no seed.

Means and standard deviations are compared to six standard errors: a false alarm has a probability of 2e-9 for each.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from multicentre.core.messages import MessageError, array, count, number, texts
from multicentre.core.noise_plan import Noise, Plan, Planned, PlanShown
from multicentre.core.steps import Release
from multicentre.errors import ConfigurationError
from multicentre.privacy import charging
from multicentre.privacy.charging import EXACT_FROM, STEPS_PER_SCALE, add_noise, check_scales, grid_step
from support.toy_private import ClippedSite, ClippedSum, plan_of

D = 20_000
Z = 3.0
NOISE = Noise("gaussian", {"total": Z, "patients_counted": Z})


@dataclass(frozen=True)
class Histogram(Release):
    """One patient is in one cell."""

    names: tuple = texts("names of the cells", public=True)
    cells: np.ndarray = array("patients by cell", ("m",), dtype="i8", bound=2.0**40, sensitivity=1.0, norm="l1")
    n: int = count("patients", sensitivity=1.0)


def zeros(d=D):
    return ClippedSum(np.zeros(d), 0.0, patients=50)


def test_noise_has_the_planned_scale_and_lies_on_its_grid():
    noised = add_noise(zeros(), NOISE)
    step = grid_step(ClippedSum.declarations()["total"], Z, 1, 0.0)
    # the sensitivity grows by sqrt(d) steps for the rounding
    scale = Z * (1 + math.sqrt(D) * step)
    assert noised.total.std() == pytest.approx(scale, rel=6 / math.sqrt(2 * D))
    assert abs(noised.total.mean()) < 6 * scale / math.sqrt(D)
    np.testing.assert_array_equal(noised.total, np.rint(noised.total / step) * step)
    assert 0.5 <= step * STEPS_PER_SCALE <= 1.0
    assert grid_step(ClippedSum.declarations()["total"], 0.01, 1, 0.0) * STEPS_PER_SCALE <= 0.01


def test_shares_add_up_to_the_planned_scale():
    total = sum(add_noise(zeros(), NOISE, sharers=5).total for _ in range(5))
    assert total.std() == pytest.approx(Z, rel=6 / math.sqrt(2 * D))


def test_a_coarse_carrier_gets_a_coarse_grid_and_more_noise():
    noised = add_noise(zeros(), NOISE, finest={"total": 0.25})
    np.testing.assert_array_equal(noised.total, np.rint(noised.total * 4) / 4)
    assert noised.total.std() == pytest.approx(Z * (1 + 0.25 * math.sqrt(D)), rel=6 / math.sqrt(2 * D))


def test_rounding_never_hides_behind_the_noise():
    with pytest.raises(ConfigurationError, match="steps of the field's grid"):
        add_noise(
            ClippedSum(np.zeros(1), 0.0),
            Noise("gaussian", {"total": 0.4, "patients_counted": 1.0}),
            finest={"total": 1.0},
        )


def test_whole_numbers_stay_whole():
    histogram = Histogram(("a",), np.full(20_000, 100), 900)
    for mechanism in ("gaussian", "laplace"):
        noised = add_noise(histogram, Noise(mechanism, {"cells": 5.0, "n": 5.0}))
        assert noised.cells.dtype == np.int64
        assert type(noised.n) is int
        assert noised.names == histogram.names
        spread = 5.0 if mechanism == "gaussian" else 5.0 * math.sqrt(2)
        # Twelve standard errors of Laplace noise, whose kurtosis is 6.
        assert noised.cells.std() == pytest.approx(spread, rel=0.1)


def test_noise_differs_between_calls_whatever_the_seed():
    np.random.seed(1)  # noqa: NPY002
    first = add_noise(zeros(50), NOISE).total
    np.random.seed(1)  # noqa: NPY002
    # Two numbers on a grid of a millionth of the scale are equal with a probability of 3e-7: 0.00001 for one of 50.
    assert np.mean(first == add_noise(zeros(50), NOISE).total) < 0.1


def test_a_plan_names_every_field_that_tells_of_patients():
    step = ClippedSite.clipped_sum
    with pytest.raises(ConfigurationError, match="total, patients_counted"):
        Plan((Planned(step, Noise("gaussian", {"total": 1.0})),))
    with pytest.raises(ConfigurationError, match="l1 norm"):
        Plan((Planned(step, Noise("laplace", {"total": 1.0, "patients_counted": 1.0})),))
    with pytest.raises(ConfigurationError, match="must be positive"):
        Noise("gaussian", {"total": 0.0})
    with pytest.raises(ConfigurationError, match="mechanism"):
        Noise("none", {})


def test_a_plan_survives_being_shown():
    plan = plan_of(0.1, times=3)
    ((noise, times),) = PlanShown.of(plan, ClippedSite).noises()
    assert (noise, times) == (plan.releases[0].noise, 3)


def test_a_forged_plan_is_refused():
    shown = PlanShown.of(plan_of(0.1), ClippedSite)
    object.__setattr__(shown, "multipliers", {"clipped_sum": np.ones(1)})
    with pytest.raises(MessageError, match="must name each step and field once"):
        shown.noises()


def test_a_field_with_names_takes_no_sensitivity():
    with pytest.raises(MessageError, match="names"):
        count("patients by view", keyed=True, sensitivity=1.0)
    with pytest.raises(MessageError, match="sensitivity must be"):
        number("x", sensitivity=0.0)
    with pytest.raises(MessageError, match="bound must be"):
        array("x", ("d",), bound=math.inf)


@dataclass(frozen=True)
class Field(Release):
    """One number, and one whole one, of which a patient moves the first by up to four."""

    total: float = number("sum", bound=2.0**20, sensitivity=4.0)
    n: int = count("patients", bound=2.0**20, sensitivity=1.0)
    cells: np.ndarray = array("cells", ("m",), bound=2.0**20, sensitivity=1.0, norm="l1")


DECLARED = Field.declarations()


def field(total=0.0, n=0, cells=()):
    return Field(total, n, np.array(cells, dtype=float), patients=30)


def planned(mechanism="gaussian", **multipliers):
    return Noise(mechanism, {"total": 3.0, "n": 3.0, "cells": 3.0, **multipliers})


def drawing(monkeypatch):
    """Have noise drawn as zeros, and return what was asked of each law."""
    asked = []
    for law in ("gaussian_noise", "rounded_gaussian_noise", "geometric_noise"):

        def draw(shape, scale, share=1, law=law):
            asked.append((law, shape, scale, share))
            return np.zeros(shape, dtype=np.int64)

        monkeypatch.setattr(charging, law, draw)
    return asked


@pytest.mark.parametrize(
    ("multiplier", "sharers", "step"),
    [
        (3.0, 1, 2.0**-18),  # a million steps to the sensitivity of 4
        (1.0, 1, 2.0**-18),
        (0.5, 1, 2.0**-19),  # and to the scale of the noise, where that is smaller
        (0.5, 4, 2.0**-20),  # of one site's share
        (8.0, 4, 2.0**-18),
        (0.99, 1, 2.0**-19),
    ],
)
def test_a_grid_has_a_million_steps_to_the_smaller_of_scale_and_sensitivity(multiplier, sharers, step):
    assert grid_step(DECLARED["total"], multiplier, sharers, 0.0) == step
    assert grid_step(DECLARED["total"], multiplier, sharers, 0.25) == 0.25


@pytest.mark.parametrize(("bound", "step"), [(2.0**60, 2.0**8), (3.0 * 2.0**58, 2.0**8), (2.0**80, 2.0**28)])
def test_a_grid_is_no_finer_than_a_float_can_count_the_range(bound, step):
    wide = dataclasses.replace(DECLARED["total"], bound=bound, sensitivity=1.0)
    assert grid_step(wide, 3.0, 1, 0.0) == step


def test_whole_numbers_have_a_grid_of_their_own():
    assert grid_step(DECLARED["n"], 1e-9, 100, 0.25) == 1.0


@pytest.mark.parametrize(("sharers", "least"), [(1, 2.0), (4, 4.0)])
def test_a_share_of_the_noise_is_two_steps_wide_at_least(sharers, least):
    check_scales(Field, planned(n=least), sharers, {})
    with pytest.raises(ConfigurationError) as caught:
        check_scales(Field, planned(n=least * 0.99), sharers, {})
    assert caught.value.where == "Field.n"
    assert caught.value.what == "the noise must be from 2 to 1.1e+15 steps of the field's grid; got 2"
    assert caught.value.hint.startswith("Declare a narrower range, or a real number instead of an integer")


def test_the_width_of_noise_is_that_of_its_field():
    # 1.3 times a sensitivity of four are 2.6 of the carrier's steps of two; of one, they would be too few.
    check_scales(Field, planned(total=1.3), 1, {"total": 2.0})
    with pytest.raises(ConfigurationError, match=r"Field\.cells"):
        check_scales(Field, planned(cells=1.3), 1, {"cells": 2.0})


def test_laplace_noise_may_be_narrow_but_not_too_wide_to_be_counted():
    check_scales(Field, planned("laplace", n=0.01), 5, {})
    for mechanism in ("gaussian", "laplace"):
        check_scales(Field, planned(mechanism, n=2.0**50), 1, {})
        with pytest.raises(
            ConfigurationError, match=r"^Field\.n: the noise must be from 2 to 1\.1e\+15 steps of the field's grid"
        ):
            check_scales(Field, planned(mechanism, n=2.0**50 * 1.01), 1, {})


def test_values_stand_under_their_noise_in_their_own_unit(monkeypatch):
    drawing(monkeypatch)
    noised = add_noise(field(1000.25, 17, (0.5, -3.0)), planned())
    assert (noised.total, noised.n, noised.cells.tolist()) == (1000.25, 17, [0.5, -3.0])
    assert (type(noised.total), type(noised.n)) == (float, int)
    assert noised.patients == 30


def test_the_noise_is_as_wide_as_planned_in_steps_of_each_field(monkeypatch):
    asked = drawing(monkeypatch)
    add_noise(field(cells=(0.0, 0.0, 0.0, 0.0)), planned(total=5.0, n=7.0), finest={"total": 0.5, "cells": 0.5})
    # Rounding to steps of a half adds one step to a number's sensitivity, and n steps in the l1 norm; counts are exact.
    assert asked == [
        ("rounded_gaussian_noise", (), 5.0 * (4 / 0.5 + 1), 1),
        ("rounded_gaussian_noise", (), 7.0, 1),
        ("rounded_gaussian_noise", (4,), 3.0 * (1 / 0.5 + 4), 1),
    ]


def test_each_of_several_sites_draws_its_share(monkeypatch):
    asked = drawing(monkeypatch)
    add_noise(field(), planned(n=8.0), sharers=4)
    add_noise(field(), planned("laplace", n=8.0), sharers=4)
    assert [(law, scale, share) for law, shape, scale, share in asked if scale in (4.0, 8.0)] == [
        ("rounded_gaussian_noise", 4.0, 1),
        ("geometric_noise", 8.0, 4),
    ]


@pytest.mark.parametrize(
    ("scale", "law"), [(EXACT_FROM, "gaussian_noise"), (EXACT_FROM * 0.999, "rounded_gaussian_noise")]
)
def test_the_discrete_law_serves_where_it_cannot_be_told_from_the_continuous_one(monkeypatch, scale, law):
    asked = drawing(monkeypatch)
    add_noise(field(), planned(n=scale))
    assert (law, (), scale, 1) in asked
    asked.clear()
    add_noise(field(), planned(n=2 * scale), sharers=4)
    assert (law, (), scale, 1) in asked


def test_noise_is_added_to_the_value():
    noised = add_noise(ClippedSum(np.full(2000, 1000.25), 17.0, patients=50), NOISE)
    # 2000 draws of deviation 3: their mean is off by 0.4 once in 4e8 times.
    assert noised.total.mean() == pytest.approx(1000.25, abs=0.4)
