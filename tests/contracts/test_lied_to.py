"""What every method inherits: after a lie to one site, in whichever unmasked step, no masked sum is read.

The site is left out of the step, or told the smallest lie that it accepts: one number of the ask is moved by one bit.
The coordinator overlooks that the sites' transcripts differ and reads what it can.
"""

import functools

import pytest

from multicentre.errors import MulticentreError
from multicentre.privacy.ledger_comparison import compare_ledgers
from multicentre.privacy.secure_sum.rounds import MaskedSummation
from support.engines import with_engine
from support.lying import LEFT_OUT, MAX_LIES, Liar, Noting
from support.method_cases import CASES, each_case
from support.toy_method import federate

pytestmark = [
    pytest.mark.dealt(3),
    each_case,
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]


def fit(name, wrap, **options):
    case = CASES[name]
    with federate(case.sites(), secure_sum=True, policy=case.policy, **options) as federation:
        engine = wrap(federation.engine)
        federation = with_engine(federation, engine)
        try:
            case.make().fit(federation)
        except MulticentreError as error:
            return engine, error, found_in(federation)
    return engine, None, found_in(federation)


def found_in(federation):
    """Return what a comparison of the sites' ledgers finds."""
    return compare_ledgers({site: ledger.entries for site, ledger in federation.ledgers.items()}).differences


@functools.cache
def steps_before_sums(name):
    """Return the steps that are not summed and precede a masked sum of their session, or of one that rests on it."""
    engine, error, differences = fit(name, Noting)
    assert error is None
    assert not differences
    calls, found = [call for call in engine.calls if call.step.part.in_transcript], {}
    for place, call in enumerate(calls):
        sums = (later for later in calls[place:] if later.mask is not None)
        if call.mask is None and any(call.session in rests_on(later) for later in sums):
            found.setdefault((call.step.method, call.step.name), call.step)
    return tuple(found.values())


def rests_on(call):
    sessions, selection = {call.session}, call.selection
    while selection is not None:
        sessions, selection = sessions | {selection.plan}, selection.within
    return sessions


def lie(name, step, number, monkeypatch, **options):
    """Tell a lie in a step; return engine, error, the sums read after the lie, and how ledgers differ."""
    victim = list(CASES[name].sites())[1]
    read, total = [], MaskedSummation.total

    def noted(summation, federation, summed, request):
        result = total(summation, federation, summed, request)
        if federation.engine.lied:
            read.append(summed.name)
        return result

    monkeypatch.setattr(MaskedSummation, "total", noted)
    chosen = (step.method, step.name)
    wrap = functools.partial(
        Liar, victim=victim, is_chosen=lambda call: (call.step.method, call.step.name) == chosen, number=number
    )
    engine, error, differences = fit(name, wrap, **options)
    monkeypatch.undo()
    return engine, error, read, differences


@pytest.mark.parametrize("options", [{}, pytest.param({"quorum": 2}, marks=pytest.mark.slow)], ids=["all", "quorum"])
def test_after_a_lie_in_an_unmasked_step_no_sum_is_read(name, options, monkeypatch):
    for step in steps_before_sums(name):
        for number in (LEFT_OUT, *range(MAX_LIES)) if step.addressed == "all" else range(MAX_LIES):
            engine, error, read, differences = lie(name, step, number, monkeypatch, **options)
            assert engine.lied
            assert error is not None, f"{step.name}, lie {number}: the fit went on as if nothing had happened"
            assert differences  # of a step that one site alone was asked, the next call shows it
            assert step.addressed == "each" or differences[0].step == f"{step.method}.{step.name}"
            assert not read, f"{step.name}, lie {number}: {read} could be read"
            if number != LEFT_OUT and (engine.believed or engine.was_last):
                break
