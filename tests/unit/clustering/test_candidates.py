"""Numbers of clusters with their evidence: what is clear, what is not, and that the table says which."""

import numpy as np
import pytest

from multicentre.clustering.candidates import CLOSE, FREQUENCIES, REPRODUCIBLE, Candidates, judge_candidates
from multicentre.clustering.hypergraph import embed, hyperedge_factor, scale_locally


def spans(affinity):
    """Return a function that embeds some of the samples, and counts how often."""
    calls = []

    def span(places):
        calls.append(len(places))
        return embed(hyperedge_factor(scale_locally(affinity[np.ix_(places, places)]), (5, 10)), 15)

    return span, calls


def blocks(sizes, between, seed=0):
    n = sum(sizes)
    group = np.repeat(np.arange(len(sizes)), sizes)
    affinity = np.random.default_rng(seed).random((n, n)) * np.where(group[:, None] == group, 1.0, between)
    return affinity + affinity.T


def made(starts, samples):
    numbers = np.arange(2, 2 + len(starts))
    return Candidates(numbers, np.zeros(len(starts)), np.array(starts), np.array(samples))


@pytest.mark.parametrize("sizes", [(20, 20, 20), pytest.param((40, 20, 15, 15), marks=pytest.mark.slow)])
def test_separate_groups_are_reproducible_whatever_their_sizes(sizes):
    span, calls = spans(blocks(sizes, 0.02))
    candidates = judge_candidates(span, sum(sizes), 5, 4, 0)
    assert (candidates.best, candidates.certainty) == (len(sizes), "reproducible")
    assert calls == [sum(sizes)] + 4 * [int(0.8 * sum(sizes))]


def test_noise_is_weak_evidence_for_every_number():
    candidates = judge_candidates(spans(blocks((60,), 1.0))[0], 60, 4, 4, 0)
    assert candidates.certainty == "weak"
    assert "no number is reproducible" in candidates.describe()


def test_certainty_needs_a_high_score_and_no_close_one():
    high, far = REPRODUCIBLE + 0.05, REPRODUCIBLE - CLOSE
    assert made([high, far], [high, far]).certainty == "reproducible"
    several = made([high, high - CLOSE / 2, 0.1], [high, high - CLOSE / 2, 0.1])
    assert (several.certainty, several.best, several.close) == ("several", 2, [3])
    assert "about as reproducible as 3" in several.describe()
    assert made([REPRODUCIBLE - 0.01, 0.1], [REPRODUCIBLE - 0.01, 0.1]).certainty == "weak"


def test_both_kinds_of_agreement_count_and_the_table_is_in_order():
    candidates = made([1.0, 0.8, 0.2], [0.5, 0.9, 0.1])
    frame = candidates.to_frame()
    assert frame.index.tolist() == [3, 2, 4]
    assert frame["score"].tolist() == pytest.approx([0.85, 0.75, 0.15])


def test_the_text_says_how_often_such_a_number_was_right():
    n_sets, right, among = FREQUENCIES["weak"]
    text = made([0.5, 0.1], [0.5, 0.1]).describe()
    assert f"Of {n_sets} data sets" in text
    assert f"right in {right}, one of the three in {among}." in text
    assert all(right <= among <= n_sets for n_sets, right, among in FREQUENCIES.values())


@pytest.mark.slow
def test_a_seed_repeats_the_evidence():
    affinity = blocks((30, 30), 0.3)
    one, two = (judge_candidates(spans(affinity)[0], 60, 3, 4, 3) for _ in range(2))
    assert one.scores.tolist() == two.scores.tolist()
