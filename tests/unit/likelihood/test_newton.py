"""The rounds of every likelihood: halving, rounding, withdrawn sums, and the end of a fit."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.rounds import Listener, Rounds
from multicentre.errors import DataError, DisclosureRefused
from multicentre.likelihood import newton
from multicentre.likelihood.newton import Derivatives, NewtonState, Problem, maximise
from multicentre.likelihood.separation import Reported

BEST = replace(
    NewtonState.begin(np.zeros(2), np.array([4.0, 2.0])),
    objective=-10.0,
    information=np.eye(2),
    figures=np.array([1.0]),
)
TRIED = np.array([4.0, 2.0])


class Session:
    """Runs rounds without sites."""

    protection = "unmasked"

    def rounds(self, max_iter, kind, start, *, name):
        return Rounds(
            max_iter,
            start,
            kind,
            name=name,
            parameters="",
            store=None,
            keep_sites=lambda *_: (),
            restore_sites=lambda *_: None,
            reset_sites=lambda _: None,
            listener=Listener(),
        )


class Exponential(Problem):
    """Log-likelihood -sum(exp(b) - a b), whose maximum is at log(a); sums are withdrawn where a predictor is large."""

    def __init__(self, targets, *, start=0.0, largest=np.inf, rounding=0.0):
        self.targets, self.first, self.largest, self.rounding = np.array(targets, dtype=float), start, largest, rounding
        self.names = [f"b{place}" for place in range(len(self.targets))]
        self.reported = Reported(np.eye(len(self.targets)), np.eye(len(self.targets)), 1.0)
        self.calls = []

    def begin(self):
        return np.zeros_like(self.targets), np.full_like(self.targets, self.first)

    def evaluate(self, point, *, tentative):
        self.calls.append(point)
        beyond = bool(np.abs(point).max() > self.largest)
        if beyond and not tentative:
            raise DisclosureRefused("the answer must have at least 10 patients behind it; got fewer", where="s1")
        value = float((self.targets * point - np.exp(point)).sum())
        gradient, information = self.targets - np.exp(point), np.diag(np.exp(point))
        return Derivatives(value, gradient, information, 100.0, n_withdrawn=float(beyond))


def climb(value, *, ridge=0.0, rounding=0.0):
    problem = Exponential([1.0, 1.0])
    problem.ridge, problem.rounding = ridge, rounding
    at = Derivatives(value, np.array([1.0, 0.0]), 2.0 * np.eye(2), 100.0)
    return newton._line_search(problem, BEST, TRIED, at)


def fit(problem, *, max_iter=50, tol=1e-8):
    return maximise(Session(), problem, max_iter=max_iter, tol=tol)


def test_a_step_that_leads_down_is_halved_from_where_it_began():
    after = climb(-11.0)
    assert (after.step_size, after.objective) == (0.5, BEST.objective)
    assert (after.point == BEST.point).all()
    assert after.step is BEST.step


def test_a_step_that_leads_up_is_taken():
    after = climb(-9.0)
    assert (after.step_size, after.objective) == (1.0, -9.0)
    assert (after.point == TRIED).all()
    np.testing.assert_allclose(after.step, [0.5, 0.0])


def test_the_penalty_counts_in_the_comparison():
    assert climb(-9.0, ridge=2.0).step_size == 0.5


@pytest.mark.parametrize(("fall", "share"), [(1e-9, 1.0), (0.19, 0.5), (0.21, 0.5)])
def test_a_fall_by_more_than_noise_halves_the_step(fall, share):
    assert climb(-10.0 - fall).step_size == share


@pytest.mark.parametrize(("fall", "share"), [(0.19, 1.0), (0.21, 0.5)])
def test_a_fall_is_rounding_if_it_is_at_most_that_of_two_sums(fall, share):
    assert climb(-10.0 - fall, rounding=0.1).step_size == share


def test_the_maximum_is_reached_from_a_start_that_sites_withdraw():
    problem = Exponential([2.0, 30.0], start=40.0, largest=4.0)
    reached = fit(problem)
    assert reached.converged
    np.testing.assert_allclose(reached.point, np.log(problem.targets), rtol=1e-9)
    assert max(np.abs(point).max() for point in problem.calls) > 4.0


def test_a_maximum_beyond_what_sites_answer_is_refused_with_its_parameters():
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*separate the outcomes, or nearly so \(b1\)"):
        fit(Exponential([2.0, 300.0], largest=4.0))


def test_sums_withdrawn_from_the_start_are_refused_as_by_the_site():
    with pytest.raises(DisclosureRefused, match="got fewer") as caught:
        fit(Exponential([2.0], start=1.0, largest=0.0))
    assert "separate" not in str(caught.value)


def test_values_beyond_their_range_are_an_error_of_the_data():
    problem = Exponential([2.0], start=1.0)
    problem.evaluate = lambda point, *, tentative: Derivatives(0.0, point, np.eye(1), 1.0, n_withdrawn=float(tentative))
    with pytest.raises(DataError, match="within their range"):
        fit(problem)


def test_rounds_that_end_early_have_not_converged():
    reached = fit(Exponential([20.0]), max_iter=2)
    assert not reached.converged
    assert not reached.settled
    assert (reached.point == reached.last.point).all()


def test_the_rounds_end_where_a_parameter_moves_without_information():
    problem = Exponential([3.0, 1e-12])
    reached = fit(problem)
    assert reached.diverging.tolist() == [False, True]
    assert (reached.converged, reached.settled) == (False, True)
    assert reached.point[0] == pytest.approx(np.log(3.0), rel=1e-6)


def test_a_penalised_parameter_with_little_information_does_not_diverge():
    problem = Exponential([3.0, 1e-12])
    problem.ridge, problem.is_penalised = 1e-2, True
    reached = fit(problem)
    assert reached.converged
    assert not reached.diverging.any()


def test_rounds_end_at_a_step_that_rounding_explains():
    """Sums with a coarse grid leave a step above the tolerance however many rounds there are."""
    problem = Exponential([20.0])
    exact, problem.gradient_rounding = problem.evaluate, 5e-5
    problem.evaluate = lambda point, *, tentative: coarse(exact(point, tentative=tentative), 2e-5)
    with pytest.warns(UserWarning, match=r"change of 1\.9e-06 .* rounding error of masked sums"):
        reached = fit(problem, tol=1e-12)
    assert reached.converged
    assert reached.tol < abs(reached.last.step[0]) < 2.5e-6  # the error of the gradient over the information of 20
    assert reached.point[0] == pytest.approx(np.log(20.0), abs=2.5e-6)


def coarse(at, error):
    return replace(at, gradient=at.gradient + error * np.sign(at.gradient))


def test_rounding_explains_no_step_of_a_separated_parameter():
    problem = Exponential([3.0, 1e-12])
    problem.gradient_rounding = 1.0
    assert fit(problem).diverging.tolist() == [False, True]


def test_the_sums_at_the_best_parameters_are_known_where_others_are_tried():
    problem, tried = Exponential([5.0]), []
    evaluate = problem.evaluate

    def with_figures(point, *, tentative):
        tried.append((problem.figures.tolist(), point[0]))
        return replace(evaluate(point, tentative=tentative), figures=point)

    problem.evaluate = with_figures
    fit(problem)
    assert tried[0][0] == []
    accepted = [point for _, point in tried if np.exp(point) < 1e3]
    assert all(not figures or figures[0] in accepted for figures, _ in tried)
    assert tried[-1][0] != []


def test_sums_that_are_withdrawn_at_the_start_itself_are_refused_at_once():
    problem = Exponential([2.0], largest=-1.0)
    with pytest.raises(DisclosureRefused, match="got fewer"):
        fit(problem)
    assert len(problem.calls) == 2
