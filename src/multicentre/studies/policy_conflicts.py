"""Steps that a study plans, and policies of sites that would refuse them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from multicentre.core.calls import Protection
from multicentre.core.steps import SitePart, Step
from multicentre.errors import MulticentreError, RefusedByPolicy
from multicentre.privacy.allowed_methods import find_objection
from multicentre.privacy.guarantee import rounded_up, spent_by
from multicentre.privacy.policy import (
    NEW_SITE,
    RELATIONS,
    Policy,
    Refusal,
    find_unpermitted,
    loosest_of,
    needed_permission,
)
from multicentre.studies.cross_validation import needs_pseudonym_key
from multicentre.studies.study import make_estimators

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study

_ROUNDING = 1e-9  # relative, of an epsilon that is computed from costs


@dataclass(frozen=True)
class StepRequest:
    """Step about single patients, with the protection of its request."""

    step: Step[Any, Any, Any]
    protection: Protection

    @property
    def is_masked(self) -> bool:
        """True if the answer is a masked summand."""
        return self.step.summed and self.protection == "masked"

    @property
    def permissions(self) -> list[str]:
        """Permissions that a policy must grant; an unmasked sum reveals a site's whole table."""
        declarations = self.step.releases.declarations().values()
        return sorted({needed_permission(self.step, one, self.protection) for one in declarations})

    @property
    def level(self) -> int:
        """Required level of relations, as an index into ``RELATIONS``."""
        return max(RELATIONS.index(one.partition("=")[2]) for one in self.permissions)

    def lacks(self, policy: Policy) -> str:
        """Return the permission that a policy lacks for the step; empty if the policy allows it."""
        return next((permission for one in self.permissions if (permission := policy.lacks(one))), "")

    def needs(self, level: str) -> bool:
        """Return whether the step requires relations of this level."""
        return f"relations={level}" in self.permissions


def protection_of(study: Study) -> Protection:
    """Return the protection of the study's sums."""
    return "masked" if study.masked else "unmasked"


def aligning_steps(estimator: FederatedEstimator) -> frozenset[str]:
    """Return the names of the steps that align the patients of a fit, with one of the two steps of agreement.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> sorted(aligning_steps(FedMSGL(3)))
    ['agree', 'confirm', 'count_records', 'send_fingerprint', 'send_pseudonyms']
    """
    if estimator.aligned_by is None:
        return frozenset()
    excluded_step = "agree" if getattr(estimator, "incomplete", False) else "agree_incomplete"
    return frozenset(estimator.aligned_by.steps()) - {excluded_step, "draw_nonce"}


def fitting_steps(estimator: FederatedEstimator, protection: Protection) -> frozenset[str]:
    """Return the names of the steps that a fit requests from a site under a protection.

    Two steps about single patients with the same request are alternatives: the sum is used if sums are masked, the
    site's own answer otherwise.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> sorted(fitting_steps(FedMSGL(3, landmarks=None), "masked"))
    ['describe', 'relate']
    """
    step_names = estimator.planned_steps()
    steps = [
        step for name, step in estimator.site_part.steps().items() if name in step_names and step.releases.individual
    ]
    request_types = {step.request_type for step in steps if step.summed == (protection == "masked")}
    excluded_steps = {
        step.name for step in steps if step.summed != (protection == "masked") and step.request_type in request_types
    }
    return frozenset(step_names) - excluded_steps


def alignment_requests(estimator: FederatedEstimator, protection: Protection) -> Iterator[StepRequest]:
    """Yield the requests about single patients of the alignment before a fit."""
    if estimator.aligned_by is not None:
        yield from _individual(estimator.aligned_by, protection, aligning_steps(estimator))


def fitting_requests(estimator: FederatedEstimator, protection: Protection) -> Iterator[StepRequest]:
    """Yield the requests about single patients of a fit."""
    return _individual(estimator.site_part, protection, fitting_steps(estimator, protection))


def _individual(part: type[SitePart], protection: Protection, step_names: Collection[str]) -> Iterator[StepRequest]:
    for name, step in part.steps().items():
        if name in step_names and step.releases.individual:
            yield StepRequest(step, protection)


_WHOSE = (
    "its privacy budget is per patient, and the study names neither id_column nor identifiers, nor states "
    "one_row_per_patient = true"
)


class Objection(NamedTuple):
    """Reason for which a policy refuses a study: the key of the policy and an explanation."""

    key: str
    reason: str


def check_budgets(study: Study) -> None:
    """Check that the noise of all analyses of a study fits the privacy budget of every site's policy.

    Raises
    ------
    RefusedByPolicy
        The analyses together exceed a budget; each of them alone may fit it.
    """
    estimators = make_estimators(study).values()
    plans = [plan for each in estimators if (plan := each.privacy_plan()) is not None]
    for site, policy in study.policies.items() if len(plans) > 1 else ():
        epsilon = spent_by(plans, protection_of(study)).epsilon(policy.delta)
        if objection := _exceeds(epsilon, len(plans), policy):
            raise RefusedByPolicy(
                f"the site's policy refuses this study: {objection}",
                where=f"{site}, policy, epsilon",
                hint="Raise the noise of the analyses, or leave some out.",
            )


def _exceeds(epsilon: float, n_plans: int, policy: Policy) -> str:
    """Return the objection to a cost above a policy's budget; empty without one."""
    if not policy.epsilon or epsilon <= policy.epsilon * (1 + _ROUNDING):
        return ""
    return (
        f"its {n_plans} analyses with noise cost epsilon {rounded_up(epsilon)} together at delta {policy.delta:g}, "
        f"and the budget is {policy.epsilon:g}"
    )


def check_policies(study: Study, estimator: FederatedEstimator) -> None:
    """Check that no site's policy refuses a study of a single analysis.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        Estimator of the study.

    Raises
    ------
    RefusedByPolicy
        A policy refuses; the error names its site and key, and its notes the objections of further sites.
    """
    objections = [
        (site, policy, objection)
        for site, policy in study.policies.items()
        for objection in find_objections(study, estimator, policy)
    ]
    if not objections:
        return
    site, policy, first = objections[0]
    masking = "Mask the sums (secure_sum = true). " if _is_met_by_masks(first, study, estimator, policy) else ""
    error = RefusedByPolicy(
        f"the site's policy refuses this study: {first.reason}",
        where=f"{site}, policy, {first.key}",
        hint=f"{masking}Ask the site's steward whether its policy can be changed, or leave the site out.",
    )
    for other, _, objection in objections[1:]:
        error.add_note(f"{other}, policy, {objection.key}: {objection.reason}")
    raise error


def find_objections(study: Study, estimator: FederatedEstimator, policy: Policy) -> list[Objection]:
    """Return the objections of a site's policy to a study.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        Estimator of the study.
    policy : Policy
        Policy of the site.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> study = study_from_mapping({"study": {"name": "x", "method": "fed-msgl"}, "sites": {"lab": {}, "ward": {}}})
    >>> find_objections(study, FedMSGL(3), Policy(min_sites_in_sum=3))
    [Objection(key='min_sites_in_sum', reason='a masked sum needs 3 sites')]
    """
    masked, parts = study.masked, (estimator.aligned_by, estimator.site_part)
    objections = [
        Objection("methods", f"the method {part.method} is not allowed{objection}")
        for part in parts
        if part is not None and (objection := find_objection(policy.allowed_methods, part.method, part)) is not None
    ]
    if policy.epsilon and estimator.privacy_plan() is None:
        objections.append(Objection("epsilon", "it has a privacy budget, and the study adds no noise"))
    elif policy.epsilon and study.data.counted == "records":
        objections.append(Objection("epsilon", _WHOSE))
    if policy.secure_sums_only and not masked:
        objections.append(Objection("secure_sums_only", "only masked sums may leave"))
    elif policy.secure_sums_only and estimator.aligned_by is not None:
        objections.append(Objection("secure_sums_only", "only masked sums may leave, and pseudonyms are not sums"))
    if masked and policy.min_sites_in_sum > len(study.sites):
        objections.append(Objection("min_sites_in_sum", f"a masked sum needs {policy.min_sites_in_sum} sites"))
    if (refusal := _lacking_permission(estimator, study, policy)) is not None:
        step_name, refused = refusal
        # Of the permissions, only exact_times concerns steps that are not about single patients.
        objections.append(Objection("exact_times", f"{step_name}, {refused.term}: {refused.reason}"))
    return objections + _about_patients(study, estimator, policy)


def planned_refusals(
    study: Study, estimator: FederatedEstimator, policies: Mapping[str, Policy]
) -> dict[str, MulticentreError]:
    """Return the refusals of sites whose policies lack a permission that a planned step requires, by site.

    A run in one process has all policies, and leaves these sites out, or ends, before it requests anything from them.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        Estimator of the study.
    policies : mapping from str to Policy
        Policy by site.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> from multicentre.survival import FedCox
    >>> study = study_from_mapping({"study": {"name": "x", "method": "fed-cox"}, "sites": {"lyon": {}, "oslo": {}}})
    >>> policies = {"lyon": Policy(), "oslo": Policy(exact_times=True)}
    >>> list(planned_refusals(study, FedCox(times="exact"), policies)), planned_refusals(study, FedCox(), policies)
    (['lyon'], {})
    """
    refusals: dict[str, MulticentreError] = {}
    for site, policy in policies.items():
        if (refusal := _lacking_permission(estimator, study, policy)) is not None:
            step_name, refused = refusal
            refusals[site] = RefusedByPolicy(
                refused.reason, where=f"{site}, {step_name}, {refused.term}", hint=refused.hint
            )
    return refusals


def _lacking_permission(estimator: FederatedEstimator, study: Study, policy: Policy) -> tuple[str, Refusal] | None:
    """Return the first planned step with a field that the policy does not permit, and the reason; None without one.

    Requests about single patients are compared separately, because some of them are alternatives.
    """
    planned, steps = estimator.planned_steps(), estimator.site_part.steps()
    if planned == frozenset(steps):  # the method does not select its steps, and may fit without the one that is refused
        return None
    for name, step in steps.items():
        if name in planned and not step.releases.individual:
            refusal = find_unpermitted(policy, step, protection_of(study), len(study.sites))
            if refusal is not None:
                return name, refusal
    return None


def study_objections(study: Study, policy: Policy) -> list[Objection]:
    """Return the objections of a site's policy to a study with all its analyses.

    Each analysis is checked, and the noise of all analyses together is compared with the privacy budget.

    Parameters
    ----------
    study : Study
    policy : Policy
        Policy of the site.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> blocks = [{"name": "table", "method": "describe"}, {"name": "model", "method": "fed-linear-regression"}]
    >>> data = {"table": {"kind": "number"}}
    >>> content = {"study": {"name": "x"}, "analysis": blocks, "data": data, "sites": {"lyon": {}, "oslo": {}}}
    >>> study_objections(study_from_mapping(content), Policy(methods=("describe",)))[0].reason
    'analysis model: the method fed-glm is not allowed'
    """
    objections: list[Objection] = []
    plans, estimators = [], make_estimators(study)
    for name, part in study.split().items():
        estimator = estimators[name]
        place = f"analysis {name}: " if name else ""
        plans += [plan] if (plan := estimator.privacy_plan()) is not None else []
        objections += [Objection(key, f"{place}{reason}") for key, reason in find_objections(part, estimator, policy)]
    if len(plans) > 1:
        epsilon = spent_by(plans, protection_of(study)).epsilon(policy.delta)
        if reason := _exceeds(epsilon, len(plans), policy):
            objections.append(Objection("epsilon", reason))
    return objections


def refused_at_new_sites(study: Study) -> list[str]:
    """Return the objections of the policy of a new site to a study that is simulated under another policy.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> study = study_from_mapping({"study": {"name": "x", "method": "fed-cox"}, "sites": {"lyon": {}, "oslo": {}}})
    >>> refused_at_new_sites(study)[0]
    'min_sites_in_sum: a masked sum needs 3 sites'
    """
    objections = [f"{each.key}: {each.reason}" for each in study_objections(study, NEW_SITE)]
    data = study.data
    if not (data.id_column or data.identifiers or data.events):
        objections.append("min_difference: records need ids (id_column), so that cohorts can be compared")
    if needs_pseudonym_key(study):
        objections.append(
            "pseudonym_key: folds of persons and aligned patients need a key that the sites share: one site makes it "
            "(multicentre secret new), and each names it in its site.toml"
        )
    loosest = loosest_of(study.policies.values())
    looser = [
        f"{name}: the simulation has {getattr(loosest, name)}, new sites have {getattr(NEW_SITE, name)}"
        for name in ("min_patients", "min_difference")
        if getattr(loosest, name) < getattr(NEW_SITE, name) and not any(one.startswith(name) for one in objections)
    ]
    return list(dict.fromkeys([*objections, *looser]))


def _about_patients(study: Study, estimator: FederatedEstimator, policy: Policy) -> list[Objection]:
    """Return the objections of a policy to the study's requests about single patients.

    If the requested steps depend on the number of patients, the step with the lowest required level is checked.
    """
    protection = protection_of(study)
    missing_permissions = [one.lacks(policy) for one in alignment_requests(estimator, protection)]
    mildest_first = sorted(fitting_requests(estimator, protection), key=lambda one: one.level)
    missing_permissions += [one.lacks(policy) for one in mildest_first[:1]]
    return [
        Objection(one.split()[0], f"it would have to say {one}") for one in dict.fromkeys(missing_permissions) if one
    ]


def _is_met_by_masks(objection: Objection, study: Study, estimator: FederatedEstimator, policy: Policy) -> bool:
    """Return whether masked sums would resolve the objection."""
    privacy = study.privacy.model_copy(update={"secure_sum": True})
    return objection not in find_objections(study.model_copy(update={"privacy": privacy}), estimator, policy)
