"""The coordinator's handle on the sites of a study."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from multicentre.federation.engine import Call, Engine, Lost, Mask, Outcome, Protection, Refused, Selection, Upkeep
from multicentre.federation.errors import (
    ConfigurationError,
    DisclosureRefused,
    MessageError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
    SiteFailed,
    joined,
)
from multicentre.federation.messages import M, Message, Nothing, add_messages
from multicentre.federation.noise import Plan, PlanReview, PlanShown
from multicentre.federation.progress import Listener, Silence
from multicentre.federation.rounds import Rounds
from multicentre.federation.steps import A, P, R, SitePart, Step
from multicentre.federation.storage import Store
from multicentre.federation.terms import Terms, Traffic
from multicentre.federation.wire import size


class Summation(Protocol):
    """How the sum over sites comes about."""

    @property
    def protection(self) -> Protection:
        """Whether summands leave the sites in clear or masked."""

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check, before a fit begins, that every sum its part declares can be taken over so many sites."""

    def total(self, federation: Federation, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the sites' answers."""

    def noise_spread(self, federation: Federation) -> float:
        """Return the standard deviation of the noise in the last sum, over that of the plan."""


class PlainSummation:
    """The coordinator's process adds the answers and passes on the sum alone."""

    protection: Protection = "clear"

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Plain sums need nothing."""

    def total(self, federation: Federation, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the sites' answers, added in the order of the sites."""
        answers = federation.collect(step, ask)
        return add_messages([answers[site] for site in answers])

    def noise_spread(self, federation: Federation) -> float:
        """Each site adds all of the noise."""
        return math.sqrt(len(federation.sites))


class Federation:
    """The sites of a study as a coordinator sees them.

    Most users make one with ``multicentre.Federation.in_process``.

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
    """

    def __init__(
        self,
        engine: Engine,
        *,
        terms: Terms | None = None,
        summation: Summation | None = None,
        store: Store | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.terms = terms or Terms()
        self.traffic = Traffic()
        self._engine = engine
        self._summation: Summation = summation or PlainSummation()
        self._store = store
        self._listener: Listener = listener or Silence()
        self._roster = engine.sites
        self._sites = engine.sites
        self._selection: Selection | None = None
        self._session = "0"
        self._part: type[SitePart] | None = None
        self._divided: Federation | None = None
        self._parameters = ""
        self._plan: Plan | None = None
        self._called: Counter[str] = Counter()
        self._sequence = itertools.count()
        self._openings = itertools.count(1)
        self._check_quorum()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that still take part."""
        return self._sites

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
        """How summands leave the sites: "clear" or "masked"."""
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
        self._summation.prepare(part, len(self._roster), plan)
        opened = object.__new__(type(self))
        opened.__dict__.update(self.__dict__)
        opened._session = f"{self._session}.{next(self._openings)}"
        opened._part = part
        opened._parameters = parameters
        opened._sites = self._roster
        opened._sequence = itertools.count()
        opened._openings = itertools.count(1)
        errand = Upkeep("forget", opened._session, part)
        weakref.finalize(opened, self._engine.upkeep, errand, self._engine.sites).atexit = False
        opened._plan, opened._called = plan, Counter()
        if plan is not None:
            opened.once("plan", Nothing, lambda: opened._show(plan, part))
        return opened

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

    def is_about(self, other: Federation) -> bool:
        """Tell whether two handles are about the same records of the same sites' federation."""
        return self._engine is other._engine and self._selection == other._selection

    def in_clear(self) -> Self:
        """Return the same federation with plain sums, for a single site: it has nobody to mask its answers with."""
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        chosen._summation = PlainSummation()
        return chosen

    def ask(
        self, step: Step[P, A, R], ask: A, *, to: Sequence[str] | None = None, willing: bool = False
    ) -> dict[str, R]:
        """Return each site's own answer to a step.

        Parameters
        ----------
        step : Step
            Written as an attribute of its site part: ``MvPPCASite.describe``.
        ask : Message
            What the step is told.
        to : sequence of str, optional
            Sites to ask; all by default.
        willing : bool, default False
            A site whose policy or guard refuses is left out of the answer, and stays in the federation.

        Raises
        ------
        ConfigurationError
            The step is declared as summed: only :meth:`sum` may call it.
        QuorumLost
            Fewer sites answered than the study's quorum.
        DataError, RefusedByPolicy, DisclosureRefused
            A site refused; the message names it.
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
        QuorumLost, DataError, RefusedByPolicy, DisclosureRefused
            As for :meth:`ask`.
        """
        if not step.summed:
            raise ConfigurationError("the step is not declared as summed", where=step.name, mend="Use federation.ask.")
        return self._summation.total(self, step, ask)

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
            parameters=self._parameters,
            store=self._store,
            keep_sites=self._keep_sites,
            restore_sites=self._restore_sites,
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
    ) -> dict[str, R]:
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
        outcomes = self._engine.exchange(calls, self.terms.time_limit_s)
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
        return f"Federation({', '.join(self._sites)}; sums {self.protection}, quorum {self.terms.quorum})"

    def _sorted_out(
        self, step: Step[Any, Any, R], asks: Mapping[str, Message], outcomes: Mapping[str, Outcome], willing: bool
    ) -> dict[str, R]:
        answers: dict[str, Any] = {}
        losses: dict[str, MulticentreError] = {}
        refusals: dict[str, MulticentreError] = {}
        for site in asks:
            outcome = outcomes[site]
            if isinstance(outcome, Refused) and not isinstance(outcome.error, SiteFailed):
                if willing and isinstance(outcome.error, RefusedByPolicy | DisclosureRefused):
                    continue
                refusals[site] = outcome.error
            elif isinstance(outcome, Lost | Refused):
                losses[site] = outcome.error
            else:
                answers[site] = outcome
        if refusals:
            raise joined(refusals)
        self.traffic.add(step.name, _sizes(asks), sum(size(answer) for answer in answers.values()))
        self._drop(losses)
        return answers

    def _show(self, plan: Plan, part: type[SitePart]) -> Nothing:
        self.collect(PlanReview.review, PlanShown.of(plan, part))
        return Nothing()

    def _drop(self, losses: Mapping[str, MulticentreError]) -> None:
        if not losses:
            return
        self._sites = tuple(site for site in self._sites if site not in losses)
        for site, error in losses.items():
            self._listener.site_lost(site, str(error))
        if len(self._sites) < self.needed:
            clauses = [error.at(site).placed for site, error in losses.items()]
            clauses = clauses if len(losses) > 1 else [clauses[0].removeprefix(f"{', '.join(losses)}: ")]
            mends = dict.fromkeys(error.mend for error in losses.values() if error.mend)
            raise QuorumLost(
                f"{len(self._sites)} of {len(self._roster)} sites answered, the study needs "
                f"{self.needed}; " + "; ".join(clauses),
                where=", ".join(losses),
                mend=" ".join([*mends, "Bring the site back and resume the run, or lower the study's quorum."]),
            )

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

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        strangers = [name for name in names if name not in self._sites]
        if strangers:
            raise ConfigurationError(f"no such site takes part: {', '.join(strangers)}", where="to")
        return tuple(dict.fromkeys(names))

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
