"""Differentially private linear and logistic regression: planned noise and rounds.

A linear fit has one release: sums of products of covariates and outcome between declared bounds, with noise. Least
squares, errors and tests follow from them.

A logistic fit has the same release, from which a linear discriminant gives the start, and a fixed number of rounds:

1. The coordinator sends the coefficients to every site.
2. Each site returns the gradient and the information of its patients, with noise.
3. The sums over sites give a Newton step.

The estimate combines the derivatives of all rounds but the first, whose noise is independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.session import Session
from multicentre.core.steps import Step
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.regression.private import messages
from multicentre.regression.private.maths import (
    PrivateFit,
    fit_linear,
    fit_logistic,
    newton_step,
    read_logistic,
    read_moments,
    row_unit,
    start_logistic,
)
from multicentre.regression.site import RegressionSite

Floats = NDArray[np.float64]
# Rounds of a logistic fit. After the first step from the start, coefficients are near the maximum; the two others give
# the estimate. A further round would leave less of the budget to each.
N_ROUNDS = 3
# Share of a logistic budget that the moments get: the start may be rough.
SHARE_OF_START = 0.2
# Weights of the second field of a release: its noise is larger by the inverse, and it takes little of the budget. The
# number of patients beyond bounds may be rough; errors of the information matter less than those of the gradient.
BEYOND_WEIGHT, INFORMATION_WEIGHT = 0.1, 0.5
# Planned noise is this much larger than needed, so that rounding never takes a fit over its budget.
ROUNDING = 1.0 + 1e-9


def plan_noise(family: str, epsilon: float, delta: float) -> Plan:
    """Return the plan of a private fit.

    Examples
    --------
    >>> plan = plan_noise("gaussian", 3.0, 1e-5)
    >>> plan.releases[0].step.name, round(plan.releases[0].noise.multipliers["products"], 2)
    ('sum_private_moments', 1.4)
    >>> [(planned.step.name, planned.times) for planned in plan_noise("binomial", 3.0, 1e-5).releases]
    [('sum_private_moments', 1), ('sum_private_derivatives', 3)]
    """
    rho = rho_of_epsilon(epsilon, delta) / ROUNDING
    share = SHARE_OF_START if family == "binomial" else 1.0
    moments = _noise(rho * share, products=1.0, beyond=BEYOND_WEIGHT)
    releases = [Planned(RegressionSite.sum_private_moments, moments)]
    if family == "binomial":
        each = _noise(rho * (1.0 - share) / N_ROUNDS, gradient=1.0, information=INFORMATION_WEIGHT)
        releases.append(Planned(RegressionSite.sum_private_derivatives, each, N_ROUNDS))
    return Plan(tuple(releases), delta)


def _noise(rho: float, **weights: float) -> Noise:
    """Return the noise of one release that costs rho: a field of weight w gets ``sqrt(sum w^2 / (2 rho)) / w``."""
    joint = math.sqrt(sum(weight**2 for weight in weights.values()) / (2.0 * rho))
    return Noise("gaussian", {field: joint / weight for field, weight in weights.items()})


def _multipliers(session: Session, step: Step[Any, Any, Any]) -> Mapping[str, float]:
    noise = session.noise_of(step)
    assert noise is not None  # the plan of the estimator, see plan_noise
    return noise.multipliers


def fit_private(session: Session, box: messages.Box) -> tuple[PrivateFit, float]:
    """Return the fit, and the noised share of patients with a value beyond a bound."""
    noised = session.once("moments", messages.Noised, lambda: _ask_for_moments(session, box))
    k = len(box.lower) + 2
    moments = read_moments(noised.products, k)
    multiplier = _multipliers(session, RegressionSite.sum_private_moments)["products"]
    noise_sd = multiplier * noised.spread / row_unit(k) ** 2
    n_patients = max(float(moments[0, 0]), 1.0)
    fit = fit_linear(moments, noise_sd) if box.family == "gaussian" else _approach(session, box, moments, noise_sd)
    return fit, float(np.clip(noised.beyond / n_patients, 0.0, 1.0))


def _ask_for_moments(session: Session, box: messages.Box) -> messages.Noised:
    sums = session.sum(RegressionSite.sum_private_moments, box)
    return messages.Noised(sums.products, sums.beyond, session.noise_spread)


def _approach(session: Session, box: messages.Box, moments: Floats, noise_sd: float) -> PrivateFit:
    start = start_logistic(moments, noise_sd)
    p, unit = len(start), row_unit(len(start))
    multipliers = _multipliers(session, RegressionSite.sum_private_derivatives)
    nothing = messages.NewtonState(start, np.zeros((0, p)), np.zeros((0, p)), np.zeros((0, p, p)))
    rounds = session.rounds(N_ROUNDS, messages.NewtonState, lambda: nothing, name="rounds")
    fields = {name: getattr(box, name) for name in messages.Box.declarations()}
    for _ in rounds:
        before = rounds.state
        request = messages.PrivateAt(**fields, coefficients=before.coefficients)
        sums = session.sum(RegressionSite.sum_private_derivatives, request)
        spread = session.noise_spread
        gradient, information = read_logistic(sums.gradient, sums.information)
        sd = multipliers["information"] * spread / (4.0 * unit**2)
        rounds.state = messages.NewtonState(
            newton_step(before.coefficients, gradient, information, sd),
            np.concatenate([before.points, before.coefficients[None]]),
            np.concatenate([before.gradients, gradient[None]]),
            np.concatenate([before.informations, information[None]]),
            spread=spread,
        )
        rounds.record(change=float(np.abs(rounds.state.coefficients - before.coefficients).max()))
    last = rounds.state
    return fit_logistic(
        last.points[1:],
        last.gradients[1:],
        last.informations[1:],
        multipliers["gradient"] * last.spread / unit,
        multipliers["information"] * last.spread / (4.0 * unit**2),
        float(moments[0, 0]),
    )
