"""Our accounting against Google's dp-accounting: privacy loss distributions, Renyi orders, and their composition."""

import math

import pytest

from multicentre.privacy.accountant import Spent
from multicentre.privacy.conversions import (
    epsilon_of_gdp,
    epsilon_of_zcdp,
    gdp_delta,
    rho_of_epsilon,
    zcdp_of_gaussian,
    zcdp_of_laplace,
)

dp_accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")
rdp = pytest.importorskip("dp_accounting.rdp")

STEADY = 1 / math.sqrt(2e-3)
COMPOSITIONS = {
    "one": {1.0: 1},
    "twenty rounds of two": {STEADY: 40},
    "ninety-eight": {STEADY: 98},
    "mixed": {0.8: 1, 3.0: 2, 10.0: 1, 50.0: 1},
    "little noise": {0.3: 1},
    "much noise": {200.0: 5},
}
DELTAS = [1e-3, 1e-5, 1e-9]


def composed(accountant, multipliers, event=dp_accounting.GaussianDpEvent):
    for multiplier, count in multipliers.items():
        accountant.compose(event(multiplier), count)
    return accountant


def spent_on(multipliers):
    return sum((Spent(count * zcdp_of_gaussian(z)) for z, count in multipliers.items()), Spent())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_gaussian_releases_cost_what_the_privacy_loss_distribution_says(name):
    oracle = composed(pld.PLDAccountant(), COMPOSITIONS[name])
    spent = spent_on(COMPOSITIONS[name])
    for delta in DELTAS:
        assert spent.epsilon(delta) == pytest.approx(oracle.get_epsilon(delta), abs=1e-4)
    for epsilon in (0.1, 1.0, 4.0):
        assert gdp_delta(math.sqrt(2 * spent.rho), epsilon) == pytest.approx(oracle.get_delta(epsilon), abs=1e-4)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_the_bound_of_zcdp_is_that_of_renyi_orders(name):
    orders = [1 + 10 ** (power / 1000) for power in range(-1000, 4000)]
    oracle = composed(rdp.RdpAccountant(orders), COMPOSITIONS[name])
    for delta in DELTAS:
        assert epsilon_of_zcdp(spent_on(COMPOSITIONS[name]).rho, delta) == pytest.approx(
            oracle.get_epsilon(delta), abs=1e-4
        )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 8])
def test_a_budget_spent_in_one_release_is_worth_its_epsilon(epsilon):
    rho = rho_of_epsilon(epsilon, 1e-5)
    oracle = composed(pld.PLDAccountant(), {1 / math.sqrt(2 * rho): 1})
    assert oracle.get_epsilon(1e-5) == pytest.approx(epsilon, abs=1e-4)


@pytest.mark.parametrize("count", [1, 30])
def test_the_bound_for_laplace_noise_covers_its_privacy_loss_distribution(count):
    multiplier = 5.0
    oracle = composed(pld.PLDAccountant(), {multiplier: count}, dp_accounting.LaplaceDpEvent)
    spent = Spent(count * zcdp_of_laplace(multiplier), gaussian=False)
    exact = oracle.get_epsilon(1e-5)
    assert exact <= spent.epsilon(1e-5)
    if count == 30:
        assert spent.epsilon(1e-5) < 1.35 * exact


def test_a_schedule_of_forty_releases():
    oracle = composed(pld.PLDAccountant(), {STEADY: 40})
    assert oracle.get_epsilon(1e-4) == pytest.approx(0.88893, abs=1e-4)
    assert epsilon_of_gdp(math.sqrt(0.08), 1e-4) == pytest.approx(0.88893, abs=1e-5)
