"""Sessions about some of a site's records: which they get, and what a coordinator cannot have."""

import dataclasses
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call, Selection
from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, array
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import Acknowledgement, SitePart, step
from multicentre.engines.in_process import InProcess
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from support.toy_method import FedMean, Guess, MeanSite, federate


@dataclass(frozen=True)
class Fold(Message):
    """A fold a record."""

    fold: np.ndarray = array("fold of each record", ("n",), dtype="i8")


class Divider(SitePart):
    """Divides rows by the whole part of their first number."""

    method = "toy-folds"
    holds = np.ndarray
    remembers = Fold
    state: Fold | None

    @property
    def folds(self):
        return None if self.state is None else self.state.fold

    @step(releases=Acknowledgement)
    def divide(self, request: Nothing) -> Acknowledgement:
        """Divide the rows; nothing leaves."""
        self.state = Fold(np.floor(self.data[:, 0]).astype(np.int64))
        return Acknowledgement()


def divided(federation, **options):
    opened = federation.begin(Divider, **options)
    opened.once("divided", Nothing, lambda: (opened.ask(Divider.divide, Nothing()), Nothing())[1])
    return opened


def rows_of(site):
    rng = np.random.default_rng(site)
    return np.column_stack([np.repeat([0.0, 1.0, 2.0, -1.0], 15), rng.normal(size=(60, 2))])


SITES = {f"site-{i}": rows_of(i) for i in range(3)}


def mean_of(federation):
    return FedMean().fit(federation).mean_


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_a_fit_over_folds_is_a_fit_of_those_records(secure, strict):
    with federate(SITES, secure_sum=secure, strict=strict) as federation:
        chosen = divided(federation).select([0, 2], list(SITES))
        found = mean_of(chosen)
    alone = {name: rows[np.isin(rows[:, 0], [0, 2])] for name, rows in SITES.items()}
    with federate(alone, secure_sum=secure) as federation:
        assert np.array_equal(found, mean_of(federation))


def test_selections_nest():
    with federate(SITES) as federation:
        outer = divided(federation).select([0, 1], list(SITES))
        inner = divided(outer).select([1], list(SITES))
        assert inner.selection == Selection(inner.divided_by.name, (1,), outer.selection)
        found = mean_of(inner)
    with federate({name: rows[rows[:, 0] == 1] for name, rows in SITES.items()}) as federation:
        assert np.array_equal(found, mean_of(federation))


def test_sites_without_such_records_are_left_out_and_the_quorum_is_of_the_others():
    sites = {**SITES, "small": SITES["site-0"][:15]}
    with federate(sites) as federation:
        opened = divided(federation)
        with pytest.raises(DataError, match="must hold at least one record of this site"):
            mean_of(opened.select([1], list(sites)))
        chosen = opened.select([1], list(SITES))
        assert chosen.sites == chosen.begin(Divider).sites == tuple(SITES)
        assert chosen.needed == 3
        assert np.isfinite(mean_of(chosen)).all()
        with pytest.raises(ConfigurationError, match="no site has a record"):
            opened.select([5], [])


def test_records_in_no_fold_cannot_be_selected():
    with federate(SITES) as federation, pytest.raises(DataError, match="must hold at least one record"):
        mean_of(divided(federation).select([-1], list(SITES)))


def test_a_session_cannot_change_its_records_and_needs_a_plan_of_them():
    with federate(SITES) as federation:
        opened = divided(federation)
        session = opened.select([0], list(SITES)).begin(Divider)
        runtime = federation.engine._runtimes["site-0"]
        call = Call("study", session.name, 0, Divider.divide, Nothing(), tuple(SITES), selection=session.selection)
        runtime.answer(call)
        for other in (None, Selection(opened.name, (0, 1))):
            assert "one selection" in str(runtime.answer(dataclasses.replace(call, selection=other)).error)
        strange = dataclasses.replace(call, session="0.99", selection=Selection("0.77", (0,)))
        assert "must come from a plan of folds in this run" in str(runtime.answer(strange).error)
        deeper = Selection(opened.name, (0,), session.selection)
        nested = dataclasses.replace(call, session="0.98", selection=deeper)
        assert "must come from a plan of folds in this run" in str(runtime.answer(nested).error)


def test_the_ledger_says_which_records_an_answer_is_about():
    with federate(SITES) as federation:
        opened = divided(federation)
        mean_of(opened.select([0, 2], list(SITES)))
        told = [entry.get("records") for entry in federation.ledgers["site-0"].entries if entry["event"] == "release"]
    assert told[0] is None
    assert set(told[1:]) == {f"folds 0, 2 of {opened.name}"}


def test_a_minimum_difference_counts_the_selected_records():
    table = {
        name: mc.data.SurvivalData(rows, np.ones(60), np.ones(60, int), ids=range(60)) for name, rows in SITES.items()
    }

    class Rows(Divider):
        holds = mc.data.SurvivalData

        @step(releases=Acknowledgement)
        def divide_rows(self, request: Nothing) -> Acknowledgement:
            """Divide the rows; nothing leaves."""
            self.state = Fold(np.r_[np.zeros(2, np.int64), np.ones(58, np.int64)])
            return Acknowledgement()

    policy = mc.Policy(min_difference=10)
    with mc.Federation.in_process(table, policy=policy, secure_sum=True) as federation:
        fit = mc.survival.FedCox(n_times=5)
        opened = federation.begin(Rows)
        opened.ask(Rows.divide_rows, Nothing())
        fit.fit(federation)
        with pytest.raises(DisclosureRefused, match="differ from that of an earlier answer by at least 10 patients"):
            fit.fit(opened.select([1], list(SITES)))


def test_a_run_broken_off_finds_its_folds_again(tmp_path):
    with federate(SITES, folder=tmp_path) as federation:
        first = mean_of(divided(federation).select([0, 2], list(SITES)))
    with federate(SITES, folder=tmp_path) as federation:
        opened = federation.begin(Divider)
        opened.once("divided", Nothing, lambda: pytest.fail("the plan was made anew"))
        assert np.array_equal(first, mean_of(opened.select([0, 2], list(SITES))))


def test_only_parts_that_divide_see_identifiers_and_the_key():
    seen = {}

    class Looking(SitePart):
        method = "toy-looking"

        @step(releases=Acknowledgement, addressed="each")
        def look(self, request: Nothing) -> Acknowledgement:
            """Look at the data; nothing leaves."""
            seen[type(self)] = (self.data.identifier, self.key)
            return Acknowledgement()

    class Seeing(Looking):
        sees_identifiers = True

    data = mc.data.TableData(SITES["site-0"], np.arange(60) % 2, identifier=[f"p{i}" for i in range(60)])
    key = mc.linkage.PseudonymKey.generate()
    with mc.Federation.in_process({"lyon": data, "oslo": data}, pseudonym_key={"lyon": key}) as federation:
        for part in (Looking, Seeing):
            federation.begin(part).ask(part.look, Nothing(), to=["lyon"])
        assert seen[Looking] == (None, None)
        assert seen[Seeing][0].column("identifier")[:2] == ["p0", "p1"]
        assert seen[Seeing][1] == key
        federation.begin(Seeing).ask(Seeing.look, Nothing(), to=["oslo"])
        assert seen[Seeing][1] is None


def test_parts_know_what_their_records_are_whatever_the_session_is_called():
    class Telling(SitePart):
        method = "toy-telling"

        @step(releases=Acknowledgement, addressed="each")
        def tell(self, request: Nothing) -> Acknowledgement:
            """Note what the records are; nothing leaves."""
            seen.append(self.within)
            return Acknowledgement()

    found = []
    for n_sessions in (0, 3):
        seen = []
        with federate(SITES) as federation:
            others = [federation.begin(Divider) for _ in range(n_sessions)]
            outer = divided(federation).select([2, 0, 2], list(SITES))
            inner = divided(outer).select([0], list(SITES))
            for chosen in (federation, outer, inner):
                chosen.begin(Telling).ask(Telling.tell, Nothing(), to=["site-1"])
        assert len(others) == n_sessions
        found.append(seen)
    assert found[0] == found[1] == ["", "toy-folds/:0.2", "toy-folds/:0.2/toy-folds/:0"]


def test_an_ask_that_is_not_what_the_step_takes_reaches_no_step():
    with federate(SITES) as federation:
        runtime = federation.engine._runtimes["site-0"]
        opened = federation.begin(Divider)
        call = Call("study", opened.name, 0, Divider.divide, Nothing(), tuple(SITES))
        for request, said in ((Fold(np.zeros(3, np.int64)), "must be Nothing; got Fold"), (None, "got NoneType")):
            assert said in str(runtime.answer(dataclasses.replace(call, request=request)).error)
        assert not runtime.sessions.parts

        class Taking(Divider):
            @step(releases=Acknowledgement)
            def take(self, request: Fold) -> Acknowledgement:
                """Never reached with another dtype."""
                raise AssertionError

        forged = dataclasses.replace(call, step=Taking.take, request=Fold(np.zeros(3)))
        assert "must be an array of dtype i8" in str(runtime.answer(forged).error)


class CollectedMeanwhile(str):
    """A session's name; the garbage collector runs when it is first compared."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        collect, self.collect = self.collect, lambda: None
        collect()
        return str.__eq__(self, other)


def test_a_session_that_is_collected_as_garbage_while_records_are_selected_disturbs_nothing():
    runtimes = {
        name: SiteRuntime(name, rows, Guard(mc.Policy(min_patients=0), Ledger())) for name, rows in SITES.items()
    }
    opened = divided(Consortium(InProcess(runtimes)))
    for runtime in runtimes.values():
        sessions, name = runtime.sessions, CollectedMeanwhile("earlier")
        name.collect = partial(sessions.forget, "garbage", lambda part: True)
        sessions.parts = {(name, MeanSite): None, ("garbage", MeanSite): None, **sessions.parts}
    answers = opened.select([0], opened.sites).begin(MeanSite).ask(MeanSite.size, Guess(np.zeros(3), 7))
    assert [one.n for one in answers.values()] == [15.0] * 3
