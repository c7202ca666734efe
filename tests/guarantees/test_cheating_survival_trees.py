"""A coordinator that forges grids, thresholds and trees singles nobody out, nor asks for more than a site can hold."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.messages import Nothing
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.sketch import time_edges
from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeierSite
from multicentre.survival.curves.tables.site import ByGroup
from multicentre.survival.hazard_boost import messages
from multicentre.survival.hazard_boost.site import HazardSite
from multicentre.survival.rsf import messages as growing
from multicentre.survival.rsf.messages import check_sampling
from multicentre.survival.surv_boost import messages as boosting
from multicentre.survival.surv_boost.site import BoostSite
from multicentre_papers.baselines.adaboost_f.messages import FitTree as ClassTree
from multicentre_papers.baselines.adaboost_f.messages import Prepared as ClassAgreed
from multicentre_papers.baselines.adaboost_f.site import ClassSite
from multicentre_papers.baselines.surf.site import ForestSite, Order

LEAST = 10
GRID = np.arange(1.0, 65.0) * 32


def draw(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X, time = rng.normal(size=(n, 2)), np.ceil(rng.exponential(700, n))
    return SurvivalData(X, time, rng.random(n) < 0.6, columns=["x0", "x1"], unit="days")


DATA = draw()


def part_of(kind, data=DATA, times=GRID, edges=((), ())):
    """Return a site part that has agreed to what a coordinator made up."""
    part = kind("lyon", data)
    part.least_behind = LEAST
    first = np.cumsum([0, *map(len, edges)]).astype(np.int64)
    n, zeros = float(len(data)), np.zeros(2)
    thresholds = np.concatenate([np.asarray(each, dtype=float) for each in edges])
    part.agree(Prepared(data.columns, data.unit, 1, n, n, np.asarray(times), zeros, zeros + 1, thresholds, first))
    return part


def i4(*values):
    return np.array(values, dtype=np.int32)


NO_TREE = messages.Trees.none()
LEAF = messages.Trees.leaves(1)


def stump(column, cut, left, right):
    return messages.Trees(i4(0), i4(column, -1, -1), i4(cut, 0, 0), np.array([0.0, left, right]))


def ask(number, last=NO_TREE, tree=LEAF, wanted=(0,)):
    """Return a request with the growing tree number `number`, of which the site may lack the last finished one."""
    return messages.Level.of(number - len(last.roots), last, tree, i4(*wanted))


EARLY = np.array([1.0, 200.0, 600.0])


def begun(edges, *, n_folds=0):
    """Return a part with three intervals, of which all reach the first and many the last."""
    part = part_of(HazardSite, times=EARLY, edges=edges)
    part.begin(messages.InitialState(np.full(len(EARLY), -3.0), 0, 1.0, n_folds, min(n_folds, 1)))
    return part


HIGHEST = np.sort(DATA.X[:, 0])[::-1]


def test_a_grid_that_would_show_days_is_refused_by_boosted_hazards():
    with pytest.raises(ConfigurationError, match="too fine"):
        part_of(HazardSite, times=np.arange(1.0, 3001.0))


@pytest.mark.parametrize("n_few", [1, 9, 10])
def test_a_bin_of_a_few_patients_stands_behind_every_sum(n_few):
    part = begun(([HIGHEST[n_few - 1 : n_few + 1].mean()], []))
    assert part.sum_slopes(ask(0)).patients == n_few
    part.masked = True
    assert part.sum_slopes(ask(0)).patients == len(DATA)


def test_the_few_of_a_bin_who_are_held_out_stand_behind_the_sums_of_the_others():
    """Their sums are the difference between the sums of a pass without them and of the pass with everybody."""
    part = begun(([HIGHEST[29:31].mean()], []), n_folds=3)
    part.sum_slopes(ask(0))
    counted, held_out = part._last >= 0, part._rows._held_out
    few = (counted & held_out & (DATA.X[:, 0] > HIGHEST[30])).sum()
    assert 0 < few < LEAST
    assert part.sum_slopes(ask(0)).patients == few


HIGH = np.sort(DATA.X[:, 1])[::-1]
TWO = ([HIGHEST[29:31].mean()], [HIGH[29:31].mean()])
BOTH = (DATA.X[:, 0] > TWO[0][0]) & (DATA.X[:, 1] > TWO[1][0])


def test_the_few_in_two_large_groups_at_once_stand_behind_a_finished_tree():
    assert 0 < BOTH.sum() < LEAST
    part = begun(TWO)
    assert part.sum_slopes(ask(0)).patients == 30
    tree = messages.Trees(i4(0), i4(0, -1, 1, -1, -1), i4(0, 0, 0, 0, 0), np.zeros(5))
    assert part.sum_slopes(ask(1, tree)).patients == BOTH.sum()
    assert part.sum_slopes(ask(2, stump(0, 0, 0.0, 1.0))).patients == BOTH.sum()


@pytest.mark.parametrize("wanted", [(1,), (2,), (1, 2)])
def test_a_leaf_that_is_not_asked_for_stands_behind_those_that_are(wanted):
    """The sums of the other leaf are those of both, which were told before, less these."""
    part = begun(TWO)
    assert part.sum_slopes(ask(0)).patients == 30
    assert part.sum_slopes(ask(0, tree=stump(0, 0, 0.0, 0.0), wanted=wanted)).patients == BOTH.sum()


@pytest.mark.parametrize("masked", [False, True])
def test_of_one_round_of_boosted_hazards_the_sums_of_one_tree_are_told(masked):
    part = begun(TWO)
    part.masked = masked
    part.sum_slopes(ask(0, tree=stump(0, 0, 0.0, 0.0), wanted=(1,)))
    for other in (LEAF, stump(1, 0, 0.0, 0.0)):
        with pytest.raises(ConfigurationError, match="got changed splits"):
            part.sum_slopes(ask(0, tree=other, wanted=(len(other.column) - 1,)))
    with pytest.raises(ConfigurationError, match="got different trees"):
        part.sum_slopes(ask(1, stump(1, 0, 0.0, 1.0)))
    part.sum_slopes(ask(1, stump(0, 0, 0.0, 1.0)))


def full_tree(rng, n_cuts, depth=4):
    """Return a full tree of random columns and cuts."""
    n_inner = 2**depth - 1
    ends = np.full(n_inner + 1, -1)
    nodes = [i4(*part, *ends) for part in (rng.integers(2, size=n_inner), rng.integers(n_cuts, size=n_inner))]
    return messages.Trees(i4(0), nodes[0], np.maximum(nodes[1], 0), np.zeros(2 * n_inner + 1))


def leaf_sizes(tree, edges, rows):
    """Return how many patients end in each leaf, one patient after the other."""
    ends = []
    for row in rows:
        node = 0
        while tree.column[node] >= 0:
            column = tree.column[node]
            below = np.searchsorted(edges[column], row[column]) <= tree.cut[node]
            node = tree.left[node] + (not below)
        ends.append(node)
    return np.unique(ends, return_counts=True)[1]


@pytest.mark.parametrize("n_folds", [0, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_leaf_counts_at_any_depth_of_a_tree(seed, n_folds):
    rng, edges = np.random.default_rng(seed), [[-0.5, 0.0, 0.5]] * 2
    part, tree = begun(edges, n_folds=n_folds), full_tree(rng, 3)
    part.sum_slopes(ask(0))
    part.sum_slopes(ask(1, tree))
    counted = part._last >= 0
    groups = [counted & part._rows._held_out, counted & ~part._rows._held_out]
    sizes = np.concatenate([leaf_sizes(tree, edges, DATA.X[group]) for group in groups])
    assert part._rows.fewest_in_leaf(part.memory) == sizes.min()


def test_the_fewest_who_reach_an_interval_count():
    times = np.array([60.0, np.sort(DATA.time)[-8]])
    part = part_of(HazardSite, times=times)
    part.begin(messages.InitialState(np.full(2, -3.0), 0, 1.0, 0, 0))
    assert part.count_intervals(Nothing()).patients <= 10
    few = part_of(HazardSite, times=np.array([60.0, 4e3, 5e3]))
    few.begin(messages.InitialState(np.full(3, -3.0), 0, 1.0, 0, 0))
    assert few.sum_slopes(ask(0)).patients < LEAST


def chain(depth):
    """Return a tree of so many splits, each below the last."""
    n = 2 * depth + 1
    column = np.full(n, -1)
    column[[0, *range(1, n - 2, 2)]] = 0
    return messages.Trees(i4(0), i4(*column), i4(*np.zeros(n, dtype=int)), np.zeros(n))


def test_a_tree_too_deep_and_too_many_cells_are_refused(monkeypatch):
    part = begun(([0.0], []))
    assert part.sum_slopes(ask(0, tree=chain(12), wanted=(24,))).slopes.shape[0] == 1
    with pytest.raises(MessageError, match="a depth of at most 12"):
        part.sum_slopes(ask(0, tree=chain(13), wanted=(26,)))
    part = begun(([0.0], []))
    monkeypatch.setattr("multicentre.survival.hazard_boost.site.MAX_CELLS", 2 * (2 + 1 + len(EARLY)))
    part.masked = True
    part.sum_slopes(ask(0, tree=chain(2), wanted=(3, 4)))
    with pytest.raises(MessageError, match="must have at most"):
        part.sum_slopes(ask(0, tree=chain(2), wanted=(2, 3, 4)))
    part.masked = False
    with pytest.raises(MessageError, match="must have at most"):
        part.sum_slopes(ask(0, tree=chain(2), wanted=(3, 4)))


def test_samples_of_too_many_trees_on_too_fine_a_grid_are_refused():
    check_sampling(growing.Sampling(0, 10_000, 256), 256)
    with pytest.raises(MessageError, match="too long"):
        check_sampling(growing.Sampling(0, 10_000, 100_000), 100_000)


# A site's own models: however the grid is chosen, a curve bends only where a minimum of patients have an event. Between
# two such times it is straight, and so depends on its values at these times only.

NARROW = [np.arange(start + 1.0, start + 257.0) for start in range(0, 2048, 256)]
SMALL = draw(60, seed=3)


def most_bends(data, times):
    """Return at how many times curves may bend: each stands for a minimum of events inside the grid."""
    inside = (data.event == 1) & (data.time <= times[-1])
    return int(inside.sum()) // LEAST


def bends(curves, start):
    """Return the places at which some curve ends a straight piece that is not level."""
    slopes = np.diff(curves, axis=1, prepend=start)
    ends = np.abs(np.diff(slopes, axis=1, append=0.0)) > 1e-12
    return np.flatnonzero((ends & (slopes != 0)).any(axis=0))


@pytest.mark.parametrize("sampling", ["uniform", "ibs"])
def test_trees_reveal_no_days_for_any_grid(sampling):
    found = 0
    for times in NARROW:
        part = part_of(ForestSite, SMALL, times, ([0.0], [0.0]))
        shown = set()
        for _ in range(2):
            trees = part.grow_trees(Order(10, 2, 15, 0, 2, sampling, True, 0, 10))
            shown |= set() if trees.is_empty else set(bends(trees.curves, 1.0).tolist())
        assert len(shown) <= most_bends(SMALL, times)
        found += len(shown)
    assert found > 0


def boosted(times, n_bins=1):
    part = part_of(BoostSite, SMALL, times, ([0.0],) * 2 if n_bins > 1 else ([], []))
    part.begin(boosting.Begin(0, 0, 0, "rmst", np.ones(len(times))))
    return part


FIT = (0.0, float("inf"), 0, 1, False, False, 0.1, False)


def test_hypotheses_show_no_days_however_narrow_the_grid():
    found = 0
    for times in NARROW:
        part = boosted(times, n_bins=2)
        cox = part.fit_cox(boosting.FitCox(*FIT, 1.0, "breslow", 1))
        tree = part.fit_tree(boosting.FitTree(*FIT, 2, 15, 1, "all"))
        for model, curves, start in ((cox, cox.baseline[None], 0.0), (tree, tree.curves, 1.0)):
            shown = [] if model.is_empty else bends(curves, start)
            assert len(shown) <= most_bends(SMALL, times)
            found += len(shown)
    assert found > 0


@pytest.mark.slow
def test_networks_reveal_no_days_for_any_grid():
    pytest.importorskip("torch")
    training = np.array([0.0, 0.01, 0.0, 64, 2, 1, 0.0])
    ask_network = boosting.FitNetwork(*FIT, np.array([2]), "none", training)
    found = 0
    for times in NARROW:
        network = boosted(times).fit_network(ask_network)
        shown = [] if network.is_empty else bends(network.baseline[None], 0.0)
        assert len(shown) <= most_bends(SMALL, times)
        found += len(shown)
    assert found > 0


@pytest.mark.parametrize(
    "wrong", [{"max_depth": 65}, {"min_samples_leaf": 2**40}, {"min_events_leaf": 2**70}, {"max_features": "9" * 30}]
)
def test_settings_of_a_tree_that_no_site_can_hold_are_refused(wrong):
    part = boosted(GRID)
    with pytest.raises(ConfigurationError):
        part.fit_tree(replace(boosting.FitTree(*FIT, 2, 15, 1, "all"), **wrong))


def test_a_training_without_end_is_refused():
    training = np.array([0.0, 0.01, 0.0, 64, 1e18, 1, 0.0])
    with pytest.raises(ConfigurationError, match="must be at most"):
        boosted(GRID).fit_network(boosting.FitNetwork(*FIT, np.array([2]), "none", training))


@pytest.mark.parametrize("wrong", [{"min_samples_leaf": 2**40}, {"min_events_leaf": 2**70}, {"max_features": 2**40}])
def test_settings_of_a_forest_that_no_site_can_hold_are_refused(wrong):
    part = part_of(ForestSite)
    with pytest.raises(ConfigurationError):
        part.grow_trees(replace(Order(5, 4, 15, 3, 2, "uniform", False, 0, 5), **wrong))


ORDER = Order(10, 2, 15, 30, 2, "uniform", True, 0, 10)


def test_no_choice_of_times_or_events_locates_an_event_by_the_trees_on_offer():
    """A site that offered trees from 30 events on would answer whether its 30th event is before a time."""
    moments = np.sort(DATA.time[DATA.event == 1])
    offers = {
        part_of(ForestSite, times=np.array([moment])).offer_trees(replace(ORDER, min_events_leaf=n_events)).n_estimators
        for moment in (1e-3, moments[29] - 1e-9, moments[29], moments[-1])
        for n_events in (0, 29, 30, 31, 1000)
    }
    assert offers == {ORDER.n_estimators}


@pytest.mark.parametrize("n_events", [0, 9, 10, 11])
def test_the_threshold_of_an_offer_is_the_policys(n_events):
    event = np.arange(len(DATA)) < n_events
    part = part_of(ForestSite, SurvivalData(DATA.X, DATA.time, event, columns=DATA.columns, unit=DATA.unit))
    assert part.offer_trees(replace(ORDER, min_events_leaf=1)).n_estimators == (
        ORDER.n_estimators if n_events >= LEAST else 0
    )


def around_an_event():
    """Return patients, and two times of one public bin, before and after the time of the 100th patient."""
    edges = time_edges()
    time = DATA.time + 0.25
    moment = np.sort(time)[99]
    last = edges[np.searchsorted(edges, moment)]
    first = np.nextafter(edges[np.searchsorted(edges, moment) - 1], np.inf)
    assert first < moment < last
    data = SurvivalData(DATA.X, time, DATA.event, columns=DATA.columns, unit=DATA.unit)
    return data, (first, last)


def same_but_for_times(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in type(one).declarations() if name != "times"
    )


def test_models_are_the_same_for_all_horizons_within_one_public_bin():
    data, horizons = around_an_event()
    trees, models = [], []
    for horizon in horizons:
        trees.append(part_of(ForestSite, data, [horizon], ([0.0], [0.0])).grow_trees(replace(ORDER, min_events_leaf=1)))
        part = part_of(BoostSite, data, [horizon])
        part.begin(boosting.Begin(0, 0, 0, "rmst", np.ones(1)))
        models.append(part.fit_cox(boosting.FitCox(*FIT, 1.0, "breslow", 1)))
    assert not trees[0].is_empty
    assert not models[0].is_empty
    assert np.array_equal(trees[0].curves, trees[1].curves)
    assert np.array_equal(trees[0].threshold, trees[1].threshold)
    assert np.array_equal(models[0].coefficients, models[1].coefficients)
    assert np.array_equal(models[0].baseline, models[1].baseline)


def test_a_table_of_one_site_is_the_same_for_all_times_within_one_public_bin():
    data, times = around_an_event()
    tables = [
        part_of(KaplanMeierSite, data, [time]).tell_table(ByGroup((), np.zeros(0), np.array([1]))) for time in times
    ]
    assert np.array_equal(tables[0].events, tables[1].events)
    assert np.array_equal(tables[0].leaving, tables[1].leaving)


@pytest.mark.parametrize("place", [40, 100, 160])
def test_no_choice_of_a_threshold_locates_a_value_by_trees(place):
    """A tree splits where both leaves have enough patients: thresholds on both sides of a value would find it."""
    value = np.sort(DATA.X[:, 0])[place]
    shapes = set()
    for threshold in (np.nextafter(value, -np.inf), value):
        trees = part_of(ForestSite, edges=([threshold], [])).grow_trees(replace(ORDER, min_events_leaf=0))
        shapes.add((trees.column.tobytes(), trees.left.tobytes(), trees.curves.tobytes()))
    assert len(shapes) == 1


def test_no_choice_of_a_scale_locates_a_value_by_classification_trees():
    """The middle edge of a column lies at its centre: a tree splits there from 15 patients below on."""
    X = DATA.X[:, :1]
    value = np.sort(X[:, 0])[14]
    trees = []
    for centre in (value - 1e-6, value + 1e-6):
        part = ClassSite("lyon", TableData(X, (X[:, 0] > value).astype(int), columns=["x0"]))
        part.least_behind = LEAST
        # With a spread so large, the edge at the centre is the only one among the values.
        part.agree(ClassAgreed(("x0",), part.data.classes, float(len(X)), np.array([centre]), np.array([1e5])))
        trees.append(part.fit_tree(ClassTree(0.0, 0, 1, 1, 15, False, 1.0)))
    assert len(trees[0].column) == len(trees[1].column)
