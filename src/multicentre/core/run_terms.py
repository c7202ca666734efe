"""Terms of all calls of a study, traffic between coordinator and sites, and attempts at a fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from multicentre.core.storage import Store
from multicentre.errors import (
    ConfigurationError,
    DisclosureRefused,
    MulticentreError,
    ProtocolRefused,
    RefusedByPolicy,
)

Quorum = Literal["all"] | int

RefusingSites = Literal["stop", "leave_out"]

REFUSING_SITES: tuple[str, ...] = get_args(RefusingSites)


@dataclass
class Traffic:
    """Calls and bytes of values sent so far, by step, over all sites.

    Attributes
    ----------
    round_trips : int
        Requests to the sites. Calls that travel together, such as those of the folds of a cross-validation, take one.
    """

    calls: dict[str, int] = field(default_factory=dict)
    bytes_to_sites: dict[str, int] = field(default_factory=dict)
    bytes_from_sites: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.round_trips = 0
        self._outer: Traffic | None = None

    @property
    def chain(self) -> Iterator[Traffic]:
        """Itself, and the traffic that it is part of."""
        one: Traffic | None = self
        while one is not None:
            yield one
            one = one._outer

    def add(self, step: str, sent: int, received: int) -> None:
        """Count one call of a step."""
        for one in self.chain:
            one.calls[step] = one.calls.get(step, 0) + 1
            one.bytes_to_sites[step] = one.bytes_to_sites.get(step, 0) + sent
            one.bytes_from_sites[step] = one.bytes_from_sites.get(step, 0) + received

    def branch(self) -> Traffic:
        """Return a traffic that is counted by itself and as part of this one."""
        part = Traffic()
        part._outer = self
        return part


@dataclass(frozen=True)
class Terms:
    """Terms of all calls of a study.

    Parameters
    ----------
    study : str
        Name of the study, written to every ledger.
    quorum : "all" or int
        Number of sites that must answer in every round.
    time_limit_s : float, optional
        Seconds that a site may take for one step; None for no limit.
    sites_per_patient : int
        Largest number of sites with records of one patient; the privacy loss adds up over them.
    refusing_sites : {"stop", "leave_out"}
        "stop": a refusal by a site's policy or guard ends the fit. "leave_out": the fit is made without the site; the
        quorum "all" then means all sites that do not refuse.
    counted : {"patients", "records"}
        Unit of minimum counts and noise: patients, or records if some site cannot assign records to patients.
    agreed : str
        Hash of the study's terms; checkpoints of a run under other terms are refused.
    """

    study: str = "study"
    quorum: Quorum = "all"
    time_limit_s: float | None = None
    sites_per_patient: int = 1
    refusing_sites: RefusingSites = "stop"
    counted: Literal["patients", "records"] = "patients"
    agreed: str = ""

    def __post_init__(self) -> None:
        if self.quorum != "all" and type(self.quorum) is not int:
            raise ConfigurationError(
                f"quorum must be 'all' or an int; got {self.quorum!r}", where="quorum", hint="It is a number of sites."
            )
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ConfigurationError(
                f"time_limit_s must be None or positive; got {self.time_limit_s!r}", where="time_limit_s"
            )
        if type(self.sites_per_patient) is not int or self.sites_per_patient < 1:
            raise ConfigurationError(
                f"sites_per_patient must be an int of at least 1; got {self.sites_per_patient!r}",
                where="sites_per_patient",
            )
        if self.refusing_sites not in REFUSING_SITES:
            raise ConfigurationError(
                f"refusing_sites must be one of {', '.join(map(repr, REFUSING_SITES))}; got {self.refusing_sites!r}",
                where="refusing_sites",
            )

    def needed(self, n_sites: int) -> int:
        """Return how many of `n_sites` must answer."""
        return n_sites if self.quorum == "all" else int(self.quorum)

    def needed_of_willing(self, n_sites: int, *, masked: bool) -> int:
        """Return how many of `n_sites` must remain without those that refuse.

        With ``quorum="all"`` all sites that do not refuse must remain, at least one; a masked sum needs two.
        """
        if self.refusing_sites == "leave_out" and self.quorum == "all":
            return 2 if masked else 1
        return self.needed(n_sites)


class LeftOut(Exception):  # not a MulticentreError, so that no handler of errors catches it
    """Ends an attempt at a fit that is to be made again without some sites.

    Parameters
    ----------
    attempt : Attempt
    reasons : mapping of str to str
        Why each site refused, or no longer answers.
    lost : bool, default False
        True if the sites answered before and do not any more.
    """

    def __init__(self, attempt: Attempt, reasons: Mapping[str, str], *, lost: bool = False) -> None:
        super().__init__(", ".join(reasons))
        self.attempt = attempt
        self.reasons = dict(reasons)
        self.lost = lost


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
    notes_sums : bool, default True
        Whether the store also holds the sites of the sums that were read.

    Attributes
    ----------
    restarts : bool
        False once the fit has ended, or where it cannot be made again.
    summed : set of str
        Sites whose summands are in a sum that was read.
    """

    def __init__(
        self,
        session: str,
        outer: Attempt | None = None,
        store: Store | None = None,
        *,
        restarts: bool = False,
        notes_sums: bool = True,
    ) -> None:
        self.session = session
        self.restarts = restarts
        self.summed: set[str] = set()
        self._outer = outer
        self._store = store
        self._notes_sums = notes_sums
        if noted := self._noted("summed"):
            self._add(noted)

    def holds(self, site: str) -> bool:
        """Return whether a sum with the site's summand was read in this fit, or in an unfinished fit around it."""
        outer = self._outer
        return site in self.summed or (outer is not None and outer.restarts and outer.holds(site))

    def note_sum(self, sites: Iterable[str]) -> None:
        """Record that a sum over these sites was read, in this fit and in the fits around it."""
        if self._notes_sums and not self.summed:
            self._note("summed", list(sites))
        self._add(sites)

    def note_left_out(self, reasons: Mapping[str, str], *, lost: bool = False) -> None:
        """Record the sites that the next attempt leaves out because they refuse or were lost, and why."""
        self._note("lost" if lost else "left-out", dict(reasons))

    def left_out_before(self, roster: Iterable[str], *, lost: bool = False) -> dict[str, str]:
        """Return which sites of the roster an earlier process of the run left out of this fit, and why."""
        noted = self._noted("lost" if lost else "left-out") if self.restarts else {}
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

    Invalid data, violated agreements and changed messages are faults that a person must examine.
    """
    return all(
        isinstance(error, RefusedByPolicy | DisclosureRefused) and not isinstance(error, ProtocolRefused)
        for error in refusals.values()
    )
