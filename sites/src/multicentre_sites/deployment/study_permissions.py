"""Permissions that the approval of a study grants at a site: parts, steps, masks and noise, checked for every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multicentre.core.calls import Call
from multicentre.core.messages import ModelMessage
from multicentre.core.noise_plan import Noise, Plan, PlanShown
from multicentre.core.requester import requester_facts
from multicentre.core.run_terms import Terms
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError, ProtocolRefused, RefusedByPolicy
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_entries import call_metadata
from multicentre.privacy.minimum_counts import NoisedAnswers
from multicentre.privacy.patient_counts import People
from multicentre.privacy.policy import Policy
from multicentre.studies.planned_steps import steps_of_study
from multicentre.studies.policy_conflicts import fitting_steps, protection_of
from multicentre.studies.saved_models import list_models
from multicentre.studies.study import make_estimator
from multicentre.studies.subgroups import conditions_of
from multicentre.validation.folds.subgroups import Conditions

if TYPE_CHECKING:
    from multicentre.studies.study import Study

_MIN_SHARE = 1 - 1e-9  # tolerance for rounding of multipliers
_LONGEST_NAME = 100  # the coordinator chooses the name, and ledger entries must stay short
_HINT = "Run the study as it was approved, or have the changed one approved: multicentre site approve STUDY.toml."


@dataclass(frozen=True)
class FitPermission:
    """Steps of the fit of one analysis, and the noise of its releases.

    Parameters
    ----------
    part : type
        Site part of the method.
    steps : frozenset of str
    plan : Plan or None
        None for a fit without noise.
    """

    part: type[SitePart]
    steps: frozenset[str]
    plan: Plan | None


@dataclass(frozen=True)
class StudyPermissions:
    """Steps, masks and noise that a study may request from a site.

    Parameters
    ----------
    steps : mapping from type to frozenset of str
        Names of the permitted steps by site part.
    fits : tuple of FitPermission
        Steps and noise of the fit of each analysis.
    masked : bool
        True if sums leave the site only masked.
    quorum : int
        Minimum number of sites in every masked sum, also over some folds: two sums that differ by one site would reveal
        the value of that site. If a study excludes refusing sites and states no number, the minimum is two, and the
        site relies on the coordinator to exclude no other site.
    by_site : frozenset of type
        Site parts of analyses whose estimates by site the study releases: a fit to this site alone has unmasked sums.
    models : mapping from type to frozenset of str
        SHA-256 of the models that may be sent, by site part; parts of methods that fit their models are absent.
    conditions : frozenset of tuple of str
        Conditions by which the site may divide its records into subgroups.
    """

    steps: Mapping[type[SitePart], frozenset[str]]
    fits: tuple[FitPermission, ...]
    masked: bool
    quorum: int
    models: Mapping[type[SitePart], frozenset[str]] = field(default_factory=dict)
    by_site: frozenset[type[SitePart]] = frozenset()
    conditions: frozenset[tuple[str, ...]] = frozenset()

    def part(self, method: str) -> type[SitePart]:
        """Return the site part of this name.

        Raises
        ------
        ConfigurationError
            The study uses no part of this name.
        """
        for part in self.steps:
            if part.method == method:
                return part
        raise ConfigurationError(
            f"the method must be one that the approved study uses; got {method!r}", where="method", hint=_HINT
        )

    def objection(self, call: Call) -> tuple[str, str]:
        """Return the rule of the study that forbids a call, and the reason; two empty strings if it is permitted."""
        step = call.step
        if step.name not in self.steps.get(step.part, ()):
            return "study", "the step is not on the study's disclosure card"
        fixed = self.models.get(step.part)
        if fixed is not None and isinstance(call.request, ModelMessage) and call.request.model_digest not in fixed:
            return "study, model", "the model must be one of those that the study states; got another model"
        if isinstance(call.request, Conditions) and call.request.conditions not in self.conditions:
            return "study, where", "the conditions must be those that the study states; got others"
        if self.masked and step.summed and call.mask is None and step.part not in self.by_site:
            return "study, secure_sum", "sums of the study must be masked; this one is unmasked"
        if call.mask is not None and call.mask.threshold < self.quorum:
            return (
                "study, quorum",
                f"sums of the study must be over at least {self.quorum} sites; got {call.mask.threshold}",
            )
        fits = [fit for fit in self.fits if fit.part is step.part and step.name in fit.steps]
        objections = [_objection_of(fit.plan, call) for fit in fits]
        if not objections or not all(objections):
            return "", ""
        return "study, plan of noise", objections[0]

    def covers(self, plan: PlanShown) -> bool:
        """Return True if a plan has at least the noise and at most the calls of the study's plan."""
        fits = [fit for fit in self.fits if fit.part.method == plan.method]
        return any(fit.plan is not None and _covers(fit.plan, plan) for fit in fits)

    @property
    def noised_parts(self) -> tuple[type[SitePart], ...]:
        """Site parts of the analyses whose releases have noise."""
        return tuple(fit.part for fit in self.fits if fit.plan is not None)


class StudyGuard(Guard):
    """Guard of a real site: checks calls against the policy and the approved study.

    Parameters
    ----------
    permissions : StudyPermissions
    policy, ledger, people, site, n_records, noised
        As for :class:`Guard`.
    stands : callable, optional
        Returns True while approval and settings are unchanged since the guard was made.
    """

    def __init__(
        self,
        permissions: StudyPermissions,
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
        self.permissions = permissions
        self._stands = stands

    def admit(self, call: Call) -> None:
        """Check a call against the study and the policy before anything is computed.

        Raises
        ------
        ProtocolRefused
            The approved study does not permit the call.
        RefusedByPolicy, DisclosureRefused
            The policy forbids it; see :meth:`Guard.admit`.
        """
        where, reason = self.permissions.objection(call)
        kind: type[RefusedByPolicy] = ProtocolRefused
        if not self._stands():
            where, reason = "study", "the approval or the site's settings were changed since the run was opened"
            kind = RefusedByPolicy
        if reason:
            self.ledger.append("refusal", {**call_metadata(call), "reason": f"{where}: {reason}"})
            raise kind(reason, where=f"{call.step.name}, {where}", hint=_HINT)
        super().admit(call)

    def review(self, plan: PlanShown) -> None:
        """Check a plan of noise against the study, then against the policy and its budget.

        Raises
        ------
        ProtocolRefused
            The plan has less noise or more calls than the study's.
        RefusedByPolicy, DisclosureRefused
            The policy forbids it; see :meth:`Guard.review`.
        """
        if not self.permissions.covers(plan):
            where, reason = (
                "plan",
                "the plan of noise must have the noise and calls of the approved study; got less noise or more calls",
            )
            entry = {"method": plan.method[:_LONGEST_NAME], "step": where, **requester_facts()}
            self.ledger.append("refusal", {**entry, "reason": reason})
            raise ProtocolRefused(reason, where=where, hint=_HINT)
        super().review(plan)


def permissions_of(study: Study) -> StudyPermissions:
    """Return the permissions of a study: steps of its methods, of alignment, of folds and of scoring.

    The steps of several analyses with one method are permitted together.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown.
    """
    models: dict[type[SitePart], frozenset[str]] = {}
    fits, by_site = [], []
    for analysis in study.split().values():
        estimator = make_estimator(analysis)
        by_site += [estimator] if analysis.about.by_site else []
        names = fitting_steps(estimator, protection_of(analysis))
        if digests := frozenset(model.sha256 for model in list_models(analysis.parameters)):
            models[estimator.site_part] = models.get(estimator.site_part, frozenset()) | digests
        fits.append(FitPermission(estimator.site_part, names, estimator.privacy_plan()))
    return StudyPermissions(
        steps_of_study(study),
        tuple(fits),
        study.masked,
        Terms(quorum=study.run.quorum, refusing_sites=study.run.refusing_sites).needed_of_willing(
            len(study.sites), masked=study.masked
        ),
        models,
        frozenset(each.site_part for each in by_site),
        conditions_of(study),
    )


def _objection_of(plan: Plan | None, call: Call) -> str:
    """Return the objection of one analysis' plan to the noise of a call; empty if the plan permits it."""
    if plan is None:
        return ""
    try:
        planned = plan.noise_of(call.step, 0)
    except ConfigurationError:
        return "the step is not planned under the study's differential privacy"
    if planned is not None and not _is_sufficient(call.noise, planned):
        return "the answer must have the noise that the study plans; got less"
    return ""


def _covers(approved: Plan, plan: PlanShown) -> bool:
    planned_releases = {planned.step.name: planned for planned in approved.releases}
    plan_steps = zip(plan.steps, plan.noises(), strict=True)
    return all(
        name in planned_releases
        and times <= planned_releases[name].times
        and _is_sufficient(noise, planned_releases[name].noise)
        for name, (noise, times) in plan_steps
    )


def _is_sufficient(noise: Noise | None, planned: Noise) -> bool:
    if noise is None or noise.mechanism != planned.mechanism or set(noise.multipliers) != set(planned.multipliers):
        return False
    return all(noise.multipliers[name] >= least * _MIN_SHARE for name, least in planned.multipliers.items())
