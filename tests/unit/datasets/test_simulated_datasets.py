import numpy as np
import pytest
from scipy import stats

from multicentre.data import MultiViewData
from multicentre.datasets import LabelledMultiView, simulate_sd
from multicentre.errors import ConfigurationError, DataError


def test_has_the_paper_s_shape():
    drawn = simulate_sd(0)
    assert drawn.data.schema.sizes == {"view_1": 15, "view_2": 8, "view_3": 10}
    assert len(drawn) == 400
    assert (drawn.labels == "group_2").sum() == 250
    assert 80 < (drawn.labels[:200] == "group_2").sum() < 170
    assert simulate_sd(0, n_patients=40).labels.tolist().count("group_2") == 25
    assert simulate_sd(0, n_patients=40, n_shifted=0).groups == ("group_1",)


def test_views_are_what_the_truth_says_plus_noise():
    drawn = simulate_sd(3, n_patients=20_000)
    truth = drawn.truth
    for view, noise_sd in truth.noise_sd.items():
        noise = drawn.data.array(view) - truth.latent @ truth.loadings[view].T - truth.means[view]
        assert abs(noise.std() / noise_sd - 1) < 0.01
        assert stats.kstest(noise[:500].ravel() / noise_sd, "norm").pvalue > 1e-3
        spread = {"view_1": 10, "view_2": 5, "view_3": 15}[view]
        assert np.abs(truth.loadings[view]).max() < spread
        assert np.abs(truth.means[view]).max() < spread
        assert np.abs(truth.loadings[view]).max() > 0.8 * spread
    second = drawn.labels == "group_2"
    np.testing.assert_allclose(truth.latent[~second].mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose(truth.latent[second].mean(axis=0), truth.shift, atol=0.06)
    np.testing.assert_allclose(np.cov(truth.latent[second].T), np.eye(5), atol=0.06)


def test_the_mild_shift_has_length_two_and_the_paper_s_is_within_its_box():
    shifts = [simulate_sd(seed, "mild", n_patients=8).truth.shift for seed in range(20)]
    np.testing.assert_allclose(np.linalg.norm(shifts, axis=1), 2.0)
    wide = np.array([simulate_sd(seed, n_patients=8).truth.shift for seed in range(200)])
    assert stats.kstest(wide.ravel(), "uniform", (-10, 20)).pvalue > 1e-3


def test_the_seed_decides_all():
    one, again, other = (simulate_sd(seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.data.array("view_1"), again.data.array("view_1"))
    np.testing.assert_array_equal(one.labels, again.labels)
    assert not np.array_equal(one.data.array("view_1"), other.data.array("view_1"))
    random = np.random.default_rng(7)
    first, second = simulate_sd(random), simulate_sd(random)
    np.testing.assert_array_equal(first.labels, one.labels)
    assert not np.array_equal(first.data.array("view_1"), second.data.array("view_1"))


@pytest.mark.parametrize(
    "options", [{"shift": "strong"}, {"n_patients": 1}, {"n_shifted": 401}, {"n_patients": 5, "n_shifted": -1}]
)
def test_refuses(options):
    with pytest.raises(ConfigurationError, match="simulate_sd"):
        simulate_sd(0, **options)


def test_labels_and_parts_are_one_a_patient():
    data = MultiViewData({"v": np.ones((3, 1))})
    with pytest.raises(DataError, match="labels must have shape"):
        LabelledMultiView(data, np.array(["a"]), "toy", "A toy.", "CC0")
    with pytest.raises(DataError, match="parts must have shape"):
        LabelledMultiView(data, np.array(["a", "b", "c"]), "toy", "A toy.", "CC0", np.array(["train"]))
