"""Which steps the run of a study asks, and what those about single patients need of a site's policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multicentre.federation.engine import Protection
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
