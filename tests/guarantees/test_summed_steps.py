"""Every step whose sums leave is listed with what a masked total may single out, whatever the coordinator asks.

A mask hides the share of a site. The total over all sites is exact, and the coordinator chooses the numbers of the
request. A new summed step fails here until somebody has judged it. Unmasked, ``tests/contracts/test_chosen_weights.py``
holds every step against the policy's minimum.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    ROOT / "src" / "multicentre",
    ROOT / "papers" / "src" / "multicentre_papers",
    ROOT / "sites" / "src" / "multicentre_sites",
)
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")

FLAGS = "nobody: a number of sites, or a power of two"
RECORDS = "nobody's values: numbers of records, or of entries that are missing"
TABLE = "a cell may be one patient of all sites; min_patients_in_total refuses it"
GRID = "a cell between values that the coordinator chooses may be one patient, to the fineness of a public grid"
SUMS = "a patient who has nearly all of a column or cell; the function of the records is fixed"
WEIGHTS = "one patient of all sites, if a forged model gives all others no weight"
SCORE = "one patient of all sites, if a forged model treats all others alike"
UPDATE = "a row of one patient of all sites, if a forged model responds to nobody else"
PAIRS = "a pair of patients; only with the policy's `relations`"
NOISE = "nobody beyond the guarantee: what a record adds is clipped, and the noise hides it"
REASONS = (FLAGS, RECORDS, TABLE, GRID, SUMS, WEIGHTS, SCORE, UPDATE, PAIRS, NOISE)

JUDGED = {
    "analytics/describe/site.py": {
        "DescribeSite.find_magnitudes": FLAGS,
        "DescribeSite.count_groups": TABLE,
        "DescribeSite.sum_squares": SUMS,
        "DescribeSite.find_steps": FLAGS,
        "DescribeSite.count_bins": TABLE,
        "DescribeSite.sum_products": SUMS,
        "DescribeSite.sum_rank_products": TABLE,
    },
    "boosting/site.py": {
        "BoostingSite.count_classes": TABLE,
        "BoostingSite.count_magnitudes": FLAGS,
        "BoostingSite.count_weights": FLAGS,
        "BoostingSite.sum_outcomes": SUMS,
        "BoostingSite.sum_gradients": GRID,
        "BoostingSite.sum_losses": SCORE,
        "BoostingSite.count_ranks": GRID,
    },
    "clustering/fedmsgl/site.py": {
        "RelationPart.sum_parts": PAIRS,
        "FedMSGLSite.relate": PAIRS,
        "FedMSGLSite.count_shared": PAIRS,
        "FedMSGLSite.code": PAIRS,
    },
    "data/flow.py": {
        "FlowPart.count_flow": RECORDS,
    },
    "data/missing/filling.py": {
        "FillingPart.sum_observed": RECORDS,
    },
    "data/missing/values.py": {
        "TabularPart.count_gaps": RECORDS,
    },
    "formula/site.py": {
        "FormulaPart.build_design": TABLE,
    },
    "linkage/duplicates/site.py": {
        "DuplicatesPart.find_controls": FLAGS,
        "DuplicatesPart.count_persons": TABLE,
        "DuplicatesPart.count_agreement": TABLE,
        "DuplicatesPart.mark": FLAGS,
    },
    "linkage/keys/fold_check_site.py": {
        "AuditedPart.review_folds": RECORDS,
        "AuditedPart.mark_folds": FLAGS,
    },
    "multiview/agreement.py": {
        "MultiViewPart.column_orders": FLAGS,
        "MultiViewPart.column_totals": SUMS,
        "MultiViewPart.column_squares": SUMS,
    },
    "multiview/ppca/site.py": {
        "MvPPCASite.sum_first_moments": SUMS,
        "MvPPCASite.multiply_moments": WEIGHTS,
        "MvPPCASite.sum_outer_products": NOISE,
        "MvPPCASite.fit_shared": WEIGHTS,
        "MvPPCASite.fit_around": WEIGHTS,
        "MvPPCASite.draw_waic": SCORE,
        "MvPPCASite.evaluate": SCORE,
        "MvPPCASite.complete_products": WEIGHTS,
        "MvPPCASite.compare_predictions": SCORE,
    },
    "phenotyping/agreement.py": {
        "TensorPart.count_codes": TABLE,
        "TensorPart.sum_sizes": SUMS,
    },
    "phenotyping/dpfact/private_site.py": {
        "PrivateSteps.spread_codes": NOISE,
        "PrivateSteps.sum_clipped_cooccurrence": NOISE,
        "PrivateSteps.sum_clipped_products": NOISE,
        "PrivateSteps.pass_clipped_patients": NOISE,
    },
    "phenotyping/dpfact/site.py": {
        "DPFactSite.count_rare_codes": RECORDS,
        "DPFactSite.sum_cooccurrence": SUMS,
        "DPFactSite.multiply_cooccurrence": WEIGHTS,
        "DPFactSite.fit_memberships": WEIGHTS,
        "DPFactSite.sum_products": WEIGHTS,
        "DPFactSite.fit_rates": WEIGHTS,
        "DPFactSite.sum_ratios": WEIGHTS,
        "DPFactSite.fit_locally": UPDATE,
        "DPFactSite.pass_patients": UPDATE,
        "DPFactSite.sum_errors": SCORE,
    },
    "phenotyping/outcome/site.py": {
        "OutcomeSite.sum_moments": SUMS,
        "OutcomeSite.sum_derivatives": WEIGHTS,
        "OutcomeSite.count_scores": TABLE,
    },
    "regression/categorical/site.py": {
        "CategoricalSite.sum_classes": TABLE,
        "CategoricalSite.sum_products": SUMS,
        "CategoricalSite.sum_derivatives": WEIGHTS,
        "CategoricalSite.sum_score_products": WEIGHTS,
        "CategoricalSite.sum_unequal_slopes": WEIGHTS,
    },
    "regression/effects.py": {
        "EffectsPart.sum_effects": WEIGHTS,
    },
    "regression/mixed/site.py": {
        "LinearMixedSite.sum_candidates": SUMS,
        "LinearMixedSite.sum_curvature": SUMS,
        "GeneralizedMixedSite.sum_laplace": WEIGHTS,
    },
    "regression/path/site.py": {
        "PathSite.sum_fold_products": SUMS,
        "PathSite.sum_path_derivatives": WEIGHTS,
    },
    "regression/patients.py": {
        "RegressionPatients.sum_columns": SUMS,
        "RegressionPatients.sum_products": SUMS,
    },
    "regression/private/site.py": {
        "PrivateSteps.sum_private_moments": NOISE,
        "PrivateSteps.sum_private_derivatives": NOISE,
    },
    "regression/site.py": {
        "RegressionSite.sum_derivatives": WEIGHTS,
        "RegressionSite.sum_count_derivatives": WEIGHTS,
        "RegressionSite.sum_score_products": WEIGHTS,
        "RegressionSite.sum_slopes": WEIGHTS,
        "RegressionSite.sum_intercepts": WEIGHTS,
    },
    "statistics/quantiles/site.py": {
        "CountingPart.count_below": GRID,
    },
    "survival/agreement/site.py": {
        "SurvivalPart.sum_sizes": TABLE,
        "SurvivalPart.sum_squares": SUMS,
        "SurvivalPart.count_times": GRID,
        "SurvivalPart.count_columns": GRID,
        "SurvivalPart.compare_units": FLAGS,
        "SurvivalPart.agree": RECORDS,
    },
    "survival/cox/site.py": {
        "CoxSite.sum_derivatives": WEIGHTS,
        "CoxSite.sum_risk": WEIGHTS,
        "CoxSite.sum_exact_risk": WEIGHTS,
        "CoxSite.sum_products": WEIGHTS,
        "CoxSite.sum_exact_products": WEIGHTS,
        "CoxSite.sum_baseline": WEIGHTS,
        "CoxSite.sum_own_scores": WEIGHTS,
        "CoxSite.sum_scores": WEIGHTS,
        "CoxSite.sum_exact_scores": WEIGHTS,
        "CoxSite.sum_own_residuals": WEIGHTS,
        "CoxSite.sum_own_curvatures": WEIGHTS,
        "CoxSite.sum_residuals": WEIGHTS,
        "CoxSite.sum_exact_residuals": WEIGHTS,
        "CoxSite.sum_estimates": WEIGHTS,
    },
    "survival/curves/log_rank.py": {
        "LogRankSite.sum_scores": SUMS,
    },
    "survival/curves/tables/site.py": {
        "TablePart.sum_table": TABLE,
        "TablePart.sum_exact_table": TABLE,
    },
    "baselines/deep_surv/site.py": {
        "DeepSite.train": UPDATE,
        "DeepSite.sum_risks": WEIGHTS,
    },
    "survival/evaluation/site.py": {
        "EvaluationSite.count_follow_up": TABLE,
        "EvaluationSite.count_pairs": SCORE,
        "EvaluationSite.count_own_pairs": TABLE,
        "EvaluationSite.sum_errors": SCORE,
        "EvaluationSite.count_ranks": SCORE,
        "EvaluationSite.count_groups": SCORE,
        "EvaluationSite.sum_benefits": SCORE,
        "EvaluationSite.sum_lines": SCORE,
    },
    "survival/hazard_boost/site.py": {
        "HazardSite.count_intervals": TABLE,
        "HazardSite.sum_slopes": GRID,
    },
    "survival/mixed_cox/site.py": {
        "MixedCoxSite.sum_effects": WEIGHTS,
        "MixedCoxSite.sum_exact_effects": WEIGHTS,
    },
    "survival/rsf/site.py": {
        "ForestSite.count_samples": TABLE,
        "ForestSite.count_splits": GRID,
        "ForestSite.count_leaves": GRID,
    },
    "survival/stack/site.py": {
        "StackSite.count_ends": TABLE,
        "StackSite.sum_errors": SCORE,
    },
    "survival/surv_boost/site.py": {
        "BoostSite.judge": SCORE,
        "BoostSite.mark_largest": FLAGS,
        "BoostSite.reweigh": WEIGHTS,
        "BoostSite.count_censored": TABLE,
        "BoostSite.sum_hazards": WEIGHTS,
        "BoostSite.sum_moments": WEIGHTS,
        "BoostSite.sum_risks": WEIGHTS,
        "BoostSite.judge_calibrated": SCORE,
    },
    "validation/external/site.py": {
        "GivenNumberPart.sum_line": SCORE,
    },
    "validation/folds/by_site.py": {
        "SiteFolds.count_records": RECORDS,
        "SiteFolds.mark_people": FLAGS,
    },
    "validation/folds/cut.py": {
        "CutFolds.survey": RECORDS,
        "CutFolds.count_parts": TABLE,
    },
    "validation/folds/keyed.py": {
        "HashedFolds.count_missing": RECORDS,
        "HashedFolds.count_buckets": TABLE,
    },
    "validation/folds/site.py": {
        "FoldPart.count_folds": TABLE,
    },
    "validation/scoring/classes/profiles.py": {
        "ClassEvaluationPart.count_subgroups": TABLE,
        "ClassEvaluationPart.count_profile": SCORE,
        "ClassEvaluationPart.sum_lines": SCORE,
    },
    "validation/scoring/classes/site.py": {
        "ClassPart.count_right": SCORE,
        "ClassPart.sum_losses": SCORE,
        "ClassPart.count_confusion": TABLE,
        "ClassPart.locate_scores": SCORE,
        "ClassPart.count_scores": SCORE,
    },
    "validation/scoring/events.py": {
        "EventPart.sum_entries": SUMS,
        "EventPart.sum_deviances": SCORE,
    },
    "validation/scoring/gaps.py": {
        "TablePart.count_complete": RECORDS,
    },
    "validation/scoring/numbers.py": {
        "NumberPart.find_magnitude": FLAGS,
        "NumberPart.sum_numbers": SUMS,
        "NumberPart.sum_errors": SCORE,
    },
    "validation/scoring/views.py": {
        "RowPart.sum_errors": SCORE,
        "RowPart.sum_densities": SCORE,
    },
    "validation/stratifier/site.py": {
        "StratifierSite.screen": FLAGS,
        "StratifierSite.pilot": GRID,
    },
    "baselines/adaboost_f/site.py": {
        "ClassSite.sum_sizes": SUMS,
        "ClassSite.sum_squares": SUMS,
        "ClassSite.judge": SCORE,
        "ClassSite.reweigh": WEIGHTS,
    },
    "baselines/fedmvl/site.py": {
        "FedMVLSite.multiply": PAIRS,
        "FedMVLSite.renew": PAIRS,
    },
    "baselines/fuzzy/site.py": {
        "FuzzySite.column_orders": FLAGS,
        "FuzzySite.column_totals": SUMS,
        "FuzzySite.column_squares": SUMS,
        "FuzzySite.sum_memberships": WEIGHTS,
    },
    "baselines/trip/site.py": {
        "TRIPSite.fit_near_consensus": UPDATE,
        "TRIPSite.sum_errors": SCORE,
    },
    "baselines/vae/site.py": {
        "LocalTraining.train": UPDATE,
        "LocalTraining.evaluate": SCORE,
    },
    "published/dpfact/site.py": {
        "AsPublishedSite.pass_entries": UPDATE,
    },
    "published/ppca/site.py": {
        "AsPublishedSite.fit_local": UPDATE,
    },
}


def is_summed_step(decorator):
    is_step = isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "step"
    return is_step and any(keyword.arg == "summed" for keyword in decorator.keywords)


def summed_steps(tree):
    """Return the names of all steps of a module that are terms of sums, as Class.step."""
    return {
        f"{part.name}.{node.name}"
        for part in ast.walk(tree)
        if isinstance(part, ast.ClassDef)
        for node in part.body
        if isinstance(node, ast.FunctionDef) and any(map(is_summed_step, node.decorator_list))
    }


def test_every_summed_step_is_judged():
    steps = {
        str(path.relative_to(source)): summed_steps(ast.parse(path.read_text()))
        for source in SOURCES
        for path in source.rglob("*.py")
    }
    assert {path: names for path, names in steps.items() if names} == {path: set(one) for path, one in JUDGED.items()}


@pytest.mark.parametrize("reason", REASONS)
def test_the_threat_model_states_what_a_masked_total_may_single_out(reason):
    assert any(reason in steps.values() for steps in JUDGED.values())
    assert f"| {reason} |" in PAGE


def test_a_new_summed_step_is_found():
    source = "class Part:\n    @step(releases=Count, when='once', summed=True)\n    def count_above(self, ask): ...\n"
    assert summed_steps(ast.parse(source)) == {"Part.count_above"}
    assert not summed_steps(ast.parse(source.replace(", summed=True", "")))
