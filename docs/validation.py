"""Write docs/validation.md from the comparisons that `make dossier` recorded in docs/validation.json.

python docs/validation.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
RECORD = FOLDER / "validation.json"
PAGE = FOLDER / "validation.md"

# Methods, oracle and data of each file of tests. Values of R are frozen next to the test, with their script.
FILES = {
    "test_accounting.py": ("privacy accounting", "Google's dp-accounting", "mechanisms and compositions on a grid"),
    "test_categorical.py": (
        "FedMultinomialRegression, FedOrdinalRegression",
        "R: nnet, ordinal; closed forms",
        "simulated",
    ),
    "test_robust_categorical.py": (
        "FedMultinomialRegression, FedOrdinalRegression",
        "statsmodels; R: MASS",
        "simulated, with weights and clusters",
    ),
    "test_fed_cox.py": (
        "FedCox",
        "R: survival; lifelines, scikit-survival (frozen)",
        "simulated, with ties and strata",
    ),
    "test_fed_glm.py": ("FedGLM and its named models", "statsmodels; R: sandwich", "simulated, four families"),
    "test_fed_msgl.py": (
        "FedMSGL",
        "its equations, solved in another way on the pooled views",
        "simulated and public views",
    ),
    "test_fed_mv_ppca.py": (
        "Fed-mv-PPCA",
        "pooled optimum, simulated truth, published levels",
        "simulated and bundled data",
    ),
    "test_fed_surv_boost.py": ("FedSurvBoost", "scikit-learn; a plain loop over pooled patients", "simulated"),
    "test_fed_xgb.py": ("FedXGB", "xgboost on the pooled records", "simulated and bundled tables"),
    "test_fed_xgb_options.py": ("FedXGB, options", "xgboost on the pooled records", "simulated"),
    "test_formula.py": ("FedGLM(formula=)", "R: glm, splines; statsmodels with patsy", "simulated"),
    "test_cox_weights.py": ("FedCox with offset, weights and clusters", "R: survival", "simulated"),
    "test_from_r.py": ("examples of the guide for users of R", "R, as printed in the guide", "simulated"),
    "test_meta_analysis.py": ("combine", "R: metafor", "published meta-analyses and simulated estimates"),
    "test_negative_binomial.py": ("FedGLM, negative binomial", "R: MASS, sandwich; numerical derivatives", "simulated"),
    "test_outcome_model.py": ("PhenotypeOutcome", "scikit-learn on pooled scores; closed forms", "simulated events"),
    "test_penalties.py": ("FedGLM(l1_ratio=), FedGLMCV", "R: glmnet; scikit-learn", "simulated"),
    "test_ppca_maths.py": ("Fed-mv-PPCA, mathematics", "closed forms; scikit-learn, scipy", "simulated"),
    "test_ppca_predict.py": (
        "Fed-mv-PPCA, predictions",
        "scipy's Gaussian, conditional formula, scikit-learn",
        "simulated",
    ),
    "test_private_ppca.py": (
        "Fed-mv-PPCA with epsilon",
        "the fit without noise, levels of the specification",
        "simulated",
    ),
    "test_private_regression.py": ("FedGLM with epsilon", "coverage in simulations", "simulated"),
    "test_site_effects.py": ("site effects, mixed models", "statsmodels; R: lme4, survival", "simulated"),
    "test_small_cells.py": ("curves and tests with small cells", "the pooled patients", "simulated"),
    "test_survival_analytics.py": (
        "Kaplan-Meier, log-rank, Aalen-Johansen",
        "closed forms, brute force, lifelines",
        "simulated",
    ),
    "test_survival_of_r.py": ("LogRank by site, FedCox.check_proportionality", "R: survival", "simulated"),
    "test_survival_scores.py": ("scores of survival predictions", "scikit-survival", "simulated"),
    "test_survival_trees.py": ("FedRSF, FedHazardBoost", "scikit-survival; a search by hand", "simulated"),
}

INTRODUCTION = """# Validation dossier

Each row is a test that compares a federated result with an independent one on the pooled patients. `make dossier` runs
the tests and writes this page; no number is typed. *Largest difference* is the largest relative difference of all
compared numbers (absolute where the tolerance is absolute, or the oracle's value is 0). *Used* is the largest share of
its tolerance that any comparison used: at most 100 % if all comparisons passed. Rows without numbers assert equality,
an order or a bound.

multicentre {multicentre}, Python {python}, numpy {numpy}, {date}: {n_tests} tests, {n_cases:,} cases,
{n_compared:,} compared numbers, {n_failed} failures. Tests that need data or packages which were absent are not listed.
"""


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a record."""
    tests = record["tests"]
    totals = {f"n_{key}": sum(test[key] for test in tests) for key in ("cases", "compared", "failed")}
    parts = [INTRODUCTION.format(n_tests=len(tests), **totals, **{k: v for k, v in record.items() if k != "tests"})]
    for file, (methods, oracle, data) in FILES.items():
        rows = [test for test in tests if test["file"] == file]
        if rows:
            parts.append(f"## {methods}\n\nCompared with: {oracle}. Data: {data}. `tests/oracles/{file}`\n")
            parts.append(
                "| test | cases | numbers | tolerance | largest difference | used |\n|---|---|---|---|---|---|"
            )
            parts[-1] += "".join("\n" + row(test) for test in rows) + "\n"
    return "\n".join(parts)


def row(test: Mapping[str, Any]) -> str:
    """Return the line of a test in the table of its file."""
    name = test["test"].removeprefix("test_").replace("_", " ")
    if not test["compared"]:
        return f"| {name} | {test['cases']} | - | - | - | - |"
    tolerance = f"{test['rtol']:.0e}" if test["rtol"] else f"{test['atol']:.0e} absolute"
    used = "under 1 %" if test["share_of_tolerance"] < 0.01 else f"{test['share_of_tolerance']:.0%}"
    difference = f"{test['difference']:.1e}"
    return f"| {name} | {test['cases']} | {test['compared']:,} | {tolerance} | {difference} | {used} |"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")
