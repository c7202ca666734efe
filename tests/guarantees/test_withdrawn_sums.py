"""A coordinator that leads one site to withdraw its sums learns nothing about the others from the total."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import DisclosureRefused
from multicentre.regression import messages
from multicentre.regression.site import RegressionSite

N = 60


def sites_of(seed, *, tail):
    """Return three sites; with `tail`, a patient of the last one has a value of 40 standard deviations."""
    sites = {}
    for number, site in enumerate("abc"):
        rng = np.random.default_rng(10 * number + (seed if site == "b" else 0))
        X = rng.normal(size=(N, 1))
        y = rng.poisson(2.0, N).astype(float)
        if site == "c" and tail:
            X[0] = 40.0
        sites[site] = mc.data.TableData(X, y, columns=["visits"], outcome="number")
    return sites


def ask(seed, coefficient, *, masked, tentative=True):
    """Return the sums at a coefficient that the coordinator chooses."""
    federation = mc.Federation.in_process(sites_of(seed, tail=masked), secure_sum=masked)
    session = federation.begin(RegressionSite)
    model = messages.Model("poisson", "log", "", "", "", True)
    session.sum(RegressionSite.sum_columns, model)
    fields = {name: getattr(model, name) for name in messages.Model.declarations()}
    at = messages.At(
        **fields,
        centre=np.zeros(1),
        mean=2.0,
        spread=np.ones(1),
        scale=1.0,
        coefficients=np.array([0.5, coefficient]),
        tentative=tentative,
    )
    return session.sum(RegressionSite.sum_derivatives, at), federation


def test_the_total_without_a_withdrawn_summand_has_no_meaning():
    exact, _ = ask(0, 0.0, masked=True)
    assert exact.n_withdrawn == pytest.approx(0.0, abs=1e-6)
    totals = [ask(0, 0.3, masked=True)[0] for _ in range(3)]
    for total in totals:
        assert total.n_withdrawn == pytest.approx(1.0, abs=1e-6)
        # The information on three sites of 60 patients is a few hundred; the declared range is four billion.
        assert np.abs(total.information).max() > 1e5
    spread = np.std([total.deviance for total in totals])
    assert spread > 1e5


def test_another_patient_at_another_site_moves_the_total_by_less_than_its_noise():
    totals = [[ask(seed, 0.3, masked=True)[0].gradient for _ in range(3)] for seed in (0, 1)]
    between = np.abs(np.mean(totals[0], axis=0) - np.mean(totals[1], axis=0))
    within = np.std(totals, axis=(0, 1))
    assert (between < 10 * within).all()
    assert (within > 1e6).all()


def test_unmasked_the_site_says_only_that_it_withdrew():
    sums, federation = ask(0, 5.0, masked=False)
    assert sums.n_withdrawn == 3.0
    assert (sums.n_patients, sums.deviance) == (0.0, 0.0)
    assert not sums.information.any()
    for ledger in federation.ledgers.values():
        assert [entry["event"] for entry in ledger.entries if entry.get("step") == "sum_derivatives"] == ["release"]


@pytest.mark.parametrize("masked", [True, False])
def test_without_leave_to_withdraw_the_site_refuses(masked):
    with pytest.raises(DisclosureRefused):
        ask(0, 0.3 if masked else 5.0, masked=masked, tentative=False)


def test_the_fit_ends_at_the_maximum_and_the_ledger_has_every_answer():
    """The second moments lead the first step to a point at which one patient makes the mean of a site."""
    rng = np.random.default_rng(1)
    visits = np.round(rng.lognormal(0.5, 1.6, 900))
    y = rng.poisson(np.exp(0.2 + 0.3 * np.log1p(visits))).astype(float)
    sites = {
        f"s{k}": mc.data.TableData(visits[k::3, None], y[k::3], columns=["visits"], outcome="number") for k in range(3)
    }
    federation = mc.Federation.in_process(sites)
    model = mc.regression.FedGLM("poisson").fit(federation)
    assert model.converged_
    shares = [entry["step_size"] for entry in model.history_]
    assert min(shares) < 1.0
    for ledger in federation.ledgers.values():
        released = [entry for entry in ledger.entries if entry.get("step") == "sum_derivatives"]
        assert len(released) >= len(model.history_)


def long_tail():
    """Return three sites; some patients have a value of several standard deviations, which multiplies their hazard."""
    rng = np.random.default_rng(1)
    dose, age = np.exp(0.8 * rng.normal(size=900)), rng.normal(size=900)
    time = np.ceil(4 * np.clip(rng.exponential(np.exp(-2.0 * np.log(dose) - 0.5 * age)), 0.01, 0.99)) / 4
    end, X = rng.integers(1, 5, 900) / 4, np.column_stack([dose, age])
    whole = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=["dose", "age"])
    return {f"s{k}": whole.take(np.arange(k, 900, 3)) for k in range(3)}


@pytest.mark.parametrize(
    ("model", "step"),
    [
        (mc.survival.FedCox(n_times=3), "sum_derivatives"),
        (mc.survival.FedCox("grid", n_times=4, horizon=1.0), "sum_risk"),
        (mc.survival.FedMixedCox(n_times=4, horizon=1.0), "sum_risk"),
    ],
)
def test_a_hazard_ratio_whose_first_step_is_too_long_is_that_of_masked_sums(model, step):
    sites = long_tail()
    masked = model.fit(mc.Federation.in_process(sites)).coef_
    federation = mc.Federation.in_process(sites, secure_sum=False)
    model.fit(federation)
    assert model.converged_
    assert min(entry["step_size"] for entry in model.history_) < 1.0
    np.testing.assert_allclose(model.coef_, masked, rtol=1e-5)
    for ledger in federation.ledgers.values():
        released = [entry for entry in ledger.entries if entry.get("step") == step]
        assert all(entry["event"] == "release" for entry in released)
        assert min(field["records"] for entry in released for field in entry["fields"]) >= 10
