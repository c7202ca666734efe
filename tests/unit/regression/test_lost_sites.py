"""Fits of which a site is lost in the middle: equal to the fit of the other sites, which the result names."""

import numpy as np
import pytest
from sklearn.base import clone

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import LeftOutWarning, QuorumLost

LOST = "s3"
PLAIN = {"secure_sum": False, "policy": mc.Policy(min_patients=0)}


def sites_of(family="binomial", *, gaps=False):
    """Draw four sites; the outcomes of the last one differ, so that its sums are seen in any result."""
    sites = {}
    for number in range(4):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(100, 2))
        predictor = 0.4 * X[:, 0] + 1.5 * (number == 3)
        if gaps and number == 3:
            X[:20, 1] = np.nan
        kind = {"outcome": "number"}
        if family == "binomial":
            y, kind = (rng.random(100) < 1 / (1 + np.exp(-predictor))).astype(int), {"classes": ["no", "yes"]}
        elif family == "ordinal":
            y, kind = np.digitize(predictor + rng.logistic(size=100), [0, 1]), {"classes": ["a", "b", "c"]}
        else:
            y = rng.poisson(np.exp(predictor)).astype(float) + (0.5 if family == "gamma" else 0.0)
        sites[f"s{number}"] = mc.data.TableData(X, y, columns=["a", "b"], **kind)
    return sites


def without(sites):
    return {name: data for name, data in sites.items() if name != LOST}


def fit_losing(model, sites, step, **terms):
    with pytest.warns(LeftOutWarning, match="without 1 of 4 sites, which no longer take part"):
        return model.fit(mc.Federation.in_process(sites, quorum=3, faults=Faults(lose={LOST: step}), **terms))


def numbers(model):
    """Return everything that the fit reports as numbers."""
    values = {"table": model.to_frame().to_numpy(), "tests": [(t.statistic, t.p_value) for t in model.tests_.values()]}
    names = "n_patients_", "deviance_", "null_deviance_", "log_likelihood_", "aic_", "bic_", "residual_freedom_"
    return values | {name: getattr(model, name) for name in names if hasattr(model, name)}


def assert_equal(model, alone, rtol=1e-9):
    expected = numbers(alone)
    for name, value in numbers(model).items():
        np.testing.assert_allclose(value, expected[name], rtol=rtol, atol=1e-9, err_msg=name)
    assert model.n_patients_ == 300
    assert model.left_out_ == {LOST: "no answer"}
    assert "Fitted without s3: no answer." in " ".join(str(model.summary()).split())


GLM = mc.regression.FedGLM
CASES = [
    ("gaussian", GLM("gaussian"), "sum_derivatives"),
    ("binomial", GLM("binomial"), "sum_products"),
    ("binomial", GLM("binomial"), "sum_derivatives"),
    ("binomial", GLM("binomial", site_effects="fixed"), "sum_intercepts"),
    ("binomial", GLM("binomial", formula="a * b"), "sum_derivatives"),
    ("binomial", GLM("binomial", errors="HC1"), "sum_score_products"),
    ("gamma", GLM("gamma"), "sum_derivatives"),
    ("poisson", GLM("negative_binomial"), "sum_count_derivatives"),
    ("poisson", mc.regression.FedGLMM("poisson"), "sum_laplace"),
    ("gaussian", mc.regression.FedLinearMixedModel(), "sum_curvature"),
    ("ordinal", mc.regression.FedOrdinalRegression(), "sum_unequal_slopes"),
    ("ordinal", mc.regression.FedMultinomialRegression(), "sum_derivatives"),
    ("poisson", mc.regression.FedGLMM("poisson", formula="ns(a, df=3)"), "sum_laplace"),
    ("gaussian", mc.regression.FedLinearMixedModel(formula="ns(a, df=3)"), "sum_curvature"),
    ("ordinal", mc.regression.FedOrdinalRegression(formula="ns(a, df=3) + a:b"), "sum_derivatives"),
    ("ordinal", mc.regression.FedMultinomialRegression(formula="ns(a, df=3)"), "build_design"),
]


@pytest.mark.filterwarnings("ignore::multicentre.errors.DispersionWarning")
@pytest.mark.parametrize(("family", "model", "step"), CASES, ids=lambda value: str(value)[:40])
def test_a_fit_that_loses_a_site_is_the_fit_of_the_others(family, model, step):
    sites = sites_of(family)
    lost = fit_losing(clone(model), sites, step, **PLAIN)
    assert_equal(lost, clone(model).fit(mc.Federation.in_process(without(sites), **PLAIN)))


def test_masked_fits_begin_again_too():
    sites = sites_of()
    alone = GLM("binomial").fit(mc.Federation.in_process(without(sites), secure_sum=True))
    assert_equal(fit_losing(GLM("binomial"), sites, "sum_derivatives", secure_sum=True), alone, rtol=1e-6)


def test_knots_and_indicators_are_those_of_the_other_sites():
    for parameters, gaps in (({"formula": "ns(a, df=3) + b"}, False), ({"missing": "indicator"}, True)):
        sites = sites_of(gaps=gaps)
        alone = GLM("binomial", **parameters).fit(mc.Federation.in_process(without(sites), **PLAIN))
        lost = fit_losing(GLM("binomial", **parameters), sites, "sum_derivatives", **PLAIN)
        assert lost.feature_names_in_ == alone.feature_names_in_
        assert_equal(lost, alone)


def test_a_penalty_is_chosen_by_the_other_sites():
    sites, model = sites_of(), mc.regression.FedGLMCV("binomial", alphas=5)
    alone = mc.regression.FedGLMCV("binomial", alphas=5).fit(mc.Federation.in_process(without(sites), **PLAIN))
    lost = fit_losing(model, sites, "sum_path_derivatives", **PLAIN)
    assert lost.alpha_ == pytest.approx(alone.alpha_)
    np.testing.assert_allclose(lost.coef_path_, alone.coef_path_, atol=1e-8)
    np.testing.assert_allclose(lost.fold_deviance_, alone.fold_deviance_, rtol=1e-8)


def test_a_late_refusal_is_as_a_loss():
    sites = sites_of()
    policies = {name: mc.Policy(min_patients=10) for name in sites} | {LOST: mc.Policy(min_patients=100)}
    federation = mc.Federation.in_process(sites, policy=policies, quorum=3, refusing_sites="leave_out")
    with pytest.warns(LeftOutWarning, match="s3: sum_"):
        model = GLM("binomial").fit(federation)
    alone = GLM("binomial").fit(mc.Federation.in_process(without(sites)))
    assert model.n_patients_ == 300
    assert (model.deviance_, model.null_deviance_) == pytest.approx((alone.deviance_, alone.null_deviance_))


def test_too_few_sites_still_end_the_fit():
    with pytest.raises(QuorumLost):
        GLM("binomial").fit(mc.Federation.in_process(sites_of(), faults=Faults(lose={LOST: "sum_derivatives"})))


def test_effects_of_fewer_sites_than_the_fit_are_refused():
    for formula, step in ((None, "sum_slopes"), ("a * b", "sum_effects")):
        federation = mc.Federation.in_process(sites_of(), quorum=3, faults=Faults(lose={LOST: step}), **PLAIN)
        model = GLM("binomial", formula=formula).fit(federation)
        for _ in range(2):
            with pytest.raises(QuorumLost, match=r"s3: .*over all sites of the fit"):
                model.marginal_effects()


def test_a_resumed_fit_does_not_use_results_of_the_lost_site(tmp_path):
    sites, terms = sites_of(), {"quorum": 3, "folder": tmp_path, **PLAIN}
    alone = GLM("binomial").fit(mc.Federation.in_process(without(sites), **PLAIN))
    faults = Faults(lose={LOST: "sum_derivatives"}, interrupt_at=9)
    with pytest.warns(LeftOutWarning), pytest.raises(KeyboardInterrupt):
        GLM("binomial").fit(mc.Federation.in_process(sites, faults=faults, **terms))
    with pytest.warns(LeftOutWarning, match="no longer take part"):
        model = GLM("binomial").fit(mc.Federation.in_process(sites, **terms))
    assert_equal(model, alone)
