"""Every patient is in exactly one site, and sites differ in the way that is said of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import MultiViewData, SurvivalData
from multicentre.datasets import (
    censor_by_site,
    simulate_sd,
    simulate_survival,
    split_by_column,
    split_by_label,
    split_by_time,
    split_dirichlet,
    split_iid,
    split_sizes,
)
from multicentre.errors import ConfigurationError, DataError
from support.events_toy import random_events
from support.examples import examples

SPLITS = {
    "iid": split_iid,
    "time": split_by_time,
    "column": lambda data, n_sites, seed: split_by_column(data, "x2", n_sites, seed),
    "dirichlet": lambda data, n_sites, seed: split_dirichlet(data, n_sites, seed, alpha=0.2, min_patients=5),
    "sizes": lambda data, n_sites, seed: split_sizes(data, n_sites, seed, min_patients=5),
}


def patients(n, seed=0):
    drawn = simulate_survival(n, 3, seed)
    return SurvivalData(drawn.X, drawn.time, drawn.event, range(n), columns=drawn.columns, unit="months")


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@examples(25)
@given(n=st.integers(40, 90), n_sites=st.integers(1, 8), seed=st.integers(0, 50))
def test_every_patient_is_in_exactly_one_site_of_a_size_that_will_do(split, n, n_sites, seed):
    data = patients(n, seed)
    sites = split(data, n_sites, seed)
    assert list(sites) == [f"centre-{number + 1}" for number in range(n_sites)]
    assert sorted(int(one) for site in sites.values() for one in site.ids) == list(range(n))
    assert min(len(site) for site in sites.values()) >= 5
    for site in sites.values():
        rows = site.ids.astype(int)
        assert rows.tolist() == sorted(rows)
        assert site.digest() == data.take(rows).digest()
    again = split(data, n_sites, seed)
    assert [site.digest() for site in again.values()] == [site.digest() for site in sites.values()]


@pytest.mark.parametrize("split", [SPLITS[name] for name in ("iid", "column", "dirichlet", "sizes")])
def test_another_seed_gives_other_sites(split):
    data = patients(80)
    assert split(data, 3, 0)["centre-1"].digest() != split(data, 3, 1)["centre-1"].digest()


def test_sites_cut_by_time_or_column_do_not_overlap():
    data = patients(90)
    for split, value in ((split_by_time, lambda site: site.time), (_by_x0, lambda site: site.X[:, 0])):
        sites = list(split(data, 4, 0).values())
        assert [len(site) for site in sites] == [23, 23, 22, 22]
        for before, after in itertools.pairwise(sites):
            assert value(before).max() <= value(after).min()


def _by_x0(data, n_sites, seed):
    return split_by_column(data, "x0", n_sites, seed)


def test_patients_without_a_value_come_last():
    data = SurvivalData([[np.nan], [2.0], [1.0], [np.nan]], [1.0] * 4, [1] * 4, range(4), columns=["age"])
    low, rest = split_by_column(data, "age", 2, 0).values()
    assert low.X[:, 0].tolist() == [2.0, 1.0]
    assert np.isnan(rest.X).all()
    with pytest.raises(DataError, match="column must be one of"):
        split_by_column(data, "weight", 2, 0)


def spread_of_means(sites):
    return np.std([site.time.mean() for site in sites.values()])


def test_a_low_alpha_makes_sites_differ():
    data = patients(1000)
    spreads = [spread_of_means(split_dirichlet(data, 8, 3, alpha=alpha)) for alpha in (0.1, 1.0, 1e6)]
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[0] > 2 * spreads[2]
    sizes = [len(site) for site in split_dirichlet(data, 8, 3, alpha=1e6).values()]
    assert max(sizes) - min(sizes) < 60


def test_bins_have_equal_width():
    time = np.concatenate([np.linspace(0.0, 9.9, 100), [100.0] * 100])
    data = SurvivalData(np.ones((200, 1)), time, np.ones(200))
    sites = split_dirichlet(data, 2, 0, alpha=1e-3, n_bins=10, min_patients=1)
    for is_late in (False, True):
        assert max(((site.time > 50) == is_late).sum() for site in sites.values()) >= 99


def test_sizes_fall_by_the_ratio():
    sizes = [len(site) for site in split_sizes(patients(640), 3, 0, ratio=0.5, min_patients=1).values()]
    assert sizes == [366, 183, 91]
    assert [len(site) for site in split_sizes(patients(60), 3, 0, ratio=1.0).values()] == [20, 20, 20]
    assert [len(site) for site in split_sizes(patients(64), 6, 0, min_patients=10).values()].count(10) >= 4


@pytest.mark.parametrize(
    ("split", "where"),
    [
        (lambda: split_iid(patients(3), 4, 0), "n_sites"),
        (lambda: split_iid(patients(3), 0, 0), "n_sites"),
        (lambda: split_by_time(patients(3), 4, 0), "n_sites"),
        (lambda: split_dirichlet(patients(39), 4, 0), "n_sites"),
        (lambda: split_sizes(patients(39), 4, 0), "n_sites"),
        (lambda: split_dirichlet(patients(40), 4, 0, alpha=0.0), "split_dirichlet"),
        (lambda: split_dirichlet(patients(40), 4, 0, n_bins=0), "split_dirichlet"),
        (lambda: split_sizes(patients(40), 4, 0, ratio=0.0), "split_sizes"),
        (lambda: split_sizes(patients(40), 4, 0, ratio=1.1), "split_sizes"),
        (lambda: censor_by_site({"lyon": patients(9)}, shortest=0.0), "censor_by_site"),
        (lambda: censor_by_site({"lyon": patients(9)}, {"oslo": 3.0}), "ends"),
        (lambda: censor_by_site({"lyon": patients(9)}, {"lyon": -1.0}), "ends"),
    ],
)
def test_what_cannot_be_split_is_refused(split, where):
    with pytest.raises(ConfigurationError) as caught:
        split()
    assert caught.value.where == where


@pytest.mark.parametrize("data", [random_events(30), simulate_sd(0, n_patients=30), simulate_sd(0, n_patients=30).data])
def test_other_data_of_patients_are_split_alike(data):
    for split in (split_iid, split_sizes):
        assert sorted(len(site) for site in split(data, 3, 0).values()) == [10, 10, 10]
    by_label = split_by_label(data, ["a"] * 20 + ["b"] * 10)
    assert {name: len(site) for name, site in by_label.items()} == {"a": 20, "b": 10}


def test_views_keep_their_patients():
    data = MultiViewData({"blood": np.arange(6.0)[:, None]}, ids=range(6))
    sites = split_by_label(data, [1, 2, 1, 2, 3, 4], min_patients=2, others="rest")
    assert {name: site.ids.tolist() for name, site in sites.items()} == {
        "1": ["0", "2"],
        "2": ["1", "3"],
        "rest": ["4", "5"],
    }
    with pytest.raises(DataError, match="labels must have one value per patient"):
        split_by_label(data, [1] * 5)


def test_follow_up_ends_at_each_site_s_own_time():
    sites = split_iid(patients(200), 4, 0)
    ended = censor_by_site(sites, shortest=0.4)
    ends = np.quantile(np.concatenate([site.time for site in sites.values()]), [0.4, 0.6, 0.8, 1.0])
    for end, before, after in zip(ends, sites.values(), ended.values(), strict=True):
        late = before.time > end
        assert after.time.tolist() == np.minimum(before.time, end).tolist()
        assert after.event[late].tolist() == [0] * late.sum()
        assert after.event[~late].tolist() == before.event[~late].tolist()
        assert (after.columns, after.unit, after.ids.tolist()) == (before.columns, before.unit, before.ids.tolist())
    assert ended["centre-4"].digest() == sites["centre-4"].digest()
    assert ended["centre-1"].event.sum() < sites["centre-1"].event.sum()
