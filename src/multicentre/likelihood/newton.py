"""Maximum of a likelihood by Newton steps, with sums over sites: the rounds of every model that has a likelihood.

One round consists of:

1. The coordinator sends the parameters to every site.
2. Each site returns its log-likelihood and the first and second derivatives. If too few of its patients would decide
   these sums, it says only that (:mod:`multicentre.core.withdrawal`).
3. The coordinator adds up the sites' values. If the penalised log-likelihood fell, or if a site withdrew its sums, the
   step is halved. Otherwise the parameters are accepted and the next step is computed.

The rounds stop when each entry of a new step is below ``tol`` or within the rounding of masked sums, or when the
information at the end of the step follows from earlier rounds with such an error (``curvature.py``). This last step is
taken; if only the rounding explains it, a warning names its size. They also stop when the likelihood no longer rises
while parameters still move, and nearly no information is left on these: covariates separate the outcomes
(``separation.py``). If a site is lost, the estimator begins the fit again, so that all sums are of the same sites.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, number
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.errors import DataError, DisclosureRefused
from multicentre.likelihood.curvature import extrapolate_information
from multicentre.likelihood.elastic_net import penalised_step
from multicentre.likelihood.separation import FALLEN, FALLEN_PER_PATIENT, Reported
from multicentre.likelihood.steps import COARSEST_TOL, step_rounding

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Relative fall of the objective that is treated as rounding error of the sums and does not halve the step.
NOISE = 1e-9
# Gain of the log-likelihood per patient below which it counts as unchanged, and the smallest entry of a step that
# cannot be rounding. Near a maximum, a step of 0.05 gains more, unless predicted probabilities are below a
# ten-thousandth. A larger step without a gain is a sign of separation.
NO_GAIN, STILL_MOVING = 1e-7, 0.05
# Steps of the parameters that do not diverge, below which the rounds end, and below which these have errors.
OTHERS_SETTLED, NEARLY_SETTLED = 1e-4, 1e-2
# The information is extrapolated only along steps whose entries are below the first, with the second of ``tol`` as the
# largest estimated error. The estimate was at most five times too small in simulations. With masked sums, the third,
# the error that their rounding may have in results, takes the place of ``tol``.
SHORT_STEP, SAFE_SHARE, MASKED_ERROR = 1e-5, 0.2, 1e-6
# Smallest tolerance with masked sums, which are rounded to fixed-point numbers.
MASKED_TOL = 1e-7
# Rounds whose steps and changes of the information are stored: more than a fit to ordinary data needs.
MAX_STORED = 8
# Where sites withdraw their sums, the step is halved down to the first size, at most so often before a full step
# succeeds. Otherwise the likelihood rises towards parameters at which too few patients decide.
SMALLEST_STEP_SIZE, MAX_WITHDRAWN = 2.0**-12, 12


@dataclass(frozen=True)
class Derivatives:
    """Log-likelihood over all sites at some parameters, with its derivatives.

    Parameters
    ----------
    value : float
    gradient : array of shape (w,)
    information : array of shape (w, w)
        Expected or observed second derivatives with the sign reversed.
    n_patients : float
    figures : array of shape (f,)
        Other sums that the model needs at the maximum.
    n_withdrawn : float
        Sites that withdrew their sums; above 0, the others have no meaning.
    """

    value: float
    gradient: Floats
    information: Floats
    n_patients: float
    figures: Floats = field(default_factory=lambda: np.zeros(0))
    n_withdrawn: float = 0.0


@dataclass(frozen=True)
class NewtonState(Message):
    """State of the coordinator between rounds."""

    point: Floats = array("best parameters so far", ("w",))
    step: Floats = array("step from the best parameters", ("w",))
    step_size: float = number("fraction of the step that is taken")
    objective: float = number("penalised log-likelihood at the best parameters", finite=False)
    gradient: Floats = array("first derivatives at the best parameters", ("w",))
    information: Floats = array("information at the best parameters", ("w", "w"))
    figures: Floats = array("other sums at the best parameters", ("f",))
    steps: Floats = array("steps of earlier rounds", ("m", "w"))
    changes: Floats = array("changes of the information along these steps", ("m", "w", "w"))
    n_withdrawn: float = number("rounds since the last full step in which sites withdrew sums", default=0.0)
    unresolved: float = number("size of a last step above the tolerance that rounding explains", default=0.0)

    @classmethod
    def begin(cls, point: Floats, step: Floats) -> NewtonState:
        """Return the state before the first round, in which `step` is taken from `point`."""
        w = len(point)
        nothing, earlier = np.zeros((w, w)), (np.zeros((0, w)), np.zeros((0, w, w)))
        return cls(point, step, 1.0, -np.inf, np.zeros(w), nothing, np.zeros(0), *earlier)

    @property
    def has_begun(self) -> bool:
        """True after the first accepted parameters."""
        return bool(self.information.any())


@dataclass(frozen=True)
class Maximum:
    """Parameters at the end of the rounds, and the sums there.

    Parameters
    ----------
    point : array of shape (w,)
    last : NewtonState
        Sums at the last parameters that were accepted.
    converged : bool
    settled : bool
        True if all parameters that do not diverge have converged.
    diverging : array of bool, shape (w,)
        Reported parameters along which the likelihood may rise without bound.
    history : list of dict
    tol : float
        Tolerance of the rounds.
    """

    point: Floats
    last: NewtonState
    converged: bool
    settled: bool
    diverging: Flags
    history: History
    tol: float


class Problem:
    """Likelihood of one model: its sums over sites, its steps, and how it names parameters. A model is a subclass.

    Attributes
    ----------
    names : sequence of str
        Name of each parameter.
    start : array of shape (w,)
        Parameters of the first round, unless `begin` returns others.
    active : array of bool, shape (w,), or slice
        Parameters that steps change; by default all.
    ridge, lasso : array of shape (w,) or float
        Weights of half the squared parameters, and of their absolute values, in the penalty.
    rounding : float
        Largest error of the log-likelihood through the rounding of masked sums.
    gradient_rounding : array of shape (w,) or float
        Largest errors of the first derivatives through this rounding.
    coarsest_tol : array of shape (w,) or float
        Largest entries of a step that this rounding may explain.
    warns_of : array of bool, shape (w,), or bool
        Parameters whose last step a warning names if only this rounding explains it.
    figures : array of shape (f,)
        Other sums at the best parameters; set before each call of `evaluate`, empty before the first parameters.
    reported : Reported
        How the parameters are reported, and the information without covariates.
    is_penalised : bool
        True if a penalty keeps the maximum finite.
    looks_ahead : bool
        True if the information at the end of a short step may be extrapolated.
    """

    names: Sequence[str] = ()
    start: Floats
    active: Flags | slice = slice(None)
    ridge: Floats | float = 0.0
    lasso: Floats | float = 0.0
    rounding: float = 0.0
    gradient_rounding: Floats | float = 0.0
    coarsest_tol: Floats | float = COARSEST_TOL
    warns_of: Flags | bool = True
    figures: Floats
    reported: Reported
    is_penalised: bool = False
    looks_ahead: bool = False
    best_value: ClassVar[str] = "log_likelihood"
    masked_tol: ClassVar[float] = MASKED_TOL

    def begin(self) -> tuple[Floats, Floats]:
        """Return a point at which no prediction is extreme, and the first step from there; by default none."""
        return self.start, np.zeros_like(self.start)

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites; with `tentative`, a site may withdraw its own."""
        raise NotImplementedError

    def check(self, first: Derivatives) -> None:
        """Raise DataError if the first sums show that parameters cannot be told apart."""

    def objective(self, point: Floats, value: float) -> float:
        """Return the penalised log-likelihood."""
        return value - float(np.sum(0.5 * self.ridge * np.square(point) + self.lasso * np.abs(point)))

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return the step of the active parameters to the maximum of the quadratic approximation with the penalties."""
        step, active = np.zeros_like(point), self.active
        ridge, lasso = (np.broadcast_to(each, len(point))[active] for each in (self.ridge, self.lasso))
        information = at.information[active][:, active]
        step[active] = penalised_step(at.gradient[active], information, point[active], ridge, lasso)
        return step

    def feasible_step_size(self, point: Floats, step: Floats) -> float:
        """Return the largest power of a half that can be taken of a step."""
        return 1.0

    def change(self, point: Floats, step: Floats) -> float:
        """Return the size of a step, which the tolerance is compared with."""
        return float(np.abs(step).max(initial=0.0))

    def rounding_of_step(self, information: Floats) -> Floats:
        """Return the largest error of each entry of a step through the rounding of masked sums, shape (w,)."""
        penalised = information + np.diag(np.broadcast_to(self.ridge, len(information)))
        return step_rounding(penalised, self.gradient_rounding, self.coarsest_tol)

    def metrics(self, at: Derivatives) -> dict[str, float]:
        """Return what the history records of each round."""
        return {self.best_value: at.value}


def maximise(session: Session, problem: Problem, *, max_iter: int, tol: float, name: str = "rounds") -> Maximum:
    """Maximise a penalised likelihood.

    Warns
    -----
    UserWarning
        The rounds ended at a step above the tolerance, because masked sums resolve no smaller one.

    Raises
    ------
    DataError
        Parameters cannot be told apart.
    DisclosureRefused
        Too few patients are behind the sums of a site, from the start or towards the maximum.
    """
    masked = session.protection == "masked"
    tol = max(tol, problem.masked_tol) if masked else tol
    rounds = session.rounds(max_iter, NewtonState, lambda: NewtonState.begin(*problem.begin()), name=name)
    diverging = np.zeros(len(rounds.state.point), dtype=np.bool_)
    for _ in rounds:
        before = rounds.state
        tried, problem.figures = before.point + before.step_size * before.step, before.figures
        at = problem.evaluate(tried, tentative=True)
        if at.n_withdrawn > 0.5:
            rounds.state = _shorten(problem, before)
            rounds.record(change=float("nan"), step_size=before.step_size)
            continue
        if not before.has_begun:
            problem.check(at)
        rounds.state = reached = _line_search(problem, before, tried, at)
        change = problem.change(reached.point, reached.step)
        rounds.record(**problem.metrics(at), change=change, step_size=before.step_size)
        if reached.step is before.step:
            continue  # the step was halved
        gain = (reached.objective - before.objective) / max(at.n_patients, 1.0)
        if change < tol:
            rounds.stop()
        elif _is_rounding(problem, reached, tol):
            rounds.state = replace(reached, unresolved=_unresolved(problem, reached, tol))
            rounds.stop()
        elif ahead := _look_ahead(problem, reached, MASKED_ERROR if masked else tol):
            rounds.state = ahead
            rounds.stop()
        elif gain < NO_GAIN:
            diverging = _without_information(problem, reached)
            if diverging.any() and _largest_of_others(problem, reached, diverging) < OTHERS_SETTLED:
                break
    return _end(problem, rounds, diverging, tol)


def _line_search(problem: Problem, before: NewtonState, tried: Floats, at: Derivatives) -> NewtonState:
    """Accept the step if the objective rose or fell within its rounding error; halve it otherwise."""
    objective = problem.objective(tried, at.value)
    slack = NOISE * (1.0 + abs(objective)) + 2.0 * problem.rounding  # of the two that are compared
    if objective < before.objective - slack:
        return replace(before, step_size=before.step_size / 2.0)
    step = problem.next_step(tried, at)
    steps, changes = before.steps, before.changes
    if problem.looks_ahead and before.has_begun:
        steps = np.concatenate([steps, (tried - before.point)[None]])[-MAX_STORED:]
        changes = np.concatenate([changes, (at.information - before.information)[None]])[-MAX_STORED:]
    step_size, n_withdrawn = (
        problem.feasible_step_size(tried, step),
        before.n_withdrawn if before.step_size < 1.0 else 0.0,
    )
    if n_withdrawn:
        step_size = min(step_size, 2.0 * before.step_size)
    sums = objective, at.gradient, at.information, at.figures
    return NewtonState(tried, step, step_size, *sums, steps, changes, n_withdrawn=n_withdrawn)


def _shorten(problem: Problem, before: NewtonState) -> NewtonState:
    """Return the state with half the step, after sites withdrew their sums at its end."""
    is_shortest = before.step_size <= SMALLEST_STEP_SIZE or not before.step.any()
    if is_shortest or before.n_withdrawn >= MAX_WITHDRAWN:
        _refuse(problem, before)
    n_withdrawn = before.n_withdrawn + float(before.has_begun)
    return replace(before, step_size=before.step_size / 2.0, n_withdrawn=n_withdrawn)


def _refuse(problem: Problem, before: NewtonState) -> NoReturn:
    """Raise the refusal of a site that withdrew its sums, with what the rounds show about the reason."""
    names, hint = ", ".join(np.array(problem.names)[_towards(problem, before)][:6].tolist()), ""
    if before.has_begun:
        hint = (
            " The likelihood rises towards coefficients at which fewer patients decide: covariates separate the "
            f"outcomes, or nearly so ({names}). Leave these columns out, join levels or classes, or use a penalty."
        )
    try:
        problem.evaluate(before.point + before.step_size * before.step, tentative=False)
    except DisclosureRefused as error:
        error.hint += hint
        raise
    raise DataError(f"sums of the rounds must be within their range; they are beyond.{hint}", where="columns")


def _towards(problem: Problem, before: NewtonState) -> Flags:
    """Flag the parameters of a step that sites cannot follow: its largest entries, without intercepts if there are."""
    sizes, is_mixed = np.abs(before.step), problem.reported.is_mixed
    if not is_mixed.all():
        sizes = np.where(is_mixed, 0.0, sizes)
    return np.asarray(sizes >= 0.5 * float(sizes.max(initial=0.0)))


def _is_rounding(problem: Problem, reached: NewtonState, tol: float) -> bool:
    """Return whether rounding of masked sums explains each entry of the step that is not below the tolerance."""
    sizes = np.abs(reached.step)
    if not (sizes < np.maximum(tol, problem.coarsest_tol)).all():
        return False
    return bool((sizes < np.maximum(tol, problem.rounding_of_step(reached.information))).all())


def _unresolved(problem: Problem, reached: NewtonState, tol: float) -> float:
    """Return the largest entry of a last step that a warning names; 0 if it is below the tolerance."""
    largest = float(np.abs(reached.step * problem.warns_of).max(initial=0.0))
    return largest if largest >= tol else 0.0


def _look_ahead(problem: Problem, reached: NewtonState, tol: float) -> NewtonState | None:
    """Return the state with the information at the end of the next step, or None where it does not follow."""
    if not problem.looks_ahead or reached.step_size < 1.0 or float(np.abs(reached.step).max()) > SHORT_STEP:
        return None
    ahead = extrapolate_information(reached.information, reached.step, reached.steps, reached.changes)
    return replace(reached, information=ahead.information) if ahead.error < SAFE_SHARE * tol else None


def _without_information(problem: Problem, reached: NewtonState) -> Flags:
    """Flag the reported parameters on which nearly no information is left, or that still move while it falls."""
    reported, information = problem.reported, reached.information
    diverging = (reported.step(reached.step) > STILL_MOVING) & reported.has_fallen(information, FALLEN)
    if not problem.is_penalised:
        diverging |= reported.has_fallen(information, FALLEN_PER_PATIENT * reported.n_patients)
    return np.asarray(diverging)


def _largest_of_others(problem: Problem, reached: NewtonState, diverging: Flags) -> float:
    """Return the largest entry of a step among the parameters that do not diverge."""
    return float(problem.reported.step(reached.step)[~diverging].max(initial=0.0))


def _end(problem: Problem, rounds: Rounds[NewtonState], diverging: Flags, tol: float) -> Maximum:
    """Return the parameters at the end of the rounds."""
    last, settled = rounds.state, rounds.stopped
    if last.n_withdrawn and not (settled or diverging.any()):
        _refuse(problem, replace(last, step_size=1.0))  # a shorter step may still have enough patients behind it
    if last.has_begun and not problem.is_penalised:
        diverging = diverging | _without_information(problem, last)
    if diverging.any():
        settled |= _largest_of_others(problem, last, diverging) < NEARLY_SETTLED
    converged = rounds.stopped and not diverging.any()
    if converged and last.unresolved:
        warnings.warn(
            f"the rounds ended at a change of {last.unresolved:.1e} per standard deviation, which is within the "
            "rounding error of masked sums over this many sites; the coefficients are accurate to about this change.",
            UserWarning,
            stacklevel=3,
        )
    point = last.point + (last.step if converged else 0.0)
    return Maximum(point, last, converged, settled, diverging, rounds.history, tol)
