"""Contract of every method: its default is the textbook's fit of the pooled patients, or the difference is stated.

A method names the oracle test that compares it with a pooled counterpart, and what its default changes; the sentence on
the model in force must say so. A method without a counterpart has the reason.
"""

import ast
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import MissingExtra
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS

ORACLES = Path(__file__).parents[1] / "oracles"
GRID = ("on a grid of at most 64 times", "the time by which 95 % of the follow-ups ended")
# Oracle test, and phrases that the default's sentence has because it differs from the textbook's.
COMPARED = {
    "aalen-johansen": ("test_survival_analytics.py::test_incidence_is_that_of_the_pooled_patients", GRID),
    "describe": ("test_from_r.py::test_table_1", ()),
    "fed-cox": ("test_fed_cox.py::test_baselines_of_the_sites_own_give_the_pooled_fit_with_strata", ("by site",)),
    "fed-glm": ("test_fed_glm.py::test_each_family_and_link_equals_statsmodels", ()),
    "fed-glm-cv": ("test_penalties.py::test_the_choice_of_a_gaussian_penalty_is_that_of_scikit_learn", ()),
    "fed-glmm": ("test_site_effects.py::test_generalised_mixed_model_equals_glmer", ()),
    "fed-linear-mixed-model": ("test_site_effects.py::test_linear_mixed_model_equals_lmer", ()),
    "fed-linear-regression": (
        "test_fed_glm.py::test_linear_regression_has_the_t_tests_and_intervals_of_least_squares",
        (),
    ),
    "fed-logistic-regression": ("test_fed_glm.py::test_named_models_are_the_general_one", ("no penalty",)),
    "fed-mixed-cox": ("test_site_effects.py::test_cox_model_with_effects_of_sites_equals_survival", GRID[1:]),
    "fed-multinomial-regression": ("test_categorical.py::test_multinomial_models_equal_nnet_for_any_split", ()),
    "fed-mv-ppca": ("test_fed_mv_ppca.py::test_one_centre_is_pooled_maximum_likelihood", ()),
    "fed-ordinal-regression": ("test_categorical.py::test_ordinal_models_equal_clm_for_any_split", ()),
    "fed-poisson-regression": ("test_fed_glm.py::test_named_models_are_the_general_one", ()),
    "fed-xgb-classifier": ("test_fed_xgb.py::test_trees_are_those_of_the_pooled_records", ()),
    "fed-xgb-regressor": ("test_fed_xgb.py::test_numbers_and_counts", ()),
    "kaplan-meier": ("test_survival_analytics.py::test_curves_are_those_of_the_pooled_patients", GRID),
    "log-rank": (
        "test_survival_of_r.py::test_the_default_log_rank_test_is_that_of_survdiff_with_strata",
        ("stratified by site",),
    ),
    "phenotype-outcome": (
        "test_outcome_model.py::test_the_coefficients_are_those_of_scikit_learn_on_pooled_memberships",
        (),
    ),
    "survival-evaluation": ("test_survival_scores.py::test_an_evaluation_over_sites", ()),
}
NO_COUNTERPART = {
    "classifier-validation": "compared with scikit-learn in tests/unit/validation/external",
    "dpfact": "a federated factorisation, whose pooled fit is another method",
    "fed-deep-surv": "averages networks of the sites",
    "fed-hazard-boost": "boosts on bins of time that no pooled library has",
    "fed-msgl": "a clustering over views, compared with its paper's levels in tests/oracles/test_fed_msgl.py",
    "fed-rsf": "splits on bins of time; its trees are compared in tests/oracles/test_survival_trees.py",
    "fed-stack": "weighs models of the sites",
    "fed-surf": "collects the trees of the sites",
    "fed-surv-boost": "collects models of the sites, compared in tests/oracles/test_fed_surv_boost.py",
    "regressor-validation": "compared with scikit-learn in tests/unit/validation/external",
}
OURS = {name for name, method in METHODS.items() if method.package == "multicentre"}


def test_every_method_is_compared_or_has_a_reason():
    assert set(COMPARED).isdisjoint(NO_COUNTERPART)
    assert set(COMPARED) | set(NO_COUNTERPART) >= OURS


@pytest.mark.parametrize("method", COMPARED)
def test_the_comparison_exists_and_a_difference_is_stated(method):
    test, stated = COMPARED[method]
    file, _, name = test.partition("::")
    module = ast.parse((ORACLES / file).read_text(encoding="utf-8"))
    assert name in {one.name for one in ast.walk(module) if isinstance(one, ast.FunctionDef)}
    if stated:
        try:
            sentence = find_estimator(method)().describe_model()
        except MissingExtra:
            pytest.skip("needs a library that is not installed")
        assert all(phrase in sentence for phrase in stated)


SETS = {
    "rossi": ("load_rossi", "week", "arrest", ["fin", "age"]),
    "lung": ("load_lung", "time", "status", ["sex", "age"]),
    "gbsg2": ("load_gbsg2", "time", "cens", ["age", "tsize"]),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_default_cox_models_and_curves_are_those_of_lifelines_on_bundled_data(name):
    lifelines, datasets = pytest.importorskip("lifelines"), pytest.importorskip("lifelines.datasets")
    loader, time, event, columns = SETS[name]
    frame = getattr(datasets, loader)()[[time, event, *columns]].dropna().reset_index(drop=True)
    frame["site"] = np.random.default_rng(0).integers(0, 3, len(frame))
    sites = {
        f"site-{site}": mc.data.SurvivalData(
            part[columns].to_numpy(float), part[time].to_numpy(float), part[event].to_numpy(int), columns=columns
        )
        for site, part in frame.groupby("site")
    }
    federation = mc.Federation.in_process(sites)
    pooled = lifelines.CoxPHFitter().fit(frame, time, event, strata=["site"], fit_options={"precision": 1e-12})
    ours = mc.survival.FedCox().fit(federation)
    np.testing.assert_allclose(ours.coef_, pooled.params_.to_numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.standard_errors_, pooled.standard_errors_.to_numpy(), atol=1e-5)
    curves = mc.survival.KaplanMeier().fit(federation)
    textbook = lifelines.KaplanMeierFitter().fit(frame[time], frame[event])
    at = curves.times_
    np.testing.assert_allclose(curves.survival_[0], textbook.survival_function_at_times(at), atol=0.02)
    n_after = int(((frame[time] > at[-1]) & (frame[event] == 1)).sum())
    assert curves.n_events_after_horizon_ == n_after
    assert ("after the horizon" in curves.answer()) == (n_after > 0)
