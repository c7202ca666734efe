"""Protocol of a site's gate: checks before a step runs and before its answer leaves.

The gate (:class:`~multicentre.privacy.guard.Guard`) holds the site's policy and ledger: it admits or refuses calls
and answers. The seal masks what leaves for a sum. Both raise an error to refuse; nothing leaves unless both pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Call
from multicentre.core.messages import Message
from multicentre.core.noise_plan import PlanReview, PlanShown
from multicentre.core.rosters import roster_of
from multicentre.core.steps import Release, SitePart
from multicentre.errors import MulticentreError, RefusedByPolicy

Rows = NDArray[np.int64]


class Gate(Protocol):
    """Passes or refuses every call and every release of a site; fails closed by raising."""

    @property
    def least_behind(self) -> int:
        """Smallest number of patients behind a value."""

    def least_records(self, rows: Rows | None) -> int:
        """Return how many of the records at `rows` must stand behind a value so that enough patients do."""

    def least_in_answer(self, call: Call, rows: Rows | None) -> int:
        """Return how many of the records at `rows` must be behind the answer to a call."""

    def admit(self, call: Call) -> None:
        """Check, before anything is computed, that the site's policy allows the call."""

    def review(self, plan: PlanShown) -> None:
        """Check, before a fit begins, that all planned releases are allowed and within the budget."""

    def check_fit(self, call: Call, n_parameters: int, rows: Rows | None) -> None:
        """Check, before anything is computed, that a regression rests on enough patients for its coefficients."""

    def fields_of(self, data: Any) -> Any:
        """Return the views and columns of the data, as the site states them with its keys of masked sums."""

    def check_sites_per_field(self, call: Call, behind: Mapping[Any, Any]) -> None:
        """Check, before anything is computed, that enough sites stand behind each view and column of a masked sum."""

    def hides(self, call: Call) -> bool:
        """Return whether the noise of the call hides each patient, so that no minimum number is needed."""

    def release(self, call: Call, release: Release, rows: Rows | None = None) -> Release:
        """Check an answer, write it to the ledger, and return it with the noise of the call.

        Rows are the records that the answer is about; None for all.
        """

    def patients_among(self, rows: Rows) -> int:
        """Return the number of patients with records at `rows`; the number of records if patients are unknown."""

    def persons(self, rows: Rows | None, *, all_named: bool = True) -> Rows | None:
        """Return a number for the person of each record at `rows`; None if nobody has two records.

        If a record's person has no name, return None, or, without `all_named`, -1 for that record.
        """

    def note_failure(self, call: Call, error: BaseException) -> BaseException:
        """Write to the ledger that a step failed, and return the error that the coordinator may receive."""

    def note_departure(self, call: Call, error: MulticentreError) -> None:
        """Write to the ledger that a call is refused because it departs from earlier requests or agreements."""


class Seal(Protocol):
    """Masks an answer so that it is meaningful only in the sum over sites."""

    @property
    def keys(self) -> type[SitePart]:
        """The site part that holds a session's keys."""

    def new_keys(self, site: str, held: Any) -> SitePart:
        """Return the part that holds one session's keys at `site`, which has the fields `held`."""

    def sites_behind(self, call: Call, keys: SitePart) -> Mapping[Any, Any]:
        """Return the sites behind each view or column of a masked sum that this site has and some other site lacks."""

    def check(self, call: Call, keys: SitePart) -> None:
        """Check, before anything is computed, that the answer to a call can be masked."""

    def protect(self, call: Call, release: Release, keys: SitePart) -> Message:
        """Return the masked form of `release`."""


@dataclass(frozen=True)
class SessionSeal:
    """The seal of a site with its keys of one session."""

    seal: Seal
    keys: SitePart


def check_masking(gate: Gate, call: Call, sealing: SessionSeal) -> bool:
    """Check that the answer to a call can be masked, and return whether the mask hides it.

    It does not if this site may be the only one with a view or column, whose total is then its own sum.

    Raises
    ------
    MulticentreError
        The mask departs from what the sites agreed on, or too few sites stand behind a view or column.
    """
    try:
        sealing.seal.check(call, sealing.keys)
    except MulticentreError as error:
        gate.note_departure(call, error)
        raise
    if not call.step.part.sums_fields:
        return True
    behind = sealing.seal.sites_behind(call, sealing.keys)
    gate.check_sites_per_field(call, behind)
    return all(field.fewest > 1 or sealing.keys.site not in field.sites for field in behind.values())


def check_alignment(part: SitePart, call: Call) -> None:
    """Check who receives answers about aligned records, and that no plan of noise is about them.

    Raises
    ------
    RefusedByPolicy
        A site takes part that did not seal the order of the records, or the call shows a plan of noise.
    """
    if part.common is None:
        return
    if not roster_of(call.peers).distinct <= part.common.sites:
        raise RefusedByPolicy(
            "calls about aligned records must be to the sites that sealed their order; a site takes part that did not",
            where=part.site,
            hint="Align the records again with all sites that take part.",
        )
    if isinstance(part, PlanReview):
        raise RefusedByPolicy(
            "a plan of noise must be about patients who are at one site each; aligned records are of the same "
            "patients at all sites",
            where=part.site,
            hint="Leave epsilon out, or fit over sites that hold different patients.",
        )
