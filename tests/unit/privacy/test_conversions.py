"""Composition and conversion of what noise costs, and the words of a guarantee."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import norm

from multicentre.errors import ConfigurationError
from multicentre.privacy.accountant import Spent, worst_patient
from multicentre.privacy.conversions import (
    epsilon_bun_steinke,
    epsilon_of_gdp,
    epsilon_of_zcdp,
    gdp_delta,
    rho_of_epsilon,
    zcdp_of_gaussian,
    zcdp_of_laplace,
)
from multicentre.privacy.guarantee import UNIT, Guarantee

rhos = st.floats(-6, 3).map(lambda exponent: 10.0**exponent)
deltas = st.floats(-12, -0.1).map(lambda exponent: 10.0**exponent)
epsilons = st.floats(-3, math.log10(200)).map(lambda exponent: 10.0**exponent)
spent = st.builds(Spent, st.one_of(st.just(0.0), rhos), st.booleans())


def up_to_rounding(smaller, larger):
    return smaller <= larger * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("releases", "paper", "bun_steinke", "zcdp", "gdp"),
    [
        (40, 1.2139, 1.2539, 0.9913, 0.88893),
        (98, 1.9001, 1.9981, 1.6384, 1.47762),
        (78, 1.6952, 1.7732, 1.4408, 1.29754),
    ],
)
def test_what_the_published_schedules_cost_at_delta_1e_4(releases, paper, bun_steinke, zcdp, gdp):
    rho = releases * zcdp_of_gaussian(1 / math.sqrt(2e-3))
    assert epsilon_bun_steinke(rho, 1e-4) - rho == pytest.approx(paper, abs=1e-4)
    assert epsilon_bun_steinke(rho, 1e-4) == pytest.approx(bun_steinke, abs=1e-4)
    assert epsilon_of_zcdp(rho, 1e-4) == pytest.approx(zcdp, abs=1e-4)
    assert epsilon_of_gdp(math.sqrt(2 * rho), 1e-4) == pytest.approx(gdp, abs=1e-5)


def test_the_rho_that_budgets_allow():
    table = {0.5: 0.01011, 1: 0.03593, 2: 0.12578, 4: 0.42775, 8: 1.38783}
    for epsilon, rho in table.items():
        assert rho_of_epsilon(epsilon, 1e-5) == pytest.approx(rho, abs=5.1e-6)


def test_rho_of_one_release():
    assert zcdp_of_gaussian(2.0) == 0.125
    assert zcdp_of_laplace(0.5) == 2.0
    assert zcdp_of_gaussian(math.inf) == 0
    assert zcdp_of_gaussian(1e-200) == math.inf


@pytest.mark.parametrize("epsilon", [0, 0.1, 1, 5, 20])
@pytest.mark.parametrize("mu", [0.2, 1, 4, 9])
def test_delta_is_the_hockey_stick_divergence_of_two_normals(mu, epsilon):
    x = np.linspace(-12, 12 + mu, 400_001)
    excess = np.maximum(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0)
    assert gdp_delta(mu, epsilon) == pytest.approx(np.trapezoid(excess, x), rel=1e-6, abs=1e-18)


@given(mu=st.floats(-6, math.log10(50)).map(lambda e: 10.0**e), epsilon=st.floats(0, 200))
def test_delta_is_finite_between_its_bounds_and_right_in_log_space(mu, epsilon):
    delta = gdp_delta(mu, epsilon)
    upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    assert 0 <= delta <= math.erf(mu / math.sqrt(8)) * (1 + 1e-9)
    first = log_ndtr(upper)
    plain = math.exp(first) * -math.expm1(min(epsilon + log_ndtr(lower) - first, 0.0))
    assert delta == pytest.approx(plain, rel=1e-9, abs=math.exp(first) * 1e-15 * (10 + lower**2))


def test_delta_at_the_ends_of_its_range():
    # The closed form in 200 digits, by mpmath 1.3.
    for mu, epsilon, delta in [
        (1e-6, 0.0, 3.989422804014160e-07),
        (1e-6, 5e-6, 5.3461788992627121e-14),
        (50.0, 200.0, 1.0),
        (50.0, 1250.0, 0.49202434210800699),
        (0.1, 2.0, 3.7194507268047236e-91),
        (6.0, 200.0, 3.4360194832155772e-203),
    ]:
        assert gdp_delta(mu, epsilon) == pytest.approx(delta, rel=1e-8)
    assert gdp_delta(0.0, 1.0) == 0
    assert gdp_delta(math.inf, 1.0) == 1
    assert gdp_delta(78.0, 0.0) == gdp_delta(1000.0, 1.0) == 1
    assert gdp_delta(1e-6, 200.0) == 0


@given(epsilons, deltas)
def test_a_budget_is_worth_what_it_was_made_from(epsilon, delta):
    assert epsilon_of_gdp(math.sqrt(2 * rho_of_epsilon(epsilon, delta)), delta) == pytest.approx(epsilon, rel=1e-9)


@given(rhos, deltas)
def test_what_an_epsilon_allows_is_what_was_spent(rho, delta):
    epsilon = epsilon_of_gdp(math.sqrt(2 * rho), delta)
    if epsilon > 1e-3:
        assert rho_of_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-9)


@given(rhos, deltas)
def test_each_conversion_is_tighter_than_the_next(rho, delta):
    exact, zcdp, simple = (
        epsilon_of_gdp(math.sqrt(2 * rho), delta),
        epsilon_of_zcdp(rho, delta),
        epsilon_bun_steinke(rho, delta),
    )
    assert up_to_rounding(exact, zcdp)
    assert zcdp <= simple


@given(rhos, deltas)
def test_the_bound_of_zcdp_is_the_least_over_every_order(rho, delta):
    excess = np.exp(np.linspace(-50, 50, 20_001))
    order = 1 + excess
    bounds = rho * order - np.log1p(1 / excess) - (math.log(delta) + np.log(order)) / excess
    least = max(0.0, bounds.min())  # of a grid, hence a little above the least of all
    assert least * (1 - 1e-3) - 1e-9 <= epsilon_of_zcdp(rho, delta) <= least * (1 + 1e-9) + 1e-9


@given(rhos, rhos, deltas, deltas, st.booleans())
def test_epsilon_grows_with_rho_and_falls_with_delta(rho, more, delta, other, gaussian):
    assert up_to_rounding(Spent(rho, gaussian).epsilon(delta), Spent(rho + more, gaussian).epsilon(delta))
    low, high = sorted((delta, other))
    assert up_to_rounding(Spent(rho, gaussian).epsilon(high), Spent(rho, gaussian).epsilon(low))


@given(st.lists(spent, max_size=4))
def test_composition_does_not_depend_on_the_order(releases):
    totals = [sum(order, Spent()) for order in itertools.permutations(releases)]
    assert len({total.gaussian for total in totals}) == 1
    for total in totals:
        assert total.rho == pytest.approx(math.fsum(one.rho for one in releases), rel=1e-12)
        assert total.gaussian == all(one.gaussian for one in releases if one.rho > 0)


@given(rhos, deltas)
def test_one_release_that_is_not_gaussian_takes_the_exact_conversion_away(rho, delta):
    mixed = Spent(rho) + Spent(rho, gaussian=False)
    assert mixed.epsilon(delta) == epsilon_of_zcdp(2 * rho, delta)
    assert (Spent(rho) + Spent(0.0, gaussian=False)).gaussian


def test_nothing_spent_costs_nothing_and_no_noise_costs_everything():
    assert Spent().epsilon(1e-5) == Spent(gaussian=False).epsilon(1e-5) == 0
    assert worst_patient({}) == Spent()
    for gaussian in (True, False):
        assert (Spent(math.inf, gaussian) + Spent(1.0)).epsilon(1e-5) == math.inf
    assert rho_of_epsilon(math.inf, 1e-5) == math.inf
    assert epsilon_bun_steinke(math.inf, 1e-5) == math.inf


def test_a_patient_at_k_sites_pays_k_times_or_under_shared_noise_its_square():
    assert Spent(0.02).at_sites(3, shared=False) == Spent(0.02) + Spent(0.02) + Spent(0.02)
    assert Spent(zcdp_of_gaussian(6.0)).at_sites(3, shared=True).rho == pytest.approx(zcdp_of_gaussian(2.0))
    assert Spent(zcdp_of_laplace(6.0), False).at_sites(2, shared=True) == Spent(zcdp_of_laplace(3.0), False)
    assert Spent(0.02).at_sites(1, shared=True) == Spent(0.02).at_sites(1, shared=False) == Spent(0.02)


@given(st.dictionaries(st.text(max_size=3), spent, min_size=1, max_size=5), st.integers(1, 6), deltas)
def test_the_worst_patient_covers_every_choice_of_k_sites(by_site, k, delta):
    worst = worst_patient(by_site, k)
    for sites in itertools.combinations(by_site, min(k, len(by_site))):
        total = sum((by_site[site] for site in sites), Spent())
        assert total.rho <= worst.rho * (1 + 1e-12)
        assert up_to_rounding(total.epsilon(delta), worst.epsilon(delta))
    if k >= len(by_site):
        assert worst.rho == pytest.approx(sum(one.rho for one in by_site.values()))


def test_a_guarantee_is_one_sentence():
    assert str(Guarantee(0.88893, 1e-5)) == (
        "(epsilon 0.889, delta 1e-05)-differential privacy for one patient: data sets are neighbours when one has all "
        "records of one patient more (add or remove); each patient is at one site."
    )
    assert str(Guarantee(1.0, 1e-6, "entry", "replace-one", 3)) == (
        "(epsilon 1, delta 1e-06)-differential privacy for one entry (one value of one patient's record): data sets "
        "are neighbours when one entry has a different value (replace one); each patient is at up to 3 sites; the "
        "same guarantee for one patient implies this one."
    )
    assert str(Guarantee(math.inf, 1e-5)).startswith("No differential privacy (epsilon is infinite) for one patient")
    assert Guarantee(1.0, 1e-5).unit == UNIT == "patient"


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (0.8890001, "0.89"),
        (0.889, "0.889"),
        (1.001, "1.01"),
        (9.991, "10"),
        (1234.1, "1240"),
        (3.2e-7, "3.2e-07"),
        (0, "0"),
    ],
)
def test_epsilon_is_rounded_up_at_the_third_digit(epsilon, said):
    assert f"(epsilon {said}, " in str(Guarantee(epsilon, 1e-5))


@given(st.floats(-8, 8).map(lambda exponent: 10.0**exponent), st.floats(1e-300, 0.999))
def test_a_guarantee_is_never_understated_beyond_rounding_errors(epsilon, delta):
    words = str(Guarantee(epsilon, delta))
    said_epsilon, said_delta = (float(word) for word in words.split(")")[0].removeprefix("(epsilon ").split(", delta "))
    assert epsilon * (1 - 1e-8) <= said_epsilon <= 1.0100001 * epsilon
    assert delta * (1 - 1e-8) <= said_delta <= 1.0100001 * delta


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda: zcdp_of_gaussian(0.0), "multiplier"),
        (lambda: zcdp_of_laplace(-1.0), "multiplier"),
        (lambda: zcdp_of_gaussian(math.nan), "multiplier"),
        (lambda: gdp_delta(-1.0, 1.0), "mu"),
        (lambda: gdp_delta(1.0, -1.0), "epsilon"),
        (lambda: epsilon_of_gdp(1.0, 0.0), "delta"),
        (lambda: epsilon_of_gdp(math.nan, 1e-5), "mu"),
        (lambda: epsilon_of_zcdp(1.0, 1.0), "delta"),
        (lambda: epsilon_of_zcdp(-1.0, 0.1), "rho"),
        (lambda: epsilon_bun_steinke(1.0, math.nan), "delta"),
        (lambda: rho_of_epsilon(0.0, 1e-5), "epsilon"),
        (lambda: rho_of_epsilon(1.0, -1e-5), "delta"),
        (lambda: Spent(-1.0), "rho"),
        (lambda: Spent(math.nan), "rho"),
        (lambda: Spent(1.0).epsilon(2.0), "delta"),
        (lambda: Spent().epsilon(0.0), "delta"),
        (lambda: Spent(0.0, gaussian=False).epsilon(0.0), "delta"),
        (lambda: Spent(1.0).at_sites(0, shared=True), "k"),
        (lambda: Spent(1.0).at_sites(True, shared=True), "k"),
        (lambda: worst_patient({"lyon": Spent(1.0)}, k=0), "k"),
        (lambda: worst_patient({"lyon": Spent(1.0)}, k=1.5), "k"),
        (lambda: Guarantee(-1.0, 1e-5), "epsilon"),
        (lambda: Guarantee(1.0, 0.0), "delta"),
        (lambda: Guarantee(1.0, 1e-5, "visit"), "unit"),
        (lambda: Guarantee(1.0, 1e-5, "patient", "swap"), "adjacency"),
        (lambda: Guarantee(1.0, 1e-5, sites_per_patient=0), "sites_per_patient"),
    ],
)
def test_an_unfit_value_is_refused_by_its_name(call, place):
    with pytest.raises(ConfigurationError) as refused:
        call()
    assert refused.value.where == place


def test_importing_the_module_does_not_import_scipy():
    code = "import sys, multicentre, multicentre.privacy.conversions; print('scipy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
