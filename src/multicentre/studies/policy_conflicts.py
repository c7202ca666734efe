"""Steps that a study plans, and policies of sites that would refuse them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from multicentre.federation.engine import Protection
from multicentre.federation.errors import RefusedByPolicy
from multicentre.federation.steps import SitePart, Step
from multicentre.privacy.policy import RELATIONS, Policy, needed_permission

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study


@dataclass(frozen=True)
class Asked:
    """A step that tells of single patients, as it would be asked."""

    step: Step[Any, Any, Any]
    protection: Protection

    @property
    def is_masked(self) -> bool:
        """Whether the answer leaves as a masked summand."""
        return self.step.summed and self.protection == "masked"

    @property
    def permissions(self) -> list[str]:
        """What a policy must say; a sum that is not masked shows a site's whole table."""
        declarations = self.step.releases.declarations().values()
        return sorted({needed_permission(self.step, one, self.protection) for one in declarations})

    @property
    def level(self) -> int:
        """How much a policy must allow of relations, as the place of its level among all."""
        return max(RELATIONS.index(one.partition("=")[2]) for one in self.permissions)

    def lacks(self, policy: Policy) -> str:
        """Return what a policy would have to say for the step to be answered, empty where it says so."""
        return next((lacking for one in self.permissions if (lacking := policy.lacks(one))), "")

    def needs(self, level: str) -> bool:
        """Tell whether a policy must allow relations of this level."""
        return f"relations={level}" in self.permissions


def protection_of(study: Study) -> Protection:
    """Return how the study's sums leave a site."""
    return "masked" if study.masked else "unmasked"


def aligning_steps(estimator: FederatedEstimator) -> frozenset[str]:
    """Return the names of the steps by which a fit aligns its patients; of the two ways to agree, one is asked.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> sorted(aligning_steps(FedMSGL(3)))
    ['agree', 'confirm', 'count_records', 'tell_fingerprint', 'tell_pseudonyms']
    """
    if estimator.aligned_by is None:
        return frozenset()
    unasked = "agree" if getattr(estimator, "incomplete", False) else "agree_incomplete"
    return frozenset(estimator.aligned_by.steps()) - {unasked, "draw_nonce"}


def fitting_steps(estimator: FederatedEstimator, protection: Protection) -> frozenset[str]:
    """Return the names of the steps that a fit asks of a site under a protection.

    Two steps about single patients that take the same ask are two ways to one end: the sum where sums are masked, the
    site's own answer where they are not.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> sorted(fitting_steps(FedMSGL(3, landmarks=None), "masked"))
    ['describe', 'relate']
    """
    asked = estimator.asked_steps()
    steps = [step for name, step in estimator.site_part.steps().items() if name in asked and step.releases.individual]
    taken = {step.asks for step in steps if step.summed == (protection == "masked")}
    unasked = {step.name for step in steps if step.summed != (protection == "masked") and step.asks in taken}
    return frozenset(asked) - unasked


def aligning(estimator: FederatedEstimator, protection: Protection) -> Iterator[Asked]:
    """Yield what the alignment before a fit asks about single patients."""
    if estimator.aligned_by is not None:
        yield from _individual(estimator.aligned_by, protection, aligning_steps(estimator))


def fitting(estimator: FederatedEstimator, protection: Protection) -> Iterator[Asked]:
    """Yield what a fit asks about single patients."""
    return _individual(estimator.site_part, protection, fitting_steps(estimator, protection))


def _individual(part: type[SitePart], protection: Protection, asked: Collection[str]) -> Iterator[Asked]:
    for name, step in part.steps().items():
        if name in asked and step.releases.individual:
            yield Asked(step, protection)


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
        hint=f"{masking}Ask the site's steward whether its policy can be changed, or leave the site out.",
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
