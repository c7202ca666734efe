"""A part is prepared for the call that it answers, and what a step changes is entered in the transcript."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.calls import Call
from multicentre.core.messages import Message, number, text
from multicentre.core.step_runs import run_step
from multicentre.core.steps import Common, Release, SitePart, step
from multicentre.errors import ConfigurationError, DataError, RefusedByPolicy

ROWS, BEHIND = np.arange(30), np.arange(20)


@dataclass(frozen=True)
class Command(Message):
    """What a step changes."""

    changes: str = text("attribute")


@dataclass(frozen=True)
class Total(Release):
    """A number."""

    total: float = number("total", bound=1e6)


class Part(SitePart):
    """Changes one of its attributes."""

    method = "changing"
    session_memory: ClassVar = ("remembered",)
    remembered = None
    derived = None

    def n_parameters(self, request):
        return len(request.changes)

    def change(self, request):
        if request.changes != "nothing":
            setattr(self, request.changes.removesuffix("!"), object())
        if request.changes.endswith("!"):
            raise ValueError("after the change")
        return Total(1.0, patients=20)

    @step(releases=Total, summed=True)
    def add(self, request: Command) -> Total:
        """Answer a message to all sites."""
        return self.change(request)

    @step(releases=Total, addressed="each")
    def answer(self, request: Command) -> Total:
        """Answer a message to this site."""
        return self.change(request)


class Persons(Part):
    """Compares patients."""

    method = "counting"
    counts_persons = True


class Transcript:
    """Notes changes."""

    def __init__(self):
        self.changes = []

    def note_change(self, *, completed):
        self.changes.append(completed)


class Gate:
    """Notes what it is asked."""

    least_behind = 5

    def __init__(self, *, hides=False, refuses=False):
        self.hiding, self.refuses, self.checked, self.failures = hides, refuses, [], []

    def hides(self, call):
        return self.hiding

    def least_records(self, rows):
        return {len(ROWS): 12}[len(rows)]

    def least_in_answer(self, call, rows):
        return {len(BEHIND): 7}[len(rows)]

    def check_fit(self, call, n_parameters, rows):
        self.checked.append((n_parameters, rows is BEHIND))
        if self.refuses:
            raise RefusedByPolicy("too many coefficients")

    def note_failure(self, call, error):
        self.failures.append(type(error))
        return DataError("failed")


class Site:
    """Runs steps of one part."""

    def __init__(self, kind=Part, **gate):
        self.part = kind("lyon", object())
        self.gate = Gate(**gate)
        self.unmasked = []
        self.transcript = Transcript()
        self.sessions = SimpleNamespace(
            part=lambda session, kind, selection: self.part,
            rows_behind=lambda call: BEHIND,
            rows_of=lambda call: ROWS,
            check_unmasked_answer=self.unmasked.append,
            transcripts={"0.1": self.transcript},
        )

    def run(self, changes="nothing", which="add", *, is_hidden=False):
        offered = getattr(type(self.part), which)
        call = Call("study", "0.1", 0, offered, Command(changes), ("lyon", "oslo", "roma"), None, None, None)
        return run_step(call, self.sessions, self.gate, is_hidden=is_hidden)


@pytest.mark.parametrize("noised", [False, True])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_part_receives_how_its_answer_leaves_and_its_minimum(noised, is_hidden):
    site = Site(hides=noised)
    assert site.run(is_hidden=is_hidden).total == 1.0
    part = site.part
    assert (part.noised, part.masked, part.n_peers) == (noised, is_hidden, 3)
    assert part.least_behind == 12
    assert part.least_in_answer == (0 if noised else 7)
    assert site.gate.checked == [(0 if noised else len("nothing"), True)]
    assert len(site.unmasked) == (not noised and not is_hidden)


def test_a_part_that_counts_patients_gets_their_minimum():
    site = Site(Persons)
    site.run()
    assert site.part.least_behind == 5


@pytest.mark.parametrize("name", ["state", "within", "data", "remembered"])
def test_changes_of_the_memory_are_entered(name):
    site = Site()
    site.run(name)
    assert site.transcript.changes == [True]
    site.run()
    assert site.transcript.changes == [True]


@pytest.mark.parametrize("name", ["nothing", "derived"])
def test_other_attributes_are_not_entered(name):
    site = Site()
    site.run(name)
    assert site.transcript.changes == []


def test_a_change_before_a_failure_is_entered_as_incomplete():
    """The error that leaves the site is the one of the gate."""
    site = Site()
    with pytest.raises(DataError, match="failed"):
        site.run("state!")
    assert site.transcript.changes == [False]
    assert site.gate.failures == [ValueError]


def test_derived_values_of_a_message_to_one_site_are_dropped():
    site = Site()
    site.run("derived", "answer")
    assert site.part.derived is None
    assert "derived" not in vars(site.part)
    site.run("derived")
    derived = site.part.derived
    site.run("derived", "answer")
    assert site.part.derived is derived
    assert site.transcript.changes == []


def test_a_message_to_one_site_must_not_change_the_state():
    site = Site()
    site.run("state")
    before = site.part.state
    with pytest.raises(DataError):
        site.run("state", "answer")
    assert site.gate.failures == [ConfigurationError]
    assert site.part.state is before
    assert site.transcript.changes == [True]


def test_a_fit_that_the_policy_refuses_runs_no_step():
    """The refusal is raised as it is: it names the policy's term."""
    site = Site(refuses=True)
    with pytest.raises(RefusedByPolicy, match="too many coefficients"):
        site.run("state")
    assert site.part.state is None
    assert site.gate.failures == []


def test_answers_about_aligned_records_are_for_the_sites_that_sealed_their_order():
    site = Site()
    site.part.common = Common(np.arange(20), 20, frozenset({"lyon", "oslo", "roma"}))
    site.run()
    site.part.common = Common(np.arange(20), 20, frozenset({"lyon", "oslo"}))
    with pytest.raises(DataError, match="failed"):
        site.run("state")
    assert site.part.state is None
    assert site.gate.failures == [RefusedByPolicy]
