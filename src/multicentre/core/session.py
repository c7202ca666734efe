"""Session: one fit over the sites of a consortium."""

from __future__ import annotations

import itertools
import re
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from multicentre.core import side_by_side
from multicentre.core.calls import (
    Call,
    Engine,
    Lost,
    Mask,
    Outcome,
    Protection,
    Refused,
    Selection,
    StateCommand,
)
from multicentre.core.disk import FULL_AT_SITE
from multicentre.core.messages import M, Message, Nothing
from multicentre.core.noise_plan import Noise, Plan, PlanReview, PlanShown
from multicentre.core.range_checks import arrivals
from multicentre.core.rounds import Rounds
from multicentre.core.run_terms import Attempt, LeftOut, Terms, Traffic, can_leave_out
from multicentre.core.steps import A, P, R, SitePart, Step
from multicentre.core.total_minimum import check_cells, needs_minimum
from multicentre.core.transcript import SessionOutline
from multicentre.core.wire import size
from multicentre.errors import (
    ConfigurationError,
    MessageError,
    MulticentreError,
    QuorumLost,
    SiteFailed,
    StepFailed,
    name_some,
    reasons,
)

if TYPE_CHECKING:
    from multicentre.core.consortium import Consortium

_REQUESTED = object()  # an answer that a branch has requested and not yet received
_BRING_BACK = "Bring the site back and resume the run, or lower the study's quorum."
_CHECK_MACHINES = "Check memory, disk and connections of the sites' machines, and resume the run."
_FIX_METHOD = "Fix the method or its parameters. Each site's own log has the exception."
# Classes of exceptions by which a machine lacks memory, disk or a connection, in a site's message.
_RESOURCES = re.compile(rf"\((Memory|OS|IO|BlockingIO|BrokenPipe|Timeout|Connection\w*)Error\)$|^{FULL_AT_SITE}$")
_AFTER_SUMS = "A site whose values are part of a sum cannot be left out any more: lower the study's quorum to lose it."

V = TypeVar("V")
Errors = Mapping[str, MulticentreError]


class Answers(dict[str, V]):
    """Sites' answers to a step, or values computed from them, by site.

    Attributes
    ----------
    refused : dict of str to str
        Sites whose policy or guard refused, and why; empty unless the step was called with ``skip_refusals=True``.

    Examples
    --------
    >>> scores = Answers({"lyon": 0.7, "oslo": float("nan")}, {"oslo": "the answer rests on fewer than 10 patients"})
    >>> scores["lyon"], scores.refused["oslo"]
    (0.7, 'the answer rests on fewer than 10 patients')
    """

    def __init__(self, answers: Mapping[str, V], refused: Mapping[str, str]) -> None:
        super().__init__(answers)
        self.refused = dict(refused)


class Session:
    """One fit of a method: calls steps at the sites, and returns their answers or the sums over them.

    Made by :meth:`Consortium.begin` and :meth:`Consortium.attempts`. Site parts live as long as their session.

    Parameters
    ----------
    consortium : Consortium
        The sites, the records and the terms of the fit.
    part : type
        The method's site part.
    name : str
        Name of the fit, the same at a resumed run.
    attempt : Attempt
        Sites that take part, and the refusals so far.
    parameters : str
        Everything that the fit depends on.
    plan : Plan, optional
        The noise of every release.

    Attributes
    ----------
    sites : tuple of str
        Names of the sites that still take part, sorted.
    same_sites : bool
        True if all answers of the fit must be of the same sites: the loss of a site then ends the attempt, and the fit
        is made again without the site.
    """

    def __init__(
        self,
        consortium: Consortium,
        part: type[SitePart],
        name: str,
        attempt: Attempt,
        *,
        parameters: str = "",
        plan: Plan | None = None,
    ) -> None:
        self.consortium = consortium
        self.part = part
        self.name = name
        self.attempt = attempt
        self.plan = plan
        self.sites = consortium.sites
        self.same_sites = False
        self._parameters = parameters
        self._handles_refusals = False
        self._refusals: dict[str, MulticentreError] = {}
        self._gone: dict[str, MulticentreError] = {}
        self._n_together = 0
        self._ended_by: Exception | None = None  # of one of the requests that travel together
        self._called: Counter[str] = Counter()
        self._sequence = itertools.count()
        self._outline = SessionOutline()
        self._openings = itertools.count(1)
        forget = StateCommand("forget", name, part)
        weakref.finalize(self, self.engine.run_command, forget, self.engine.sites).atexit = False

    @property
    def engine(self) -> Engine:
        """Carries calls and answers."""
        return self.consortium.engine

    @property
    def terms(self) -> Terms:
        """Name of the study, quorum and time limit."""
        return self.consortium.terms

    @property
    def traffic(self) -> Traffic:
        """Calls and bytes of all fits over the consortium."""
        return self.consortium.traffic

    @property
    def left_out(self) -> dict[str, str]:
        """Sites that the fit is made without because they refused or were lost, and why."""
        return dict(self.consortium.left_out)

    @property
    def absent(self) -> dict[str, str]:
        """Sites without which the session continues, and why: those left out before, and those lost since."""
        return {**self.left_out, **reasons(self._gone)}

    @property
    def refusal(self) -> MulticentreError | None:
        """Refusals of the sites that left the session as one error; None if one of them was lost or none left."""
        missing = set(self.consortium.sites) - set(self.sites)
        if not missing or not missing <= self._refusals.keys():
            return None
        refusals = {site: self._refusals[site] for site in sorted(missing)}
        return self.consortium.join_refusals(refusals, len(self.consortium.sites), restarts=False)

    @property
    def selection(self) -> Selection | None:
        """The records that the fit works on; None for all."""
        return self.consortium.selection

    @property
    def protection(self) -> Protection:
        """Form in which summands leave the sites: "unmasked" or "masked"."""
        return self.consortium.protection

    @property
    def needed(self) -> int:
        """Number of sites that must answer."""
        return self.consortium.needed

    @property
    def least_in_total(self) -> int:
        """A sum over fewer patients is not revealed."""
        return self.consortium.least_in_total

    @property
    def noise_spread(self) -> float:
        """Standard deviation of the noise in the last sum, relative to that of the plan; at least 1."""
        return self.consortium.summation.noise_spread(self)

    @property
    def federation(self) -> Consortium:
        """The same sites and records, for fits that are part of this one."""
        return replace(self.consortium, name=self.name, attempt=self.attempt, openings=self._openings)

    def select(self, folds: Sequence[int], sites: Sequence[str]) -> Consortium:
        """Return the sites of some folds, with the records that this session's part assigned to them.

        A fit over the result works on these records only, at the sites that have some.

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
            raise ConfigurationError(
                "folds must hold records of at least one site; no site has a record in these folds",
                where="folds",
                hint="Select other folds.",
            )
        selection = Selection(self.name, tuple(folds), self.selection)
        return replace(self.federation, sites=self._among(sites), selection=selection, divided_by=self)

    def is_about(self, other: Consortium) -> bool:
        """Return whether the session and a consortium are about the same records of the same sites."""
        return self.consortium.is_about(other)

    @contextmanager
    def handling_refusals(self) -> Iterator[None]:
        """Raise refusals within the context, under any terms: the method can continue in another way."""
        self._handles_refusals = True
        try:
            yield
        finally:
            self._handles_refusals = False

    def ask(
        self, step: Step[P, A, R], message: A, *, to: Sequence[str] | None = None, skip_refusals: bool = False
    ) -> Answers[R]:
        """Return the answer of each site to a step.

        Parameters
        ----------
        step : Step
            Written as an attribute of its site part: ``MvPPCASite.describe``.
        message : Message
            Message passed to the step.
        to : sequence of str, optional
            Sites to call, for a step that is addressed to each site; all by default.
        skip_refusals : bool, default False
            A site whose policy or guard refuses is left out of the answers, which hold its reason (``refused``), and
            stays in the session.

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
                "a step called with session.ask must not be summed; this one is",
                where=step.name,
                hint="Use session.sum.",
            )
        return self.collect(step, message, to=to, skip_refusals=skip_refusals)

    def sum(self, step: Step[P, A, R], message: A, *, coarsen: Callable[[R, int], R] | None = None) -> R:
        """Return the sum over the sites' answers to a step, and nothing else about them.

        Parameters
        ----------
        step : Step
        message : Message
        coarsen : callable, optional
            Returns a coarser total for a total and the minimum of its cells, so that a table with small cells need not
            be refused. The total is already in this process: no site is asked again.

        Raises
        ------
        ConfigurationError
            The step is not declared as summed.
        QuorumLost, DataError, RefusedByPolicy
            As for :meth:`request`.
        DisclosureRefused
            A site refused, or the sum rests on fewer patients than the policy of a site requires for a total.
        """
        if not step.summed:
            raise ConfigurationError(
                "a step called with session.sum must be summed; it is not declared as summed",
                where=step.name,
                hint="Use session.ask.",
            )
        sites = self.sites
        try:
            total = self.consortium.summation.total(self, step, message)
        except QuorumLost as lost:  # a masked sum may need more sites than the quorum
            lost.refusal = lost.refusal or self.refusal
            raise
        if self.checks_totals(step):
            total = total if coarsen is None else coarsen(total, self.least_in_total)
            check_cells(total, self.least_in_total)
        self.attempt.note_sum(sites)
        return total

    def checks_totals(self, step: Step[Any, Any, Any]) -> bool:
        """Return whether sums of a step are compared with ``least_in_total``; noise takes its place."""
        return self.least_in_total > 0 and needs_minimum(step.releases) and self.noise_of(step) is None

    def noise_of(self, step: Step[Any, Any, Any]) -> Noise | None:
        """Return the noise that this fit plans for a step; None without differential privacy."""
        return self.plan.noise_of(step, 0) if self.plan else None

    def rounding(self, step: Step[Any, Any, Any], field: str) -> float:
        """Return the largest rounding error of a field of a step's sum, in the field's unit; 0 if sums are unmasked.

        Masked sums are multiples of a power of two, which is larger the more sites there are. Rounds that compare two
        sums, or stop at a small change, cannot resolve less.
        """
        return self.consortium.summation.rounding(self, step).get(field, 0.0)

    def rounds(self, max_iter: int, kind: type[M], start: Callable[[], M], *, name: str = "rounds") -> Rounds[M]:
        """Return the loop of a method, resumed from its last checkpoint if there is one.

        Parameters
        ----------
        max_iter : int
            Maximum number of rounds.
        kind : type
            The message that holds everything that the coordinator carries from round to round.
        start : callable
            Returns the state before round one; not called when the loop is resumed.
        name : str
            Distinguishes the loops of one fit.
        """
        return Rounds(
            max_iter,
            start,
            kind,
            name=f"{self.name}-{name}",
            parameters=" ".join(filter(None, (self.terms.agreed, self.protection, self._parameters))),
            store=self.consortium.store,
            keep_sites=self._keep_sites,
            restore_sites=self._restore_sites,
            reset_sites=self._reset_sites,
            listener=self.consortium.listener,
        )

    def together(self, requests: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return the answers to requests that do not depend on each other; their calls travel together.

        A step that a site may refuse, and that changes the state of its part, must not be among them: masks of sums
        after it depend on the state.

        If a refusal or a loss ends one request, the others end with the same error at their next call: after it, sums
        would be read over sites that leave the session, or could not be read because of the refusal.

        Parameters
        ----------
        requests : sequence of callable
            Each calls :meth:`ask`, :meth:`sum` or :meth:`once` of this session.
        """
        self._n_together += 1
        try:
            return side_by_side.run(requests, at_once=len(requests))
        finally:
            self._n_together -= 1
            if not self._n_together:
                self._ended_by = None

    def once(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        """Return what `make` returns; a resumed run takes the result from its checkpoint instead of calling again."""
        return self.rounds(0, kind, make, name=name).state

    def shared(self, name: str, about: Hashable, make: Callable[[], V]) -> V:
        """Return what `make` returns; of several analyses of a study, only the first requests it.

        The answer must depend only on the sites, their records and `about`. It is requested again if other sites or
        records take part, and in a fit with a plan of noise, whose answers differ each time.

        Parameters
        ----------
        name : str
            Name of the answer.
        about : hashable
            Everything else that the answer depends on.
        make : callable
            Requests the answer.
        """
        answers = self.consortium.shared
        if answers is None or self.plan is not None:
            return make()
        key = (name, about, self.sites, self.selection)
        side_by_side.wait_while(lambda: answers.get(key) is _REQUESTED)
        if key in answers:
            answer: V = answers[key]
            return answer
        answers[key] = _REQUESTED
        try:
            answer = make()
        finally:
            del answers[key]
        answers[name, about, self.sites, self.selection] = answer  # of the sites that answered
        return answer

    def collect(
        self,
        step: Step[Any, Any, R],
        message: Message | Mapping[str, Message],
        *,
        mask: Mask | None = None,
        to: Sequence[str] | None = None,
        skip_refusals: bool = False,
    ) -> Answers[R]:
        """Send one message (or each site's own) to the sites and return their answers, after the quorum rule.

        For summations; methods use :meth:`request` and :meth:`sum`.
        """
        self._check_not_ended()
        sites = self.sites if to is None else self._among(to)
        messages = {site: message if isinstance(message, Message) else message[site] for site in sites}
        for each in {id(each): each for each in messages.values()}.values():
            _check_message(each, step)
        noise = self.plan.noise_of(step, self._called[step.name]) if self.plan else None
        number = next(self._sequence)
        calls = {
            site: Call(self.terms.study, self.name, number, step, each, sites, mask, noise, self.selection)
            for site, each in messages.items()
        }
        placed = self._outline.placed(calls, self.sites)
        self._called[step.name] += 1  # before the exchange, during which other branches may call the step
        outcomes = side_by_side.exchange(self.engine, placed, self.terms.time_limit_s, self.traffic)
        outcomes = arrivals(placed, outcomes)
        self._check_not_ended()
        try:
            return self._sort_outcomes(step, messages, outcomes, skip_refusals)
        except (LeftOut, MulticentreError) as error:
            if self._n_together and not self._handles_refusals:
                self._ended_by = error
            raise

    def review_plan(self) -> None:
        """Show the sites the plan of noise, if there is one."""
        plan, part = self.plan, self.part
        if plan is None:
            return

        def show() -> Nothing:
            self.collect(PlanReview.review, PlanShown.of(plan, part))
            return Nothing()

        self.once("plan", Nothing, show)

    def skip_sites_left_out_before(self) -> None:
        """Raise LeftOut if an earlier process of the run left sites out of this fit."""
        for lost in (False, True):
            if before := self.attempt.left_out_before(self.consortium.sites, lost=lost):
                raise LeftOut(self.attempt, before, lost=lost)

    def __len__(self) -> int:
        return len(self.sites)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __repr__(self) -> str:
        without = f"; without {', '.join(self.left_out)}" if self.left_out else ""
        return f"Session({self.name}, {self.part.__name__}; {', '.join(self.sites)}; sums {self.protection}{without})"

    def _check_not_ended(self) -> None:
        """Raise the error that ended another request of :meth:`together`, if there is one."""
        if self._ended_by is not None:
            raise self._ended_by

    def _sort_outcomes(
        self, step: Step[Any, Any, R], messages: Mapping[str, Message], outcomes: Mapping[str, Outcome], skip: bool
    ) -> Answers[R]:
        answers: dict[str, Any] = {}
        losses: dict[str, MulticentreError] = {}
        refusals: dict[str, MulticentreError] = {}
        for site in messages:
            outcome = outcomes[site]
            if site in self._gone:  # by another branch: later sums of this one would be over other sites
                losses[site] = self._gone[site]
            elif isinstance(outcome, Refused) and not isinstance(outcome.error, SiteFailed):
                refusals[site] = outcome.error
            elif isinstance(outcome, Lost | Refused):
                losses[site] = outcome.error
            else:
                answers[site] = outcome
        skipped = {site: error for site, error in refusals.items() if skip and can_leave_out({site: error})}
        if refusals := {site: error for site, error in refusals.items() if site not in skipped}:
            losses |= self._lost_by_refusing(refusals, len(messages))
            self._refusals |= refusals
        self.traffic.add(step.name, _sizes(messages), sum(size(answer) for answer in answers.values()))
        self._drop(losses)
        return Answers(answers, reasons(skipped))

    def _lost_by_refusing(self, refusals: Errors, n_called: int) -> Errors:
        """Return the refusals of sites that count as lost.

        Raises
        ------
        LeftOut
            The fit is made again without sites of which no summand was read.
        QuorumLost
            Too few sites would be left for that.
        MulticentreError
            The fit cannot go on without the sites that refuse.
        """
        attempt, consortium = self.attempt, self.consortium
        can_restart = consortium.leaves_out and attempt.restarts and not self._handles_refusals
        if not can_restart or not can_leave_out(refusals):
            raise consortium.join_refusals(refusals, n_called, restarts=attempt.restarts)
        unread = {site: error for site, error in refusals.items() if not attempt.holds(site)}
        if not unread:
            return refusals
        consortium.check_remaining(unread)
        attempt.note_left_out(reasons(unread))
        raise LeftOut(attempt, reasons(unread))

    def _drop(self, losses: Errors) -> None:
        if not losses:
            return
        unnoted = {site: error for site, error in losses.items() if site in self.sites}  # by another branch
        self.sites = tuple(site for site in self.sites if site not in losses)
        self._gone |= unnoted
        refusal = self.refusal if len(self.sites) < self.needed else None
        for site, error in unnoted.items() if refusal is None else ():  # refusals that end the fit are reported as such
            self.consortium.listener.site_lost(site, str(error))
        if len(self.sites) < self.needed:
            if not self.sites and refusal is None:
                _raise_common_failure(losses)
            hint = _BRING_BACK if refusal is None else _AFTER_SUMS
            lost = self.consortium.quorum_error(losses, len(self.sites), self.needed, hint)
            lost.refusal = refusal
            raise lost
        if self.same_sites and self.attempt.restarts:
            self.attempt.note_left_out(reasons(losses), lost=True)
            raise LeftOut(self.attempt, reasons(losses), lost=True)

    def _keep_sites(self, label: str, number: int) -> tuple[str, ...]:
        self.engine.run_command(StateCommand("keep", self.name, self.part, label, number, self.selection), self.sites)
        return self.sites

    def _restore_sites(self, label: str, number: int, sites: Sequence[str]) -> None:
        self.sites = tuple(site for site in self.sites if site in sites)
        if set(self.sites) != set(sites):
            raise QuorumLost(
                "a resumed run must have all sites that it had before; it had more sites",
                where=", ".join(sorted(set(sites) - set(self.sites))),
                hint="Bring them back and resume the run, or start it again from the beginning.",
            )
        self.engine.run_command(
            StateCommand("restore", self.name, self.part, label, number, self.selection), self.sites
        )

    def _reset_sites(self, label: str) -> None:
        self.engine.run_command(StateCommand("reset", self.name, self.part, label, 0, self.selection), self.sites)

    def _among(self, names: Sequence[str]) -> tuple[str, ...]:
        strangers = [name for name in names if name not in self.sites]
        if strangers:
            raise ConfigurationError(
                f"sites must take part in the session; no such site takes part: {', '.join(strangers)}",
                where="to",
                hint=f"Sites of this session: {name_some(self.sites)}.",
            )
        return tuple(name for name in self.sites if name in set(names))


def _check_message(message: Message, step: Step[Any, Any, Any]) -> None:
    if type(message.checked()) is not step.request_type:
        raise MessageError(
            f"the message must be {step.request_type.__name__}; got {type(message).__name__}", where=step.name
        )


def _sizes(messages: Mapping[str, Message]) -> int:
    bytes_of = {key: size(message) for key, message in {id(each): each for each in messages.values()}.items()}
    return sum(bytes_of[id(message)] for message in messages.values())


def _raise_common_failure(errors: Mapping[str, MulticentreError]) -> None:
    """Raise StepFailed if a step failed at all sites, or QuorumLost if they lacked memory, disk or connections.

    Fewer sites would not help in either case, so that neither error suggests a lower quorum.
    """
    if not all(isinstance(error, SiteFailed) for error in errors.values()):
        return
    causes: dict[str, list[str]] = {}
    for site, error in errors.items():
        causes.setdefault(error.what, []).append(site)
    listed = "; ".join(f"{name_some(sites)}: {cause}" for cause, sites in causes.items())
    everywhere = f"at all {len(errors)} sites"
    what = f"{next(iter(causes))} {everywhere}" if len(causes) == 1 else f"the step failed {everywhere}; {listed}"
    is_resource = all(_RESOURCES.search(error.what) for error in errors.values())
    kind, hint = (QuorumLost, _CHECK_MACHINES) if is_resource else (StepFailed, _FIX_METHOD)
    failed = kind(what, where=name_some(list(errors)), hint=hint)
    failed.refusals = reasons(errors)
    raise failed
