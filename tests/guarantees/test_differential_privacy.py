"""What leaves under a plan is noised and paid for; what would not fit the budget never leaves.

The noise comes from the system. A standard deviation of d normal numbers is compared with the planned one to six
standard errors, each a share of 1 / sqrt(2 d) of it: a false alarm has a probability of 2e-9.
"""

import dataclasses
import hashlib
import itertools
import math

import numpy as np
import pytest
from scipy import stats

import multicentre as mc
from multicentre.core.calls import Call, Mask
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    MissingExtra,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.multiview.ppca.messages import Standards
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.budget import total_spent
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger, read_ledger
from multicentre.privacy.secure_sum import fixed_point, rounds
from multicentre.privacy.secure_sum.messages import Invitation
from support.engines import with_engine
from support.lying import covered_up
from support.toy_private import ClippedSite, PrivateMean, clip, federate_privately, plan_of, private_sites

DELTA = 1e-5
SLACK = 6
secure_or_not = pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])


def budget(epsilon, tmp_path=None, **terms):
    return mc.Policy(epsilon=epsilon, account=None if tmp_path is None else str(tmp_path / "account.jsonl"), **terms)


def spent_at(tmp_path, site="site-0"):
    path = tmp_path / f"account.{site}.jsonl"
    return total_spent(read_ledger(path)).rho if path.exists() else 0.0


def exact(sites):
    return sum(clip(rows).sum(axis=0) for rows in sites.values())


@secure_or_not
def test_the_sum_contains_the_planned_noise(secure):
    d, n_sites = 30_000, 4
    sites = {f"s{i}": np.zeros((20, d)) for i in range(n_sites)}
    handle = federate_privately(sites, secure_sum=secure).begin(ClippedSite, plan=plan_of(0.5))
    total = handle.sum(ClippedSite.clipped_sum, Nothing()).total
    sigma = math.sqrt(2.0) * (1 if secure else math.sqrt(n_sites))
    assert total.std() == pytest.approx(sigma, rel=SLACK / math.sqrt(2 * d))


def test_with_lost_sites_tolerated_the_rest_of_the_noise_suffices():
    d = 30_000
    sites = {f"s{i}": np.zeros((20, d)) for i in range(4)}
    losing = Faults(lose={"s3": 4})
    federation = federate_privately(sites, secure_sum=True, quorum=3, faults=losing)
    total = federation.begin(ClippedSite, plan=plan_of(0.5)).sum(ClippedSite.clipped_sum, Nothing())
    assert "s3" not in federation.sites or total.patients_counted > 0
    assert total.total.std() >= math.sqrt(2.0) * (1 - SLACK / math.sqrt(2 * d))


@pytest.mark.parametrize("colluding", [1, 2])
def test_noise_is_increased_to_allow_for_colluding_sites(colluding):
    d = 30_000
    sites = {f"s{i}": np.zeros((20, d)) for i in range(6)}
    federation = federate_privately(sites, secure_sum=True, policy=mc.Policy(colluding_sites=colluding))
    total = federation.begin(ClippedSite, plan=plan_of(0.5)).sum(ClippedSite.clipped_sum, Nothing())
    assert total.total.std() == pytest.approx(math.sqrt(2.0 * 6 / (6 - colluding)), rel=SLACK / math.sqrt(2 * d))


@secure_or_not
def test_the_plan_is_paid_for_and_written_down(secure, tmp_path):
    federation = federate_privately(secure_sum=secure, policy=budget(2.0, tmp_path))
    model = PrivateMean(epsilon=1.5).fit(federation)
    rho = rho_of_epsilon(1.5, DELTA)
    assert spent_at(tmp_path) == pytest.approx(rho)
    assert model.privacy_.epsilon == pytest.approx(1.5)
    assert "one patient" in str(model.privacy_)
    entry = next(e for e in federation.ledgers["site-1"].entries if e.get("rho"))
    assert (entry["rho"], entry["epsilon"], entry["delta"]) == pytest.approx((rho, 1.5, DELTA))
    assert (entry["unit"], entry["neighbours"], entry["noise"]["mechanism"]) == ("patient", "add-remove", "gaussian")


def test_the_exact_sum_is_near(tmp_path):
    sites = private_sites(rows=3000)
    model = PrivateMean(epsilon=1.0).fit(federate_privately(sites, secure_sum=True))
    expected = exact(sites) / 9000
    # The noise of a mean over 9000 patients has a standard deviation of 6e-4: 0.02 is more than 30 of them.
    np.testing.assert_allclose(model.mean_, expected, atol=0.02)
    assert not np.array_equal(model.mean_, expected)


def test_a_plan_beyond_the_budget_is_refused_before_the_first_request(tmp_path):
    federation = federate_privately(policy=budget(1.0, tmp_path))
    with pytest.raises(RefusedByPolicy, match=r"one patient.*a plan of epsilon 1;"):
        PrivateMean(epsilon=3.0).fit(federation)
    assert spent_at(tmp_path) == 0
    events = {entry["event"] for ledger in federation.ledgers.values() for entry in ledger.entries}
    assert events == {"refusal"}


def test_the_budget_outlives_the_federation(tmp_path):
    for _ in range(2):
        PrivateMean(epsilon=0.6).fit(federate_privately(policy=budget(1.0, tmp_path)))
    with pytest.raises(RefusedByPolicy):
        PrivateMean(epsilon=0.6).fit(federate_privately(policy=budget(1.0, tmp_path)))
    assert spent_at(tmp_path) == pytest.approx(2 * rho_of_epsilon(0.6, DELTA))


def test_without_noise_nothing_leaves_a_site_with_a_budget(tmp_path):
    federation = federate_privately(policy=budget(1.0, tmp_path))
    with pytest.raises(RefusedByPolicy, match="answers must have noise if the policy has a privacy budget"):
        PrivateMean().fit(federation)
    assert spent_at(tmp_path) == 0


@secure_or_not
def test_a_resumed_run_is_charged_once(secure, tmp_path):
    once = rho_of_epsilon(1.0, DELTA) / 3
    options = {"folder": tmp_path / "run", "policy": budget(1.5, tmp_path), "secure_sum": secure}
    exchanges = next(
        n
        for n in itertools.count(1)
        if _interrupted(n, {**options, "folder": tmp_path / f"try-{n}", "policy": budget(9.0, tmp_path / f"try-{n}")})
    )
    with pytest.raises(KeyboardInterrupt):
        PrivateMean(1.0, times=3).fit(federate_privately(faults=Faults(interrupt_at=exchanges), **options))
    before = spent_at(tmp_path)
    assert before == pytest.approx(2 * once)
    model = PrivateMean(1.0, times=3).fit(federate_privately(**options))
    assert spent_at(tmp_path) == pytest.approx(3 * once)
    assert model.privacy_.epsilon == pytest.approx(1.0)


def _interrupted(exchange, options):
    """Whether an interruption at this exchange comes after exactly two of three releases."""
    federation = federate_privately(faults=Faults(interrupt_at=exchange), **options)
    with pytest.raises(KeyboardInterrupt):
        PrivateMean(1.0, times=3).fit(federation)
    return sum("rho" in entry for entry in federation.ledgers["site-0"].entries) == 2


def test_a_release_that_is_lost_in_transit_stays_charged(tmp_path, monkeypatch):
    from multicentre.core.site_runtime import SiteRuntime

    def crash(self, call, release):
        raise KeyboardInterrupt

    federation = federate_privately(private_sites(1), policy=budget(1.0, tmp_path))
    handle = federation.begin(ClippedSite, plan=plan_of(0.01))
    monkeypatch.setattr(SiteRuntime, "_protect", crash)
    with pytest.raises(KeyboardInterrupt):
        handle.sum(ClippedSite.clipped_sum, Nothing())
    assert spent_at(tmp_path) == pytest.approx(0.01)


def test_a_step_may_not_be_called_more_often_than_planned():
    handle = federate_privately().begin(ClippedSite, plan=plan_of(0.1))
    handle.sum(ClippedSite.clipped_sum, Nothing())
    with pytest.raises(ConfigurationError, match="planned 1 times"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
    with pytest.raises(ConfigurationError, match="not planned"):
        handle.ask(ClippedSite.clipped_rows, Nothing())


def test_a_value_beyond_its_range_is_refused_and_not_clipped(monkeypatch):
    from support import toy_private

    monkeypatch.setattr(toy_private, "clip", lambda rows: rows * 1e9)
    with pytest.raises(DisclosureRefused, match="declared range"):
        federate_privately().begin(ClippedSite, plan=plan_of(0.1)).sum(ClippedSite.clipped_sum, Nothing())


@pytest.mark.parametrize(("secure", "factor"), [(False, 2.0), (True, 4.0)], ids=["unmasked", "masked"])
def test_patients_at_two_sites_are_charged_for_both(secure, factor):
    federation = federate_privately(secure_sum=secure, sites_per_patient=2)
    model = PrivateMean(epsilon=1.0).fit(federation)
    assert rho_of_epsilon(model.privacy_.epsilon, DELTA) == pytest.approx(factor * rho_of_epsilon(1.0, DELTA))
    assert "up to 2 sites" in str(model.privacy_)


def test_losing_too_many_sites_leaves_the_budget_spent(tmp_path):
    federation = federate_privately(secure_sum=True, policy=budget(1.0, tmp_path), faults=Faults(lose={"site-2": 3}))
    with pytest.raises(QuorumLost):
        PrivateMean(epsilon=0.9).fit(federation)
    assert spent_at(tmp_path) in (0.0, pytest.approx(rho_of_epsilon(0.9, DELTA)))


def ages(n, value=50.0):
    return {f"site-{i}": np.full((n, 4), value) for i in range(3)}


def test_the_ledger_contains_no_trace_of_the_value_without_noise():
    federation = federate_privately(ages(137))
    handle = federation.begin(ClippedSite, plan=plan_of(0.5, step=ClippedSite.clipped_rows))
    answers = handle.ask(ClippedSite.clipped_rows, Nothing())
    entry = next(e for e in federation.ledgers["site-0"].entries if e.get("rho"))
    hashes = {field["field"]: field["sha256"] for field in entry["fields"]}
    counted = answers["site-0"].patients_counted
    assert hashes["patients_counted"] == hashlib.sha256(repr(counted).encode()).hexdigest()
    assert hashlib.sha256(repr(137.0).encode()).hexdigest() not in hashes.values()
    assert {field["bytes"] for field in entry["fields"]} == {8, 32}


def test_what_is_refused_after_all_is_not_paid_for(tmp_path, monkeypatch):
    from support import toy_private

    monkeypatch.setattr(toy_private, "clip", lambda rows: rows * 1e9)
    federation = federate_privately(policy=budget(1.0, tmp_path))
    with pytest.raises(DataError, match="failed on the data of this site"):
        federation.begin(ClippedSite, plan=plan_of(0.01)).sum(ClippedSite.clipped_sum, Nothing())
    assert spent_at(tmp_path) == 0.0


def test_with_a_budget_an_error_contains_nothing_of_the_data(tmp_path, monkeypatch, caplog):
    from support import toy_private

    def picky(rows):
        raise DataError(f"all {len(rows)} entries are equal", where="column age")

    monkeypatch.setattr(toy_private, "clip", picky)
    federation = federate_privately(policy=budget(1.0, tmp_path))
    handle = federation.begin(ClippedSite, plan=plan_of(0.01, times=9))
    for _ in range(3):
        with pytest.raises(DataError, match="failed on the data of this site") as told:
            handle.sum(ClippedSite.clipped_sum, Nothing())
        assert "200" not in str(told.value)
        assert "age" not in str(told.value)
    assert "all 200 entries are equal" in caplog.text
    with pytest.raises(RefusedByPolicy, match="at most 3 steps may fail at a site with a privacy budget"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
    assert spent_at(tmp_path) == 0.0


def test_noise_that_cannot_be_drawn_is_refused_before_it_is_paid_for(tmp_path):
    handle = federate_privately(policy=budget(1.0, tmp_path)).begin(ClippedSite, plan=plan_of(1e-40))
    with pytest.raises((ConfigurationError, RefusedByPolicy), match="steps of the field's grid"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
    assert spent_at(tmp_path) == 0.0


class Twisting:
    """A coordinator's engine that tells all sites but the first something else of the noise."""

    def __init__(self, engine, noise):
        self._engine = engine
        self._noise = noise

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def exchange(self, calls, time_limit_s):
        first = next(iter(calls))
        twisted = {
            site: call if site == first or call.noise is None else dataclasses.replace(call, noise=self._noise)
            for site, call in calls.items()
        }
        return covered_up(self._engine.exchange(twisted, time_limit_s))


@pytest.mark.parametrize("noise", [None, Noise("gaussian", {"total": 1e-3, "patients_counted": 1e-3})])
@pytest.mark.parametrize("quorum", ["all", 3])
def test_sites_that_were_told_different_noise_give_a_sum_that_nobody_can_read(noise, quorum, monkeypatch):
    totals = []

    def decode(kind, total, *rest, **more):
        totals.append(total.copy())
        return fixed_point.decode_release(kind, total, *rest, **more)

    monkeypatch.setattr(rounds, "decode_release", decode)
    federation = federate_privately({f"s{i}": np.zeros((20, 500)) for i in range(4)}, secure_sum=True, quorum=quorum)
    federation = with_engine(federation, Twisting(federation.engine, noise))
    handle = federation.begin(ClippedSite, plan=plan_of(0.5))
    with pytest.raises(IntegrityError, match=r"the masks of the sites must cancel in the sum; they do not"):
        handle.sum(ClippedSite.clipped_sum, Nothing())
    assert stats.kstest(totals[0] / 2.0**64, "uniform").pvalue > 1e-7


def test_a_smaller_number_of_colluding_sites_than_the_policy_names_is_refused(tmp_path):
    call = Call(
        "study",
        "0.1",
        1,
        ClippedSite.clipped_sum,
        Nothing(),
        ("a", "b", "c"),
        Mask("first", 0, 3, 0),
        plan_of(0.1).releases[0].noise,
    )
    gate = Guard(mc.Policy(colluding_sites=1), Ledger())
    with pytest.raises(RefusedByPolicy, match="colluding"):
        gate.admit(call)
    gate.admit(dataclasses.replace(call, mask=Mask("first", 0, 3, 1)))
    with pytest.raises(RefusedByPolicy, match="share the noise"):
        gate.admit(dataclasses.replace(call, mask=Mask("first", 0, 10**6, 1)))


@pytest.mark.parametrize("colluding", [0, 1])
def test_a_masked_call_without_keys_is_refused_before_it_is_paid_for(colluding, tmp_path):
    federation = federate_privately(secure_sum=True, policy=budget(1.0, tmp_path, colluding_sites=colluding))
    handle = federation.begin(ClippedSite, plan=plan_of(0.01))
    with pytest.raises(ConfigurationError, match="keys must be agreed"):
        handle.collect(ClippedSite.clipped_sum, Nothing(), mask=Mask("forged", 0, 3, colluding))
    assert spent_at(tmp_path) == 0.0


@pytest.mark.parametrize(
    ("secure", "quorum", "colluding"),
    [(False, "all", 0), (True, "all", 0), (True, 4, 0), (True, "all", 2), (True, 5, 1)],
)
def test_the_coordinator_knows_how_much_noise_there_is(secure, quorum, colluding):
    d = 30_000
    policy = mc.Policy(colluding_sites=colluding)
    sites = {f"s{i}": np.zeros((20, d)) for i in range(6)}
    handle = federate_privately(sites, secure_sum=secure, quorum=quorum, policy=policy).begin(
        ClippedSite, plan=plan_of(0.5)
    )
    total = handle.sum(ClippedSite.clipped_sum, Nothing()).total
    assert total.std() == pytest.approx(math.sqrt(2.0) * handle.noise_spread, rel=SLACK / math.sqrt(2 * d))
    assert handle.noise_spread >= 1


def test_a_site_without_the_sampler_says_so_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("multicentre.privacy.mechanisms.find_spec", lambda name: None)
    federation = federate_privately(policy=budget(1.0, tmp_path))
    with pytest.raises(MissingExtra, match=r"pip install 'multicentre\[dp\]'"):
        PrivateMean(epsilon=0.5).fit(federation)
    assert spent_at(tmp_path) == 0.0


def test_with_a_budget_no_error_of_a_step_describes_the_data(tmp_path):
    sites = {name: mc.data.MultiViewData({"v": np.random.default_rng(1).normal(size=(137, 3))}) for name in "abc"}
    federation = mc.Federation.in_process(sites, policy=budget(1.0, tmp_path))
    handle = federation.begin(MvPPCASite)
    handle.ask(MvPPCASite.prepare, dataclasses.replace(ONE_VIEW, n_components=2))
    with pytest.raises(RefusedByPolicy, match="answers must have noise if the policy has a privacy budget"):
        handle.ask(MvPPCASite.check_enough_rows, Nothing())
    with pytest.raises(DataError, match="failed on the data of this site") as told:
        handle.ask(MvPPCASite.prepare, dataclasses.replace(ONE_VIEW, columns={"v": ("x", "y", "z")}))
    assert "x" not in told.value.what
    failures = [entry for entry in federation.ledgers["a"].entries if entry["event"] == "failure"]
    assert len(failures) == 1


ONE_VIEW = Standards(
    views=("v",),
    columns={"v": tuple(mc.data.MultiViewData({"v": np.eye(20)[:, :3]}).columns["v"])},
    sizes={"v": 3},
    centre=np.zeros(3),
    spread=np.ones(3),
    noise="isotropic",
    incomplete=False,
    complete=False,
    n_components=1,
    case_mix_weight=0.0,
)


def test_hiding_a_policy_on_colluding_sites_from_the_others_makes_sums_unreadable():
    federation = federate_privately(
        {f"s{i}": np.zeros((20, 100)) for i in range(5)},
        secure_sum=True,
        policy={"s0": mc.Policy(colluding_sites=2), **{f"s{i}": mc.Policy() for i in range(1, 5)}},
    )
    exchange = federation.engine.exchange

    def twisted(calls, time_limit_s):
        told = {site: call if site == "s0" else without_colluding(call) for site, call in calls.items()}
        return exchange(told, time_limit_s)

    federation.engine.exchange = twisted
    with pytest.raises((IntegrityError, RefusedByPolicy, ConfigurationError)):
        federation.begin(ClippedSite, plan=plan_of(0.5)).sum(ClippedSite.clipped_sum, Nothing())


def without_colluding(call):
    if isinstance(call.request, Invitation):
        call = dataclasses.replace(call, request=dataclasses.replace(call.request, n_colluding=0))
    return call if call.mask is None else dataclasses.replace(call, mask=dataclasses.replace(call.mask, colluding=0))


def test_noise_of_sites_that_were_lost_after_their_values_arrived_is_counted():
    d = 30_000
    sites = {f"s{i}": np.zeros((20, d)) for i in range(5)}
    losing = Faults(lose={"s3": "unmask", "s4": "unmask"})
    handle = federate_privately(sites, secure_sum=True, quorum=3, faults=losing).begin(ClippedSite, plan=plan_of(0.5))
    total = handle.sum(ClippedSite.clipped_sum, Nothing()).total
    assert handle.sites == ("s0", "s1", "s2")
    assert handle.noise_spread == pytest.approx(math.sqrt(5 / 3))
    assert total.std() == pytest.approx(math.sqrt(2.0) * handle.noise_spread, rel=SLACK / math.sqrt(2 * d))
