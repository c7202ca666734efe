import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import agree_schemas
from multicentre.datasets import cross_validation_splits, simulate_sd, split_scenario
from multicentre.errors import ConfigurationError
from support.strategies import labelled_views

SCENARIOS = ("IID", "G", "K", "G/K")


def counts(centre, groups):
    return [int((centre.labels == group).sum()) for group in groups]


@given(labelled_views(), st.sampled_from(SCENARIOS), st.integers(3, 7), st.integers(0, 99))
def test_every_patient_is_in_exactly_one_centre(labelled, scenario, n_sites, seed):
    centres = split_scenario(labelled, scenario, n_sites, seed)
    assert list(centres) == [f"centre-{c + 1}" for c in range(n_sites)]
    ids = np.concatenate([centre.data.ids for centre in centres.values()])
    assert sorted(ids.tolist()) == sorted(labelled.data.ids.tolist())
    for centre in centres.values():
        rows = centre.data.ids.astype(int)
        np.testing.assert_array_equal(centre.labels, labelled.labels[rows])
        assert "G" in scenario or centre.groups == labelled.groups
        for view in centre.data.views:
            np.testing.assert_array_equal(centre.data.array(view), labelled.data.array(view)[rows])
    assert agree_schemas({name: one.data.schema for name, one in centres.items()}) == labelled.data.schema


@given(labelled_views(min_groups=1), st.sampled_from(["IID", "K"]), st.integers(3, 7), st.integers(0, 99))
def test_without_g_sizes_and_groups_differ_by_one_at_most(labelled, scenario, n_sites, seed):
    centres = split_scenario(labelled, scenario, n_sites, seed).values()
    table = np.array([counts(centre, labelled.groups) for centre in centres])
    assert np.ptp(table.sum(axis=1)) <= 1
    assert np.ptp(table, axis=0).max() <= 1


@pytest.mark.parametrize("n_sites", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_roles_follow_the_paper_s_table(scenario, n_sites):
    drawn = simulate_sd(0)
    whole = drawn.data.views
    centres = list(split_scenario(drawn, scenario, n_sites, 1).values())
    groups = [drawn.groups, ("group_1",), ("group_2",)] if "G" in scenario else [drawn.groups] * 3
    views = [whole, ("view_1", "view_3"), ("view_1", "view_2")] if "K" in scenario else [whole] * 3
    assert [centre.groups for centre in centres] == [groups[c % 3] for c in range(n_sites)]
    assert [centre.data.views for centre in centres] == [views[c % 3] for c in range(n_sites)]
    sizes = [len(centre) for centre in centres]
    assert min(sizes) > 0.55 * max(sizes)


def test_the_scenarios_with_and_without_views_deal_the_same_patients():
    drawn = simulate_sd(0)
    for plain, missing in (("IID", "K"), ("G", "G/K")):
        pairs = zip(
            split_scenario(drawn, plain, 4, 1).values(), split_scenario(drawn, missing, 4, 1).values(), strict=True
        )
        assert all(np.array_equal(one.data.ids, other.data.ids) for one, other in pairs)


def test_the_seed_decides_who_goes_where():
    drawn = simulate_sd(0)
    one, again, other = (split_scenario(drawn, "IID", 3, seed)["centre-1"].data.ids for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_one_centre_has_everything():
    drawn = simulate_sd(0, n_patients=20)
    (centre,) = split_scenario(drawn, "IID", 1, 0).values()
    np.testing.assert_array_equal(centre.data.ids, drawn.data.ids)
    assert split_scenario(drawn, "IID", 20, 0).keys() == {f"centre-{c + 1}" for c in range(20)}


def test_the_missing_views_can_be_named():
    centres = split_scenario(simulate_sd(0), "K", 3, 0, views_missing=("view_3", "view_1"))
    assert centres["centre-2"].data.views == ("view_1", "view_2")
    assert centres["centre-3"].data.views == ("view_2", "view_3")


@given(labelled_views(min_groups=4, max_groups=5), st.integers(1, 4), st.integers(2, 6), st.integers(0, 99))
def test_each_centre_can_have_a_number_of_groups(labelled, groups_per_site, n_sites, seed):
    n_groups = len(labelled.groups)
    if n_sites * groups_per_site < n_groups:
        with pytest.raises(ConfigurationError, match="groups_per_site must be from 1 to"):
            split_scenario(labelled, "G", n_sites, seed, groups_per_site=groups_per_site)
        return
    centres = split_scenario(labelled, "G", n_sites, seed, groups_per_site=groups_per_site).values()
    assert all(len(centre.groups) == groups_per_site for centre in centres)
    assert sum(map(len, centres)) == len(labelled)
    n_holders = [sum(group in centre.groups for centre in centres) for group in labelled.groups]
    assert max(n_holders) - min(n_holders) <= 1


def test_groups_rotate_evenly_when_they_are_large():
    drawn = simulate_sd(0)
    centres = split_scenario(drawn, "G/K", 4, 0, groups_per_site=1)
    assert sorted(centre.groups[0] for centre in centres.values()) == ["group_1"] * 2 + ["group_2"] * 2
    assert centres["centre-2"].data.views == ("view_1", "view_3")


@pytest.mark.parametrize(
    ("scenario", "n_sites", "options", "what"),
    [
        ("X", 3, {}, "scenario must be one of IID, G, K, G/K; got 'X'"),
        ("IID", 0, {}, "n_sites must be at least 1 in scenario IID"),
        ("G", 1, {}, "n_sites must be at least 3 in scenario"),
        ("K", 2, {}, "n_sites must be at least 3 in scenario"),
        ("G/K", 2, {}, "n_sites must be at least 3 in scenario"),
        ("G/K", 2, {"groups_per_site": 1}, "n_sites must be at least 3 in scenario"),
        ("IID", 3, {"groups_per_site": 1}, "groups_per_site must be None"),
        ("G", 3, {"views_missing": ("view_1", "view_2")}, "views_missing must be None"),
        ("K", 3, {"views_missing": ("view_1", "view_1")}, "two different views"),
        ("K", 3, {"views_missing": ("view_1", "view_9")}, "two different views"),
        ("K", 3, {"views_missing": ("view_1",)}, "two different views"),
        ("G", 3, {"groups_per_site": 3}, "groups_per_site must be from 1 to"),
        ("IID", 401, {}, "every centre must have at least one patient"),
    ],
)
def test_refuses(scenario, n_sites, options, what):
    with pytest.raises(ConfigurationError, match=what) as caught:
        split_scenario(simulate_sd(0), scenario, n_sites, 0, **options)
    assert caught.value.hint


def test_refuses_what_the_data_cannot_give():
    drawn = simulate_sd(0, n_shifted=0)
    with pytest.raises(ConfigurationError, match="the data must have at least two groups in scenario G"):
        split_scenario(drawn, "G", 3, 0)
    with pytest.raises(ConfigurationError, match="two different views"):
        split_scenario(drawn.drop(["view_3"]), "K", 3, 0)


@given(labelled_views(), st.integers(2, 5), st.integers(0, 99))
def test_folds_partition_and_stratify(labelled, n_splits, seed):
    splits = cross_validation_splits(labelled, n_splits, seed)
    assert len(splits) == n_splits
    tests = np.concatenate([test for _, test in splits])
    assert sorted(tests.tolist()) == list(range(len(labelled)))
    for train, test in splits:
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labelled)))
    table = np.array([counts(labelled.take(test), labelled.groups) for _, test in splits])
    assert np.ptp(table.sum(axis=1)) <= 1
    assert np.ptp(table, axis=0).max() <= 1


@pytest.mark.parametrize("n_splits", [1, 21])
def test_folds_need_patients(n_splits):
    with pytest.raises(ConfigurationError, match="n_splits must be from 2"):
        cross_validation_splits(simulate_sd(0, n_patients=20), n_splits)


def test_a_group_too_small_for_its_centres_is_refused():
    drawn = simulate_sd(0, n_patients=12, n_shifted=1)
    with pytest.raises(ConfigurationError, match="every centre must have at least one patient"):
        split_scenario(drawn, "G", 6, 0)


def test_a_small_label_is_in_some_folds_only():
    drawn = simulate_sd(0, n_patients=30, n_shifted=2)
    with_label = ["group_2" in drawn.take(test).groups for _, test in cross_validation_splits(drawn, 3, 0)]
    assert sum(with_label) == 2
