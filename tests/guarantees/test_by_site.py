"""Estimates of single sites: the guard of each site decides, refusals are named, and every round is recorded."""

import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics import combine
from multicentre.errors import CombinationWarning, ConfigurationError, NoiseWarning
from multicentre.privacy.budget import total_spent
from multicentre.privacy.ledger import read_ledger
from support.event_sites import simulate_events

SIZES = {"lyon": 150, "oslo": 160, "small": 8, "turin": 170}


def patients(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    died = (rng.random(n) < 1.0 / (1.0 + np.exp(0.3 - 0.8 * X[:, 0]))).astype(int)
    return mc.data.TableData(X, died, columns=["age", "dose"], classes=["no", "yes"])


def federation_of():
    sites = {name: patients(n, seed) for seed, (name, n) in enumerate(SIZES.items())}
    policies = dict.fromkeys(SIZES, mc.Policy(min_patients=5)) | {"oslo": mc.Policy(secure_sums_only=True)}
    return sites, mc.Federation.in_process(sites, policy=policies)


@pytest.fixture(scope="module")
def fit():
    sites, federation = federation_of()
    model = mc.regression.FedLogisticRegression().fit(federation)
    before = {name: len(ledger.entries) for name, ledger in federation.ledgers.items()}
    return sites, federation, before, model, model.by_site()


def test_a_sites_estimates_are_those_of_its_patients(fit):
    sites, _, _, _, estimates = fit
    open_policy = mc.Policy(min_patients=0)
    alone = mc.regression.FedLogisticRegression().fit(
        mc.Federation.in_process({"turin": sites["turin"]}, policy=open_policy)
    )
    place = estimates.sites.index("turin")
    np.testing.assert_allclose(estimates.estimates[place], alone.model_.values, rtol=1e-8)
    np.testing.assert_allclose(estimates.standard_errors[place], alone.standard_errors_, rtol=1e-8)


def test_a_policy_of_secure_sums_and_a_small_site_refuse_and_are_named(fit):
    _, _, _, _, estimates = fit
    assert set(estimates.refused) == {"oslo", "small"}
    assert "secure_sums_only" in estimates.refused["oslo"]
    assert "patients behind it" in estimates.refused["small"] or "coefficients" in estimates.refused["small"]
    assert np.isnan(estimates.estimates[[1, 2]]).all()
    with pytest.warns(CombinationWarning, match="between two sites"):
        combined = combine(estimates)["age"]
    assert combined.sites == ("lyon", "turin")
    assert set(combined.left_out) == {"oslo", "small"}


def test_every_release_and_refusal_is_in_the_ledger_as_unmasked(fit):
    _, federation, before, _, _ = fit
    for site in ("lyon", "turin"):
        entries = federation.ledgers[site].entries[before[site] :]
        assert {entry["event"] for entry in entries} == {"release"}
        assert {"sum_columns", "sum_derivatives"} <= {entry["step"] for entry in entries}
        assert {entry["protection"] for entry in entries} == {"unmasked"}
    for site in ("oslo", "small"):
        entries = federation.ledgers[site].entries[before[site] :]
        refusals = [entry for entry in entries if entry["event"] == "refusal"]
        released = [entry["step"] for entry in entries if entry["event"] == "release"]
        assert len(refusals) == 1
        assert not {"sum_columns", "sum_products", "sum_derivatives"} & set(released)


def test_a_refusal_of_one_site_leaves_the_fit_as_it_was(fit):
    _, _, _, model, _ = fit
    again = model.fit_each_site()
    assert set(again) == {"lyon", "turin"}
    assert model.session.sites == tuple(SIZES)
    assert not model.left_out_


def test_a_site_whose_data_do_not_permit_the_fit_is_named():
    sites = {name: patients(100, seed) for seed, name in enumerate(("lyon", "oslo", "turin"))}
    dependent = sites["oslo"].X.copy()
    dependent[:, 1] = 2.0 * dependent[:, 0]
    sites["oslo"] = mc.data.TableData(dependent, sites["oslo"].y, columns=["age", "dose"], classes=["no", "yes"])
    with mc.Federation.in_process(sites) as federation:
        estimates = mc.regression.FedLogisticRegression().fit(federation).by_site()
    assert list(estimates.refused) == ["oslo"]
    assert "dose" in estimates.refused["oslo"]


def test_views_of_the_same_patients_have_no_fits_of_single_sites():
    with pytest.raises(ConfigurationError, match="sites of FedMSGL hold different views"):
        mc.clustering.FedMSGL(2).fit_each_site()


@pytest.mark.slow
def test_private_fits_of_single_sites_are_charged(tmp_path):
    events = simulate_events()
    policy = mc.Policy(epsilon=9.0, delta=1e-5, account=str(tmp_path / "account.jsonl"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        federation = mc.Federation.in_process(events.sites(2), policy=policy)
        parameters = {"n_codes": {"diagnosis": 6}, "n_private_rounds": 2, "vocabulary": events.tensor.codes}
        model = mc.phenotyping.DPFact(3, epsilon=2.0, **parameters).fit(federation)
        once = {site: spent_at(tmp_path, site) for site in federation.sites}
        answers = model.fit_each_site()
    assert set(answers) == set(federation.sites)
    for site, rho in once.items():
        assert spent_at(tmp_path, site) == pytest.approx(2 * rho)


def spent_at(folder, site):
    return total_spent(read_ledger(folder / f"account.{site}.jsonl")).rho
