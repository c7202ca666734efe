"""What sites' policies have against a study, found before anything is asked of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from multicentre.federation.errors import RefusedByPolicy
from multicentre.privacy.policy import Policy
from multicentre.studies.asked import aligning, fitting, protection_of

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study


_WHOSE = (
    "its privacy budget is per patient, and the study names neither id_column nor identifiers, nor states "
    "one_row_per_patient = true"
)


class Objection(NamedTuple):
    """Why a policy refuses a study: the key that stands against it, and what it says."""

    key: str
    reason: str


def check_policies(study: Study, estimator: FederatedEstimator) -> None:
    """Check that no site's policy refuses the study.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        The study's.

    Raises
    ------
    RefusedByPolicy
        A policy does; the error names its site and key, and the objections of further sites in notes.
    """
    found = [
        (site, policy, objection)
        for site, policy in study.policies.items()
        for objection in find_objections(study, estimator, policy)
    ]
    if not found:
        return
    site, policy, first = found[0]
    masking = "Mask the sums (secure_sum = true). " if _is_met_by_masks(first, study, estimator, policy) else ""
    error = RefusedByPolicy(
        f"the site's policy refuses this study: {first.reason}",
        where=f"{site}, policy, {first.key}",
        mend=f"{masking}Ask the site's steward whether its policy can be changed, or leave the site out.",
    )
    for other, _, objection in found[1:]:
        error.add_note(f"{other}, policy, {objection.key}: {objection.reason}")
    raise error


def find_objections(study: Study, estimator: FederatedEstimator, policy: Policy) -> list[Objection]:
    """Return what a site's policy has against a study.

    Parameters
    ----------
    study : Study
    estimator : FederatedEstimator
        The study's.
    policy : Policy
        The site's.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> from multicentre.studies.study import Study
    >>> study = Study.from_mapping({"study": {"name": "x", "method": "fed-msgl"}, "sites": {"lab": {}, "ward": {}}})
    >>> find_objections(study, FedMSGL(3), Policy(min_sites_in_sum=3))
    [Objection(key='min_sites_in_sum', reason='a masked sum needs 3 sites')]
    """
    masked, parts = study.masked, (estimator.aligned_by, estimator.site_part)
    found = [
        Objection("methods", f"the method {part.method} is not allowed")
        for part in parts
        if part is not None and policy.methods is not None and part.method not in policy.methods
    ]
    if policy.epsilon and estimator.privacy_plan() is None:
        found.append(Objection("epsilon", "it has a privacy budget, and the study adds no noise"))
    elif policy.epsilon and study.data.counted == "records":
        found.append(Objection("epsilon", _WHOSE))
    if policy.secure_sums_only and not masked:
        found.append(Objection("secure_sums_only", "only masked sums may leave"))
    elif policy.secure_sums_only and estimator.aligned_by is not None:
        found.append(Objection("secure_sums_only", "only masked sums may leave, and pseudonyms are no sum"))
    if masked and policy.min_sites_in_sum > len(study.sites):
        found.append(Objection("min_sites_in_sum", f"a masked sum needs {policy.min_sites_in_sum} sites"))
    return found + _about_patients(study, estimator, policy)


def _about_patients(study: Study, estimator: FederatedEstimator, policy: Policy) -> list[Objection]:
    """Return what a policy refuses of what a study has to know of single patients.

    Where it depends on the number of patients which steps are asked, the one that needs the least counts.
    """
    protection = protection_of(study)
    lacking = [one.lacks(policy) for one in aligning(estimator, protection)]
    mildest_first = sorted(fitting(estimator, protection), key=lambda one: one.level)
    lacking += [one.lacks(policy) for one in mildest_first[:1]]
    return [Objection(one.split()[0], f"it would have to say {one}") for one in dict.fromkeys(lacking) if one]


def _is_met_by_masks(objection: Objection, study: Study, estimator: FederatedEstimator, policy: Policy) -> bool:
    """Tell whether the policy would not object so if the study's sums were masked."""
    privacy = study.privacy.model_copy(update={"secure_sum": True})
    return objection not in find_objections(study.model_copy(update={"privacy": privacy}), estimator, policy)
