"""Steps that a study may request from a site, by site part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from multicentre.core.noise_plan import PlanReview
from multicentre.core.steps import SitePart
from multicentre.data.flow import FlowPart
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from multicentre.privacy.secure_sum.site import MaskingKeys
from multicentre.studies.policy_conflicts import aligning_steps, fitting_steps, protection_of
from multicentre.studies.saved_models import list_models
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
    return _joined(study, map(_planned, study.split().values()))


def exchanged_steps(study: Study) -> dict[type[SitePart], frozenset[str]]:
    """Return the steps whose declarations the terms of a study contain, for readers without its files.

    An analysis with a given model counts with all steps of its method, since only readers of the model's file can make
    its estimator. A method that is not installed here has none.
    """
    analyses = [one for one in study.split().values() if one.method in METHODS]
    return _joined(study, (_all_steps(one) if list_models(one.parameters) else _planned(one) for one in analyses))


def _joined(
    study: Study, of_analyses: Iterable[Mapping[type[SitePart], Collection[str]]]
) -> dict[type[SitePart], frozenset[str]]:
    """Return the steps of analyses together with those of the study as a whole."""
    steps: dict[type[SitePart], frozenset[str]] = {}
    for steps_of_parts in of_analyses:
        for part, names in steps_of_parts.items():
            steps[part] = steps.get(part, frozenset()) | frozenset(names)
    if study.data.selects:
        steps[FlowPart] = frozenset(FlowPart.steps())
    if conditions_of(study):
        steps[SubgroupFolds] = SUBGROUP_STEPS
    steps[PlanReview] = frozenset(PlanReview.steps())
    if study.masked:
        steps[MaskingKeys] = frozenset(MaskingKeys.steps())
    return steps


def _planned(study: Study) -> Mapping[type[SitePart], Collection[str]]:
    return _steps_of_analysis(study, make_estimator(study))


def _all_steps(study: Study) -> Mapping[type[SitePart], Collection[str]]:
    kind = find_estimator(study.method)
    return {part: part.steps() for part in (kind.aligned_by, kind.site_part) if part is not None}


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
