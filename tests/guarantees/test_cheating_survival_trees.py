"""A coordinator that forges grids, thresholds and trees singles nobody out, nor asks for more than a site can hold."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.federation.messages import Nothing
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.boost import messages as boosting
from multicentre.survival.boost.site import BoostSite
from multicentre.survival.forest.messages import Order
from multicentre.survival.forest.site import ForestSite
from multicentre.survival.hazard import messages as sent
from multicentre.survival.hazard.site import HazardSite
from multicentre.survival.rsf import messages as growing
from multicentre.survival.rsf.limits import check_sampling

LEAST = 10
GRID = np.arange(1.0, 65.0) * 32
NONE = np.zeros(0, dtype=np.int32)


def draw(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X, time = rng.normal(size=(n, 2)), np.ceil(rng.exponential(700, n))
    return SurvivalData(X, time, rng.random(n) < 0.6, columns=["x0", "x1"], unit="days")


DATA = draw()


def part_of(kind, data=DATA, times=GRID, edges=((), ()), *, masked=False, least=LEAST):
    """Return a site part that has agreed to what a coordinator made up."""
    part = kind("lyon", data)
    part.least_behind = least
    first = np.cumsum([0, *map(len, edges)]).astype(np.int64)
    n, zeros = float(len(data)), np.zeros(2)
    thresholds = np.concatenate([np.asarray(each, dtype=float) for each in edges])
    part.agree(Agreed(data.columns, data.unit, 1, masked, n, n, np.asarray(times), zeros, zeros + 1, thresholds, first))
    return part


def i4(*values):
    return np.array(values, dtype=np.int32)


NO_TREE = sent.Tree(NONE, NONE, NONE, NONE, np.zeros(0))
LEAF = sent.Tree(i4(-1), i4(0), i4(-1), i4(-1), np.zeros(1))


def stump(column, cut, left, right):
    return sent.Tree(i4(column, -1, -1), i4(cut, 0, 0), i4(1, -1, -1), i4(2, -1, -1), np.array([0.0, left, right]))


def ask(number, last=NO_TREE, tree=LEAF, wanted=(0,)):
    return sent.Level.of(number, tree, last, i4(*wanted))


def begun(edges, *, validation=0.0, **options):
    part = part_of(HazardSite, edges=edges, **options)
    part.begin(sent.Beginning(np.full(len(GRID), -3.0), 0, 1.0, validation))
    return part


HIGHEST = np.sort(DATA.X[:, 0])[::-1]


def test_a_grid_that_would_show_days_is_refused_by_boosted_hazards():
    part = part_of(HazardSite, times=np.arange(1.0, 3001.0))
    with pytest.raises(ConfigurationError, match="too fine"):
        part.count_intervals(Nothing())
    with pytest.raises(ConfigurationError, match="too fine"):
        part.begin(sent.Beginning(np.zeros(3000), 0, 1.0, 0.0))


def test_a_finished_tree_that_parts_off_one_patient_moves_nobodys_margin():
    edges = ([HIGHEST[:2].mean()], [])
    forged = stump(0, 0, 0.0, 2.0)
    part = begun(edges)
    before, after = part.sum_slopes(ask(0)), part.sum_slopes(ask(1, forged))
    for name in ("slopes", "curvatures", "losses"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
    exact = begun(edges, least=0)
    before, after = exact.sum_slopes(ask(0)), exact.sum_slopes(ask(1, forged))
    assert not np.array_equal(before.losses, after.losses)


def margins_shared(part):
    """Return how many patients share each first margin."""
    _, counts = np.unique(part._rows._margins[:, 0].round(9), return_counts=True)
    return counts


def test_two_finished_trees_that_differ_by_one_patient_leave_none_by_itself():
    edges = ([HIGHEST[25:27].mean(), HIGHEST[24:26].mean()], [])
    trees = stump(0, 0, 0.0, 2.0), stump(0, 1, 0.0, -2.0)
    shares = {}
    for least in (0, LEAST):
        part = begun(edges, least=least)
        for number, last in enumerate([NO_TREE, *trees]):
            part.sum_slopes(ask(number, last))
        shares[least] = margins_shared(part).min()
    assert shares[0] == 1
    assert shares[LEAST] >= LEAST


def test_the_few_in_two_large_groups_at_once_move_with_the_others_of_the_first():
    highest = np.sort(DATA.X[:, 1])[::-1]
    edges = ([HIGHEST[29:31].mean()], [highest[29:31].mean()])
    both = (DATA.X[:, 0] > edges[0][0]) & (DATA.X[:, 1] > edges[1][0])
    assert 0 < both.sum() < LEAST
    value = np.array([0.0, 0.0, 0.0, 1.0, 2.0])
    tree = sent.Tree(i4(0, -1, 1, -1, -1), i4(0, 0, 0, 0, 0), i4(1, -1, 3, -1, -1), i4(2, -1, 4, -1, -1), value)
    moved = {}
    for least in (0, LEAST):
        part = begun(edges, least=least)
        part.sum_slopes(ask(0))
        part.sum_slopes(ask(1, tree))
        margins, counts = np.unique(part._rows._margins[:, 0].round(9), return_counts=True)
        moved[least] = dict(zip(margins.tolist(), counts.tolist(), strict=True))
    assert moved[0] == {-3.0: 170, -2.0: 30 - both.sum(), -1.0: both.sum()}
    assert moved[LEAST] == {-3.0: 170, -2.0: 30}


def full_tree(rng, n_cuts, depth=4):
    """Return a full tree of random columns and cuts, no two leaves of one value."""
    n_inner = 2**depth - 1
    inner = np.arange(n_inner)
    ends = np.full(n_inner + 1, -1)
    parts = [rng.integers(2, size=n_inner), rng.integers(n_cuts, size=n_inner), 2 * inner + 1, 2 * inner + 2]
    nodes = [i4(*part, *ends) for part in parts]
    value = np.append(np.zeros(n_inner), np.arange(1.0, n_inner + 2))
    return sent.Tree(nodes[0], np.maximum(nodes[1], 0), *nodes[2:], value)


@pytest.mark.parametrize("seed", range(5))
def test_however_deep_a_finished_tree_is_each_of_its_margins_is_that_of_many(seed):
    rng, edges = np.random.default_rng(seed), [np.linspace(-2, 2, 17)] * 2
    tree, fewest = full_tree(rng, 17), {}
    for least in (0, LEAST):
        part = begun(edges, least=least)
        part.sum_slopes(ask(0))
        part.sum_slopes(ask(1, tree))
        fewest[least] = margins_shared(part).min()
    assert fewest[0] < LEAST <= fewest[LEAST]
    assert len(margins_shared(part)) > 1


def test_patients_held_out_and_the_others_are_joined_each_by_themselves():
    edges = ([HIGHEST[23:25].mean()], [])
    part = begun(edges, validation=0.3)
    part.sum_slopes(ask(0))
    part.sum_slopes(ask(1, stump(0, 0, 0.0, 2.0)))
    held = part._rows._held_out
    moved = part._rows._margins[:, 0] > -2.0
    assert 0 < (held & (DATA.X[:, 0] > edges[0][0])).sum() < LEAST
    for group in (held, ~held):
        n_moved = int((moved & group).sum())
        assert n_moved == 0 or n_moved >= LEAST
        assert not n_moved or n_moved <= int(group.sum()) - LEAST
    assert moved.any()


def test_intervals_end_for_many_at_once_in_clear():
    part = begun(([], []))
    last, happened = part._last, part.patients.happened
    for counts in (np.bincount(last + 1), np.bincount(last[happened] + 1)):
        assert counts[counts > 0].min() >= LEAST
    answer = part.sum_slopes(ask(0))
    hazard = 1 / (1 + np.exp(3.0))
    at_risk = answer.curvatures[0, 2:] / 2**30 / (hazard * (1 - hazard))
    ended = -np.diff(at_risk[at_risk > 0.5])
    assert ended[ended > 0.5].min() >= LEAST - 0.01


def test_an_agreement_for_masked_sums_is_not_answered_in_clear():
    part = begun(([], []), masked=True)
    with pytest.raises(DisclosureRefused, match="masked"):
        part.sum_slopes(ask(0))
    part.masked = True
    assert part.sum_slopes(ask(0)).slopes.any()


def chain(depth):
    """Return a tree of so many splits, each below the last."""
    n = 2 * depth + 1
    column, left, right = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    node = 0
    for level in range(depth):
        column[node], left[node], right[node] = 0, 2 * level + 1, 2 * level + 2
        node = 2 * level + 1
    return sent.Tree(i4(*column), i4(*np.zeros(n, dtype=int)), i4(*left), i4(*right), np.zeros(n))


def test_a_tree_too_deep_and_too_many_cells_are_refused(monkeypatch):
    part = begun(([0.0], []))
    assert part.sum_slopes(ask(0, tree=chain(12), wanted=(24,))).slopes.shape[0] == 1
    with pytest.raises(MessageError, match="12 splits"):
        part.sum_slopes(ask(0, tree=chain(13), wanted=(26,)))
    monkeypatch.setattr("multicentre.survival.hazard.limits.MOST_CELLS", 2 * (2 + 1 + len(GRID)))
    part.sum_slopes(ask(0, tree=chain(2), wanted=(3, 4)))
    with pytest.raises(MessageError, match="too many"):
        part.sum_slopes(ask(0, tree=chain(2), wanted=(2, 3, 4)))


def test_samples_of_too_many_trees_on_too_fine_a_grid_are_refused():
    check_sampling(growing.Sampling(0, 10_000, 256), 256)
    with pytest.raises(MessageError, match="too long"):
        check_sampling(growing.Sampling(0, 10_000, 100_000), 100_000)


# A site's own models: however the grid is chosen, a curve moves only where a minimum of patients have an event.

NARROW = [np.arange(start + 1.0, start + 257.0) for start in range(0, 2048, 256)]
SMALL = draw(60, seed=3)


def most_drops(data, times):
    """Return at how many times curves may fall: each stands for a minimum of events inside the grid."""
    inside = (data.event == 1) & (data.time <= times[-1])
    return int(inside.sum()) // LEAST


def drops(curves):
    """Return the places at which some curve falls."""
    return np.flatnonzero((np.diff(curves, axis=1, prepend=1.0) < 0).any(axis=0))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sampling", ["uniform", "ibs"])
def test_trees_show_no_days_however_narrow_the_grid(masked, sampling):
    found = 0
    for times in NARROW:
        part = part_of(ForestSite, SMALL, times, ([0.0], [0.0]), masked=masked)
        shown = set()
        for _ in range(2):
            trees = part.grow_trees(Order(10, 2, 15, 0, 2, sampling, True, 0, 10))
            shown |= set() if trees.is_empty else set(drops(trees.curves).tolist())
        assert len(shown) <= most_drops(SMALL, times)
        found += len(shown)
    assert found > 0


def boosted(times, masked, n_bins=1):
    part = part_of(BoostSite, SMALL, times, ([0.0],) * 2 if n_bins > 1 else ([], []), masked=masked)
    part.begin(boosting.Begin(0, 0, 0, "rmst", np.ones(len(times))))
    return part


FIT = (0.0, float("inf"), 0, 1, False, False, 0.1, False)


@pytest.mark.parametrize("masked", [False, True])
def test_hypotheses_show_no_days_however_narrow_the_grid(masked):
    found = 0
    for times in NARROW:
        part = boosted(times, masked, n_bins=2)
        models = [
            part.fit_cox(boosting.FitCox(*FIT, 1.0, "breslow", 1)),
            part.fit_tree(boosting.FitTree(*FIT, 2, 15, 1, "all")),
        ]
        for model in models:
            shown = [] if model.is_empty else drops(model.survival(SMALL.X))
            assert len(shown) <= most_drops(SMALL, times)
            found += len(shown)
    assert found > 0


def test_networks_show_no_days_however_narrow_the_grid():
    pytest.importorskip("torch")
    training = np.array([0.0, 0.01, 0.0, 64, 2, 1, 0.0])
    ask_network = boosting.FitNetwork(*FIT, np.array([2]), "none", training)
    found = 0
    for times in NARROW:
        network = boosted(times, True).fit_network(ask_network)
        shown = [] if network.is_empty else drops(network.survival(SMALL.X))
        assert len(shown) <= most_drops(SMALL, times)
        found += len(shown)
    assert found > 0


@pytest.mark.parametrize(
    "wrong", [{"max_depth": 65}, {"min_leaf": 2**40}, {"min_events": 2**70}, {"n_columns": "9" * 30}]
)
def test_settings_of_a_tree_that_no_site_can_hold_are_refused(wrong):
    part = boosted(GRID, False)
    with pytest.raises(ConfigurationError):
        part.fit_tree(replace(boosting.FitTree(*FIT, 2, 15, 1, "all"), **wrong))


def test_a_training_without_end_is_refused():
    training = np.array([0.0, 0.01, 0.0, 64, 1e18, 1, 0.0])
    with pytest.raises(ConfigurationError, match="too many"):
        boosted(GRID, False).fit_network(boosting.FitNetwork(*FIT, np.array([2]), "none", training))


@pytest.mark.parametrize("wrong", [{"min_leaf": 2**40}, {"min_events": 2**70}, {"n_columns": 2**40}])
def test_settings_of_a_forest_that_no_site_can_hold_are_refused(wrong):
    part = part_of(ForestSite)
    with pytest.raises(ConfigurationError):
        part.grow_trees(replace(Order(5, 4, 15, 3, 2, "uniform", False, 0, 5), **wrong))
