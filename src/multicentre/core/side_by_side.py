"""Several pieces of coordinator code side by side, whose calls travel together.

The fits of the folds of a cross-validation do not depend on each other. Run one after the other, they take as many
round trips as all of them together; side by side they take as many as the longest one:

1. Each branch is ordinary code in a separate thread. One branch runs at a time, in a fixed order, until it calls the
   sites.
2. When every branch waits for answers, their calls are sent as one request per site. A site carries them out in order;
   each is guarded, charged and recorded by itself.
3. The branches continue, in the same order.

The order is fixed, so a branch returns the same values as it would alone, bit by bit. Exceptions and warnings are those
of the branches one after the other: warnings appear in the order of the branches; if a branch fails, the later ones are
ended, the earlier ones run to their end, and the first error in order is raised.

Branches may run branches themselves; all calls of one turn travel together.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from multicentre.core.calls import Call, Engine, Outcome
from multicentre.core.run_terms import Traffic

# A site holds the records of each branch. Ten folds, the most in common use, still run in one wave.
MAX_BRANCHES = 10
_MAX_THREADS = 100  # their stacks take little memory; a federation may have more sites
_MAX_IDLE_TURNS = 1000  # far more than branches wait for each other in a chain
_PACKAGE = str(Path(__file__).parents[1])
T = TypeVar("T")
Outcomes = dict[str, Outcome]
_Warnings = tuple[Any, Any, Any]  # filters and outputs


@dataclass(frozen=True, eq=False)
class _Exchange:
    """Calls of one exchange that waits to be carried."""

    engine: Engine
    calls: Mapping[str, Call]
    time_limit_s: float | None
    traffic: Traffic


class _Ended(BaseException):
    """Raised in a branch that is ended; not an Exception, so that no handler of errors catches it."""


def run(branches: Sequence[Callable[[], T]], *, at_once: int | None = None) -> list[T]:
    """Return the results of the branches, in order.

    Parameters
    ----------
    branches : sequence of callable
        Pieces of code that do not depend on each other's results.
    at_once : int, optional
        Largest number of branches that run at the same time, for branches that do not each need memory at a site. By
        default it is ten, together with all branches around and within these. The next branch begins when one ends.

    Examples
    --------
    >>> run([lambda: 1, lambda: 2])
    [1, 2]
    """
    if len(branches) < 2:
        return [branch() for branch in branches]
    room = _ROOM.get() or _Room(MAX_BRANCHES - 1)
    return _Lockstep(branches, room, min(at_once, _MAX_THREADS) if at_once else None).run()


def exchange(engine: Engine, calls: Mapping[str, Call], time_limit_s: float | None, traffic: Traffic) -> Outcomes:
    """Carry calls to their sites and return the outcomes; calls of other branches travel in the same request."""
    waiting = [_Exchange(engine, calls, time_limit_s, traffic)]
    branch = _CURRENT.get()
    return (_carry(waiting) if branch is None else branch.wait(waiting))[0]


def wait_while(condition: Callable[[], bool]) -> None:
    """Let other branches run while a condition holds that one of them ends."""
    branch = _CURRENT.get()
    while branch is not None and condition():
        branch.wait([])


def wait_for_turn() -> None:
    """Let the branches before this one end first, as for a fit that spends a privacy budget.

    Side by side, such fits could each begin and together exhaust the budget, so that none is completed.
    """
    branch = _CURRENT.get()
    while branch is not None:
        earlier, branch = branch.earlier, branch.outer
        wait_while(lambda earlier=earlier: not all(one.has_ended for one in earlier))  # type: ignore[misc]


def clock() -> float:
    """Return a time in seconds that stands still while other branches run, for measuring one of them.

    Branches around this one wait only while it waits, so that their time is not subtracted twice.
    """
    branch = _CURRENT.get()
    return time.perf_counter() - (branch.idle_s if branch is not None else 0.0)


class _Branch(Generic[T]):
    """One piece of code in a thread, and what it waits for.

    Parameters
    ----------
    work : callable
    context : Context
        Context variables of the caller.
    outer : _Branch, optional
        The branch that runs this one.
    earlier : sequence of _Branch
        Branches before this one.
    """

    def __init__(
        self, work: Callable[[], T], context: Context, outer: _Branch[Any] | None, earlier: Sequence[_Branch[T]]
    ) -> None:
        self.outer = outer
        self.earlier = earlier
        self.waiting: list[_Exchange] = []
        self.result: T | None = None
        self.error: BaseException | None = None
        self.notes: list[warnings.WarningMessage] = []
        self.idle_s = 0.0
        self.has_begun = self.has_ended = False
        self._work: Callable[[], T] | None = work
        self._context: Context | None = context
        self._warnings: _Warnings = (warnings.filters[:], self._note_warning, _implementation())
        self._thread: threading.Thread | None = None
        self._go, self._back = SimpleQueue[None](), SimpleQueue[None]()
        self._has_yielded = self._may_go = self._is_ending = False
        self._answers: list[Outcomes] = []
        self._busy_s = 0.0

    def turn(self) -> None:
        """Let the branch run until it waits or ends. Filters of warnings are then those that it has set.

        An interrupt may come at any place in it, so states decide and not the number of tokens in the queues.
        """
        outside = _exchange_warnings(self._warnings)
        try:
            if self._thread is None:
                assert self._context is not None
                self._thread = threading.Thread(
                    target=self._context.run, args=(self._main,), name="branch", daemon=True
                )
                self._context = None
                self._thread.start()
            self.has_begun = True
            self._has_yielded, self._may_go = False, True
            self._go.put(None)
            while not (self._has_yielded or self.has_ended):
                self._back.get()
            if self.has_ended:
                self._thread.join()
        finally:
            self._warnings = _exchange_warnings(outside)

    def end(self) -> None:
        """End the branch: wherever it waits, it leaves its blocks."""
        self._is_ending = True
        while self.has_begun and not self.has_ended:
            self.turn()
        self._may_go = True
        self._go.put(None)  # a thread whose start was interrupted ends as well
        self.has_ended, self._work = True, None

    def wait(self, exchanges: list[_Exchange]) -> list[Outcomes]:
        """Let the other branches run, and return the outcomes of the exchanges."""
        began, busy_s = time.perf_counter(), self._busy_s
        self.waiting = exchanges
        self._has_yielded = True
        self._back.put(None)
        self._await_turn()
        self.waiting = []
        self.idle_s += time.perf_counter() - began - (self._busy_s - busy_s)
        if self._is_ending:
            raise _Ended
        answers, self._answers = self._answers, []
        return answers

    def receive(self, answers: list[Outcomes], seconds: float) -> None:
        """Receive the outcomes, and the branch's share of the time that they took."""
        self._answers, self._busy_s = answers, self._busy_s + seconds

    def _await_turn(self) -> None:
        while not self._may_go:
            self._go.get()
        self._may_go = False

    def _main(self) -> None:
        self._await_turn()
        _CURRENT.set(self)
        try:
            if self._work is not None and not self._is_ending:
                self.result = self._work()
        except _Ended:
            pass
        except BaseException as error:  # raised in the thread of the caller
            self.error = error
        self._work = None
        self.has_ended = True
        self._back.put(None)

    def _note_warning(self, *warning: Any, **place: Any) -> None:
        self.notes.append(warnings.WarningMessage(*warning, **place))


@dataclass
class _Room:
    """Number of branches that may begin next to those that run, shared by nested runs."""

    free: int

    def take(self) -> bool:
        """Take a place, and return whether there was one."""
        if not self.free:
            return False
        self.free -= 1
        return True


class _Lockstep(Generic[T]):
    """Runs branches in turn."""

    def __init__(self, works: Sequence[Callable[[], T]], room: _Room, width: int | None) -> None:
        self._outer = _CURRENT.get()
        self._room, self._n_places = room, 1  # the first place is that of the branch around these
        self._width = width
        self._caller = _caller()
        self._last = len(works)  # the first branch that failed; those after it do not run
        self._branches: list[_Branch[T]] = []
        for work in works:
            self._branches.append(_Branch(work, _context(room), self._outer, self._branches[:]))

    def run(self) -> list[T]:
        """Run all branches and return their results, or raise the first error."""
        try:
            while self._turn():
                self._carry()
        finally:
            for branch in self._branches:
                branch.end()
            self._leave_room()
        for branch in self._branches[: self._last + 1]:
            if branch.error is not None:
                error, branch.error = branch.error, None
                raise error
        return [branch.result for branch in self._branches]  # type: ignore[misc]  # every branch has a result

    def _turn(self) -> bool:
        """Let every branch run until it waits or ends, and return whether there are calls to carry."""
        n_idle = 0
        while n_idle < _MAX_IDLE_TURNS:
            n_ended = sum(branch.has_ended for branch in self._branches)
            self._run_each()
            living = self._living
            if not living:
                return False
            if any(branch.waiting for branch in living):
                return True
            if n_ended == sum(branch.has_ended for branch in self._branches):
                if self._outer is not None:
                    self._outer.wait([])
                else:
                    n_idle += 1
        raise RuntimeError("branches must not wait for each other in a circle")

    def _run_each(self) -> None:
        for place, branch in enumerate(self._branches):
            if branch.has_ended and place < self._last:
                continue
            if place >= self._last or not (branch.has_begun or self._has_place()):
                break  # those after it have not begun either
            branch.turn()
            if branch.error is not None:
                self._last = place
                for later in self._branches[place + 1 :]:
                    later.end()
        self._leave_room()
        self._show_warnings()

    def _has_place(self) -> bool:
        """Return whether another branch may begin."""
        n_living = len(self._living)
        if self._width is not None:
            return n_living < self._width
        if n_living >= self._n_places and self._room.take():
            self._n_places += 1
        return n_living < self._n_places

    def _leave_room(self) -> None:
        """Give back the places for which no branch is left."""
        n_left = sum(not branch.has_ended for branch in self._branches[: self._last])
        surplus = self._n_places - max(n_left, 1)
        if surplus > 0:
            self._n_places -= surplus
            self._room.free += surplus

    @property
    def _living(self) -> list[_Branch[T]]:
        return [branch for branch in self._branches if branch.has_begun and not branch.has_ended]

    def _carry(self) -> None:
        """Send the calls of all branches together, and hand out the outcomes."""
        waiting = [branch for branch in self._living if branch.waiting]
        exchanges = [one for branch in waiting for one in branch.waiting]
        began = time.perf_counter()
        outcomes = _carry(exchanges) if self._outer is None else self._outer.wait(exchanges)
        seconds = (time.perf_counter() - began) / len(exchanges)
        for branch in waiting:
            n_exchanges = len(branch.waiting)
            branch.receive(outcomes[:n_exchanges], seconds * n_exchanges)
            outcomes = outcomes[n_exchanges:]

    def _show_warnings(self) -> None:
        """Show the warnings of the first branches in order: those that have ended, and the first that has not."""
        for branch in self._branches[: self._last + 1]:
            notes, branch.notes = branch.notes, []
            for one in notes:
                place = self._caller if one.filename in _FILES_OF_THREADS else (one.filename, one.lineno)
                warnings.showwarning(one.message, one.category, *place, one.file, one.line)
            if not branch.has_ended:
                break


def _carry(exchanges: Sequence[_Exchange]) -> list[Outcomes]:
    """Carry exchanges: those of one engine together."""
    groups: dict[tuple[int, float | None], list[int]] = {}
    for place, one in enumerate(exchanges):
        groups.setdefault((id(one.engine), one.time_limit_s), []).append(place)
    outcomes: dict[int, Outcomes] = {}
    for places in groups.values():
        first, batch = exchanges[places[0]], [exchanges[place].calls for place in places]
        if len(batch) == 1:
            answers = [first.engine.exchange(batch[0], first.time_limit_s)]
        else:
            answers = first.engine.exchange_together(batch, first.time_limit_s)
        outcomes.update(zip(places, answers, strict=True))
        for traffic in {id(one): one for place in places for one in exchanges[place].traffic.chain}.values():
            traffic.round_trips += 1
    return [outcomes[place] for place in range(len(exchanges))]


def _context(room: _Room) -> Context:
    context = copy_context()
    context.run(_ROOM.set, room)
    return context


def _exchange_warnings(state: _Warnings) -> _Warnings:
    """Set filters and outputs of warnings, which Python has once per process, and return the previous ones."""
    previous = (warnings.filters, warnings.showwarning, _implementation())
    for name, value in zip(("filters", "showwarning", _IMPLEMENTATION), state, strict=True):
        setattr(warnings, name, value)  # the list of filters itself is replaced, as in warnings.catch_warnings
    getattr(warnings, "_filters_mutated", lambda: None)()  # filters that Python remembers by place are read again
    return previous


def _implementation() -> Any:
    return getattr(warnings, _IMPLEMENTATION, None)


def _caller() -> tuple[str, int]:
    """Return the place outside the package from which the branches are run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_CURRENT: ContextVar[_Branch[Any] | None] = ContextVar("branch", default=None)
_ROOM: ContextVar[_Room | None] = ContextVar("room", default=None)
_IMPLEMENTATION = "_showwarnmsg_impl"  # catch_warnings(record=True) replaces it
_FILES_OF_THREADS = (threading.__file__, __file__, "sys", "<sys>")  # a warning for the caller of a branch
