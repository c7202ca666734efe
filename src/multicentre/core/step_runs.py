"""Run of one step at a site: its part is prepared and checked, and changes of state are entered in the transcript."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager

from multicentre.core.calls import Call
from multicentre.core.guard_protocol import Gate, check_alignment
from multicentre.core.messages import Message
from multicentre.core.site_sessions import SiteSessions
from multicentre.core.steps import Release, SitePart
from multicentre.core.transcript import SiteTranscript
from multicentre.errors import ConfigurationError


def run_step(call: Call, sessions: SiteSessions, gate: Gate, *, is_hidden: bool) -> Release:
    """Run the step of a call and return its answer, which has not passed the gate yet.

    Parameters
    ----------
    call : Call
        Entered in the transcript and admitted by the gate.
    sessions : SiteSessions
    gate : Gate
    is_hidden : bool
        Whether a mask hides the answer in a total over sites. Otherwise it is checked as an unmasked one.

    Raises
    ------
    MulticentreError
        The answer would be about too few patients, or the step failed; the gate writes both to the ledger.
    """
    with _noting_failure(gate, call):
        part = sessions.part(call.session, call.step.part, call.selection)
        part.noised = gate.hides(call)
        part.masked, part.least_behind = is_hidden, _least_behind(call, sessions, gate)
        part.least_in_answer = 0 if part.noised else gate.least_in_answer(call, sessions.rows_behind(call))
        part.n_peers = call.n_peers
        check_alignment(part, call)
        if not (part.masked or part.noised):
            sessions.check_unmasked_answer(call)
        n_parameters = part.n_parameters(call.request)
    gate.check_fit(call, 0 if part.noised else n_parameters, sessions.rows_behind(call))
    with _noting_failure(gate, call), _noting_change(part, call, sessions.transcripts[call.session]):
        release: Release = call.step.run(part, call.request)
    return release


def _least_behind(call: Call, sessions: SiteSessions, gate: Gate) -> int:
    """Return the policy's minimum in the unit that a part counts: patients, or records that belong to as many."""
    return gate.least_behind if call.step.part.counts_persons else gate.least_records(sessions.rows_of(call))


@contextmanager
def _noting_failure(gate: Gate, call: Call) -> Iterator[None]:
    """Write an error within the block to the ledger, and raise the one that the coordinator may receive."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise gate.note_failure(call, error) from None


@contextmanager
def _noting_change(part: SitePart, call: Call, transcript: SiteTranscript) -> Iterator[None]:
    """Enter in the transcript that a step changed state or records, also if it failed after that.

    Sites may refuse what others accept. A site with another state must therefore have another transcript.
    """
    state, memory, completed = part.state, _memory_of(part), False
    attributes = dict(vars(part))
    try:
        yield
        completed = True
    finally:
        if call.step.addressed == "each" and part.state is state:
            # Derived values are removed as well: other sites, which were not called, did not derive them.
            vars(part).clear()
            vars(part).update(attributes)
        if call.step.addressed == "all" and any(map(operator.is_not, _memory_of(part), memory)):
            transcript.note_change(completed=completed)
    _check_unchanged(part, state, call)


def _memory_of(part: SitePart) -> list[object]:
    """Return the attributes that a part's later answers depend on and that its steps may replace."""
    return [part.state, part.within, part.data, *(getattr(part, name) for name in part.session_memory)]


def _check_unchanged(part: SitePart, state: Message | None, call: Call) -> None:
    """Check that a step addressed to each site did not change the state: its requests may differ by site."""
    if call.step.addressed == "each" and part.state is not state:
        part.state = state
        raise ConfigurationError(
            "a step addressed to each site must not change the state of the site part; it changed it",
            where=call.step.name,
            hint='Declare the step with addressed="all".',
        )
