"""Steps that a study may request from a site, by site part."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from multicentre.core.noise_plan import PlanReview
from multicentre.core.steps import SitePart
from multicentre.data.flow import FlowPart
from multicentre.privacy.secure_sum.site import MaskingKeys
from multicentre.studies.policy_conflicts import aligning_steps, fitting_steps, protection_of
from multicentre.studies.study import make_estimator
from multicentre.studies.subgroups import conditions_of
from multicentre.validation.folds.subgroups import SUBGROUP_STEPS, SubgroupFolds

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study


def steps_of_study(study: Study) -> dict[type[SitePart], frozenset[str]]:
    """Return the names of the steps of a study: of its methods, of alignment, folds and scoring, and of masked sums.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown.
    """
    steps: dict[type[SitePart], frozenset[str]] = {}
    for analysis in study.split().values():
        for part, names in _steps_of_analysis(analysis, make_estimator(analysis)).items():
            steps[part] = steps.get(part, frozenset()) | frozenset(names)
    if study.data.selects:
        steps[FlowPart] = frozenset(FlowPart.steps())
    if conditions_of(study):
        steps[SubgroupFolds] = SUBGROUP_STEPS
    steps[PlanReview] = frozenset(PlanReview.steps())
    if study.masked:
        steps[MaskingKeys] = frozenset(MaskingKeys.steps())
    return steps


def _steps_of_analysis(study: Study, estimator: FederatedEstimator) -> dict[type[SitePart], Collection[str]]:
    """Return the names of the steps of one analysis, by site part."""
    steps: dict[type[SitePart], Collection[str]] = {
        estimator.site_part: fitting_steps(estimator, protection_of(study)),
    }
    if estimator.aligned_by is not None:
        steps[estimator.aligned_by] = aligning_steps(estimator) | {"draw_nonce"}
    for part in _validation_parts(study):
        steps[part] = part.steps()
    return steps


def _validation_parts(study: Study) -> list[type[SitePart]]:
    if study.validation is None:
        return []
    from multicentre.studies.cross_validation import make_splitter
    from multicentre.validation.scoring.scores import find_evaluator

    return [make_splitter(study, study.validation).site_part, find_evaluator(make_estimator(study)).part]
