import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from multicentre.data import MultiViewData
from multicentre.datasets import lose_records, simulate_views, split_views
from multicentre.errors import ConfigurationError, DataError
from support.examples import examples


def test_views_are_what_the_truth_says_plus_noise():
    drawn = simulate_views(6000, 4, (20, 9), n_dimensions=2, noise=0.3, random_state=1)
    cluster = np.array([int(label.removeprefix("cluster_")) - 1 for label in drawn.labels])
    assert np.bincount(cluster).tolist() == [1500] * 4
    assert len(np.unique(cluster[:20])) > 1
    assert (drawn.truth.latent > 0).all()
    for view, size in (("view_1", 20), ("view_2", 9)):
        bases = drawn.truth.bases[view]
        assert bases.shape == (4, size, 2)
        np.testing.assert_allclose(np.swapaxes(bases, 1, 2) @ bases, np.broadcast_to(np.eye(2), (4, 2, 2)), atol=1e-12)
        hidden = np.stack([bases[c] @ z for c, z in zip(cluster, drawn.truth.latent, strict=True)])
        noise = drawn.data.array(view) - hidden
        assert noise.std() == pytest.approx(drawn.truth.noise_sd[view], rel=0.01)
        assert np.linalg.norm(noise) / np.linalg.norm(hidden) == pytest.approx(0.3, rel=0.05)
    assert [str(one) for one in range(3)] == drawn.data.ids[:3].tolist()


def test_views_together_tell_clusters_apart_better_than_each():
    drawn = simulate_views(240, 4, (30, 30, 30), noise=1.2, random_state=2)

    def score(views):
        rows = [drawn.data.array(view) for view in views]
        cosines = [(x / np.linalg.norm(x, axis=1, keepdims=True)) for x in rows]
        affinity = np.mean([np.clip(x @ x.T, 0, None) for x in cosines], axis=0)
        found = SpectralClustering(4, affinity="precomputed", random_state=0).fit_predict(affinity)
        return adjusted_rand_score(drawn.labels, found)

    alone = [score([view]) for view in drawn.data.views]
    assert max(alone) < 0.85
    assert min(alone) > 0.1
    assert score(drawn.data.views) > max(alone) + 0.1


def test_the_seed_decides_all():
    one, again, other = (simulate_views(30, random_state=seed) for seed in (5, 5, 6))
    for view in one.data.views:
        np.testing.assert_array_equal(one.data.array(view), again.data.array(view))
        assert not np.array_equal(one.data.array(view), other.data.array(view))
    assert one.labels.tolist() == again.labels.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"n_patients": 2},
        {"n_clusters": 0},
        {"sizes": ()},
        {"sizes": (5, 2)},
        {"n_dimensions": 0},
        {"noise": -0.1},
        {"noise": float("inf")},
    ],
)
def test_refuses_what_cannot_be_drawn(options):
    with pytest.raises(ConfigurationError, match="simulate_views"):
        simulate_views(**options)


def test_a_site_has_its_views_of_all_patients_and_no_label():
    drawn = simulate_views(12, random_state=0)
    for whole in (drawn, drawn.data):
        sites = split_views(whole)
        assert list(sites) == ["view_1", "view_2", "view_3"]
        for site, data in sites.items():
            assert type(data) is MultiViewData
            assert data.views == (site,)
            assert data.ids.tolist() == drawn.data.ids.tolist()
            np.testing.assert_array_equal(data.array(site), drawn.data.array(site))
    named = split_views(drawn, {"ward": ["view_3", "view_1"]})
    assert named["ward"].views == ("view_1", "view_3")


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ({"a": ["view_1"], "b": ["view_9"]}, r"got unknown views \(view_9\)"),
        ({"a": ["view_1"], "b": ["view_1", "view_2"]}, r"got views at two sites \(view_1\)"),
        ({"a": ["view_1"], "b": []}, r"got sites without a view \(b\)"),
    ],
)
def test_refuses_groups(groups, what):
    with pytest.raises(ConfigurationError, match=what):
        split_views(simulate_views(12), groups)


@examples(30)
@given(st.integers(4, 40), st.integers(2, 5), st.floats(0.0, 0.9), st.integers(0, 1000))
def test_sites_lose_their_share_and_nobody_is_lost_everywhere(n, n_sites, share, seed):
    sites = split_views(simulate_views(n, 2, (3,) * n_sites, random_state=0))
    n_lost = round(share * n)
    if n_lost > n - -(-n // n_sites):
        with pytest.raises(ConfigurationError, match="lose_records"):
            lose_records(sites, share, seed)
        return
    kept = lose_records(sites, share, seed)
    assert {len(data) for data in kept.values()} == {n - n_lost}
    assert set().union(*(data.ids.tolist() for data in kept.values())) == {str(row) for row in range(n)}
    for site, data in kept.items():
        rows = data.ids.astype(int)
        assert (np.diff(rows) > 0).all()
        np.testing.assert_array_equal(data.array(site), sites[site].array(site)[rows])


def test_sites_lose_different_patients():
    sites = split_views(simulate_views(300, random_state=0))
    there = [set(data.ids.tolist()) for data in lose_records(sites, 0.3, random_state=1).values()]
    again = [set(data.ids.tolist()) for data in lose_records(sites, 0.3, random_state=2).values()]
    assert there != again
    assert len(there[0] & there[1]) < 180


def test_refuses_a_share_of_all_and_patients_without_names():
    sites = split_views(simulate_views(12))
    for share in (1.0, -0.1, float("nan")):
        with pytest.raises(ConfigurationError, match="share"):
            lose_records(sites, share, 0)
    with pytest.raises(DataError, match="patients must have identifiers; got none"):
        lose_records({"a": MultiViewData({"v": np.ones((3, 1))})}, 0.1, 0)
