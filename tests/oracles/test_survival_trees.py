"""Trees against scikit-survival's, where bins lose nothing, and against a search by hand (which needs no package)."""

import numpy as np
import pytest

from multicentre.survival.learners.tree import TreeSettings, fit_trees
from support.tree_patients import draw_data, lossless

ALL = TreeSettings(min_samples_leaf=12, min_events_leaf=0, max_features=None)


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_is_scikit_survivals(seed):
    trees = pytest.importorskip("sksurv.tree")
    data = draw_data(seed=seed)
    patients = lossless(data)
    theirs = trees.SurvivalTree(min_samples_leaf=12, min_samples_split=24, random_state=0).fit(data.X, data.outcome)
    ours = fit_trees(patients, np.ones(len(data)), ALL)
    assert len(ours.column) == theirs.tree_.node_count > 10
    expected = [curve(patients.agreed.times) for curve in theirs.predict_survival_function(data.X)]
    np.testing.assert_allclose(ours.survival(data.X), expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_split_is_the_best_of_all_splits(seed):
    data = draw_data(seed=seed)
    tree = fit_trees(lossless(data), np.ones(len(data)), TreeSettings(max_depth=1, max_features=None))
    statistics = {}
    for column, values in enumerate(data.X.T):
        for value in np.unique(values)[:-1]:
            left = values <= value
            if min(left.sum(), (~left).sum()) >= 15 and min(data.event[left].sum(), data.event[~left].sum()) >= 3:
                statistics[column, value] = logrank(left, data)
    column, value = max(statistics, key=statistics.get)
    assert tree.column[0] == column
    assert (data.X[:, column] <= tree.threshold[0]).tolist() == (data.X[:, column] <= value).tolist()


def logrank(left, data):
    observed, variance = 0.0, 0.0
    for time in np.unique(data.time[data.event == 1]):
        at_risk, died = data.time >= time, (data.time == time) & (data.event == 1)
        y, d, y1 = at_risk.sum(), died.sum(), (at_risk & left).sum()
        observed += (died & left).sum() - y1 * d / y
        variance += y1 * (y - y1) * d * (y - d) / (y**2 * (y - 1)) if y > 1 else 0.0
    return observed**2 / variance
