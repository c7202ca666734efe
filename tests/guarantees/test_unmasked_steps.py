"""Every unmasked step is listed with the reason why a forged request gains no more than one honest answer.

An answer of one site that depends on a threshold, time, value or list chosen by the coordinator finds counts and values
by search. A new unmasked step fails here until somebody has judged it.
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

NAMES = "names, units and classes that count as public; the request is empty"
TAKES = "stores the request after checks of its ranges and of names; no patient decides the acknowledgement"
KEYS = "keys and masks; no record is read"
PUBLIC_GRID = "times are rounded up to public bins, values to a fixed step, and groups hold the policy's minimum"
OWN_SCORE = "once per session; the threshold is the policy's; a forged model's exact score is in the threat model"
SINGLE = "answers about single patients; only with the policy's `relations`"
ONE_EFFECT = "once per session; a sum over the site's patients whose effective number is the policy's minimum"
FIXED = "the request is empty or irrelevant; thresholds are constants or the policy's"

JUDGED = {
    "data/flow.py": {
        "FlowPart.list_reasons": NAMES,
        "FlowPart.may_report": "one yes or no about the policy's minimum; the request is empty",
        "FlowPart.report_flow": "numbers of the approved selection, each 0 or at least the policy's minimum",
    },
    "linkage/alignment/site.py": {
        "AlignmentPart.count_records": "counts are raised to the policy's minimum; no threshold is asked",
        "AlignmentPart.send_pseudonyms": SINGLE,
        "AlignmentPart.agree": SINGLE,
        "AlignmentPart.agree_incomplete": SINGLE,
        "AlignmentPart.confirm": "compares seals of the other sites with the own one",
    },
    "survival/evaluation/site.py": {
        "EvaluationSite.judge": TAKES,
        "EvaluationSite.judge_at_fine_times": "returns the number of times of the request; needs exact_times",
        "EvaluationSite.evaluate_alone": "only at one site; groups and thresholds are constants, times are public, and "
        "each cell holds the policy's minimum",
        "EvaluationSite.score_own": OWN_SCORE + "; observed risks are taken at public times",
    },
    "survival/curves/kaplan_meier/estimator.py": {
        "KaplanMeierSite.tell_table": PUBLIC_GRID,
        "KaplanMeierSite.tell_exact_table": "needs exact_times; each cell holds the policy's minimum",
    },
    "boosting/site.py": {
        "BoostingSite.describe": NAMES,
        "BoostingSite.assign_columns": TAKES,
        "BoostingSite.begin": "may say that an outcome is below 0, where counts are expected; 0 is a constant",
    },
    "analytics/describe/site.py": {
        "DescribeSite.describe": NAMES,
        "DescribeSite.describe_site": "counts, means and deviations of declared columns and levels, without a "
        "threshold; each cell holds the policy's minimum",
        "DescribeSite.check_quality": "rounded figures at codes and shares that no request names; each rests on "
        "the policy's minimum, and numbers of patients are multiples of it",
    },
    "regression/patients.py": {"RegressionColumns.describe": NAMES},
    "regression/site.py": {"RegressionSite.tell_intercept": ONE_EFFECT},
    "regression/mixed/site.py": {
        "LinearMixedSite.tell_effects": ONE_EFFECT,
        "GeneralizedMixedSite.tell_effects": ONE_EFFECT,
    },
    "clustering/fedmsgl/site.py": {
        "RelationPart.describe": NAMES,
        "FedMSGLSite.list_relations": SINGLE,
        "FedMSGLSite.refine": SINGLE,
        "FedMSGLSite.list_codes": SINGLE,
        "RelationPart.profile": "once a session, to two digits, for clusters of ten patients and the policy's minimum",
    },
    "baselines/fedmvl/site.py": {
        "FedMVLSite.describe": NAMES,
        "FedMVLSite.begin": TAKES,
        "FedMVLSite.send_weights": "one share per view; the check of the total repeats what the share says",
    },
    "published/dpfact/site.py": {"AsPublishedSite.begin_drawn": TAKES},
    "published/fedmsgl/site.py": {"IteratingPart.iterate": SINGLE},
    "baselines/fuzzy/site.py": {"FuzzySite.describe": NAMES, "FuzzySite.prepare": TAKES},
    "core/noise_plan.py": {"PlanReview.review": "compares a plan with budget and policy; no record is read"},
    "data/missing/filling.py": {"FillingPart.fill_gaps": TAKES},
    "data/rare_columns.py": {
        "RareColumnsPart.leave_out_rare": "once per session of one site; names of columns by the policy's minimum. A "
        "shorter list leaves rare columns in, and sums over them are refused",
    },
    "formula/site.py": {"FormulaPart.build_columns": TAKES},
    "data/missing/values.py": {
        "TabularPart.handle_gaps": TAKES,
        "TabularPart.add_indicators": TAKES,
        "TabularPart.report_gaps": FIXED,
    },
    "multiview/agreement.py": {"MultiViewPart.describe": NAMES},
    "multiview/ppca/site.py": {
        "MvPPCASite.prepare": "may say that an entry is missing, as the count of entries does; no threshold",
        "MvPPCASite.check_enough_rows": "compares the number of patients, which leaves anyway, with the parameters",
    },
    "linkage/persons.py": {
        "KeyedPart.send_fingerprint": "fingerprint of the key; no record is read",
        "KeyedPart.draw_nonce": "a random number",
    },
    "phenotyping/agreement.py": {
        "TensorPart.describe": NAMES,
        "TensorPart.name_codes": "one threshold per site, ten or the policy's minimum; a larger one is refused",
    },
    "phenotyping/dpfact/site.py": {
        "DPFactSite.agree": TAKES,
        "DPFactSite.begin": TAKES,
        "DPFactSite.profile": "shares of phenotypes with ten effective members or the policy's minimum; no threshold",
    },
    "phenotyping/outcome/site.py": {
        "OutcomeSite.prepare": "says that no patient has a code of the phenotypes; nobody is behind the codes then",
        "OutcomeSite.compute_site_auc": OWN_SCORE,
    },
    "baselines/trip/site.py": {"TRIPSite.agree": TAKES, "TRIPSite.begin": TAKES},
    "privacy/secure_sum/site.py": {
        f"MaskingKeys.{name}": KEYS for name in ("advertise", "agree", "share", "accept", "unmask", "recover_masks")
    },
    "survival/agreement/named_columns.py": {"NamedColumnsPart.set_aside": TAKES},
    "survival/agreement/site.py": {
        "SurvivalPart.describe": NAMES,
        "SurvivalPart.tell_times": "needs exact_times",
    },
    "baselines/adaboost_f/site.py": {
        "ClassSite.describe": NAMES,
        "ClassSite.agree": TAKES,
        "ClassSite.fit_tree": PUBLIC_GRID,
    },
    "survival/surv_boost/site.py": {
        "BoostSite.begin": TAKES,
        "BoostSite.fit_cox": PUBLIC_GRID,
        "BoostSite.fit_tree": PUBLIC_GRID,
        "BoostSite.fit_network": PUBLIC_GRID,
    },
    "survival/cox/site.py": {
        "CoxSite.offer_lead": "all events of the site, whatever the agreed times; the request is empty",
        "CoxSite.solve_surrogate": "at the site's own times, whatever the agreed ones; once per session",
        "CoxSite.fit_own": "at the site's own times, whatever the agreed ones; no threshold",
    },
    "survival/mixed_cox/site.py": {
        "MixedCoxSite.tell_effect": ONE_EFFECT,
        "MixedCoxSite.tell_exact_effect": ONE_EFFECT,
    },
    "baselines/deep_surv/site.py": {"DeepSite.split": TAKES},
    "baselines/surf/site.py": {
        "ForestSite.offer_trees": "the threshold is the policy's; neither agreed times nor wanted events decide",
        "ForestSite.grow_trees": PUBLIC_GRID,
    },
    "survival/hazard_boost/site.py": {"HazardSite.begin": TAKES},
    "validation/folds/by_site.py": {
        "DrawnFolds.draw": TAKES,
        "SiteFolds.take_place": TAKES,
        "SiteFolds.take_unshared": TAKES,
    },
    "validation/folds/cut.py": {"CutFolds.cut": TAKES},
    "validation/folds/keyed.py": {
        "HashedFolds.describe_key": NAMES,
        "HashedFolds.find_crowding": FIXED,
        "HashedFolds.find_fineness": "buckets of a key that the coordinator lacks; the threshold is the policy's",
        "HashedFolds.assign": TAKES,
    },
    "validation/folds/subgroups.py": {
        "SubgroupFolds.divide": "acknowledges the approved conditions; a site refuses others (P62)"
    },
    "validation/folds/site.py": {
        "FoldPart.send_digest": "hash of what the coordinator sent",
        "FoldPart.find_presence": "the threshold is the policy's; refused where parts that can be moved are small",
    },
    "validation/scoring/classes/profiles.py": {
        "ClassEvaluationPart.evaluate_alone": "scores and merged bins of the only site of a call; refused to any other",
        "ClassEvaluationPart.name_subgroups": NAMES,
    },
    "validation/scoring/judging.py": {"ScoringPart.judge": TAKES, "ScoringPart.score_own": OWN_SCORE},
    "validation/stratifier/site.py": {"StratifierSite.describe": NAMES, "StratifierSite.settle": TAKES},
}


def is_unmasked_step(decorator):
    if not (isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "step"):
        return False
    return not any(keyword.arg == "summed" for keyword in decorator.keywords)


def unmasked_steps(tree):
    """Return the names of all steps of a module that are no terms of sums, as Class.step."""
    return {
        f"{part.name}.{node.name}"
        for part in ast.walk(tree)
        if isinstance(part, ast.ClassDef)
        for node in part.body
        if isinstance(node, ast.FunctionDef) and any(map(is_unmasked_step, node.decorator_list))
    }


def all_unmasked_steps():
    steps = {
        str(path.relative_to(source)): unmasked_steps(ast.parse(path.read_text()))
        for source in SOURCES
        for path in source.rglob("*.py")
    }
    return {path: names for path, names in steps.items() if names}


def test_every_unmasked_step_is_judged():
    assert all_unmasked_steps() == {path: set(reasons) for path, reasons in JUDGED.items()}


@pytest.mark.parametrize("path", JUDGED)
def test_every_step_has_a_reason_of_one_line(path):
    assert all(0 < len(reason) < 160 and "\n" not in reason for reason in JUDGED[path].values())


def test_a_new_unmasked_step_is_found():
    source = "class Part:\n    @step(releases=Count, when='once')\n    def count_above(self, ask): ...\n"
    assert unmasked_steps(ast.parse(source)) == {"Part.count_above"}
    assert not unmasked_steps(ast.parse(source.replace("'once'", "'once', summed=True")))
