"""Engines of a coordinator that lies: it tells one site something else than the others, and covers it up."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from multicentre.federation.engine import Call, Lost
from multicentre.federation.errors import QuorumLost
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.transcript import digest_of
from multicentre.privacy.secure_sum.messages import Masked

LEFT_OUT = -1  # the number of the last lie
MOST_LIES = 6  # for each step, until the site accepts one; it refuses the others for what they say


class Wrapped:
    """An engine around another one; tests override :meth:`exchange`."""

    def __init__(self, engine):
        self.engine = engine
        self.sites, self.upkeep, self.close = engine.sites, engine.upkeep, engine.close

    def exchange(self, calls, time_limit_s):
        return self.engine.exchange(calls, time_limit_s)


class Noting(Wrapped):
    """Notes every call of a fit."""

    def __init__(self, engine):
        super().__init__(engine)
        self.calls = []

    def exchange(self, calls, time_limit_s):
        self.calls.append(next(iter(calls.values())))
        return super().exchange(calls, time_limit_s)


class Liar(Wrapped):
    """Alters the first call of one step to one site.

    Parameters
    ----------
    engine : Engine
    victim : str
        The first site that is asked, where this one is not.
    is_chosen : callable
        Tells whether a call is to be altered.
    number : int
        Which of the possible lies is told, see :func:`lies_of`.

    Attributes
    ----------
    lied : bool
    believed : bool
        The victim answered the altered call.
    was_last : bool
        There are no further lies.
    """

    def __init__(self, engine, victim: str, is_chosen: Callable[[Call], bool], number: int = 0):
        super().__init__(engine)
        self.victim, self.is_chosen, self.number = victim, is_chosen, number
        self.lied = self.believed = self.was_last = False

    def exchange(self, calls, time_limit_s):
        if self.lied or not self.is_chosen(next(iter(calls.values()))):
            return covered_up(super().exchange(calls, time_limit_s))
        self.lied, victim = True, self.victim if self.victim in calls else next(iter(calls))
        lies = list(lies_of(calls[victim], victim))
        self.was_last = self.number in (LEFT_OUT, len(lies) - 1)
        asked = {site: lies[min(self.number, len(lies) - 1)] if site == victim else call for site, call in calls.items()}
        outcomes = super().exchange({site: call for site, call in asked.items() if call is not None}, time_limit_s)
        self.believed = isinstance(outcomes.get(victim, Nothing()), Message)
        return {site: outcomes.get(site) or _made_up(outcomes) for site in calls}


def _made_up(outcomes):
    return next(iter(outcomes.values()), Lost(QuorumLost("no answer")))


def lies_of(call, victim) -> Iterator[Call | None]:
    """Yield calls that differ from one in a field of its ask, then None: the victim is left out."""
    for ask in islice(altered_asks(call.ask), MOST_LIES):
        place = call.place
        if place.asks:  # the victim gets a list that holds what it is asked; the others keep theirs
            place = dataclasses.replace(place, asks=tuple((dict(place.asks) | {victim: digest_of(ask)}).items()))
        yield dataclasses.replace(call, ask=ask, place=place)
    yield None


def covered_up(outcomes):
    """Return the outcomes with one transcript for all masked answers: the coordinator would overlook the difference."""
    masked = {site: outcome for site, outcome in outcomes.items() if isinstance(outcome, Masked)}
    first = next(iter(masked.values()), None)
    return outcomes | {site: dataclasses.replace(one, transcript=first.transcript) for site, one in masked.items()}


def altered_asks(ask: Message) -> Iterator[Message]:
    """Yield asks that differ from one in one field, each by as little as a site might take."""
    fields = sorted(ask.declarations().items(), key=lambda one: one[1].kind in ("text", "texts"))
    for field, declaration in fields:
        value = getattr(ask, field)
        keyed = declaration.keyed and value
        for other in _others(declaration.kind, next(iter(value.values())) if keyed else value):
            yield dataclasses.replace(ask, **{field: {**value, next(iter(value)): other} if keyed else other})


def _others(kind, value):
    if value is None or (kind not in ("number", "count", "flag") and len(value) == 0):
        return
    if kind == "array":
        for place in (-1, 0):
            yield _changed(value, place)
    elif kind == "number":
        yield float(np.nextafter(value, np.inf))
    elif kind == "count":
        yield value + 1
    elif kind == "flag":
        yield not value
    else:
        yield value[:-1] + (value[-1] + "x" if kind == "text" else (value[-1] + "x",))


def _changed(array, place):
    changed = np.array(array)
    if changed.size:
        flat = changed.reshape(-1)
        flat[place] = np.nextafter(flat[place], np.inf) if changed.dtype.kind == "f" else flat[place] ^ 1
    return changed
