"""Whatever can be called from Python can be named in a study file and run over real sites, and the other way round.

A name that is in neither table fails. A reason for a name that studies lack is also on the page of the study file.
"""

import importlib
import inspect
from pathlib import Path

import pytest

from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.registry import METHODS, import_class
from multicentre.studies.tables import About, AnalysisTable, ValidationTable

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "analytics",
    "boosting",
    "clustering",
    "linkage",
    "multiview",
    "phenotyping",
    "regression",
    "survival",
    "validation",
)
# Functions and classes that request something of sites, and the key of a study that does the same.
IN_STUDIES = {
    "combine": (AnalysisTable, "by_site"),
    "Combination": (AnalysisTable, "by_site"),
    "Combinations": (AnalysisTable, "by_site"),
    "cross_validate": (AnalysisTable, "validation"),
    "cross_val_score": (AnalysisTable, "validation"),
    "CVResult": (AnalysisTable, "validation"),
    "score": (ValidationTable, "scores"),
    "HashGroupKFold": (ValidationTable, "strategy"),
    "RepeatedHashGroupKFold": (ValidationTable, "repeats"),
    "LeaveOneSiteOut": (ValidationTable, "strategy"),
    "FederatedKFold": (ValidationTable, "strategy"),
    "CovariateFoldKFold": (ValidationTable, "covariate"),
    "FoldStratifiedKFold": (ValidationTable, "scheme"),
    "FoldPlan": (ValidationTable, "folds"),
    "evaluate_classifier": (About, "method"),  # method = "validate"
    "ClassifierEvaluation": (About, "method"),
    "model_from_mapping": (About, "method"),
    "read_model": (About, "method"),
    "write_model": (About, "method"),
    "Ensemble": (About, "method"),  # the model of fed-xgb-classifier and -regressor
    "align": (About, "method"),  # of methods on different views of the same patients
    "Alignment": (About, "method"),
    "PseudonymKey": (About, "method"),
    "PhenotypeTable": (About, "method"),  # a result of dpfact
}
# What only Python offers, and the row of docs/study-file.md that gives the reason.
PYTHON_ONLY = {
    "clustering_scores",
    "estimate_duplicate_rate",
    "DuplicateRate",
    "find_places",
    "select_n_components",
    "communication_table",
    "factor_match_score",
    "null_match_score",
    "privacy_curve",
    "seed_stability",
    "split_held_out",
    "check_interfold",
    "FoldCheck",
    "leakage_report",
    "LeakageReport",
    "suggest_stratifier",
    "Suggestion",
    "FederatedGridSearchCV",
}


def public(package):
    module = importlib.import_module(f"multicentre.{package}")
    return {name: getattr(module, name) for name in module.__all__}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_named_in_a_study_or_says_why_not(package):
    methods = {import_class(one, name) for name, one in METHODS.items() if one.distribution == "multicentre"}
    for name, value in public(package).items():
        if name in PYTHON_ONLY:
            continue
        is_method = inspect.isclass(value) and issubclass(value, FederatedEstimator)
        if is_method:
            assert value in methods, f"{name} is no method of a study file"
        else:
            kind, key = IN_STUDIES[name]
            assert key in kind.model_fields, f"{name}: a study has no key {key}"


def test_every_method_of_a_study_can_be_called_from_python():
    names = {value for package in PACKAGES for value in public(package).values() if inspect.isclass(value)}
    for name, one in METHODS.items():
        if one.distribution == "multicentre":
            assert import_class(one, name) in names, f"{name} is in no package's __all__"


def test_the_page_of_the_study_file_gives_a_reason_for_each_name_that_only_python_offers():
    page = (ROOT / "docs" / "study-file.md").read_text(encoding="utf-8")
    section = page.partition("## What a study file cannot name")[2].partition("\n## ")[0]
    assert [name for name in sorted(PYTHON_ONLY) if f"`{name}`" not in section] == []


def test_the_tables_name_only_what_exists():
    names = {name for package in PACKAGES for name in public(package)}
    assert names >= PYTHON_ONLY
    assert IN_STUDIES.keys() <= names
