"""Noise replaces a minimum of patients only while all noised answers together are (3, 1e-5)-private."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import multicentre as mc
from multicentre.core.calls import Call
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise
from multicentre.engines.remote.opening import Opening
from multicentre.errors import DisclosureRefused, IntegrityError, RefusedByPolicy
from multicentre.estimator.registry import METHODS
from multicentre.privacy.accountant import Spent
from multicentre.privacy.conversions import gdp_delta, zcdp_of_gaussian
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger, entries_of_all
from multicentre.privacy.minimum_counts import DELTA, EPSILON, NoisedAnswers
from multicentre.privacy.patient_counts import People
from multicentre.studies import read_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_service import DeployedSiteService
from support.real_sites import NAMES, Hospitals, approve_at
from support.studies_toy import TOY, write_study
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
        with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
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


def at_site(folder, study, of_site):
    """Return the guard of one study at a real site, which counts noise over all ledgers of the site."""
    return Guard(mc.Policy(), Ledger(folder / f"{study}.jsonl"), People(one_each=True), noised=of_site)


def of_all(folder):
    return NoisedAnswers(lambda: entries_of_all(folder))


def test_studies_of_one_site_share_what_noise_can_hide(tmp_path):
    of_site, release = of_all(tmp_path), ClippedSum(np.zeros(2), 0.0, patients=100)
    rho = 0.0
    for study in range(5):
        gate = at_site(tmp_path, study, of_site)
        for number in range(60):
            call = asked(8.0, f"session-{number}")
            if gate.hides(call):
                rho += rho_of(call)
            gate.release(call, release)
    assert Spent(rho).epsilon(DELTA) > 0.9 * EPSILON
    assert Spent(rho).epsilon(DELTA) <= EPSILON * (1 + 1e-9)
    assert not at_site(tmp_path, 9, of_all(tmp_path)).hides(asked(8.0, "after a restart"))
    assert not at_site(tmp_path, 0, of_all(tmp_path)).hides(asked(8.0, "after a restart"))
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write('{"entry"')  # cut off by a crash
    assert not at_site(tmp_path, 9, of_all(tmp_path)).hides(asked(8.0, "another study"))


def test_a_ledger_that_was_changed_at_a_site_ends_what_noise_hides(tmp_path):
    gate = at_site(tmp_path, "one", of_all(tmp_path))
    gate.release(asked(8.0, "0"), ClippedSum(np.zeros(2), 0.0, patients=100))
    path = tmp_path / "one.jsonl"
    path.write_text(path.read_text().replace("8.0", "800.0"))
    with pytest.raises(IntegrityError, match="was changed after it was written"):
        at_site(tmp_path, "two", of_all(tmp_path)).hides(asked(8.0, "1"))


def test_guards_of_a_real_site_count_together(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path), approved=True)
    house = DeployedSiteService(read_site(hospitals.root / "lyon"))
    study = read_study(hospitals.study_path)
    other = tmp_path / "other.toml"
    other.write_text(hospitals.study_path.read_text().replace(study.name, "Ward 8"))
    approve_at(hospitals.root / "lyon", other)
    for run, path in (("a1", hospitals.study_path), ("b2", other)):
        one = read_study(path)
        house.open(Opening(run, 0, one.name, digest_of(one), NAMES, True), None)
    first, second = (house._open_studies[name].guard for name in (study.name, "Ward 8"))
    while first.hides(asked(5.0, "0")):
        pass
    assert not second.hides(asked(5.0, "0"))


def test_a_minimum_of_totals_is_not_replaced_by_weak_noise():
    policy = mc.Policy(min_patients_in_total=5)
    handle = federate_privately(secure_sum=True, policy=policy).begin(ClippedSite, plan=plan_of(0.5))
    with pytest.raises(RefusedByPolicy, match="the noised answers must be within epsilon 3 in total to replace a"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
