"""Engines of a coordinator that lies: it tells one site something else than the others, and covers it up."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from multicentre.core.calls import Call, Lost, Refused
from multicentre.core.messages import Message, Nothing
from multicentre.core.transcript import digest_of
from multicentre.errors import QuorumLost
from multicentre.privacy.secure_sum.messages import Masked
from multicentre.privacy.secure_sum.site import MaskingKeys

LEFT_OUT = -1  # the number of the last lie
MAX_LIES = 6  # for each step, until the site accepts one; it refuses the others for what they say


class Wrapped:
    """An engine around another one; tests override :meth:`exchange`."""

    def __init__(self, engine):
        self.engine = engine
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        return self.engine.exchange(calls, time_limit_s)

    def exchange_together(self, batch, time_limit_s):
        return [self.exchange(calls, time_limit_s) for calls in batch]


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
        asked = dict(calls) | {victim: lies[min(self.number, len(lies) - 1)]}
        outcomes = super().exchange({site: call for site, call in asked.items() if call is not None}, time_limit_s)
        self.believed = isinstance(outcomes.get(victim, Nothing()), Message)
        return {site: outcomes.get(site) or _made_up(outcomes) for site in calls}


def _of_its_own(altered, call):
    """Return an altered call with an ask of its own: sites with one ask share a letter."""
    if altered is None or altered is call:
        return altered
    return dataclasses.replace(altered, request=dataclasses.replace(altered.request))


def _made_up(outcomes):
    return next(iter(outcomes.values()), Lost(QuorumLost("no answer")))


def lies_of(call, victim) -> Iterator[Call | None]:
    """Yield calls that differ from one in a field of its ask, then None: the victim is left out."""
    for request in islice(altered_asks(call.request), MAX_LIES):
        place = call.place
        if place.requests:  # the victim gets a list that holds what it is asked; the others keep theirs
            place = dataclasses.replace(
                place, requests=tuple((dict(place.requests) | {victim: digest_of(request)}).items())
            )
        yield dataclasses.replace(call, request=request, place=place)
    yield None


def covered_up(outcomes):
    """Return the outcomes with one transcript for all masked answers: the coordinator would overlook the difference."""
    masked = {site: outcome for site, outcome in outcomes.items() if isinstance(outcome, Masked)}
    first = next(iter(masked.values()), None)
    return outcomes | {site: dataclasses.replace(one, transcript=first.transcript) for site, one in masked.items()}


def altered_asks(request: Message) -> Iterator[Message]:
    """Yield requests that differ from one in one field, each by as little as a site might take."""
    fields = sorted(request.declarations().items(), key=lambda one: one[1].kind in ("text", "texts"))
    for field, declaration in fields:
        value = getattr(request, field)
        keyed = declaration.keyed and value
        for other in _others(declaration.kind, next(iter(value.values())) if keyed else value):
            yield dataclasses.replace(request, **{field: {**value, next(iter(value)): other} if keyed else other})


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


class Telling(Wrapped):
    """Alters the calls of some steps site by site, covers it up, and keeps the masked values of every sum.

    Parameters
    ----------
    engine : Engine
    alter : mapping of str to callable
        By step, "keys" for all those by which sites agree on masks: from a site and its call to the call that it gets;
        None to leave it out.

    Attributes
    ----------
    masked : dict of str to dict of str to array of uint64
        Masked values of the latest sum of each step, by site.
    layouts : dict of str to str
        What stands where in them.
    requests : dict of str to Message
        The latest ask of each step.
    """

    def __init__(self, engine, alter=()):
        super().__init__(engine)
        self.alter = dict(alter)
        self.masked, self.layouts, self.requests = {}, {}, {}

    def exchange(self, calls, time_limit_s):
        first = next(iter(calls.values())).step
        step = first.name if first.part.in_transcript else "keys"
        alter = self.alter.get(step, lambda site, call: call)
        asked = {site: _of_its_own(alter(site, call), call) for site, call in calls.items()}
        self.requests[step] = next(iter(calls.values())).request
        outcomes = super().exchange({site: call for site, call in asked.items() if call is not None}, time_limit_s)
        outcomes = covered_up({site: outcomes.get(site) or _made_up(outcomes) for site in calls})
        masked = {site: outcome for site, outcome in outcomes.items() if isinstance(outcome, Masked)}
        if masked:
            self.masked[step] = {site: outcome.vector.copy() for site, outcome in masked.items()}
            self.layouts[step] = next(iter(masked.values())).layout
        return outcomes

    def total(self, step) -> np.ndarray:
        """Return the sum of the masked values of a step."""
        return np.add.reduce(list(self.masked[step].values()))


def asks_by_site(change: Callable[[str, Message], Message]):
    """Return an alteration of calls by which every site gets its own ask."""
    return lambda site, call: dataclasses.replace(call, request=change(site, call.request))


def mask_by_the_last_ask(monkeypatch) -> None:
    """Have sites mask a sum by its own ask, whatever came before: without the transcript the attacks succeed."""

    def masks(keys, call):
        agreement, mask = keys._fitting(call)
        return agreement.masks(mask.number, call.step.name, call.mark.request)

    monkeypatch.setattr(MaskingKeys, "masks", masks)


def put_to(opened, offered, request, sites, peers=None):
    """Put a step to some sites, past the coordinator's own checks; return their answers or raise the first refusal."""
    number, peers = next(opened._sequence), tuple(peers or sites)
    told = Call(opened.terms.study, opened.name, number, offered, request, peers, selection=opened.selection)
    outcomes = opened.engine.exchange(dict.fromkeys(sites, told), None)
    for outcome in outcomes.values():
        if isinstance(outcome, Refused):
            raise outcome.error
    return outcomes
