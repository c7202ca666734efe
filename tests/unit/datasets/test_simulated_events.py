import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from multicentre.data import EventTensor
from multicentre.datasets import LabelledEvents, planted, simulate_paper_tensor, simulate_planted
from multicentre.errors import ConfigurationError, DataError
from support.examples import examples

SMALL = {"procedure": 40, "diagnosis": 60}


@pytest.fixture(scope="module")
def drawn():
    return simulate_planted(4000, SMALL, n_phenotypes=10, n_sites=5, random_state=1)


def root_mean_square(counts):
    return float(np.sqrt(np.mean(counts**2)))


def test_the_paper_s_tensor_has_its_size_and_density():
    labelled = simulate_paper_tensor()
    assert labelled.tensor.shape == (5000, 300, 800)
    assert labelled.tensor.nnz == 12_000
    assert [one.n_patients for one in labelled.by_site().values()] == [1000] * 5
    assert sum(one.nnz for one in labelled.by_site().values()) == 12_000
    assert abs(root_mean_square(labelled.tensor.counts) - 2.162) < 0.02
    assert labelled.tensor.outcomes is None


def test_the_paper_s_tensor_has_no_structure():
    tensor = simulate_paper_tensor(400, (20, 30), 0.05, 3, random_state=2).tensor
    for axis, size in enumerate(tensor.shape):
        seen = np.bincount(tensor.coordinates[:, axis], minlength=size)
        assert stats.chisquare(seen).pvalue > 1e-3
    assert stats.chisquare(np.bincount(tensor.counts.astype(int))[1:]).pvalue > 1e-3
    flat = np.ravel_multi_index(tensor.coordinates.T, tensor.shape)
    assert stats.kstest(flat / np.prod(tensor.shape), "uniform").pvalue > 1e-3


def test_a_dense_paper_tensor_has_as_many_entries_as_asked():
    assert simulate_paper_tensor(4, (5, 6), 0.5, 2).tensor.nnz == 60
    assert simulate_paper_tensor(4, (5, 6), 1e-9, 2).tensor.nnz == 1


@pytest.mark.slow
def test_the_default_resembles_mimic():
    drawn = simulate_planted()
    tensor, truth = drawn.tensor, drawn.truth
    by_patient = np.bincount(tensor.coordinates[:, 0])
    assert tensor.shape == (40_662, 202, 316)
    assert abs(tensor.nnz / 427_484 - 1) < 0.02
    assert abs(np.quantile(by_patient, 0.99) - 34) <= 4
    assert 50 < by_patient.max() < 80
    assert abs(root_mean_square(tensor.counts) - 1.099) < 0.02
    assert (~truth.present).sum() == 32
    assert len(truth.exclusive) == 2
    assert 0.10 < tensor.outcomes.mean() < 0.12
    assert abs(roc_auc_score(tensor.outcomes, truth.memberships @ truth.log_odds) - 0.85) < 0.02


def test_every_patient_has_an_entry_and_sites_hold_them_all(drawn):
    tensor = drawn.tensor
    assert np.unique(tensor.coordinates[:, 0]).size == 4000
    assert drawn.truth.sites == drawn.site_names == tuple(drawn.by_site())
    assert (np.concatenate([one.ids for one in drawn.by_site().values()]) == tensor.ids).all()
    assert (np.concatenate([one.counts for one in drawn.by_site().values()]) == tensor.counts).all()


def test_sites_shrink_by_the_skew():
    drawn = simulate_planted(10_000, SMALL, n_phenotypes=4, n_sites=3, site_skew=0.5)
    sizes = np.array([one.n_patients for one in drawn.by_site().values()])
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], np.exp(-0.5), atol=1e-3)
    equal = simulate_planted(100, SMALL, n_phenotypes=4, n_sites=3, site_skew=0).by_site().values()
    assert sorted(one.n_patients for one in equal) == [33, 33, 34]


def test_memberships_follow_presence_and_prevalence(drawn):
    truth = drawn.truth
    np.testing.assert_allclose(truth.memberships.sum(axis=1), 1.0)
    n_phenotypes = np.bincount((truth.memberships > 0).sum(axis=1))[1:]
    np.testing.assert_allclose(n_phenotypes / 4000, [0.5, 0.3, 0.2], atol=0.03)
    np.testing.assert_allclose(truth.prevalence.sum(axis=1), 1.0)
    assert ((truth.prevalence > 0) == truth.present).all()
    for row, site in enumerate(truth.sites):
        members = truth.memberships[drawn.sites == site] > 0
        assert (members.any(axis=0) == truth.present[row]).all()
        alone = truth.memberships[drawn.sites == site] == 1
        assert (
            stats.chisquare(
                alone.sum(axis=0)[truth.present[row]], truth.prevalence[row][truth.present[row]] * alone.sum()
            ).pvalue
            > 1e-4
        )


def test_a_site_with_few_phenotypes_has_no_others():
    truth = simulate_planted(300, SMALL, n_phenotypes=3, n_sites=3, n_exclusive=2).truth
    assert truth.present.sum(axis=1).min() < 3
    assert (truth.memberships[:, list(truth.exclusive)] > 0).all(axis=1).sum() == 0
    np.testing.assert_allclose(truth.memberships.sum(axis=1), 1.0)


@examples(30)
@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 1000), st.floats(0, 1))
def test_presence_keeps_two_sites_for_the_shared_and_one_for_the_exclusive(n_sites, rank, seed, share):
    n_exclusive = 0 if n_sites == 1 else min(rank - 1, rank // 5)
    n_wanted = round(share * n_sites * (rank - n_exclusive))
    present = planted.draw_presence(np.random.default_rng(seed), n_sites, rank, n_exclusive, n_wanted)
    by_phenotype = np.sort(present.sum(axis=0))
    assert (by_phenotype[:n_exclusive] == 1).all()
    assert (by_phenotype[n_exclusive:] >= min(2, n_sites)).all()
    assert present.any(axis=1).all()
    assert (~present).sum() <= n_wanted + n_exclusive * (n_sites - 1)
    if share <= 0.2 and n_sites > 4 and rank > 1:  # a single phenotype is at every site
        assert (~present).sum() == n_wanted + n_exclusive * (n_sites - 1)


def share_of_head(tensor, head):
    return np.mean(np.logical_and(*(np.isin(tensor.coordinates[:, axis], head[axis - 1]) for axis in (1, 2))))


def test_codes_of_an_absent_phenotype_are_seen_by_noise_alone():
    drawn = simulate_planted(6000, {"procedure": 400, "diagnosis": 400}, n_phenotypes=10, n_sites=5, random_state=3)
    by_site = drawn.by_site()
    heads = [[np.argsort(-factor[:, r])[:3] for factor in drawn.truth.factors.values()] for r in range(10)]
    shares = np.array([[share_of_head(one, head) for head in heads] for one in by_site.values()])
    assert shares[~drawn.truth.present].max() < 0.001
    assert shares[drawn.truth.present].min() > 0.003


def test_code_frequencies_are_the_truth_s_with_a_tenth_of_noise():
    drawn = simulate_planted(
        20_000,
        {"procedure": 50, "diagnosis": 60},
        n_phenotypes=3,
        n_sites=1,
        random_state=4,
        windows=1,
        codes_per_window=1,
    )
    assert (drawn.tensor.counts == 1).all()
    assert drawn.tensor.nnz == 20_000
    for axis, factor in enumerate(drawn.truth.factors.values(), start=1):
        expected = 0.9 * (drawn.truth.memberships @ (factor / factor.sum(axis=0)).T).sum(axis=0) + 2000 / len(factor)
        seen = np.bincount(drawn.tensor.coordinates[:, axis], minlength=len(factor))
        assert stats.chisquare(seen, expected).pvalue > 1e-3
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1.0)
        assert ((factor > 0).sum(axis=0) == 8).all()


def test_counts_grow_with_the_number_of_windows():
    few, many = (simulate_planted(500, SMALL, n_phenotypes=3, n_sites=1, windows=w).tensor for w in (1, 6))
    assert few.counts.max() == 1
    assert many.counts.max() > 3
    assert many.counts.sum() > 4 * few.counts.sum()


def test_outcomes_follow_the_logistic_model(drawn):
    truth = drawn.truth
    scores = truth.memberships @ truth.log_odds
    chances = 1 / (1 + np.exp(-truth.intercept - scores))
    assert abs(chances.mean() - 0.11) < 1e-9
    deciles = np.argsort(scores).reshape(10, -1)
    expected = chances[deciles].sum(axis=1)
    spread = np.sqrt((chances * (1 - chances))[deciles].sum(axis=1))
    assert (np.abs(drawn.tensor.outcomes[deciles].sum(axis=1) - expected) < 4 * spread).all()
    assert roc_auc_score(drawn.tensor.outcomes, scores) > 0.8


def test_four_modes():
    sizes = {"procedure": 30, "diagnosis": 40, "drug": 50}
    drawn = simulate_planted(800, sizes, n_phenotypes=4, n_sites=2, random_state=5, codes_per_window=1.5)
    assert drawn.tensor.shape == (800, 30, 40, 50)
    assert drawn.tensor.modes == tuple(sizes) == tuple(drawn.truth.factors)
    projections = {mode: drawn.tensor.coordinates[:, axis] for axis, mode in enumerate(sizes, start=1)}
    share = np.mean([drawn.truth.factors[mode][codes].max(axis=1) > 0 for mode, codes in projections.items()])
    assert share > 0.85


def test_combinations_of_a_window_are_all_there():
    random = np.random.default_rng(6)
    sets = [{w: sorted(random.choice(9, random.integers(1, 4), replace=False)) for w in range(20)} for _ in range(3)]
    modes = [
        (np.repeat(np.arange(20), [len(one[w]) for w in range(20)]), np.concatenate([one[w] for w in range(20)]))
        for one in sets
    ]
    expected = {
        (w, int(a), int(b), int(c)) for w in range(20) for a in sets[0][w] for b in sets[1][w] for c in sets[2][w]
    }
    crossed = planted.cross(modes)
    assert len(crossed) == len(expected)
    assert set(map(tuple, crossed.tolist())) == expected


def test_the_seed_decides_all():
    options = {"n_patients": 60, "sizes": SMALL, "n_phenotypes": 5, "n_sites": 3}
    one, again, other = (simulate_planted(**options, random_state=seed) for seed in (7, 7, 8))
    assert one.tensor.digest() == again.tensor.digest() != other.tensor.digest()
    np.testing.assert_array_equal(one.truth.memberships, again.truth.memberships)
    random = np.random.default_rng(7)
    assert simulate_planted(**options, random_state=random).tensor.digest() == one.tensor.digest()
    assert simulate_planted(**options, random_state=random).tensor.digest() != one.tensor.digest()
    first, second = (simulate_paper_tensor(50, (9, 9), 0.01, 2, random_state=seed).tensor.digest() for seed in (0, 1))
    assert first == simulate_paper_tensor(50, (9, 9), 0.01, 2, random_state=0).tensor.digest() != second


@pytest.mark.parametrize(
    "options",
    [
        {"n_patients": 5},
        {"n_phenotypes": 0},
        {"n_sites": 0},
        {"sizes": {"procedure": 5}},
        {"sizes": {"procedure": 5, "diagnosis": 0}},
        {"sizes": {"procedure": 2**31, "diagnosis": 2**31}},
        {"windows": 0.9},
        {"windows": float("nan")},
        {"codes_per_window": 0.5},
        {"site_skew": -0.1},
        {"absent_share": 1.1},
        {"outcome_rate": 0.0},
        {"outcome_rate": 1.0},
        {"n_exclusive": 20},
        {"n_exclusive": -1},
        {"n_exclusive": 1, "n_sites": 1},
    ],
)
def test_planted_refuses(options):
    with pytest.raises(ConfigurationError, match="simulate_planted"):
        simulate_planted(**options)


@pytest.mark.parametrize("options", [{"density": 0.0}, {"density": 0.6}, {"n_sites": 0}, {"sizes": (0, 4)}])
def test_the_paper_tensor_refuses(options):
    with pytest.raises(ConfigurationError, match="simulate_paper_tensor"):
        simulate_paper_tensor(**options)


def test_sites_are_one_a_patient():
    tensor = EventTensor([[0, 0, 0]], [1], {"procedure": ["p"], "diagnosis": ["d"]})
    with pytest.raises(DataError, match="sites must have shape"):
        LabelledEvents(tensor, np.array(["a", "b"]), "toy", "A toy.", "CC0")
