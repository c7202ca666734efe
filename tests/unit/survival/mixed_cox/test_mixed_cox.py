"""Cox model with effects of sites: likelihood of a site, and results that are exact, refused or marked."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, SeparationWarning
from multicentre.survival import FedMixedCox
from multicentre.survival.mixed_cox.maths import site_effect

OPEN = mc.Policy(min_patients=0, exact_times=True)
STEP = 1e-5


def sites_of(n_sites=3, *, without_events=None, constant=False):
    sites = {}
    for number in range(n_sites):
        rng = np.random.default_rng(number)
        X, time = rng.normal(size=(60, 2)), rng.exponential(10.0 * (1 + number), size=60)
        if constant:
            X[:, 1] = 1.0
        event = (rng.random(60) < 0.7) & (number != without_events)
        sites[f"s{number}"] = mc.data.SurvivalData(X, np.ceil(time), event, columns=["age", "dose"])
    return sites


def federate(sites, *, secure=False):
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@pytest.mark.parametrize("distribution", ["gamma", "gaussian", "fixed"])
def test_weight_and_bend_are_derivatives_by_the_hazard(distribution):
    variance = 0.0 if distribution == "fixed" else 0.4
    effect, low, high = (site_effect(distribution, variance, 7.0, 5.0 + move) for move in (0.0, -STEP, STEP))
    assert -effect.weight == pytest.approx((high.value - low.value) / (2 * STEP), rel=1e-8)
    assert effect.bend == pytest.approx((low.weight - high.weight) / (2 * STEP), rel=1e-7)


def test_derivatives_by_the_variance_are_differences():
    effect, low, high = (site_effect("gamma", 0.4 * np.exp(move), 7.0, 5.0) for move in (0.0, -STEP, STEP))
    slope, bend, cross = effect.by_variance
    assert slope == pytest.approx((high.value - low.value) / (2 * STEP), rel=1e-7)
    assert bend == pytest.approx((high.by_variance[0] - low.by_variance[0]) / (2 * STEP), rel=1e-7)
    assert cross == pytest.approx(-(high.weight - low.weight) / (2 * STEP), rel=1e-7)


def test_a_gamma_effect_is_integrated_out():
    shape, n_events, hazard = 2.5, 4.0, 3.0

    def joint(effect):
        density = shape * np.log(shape) - gammaln(shape) + (shape - 1.0) * np.log(effect) - shape * effect
        return np.exp(density + n_events * np.log(effect) - effect * hazard)

    expected = np.log(quad(joint, 0.0, np.inf)[0])
    assert site_effect("gamma", 1.0 / shape, n_events, hazard).value == pytest.approx(expected, rel=1e-8)


def test_a_site_without_events_has_no_fixed_effect():
    sites = sites_of(without_events=2)
    with pytest.warns(SeparationWarning, match="1 of 3 sites"):
        model = FedMixedCox("fixed", times="exact").fit(federate(sites))
    without = FedMixedCox("fixed", times="exact").fit(federate({site: sites[site] for site in ("s0", "s1")}))
    # Means over all patients scale the columns of the rounds, hence the rounding.
    assert model.coef_ == pytest.approx(without.coef_, rel=1e-6)
    assert model.standard_errors_ == pytest.approx(without.standard_errors_, rel=1e-6)
    assert model.site_effects_table()["effect"].isna().tolist() == [False, False, True]


def test_a_constant_column_has_no_error():
    with pytest.warns(UserWarning, match="carries no information"):
        model = FedMixedCox(times="exact").fit(federate(sites_of(constant=True)))
    assert model.coef_[1] == pytest.approx(0.0, abs=1e-8)
    assert np.isnan(model.standard_errors_).tolist() == [False, True]
    assert model.tests_["wald"].degrees_of_freedom == 1


def test_one_site_shows_no_variance_between_sites():
    with pytest.raises(DataError, match="at least two sites"):
        FedMixedCox().fit(federate(sites_of(1)))


def test_sites_without_differences_have_no_table():
    data = sites_of(1)["s0"]
    model = FedMixedCox(times="exact").fit(federate({f"s{number}": data for number in range(3)}))
    with pytest.raises(ConfigurationError, match="must be positive"):
        model.site_effects_table()


def test_predictions_are_those_of_a_site_with_the_mean_fixed_effect(tmp_path):
    sites = sites_of()
    model = FedMixedCox("fixed", times="exact").fit(federate(sites))
    renamed = {f"t{2 - number}": data for number, data in enumerate(sites.values())}  # another reference
    again = FedMixedCox("fixed", times="exact").fit(federate(renamed))
    assert again.model_.baseline == pytest.approx(model.model_.baseline, rel=1e-6)
    model.save(tmp_path)
    assert np.array_equal(FedMixedCox.load(tmp_path).predict(sites["s0"]), model.predict(sites["s0"]))
