"""Forged ranks of Table 1 single out no patient: sites derive the scores from counts, once per fit."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics.describe import messages
from multicentre.analytics.describe.bins import N_BINS
from multicentre.analytics.describe.ranks import mean_ranks
from multicentre.analytics.describe.site import DescribeSite
from multicentre.errors import DisclosureRefused, MessageError

N, MINIMUM = 60, 10
GROUPS = {"by": "", "group_levels": (), "numbers": ("age", "bmi"), "levels": ()}
# Ten bins of whole numbers hold all values; the other bins are open or empty.
LOW, WIDTH = np.array([0.0, 0.0]), np.array([1.0, 1.0])


def part(changed=None, *, masked=False):
    rng = np.random.default_rng(0)
    age, bmi = np.repeat(np.arange(5), N // 5), np.tile(np.arange(5), N // 5)
    X = np.column_stack([age, rng.permutation(bmi)]).astype(float)
    if changed is not None:
        X[changed, 1] = (X[changed, 1] + 1) % 5
    return part_of(X, masked=masked)


def part_of(X, *, masked=False):
    built = DescribeSite("lyon", mc.data.TableData(X, np.zeros(N), columns=["age", "bmi"]))
    built.masked, built.least_behind = masked, MINIMUM
    return built


def ranks(*counts):
    """Return the request with the mean ranks of these counts of the bins 1, 2, ... by variable."""
    score = np.zeros((2, N_BINS + 2))
    for variable, by_bin in enumerate(counts):
        in_bin = np.zeros(N_BINS + 2)
        in_bin[1 : len(by_bin) + 1] = by_bin
        score[variable] = mean_ranks(in_bin)
    return messages.RankScores(**GROUPS, low=LOW, width=WIDTH, score=score)


def movers(request, *, masked=False):
    """Return the number of patients whose own change of bmi changes the product of age and bmi."""
    base = part(masked=masked).sum_rank_products(request).products[0, 1]
    changed = (part(i, masked=masked).sum_rank_products(request).products[0, 1] for i in range(N))
    return sum(not np.isclose(base, one, rtol=1e-9) for one in changed)


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("jump", [0, 1, 3])
def test_a_jump_of_forged_counts_isolates_no_patient(jump, masked):
    """The counts of the request are 0 but for one bin; the sites know that theirs are larger."""
    forged = np.zeros(8)
    forged[jump + 1] = 2.0**20
    assert movers(ranks(forged, np.ones(5)), masked=masked) >= MINIMUM


def test_scores_that_are_no_ranks_are_refused():
    for score in (np.zeros((2, N_BINS + 2)), np.full((2, N_BINS + 2), 0.7), np.full((1, 3), 0.5)):
        with pytest.raises(MessageError, match="mean rank per variable and bin"):
            part().sum_rank_products(messages.RankScores(**GROUPS, low=LOW, width=WIDTH, score=score))


def test_a_fit_ranks_once():
    built = part(masked=True)
    built.sum_rank_products(ranks(np.ones(5), np.ones(5)))
    built.sum_rank_products(ranks(np.ones(5), np.ones(5)))
    with pytest.raises(DisclosureRefused, match="first request"):
        built.sum_rank_products(ranks(np.array([1, 1, 9, 1, 1]), np.ones(5)))


def test_unmasked_the_patients_of_the_smallest_bin_count():
    assert part().sum_rank_products(ranks(np.ones(5), np.ones(5))).patients >= MINIMUM
    X = part().data.X.copy()
    X[0, 0] = 30.0
    assert part_of(X).sum_rank_products(ranks(np.ones(5), np.ones(5))).patients == 1


def test_unmasked_the_effective_number_of_departures_counts():
    """Each variable is high for 12 patients, both for 2; the product departs from its most frequent value for these."""
    X = np.zeros((N, 2))
    X[:12, 0] = X[10:22, 1] = 1.0
    low = np.array([2.0**20, 1.0])
    assert part_of(X).sum_rank_products(ranks(low, low)).patients == 2


def test_ranks_of_an_honest_fit_are_answered_once_and_right():
    rng = np.random.default_rng(1)
    sites = {}
    for name in "abc":
        x = rng.integers(0, 3, (300, 1)).astype(float)
        X = np.column_stack([x, x + rng.integers(0, 2, (300, 1))])
        sites[name] = mc.data.TableData(X, rng.integers(0, 2, 300), columns=["age", "bmi"], classes=["a", "b"])
    pooled = np.vstack([data.X for data in sites.values()])
    policy = dataclasses.replace(mc.Policy(), min_patients=MINIMUM)
    from scipy.stats import spearmanr

    expected = spearmanr(pooled).statistic
    for secure in (True, False):
        federation = mc.Federation.in_process(sites, policy=policy, secure_sum=secure)
        model = mc.analytics.Describe(histograms=True, correlations=True).fit(federation)
        assert model.rank_correlations_[0, 1] == pytest.approx(expected, abs=1e-7)
