"""Cox model with effects of sites: likelihood of a site, and results that are exact, refused or marked."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, LeftOutWarning, SeparationWarning
from multicentre.survival import FedCox, FedMixedCox
from multicentre.survival.mixed_cox.maths import SMALLEST_VARIANCE, VarianceSearch, site_effect, variance_excess

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


@pytest.mark.parametrize("times", ["grid", "exact"])
def test_a_constant_column_is_refused_by_name(times):
    with pytest.raises(DataError, match=r"columns must vary.* in dose"):
        FedMixedCox(times=times).fit(federate(sites_of(constant=True)))


@pytest.mark.parametrize("seed", [32, 89])
def test_a_small_variance_has_errors_masked_or_not(seed):
    """The step of its logarithm is within rounding at the maximum: of gamma functions, or of masked sums."""
    rng, sites = np.random.default_rng(seed), {}
    for number in range(30):
        x, effect = rng.normal(size=40), 0.1 * rng.normal()
        time, end = rng.exponential(np.exp(-0.5 * x - effect)), rng.exponential(2.0, 40)
        sites[f"s{number:02d}"] = mc.data.SurvivalData(x[:, None], np.minimum(time, end), time <= end, columns=["x"])
    masked, unmasked = (FedMixedCox().fit(federate(sites, secure=secure)) for secure in (True, False))
    assert masked.converged_
    assert unmasked.converged_
    assert 1e-5 < unmasked.variance_ < 1e-3
    assert masked.variance_ == pytest.approx(unmasked.variance_, rel=1e-3)
    assert masked.standard_errors_ == pytest.approx(unmasked.standard_errors_, rel=1e-6)


@pytest.mark.parametrize("variance", [1e-6, 1e-3, 0.5, 20.0])
@pytest.mark.parametrize("n_events", [0.0, 1.0, 250.0])
def test_a_gamma_effect_is_that_of_gamma_functions(variance, n_events):
    nu, hazard = 1.0 / variance, 3.7
    value = gammaln(nu + n_events) - gammaln(nu) + nu * np.log(nu) - (nu + n_events) * np.log(nu + hazard)
    size = 1.0 + abs(nu * np.log(nu))
    assert site_effect("gamma", variance, n_events, hazard).value == pytest.approx(value, abs=1e-14 * size, rel=1e-10)


def test_one_site_shows_no_variance_between_sites():
    with pytest.raises(DataError, match="at least two sites"):
        FedMixedCox().fit(federate(sites_of(1)))


def test_sites_without_differences_have_no_table():
    data = sites_of(1)["s0"]
    model = FedMixedCox(times="exact").fit(federate({f"s{number}": data for number in range(3)}))
    with pytest.raises(ConfigurationError, match="must be positive"):
        model.site_effects_table()


def alike(seed, n_sites=4):
    """Return sites whose patients have the same hazard."""
    sites, rng = {}, np.random.default_rng(seed)
    for number in range(n_sites):
        X = rng.normal(size=(40, 2))
        time, end = rng.exponential(10.0 * np.exp(-0.4 * X[:, 0])), rng.uniform(3.0, 30.0, 40)
        sites[f"s{number}"] = mc.data.SurvivalData(
            X, np.ceil(np.minimum(time, end)), time <= end, columns=["age", "dose"]
        )
    return sites


# Seeds whose estimated variance is 0: R's frailty(site, distribution="gaussian", sparse=FALSE) ends below 1e-7.
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("distribution", ["gamma", "gaussian"])
def test_a_variance_of_0_is_the_fit_without_effects_of_sites(distribution, secure, seed):
    sites = alike(seed)
    model = FedMixedCox(distribution, n_times=16).fit(federate(sites, secure=secure))
    expected = FedCox("grid", n_times=16, ties="breslow").fit(federate(sites, secure=secure))
    assert model.converged_
    assert model.variance_ == 0.0
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-6)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-6)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    assert model.model_.baseline == pytest.approx(expected.model_.baseline, rel=1e-6)
    assert model.summary().attrs["remark"].endswith(f"{distribution} effects of sites, variance 0.")


def excess_of(variance, errors, between):
    """Return the excess of the variance where sites' estimates have normal errors, and a variance between them."""
    shrunk = variance / (variance + errors)
    return variance_excess(variance, np.mean(shrunk**2) * between, np.mean(shrunk * errors))


@pytest.mark.parametrize("within", [1e-3, 0.02, 0.3, 3.0])
@pytest.mark.parametrize("ratio", [0.1, 0.9, 1.05, 2.0, 30.0, 1000.0])
@pytest.mark.parametrize("spread", [1.0, 4.0], ids=["equal errors", "unequal errors"])
def test_the_search_for_the_variance_ends_at_its_root_or_at_0(within, ratio, spread):
    errors, between = within * np.array([1.0 / spread, 1.0, spread]), within * ratio
    search, n_changes, has_ended = VarianceSearch(), 0, False
    while not has_ended and n_changes < 20:
        following = search.following(excess_of(search.variance, errors, between))
        if following is search:
            break
        has_ended = abs(following.variance / search.variance - 1.0) < 1e-6
        search, n_changes = following, n_changes + 1
    assert n_changes <= 12
    if excess_of(SMALLEST_VARIANCE, errors, between) <= 0.0:
        assert search.variance == SMALLEST_VARIANCE
    else:
        root = brentq(excess_of, SMALLEST_VARIANCE, 1e6, args=(errors, between), xtol=1e-12)
        assert search.variance == pytest.approx(root, rel=1e-5)


def of_sites(column):
    """Return sites whose second column is a function of the site and of the first column."""
    sites = {}
    for number, (site, data) in enumerate(sites_of().items()):
        X = data.X.copy()
        X[:, 1] = column(number, X[:, 0])
        sites[site] = mc.data.SurvivalData(X, data.time, data.event, columns=data.columns)
    return sites


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("times", ["grid", "exact"])
def test_a_column_that_is_constant_within_each_site_is_refused_by_name(times, secure):
    sites = of_sites(lambda number, age: float(number > 0))
    with pytest.raises(DataError, match=r"constant within each site.*: dose") as refusal:
        FedMixedCox("fixed", times=times, n_times=16).fit(federate(sites, secure=secure))
    assert "age" not in str(refusal.value)
    assert np.isfinite(FedMixedCox("gamma", n_times=16).fit(federate(sites)).standard_errors_).all()


def test_columns_that_depend_on_each_other_within_sites_are_refused():
    with pytest.raises(DataError, match="depend on others there: age, dose"):
        FedMixedCox("fixed", n_times=16).fit(federate(of_sites(lambda number, age: 2.0 * age + 5.0 * number)))


def test_a_column_that_varies_little_within_sites_is_not_refused():
    noise = np.random.default_rng(5).normal(size=60)
    sites = of_sites(lambda number, age: number + 0.02 * noise)
    with pytest.warns(UserWarning, match="^dose: fixed effects of sites leave less than a tenth"):
        model = FedMixedCox("fixed", n_times=16).fit(federate(sites, secure=True))
    assert np.isfinite(model.standard_errors_).all()


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize(
    ("distribution", "lost", "step"),
    [("gamma", "s3", "sum_effects"), ("fixed", "s0", "sum_effects"), ("gaussian", "s3", "sum_products")],
)
def test_a_fit_that_loses_a_site_is_that_of_the_remaining_sites(distribution, lost, step, secure):
    sites, faults = sites_of(4), Faults(lose={lost: step})
    federation = mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure, quorum=3, faults=faults)
    with pytest.warns(LeftOutWarning, match="1 of 4 sites"):
        model = FedMixedCox(distribution, n_times=16).fit(federation)
    remaining = {site: data for site, data in sites.items() if site != lost}
    expected = FedMixedCox(distribution, n_times=16).fit(federate(remaining, secure=secure))
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-7)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-7)
    assert model.variance_ == pytest.approx(expected.variance_, rel=1e-5)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    assert model.n_patients_ == expected.n_patients_ == 180
    assert list(model.left_out_) == [lost]
    assert lost in str(model.summary())
    effects, expected_effects = model.site_effects_table(), expected.site_effects_table()
    assert effects.index.tolist() == list(remaining)
    assert effects["effect"].to_numpy() == pytest.approx(expected_effects["effect"].to_numpy(), abs=1e-5)


def test_two_sites_of_which_one_is_lost_show_no_variance():
    options = {"policy": OPEN, "quorum": 1, "secure_sum": False, "faults": Faults(lose={"s1": "sum_effects"})}
    federation = mc.Federation.in_process(sites_of(2), **options)
    with pytest.warns(LeftOutWarning), pytest.raises(DataError, match="at least two sites"):
        FedMixedCox(n_times=16).fit(federation)


def test_predictions_are_those_of_a_site_with_the_mean_fixed_effect(tmp_path):
    sites = sites_of()
    model = FedMixedCox("fixed", times="exact").fit(federate(sites))
    renamed = {f"t{2 - number}": data for number, data in enumerate(sites.values())}  # another reference
    again = FedMixedCox("fixed", times="exact").fit(federate(renamed))
    assert again.model_.baseline == pytest.approx(model.model_.baseline, rel=1e-6)
    model.save(tmp_path)
    assert np.array_equal(FedMixedCox.load(tmp_path).predict(sites["s0"]), model.predict(sites["s0"]))


def test_fixed_effects_name_the_columns_of_which_they_leave_little():
    rng, sites = np.random.default_rng(2), {}
    for number in range(6):
        place, age = rng.normal(number, 0.2, 80), rng.normal(size=80)
        time = rng.exponential(np.exp(-0.3 * age))
        sites[f"s{number}"] = mc.data.SurvivalData(
            np.column_stack([age, place]), time, np.ones(80), columns=["age", "place"]
        )
    with pytest.warns(UserWarning, match=r"^place: fixed effects of sites leave less than a tenth"):
        FedMixedCox("fixed").fit(federate(sites))
    FedMixedCox("gamma").fit(federate(sites))  # a warning would be an error
