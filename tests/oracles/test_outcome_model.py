"""The federated model of an outcome is that of the pooled patients: scikit-learn and closed forms as oracles."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.phenotyping.outcome import PhenotypeFactors, PhenotypeOutcome
from multicentre.phenotyping.outcome.maths import split_by_outcome
from multicentre.phenotyping.outcome.site import OutcomeSite
from support.event_sites import simulate_events

EXACT = {"test_size": 0.0}


def known_factors(drawn):
    """Return the phenotypes that the events were drawn from."""
    lengths = np.linalg.norm(drawn.memberships, axis=0)
    return PhenotypeFactors(drawn.factors, drawn.tensor.codes, lengths)


def federate(sites, **options):
    return mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0), **options)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_the_coefficients_are_those_of_scikit_learn_on_pooled_memberships(alpha, secure):
    drawn = simulate_events(400, seed=3)
    phenotypes = known_factors(drawn)
    fitted = PhenotypeOutcome(phenotypes, alpha=alpha, **EXACT)
    fitted.fit(federate(drawn.sites(4), secure_sum=secure))
    rows = phenotypes.memberships(drawn.tensor)
    rows = rows / rows.std(axis=0)
    pooled = LogisticRegression(C=1 / alpha, tol=1e-12, max_iter=10_000).fit(rows, drawn.tensor.outcomes)
    np.testing.assert_allclose(fitted.coef_, pooled.coef_[0], rtol=0, atol=1e-6)
    assert fitted.intercept_ == pytest.approx(pooled.intercept_[0], abs=1e-6)
    chances = fitted.predict_proba(drawn.tensor)
    np.testing.assert_allclose(chances, pooled.predict_proba(rows), rtol=0, atol=1e-6)


def two_by_two(counts):
    """Return patients of one code pair, present or absent, whose outcomes make a table; the other codes are shared."""
    both = [(has, died) for (has, died), n in counts.items() for _ in range(n)]
    places = [[row, int(has), int(has)] for row, (has, _) in enumerate(both)]
    codes = {"procedure": ["p0", "p1"], "diagnosis": ["d0", "d1"]}
    tensor = EventTensor(places, np.ones(len(both)), codes, outcomes=[died for _, died in both])
    factor = np.array([[0.0], [1.0]])
    return tensor, PhenotypeFactors({"procedure": factor, "diagnosis": factor}, tensor.codes, np.ones(1))


def test_a_table_of_two_by_two_has_the_closed_form():
    counts = {(True, 1): 30, (True, 0): 20, (False, 1): 15, (False, 0): 60}
    tensor, phenotypes = two_by_two(counts)
    parts = np.random.default_rng(0).permutation(len(tensor)).reshape(5, -1)
    sites = {f"site-{i}": tensor.take(rows) for i, rows in enumerate(parts)}
    fitted = PhenotypeOutcome(phenotypes, alpha=0.0, **EXACT).fit(federate(sites))
    log_odds_ratio = np.log(30 * 60 / (20 * 15))
    error = np.sqrt(sum(1 / n for n in counts.values()))
    assert fitted.coef_[0] / fitted.spread_[0] == pytest.approx(log_odds_ratio, rel=1e-9)
    assert fitted.standard_errors_[0] / fitted.spread_[0] == pytest.approx(error, rel=1e-9)
    assert fitted.intercept_ == pytest.approx(np.log(15 / 60), rel=1e-9)


RESOLUTION = 1e-3  # half the share of pairs within one of 4,096 bins, scores that are equal left out


@pytest.mark.parametrize("n_patients", [150, 600, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_that_of_scikit_learn_on_pooled_scores(n_patients, seed):
    drawn = simulate_events(n_patients, seed=seed)
    sites = drawn.sites(3)
    fitted = PhenotypeOutcome(known_factors(drawn), random_state=seed).fit(mc.Federation.in_process(sites))
    scores, outcomes = {}, {}
    for name, data in sites.items():
        rows = _held_out(fitted, name, data)
        scores[name], outcomes[name] = fitted.decision_function(data)[rows], data.outcomes[rows]
    pooled, happened = np.concatenate(list(scores.values())), np.concatenate(list(outcomes.values()))
    exact = roc_auc_score(happened, pooled)
    assert fitted.n_held_out_ == len(pooled)
    assert fitted.auc_ == pytest.approx(exact, abs=RESOLUTION)
    low, high = fitted.auc_bounds_
    assert low <= exact <= high
    equal = (pooled[happened == 1][:, None] == pooled[happened == 0]).mean()
    assert (high - low - equal) / 2 < RESOLUTION


def test_the_area_of_a_site_is_exact():
    drawn = simulate_events(600, seed=1)
    sites = drawn.sites(3)
    fitted = PhenotypeOutcome(known_factors(drawn)).fit(federate(sites))
    for name, found in fitted.auc_by_site().items():
        rows = _held_out(fitted, name, sites[name])
        scores = fitted.decision_function(sites[name])[rows]
        assert found == pytest.approx(roc_auc_score(sites[name].outcomes[rows], scores), abs=1e-12)


def _held_out(fitted, name, data):
    random = OutcomeSite(name, data).generator(fitted.random_state, 4, int(data.digest()[:16], 16))
    return split_by_outcome(data.outcomes, fitted.test_size, random)
