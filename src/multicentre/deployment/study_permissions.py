"""What the steward of a site agreed to when approving a study, held against every call: parts, steps, masks, noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multicentre.federation.engine import Call
from multicentre.federation.errors import ConfigurationError, ProtocolRefused, RefusedByPolicy
from multicentre.federation.noise import Noise, Plan, PlanReview, PlanShown
from multicentre.federation.requester import requester_facts
from multicentre.federation.steps import SitePart
from multicentre.federation.terms import Terms
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_entries import call_metadata
from multicentre.privacy.minimum_counts import NoisedAnswers
from multicentre.privacy.people import People
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.site import MaskingKeys
from multicentre.studies.methods import make_estimator
from multicentre.studies.policy_conflicts import aligning_steps, fitting_steps, protection_of

if TYPE_CHECKING:
    from multicentre.studies.study import Study

_LEAST_SHARE = 1 - 1e-9
_LONGEST_NAME = 100
_MEND = "Run the study as it was approved, or have the changed one approved: multicentre site approve STUDY.toml."


@dataclass(frozen=True)
class StudyPermissions:
    """What a study may ask of a site.

    Parameters
    ----------
    steps : mapping from type to frozenset of str
        Names of the steps that may be asked, by site part.
    fitted : type
        The part of the method itself, which the plan is about.
    plan : Plan or None
        The noise of the method's releases.
    masked : bool
        Whether sums leave only masked.
    quorum : int
        So many sites must stand in every masked sum, that over some folds as well: two sums of which one lacks a site
        would show that site's. Where a study leaves refusing sites out and gives no number, two are enough, and the
        site relies on the coordinator to leave none out that does not refuse.
    """

    steps: Mapping[type[SitePart], frozenset[str]]
    fitted: type[SitePart]
    plan: Plan | None
    masked: bool
    quorum: int

    def part(self, method: str) -> type[SitePart]:
        """Return the site part of this name.

        Raises
        ------
        ConfigurationError
            The study needs none of this name.
        """
        for part in self.steps:
            if part.method == method:
                return part
        raise ConfigurationError(f"the study that was approved does not use {method!r}", where="method", hint=_MEND)

    def objection(self, call: Call) -> tuple[str, str]:
        """Return what in the study stands against a call, and why; two empty texts where nothing does."""
        step = call.step
        if step.name not in self.steps.get(step.part, ()):
            return "study", "the step is not on the study's disclosure card"
        if self.masked and step.summed and call.mask is None:
            return "study, secure_sum", "the study's sums leave masked, and this one would leave unmasked"
        if call.mask is not None and call.mask.threshold < self.quorum:
            return "study, quorum", f"the study's sums are over {self.quorum} sites or more"
        if self.plan is None or step.part is not self.fitted:
            return "", ""
        try:
            planned = self.plan.noise_of(step, 0)
        except ConfigurationError:
            return "study, plan of noise", "the step is not planned under the study's differential privacy"
        if planned is not None and not _as_much(call.noise, planned):
            return "study, plan of noise", "the answer would leave with less noise than the study plans"
        return "", ""

    def covers(self, plan: PlanShown) -> bool:
        """Tell whether a plan asks for no less noise, and for no more calls, than the study's."""
        if self.plan is None or plan.method != self.fitted.method:
            return False
        known = {planned.step.name: planned for planned in self.plan.releases}
        shown = zip(plan.steps, plan.noises(), strict=True)
        return all(
            name in known and times <= known[name].times and _as_much(noise, known[name].noise)
            for name, (noise, times) in shown
        )


class StudyGuard(Guard):
    """The guard of a real site: beside the policy it holds calls against the study as it was approved.

    Parameters
    ----------
    agreed : StudyPermissions
    policy, ledger, people, site, n_records, noised
        As for :class:`Guard`.
    stands : callable, optional
        Says whether approval and settings are still those of when this guard was made.
    """

    def __init__(
        self,
        agreed: StudyPermissions,
        policy: Policy,
        ledger: Ledger,
        people: People | None = None,
        *,
        site: str = "",
        n_records: int | None = None,
        stands: Callable[[], bool] = lambda: True,
        noised: NoisedAnswers | None = None,
    ) -> None:
        super().__init__(policy, ledger, people, site=site, n_records=n_records, noised=noised)
        self.agreed = agreed
        self._stands = stands

    def admit(self, call: Call) -> None:
        """Check a call against the study and the policy before anything is computed.

        Raises
        ------
        ProtocolRefused
            The study that was approved does not say so.
        RefusedByPolicy, DisclosureRefused
            The policy stands against it; see :meth:`Guard.admit`.
        """
        where, reason = self.agreed.objection(call)
        kind: type[RefusedByPolicy] = ProtocolRefused
        if not self._stands():
            where, reason = "study", "the approval or the site's settings were changed since the run was opened"
            kind = RefusedByPolicy
        if reason:
            self.ledger.append("refusal", {**call_metadata(call), "reason": f"{where}: {reason}"})
            raise kind(reason, where=f"{call.step.name}, {where}", hint=_MEND)
        super().admit(call)

    def review(self, plan: PlanShown) -> None:
        """Hold a plan of noise against that of the study, then against the policy and its budget.

        Raises
        ------
        ProtocolRefused
            It has less noise, or more calls, than the study's.
        RefusedByPolicy, DisclosureRefused
            The policy stands against it; see :meth:`Guard.review`.
        """
        if not self.agreed.covers(plan):
            where, reason = "plan", "the plan of noise is not that of the study that was approved"
            facts = {"method": plan.method[:_LONGEST_NAME], "step": where, **requester_facts()}
            self.ledger.append("refusal", {**facts, "reason": reason})
            raise ProtocolRefused(reason, where=where, hint=_MEND)
        super().review(plan)


def permissions_of(study: Study) -> StudyPermissions:
    """Return what a study may ask of a site: its method, what aligns or divides records for it, and what scores it.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown.
    """
    estimator = make_estimator(study)
    steps: dict[type[SitePart], Collection[str]] = {
        estimator.site_part: fitting_steps(estimator, protection_of(study)),
        PlanReview: PlanReview.steps(),
    }
    if estimator.aligned_by is not None:
        steps[estimator.aligned_by] = aligning_steps(estimator) | {"draw_nonce"}
    for part in _validating(study):
        steps[part] = part.steps()
    if study.masked:
        steps[MaskingKeys] = MaskingKeys.steps()
    return StudyPermissions(
        {part: frozenset(names) for part, names in steps.items()},
        estimator.site_part,
        estimator.privacy_plan(),
        study.masked,
        Terms(quorum=study.run.quorum, refusing_sites=study.run.refusing_sites).needed_of_willing(
            len(study.sites), masked=study.masked
        ),
    )


def _validating(study: Study) -> list[type[SitePart]]:
    if study.validation is None:
        return []
    from multicentre.studies.validating import make_splitter
    from multicentre.validation.scoring.scores import find_evaluator

    return [make_splitter(study, study.validation).site_part, find_evaluator(make_estimator(study)).part]


def _as_much(noise: Noise | None, planned: Noise) -> bool:
    if noise is None or noise.mechanism != planned.mechanism or set(noise.multipliers) != set(planned.multipliers):
        return False
    return all(noise.multipliers[name] >= least * _LEAST_SHARE for name, least in planned.multipliers.items())
