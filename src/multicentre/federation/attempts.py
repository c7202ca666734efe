"""Attempts at a fit, and the sites that it goes on without: those that refuse before a sum with their summand was read.

A site that refuses in time is treated as if it had not been in the roster: the fit is made again from its beginning
over the other sites. After a sum with the site's summand was read, the same sum over the other sites would show that
summand as the difference; from then on a site that refuses counts as lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from multicentre.federation.errors import DisclosureRefused, MulticentreError, ProtocolRefused, RefusedByPolicy
from multicentre.federation.storage import Store


class LeftOut(Exception):  # not an error: no handler of errors may catch it
    """Ends an attempt at a fit that is to be made again without some sites.

    Parameters
    ----------
    attempt : Attempt
    reasons : mapping of str to str
        Why each site refused.
    """

    def __init__(self, attempt: Attempt, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(reasons))
        self.attempt = attempt
        self.reasons = dict(reasons)


class Attempt:
    """One attempt at a fit, shared by all handles of its session.

    Parameters
    ----------
    session : str
        Name of the session.
    outer : Attempt, optional
        The attempt within which the fit is made (the fold of a cross-validation, a stack of models).
    store : Store, optional
        Where the attempt is noted, so that a resumed run decides alike.
    restarts : bool, default False
        Whether the fit is made again without sites that refuse.

    Attributes
    ----------
    restarts : bool
        False once the fit has ended, or where it cannot be made again.
    summed : set of str
        Sites whose summands are in a sum that was read.
    """

    def __init__(
        self, session: str, outer: Attempt | None = None, store: Store | None = None, *, restarts: bool = False
    ) -> None:
        self.session = session
        self.restarts = restarts
        self.summed: set[str] = set()
        self._outer = outer
        self._store = store
        if noted := self._noted("summed"):
            self._add(noted)

    def holds(self, site: str) -> bool:
        """Whether a sum with the site's summand was read in this fit, or in one that is still under way around it."""
        outer = self._outer
        return site in self.summed or (outer is not None and outer.restarts and outer.holds(site))

    def note_sum(self, sites: Iterable[str]) -> None:
        """Note that a sum over these sites was read, in this fit and in those around it."""
        if self._store is not None and not self.summed:
            self._note("summed", list(sites))
        self._add(sites)

    def note_left_out(self, reasons: Mapping[str, str]) -> None:
        """Note without which sites the fit is made again."""
        self._note("left-out", dict(reasons))

    def left_out_before(self, roster: Iterable[str]) -> dict[str, str]:
        """Return which sites of the roster an earlier process of the run left out of this fit, and why."""
        noted = self._noted("left-out") if self.restarts else {}
        return {site: str(noted[site]) for site in roster if site in noted}

    def _add(self, sites: Iterable[str]) -> None:
        self.summed.update(sites)
        if self._outer is not None:
            self._outer.note_sum(sites)

    def _note(self, what: str, facts: object) -> None:
        if self._store is not None:
            self._store.keep(f"{self.session}-{what}", 0, json.dumps(facts).encode())

    def _noted(self, what: str) -> dict[str, str]:
        if self._store is None or not self._store.numbers(f"{self.session}-{what}"):
            return {}
        facts = json.loads(self._store.read(f"{self.session}-{what}", 0))
        return facts if isinstance(facts, dict) else dict.fromkeys(facts, "")


def can_leave_out(refusals: Mapping[str, MulticentreError]) -> bool:
    """Return whether all refusals come from sites' policies and guards, so that a study may go on without the sites.

    Unfit data, broken agreements and changed messages are faults, which somebody has to look at.
    """
    return all(
        isinstance(error, RefusedByPolicy | DisclosureRefused) and not isinstance(error, ProtocolRefused)
        for error in refusals.values()
    )
