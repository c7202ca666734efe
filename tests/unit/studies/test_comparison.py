"""The comparison: who is held out, what is fitted on what, and how gaps are told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import MultiViewData
from multicentre.data.concatenate import concatenate
from multicentre.data.survival import SurvivalData
from multicentre.datasets import simulate_survival
from multicentre.errors import DataError, SchemaMismatch
from multicentre.studies.comparison import compare, split_rows
from multicentre.studies.site_patients import SiteData
from multicentre.survival import FedCox
from support.studies_toy import FedViewMeans


def site(n, location, views=("a", "b"), seed=0):
    random = np.random.default_rng(seed)
    data = MultiViewData({view: random.normal(location, 1.0, (n, 2)) for view in views}, ids=range(n))
    return SiteData(data, tuple("km"[j % 2] for j in range(n)))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60), st.floats(0.05, 0.95), st.integers(0, 99))
def test_split_is_a_partition_and_keeps_the_proportions(labels, holdout, seed):
    fit, out = split_rows(len(labels), tuple(labels), holdout, np.random.default_rng(seed))
    assert sorted([*fit, *out]) == list(range(len(labels)))
    for label in set(labels):
        held = sum(labels[row] == label for row in out)
        assert abs(held - holdout * labels.count(label)) <= 1.0 + 1e-6
    assert abs(len(out) - holdout * len(labels)) < 1.0 + 1e-6


def test_split_depends_on_the_seed_alone():
    first, again, other = (split_rows(50, None, 0.3, np.random.default_rng(seed))[1] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_figures_are_those_of_the_three_fits():
    sites = {"lyon": site(40, 0.0), "oslo": site(60, 4.0, seed=1)}
    estimator = FedViewMeans(n_rounds=40)
    found = compare(estimator, sites, seed=2)
    random = np.random.default_rng(2)
    split = {name: split_rows(len(one.data), one.labels, 0.25, random) for name, one in sites.items()}
    test = concatenate({name: one.data.take(split[name][1]) for name, one in sites.items()})
    train = concatenate({name: one.data.take(split[name][0]) for name, one in sites.items()})
    for metrics, data in [(found.pooled, train), (found.site_alone["oslo"], sites["oslo"].data.take(split["oslo"][0]))]:
        expected = FedViewMeans(n_rounds=40)
        expected.means_ = {view: data.array(view).mean(axis=0) for view in data.views}
        assert metrics["error"] == pytest.approx(expected.assess(test)["error"], rel=1e-2)
    assert found.federated == pytest.approx(found.pooled, rel=1e-9)
    assert found.n_held_out == 25
    assert not hasattr(estimator, "means_")


def test_site_that_lacks_a_view_is_noted():
    sites = {"lyon": site(40, 0.0), "oslo": site(40, 1.0, views=("a",), seed=1), "tiny": site(3, 0.0, seed=2)}
    found = compare(FedViewMeans(), sites)
    assert set(found.site_alone) == {"lyon", "tiny"}
    assert found.notes == {"oslo": "no site has the view b"}
    rows = {row["name"]: row for row in found.to_dict(FedViewMeans.metrics)["metrics"]}
    assert list(rows) == ["error", "error/a", "error/b"]
    assert rows["error/b"]["label"] == "error, b"
    assert rows["error"]["better"] == "lower"
    assert rows["error"]["site_alone"].keys() == {"lyon", "tiny"}
    assert rows["error"]["note"] == "oslo: no site has the view b"


def test_site_that_fits_fewer_columns_keeps_figures_of_single_views():
    sites = {"lyon": site(40, 0.0), "oslo": site(40, 1.0, views=("a",), seed=1)}
    found = compare(FedViewMeans(views=("a",)), sites)
    assert found.site_alone["lyon"].keys() == {"error", "error/a", "undescribed"}
    assert found.site_alone["oslo"].keys() == {"error/a"}
    assert found.notes == {"oslo": "lacks b, so metrics over all views are left out"}


@pytest.mark.parametrize("times", ["stratified", "exact"])
def test_the_pooled_fit_is_of_the_same_model(times):
    shifted = {"lyon": 1.0, "oslo": 3.0, "turin": 5.0}
    sites = {}
    for seed, (name, unit) in enumerate(shifted.items()):
        data = simulate_survival(150, 2, seed)
        sites[name] = SiteData(SurvivalData(data.X + unit, data.time / unit, data.event), None)
    cox = FedCox(times)
    found = compare(cox, sites)
    assert cox.models_sites == (times == "stratified")
    assert found.pooled == pytest.approx(found.federated, rel=1e-6)


def test_nobody_to_hold_out():
    with pytest.raises(DataError, match="at least one patient must be held out; got 0"):
        compare(FedViewMeans(), {"lyon": site(3, 0.0)})


def test_concatenate_keeps_rows_views_and_identifiers():
    lyon, oslo = site(3, 0.0).data, site(2, 1.0, views=("b", "c"), seed=1).data
    both = concatenate({"lyon": lyon, "oslo": oslo})
    assert both.views == ("a", "b", "c")
    np.testing.assert_array_equal(both.array("b"), np.vstack([lyon.array("b"), oslo.array("b")]))
    assert np.isnan(both.array("a")[3:]).all()
    assert both.ids.tolist() == ["lyon/0", "lyon/1", "lyon/2", "oslo/0", "oslo/1"]
    nameless = MultiViewData({"a": np.ones((1, 2))})
    assert concatenate({"lyon": lyon, "nice": nameless}).ids is None
    with pytest.raises(SchemaMismatch):
        concatenate({"lyon": lyon, "nice": MultiViewData({"a": np.ones((1, 3))})})


@pytest.mark.filterwarnings("ignore:.*are left out of the score")
def test_no_policy_limits_a_comparison_and_a_small_site_does_not_end_it():
    """Rules protect patients from readers, and one person holds the rows of a simulation."""
    sites = {}
    for seed, (name, n) in enumerate({"lyon": 150, "porto": 150, "ghent": 12}.items()):
        random = np.random.default_rng(seed)
        X = random.normal(size=(n, 18))
        if name == "ghent":  # no record is complete
            X[np.arange(n), np.arange(n)] = np.nan
        sites[name] = SiteData(SurvivalData(X, random.exponential(size=n) + 0.1, np.arange(n) % 2))
    found = compare(FedCox(), sites)
    assert {"concordance"} <= found.federated.keys() & found.pooled.keys()
    assert found.notes["federated"].startswith("fitted without ghent (")
