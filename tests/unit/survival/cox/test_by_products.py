"""Results next to the coefficients of a Cox model: each one that fails is marked, and the coefficients stay."""

import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused, ProtocolRefused, SeparationWarning
from multicentre.likelihood import newton
from multicentre.survival.cox import estimator

OPEN = mc.Policy(min_patients=0, exact_times=True)
MIXED = ("gamma", "gaussian", "fixed")


def separated(*, first):
    """Return sites whose patients of a rare level all have the event before the others, or never."""
    rng, sites = np.random.default_rng(0), {}
    for site in ("lyon", "oslo", "porto"):
        x, rare = rng.normal(size=150), (np.arange(150) < 10).astype(float)
        time = 0.02 + rng.exponential(np.exp(-0.5 * x))
        time = np.where(rare > 0, rng.uniform(0.001, 0.01, 150) if first else 3.0, time)
        event = np.where(rare > 0, first, rng.random(150) < 0.8)
        sites[site] = mc.data.SurvivalData(np.column_stack([x, rare]), time, event, columns=["x", "rare"])
    return sites


def by_level(sites):
    """Return the patients of each site and level as a site: its stratum is what the level's coefficient leaves."""
    strata = {}
    for site, data in sites.items():
        for level in (0.0, 1.0):
            part = data.take(np.flatnonzero(data.X[:, 1] == level))
            strata[f"{site}-{level:g}"] = mc.data.SurvivalData(part.X[:, :1], part.time, part.event, columns=["x"])
    return strata


@pytest.fixture
def many_rounds(monkeypatch):
    """Let the coefficient of a level without a finite maximum grow until hazard ratios are beyond their range."""
    monkeypatch.setattr(newton, "NO_GAIN", 1e-10)


def fitted(model, sites, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(mc.Federation.in_process(sites, policy=OPEN, **options))


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.usefixtures("many_rounds")
def test_a_baseline_that_overflows_leaves_the_coefficients(secure, tmp_path):
    sites = separated(first=True)
    with (
        pytest.warns(UserWarning, match="the fit has no predictions: refused by 3 of 3 sites"),
        pytest.warns(SeparationWarning, match="^rare: "),
    ):
        model = mc.survival.FedCox(errors="HC0").fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure))
    oracle = fitted(mc.survival.FedCox(), by_level(sites))
    assert model.coef_[0] == pytest.approx(oracle.coef_[0], abs=1e-5)
    assert np.isfinite(model.standard_errors_).tolist() == [True, False]
    assert "No predictions: refused by 3 of 3 sites" in str(model)
    path = tmp_path / "model"
    model.save(path)
    for each in (model, mc.survival.FedCox.load(path)):
        for predict in (each.predict, each.predict_survival_function, each.predict_time, each.score):
            with pytest.raises(
                ConfigurationError, match=r"predictions need a baseline hazard.*beyond the declared range"
            ):
                predict(sites["lyon"])
    with pytest.raises(ConfigurationError, match="predictions need a baseline hazard"):
        mc.survival.SurvivalEvaluation(model).fit(mc.Federation.in_process(sites, policy=OPEN))


@pytest.mark.usefixtures("many_rounds")
def test_one_site_that_refuses_the_baseline_does_not_cost_the_robust_errors():
    sites = separated(first=True)
    for site in ("oslo", "porto"):
        data = sites[site]
        sites[site] = mc.data.SurvivalData(data.X * [1.0, 0.0], data.time, data.event, columns=data.columns)
    with (
        pytest.warns(UserWarning, match="the fit has no predictions: lyon, sum_baseline"),
        pytest.warns(SeparationWarning),
    ):
        model = mc.survival.FedCox(errors="HC0").fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=True))
    assert list(model.missing_results_) == ["predictions"]
    assert np.isfinite(model.standard_errors_).tolist() == [True, False]
    assert {"x", "global"} <= set(model.check_proportionality(test="residuals"))


def refused(error):
    def refuse(*_):
        raise error("too few patients", where="lyon")

    return refuse


def test_refused_robust_errors_are_not_replaced(monkeypatch):
    monkeypatch.setattr(estimator, "sum_scores", refused(DisclosureRefused))
    sites = by_level(separated(first=False))
    with pytest.warns(UserWarning, match="the fit has no robust standard errors: lyon: too few patients"):
        model = mc.survival.FedCox(errors="HC0").fit(mc.Federation.in_process(sites))
    assert np.isnan([*model.standard_errors_, *model.p_values_, *model.hazard_ratios_[:, 1]]).all()
    assert np.isfinite([*model.coef_, *model.model_standard_errors_]).all()
    assert model.tests_["likelihood_ratio"].degrees_of_freedom == 1
    assert "wald" not in model.tests_
    assert "No robust standard errors: lyon: too few patients." in str(model)
    model.set_params(errors="model").fit(mc.Federation.in_process(sites))
    assert not model.missing_results_


def test_a_site_that_finds_another_protocol_ends_the_fit(monkeypatch):
    monkeypatch.setattr(estimator, "sum_scores", refused(ProtocolRefused))
    with pytest.raises(ProtocolRefused):
        mc.survival.FedCox(errors="HC0").fit(mc.Federation.in_process(by_level(separated(first=False))))


def test_a_refused_test_of_proportional_hazards_is_named_with_its_reason(monkeypatch):
    model = fitted(mc.survival.FedCox(), by_level(separated(first=False)))
    monkeypatch.setattr(estimator, "sum_residuals", refused(DisclosureRefused))
    assert "Proportional hazards were not tested (lyon: too few patients)." in model.answer()
    assert "were not tested (lyon: too few patients)" in model.figures({}, {})[-1].caption
    monkeypatch.undo()
    assert "not tested" not in model.answer()
    assert not model.missing_results_


@pytest.mark.filterwarnings("ignore:the rounds ended at a change of")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("effects", MIXED)
@pytest.mark.parametrize("secure", [True, False])
def test_one_level_without_end_does_not_cost_a_mixed_model_the_other_errors(effects, secure, first):
    sites = separated(first=first)
    times = "exact" if first else "grid"
    with pytest.warns(SeparationWarning, match="^rare: "):
        model = mc.survival.FedMixedCox(effects, times=times).fit(
            mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)
        )
    assert np.isfinite(model.standard_errors_).tolist() == [True, False]
    without_effects = fitted(mc.survival.FedCox(times, ties="breslow"), sites)  # sites do not differ
    assert model.coef_[0] == pytest.approx(without_effects.coef_[0], abs=0.02)
    assert model.standard_errors_[0] == pytest.approx(without_effects.standard_errors_[0], rel=0.02)


@pytest.mark.parametrize("first", [True, False])
def test_one_level_without_end_is_named_in_one_round_too(first):
    sites = separated(first=first)
    model = mc.survival.FedCox(one_round=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(mc.Federation.in_process(sites, policy=OPEN))
    assert any("rare" in str(each.message) for each in caught)
    assert np.isnan(model.standard_errors_[1])
    assert np.isnan(model.hazard_ratios_[1, 1:]).all()
