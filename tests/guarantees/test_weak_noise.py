"""Noise takes the place of a minimum of patients only while all noised answers together are (3, 1e-5)-private."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import multicentre as mc
from multicentre.federation.engine import Call
from multicentre.federation.errors import DisclosureRefused, RefusedByPolicy
from multicentre.federation.messages import Nothing
from multicentre.federation.noise import Noise
from multicentre.privacy.accounting import Spent, gdp_delta, zcdp_of_gaussian
from multicentre.privacy.guard import Guard
from multicentre.privacy.hiding import DELTA, EPSILON
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.people import People
from support.toy_private import ClippedSite, ClippedSum, federate_privately, plan_of

FEW = 3
# Two fields under a multiplier z cost a rho of 1 / z**2; (3, 1e-5) is a rho of 0.2586, or z = 1.967.
MULTIPLIERS = [20.0, 10.0, 5.0, 3.0, 2.0, 1.9, 1.4, 1.0, 0.5, 0.05]
# Phi(mu / 2) with mu = sqrt(2 * 0.2586): the best guess from Gaussian answers of (3, 1e-5) together.
BEST_GUESS = 0.6405


def asked(multiplier, session):
    noise = Noise("gaussian", dict.fromkeys(plan_of(0.5).releases[0].noise.multipliers, multiplier))
    return Call("study", session, 0, ClippedSite.clipped_sum, Nothing(), ("lyon",), noise=noise)


def guard(ledger=None, **policy):
    return Guard(mc.Policy(**policy), ledger or Ledger(), People(one_each=True))


def rho_of(call):
    return sum(zcdp_of_gaussian(multiplier) for multiplier in call.noise.multipliers.values())


def attack(gate, multipliers=MULTIPLIERS, n_sessions=300):
    """Ask in sessions of ever new names, with noise of every size; return the calls answered on few patients."""
    sessions = [asked(multiplier, f"session-{number}") for multiplier in multipliers for number in range(n_sessions)]
    return [call for call in sessions if gate.hides(call)]


def test_presence_is_guessed_no_better_than_the_guarantee_allows():
    passed = attack(guard())
    assert len(passed) > 50
    mu = math.sqrt(2 * sum(map(rho_of, passed)))
    assert Spent(mu**2 / 2).epsilon(DELTA) <= EPSILON * (1 + 1e-9)
    assert gdp_delta(mu, EPSILON) <= DELTA * (1 + 1e-6)
    # The best test between "the patient is there" and "is not" is right with probability Phi(mu / 2).
    assert norm.cdf(mu / 2) < BEST_GUESS


def test_weak_noise_first_leaves_nothing_for_later():
    assert attack(guard(), MULTIPLIERS[::-1]) == []


def test_a_larger_budget_does_not_let_noise_replace_the_minimum_for_more():
    release = ClippedSum(np.zeros(2), 0.0, patients=100)
    gate = guard(epsilon=1e6)
    rho = 0.0
    for number in range(400):
        call = asked(20.0, f"session-{number}")
        if gate.hides(call):
            rho += rho_of(call)
        gate.release(call, release)
    assert rho > 0
    assert Spent(rho).epsilon(DELTA) <= EPSILON * (1 + 1e-9)
    assert not guard(epsilon=1e6).hides(asked(0.5, "0"))


def test_the_best_guess_from_all_answers_is_right_as_often_as_the_guarantee_allows():
    random, n_trials = np.random.default_rng(20), 40_000
    is_there = random.random(n_trials) < 0.5
    evidence = np.zeros(n_trials)
    for call in attack(guard(), n_sessions=20):
        for z in call.noise.multipliers.values():
            answer = is_there + random.normal(0.0, z, n_trials)
            evidence += (answer - 0.5) / z**2
    accuracy = np.mean((evidence > 0) == is_there)
    # Five standard errors above the bound: exceeded by chance in fewer than one of a million runs.
    assert 0.55 < accuracy < BEST_GUESS + 5 * math.sqrt(0.25 / n_trials)


def test_weak_noise_lets_no_answer_on_few_patients_leave():
    gate = guard()
    release = ClippedSum(np.zeros(2), 0.0, patients=FEW)
    for multiplier in (1.9, 1.0, 0.5):
        call = asked(multiplier, f"{multiplier}")
        assert not gate.hides(call)
        with pytest.raises(DisclosureRefused, match="fewer than 10 patients stand behind"):
            gate.release(call, release)


def test_what_was_answered_counts_after_a_restart_with_the_same_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    release = ClippedSum(np.zeros(2), 0.0, patients=100)
    gate = guard(Ledger(path))
    answered = 0
    while gate.hides(call := asked(3.0, f"session-{answered}")):
        gate.release(call, release)
        answered += 1
    assert answered > 0
    assert not guard(Ledger(path)).hides(asked(3.0, "after the restart"))
    assert guard().hides(asked(3.0, "another site"))


def test_a_minimum_of_totals_is_not_replaced_by_weak_noise():
    policy = mc.Policy(min_patients_in_total=5)
    handle = federate_privately(secure_sum=True, policy=policy).begin(ClippedSite, plan=plan_of(0.5))
    with pytest.raises(RefusedByPolicy, match="noise takes the place of a minimum only while all noised answers"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
