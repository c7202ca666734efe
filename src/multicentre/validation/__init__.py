"""Cross-validation over sites, with scores that duplicated patients do not inflate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.validation.classification.evaluation import evaluate_classifier
    from multicentre.validation.classification.results import ClassifierEvaluation
    from multicentre.validation.cross_validation import CVResult, cross_val_score, cross_validate
    from multicentre.validation.external.classifier import ClassifierValidation
    from multicentre.validation.external.model_files import model_from_mapping, read_model, write_model
    from multicentre.validation.external.regressor import RegressorValidation
    from multicentre.validation.fold_check import FoldCheck, check_interfold
    from multicentre.validation.folds.by_site import FederatedKFold, LeaveOneSiteOut
    from multicentre.validation.folds.covariate import CovariateFoldKFold, FoldStratifiedKFold
    from multicentre.validation.folds.hashed import HashGroupKFold, RepeatedHashGroupKFold
    from multicentre.validation.folds.plan import FoldPlan
    from multicentre.validation.leakage import LeakageReport, leakage_report
    from multicentre.validation.scoring.scores import score
    from multicentre.validation.stratifier import Suggestion, suggest_stratifier
    from multicentre.validation.tuning import FederatedGridSearchCV

__all__ = [
    "CVResult",
    "ClassifierEvaluation",
    "ClassifierValidation",
    "CovariateFoldKFold",
    "FederatedGridSearchCV",
    "FederatedKFold",
    "FoldCheck",
    "FoldPlan",
    "FoldStratifiedKFold",
    "HashGroupKFold",
    "LeakageReport",
    "LeaveOneSiteOut",
    "RegressorValidation",
    "RepeatedHashGroupKFold",
    "Suggestion",
    "check_interfold",
    "cross_val_score",
    "cross_validate",
    "evaluate_classifier",
    "leakage_report",
    "model_from_mapping",
    "read_model",
    "score",
    "suggest_stratifier",
    "write_model",
]

_MODULES = {
    "HashGroupKFold": "folds.hashed",
    "RepeatedHashGroupKFold": "folds.hashed",
    "LeaveOneSiteOut": "folds.by_site",
    "CovariateFoldKFold": "folds.covariate",
    "FoldStratifiedKFold": "folds.covariate",
    "FederatedKFold": "folds.by_site",
    "FoldPlan": "folds.plan",
    "CVResult": "cross_validation",
    "cross_val_score": "cross_validation",
    "cross_validate": "cross_validation",
    "ClassifierEvaluation": "classification.results",
    "evaluate_classifier": "classification.evaluation",
    "ClassifierValidation": "external.classifier",
    "RegressorValidation": "external.regressor",
    "model_from_mapping": "external.model_files",
    "read_model": "external.model_files",
    "write_model": "external.model_files",
    "score": "scoring.scores",
    "FederatedGridSearchCV": "tuning",
    "leakage_report": "leakage",
    "LeakageReport": "leakage",
    "suggest_stratifier": "stratifier",
    "Suggestion": "stratifier",
    "check_interfold": "fold_check",
    "FoldCheck": "fold_check",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
