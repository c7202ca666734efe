"""Noise has the scale that its plan names, lies on a grid, and comes from no seed."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import MessageError, array, count, number, texts
from multicentre.federation.noise import Noise, Plan, Planned, PlanShown
from multicentre.federation.steps import Release
from multicentre.privacy.noising import STEPS_A_SCALE, add_noise, grid_step
from toy_private import ClippedSite, ClippedSum, plan_of

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
    assert noised.total.std() == pytest.approx(scale, rel=5 / math.sqrt(2 * D))
    assert abs(noised.total.mean()) < 5 * scale / math.sqrt(D)
    np.testing.assert_array_equal(noised.total, np.rint(noised.total / step) * step)
    assert 0.5 <= step * STEPS_A_SCALE <= 1.0
    assert grid_step(ClippedSum.declarations()["total"], 0.01, 1, 0.0) * STEPS_A_SCALE <= 0.01


def test_shares_add_up_to_the_planned_scale():
    total = sum(add_noise(zeros(), NOISE, sharers=5).total for _ in range(5))
    assert total.std() == pytest.approx(Z, rel=5 / math.sqrt(2 * D))


def test_a_coarse_carrier_gets_a_coarse_grid_and_more_noise():
    noised = add_noise(zeros(), NOISE, finest={"total": 0.25})
    np.testing.assert_array_equal(noised.total, np.rint(noised.total * 4) / 4)
    assert noised.total.std() == pytest.approx(Z * (1 + 0.25 * math.sqrt(D)), rel=5 / math.sqrt(2 * D))


def test_rounding_never_hides_behind_the_noise():
    with pytest.raises(ConfigurationError, match="steps of the field's grid"):
        add_noise(
            ClippedSum(np.zeros(1), 0.0),
            Noise("gaussian", {"total": 0.4, "patients_counted": 1.0}),
            finest={"total": 1.0},
        )


def test_whole_numbers_stay_whole():
    histogram = Histogram(("a",), np.full(2000, 100), 900)
    for mechanism in ("gaussian", "laplace"):
        noised = add_noise(histogram, Noise(mechanism, {"cells": 5.0, "n": 5.0}))
        assert noised.cells.dtype == np.int64
        assert type(noised.n) is int
        assert noised.names == histogram.names
        spread = 5.0 if mechanism == "gaussian" else 5.0 * math.sqrt(2)
        assert noised.cells.std() == pytest.approx(spread, rel=0.15)


def test_noise_differs_between_calls_whatever_the_seed():
    np.random.seed(1)  # noqa: NPY002
    first = add_noise(zeros(50), NOISE).total
    np.random.seed(1)  # noqa: NPY002
    assert not np.any(first == add_noise(zeros(50), NOISE).total)


def test_a_plan_names_every_field_that_tells_of_patients():
    step = ClippedSite.clipped_sum
    with pytest.raises(ConfigurationError, match="total, patients_counted"):
        Plan((Planned(step, Noise("gaussian", {"total": 1.0})),))
    with pytest.raises(ConfigurationError, match="l1 norm"):
        Plan((Planned(step, Noise("laplace", {"total": 1.0, "patients_counted": 1.0})),))
    with pytest.raises(ConfigurationError, match="above 0"):
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
    with pytest.raises(MessageError, match="fit together"):
        shown.noises()


def test_a_field_with_names_takes_no_sensitivity():
    with pytest.raises(MessageError, match="names"):
        count("patients by view", keyed=True, sensitivity=1.0)
    with pytest.raises(MessageError, match="positive"):
        number("x", sensitivity=0.0)
    with pytest.raises(MessageError, match="positive"):
        array("x", ("d",), bound=math.inf)
