"""Flow of records into the analyses of a study: assessed, left out by reason, and analysed.

A site selects the records of a study once, when it reads its files, so that all analyses are about the same patients.
The numbers by reason leave as one masked sum; sites' own numbers leave only if the policies permit all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Lengths, Message, Nothing, array, count, flag, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import IntegrityError

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Flow:
    """Records of a study at one site or at all sites.

    Parameters
    ----------
    assessed : int
        Records in the sites' files.
    excluded : dict of str to int
        Records that were left out, by the first reason that applies.

    Examples
    --------
    >>> Flow(120, {"condition not met: age >= 18": 15, "missing creatinine": 4}).analysed
    101
    """

    assessed: int
    excluded: dict[str, int]

    @property
    def analysed(self) -> int:
        """Records that are left for all analyses."""
        return self.assessed - sum(self.excluded.values())

    def leaving_out(self, reasons: dict[str, int]) -> Flow:
        """Return the flow with further reasons."""
        return Flow(self.assessed, {**self.excluded, **reasons})

    def published(self, least: int) -> dict[str, Any]:
        """Return the numbers for readers, None for small ones and for those from which they would follow.

        Examples
        --------
        >>> Flow(120, {"condition not met: age >= 18": 15, "missing age": 0, "missing creatinine": 4}).published(5)
        {'assessed': 120, 'excluded': {'condition not met: age >= 18': None, ...: 0, ...: None}, 'analysed': 101}
        """
        hidden, total = set[str](), 0
        for reason, number in sorted(self.excluded.items(), key=lambda item: item[1]):
            if 0 < number < least or 0 < total < least:  # the sum of the hidden numbers must not be small either
                hidden.add(reason)
                total += number
        excluded = {reason: None if reason in hidden else number for reason, number in self.excluded.items()}
        return {
            "assessed": None if 0 < total < least else self.assessed,
            "excluded": excluded,
            "analysed": self.analysed,
        }


@dataclass(frozen=True)
class Reasons(Message):
    """Reasons for which records are left out, in order; the same at all sites."""

    reasons: tuple[str, ...] = texts("reasons for which records are left out")


@dataclass(frozen=True)
class ReasonsHere(Release):
    """Reasons for which a site leaves records out, which follow from the study and the names of columns."""

    concerns_patients: ClassVar[bool] = False
    reasons: tuple[str, ...] = texts("reasons for which records are left out")


@dataclass(frozen=True)
class Reportable(Release):
    """Permission of a site's own numbers."""

    permitted: bool = flag("each of the site's numbers is 0 or of enough patients")


@dataclass(frozen=True)
class FlowCounts(Release):
    """Records that a study assessed and left out."""

    of_all_records: ClassVar[bool] = True
    without_values: ClassVar[bool] = True
    assessed: int = count("records in the site's files")
    excluded: Counts = array("records left out, by reason", ("d",), dtype="i8", bound=2.0**40, counts=True)


class FlowPart(SitePart):
    """Site part of the flow of records."""

    data: Any
    method: ClassVar[str] = "flow"
    lengths: ClassVar[Lengths] = {"d": "reasons for which records are left out"}

    @step(releases=ReasonsHere, when="once")
    def list_reasons(self, request: Nothing) -> ReasonsHere:
        """List the reasons for which the study leaves records out; no number of records."""
        return ReasonsHere(tuple(self._flow.excluded))

    @step(releases=FlowCounts, when="once", summed=True)
    def count_flow(self, request: Reasons) -> FlowCounts:
        """Count the records in the site's files, and those left out by reason."""
        return self._counts(request)

    @step(releases=Reportable, when="once", refusable=True)
    def may_report(self, request: Nothing) -> Reportable:
        """Return whether this site's own numbers may leave. They are requested only if those of all sites may."""
        return Reportable(self._fewest >= self.least_behind, patients=len(self.data))

    @step(releases=FlowCounts, when="once", refusable=True)
    def report_flow(self, request: Reasons) -> FlowCounts:
        """Count this site's records; refused if a number is below the policy's minimum of patients."""
        return self._counts(request)

    @property
    def _fewest(self) -> int:
        """Smallest of the site's numbers, apart from zeros."""
        return min(number for number in (self._flow.analysed, *self._flow.excluded.values()) if number)

    @property
    def _flow(self) -> Flow:
        flow = getattr(self.data, "flow", None)
        return flow if flow is not None else Flow(len(self.data), {})

    def _counts(self, request: Reasons) -> FlowCounts:
        flow = self._flow
        if tuple(flow.excluded) != request.reasons:
            raise IntegrityError(
                "the reasons for which records are left out must be those of this site; got others", where=self.site
            )
        behind = flow.analysed if self.masked else self._fewest
        return FlowCounts(flow.assessed, np.array(list(flow.excluded.values()), dtype=np.int64), patients=behind)


@dataclass(frozen=True)
class _Total(Message):
    """Totals over the sites, stored by the coordinator."""

    reasons: tuple[str, ...] = texts("reasons")
    assessed: int = count("records")
    excluded: Counts = array("records left out, by reason", ("d",), dtype="i8")


def count_flow(federation: Consortium) -> tuple[Flow, dict[str, Flow]]:
    """Return the flow of records over all sites, and that of each site if the policies permit the numbers of all.

    If all sites but one sent their numbers, the difference from the total would be those of this site.

    Raises
    ------
    IntegrityError
        Sites leave records out for different reasons.
    RefusedByPolicy, DisclosureRefused
        A site refuses the sum.
    """
    for attempt in federation.attempts(FlowPart):
        with attempt as session:
            total = session.once("flow", _Total, lambda: _total(session))
            answers = _by_site(session, total.reasons)
    sites = {site: _flow_of(total.reasons, answer.assessed, answer.excluded) for site, answer in answers.items()}
    return _flow_of(total.reasons, total.assessed, total.excluded), sites


def _by_site(session: Session, reasons: tuple[str, ...]) -> Mapping[str, FlowCounts]:
    permitted = session.ask(FlowPart.may_report, Nothing(), skip_refusals=True)
    if len(permitted) < len(session.sites) or not all(answer.permitted for answer in permitted.values()):
        return {}
    return session.ask(FlowPart.report_flow, Reasons(reasons), skip_refusals=True)


def _total(session: Session) -> _Total:
    first, *others = session.ask(FlowPart.list_reasons, Nothing()).values()
    if any(other.reasons != first.reasons for other in others):
        raise IntegrityError(
            "all sites must leave records out for the same reasons; got different ones",
            where="data",
            hint="Give all sites' files the same columns.",
        )
    counts = session.sum(FlowPart.count_flow, Reasons(first.reasons))
    return _Total(first.reasons, counts.assessed, counts.excluded)


def _flow_of(reasons: tuple[str, ...], assessed: int, excluded: Counts) -> Flow:
    return Flow(assessed, dict(zip(reasons, excluded.tolist(), strict=True)))
