import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.datasets import draw_duplicated_truth, published_covariance, simulate_duplicated
from multicentre.datasets.duplicated import COEFFICIENTS, DuplicatedTruth
from multicentre.errors import ConfigurationError
from support.examples import examples


@pytest.fixture(scope="module")
def simulated():
    return simulate_duplicated(random_state=1)


def stacked(simulated, only_originals=False):
    sites = simulated.sites
    kept = {name: simulated.original[name] if only_originals else slice(None) for name in sites}
    return (
        np.concatenate([sites[name].X[kept[name]] for name in sites]),
        np.concatenate([sites[name].y[kept[name]] for name in sites]),
        np.concatenate([simulated.person[name][kept[name]] for name in sites]),
    )


def test_a1_the_share_of_class_1_is_that_of_the_published_script():
    shares = [stacked(simulate_duplicated(n_duplicates=0, random_state=seed))[1].mean() for seed in range(5)]
    assert np.mean(shares) == pytest.approx(0.4667, abs=0.004)


@pytest.mark.slow
def test_a1_the_optimal_accuracy_is_that_of_the_published_covariance(simulated):
    assert simulated.truth.optimal_accuracy(1_000_000) == pytest.approx(0.882, abs=0.001)


def test_a1_the_tenth_covariate_is_independent_of_the_others():
    X = np.concatenate([stacked(simulate_duplicated(n_duplicates=0, random_state=seed))[0] for seed in range(3)])
    assert np.abs(np.corrcoef(X.T)[9, :9]).max() < 0.02
    np.testing.assert_allclose(np.cov(X.T), published_covariance(), atol=0.08)


def test_a2_there_are_as_many_duplicates_as_asked_for_and_none_twice_at_a_site(simulated):
    assert simulated.n_duplicates == 2000
    assert sum(len(site) for site in simulated.sites.values()) == 12_000
    assert all(len(np.unique(person)) == len(person) for person in simulated.person.values())
    assert len(np.unique(stacked(simulated)[2])) == 10_000


@examples(25)
@given(n=st.integers(1, 30), n_sites=st.integers(1, 4), share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_a2_copies_are_exact_and_at_other_sites(n, n_sites, share, seed):
    simulated = simulate_duplicated(n, int(share * n * (n_sites - 1)), n_sites, random_state=seed)
    X, y, person = stacked(simulated, only_originals=True)
    assert sorted(person) == list(range(n))
    place = np.argsort(person)
    for name, site in simulated.sites.items():
        people = simulated.person[name]
        assert len(set(people)) == len(people)
        np.testing.assert_array_equal(site.X, X[place[people]])
        np.testing.assert_array_equal(site.y, y[place[people]])
        assert [int(one[1:]) for one in site.identifier.column("person")] == people.tolist()


def test_every_pair_of_a_record_and_another_site_is_equally_likely():
    hosts = np.zeros(3, dtype=int)
    n_places = 0
    for seed in range(200):
        simulated = simulate_duplicated(30, 30, 3, random_state=seed)
        hosts += [int((~simulated.original[f"centre-{k}"]).sum()) for k in (1, 2, 3)]
        copies = np.concatenate([simulated.person[name][~flags] for name, flags in simulated.original.items()])
        n_places += int((np.bincount(copies, minlength=30) == 2).sum())
    expected = 200 * 30
    assert np.abs(hosts - expected / 3).max() < 4 * np.sqrt(expected * 2 / 9)
    both_drawn = 200 * 30 * (30 / 60) * (29 / 59)
    assert abs(n_places - both_drawn) < 0.1 * both_drawn


def test_the_outcome_follows_the_log_odds_of_equation_5():
    x = np.arange(1.0, 11.0)
    x[5] = -1.0
    a = COEFFICIENTS
    expected = a[0] + a[1] + 2 * a[2] + 3 * a[3] + 2 * a[4] + 3 * a[5] + 0 + 7 * a[7]
    truth = DuplicatedTruth(np.eye(10), np.array(a))
    assert truth.log_odds(x[None])[0] == pytest.approx(expected)
    x[3], x[5], x[7] = -1.0, 1.0, -1.0
    assert truth.log_odds(x[None])[0] == pytest.approx(a[0] + a[1] + 2 * a[2] + 3 * a[3] + 2 * a[4] + 25 * a[6])
    assert truth.probabilities(x[None])[0] == pytest.approx(1 / (1 + np.exp(-truth.log_odds(x[None])[0])))


def test_classes_are_drawn_with_the_true_probabilities(simulated):
    for name, site in simulated.sites.items():
        chance = simulated.probabilities(name)
        for low, high in ((0.0, 0.1), (0.4, 0.6), (0.9, 1.0)):
            inside = (chance >= low) & (chance < high)
            spread = np.sqrt(chance[inside].mean() * (1 - chance[inside].mean()) / inside.sum())
            assert abs(site.y[inside].mean() - chance[inside].mean()) < 4 * spread


@pytest.mark.parametrize("seed", range(4))
def test_drawn_parameters_are_in_the_ranges_of_figure_4(seed):
    truth = draw_duplicated_truth(seed)
    eigenvalues = np.linalg.eigvalsh(truth.covariance)
    assert 1 <= eigenvalues.min() < eigenvalues.max() <= 3
    assert not truth.covariance[9, :9].any()
    assert np.abs(truth.covariance[:9, :9] - np.diag(truth.covariance.diagonal()[:9])).max() > 0.05
    assert truth.coefficients.shape == (8,)
    assert np.abs(truth.coefficients).max() <= 5
    assert not np.array_equal(truth.covariance, draw_duplicated_truth(seed + 1).covariance)


def test_a_random_covariance_has_the_papers_eigenvalues():
    one, other = (
        simulate_duplicated(10, 0, covariance="random", random_state=seed).truth.covariance for seed in (1, 2)
    )
    np.testing.assert_allclose(np.linalg.eigvalsh(one), np.arange(1.0, 2.9, 0.2))
    assert one[9, 9] == 2.8
    assert not np.allclose(one, other)


def test_given_parameters_are_used_and_the_seed_gives_the_same_records():
    truth = draw_duplicated_truth(7)
    make = lambda: simulate_duplicated(  # noqa: E731
        50, 10, covariance=truth.covariance, coefficients=truth.coefficients, random_state=3
    )
    assert make().truth.coefficients.tolist() == truth.coefficients.tolist()
    assert {n: s.digest() for n, s in make().sites.items()} == {n: s.digest() for n, s in make().sites.items()}


def test_the_published_covariance_cannot_be_changed_from_outside():
    published_covariance()[0, 0] = 99.0
    assert published_covariance()[0, 0] < 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_records": 0}, "got 0, 5 and"),
        ({"n_records": 10, "n_duplicates": 41}, "got 10, 5 and 41"),
        ({"n_sites": 1}, ", 1 and 2000"),
        ({"n_duplicates": -1}, ", 5 and -1"),
        ({"covariance": "paper"}, "covariance must be 'published', 'random' or an array; got 'paper'"),
        ({"covariance": np.eye(9)}, r"shape \(9, 9\)"),
        ({"covariance": -np.eye(10)}, "positive definite"),
        ({"covariance": np.triu(np.ones((10, 10)))}, "symmetric"),
        ({"covariance": np.full((10, 10), np.nan)}, "symmetric"),
        ({"coefficients": [1.0]}, r"coefficients must be 8 finite numbers; got an array of shape \(1,\)"),
        ({"coefficients": [np.inf] * 8}, "8 finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong, message):
    with pytest.raises(ConfigurationError, match=message):
        simulate_duplicated(**wrong)
