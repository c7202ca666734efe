"""The coordinator's handle on the sites of a study."""

from __future__ import annotations

import itertools
import math
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from multicentre.federation.engine import Call, Engine, Lost, Mask, Outcome, Protection, Refused, Selection, Upkeep
from multicentre.federation.errors import (
    ConfigurationError,
    LeftOutWarning,
    MessageError,
    MulticentreError,
    QuorumLost,
    SiteFailed,
    describe_reasons,
    group_equal,
    joined,
    name_some,
    reasons,
)
from multicentre.federation.messages import M, Message, Nothing, add_messages
from multicentre.federation.noise import Noise, Plan, PlanReview, PlanShown
from multicentre.federation.ranges import arrivals, check_alike
from multicentre.federation.rounds import Listener, Rounds, Silence
from multicentre.federation.steps import A, P, R, SitePart, Step
from multicentre.federation.storage import Store
from multicentre.federation.terms import Attempt, LeftOut, Terms, Traffic, can_leave_out
from multicentre.federation.totals import check_cells, is_held
from multicentre.federation.transcript import SessionOutline
from multicentre.federation.wire import size

F = TypeVar("F", bound="Federation")
V = TypeVar("V")
Errors = Mapping[str, MulticentreError]
_LEAVE_OUT = 'To fit without the sites that refuse, set refusing_sites="leave_out" (in a study file, under [run]).'


class Answers(dict[str, V]):
    """Sites' answers to a step, or what was made of them, by site.

    Attributes
    ----------
    refused : dict of str to str
        Sites whose policy or guard refused, and why; empty unless the step was asked with ``willing=True``.

    Examples
    --------
    >>> found = Answers({"lyon": 0.7, "oslo": float("nan")}, {"oslo": "fewer than 10 patients stand behind the answer"})
    >>> found["lyon"], found.refused["oslo"]
    (0.7, 'fewer than 10 patients stand behind the answer')
    """

    def __init__(self, answers: Mapping[str, V], refused: Mapping[str, str]) -> None:
        super().__init__(answers)
        self.refused = dict(refused)


class Summation(Protocol):
    """How the sum over sites comes about."""

    @property
    def protection(self) -> Protection:
        """Whether summands leave the sites unmasked or masked."""

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check, before a fit begins, that every sum its part declares can be taken over so many sites."""

    def total(self, federation: Federation, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the sites' answers."""

    def noise_spread(self, federation: Federation) -> float:
        """Return the standard deviation of the noise in the last sum, over that of the plan."""


class PlainSummation:
    """The coordinator's process adds the answers and passes on the sum alone."""

    protection: Protection = "unmasked"

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Plain sums need nothing."""

    def total(self, federation: Federation, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the sites' answers, added in the order of the sites' names."""
        answers = federation.collect(step, ask)
        check_alike(answers)
        return add_messages([answers[site] for site in answers])

    def noise_spread(self, federation: Federation) -> float:
        """Each site adds all of the noise."""
        return math.sqrt(len(federation.sites))


class Try(Generic[F]):
    """One attempt at a fit; made by :meth:`Federation.attempts`.

    Attributes
    ----------
    left_out : dict of str to str
        Sites that the next attempt is made without, and why; None where the attempt was not ended by refusals.
    """

    def __init__(self, opened: F) -> None:
        self.left_out: dict[str, str] | None = None
        self._opened = opened

    def __enter__(self) -> F:
        return self._opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._opened._attempt.restarts = False
        if not isinstance(error, LeftOut) or error.attempt is not self._opened._attempt:
            return False
        self.left_out = error.reasons
        return True


class Federation:
    """The sites of a study as a coordinator sees them.

    Most users make one with ``multicentre.Federation.in_process``. Sites are asked, numbered and added in the order of
    their names, so that a fit does not depend on the order in which they are listed.

    Parameters
    ----------
    engine : Engine
        What carries asks and answers.
    terms : Terms, optional
        Name of the study, quorum and time limit.
    summation : optional
        How sums come about: plain by default, masked for secure sums.
    store : Store, optional
        Where checkpoints are kept; without it a run cannot be resumed.
    listener : Listener, optional
        Who is told of rounds and losses.
    least_in_total : int, default 0
        A sum that rests on fewer patients, or that is a table of patients with a smaller cell, is not revealed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        terms: Terms | None = None,
        summation: Summation | None = None,
        store: Store | None = None,
        listener: Listener | None = None,
        least_in_total: int = 0,
    ) -> None:
        self.terms = terms or Terms()
        self.least_in_total = least_in_total
        self.traffic = Traffic()
        self._engine = engine
        self._summation: Summation = summation or PlainSummation()
        self._store = store
        self._listener: Listener = listener or Silence()
        # One order however the sites are listed: sums are rounded alike, and a site's place depends on its name alone.
        self._roster = self._sites = tuple(sorted(engine.sites))
        self._selection: Selection | None = None
        self._session = "0"
        self._part: type[SitePart] | None = None
        self._divided: Federation | None = None
        self._parameters = ""
        self._plan: Plan | None = None
        self._attempt = Attempt(self._session)
        self._left_out: dict[str, str] = {}
        self._handles_refusals = False
        self._called: Counter[str] = Counter()
        self._sequence = itertools.count()
        self._outline = SessionOutline()
        self._openings = itertools.count(1)
        self._check_quorum()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that still take part, sorted."""
        return self._sites

    @property
    def left_out(self) -> dict[str, str]:
        """Sites that the fit was made without because they refused, and why."""
        return dict(self._left_out)

    @property
    def part(self) -> type[SitePart] | None:
        """The site part of this fit; None before one began."""
        return self._part

    @property
    def selection(self) -> Selection | None:
        """The records that this handle is about; None for all."""
        return self._selection

    @property
    def session(self) -> str:
        """Name of the fit that this handle belongs to."""
        return self._session

    @property
    def protection(self) -> Protection:
        """How summands leave the sites: "unmasked" or "masked"."""
        return self._summation.protection

    @property
    def needed(self) -> int:
        """How many sites must answer."""
        return min(len(self._roster), max(1, self.terms.needed(len(self._roster))))

    @property
    def noise_spread(self) -> float:
        """Standard deviation of the noise in the last sum, over that of the plan; at least 1."""
        return self._summation.noise_spread(self)

    @property
    def plan(self) -> Plan | None:
        """The noise of this fit's releases; None without differential privacy."""
        return self._plan

    def begin(self, part: type[SitePart], parameters: str = "", *, plan: Plan | None = None) -> Self:
        """Return the same federation for one new fit of a method.

        Site parts live as long as the handle that this returns, so two fits never share what sites remember. A plan is
        shown to every site before anything else is asked, and a site whose budget it exceeds refuses.

        Parameters
        ----------
        part : type
            The method's site part.
        parameters : str
            What the fit depends on; a checkpoint of a fit with other parameters is refused.
        plan : Plan, optional
            The noise of every release: the fit is differentially private, and a release that is not planned is an
            error.

        Raises
        ------
        ConfigurationError
            A sum's declared range cannot be held over so many sites.
        RefusedByPolicy
            The plan does not fit a site's budget.
        """
        opened = self._opened(part, parameters, plan, restarts=False)
        opened._review()
        return opened

    def attempts(
        self, part: type[SitePart], parameters: str = "", *, plan: Plan | None = None, restarts: bool = True
    ) -> Iterator[Try[Self]]:
        """Yield attempts at one fit, each a context whose target is a handle as :meth:`begin` returns it.

        With ``refusing_sites="leave_out"`` in the terms, sites that refuse before a sum with their summands was read
        are treated as if they were not in the roster: the attempt ends, and another one over the other sites follows.
        A site that refuses later counts as lost. The last attempt is the one whose block is carried out to its end.

        Parameters
        ----------
        part, parameters, plan
            As for :meth:`begin`.
        restarts : bool, default True
            False where the fit cannot be made without a site: a refusal then ends it, whatever the terms say.

        Raises
        ------
        QuorumLost
            Too few sites are left after those that refuse.
        ConfigurationError, RefusedByPolicy
            As for :meth:`begin`.
        """
        handle = self
        while True:
            opened = handle._opened(part, parameters, plan, restarts=restarts)
            try:
                opened._take_up_left_out()
                opened._review()
            except LeftOut as ended:
                handle = handle.without(ended.reasons)
                continue
            attempt = Try(opened)
            yield attempt
            if attempt.left_out is None:
                return
            handle = handle.without(attempt.left_out)

    def _opened(self, part: type[SitePart], parameters: str, plan: Plan | None, *, restarts: bool) -> Self:
        self._summation.prepare(part, len(self._roster), plan)
        opened = object.__new__(type(self))
        opened.__dict__.update(self.__dict__)
        opened._session = f"{self._session}.{next(self._openings)}"
        store = self._store if self._leaves_out else None
        opened._attempt = Attempt(opened._session, self._attempt, store, restarts=restarts)
        opened._part = part
        opened._parameters = parameters
        opened._sites = self._roster
        opened._sequence = itertools.count()
        opened._outline = SessionOutline()
        opened._openings = itertools.count(1)
        errand = Upkeep("forget", opened._session, part)
        weakref.finalize(opened, self._engine.upkeep, errand, self._engine.sites).atexit = False
        opened._plan, opened._called = plan, Counter()
        return opened

    @property
    def _leaves_out(self) -> bool:
        return self.terms.refusing_sites == "leave_out"

    def _take_up_left_out(self) -> None:
        """Go on without the sites that an earlier process of the run left out of this fit."""
        before = self._attempt.left_out_before(self._roster) if self._leaves_out else {}
        if before:
            raise LeftOut(self._attempt, before)

    def _review(self) -> None:
        """Show the sites the plan of noise, where there is one."""
        plan, part = self._plan, self._part
        if plan is not None and part is not None:
            self.once("plan", Nothing, lambda: self._show(plan, part))

    def _drop_refusing(self, refused: Mapping[str, str]) -> None:
        warnings.warn(
            f"the result is without {len(refused):,} of {len(self._roster):,} sites, which refuse "
            f"({describe_reasons(refused)})",
            LeftOutWarning,
            stacklevel=2,
        )
        self._roster = tuple(site for site in self._roster if site not in refused)
        self._sites = tuple(site for site in self._sites if site not in refused)
        self._left_out = {**self._left_out, **refused}
        self._listener.sites_left_out(refused)

    def _leave_out_refusing(self, refusals: Errors) -> None:
        """Go on without sites that refuse to take part at all, where the terms allow it.

        Raises
        ------
        QuorumLost
            Too few sites are left.
        MulticentreError
            The terms do not allow it, or a site has another reason than its policy or guard.
        """
        if not self._leaves_out or not can_leave_out(refusals):
            raise self._joined(refusals, len(self._roster), restarts=True)
        self._check_remaining(refusals)
        self._drop_refusing(reasons(refusals))

    @contextmanager
    def handling_refusals(self) -> Iterator[None]:
        """Have refusals raised within, whatever the terms say: the method has another way where a site refuses."""
        self._handles_refusals = True
        try:
            yield
        finally:
            self._handles_refusals = False

    def select(self, folds: Sequence[int], sites: Sequence[str]) -> Self:
        """Return the federation of the records that this session's part put into some folds.

        Whatever is fitted over it works on these records alone, at the sites that have some.

        Parameters
        ----------
        folds : sequence of int
        sites : sequence of str
            Sites with a record in one of the folds.

        Raises
        ------
        ConfigurationError
            No site is left.
        """
        if not sites:
            raise ConfigurationError("no site has a record in these folds", where="folds", mend="Take fewer folds.")
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        chosen._selection = Selection(self._session, tuple(folds), self._selection)
        chosen._roster = chosen._sites = self._known(sites)
        chosen._divided = self
        return chosen

    def without(self, refused: Mapping[str, str]) -> Self:
        """Return the same federation without sites that refused, warn, and notify the listener.

        Parameters
        ----------
        refused : mapping of str to str
            Why each site refused; sites that do not take part are ignored.
        """
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        if known := {site: reason for site, reason in refused.items() if site in self._roster}:
            chosen._drop_refusing(known)
        return chosen

    def is_about(self, other: Federation) -> bool:
        """Tell whether two handles are about the same records of the same sites' federation."""
        return self._engine is other._engine and self._selection == other._selection

    def unmasked(self) -> Self:
        """Return the same federation with plain sums, for a single site: it has nobody to mask its answers with."""
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        chosen._summation = PlainSummation()
        return chosen

    def ask(self, step: Step[P, A, R], ask: A, *, to: Sequence[str] | None = None, willing: bool = False) -> Answers[R]:
        """Return each site's own answer to a step.

        Parameters
        ----------
        step : Step
            Written as an attribute of its site part: ``MvPPCASite.describe``.
        ask : Message
            What the step is told.
        to : sequence of str, optional
            Sites to ask, of a step that is addressed to each site; all by default.
        willing : bool, default False
            A site whose policy or guard refuses is left out of the answers, which hold its reason (``refused``), and
            stays in the federation.

        Raises
        ------
        ConfigurationError
            The step is declared as summed: only :meth:`sum` may call it. Or it is addressed to all sites, and `to`
            names some of them.
        QuorumLost
            Fewer sites answered than the study's quorum.
        DataError, RefusedByPolicy, DisclosureRefused
            Sites refused; the message names them.
        """
        if step.summed:
            raise ConfigurationError(
                "the step may be called for its sum over sites only", where=step.name, mend="Use federation.sum."
            )
        return self.collect(step, ask, to=to, willing=willing)

    def sum(self, step: Step[P, A, R], ask: A) -> R:
        """Return the sum over the sites' answers to a step, and nothing else about them.

        Raises
        ------
        ConfigurationError
            The step is not declared as summed.
        QuorumLost, DataError, RefusedByPolicy
            As for :meth:`ask`.
        DisclosureRefused
            A site refused, or the sum rests on fewer patients than the policy of a site wants behind a total.
        """
        if not step.summed:
            raise ConfigurationError("the step is not declared as summed", where=step.name, mend="Use federation.ask.")
        sites = self._sites
        total = self._summation.total(self, step, ask)
        if self.holds_totals(step):
            check_cells(total, self.least_in_total)
        self._attempt.note_sum(sites)
        return total

    def holds_totals(self, step: Step[Any, Any, Any]) -> bool:
        """Tell whether sums of a step are held against ``least_in_total``; noise takes its place."""
        return self.least_in_total > 0 and is_held(step.releases) and self.noise_of(step) is None

    def noise_of(self, step: Step[Any, Any, Any]) -> Noise | None:
        """Return the noise that this fit plans for a step; None without differential privacy."""
        return self._plan.noise_of(step, 0) if self._plan else None

    def rounds(self, n_rounds: int, kind: type[M], start: Callable[[], M], *, name: str = "rounds") -> Rounds[M]:
        """Return the loop of a method, taken up from its last checkpoint where there is one.

        Parameters
        ----------
        n_rounds : int
            At most this many rounds.
        kind : type
            The message that holds all that the coordinator carries from round to round.
        start : callable
            Makes the state before round one; not called when the loop is resumed.
        name : str
            Tells the loops of one fit apart.
        """
        return Rounds(
            n_rounds,
            start,
            kind,
            name=f"{self._session}-{name}",
            parameters=" ".join(filter(None, (self.terms.agreed, self.protection, self._parameters))),
            store=self._store,
            keep_sites=self._keep_sites,
            restore_sites=self._restore_sites,
            reset_sites=self._reset_sites,
            listener=self._listener,
        )

    def once(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        """Return what `make` makes; a resumed run takes the result from its checkpoint instead of asking again."""
        return self.rounds(0, kind, make, name=name).state

    def collect(
        self,
        step: Step[Any, Any, R],
        ask: Message | Mapping[str, Message],
        *,
        mask: Mask | None = None,
        to: Sequence[str] | None = None,
        willing: bool = False,
    ) -> Answers[R]:
        """Carry one ask (or each site's own) to the sites and return what they answered, after the quorum rule.

        For summations; methods use :meth:`ask` and :meth:`sum`.
        """
        sites = self._sites if to is None else self._known(to)
        asks = {site: ask if isinstance(ask, Message) else ask[site] for site in sites}
        for told in {id(told): told for told in asks.values()}.values():
            _check_ask(told, step)
        noise = self._plan.noise_of(step, self._called[step.name]) if self._plan else None
        number = next(self._sequence)
        calls = {
            site: Call(self.terms.study, self._session, number, step, told, sites, mask, noise, self._selection)
            for site, told in asks.items()
        }
        placed = self._outline.placed(calls, self._sites)
        outcomes = arrivals(placed, self._engine.exchange(placed, self.terms.time_limit_s))
        self._called[step.name] += 1
        return self._sorted_out(step, asks, outcomes, willing)

    def close(self) -> None:
        """Let go of the engine's threads and connections."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __repr__(self) -> str:
        without = f"; without {', '.join(self._left_out)}" if self._left_out else ""
        return f"Federation({', '.join(self._sites)}; sums {self.protection}, quorum {self.terms.quorum}{without})"

    def _sorted_out(
        self, step: Step[Any, Any, R], asks: Mapping[str, Message], outcomes: Mapping[str, Outcome], willing: bool
    ) -> Answers[R]:
        answers: dict[str, Any] = {}
        losses: dict[str, MulticentreError] = {}
        refusals: dict[str, MulticentreError] = {}
        for site in asks:
            outcome = outcomes[site]
            if isinstance(outcome, Refused) and not isinstance(outcome.error, SiteFailed):
                refusals[site] = outcome.error
            elif isinstance(outcome, Lost | Refused):
                losses[site] = outcome.error
            else:
                answers[site] = outcome
        spared = {site: error for site, error in refusals.items() if willing and can_leave_out({site: error})}
        if refusals := {site: error for site, error in refusals.items() if site not in spared}:
            losses |= self._lost_by_refusing(refusals, len(asks))
        self.traffic.add(step.name, _sizes(asks), sum(size(answer) for answer in answers.values()))
        self._drop(losses)
        return Answers(answers, reasons(spared))

    def _lost_by_refusing(self, refusals: Errors, n_asked: int) -> Errors:
        """Return the refusals of sites that count as lost.

        Raises
        ------
        LeftOut
            The fit is to be made again without sites of which no summand was read.
        QuorumLost
            Too few sites would be left for that.
        MulticentreError
            The fit cannot go on without the sites that refuse.
        """
        attempt = self._attempt
        if not (self._leaves_out and attempt.restarts) or self._handles_refusals or not can_leave_out(refusals):
            raise self._joined(refusals, n_asked, restarts=attempt.restarts)
        unread = {site: error for site, error in refusals.items() if not attempt.holds(site)}
        if not unread:
            return refusals
        self._check_remaining(unread)
        attempt.note_left_out(reasons(unread))
        raise LeftOut(attempt, reasons(unread))

    def _show(self, plan: Plan, part: type[SitePart]) -> Nothing:
        self.collect(PlanReview.review, PlanShown.of(plan, part))
        return Nothing()

    def _drop(self, losses: Errors) -> None:
        if not losses:
            return
        self._sites = tuple(site for site in self._sites if site not in losses)
        for site, error in losses.items():
            self._listener.site_lost(site, str(error))
        if len(self._sites) < self.needed:
            mend = "Bring the site back and resume the run, or lower the study's quorum."
            raise self._too_few(losses, len(self._sites), self.needed, mend)

    def _check_remaining(self, refusals: Errors) -> None:
        """Raise QuorumLost where too few sites are left without those that refuse."""
        n_left, is_masked = len(self._roster) - len(refusals), self.protection == "masked"
        needed = min(len(self._roster), self.terms.needed_of_willing(len(self._roster), masked=is_masked))
        if n_left < needed:
            mend = "Ask the stewards of the sites that refuse, or bring more sites in."
            raise self._too_few(refusals, n_left, needed, mend)

    def _too_few(self, errors: Errors, n_left: int, needed: int, mend: str) -> MulticentreError:
        n_sites = len(self._roster) + len(self._left_out)
        groups = [(name_some(sites), error.placed) for sites, error in group_equal(errors)]
        clauses = [f"{names}: {reason}" if len(groups) > 1 else reason for names, reason in groups]
        if self._left_out:
            clauses.append(f"before that it was left without {describe_reasons(self._left_out)}")
        mends = dict.fromkeys(error.mend for error in errors.values() if error.mend)
        lost = QuorumLost(
            f"{n_left} of {n_sites} sites answered, the study needs {needed}; " + "; ".join(clauses),
            where=name_some(list(errors)),
            mend=" ".join([*mends, mend]),
        )
        lost.refusals = reasons(errors)
        return lost

    def _joined(self, refusals: Errors, n_asked: int, *, restarts: bool) -> MulticentreError:
        """Return sites' refusals as one error, with the terms that would let the fit go on where they are not set."""
        error = joined(refusals, n_asked)
        if restarts and not self._leaves_out and len(refusals) < n_asked and can_leave_out(refusals):
            error.mend = f"{error.mend} {_LEAVE_OUT}".strip()
        return error

    def _keep_sites(self, label: str, number: int) -> tuple[str, ...]:
        if self._part is not None:
            self._engine.upkeep(Upkeep("keep", self._session, self._part, label, number, self._selection), self._sites)
        return self._sites

    def _restore_sites(self, label: str, number: int, sites: Sequence[str]) -> None:
        self._sites = tuple(site for site in self._sites if site in sites)
        if set(self._sites) != set(sites):
            raise QuorumLost(
                "the run that is taken up had more sites",
                where=", ".join(sorted(set(sites) - set(self._sites))),
                mend="Bring them back and resume the run, or start it anew.",
            )
        if self._part is not None:
            self._engine.upkeep(
                Upkeep("restore", self._session, self._part, label, number, self._selection), self._sites
            )

    def _reset_sites(self, label: str) -> None:
        if self._part is not None:
            self._engine.upkeep(Upkeep("reset", self._session, self._part, label, 0, self._selection), self._sites)

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        strangers = [name for name in names if name not in self._sites]
        if strangers:
            raise ConfigurationError(f"no such site takes part: {', '.join(strangers)}", where="to")
        return tuple(name for name in self._sites if name in set(names))

    def _check_quorum(self) -> None:
        needed = self.terms.needed(len(self._sites))
        if not self._sites or not 1 <= needed <= len(self._sites):
            raise ConfigurationError(
                f"a quorum of {needed} cannot be met by {len(self._sites)} sites",
                where="quorum",
                mend='Use "all" or a number between 1 and the number of sites.',
            )


def _check_ask(ask: Message, step: Step[Any, Any, Any]) -> None:
    if type(ask.checked()) is not step.asks:
        raise MessageError(f"the step takes {step.asks.__name__}, not {type(ask).__name__}", where=step.name)


def _sizes(asks: Mapping[str, Message]) -> int:
    known = {id(ask): size(ask) for ask in {id(ask): ask for ask in asks.values()}.values()}
    return sum(known[id(ask)] for ask in asks.values())
