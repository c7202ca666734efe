"""A site of boosting: the requests that it takes, and the patients behind its answers."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, MulticentreError
from multicentre.survival.agreement.messages import OfCause
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.fitted_models import Mixture, Trees
from multicentre.survival.fitted_models.base import join
from multicentre.survival.surv_boost import messages
from multicentre.survival.surv_boost.hypotheses import pack_learners
from multicentre.survival.surv_boost.site import BoostSite
from support.boosting_sites import federate, simulate, split

NONE_NEW = messages.Hypotheses(0.0, float("inf"), *pack_learners([]), np.zeros((0, 0)))
TREE = messages.FitTree(0.0, float("inf"), 0, 1, True, False, 0.1, False, 0, 3, 1, "all")


def prepared(data, *, least=10, n_bins=16):
    """Return a site part that has agreed and begun."""
    with federate({"lyon": data}) as federation:
        agreed, *_ = agree(federation.begin(BoostSite), BoostSite, Needs(20, n_bins=n_bins), "mean")
    part = BoostSite("lyon", data)
    part.least_behind = least
    part.agree(agreed)
    part.begin(messages.Begin(0, 3, 0, "rmst", np.ones(len(agreed.times))))
    return part


def told(learners, shares=None, pack=pack_learners):
    """Return the ask that sends hypotheses to be judged: each learner alone, unless shares say otherwise."""
    packed, lengths = pack(learners)
    return replace(NONE_NEW, packed=packed, lengths=lengths, shares=np.eye(len(learners)) if shares is None else shares)


def leaf_sizes(tree, part, drawn=None):
    leaves = tree.leaves(part.patients.rows)[:, 0]
    return np.bincount(leaves, weights=drawn, minlength=len(tree.curves))


def test_no_leaf_rests_on_fewer_than_fifteen_or_the_policys_minimum():
    data = simulate(300)
    for least, wanted in ((10, 15), (40, 40)):
        tree = prepared(data, least=least).fit_tree(replace(TREE, resample=False))
        assert tree.patients >= wanted
        assert leaf_sizes(tree, prepared(data)).min() >= wanted
    assert prepared(data, least=0).fit_tree(replace(TREE, resample=False)).patients < 15


def test_a_bootstraps_leaf_counts_the_patients_that_it_drew_once_each():
    part = prepared(simulate(300))
    tree = part.fit_tree(TREE)
    assert 15 <= tree.patients <= leaf_sizes(tree, part).min()


def test_thresholds_lie_on_shared_edges_and_curves_on_the_grid():
    part = prepared(simulate(300))
    tree = part.fit_tree(TREE)
    for column, threshold in zip(tree.column, tree.threshold, strict=True):
        assert column < 0 or threshold in part.agreed.edges_of(column)
    assert np.array_equal(tree.times, part.agreed.times)
    assert not np.isin(part.data.time, tree.times).all()


def test_too_few_patients_give_no_model():
    assert prepared(simulate(14)).fit_tree(TREE).is_empty
    part = prepared(simulate(60))
    part._keep(log_weights=np.where(np.arange(60) < 10, 0.0, -np.inf))
    assert part.fit_tree(TREE).is_empty


def test_weights_that_rest_on_a_few_say_so_unmasked_and_not_under_a_mask():
    part = prepared(simulate(100))
    tree = part.fit_tree(TREE)
    part.judge(told([tree]))
    part._keep(log_weights=np.where(np.arange(100) < 4, 0.0, -30.0))
    assert part.judge(NONE_NEW).patients == 4
    part.masked = True
    assert part.judge(NONE_NEW).patients == 100


def test_the_largest_loss_is_one_patients():
    part = prepared(simulate(100))
    part.judge(told([part.fit_tree(TREE)]))
    request = messages.Search(np.zeros(1), 1 / 64)
    for part.masked in (False, True):
        found = part.mark_largest(request)
        assert np.flatnonzero(found.marks[0]).tolist() == [int(part.losses.max() * 64)]
        assert found.patients == (100 if part.masked else 1)


def test_held_out_patients_neither_train_nor_count():
    part = prepared(simulate(90))
    part.begin(messages.Begin(0, 3, 2, "rmst", np.ones(len(part.agreed.times)), of_pass=2))
    held = part.memory.folds == 2
    assert held.sum() == 30
    part.judge(replace(told([part.fit_tree(replace(TREE, of_pass=2))]), of_pass=2))
    others = ~held
    wanted = part.losses[others, 0].mean() * (60 / 90)
    assert part.judge(replace(NONE_NEW, of_pass=2)).losses[0] == pytest.approx(wanted)
    weighed = part.reweigh(messages.Chosen(0.0, float("inf"), 0, 2.0, 0.5, 1.0, of_pass=2))
    assert weighed.n_held == 30
    assert np.isinf(part.current.log_weights[held]).all()
    assert (part.memory.risks[others] == 0).all()
    assert (part.memory.risks[held] < 0).all()


def test_passes_side_by_side_are_those_of_one_after_the_other():
    """Rounds of two passes in turn, at one site part, and of each pass at a part of its own."""

    def rounds(part, number):
        tree = part.fit_tree(replace(TREE, of_pass=number))
        errors = part.judge(replace(told([tree]), of_pass=number))
        weighed = part.reweigh(messages.Chosen(0.0, float("inf"), 0, 1.0, 0.5, 1.0, of_pass=number))
        return [*tree.threshold.tolist(), *errors.losses.tolist(), weighed.total, weighed.brier]

    data, results = simulate(150), {}
    together, alone = prepared(data), {number: prepared(data) for number in (0, 1, 2)}
    for part, numbers in [(together, (0, 1, 2)), *((part, (number,)) for number, part in alone.items())]:
        for number in numbers:
            part.begin(messages.Begin(0, 3, number, "rmst", np.ones(len(part.agreed.times)), of_pass=number))
        results[part] = {number: [] for number in numbers}
        for _ in range(3):
            for number in numbers:
                results[part][number] += rounds(part, number)
    for number, part in alone.items():
        assert results[together][number] == results[part][number]
    assert np.array_equal(together.memory.risks, alone[1].memory.risks + alone[2].memory.risks)


@pytest.mark.parametrize("n_each", [9, 10])
def test_sums_by_time_are_exact_and_rest_on_the_smallest_cell(n_each):
    """At each time so many patients have the event and so many leave, and so many are in every fold."""
    data = simulate(6 * n_each, censored=False)
    times, event = np.repeat([1.0, 2.0, 3.0], 2 * n_each), np.arange(6 * n_each) % 2
    part = BoostSite("lyon", SurvivalData(data.X, times, event, unit="days"))
    with federate({"lyon": part.data}) as federation:
        needs = Needs(times=np.array([1.0, 2.0, 3.0]), n_bins=4)
        part.agree(agree(federation.begin(BoostSite), BoostSite, needs, "mean")[0])
    part.begin(messages.Begin(0, 3, 0, "rmst", np.ones(3)))
    request = messages.Coefficients(np.zeros(3), False, 0, 0.0, 1.0)
    for part.masked in (False, True):
        sums = part.sum_hazards(request)
        assert sums.events.tolist() == [n_each] * 3
        assert sums.risk.tolist() == [6 * n_each, 4 * n_each, 2 * n_each]
        censored = part.count_censored(OfCause(1))
        assert censored.censored.tolist() == [n_each] * 3 + [0]
        assert {sums.patients, censored.patients} <= ({6 * n_each} if part.masked else {n_each, 2 * n_each})


def forged(part):
    """Return requests that no honest coordinator sends, by step."""
    tree = part.fit_tree(TREE)
    other = replace(tree, times=tree.times + 1.0)
    mixture = Mixture.of([tree, tree], np.ones(2), 3)
    n_times = len(part.agreed.times)
    begin = messages.Begin(0, 3, 0, "rmst", np.ones(n_times))
    chosen = messages.Chosen(0.0, float("inf"), 0, 1.0, 1.0, 1.0)
    curvature = messages.Curvature(np.zeros(3), False, 0, 0.0, 1.0, np.zeros(n_times))
    return [
        ("begin", replace(begin, n_splits=5)),
        ("begin", replace(begin, n_splits=3, held=4)),
        ("begin", replace(begin, loss="accuracy")),
        ("begin", replace(begin, staying=np.full(n_times, 2.0))),
        ("begin", replace(begin, of_pass=11)),
        ("begin", replace(begin, staying=np.ones(n_times + 1))),
        ("judge", replace(told([tree]), packed=told([tree]).packed[:-1])),
        ("judge", told([tree], np.ones((1, 2)))),
        ("judge", told([tree], np.full((1, 1), 2.0))),
        ("judge", told([other], pack=join)),
        ("judge", told([mixture], pack=join)),
        ("reweigh", replace(chosen, index=1)),
        ("reweigh", replace(chosen, factor=-1.0)),
        ("reweigh", replace(chosen, factor=1e6)),
        ("reweigh", replace(chosen, scale=0.0)),
        ("mark_largest", messages.Search(np.zeros(1), 0.0)),
        ("fit_tree", replace(TREE, max_features="many")),
        ("fit_tree", replace(TREE, alone=True, rate=2.0)),
        ("sum_hazards", messages.Coefficients(np.zeros(2), False, 0, 0.0, 1.0)),
        ("sum_hazards", messages.Coefficients(np.full(3, 1e9), False, 0, 0.0, 1.0)),
        ("sum_hazards", messages.Coefficients(np.zeros(1), True, 4, 0.0, 1.0)),
        ("sum_hazards", messages.Coefficients(np.zeros(1), True, 0, 0.0, 0.0)),
        ("sum_moments", replace(curvature, hazard=-np.ones(n_times))),
        ("sum_moments", replace(curvature, hazard=np.ones(1))),
        ("judge_calibrated", messages.Calibration(1.0, 0.0, 1.0, -np.ones(n_times))),
    ]


@pytest.mark.parametrize("number", range(25))
def test_what_no_honest_coordinator_sends_is_refused(number):
    part = prepared(simulate(100))
    requests = forged(part)
    assert len(requests) == 25
    part.judge(told([part.fit_tree(TREE)]))
    before = part.state
    step, request = requests[number]
    with pytest.raises(MulticentreError):
        getattr(part, step)(request)
    assert part.state is before


def test_a_site_that_received_nothing_cannot_judge():
    with pytest.raises(ConfigurationError, match="no hypotheses"):
        prepared(simulate(60)).judge(NONE_NEW)


def test_a_grid_that_is_too_fine_is_refused():
    data = simulate(600)
    with federate({"lyon": data}) as federation, pytest.raises(ConfigurationError, match="too fine"):
        agree(federation.begin(BoostSite), BoostSite, Needs(times=np.arange(1.0, 300.0)), "mean")


def test_what_is_not_finite_stays_at_the_site(monkeypatch):
    part = prepared(simulate(100))
    good = part.fit_tree(TREE)
    bad = replace(good, curves=np.full_like(good.curves, np.nan))
    monkeypatch.setattr("multicentre.survival.surv_boost.site.fit_trees", lambda *_: bad)
    assert part.fit_tree(TREE).is_empty


def test_learners_packed_as_one_forest_are_judged_one_by_one():
    part = prepared(simulate(200))
    trees = [part.fit_tree(replace(TREE, round=number)) for number in (1, 2, 3)]
    shares = np.vstack([np.eye(3), np.full(3, 1 / 3)])
    part.judge(told(trees, shares))
    together = part.losses
    assert together.shape == (200, 4)
    for place, tree in enumerate(trees):
        part.judge(told([tree], pack=join))
        np.testing.assert_allclose(part.losses[:, 0], together[:, place], rtol=0, atol=1e-12)


def test_the_state_of_a_site_comes_back_to_the_same_answers():
    data = simulate(150)
    part, again = prepared(data), BoostSite("lyon", data)
    part.begin(messages.Begin(0, 3, 1, "brier", np.linspace(1, 0.2, len(part.agreed.times))))
    part.judge(told([part.fit_tree(TREE)]))
    part.reweigh(messages.Chosen(0.0, float("inf"), 0, 1.0, 1.0, 1.0))
    again.state, again.least_behind = part.state, 10
    for step, request in (("judge", NONE_NEW), ("reweigh", messages.Chosen(0.0, 0.0, 0, 1.0, 1.0, 1.0))):
        one, two = getattr(part, step)(request), getattr(again, step)(request)
        for name in type(one).declarations():
            assert np.array_equal(getattr(one, name), getattr(two, name))
    assert isinstance(again.fit_tree(TREE), Trees)


def test_two_sites_of_one_policy_split_alike_each_time():
    sites = split(simulate(120), 2)
    folds = [prepared(sites["site-0"]).memory.folds for _ in range(2)]
    assert np.array_equal(*folds)
    assert not np.array_equal(folds[0], prepared(sites["site-1"]).memory.folds)
