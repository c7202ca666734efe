"""Scores of classes from counts, against scikit-learn's of the records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from multicentre.errors import ConfigurationError, DataError
from multicentre.validation.scoring.classes import maths

SKLEARN = {
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "matthews_corrcoef": metrics.matthews_corrcoef,
    **{
        f"{name}{suffix}": lambda true, named, of=of, average=average: of(true, named, average=average, zero_division=0)
        for name, of in {
            "f1": metrics.f1_score,
            "precision": metrics.precision_score,
            "recall": metrics.recall_score,
        }.items()
        for suffix, average in {"": "binary", "_macro": "macro"}.items()
    },
}


def drawn(n=300, k=2, seed=0):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(k), n)
    return chances, np.array([rng.choice(k, p=row) for row in chances])


def counted(scores, truth, edges):
    bins = np.searchsorted(edges, scores)
    return np.array([np.bincount(bins[truth == one], minlength=len(edges) + 1) for one in (0, 1)], dtype=float)


@pytest.mark.parametrize("name", maths.FROM_CONFUSION)
@pytest.mark.parametrize("k", [2, 4])
def test_scores_of_named_classes_are_those_of_scikit_learn(name, k):
    chances, truth = drawn(k=k)
    named = chances.argmax(axis=1)
    table = metrics.confusion_matrix(truth, named, labels=np.arange(k)).astype(float)
    if k > 2 and name in ("f1", "precision", "recall"):
        with pytest.raises(ConfigurationError):
            maths.from_confusion(name, table)
    else:
        assert maths.from_confusion(name, table) == pytest.approx(SKLEARN[name](truth, named), abs=1e-12)


def test_a_class_that_nobody_has_or_is_given_counts_as_scikit_learn_counts_it():
    truth, named = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    table = np.zeros((3, 3))
    table[:2, :2] = metrics.confusion_matrix(truth, named)
    for name in ("balanced_accuracy", "f1_macro", "precision_macro", "recall_macro", "matthews_corrcoef"):
        assert maths.from_confusion(name, table) == pytest.approx(SKLEARN[name](truth, named), abs=1e-12)
    assert maths.from_confusion("f1", np.array([[4.0, 0.0], [0.0, 0.0]])) == 0.0
    assert maths.from_confusion("matthews_corrcoef", np.array([[4.0, 0.0], [0.0, 0.0]])) == 0.0


@pytest.mark.parametrize("k", [2, 4])
def test_losses_are_those_of_scikit_learn(k):
    chances, truth = drawn(k=k)
    chances[0], truth[0] = np.eye(k)[0], 1
    labels = np.arange(k)
    assert maths.log_losses(chances, truth).mean() == pytest.approx(
        metrics.log_loss(truth, chances, labels=labels), abs=1e-12
    )
    given = chances[:, 1] if k == 2 else chances
    options = {} if k == 2 else {"labels": labels}
    assert maths.brier_losses(chances, truth).mean() == pytest.approx(
        metrics.brier_score_loss(truth, given, **options), abs=1e-12
    )


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_the_area_from_even_bins_is_within_its_bound_and_1e_4(share):
    rng = np.random.default_rng(1)
    truth = (rng.uniform(size=4000) < share).astype(int)
    logits = np.log(share / (1 - share)) + 1.3 * truth + rng.normal(size=4000)
    scores = maths.log_odds(1 / (1 + np.exp(-logits)))
    coarse = np.bincount(np.searchsorted(maths.coarse_edges(), scores), minlength=maths.N_BINS)
    edges = maths.even_edges(coarse[None].astype(float))[0]
    counts = counted(scores, truth, edges)
    area, bound = maths.area_under_curve(counts)
    error = abs(area - metrics.roc_auc_score(truth, logits))
    ties = (counts[0] * counts[1]).sum() / (counts[0].sum() * counts[1].sum())
    assert bound == pytest.approx(ties / 2, abs=1e-12)
    assert error <= bound < 6e-4
    assert error < 1e-4
    assert maths.average_precision(counts) == pytest.approx(metrics.average_precision_score(truth, logits), abs=3e-3)


def test_average_precision_with_a_bin_a_score_is_that_of_scikit_learn():
    rng = np.random.default_rng(2)
    scores = np.round(rng.normal(size=200), 1)
    truth = (scores + rng.normal(size=200) > 0).astype(int)
    counts = counted(scores, truth, np.unique(scores)[:-1])
    assert maths.average_precision(counts) == pytest.approx(metrics.average_precision_score(truth, scores), abs=1e-12)


def test_edges_rise_whatever_the_counts_are():
    for counts in (np.zeros((1, 1024)), np.eye(1, 1024, 0) * 1e9, np.ones((2, 1024))):
        edges = maths.even_edges(counts)
        assert edges.shape == (len(counts), 1023)
        assert (np.diff(edges, axis=1) > 0).all()


def test_an_area_needs_both_classes():
    with pytest.raises(DataError, match="at least two classes"):
        maths.area_under_curve(np.array([[1.0], [0.0]]))


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60))
def test_the_mean_of_the_places_of_a_class_is_the_area(rows):
    scores, flags = (np.array(each) for each in zip(*rows, strict=True))
    having, without = scores[flags].astype(float), scores[~flags].astype(float)
    if len(having) and len(without):
        assert maths.places_among(having, without).mean() == pytest.approx(metrics.roc_auc_score(flags, scores))
        assert maths.places_among(without, having).mean() == pytest.approx(1 - metrics.roc_auc_score(flags, scores))
