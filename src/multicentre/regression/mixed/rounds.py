"""Rounds of the mixed models: Newton steps on the likelihood, with sums over sites.

Before the first round, columns, means and scales are agreed as for a generalised linear model
(:mod:`multicentre.regression.rounds`).

Linear mixed model. One call compares a few covariances of the effects, one of them 0, at which the rounds may start.
One round consists of:

1. The coordinator sends the covariance of the effects, relative to the residual variance.
2. Each site returns products of its covariates and outcomes, weighted by the inverse of their covariance, the logarithm
   of the determinant, and the derivatives of both by the covariance of the effects.
3. The sums over sites give coefficients, residual variance and the (restricted) likelihood, and a Newton step for the
   Cholesky factor of the covariance.

Generalised linear mixed model. One round consists of:

1. The coordinator sends coefficients and the Cholesky factor of the covariance of the effects.
2. Each site finds the mode of its effects, and returns the likelihood by Laplace's approximation with its derivatives.
3. The sums over sites give a Newton step for coefficients and factor.

The rounds are those of :mod:`multicentre.likelihood.newton`; they stop when all entries of a step are below ``tol``, in
units of order 1. With the factor as parameter, a variance of 0 is reached without a constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.errors import DataError
from multicentre.likelihood.newton import Derivatives, Maximum, Problem, maximise
from multicentre.likelihood.separation import Reported, covariance_of
from multicentre.likelihood.steps import uphill_step
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED, dependent_columns
from multicentre.regression.mixed import messages
from multicentre.regression.mixed.maths import (
    Curved,
    Solution,
    Weighted,
    basis_of,
    by_factor,
    derive_criterion,
    directions_of,
    factor_jacobian,
    lower,
    sensitivity,
    solve,
    triangle,
)
from multicentre.regression.mixed.site import GeneralizedMixedSite, LinearMixedSite
from multicentre.regression.rounds import Plan, Prepared

Floats = NDArray[np.float64]
# Variances of an effect, relative to the variance of its estimate at a site of mean size, among which a fit starts.
STARTS = (0.1, 1.0, 10.0, 100.0)
# Smallest tolerance with masked sums. The last step is taken, so that variances differ from their maximum by rounding
# only.
MASKED_TOL = 1e-6
# Largest entry of a step of the linear model's factor that rounding may explain, in units of order 1. Even 1,000 sites
# show a standard deviation of effects to 2 % only.
COARSEST_FACTOR = 1e-4
# Longest step of a coefficient, and of an entry of a Cholesky factor in units of order 1.
LONGEST = 1.0
# Standard deviation of the effects where the rounds of a generalised model start, on the scale of the predictor.
FIRST_DEVIATION = 0.5


@dataclass(frozen=True)
class LinearFit:
    """Fitted linear mixed model, on the scale of the rounds.

    Parameters
    ----------
    solution : Solution
    covariance : array of shape (q, q)
        Covariance of the effects, relative to the residual variance.
    n_patients, n_sites : float
    null_criterion : float
        Criterion without effects of sites.
    maximum : Maximum
    """

    solution: Solution
    covariance: Floats
    n_patients: float
    n_sites: float
    null_criterion: float
    maximum: Maximum


@dataclass(frozen=True)
class GeneralizedFit:
    """Fitted generalised linear mixed model, on the scale of the rounds.

    Parameters
    ----------
    coefficients : array of shape (p,)
    factor : array of shape (q, q)
        Cholesky factor of the covariance of the effects.
    covariance : array of shape (p, p)
        Of the reported coefficients; NaN for those that diverge.
    sums : Laplace
        Sums at these parameters.
    maximum : Maximum
    """

    coefficients: Floats
    factor: Floats
    covariance: Floats
    sums: messages.Laplace
    maximum: Maximum


def check_several(session: Session) -> None:
    """Raise DataError if there is one site only, which shows no variance between sites."""
    if len(session.sites) < 2:
        raise DataError(
            "random effects must be of at least two sites; got one",
            where="sites",
            hint="Fit a regression without effects of sites (FedGLM).",
        )


def effects_of(agreed: Prepared, slopes: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that all requests of a mixed model share."""
    fields = {name: getattr(agreed.centre, name) for name in type(agreed.centre).declarations()}
    return {**fields, "spread": agreed.spread, "scale": agreed.scale, "slopes": slopes}


class LinearProblem(Problem):
    """Likelihood of a linear mixed model by the Cholesky factor of the effects' covariance, in units of order 1.

    The derivatives are by coordinates in which the criterion is well scaled; `basis` leads from these to the factor.
    """

    best_value: ClassVar[str] = "objective"
    masked_tol: ClassVar[float] = MASKED_TOL
    coarsest_tol = COARSEST_FACTOR

    def __init__(
        self, session: Session, agreed: Prepared, slopes: tuple[str, ...], start: Floats, *, restricted: bool
    ) -> None:
        self.session, self.restricted, self.start = session, restricted, start
        self.fields, self.divisor = effects_of(agreed, slopes), agreed.totals.n_patients / len(session.sites)
        self.reported = Reported(np.eye(len(start)), None, agreed.totals.n_patients)
        step = LinearMixedSite.sum_curvature
        self.of_products, self.of_determinant, self.of_slopes = (
            session.rounding(step, one) for one in ("products", "log_determinant", "slopes")
        )
        self.size_of_step, self.basis = 0.0, np.eye(len(start))

    def request(self, factor: Floats) -> messages.AtCovariance:
        """Return the request for sums at a Cholesky factor."""
        covariance = factor @ factor.T / self.divisor
        directions = directions_of(factor) / np.sqrt(self.divisor)
        return messages.AtCovariance(**self.fields, covariance=0.5 * (covariance + covariance.T), directions=directions)

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the criterion of all sites with its derivatives, with their signs reversed."""
        factor = lower(point)
        sums = self.session.sum(LinearMixedSite.sum_curvature, self.request(factor))
        curved = Curved(
            sums.products,
            sums.log_determinant,
            sums.slopes,
            sums.curvatures,
            sums.determinant_slopes,
            sums.determinant_curvatures,
        )
        solution = solve(curved, sums.n_patients, restricted=self.restricted)
        derivatives = derive_criterion(curved, solution, sums.n_patients, restricted=self.restricted)
        directions = directions_of(factor)
        inner = np.asarray(np.linalg.solve(directions, factor), dtype=np.float64)
        gradient, hessian = by_factor(inner, *derivatives)
        per_product = sensitivity(solution, restricted=self.restricted)
        self.rounding = self.of_determinant + self.of_products * per_product
        # The slopes are rounded as the products are. The products change them by less, as the criterion is at its
        # minimum over the coefficients.
        of_slopes = np.full_like(gradient, self.of_determinant + (self.of_slopes + self.of_products) * per_product)
        self.gradient_rounding = np.abs(factor_jacobian(inner)).T @ of_slopes
        self.basis = basis_of(directions)
        return Derivatives(-solution.criterion, -gradient, hessian, sums.n_patients)

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return the step of the factor."""
        step = uphill_step(at.gradient, at.information, LONGEST)
        self.size_of_step = float(np.abs(step).max())
        return np.asarray(self.basis @ step, dtype=np.float64)

    def change(self, point: Floats, step: Floats) -> float:
        """Return the largest entry of the step, in units of order 1."""
        return self.size_of_step

    def rounding_of_step(self, information: Floats) -> Floats:
        """Return the largest errors of a step of the factor through the rounding of masked sums."""
        return np.asarray(np.abs(self.basis) @ super().rounding_of_step(information), dtype=np.float64)

    def metrics(self, at: Derivatives) -> dict[str, float]:
        """Return the criterion, which is minimised."""
        return {self.best_value: -at.value}


def fit_linear(
    session: Session, agreed: Prepared, slopes: tuple[str, ...], plan: Plan, *, restricted: bool
) -> LinearFit:
    """Maximise the (restricted) likelihood of a linear mixed model."""
    fields, size = effects_of(agreed, slopes), 1 + len(slopes)
    divisor = agreed.totals.n_patients / len(session.sites)
    starts = np.array([0.0, *STARTS])[:, None, None] * np.eye(size) / divisor
    request = messages.Candidates(**fields, covariances=starts)
    candidates = session.once(
        "candidates", messages.Weighted, lambda: session.sum(LinearMixedSite.sum_candidates, request)
    )
    _check_independent(candidates.products[0, :-1, :-1], agreed, masked=plan.masked)
    sums = [Weighted(*each) for each in zip(candidates.products, candidates.log_determinants, strict=True)]
    criteria = [solve(each, candidates.n_patients, restricted=restricted).criterion for each in sums]
    start = np.sqrt(STARTS[int(np.argmin(criteria[1:]))]) * np.eye(size)
    problem = LinearProblem(session, agreed, slopes, start[triangle(size)], restricted=restricted)
    maximum = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol)
    last = problem.request(lower(maximum.point))
    reached = session.once("reached", messages.Curved, lambda: session.sum(LinearMixedSite.sum_curvature, last))
    weighted = Weighted(reached.products, reached.log_determinant)
    solution = solve(weighted, reached.n_patients, restricted=restricted)
    return LinearFit(solution, last.covariance, reached.n_patients, reached.n_sites, criteria[0], maximum)


class GeneralizedProblem(Problem):
    """Likelihood of a generalised linear mixed model by Laplace's approximation: coefficients, then the factor."""

    best_value: ClassVar[str] = "objective"
    masked_tol: ClassVar[float] = MASKED_TOL

    def __init__(self, session: Session, agreed: Prepared, slopes: tuple[str, ...]) -> None:
        self.session, self.agreed, self.p = session, agreed, 1 + len(agreed.covariates)
        self.fields, self.size = effects_of(agreed, slopes), 1 + len(slopes)
        n_entries = len(triangle(self.size)[0])
        of_coefficients = agreed.reported(null=False)
        matrix = np.eye(self.p + n_entries)
        matrix[: self.p, : self.p] = of_coefficients.matrix
        information = np.pad(cast(Floats, of_coefficients.information), (0, n_entries)) if self.p > 1 else None
        self.reported = Reported(matrix, information, of_coefficients.n_patients)
        self.names = (*agreed.names, *(["factor"] * n_entries))
        step = GeneralizedMixedSite.sum_laplace
        self.rounding, self.gradient_rounding = (session.rounding(step, name) for name in ("value", "gradient"))

    def begin(self) -> tuple[Floats, Floats]:
        """Return the coefficients without covariates with effects of moderate size, and the first step."""
        coefficients, step = self.agreed.start(null=False)
        factor = (FIRST_DEVIATION * np.eye(self.size))[triangle(self.size)]
        return np.append(coefficients, factor), np.append(step, np.zeros_like(factor))

    def request(self, point: Floats, *, tentative: bool = False) -> messages.AtFactor:
        """Return the request for sums at coefficients and a factor."""
        return messages.AtFactor(
            **self.fields, coefficients=point[: self.p], factor=point[self.p :], tentative=tentative
        )

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites."""
        sums = self.session.sum(GeneralizedMixedSite.sum_laplace, self.request(point, tentative=tentative))
        return Derivatives(sums.value, sums.gradient, sums.information, sums.n_patients, n_withdrawn=sums.n_withdrawn)

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return a Newton step that goes up where the likelihood is not concave."""
        return uphill_step(at.gradient, at.information, LONGEST)

    def metrics(self, at: Derivatives) -> dict[str, float]:
        """Return minus the log-likelihood."""
        return {self.best_value: -at.value}


def fit_generalized(session: Session, agreed: Prepared, slopes: tuple[str, ...], plan: Plan) -> GeneralizedFit:
    """Maximise the likelihood of a generalised linear mixed model by Laplace's approximation."""
    spread, totals, p = agreed.spread, agreed.totals, 1 + len(agreed.covariates)
    products = agreed.moments.products / np.outer(spread, spread)
    _check_independent(np.pad(products, (1, 0)) + np.diag(np.eye(p)[0]) * totals.weight, agreed, masked=plan.masked)
    problem = GeneralizedProblem(session, agreed, slopes)
    maximum = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol)
    last = problem.request(maximum.point)
    sums = session.once("reached", messages.Laplace, lambda: session.sum(GeneralizedMixedSite.sum_laplace, last))
    covariance = covariance_of(problem.reported.matrix, sums.information, maximum.diverging)
    return GeneralizedFit(maximum.point[:p], lower(maximum.point[p:]), covariance[:p, :p], sums, maximum)


def _check_independent(products: Floats, agreed: Prepared, *, masked: bool) -> None:
    """Raise DataError if covariates depend on each other; the message names them."""
    dependent = dependent_columns(products, DEPENDENT_MASKED if masked else DEPENDENT)
    if dependent.any():
        names = [agreed.names[place] for place in np.flatnonzero(dependent).tolist()]
        raise dependent_error(names, agreed.levels, has_penalty=False)
