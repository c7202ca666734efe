"""The accountant composes mechanisms, and `mc.privacy` exposes what users need."""

import math

import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.privacy.conversions import epsilon_of_gdp, epsilon_of_zcdp


def test_gaussian_noise_composes_exactly():
    accountant = mc.privacy.Accountant()
    accountant.spend("gaussian", 4.0)
    accountant.spend("gaussian", 2.0, times=3)
    mu = math.sqrt(1 / 4.0**2 + 3 / 2.0**2)
    assert accountant.epsilon(1e-6) == pytest.approx(epsilon_of_gdp(mu, 1e-6))


def test_mixed_noise_composes_by_zcdp():
    accountant = mc.privacy.Accountant()
    accountant.spend("gaussian", 4.0)
    accountant.spend("laplace", 4.0)
    assert accountant.epsilon(1e-5) == pytest.approx(epsilon_of_zcdp(2 / 32, 1e-5))


def test_laplace_noise_costs_at_most_its_pure_epsilon():
    accountant = mc.privacy.Accountant()
    accountant.spend("laplace", 10.0, times=2)
    assert accountant.epsilon(1e-12) == pytest.approx(0.2)


def test_nothing_spent_costs_nothing():
    assert mc.privacy.Accountant().epsilon() == 0.0


def test_sites_with_the_same_patient_add_up():
    alone, twice = mc.privacy.Accountant(), mc.privacy.Accountant(sites_per_patient=2)
    alone.spend("gaussian", 5.0, times=2)
    twice.spend("gaussian", 5.0)
    assert twice.epsilon() == pytest.approx(alone.epsilon())


@pytest.mark.parametrize(
    ("arguments", "options", "where"),
    [
        (("uniform", 1.0), {}, "mechanism"),
        (("gaussian", 0.0), {}, "noise_multiplier"),
        (("gaussian", math.nan), {}, "noise_multiplier"),
        (("gaussian", 1.0), {"times": 0}, "times"),
        (("gaussian", 1.0), {"times": 1.5}, "times"),
    ],
)
def test_a_parameter_out_of_range_is_refused_and_nothing_is_spent(arguments, options, where):
    accountant = mc.privacy.Accountant()
    with pytest.raises(ConfigurationError) as caught:
        accountant.spend(*arguments, **options)
    assert caught.value.where == where
    assert accountant.spent.rho == 0.0


def test_a_number_of_sites_out_of_range_is_refused():
    with pytest.raises(ConfigurationError, match="sites_per_patient"):
        mc.privacy.Accountant(sites_per_patient=0)


@pytest.mark.parametrize("name", mc.privacy.__all__)
def test_public_names_exist(name):
    assert getattr(mc.privacy, name).__name__ == name
    assert name in dir(mc.privacy)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        mc.privacy.nothing_of_the_kind  # noqa: B018


def test_a_ledger_of_a_run_can_be_read(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mc.privacy.Ledger(path).append("refusal", {"reason": "too few patients"})
    (entry,) = mc.privacy.read_ledger(str(path))
    assert entry["reason"] == "too few patients"
