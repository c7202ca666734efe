"""A private regression keeps its promise: one patient's reach, the budget, and attacks by requests and by an audit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, RefusedByPolicy
from multicentre.privacy import charging
from multicentre.privacy.budget import total_spent
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.ledger import read_ledger
from multicentre.regression import FedGLM
from multicentre.regression import messages as plain
from multicentre.regression.private import maths, messages
from multicentre.regression.private.rounds import plan_noise
from multicentre.regression.site import RegressionSite
from multicentre.studies.audit import audit
from support.examples import examples

DELTA = 1e-5
BOUNDS = {"age": (20.0, 100.0), "dose": (-3.0, 3.0)}
FAMILIES = ["gaussian", "binomial"]


def patients(family, n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(60, 10, n), rng.normal(size=n)])
    mean = 0.1 * (X[:, 0] - 60) + X[:, 1]
    y = (mean + rng.logistic(size=n) > 0).astype(int) if family == "binomial" else 50 + mean + rng.normal(size=n)
    kind = {} if family == "binomial" else {"outcome": "number"}
    return mc.data.TableData(X, y, columns=list(BOUNDS), **kind)


def sites_of(data, n_sites=3):
    return {f"s{i}": data.take(np.arange(i, len(data), n_sites)) for i in range(n_sites)}


def private(family, epsilon=2.0):
    ends = {} if family == "binomial" else {"outcome_bounds": (30.0, 70.0)}
    return FedGLM(family, epsilon=epsilon, delta=DELTA, bounds=BOUNDS, **ends)


# --- one patient's reach ------------------------------------------------------------------------------------------

wild = st.one_of(st.floats(-1e300, 1e300), st.sampled_from([math.inf, -math.inf, 0.0, 1e-320]))


@given(rows=hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=wild), data=st.data())
@examples(150)
def test_one_patient_moves_each_sum_by_at_most_1(rows, data):
    n, d = rows.shape
    coefficients = data.draw(hnp.arrays(np.float64, d + 1, elements=st.floats(-1e6, 1e6)))
    lower = data.draw(hnp.arrays(np.float64, d, elements=st.floats(-1e6, 1e6)))
    upper = lower + data.draw(hnp.arrays(np.float64, d, elements=st.floats(1e-9, 1e6)))
    scaled, _ = maths.scale_to_box(rows, lower, np.maximum(upper, np.nextafter(lower, np.inf)))
    scaled = np.column_stack([np.ones(n), scaled])
    outcome = data.draw(hnp.arrays(np.float64, n, elements=st.sampled_from([0.0, 1.0])))

    def sums(count):
        table = np.column_stack([scaled, 2.0 * outcome - 1.0])[:count]
        return (maths.sum_moments(table), *maths.sum_logistic(scaled[:count], outcome[:count], coefficients))

    for before, after in zip(sums(n - 1), sums(n), strict=True):
        assert np.linalg.norm(after - before) <= 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_an_extreme_patient_moves_the_releases_of_a_site_by_at_most_1(family, monkeypatch):
    """The same through the site and its guard, with the noise set to 0."""
    monkeypatch.setattr(charging, "gaussian_noise", lambda shape, scale: np.zeros(shape, dtype=np.int64))
    monkeypatch.setattr(charging, "rounded_gaussian_noise", lambda shape, scale: np.zeros(shape, dtype=np.int64))
    data = patients(family)
    extreme = mc.data.TableData(
        np.vstack([data.X, [1e9, -1e9]]),
        np.append(data.y, 1 if family == "binomial" else 1e9),
        columns=data.columns,
        outcome=data.outcome,
    )
    box = messages.Box(family, np.array([20.0, -3.0]), np.array([100.0, 3.0]), 0.0, 1.0)
    moments = []
    for one in (data, extreme):
        federation = mc.Federation.in_process({"s": one}, secure_sum=False)
        session = federation.begin(RegressionSite, plan=plan_noise(family, 1.0, DELTA))
        moments.append(session.sum(RegressionSite.sum_private_moments, box))
    # Rounding to the grid of the noise moves each of 10 products by up to a millionth of the noise.
    assert np.linalg.norm(moments[1].products - moments[0].products) <= 1.0 + 1e-3
    assert moments[1].beyond - moments[0].beyond == pytest.approx(1.0, abs=1e-3)


# --- attacks by requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_without_noise_is_refused_during_a_private_fit_and_by_a_budget(family, tmp_path):
    model = plain.Model(family, "identity" if family == "gaussian" else "logit", "", "", "", True)
    federation = mc.Federation.in_process(sites_of(patients(family)))
    session = federation.begin(RegressionSite, plan=plan_noise(family, 1.0, DELTA))
    session.ask(RegressionSite.describe, Nothing())
    with pytest.raises(ConfigurationError, match="must be in the plan"):
        session.sum(RegressionSite.sum_columns, model)
    policy = mc.Policy(epsilon=1.0, account=str(tmp_path / "account.jsonl"))
    session = mc.Federation.in_process(sites_of(patients(family)), policy=policy).begin(RegressionSite)
    with pytest.raises(RefusedByPolicy, match="must have noise"):
        session.sum(RegressionSite.sum_columns, model)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("plan", [None, plan_noise("binomial", 1e9, DELTA)], ids=["no noise", "weak noise"])
def test_bounds_cannot_single_out_a_patient_without_noise(plan, secure):
    """Bounds just below and just above the age of one patient: the difference of both sums is the patient's outcome."""
    data = patients("binomial")
    ages = np.sort(data.X[:, 0])
    between = [0.5 * (ages[place] + ages[place + 1]) for place in (119, 120)]
    federation = mc.Federation.in_process(sites_of(data), secure_sum=secure)
    session = federation.begin(RegressionSite, plan=plan)
    box = messages.Box("binomial", np.array([between[0], -3.0]), np.array([between[0] + 1e-9, 3.0]), 0.0, 1.0)
    with pytest.raises(DisclosureRefused):
        session.sum(RegressionSite.sum_private_moments, box)
    at = messages.PrivateAt(*(getattr(box, name) for name in messages.Box.declarations()), np.zeros(3))
    with pytest.raises(DisclosureRefused):
        session.sum(RegressionSite.sum_private_derivatives, at)


def test_a_release_more_than_planned_is_refused():
    """Two noised sums about the same patients would halve the noise."""
    box = messages.Box("gaussian", np.array([20.0, -3.0]), np.array([100.0, 3.0]), 30.0, 70.0)
    federation = mc.Federation.in_process(sites_of(patients("gaussian")))
    session = federation.begin(RegressionSite, plan=plan_noise("gaussian", 1.0, DELTA))
    session.sum(RegressionSite.sum_private_moments, box)
    with pytest.raises(ConfigurationError, match="planned 1 times"):
        session.sum(RegressionSite.sum_private_moments, box)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [([0.0, 0.0], [0.0, 1.0]), ([1.0, 0.0], [0.0, 1.0]), ([0.0], [1.0]), ([-1e308] * 2, [1e308] * 2)],
)
def test_bounds_that_are_no_box_are_refused(lower, upper):
    federation = mc.Federation.in_process(sites_of(patients("gaussian")))
    session = federation.begin(RegressionSite, plan=plan_noise("gaussian", 1.0, DELTA))
    box = messages.Box("gaussian", np.array(lower), np.array(upper), 0.0, 1.0)
    with pytest.raises(MessageError, match="lower and upper bounds"):
        session.sum(RegressionSite.sum_private_moments, box)


def test_an_incomplete_patient_does_not_decide_on_a_refusal():
    """A site with complete records and one with none answer alike; only the policy's minimum of records refuses."""
    data = patients("gaussian")
    empty = data.with_arrays(X=np.full_like(data.X, np.nan))
    box = messages.Box("gaussian", np.array([20.0, -3.0]), np.array([100.0, 3.0]), 30.0, 70.0)
    for one in (data, empty):
        session = mc.Federation.in_process({"s": one}, secure_sum=False).begin(
            RegressionSite, plan=plan_noise("gaussian", 1.0, DELTA)
        )
        session.sum(RegressionSite.sum_private_moments, box)
    few = mc.Federation.in_process({"s": data.take(np.arange(3))}, secure_sum=False)
    with pytest.raises(DisclosureRefused, match="fewer patients than its policy's minimum"):
        few.begin(RegressionSite, plan=plan_noise("gaussian", 1.0, DELTA))


# --- budget and ledger --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::multicentre.errors.NoiseWarning")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_the_plan_is_paid_for_and_written_down(family, secure, tmp_path):
    policy = mc.Policy(epsilon=2.5, account=str(tmp_path / "account.jsonl"))

    def federate():
        sites = sites_of(patients(family))
        return mc.Federation.in_process(sites, policy=policy, secure_sum=secure, one_row_per_patient=True)

    federation = federate()
    model = private(family).fit(federation)
    assert model.privacy_.epsilon == pytest.approx(2.0, rel=1e-6)
    spent = total_spent(read_ledger(tmp_path / "account.s0.jsonl")).rho
    assert spent == pytest.approx(rho_of_epsilon(2.0, DELTA), rel=1e-6)
    entries = [entry for entry in federation.ledgers["s1"].entries if entry.get("rho")]
    assert sum(entry["rho"] for entry in entries) == pytest.approx(spent)
    assert {entry["noise"]["mechanism"] for entry in entries} == {"gaussian"}
    assert len(entries) == (1 if family == "gaussian" else 4)
    with pytest.raises(RefusedByPolicy, match="a plan of epsilon"):
        private(family).fit(federate())


def test_a_patient_with_several_records_is_refused():
    data = patients("gaussian").with_identifier([f"person-{row // 2}" for row in range(240)])
    with pytest.raises(mc.errors.MulticentreError, match="must have one record"):
        private("gaussian").fit(mc.Federation.in_process(sites_of(data, 1), secure_sum=False))


# --- audits -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::multicentre.errors.NoiseWarning")
@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("family", FAMILIES)
def test_an_audit_detects_a_missing_clip_before_any_run(family, monkeypatch):
    monkeypatch.setattr(
        "multicentre.regression.private.site.scale_to_box",
        lambda values, lower, upper: ((values - lower) / (upper - lower), np.zeros(values.shape, dtype=np.bool_)),
    )
    found = audit(private(family), sites_of(patients(family), 1), runs=10)
    assert found.verdict == "violated"
    assert found.sensitivity_ratio > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::multicentre.errors.NoiseWarning")
@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("family", FAMILIES)
def test_an_audit_finds_the_largest_change_that_is_declared(family):
    found = audit(private(family), sites_of(patients(family), 1), runs=10)
    assert found.verdict != "violated"
    assert 0.5 < found.sensitivity_ratio <= 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::multicentre.errors.NoiseWarning")
@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weak", [False, True], ids=["honest", "a sixth"])
def test_an_audit_agrees_with_honest_noise_and_catches_a_sixth_of_it(family, weak, monkeypatch):
    if weak:
        honest = charging.gaussian_noise
        monkeypatch.setattr(charging, "gaussian_noise", lambda shape, scale: honest(shape, scale / 6))
    found = audit(private(family), sites_of(patients(family), 1), runs=150)
    assert found.verdict == ("violated" if weak else "consistent"), str(found)
