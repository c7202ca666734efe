"""Consortium: the sites of a study and the terms of their fits."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from types import TracebackType
from typing import Any, ClassVar, Self

from multicentre.core import side_by_side
from multicentre.core.calls import Engine, Protection, Selection
from multicentre.core.noise_plan import Plan
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Attempt, LeftOut, Terms, Traffic, can_leave_out
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.core.storage import Store
from multicentre.core.summation import PlainSummation, Summation
from multicentre.errors import (
    ConfigurationError,
    LeftOutWarning,
    MulticentreError,
    QuorumLost,
    describe_reasons,
    group_equal,
    joined,
    name_some,
    reasons,
)

_LEAVE_OUT = 'To fit without the sites that refuse, set refusing_sites="leave_out" (in a study file, under [run]).'


class Try:
    """One attempt at a fit; made by :meth:`Consortium.attempts`.

    Attributes
    ----------
    left_out : dict of str to str
        Sites that the next attempt is made without, and why; None unless refusals or losses ended the attempt.
    lost : bool
        True if losses ended the attempt.
    """

    def __init__(self, session: Session) -> None:
        self.left_out: dict[str, str] | None = None
        self.lost = False
        self._session = session

    def __enter__(self) -> Session:
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._session.attempt.restarts = False
        if not isinstance(error, LeftOut) or error.attempt is not self._session.attempt:
            return False
        self.left_out, self.lost = error.reasons, error.lost
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Consortium:
    """Sites of a study and the terms of fits over them.

    Most users make one with ``multicentre.Federation.in_process``. Sites are called, numbered and added in the order of
    their names, so that a fit does not depend on the order in which they are listed. A consortium is immutable; each
    fit over it is a :class:`Session` with separate state.

    Parameters
    ----------
    engine : Engine
        Carries calls and answers.
    terms : Terms, optional
        Name of the study, quorum and time limit.
    summation : Summation, optional
        Unmasked by default, masked for secure sums.
    store : Store, optional
        Storage of checkpoints; without it a run cannot be resumed.
    listener : Listener, optional
        Receives progress events.
    least_in_total : int, default 0
        A sum over fewer patients, or a table of patients with a smaller cell, is not revealed.
    sites : tuple of str, optional
        Names of the sites that take part, sorted; all of the engine by default.
    left_out : mapping of str to str, optional
        Sites that take no part because they refused or were lost, and why.
    lost : set of str, optional
        Those of them that were lost.
    selection : Selection, optional
        Records that fits work on; all by default.
    name : str, default "0"
        Prefix of the names of its fits.
    attempt : Attempt, optional
        The attempt at a fit within which fits over this consortium are made.
    openings : iterator of int, optional
        Numbers of its fits.
    divided_by : Session, optional
        Session whose site parts selected the records; it lives as long as the selection.
    traffic : Traffic, optional
        Counts calls and bytes.
    shared : dict, optional
        Answers that several fits over the same sites and records request once; see :meth:`Session.shared`. By default
        every fit requests its own.
    leaves_out_rare : bool, default False
        A fit to one site leaves out columns in which too few of its patients differ, instead of being refused.
    """

    engine: Engine
    _: KW_ONLY
    terms: Terms = field(default_factory=Terms)
    summation: Summation = field(default_factory=PlainSummation)
    store: Store | None = None
    listener: Listener = field(default_factory=Listener)
    least_in_total: int = 0
    sites: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    selection: Selection | None = None
    name: str = "0"
    attempt: Attempt = field(default_factory=lambda: Attempt("0"))
    openings: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    divided_by: Session | None = None
    traffic: Traffic = field(default_factory=Traffic)
    shared: dict[Hashable, Any] | None = None
    leaves_out_rare: bool = False
    session_type: ClassVar[type[Session]] = Session

    def __post_init__(self) -> None:
        if not self.sites:
            object.__setattr__(self, "sites", tuple(sorted(self.engine.sites)))
            self._check_quorum()

    @property
    def protection(self) -> Protection:
        """Form in which summands leave the sites: "unmasked" or "masked"."""
        return self.summation.protection

    @property
    def leaves_out(self) -> bool:
        """True if fits are made without sites that refuse."""
        return self.terms.refusing_sites == "leave_out"

    @property
    def needed(self) -> int:
        """Number of sites that must answer."""
        return min(len(self.sites), max(1, self.terms.needed(len(self.sites))))

    def begin(self, part: type[SitePart], parameters: str = "", *, plan: Plan | None = None) -> Session:
        """Return a session for one new fit of a method.

        Site parts live as long as the session, so two fits never share state at the sites. A plan is shown to every
        site before any other step, and a site whose budget it exceeds refuses.

        Parameters
        ----------
        part : type
            The method's site part.
        parameters : str
            Everything that the fit depends on; a checkpoint of a fit with other parameters is refused.
        plan : Plan, optional
            The noise of every release: the fit is differentially private, and a release that is not planned is an
            error.

        Raises
        ------
        ConfigurationError
            A sum's declared range is too large for this number of sites.
        RefusedByPolicy
            The plan exceeds a site's budget.
        """
        session = self._open(part, parameters, plan, restarts=False)
        session.review_plan()
        return session

    def attempts(
        self, part: type[SitePart], parameters: str = "", *, plan: Plan | None = None, restarts: bool = True
    ) -> Iterator[Try]:
        """Yield attempts at one fit, each a context whose target is a session as :meth:`begin` returns it.

        With ``refusing_sites="leave_out"`` in the terms, sites that refuse before a sum with their summands was read
        are treated as if they took no part: the attempt ends, and another one over the other sites follows. A site that
        refuses later counts as lost. With ``session.same_sites``, another attempt also follows the loss of a site. The
        last attempt is the one whose block runs to its end.

        Parameters
        ----------
        part, parameters, plan
            As for :meth:`begin`.
        restarts : bool, default True
            False if the fit is impossible without a site: a refusal then ends it, under any terms.

        Raises
        ------
        QuorumLost
            Too few sites are left after those that refuse.
        ConfigurationError, RefusedByPolicy
            As for :meth:`begin`.
        """
        consortium = self
        while True:
            session = consortium._open(part, parameters, plan, restarts=restarts)
            try:
                session.skip_sites_left_out_before()
                session.review_plan()
            except LeftOut as ended:
                consortium = consortium.without(ended.reasons, lost=ended.lost)
                continue
            attempt = Try(session)
            yield attempt
            if attempt.left_out is None:
                return
            consortium = consortium.without(attempt.left_out, lost=attempt.lost)

    def without(self, refused: Mapping[str, str], *, lost: bool = False) -> Self:
        """Return the same consortium without sites that refused or were lost, warn, and notify the listener.

        Parameters
        ----------
        refused : mapping of str to str
            Why each site refused or was lost; sites that take no part are ignored.
        lost : bool, default False
            True if the sites were lost.
        """
        leaving = {site: reason for site, reason in refused.items() if site in self.sites}
        if not leaving:
            return self
        state = "no longer take part" if lost else "refuse"
        warnings.warn(
            f"the result is without {len(leaving):,} of {len(self.sites):,} sites, which {state} "
            f"({describe_reasons(leaving)})",
            LeftOutWarning,
            stacklevel=2,
        )
        if not lost:  # a loss is reported when it happens
            self.listener.sites_left_out(leaving)
        remaining = tuple(site for site in self.sites if site not in leaving)
        gone = self.lost | set(leaving) if lost else self.lost
        return replace(self, sites=remaining, left_out={**self.left_out, **leaving}, lost=gone)

    def branches(self, n_branches: int) -> list[Self]:
        """Return copies of the consortium for fits side by side.

        The names of a branch's fits depend only on its number, and its traffic is also counted by itself.
        """
        names = [f"{self.name}.{next(self.openings)}" for _ in range(n_branches)]
        return [replace(self, name=name, openings=itertools.count(1), traffic=self.traffic.branch()) for name in names]

    def as_part_of(self, branch: Consortium) -> Self:
        """Return the same sites and records for fits that are part of a branch."""
        return replace(self, name=branch.name, openings=branch.openings, traffic=branch.traffic)

    def unmasked(self) -> Self:
        """Return the same consortium with unmasked sums, for a single site: no other site can share a mask with it."""
        return replace(self, summation=PlainSummation())

    def without_refusing(self, refusals: Mapping[str, MulticentreError]) -> Self:
        """Return the consortium without sites that refuse to take part at all, if the terms allow it.

        Raises
        ------
        QuorumLost
            Too few sites are left.
        MulticentreError
            The terms do not allow it, or a site has another reason than its policy or guard.
        """
        if not self.leaves_out or not can_leave_out(refusals):
            raise self.join_refusals(refusals, len(self.sites), restarts=True)
        self.check_remaining(refusals)
        return self.without(reasons(refusals))

    def is_about(self, other: Consortium) -> bool:
        """Return whether two consortia are about the same records of the same sites."""
        return self.engine is other.engine and self.selection == other.selection

    def check_remaining(self, refusals: Mapping[str, MulticentreError]) -> None:
        """Raise QuorumLost if too few sites are left without those that refuse."""
        n_left, is_masked = len(self.sites) - len(refusals), self.protection == "masked"
        needed = min(len(self.sites), self.terms.needed_of_willing(len(self.sites), masked=is_masked))
        if n_left < needed:
            hint = "Ask the stewards of the sites that refuse, or bring more sites in."
            lost = self.quorum_error(refusals, n_left, needed, hint)
            lost.refusal = self.join_refusals(refusals, len(self.sites), restarts=False)
            raise lost

    def quorum_error(self, errors: Mapping[str, MulticentreError], n_left: int, needed: int, hint: str) -> QuorumLost:
        """Return the error of a fit in which too few sites are left."""
        n_sites = len(self.sites) + len(self.left_out)
        groups = [(name_some(sites), error.placed) for sites, error in group_equal(errors)]
        clauses = [f"{names}: {reason}" if len(groups) > 1 else reason for names, reason in groups]
        if self.left_out:
            clauses.append(f"before that it was left without {describe_reasons(self.left_out)}")
        hints = dict.fromkeys(error.hint for error in errors.values() if error.hint)
        lost = QuorumLost(
            f"{n_left} of {n_sites} sites answered, the study needs {needed}; " + "; ".join(clauses),
            where=name_some(list(errors)),
            hint=" ".join([*hints, hint]),
        )
        lost.refusals = reasons(errors)
        return lost

    def join_refusals(
        self, refusals: Mapping[str, MulticentreError], n_called: int, *, restarts: bool
    ) -> MulticentreError:
        """Return sites' refusals as one error; its hint names the terms that would let the fit go on."""
        error = joined(refusals, n_called)
        if restarts and not self.leaves_out and len(refusals) < n_called and can_leave_out(refusals):
            error.hint = f"{error.hint} {_LEAVE_OUT}".strip()
        return error

    def close(self) -> None:
        """Release the engine's threads and connections."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.sites)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __repr__(self) -> str:
        without = f"; without {', '.join(self.left_out)}" if self.left_out else ""
        return f"Federation({', '.join(self.sites)}; sums {self.protection}, quorum {self.terms.quorum}{without})"

    def _open(self, part: type[SitePart], parameters: str, plan: Plan | None, *, restarts: bool) -> Session:
        self.summation.prepare(part, len(self.sites), plan)
        if plan is not None:
            side_by_side.wait_for_turn()
        name = f"{self.name}.{next(self.openings)}"
        attempt = Attempt(name, self.attempt, self.store, restarts=restarts, notes_sums=self.leaves_out)
        return self.session_type(self, part, name, attempt, parameters=parameters, plan=plan)

    def _check_quorum(self) -> None:
        needed = self.terms.needed(len(self.sites))
        if not self.sites or not 1 <= needed <= len(self.sites):
            raise ConfigurationError(
                f"quorum must be from 1 to the number of sites, {len(self.sites)}; got {needed}",
                where="quorum",
                hint='Use "all" or a number between 1 and the number of sites.',
            )
