"""A coordinator that tells one site something else than the others, in a step before the sum, reads nothing.

Each attack is made twice: on sites that mask a sum by its own ask alone, where it reads one site's own values, and on
sites as they are, where the sum is noise. The coordinator covers up what it can: it overlooks that transcripts differ.
"""

import contextlib
import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import multicentre as mc
from multicentre.core.calls import Call, Place, Selection, StateCommand
from multicentre.core.messages import Message, Nothing, count, number
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.core.transcript import digest_of
from multicentre.engines.faults import Faults
from multicentre.engines.remote import engine as remote
from multicentre.errors import (
    ConfigurationError,
    DataError,
    IntegrityError,
    MulticentreError,
    ProtocolRefused,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.multiview.ppca.messages import FirstMoments
from multicentre.privacy.secure_sum.fixed_point import decode_release, plan_grids
from multicentre.validation.folds.by_site import DrawnFolds
from multicentre.validation.folds.site import Drawing
from support.engines import runtimes_of, with_engine
from support.lying import Telling, Wrapped, asks_by_site, mask_by_the_last_ask
from support.remote_sites import ByHand, RequestHandlers


@dataclass(frozen=True)
class Times(Message):
    """How often each record counts."""

    n: int = count("how often each record counts")


@dataclass(frozen=True)
class Counted(Release):
    """A count of records, and the sum of a column."""

    n: int = count("records", bound=1e6)
    total: float = number("sum of the first column", bound=1e6)


class CountingSite(SitePart):
    """Counts records, as often as it was told."""

    method = "toy-counting"
    remembers = Times
    state: Times | None

    @step(releases=Acknowledgement)
    def prepare(self, request: Times) -> Acknowledgement:
        """Remember how often each record counts; nothing leaves."""
        self.state = request
        return Acknowledgement()

    @step(releases=Counted, addressed="each")
    def count_own(self, request: Times) -> Counted:
        """Count the records of this site."""
        return Counted(request.n * len(self.data), 0.0, patients=len(self.data))

    @step(releases=Counted, summed=True)
    def count_records(self, request: Nothing) -> Counted:
        """Count records."""
        times = self.state.n if self.state else 1
        return Counted(times * len(self.data), float(self.data.X[:, 0].sum()), patients=len(self.data))


EXACT = mc.Policy(min_patients=0, min_sites_in_sum=4)
SITES = tuple(f"site-{i}" for i in range(4))
VICTIM = SITES[1]
FAR = 1e6


@pytest.fixture(params=["in process", "letters"])
def federate(request, monkeypatch, tmp_path):
    """Return what makes a federation of some data, its sites in this process or behind a wire."""
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(remote, "_CLOSING_S", 0.1)

    def make(data, **options):
        if request.param == "in process":
            return mc.Federation.in_process(data, policy=EXACT, secure_sum=True, **options)
        return mc.Federation.over(
            ByHand(RequestHandlers(data, tmp_path, policy=EXACT).handles), secure_sum=True, **options
        )

    return make


@pytest.fixture(params=[False, True], ids=["by the last ask", "by the transcript"])
def bound(request, monkeypatch):
    """Whether masks are bound to the transcript."""
    if not request.param:
        mask_by_the_last_ask(monkeypatch)
    return request.param


def attacked(federation, alter, run):
    """Return the lying engine of a federation after a fit, and what the fit raised."""
    with federation:
        engine = Telling(federation.engine, alter)
        federation = with_engine(federation, engine)
        try:
            run(federation)
        except MulticentreError as error:
            return engine, error
    return engine, None


def read(engine, step, kind):
    """Return the sum of a step as the release that it stands for, masks or not."""
    grids = plan_grids(kind, len(SITES))
    return decode_release(kind, engine.total(step), engine.layouts[step], grids)[0]


def assert_unreadable(engine, step, error):
    assert isinstance(error, IntegrityError)
    assert "the masks of the sites must cancel" in str(error)
    assert engine.total(step)[-1] != 0
    assert stats.kstest(engine.total(step) / 2.0**64, "uniform").pvalue > 1e-7


def patients():
    return {site: mc.datasets.simulate_survival(90 + i, n_columns=3, random_state=i) for i, site in enumerate(SITES)}


def test_a_different_grid_for_one_site_reveals_no_survival_table(federate, bound):
    """The answer to the agreement is a masked sum, so another grid ends the fit before any table is summed."""
    alter = {
        "agree": asks_by_site(
            lambda site, request: request if site == VICTIM else dataclasses.replace(request, times=request.times + FAR)
        )
    }
    engine, error = attacked(federate(patients()), alter, mc.survival.KaplanMeier().fit)
    assert_unreadable(engine, "agree", error)
    assert "sum_table" not in engine.masked


def columns():
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, 7))
    return {site: rng.normal(size=(30 + i, 2)) @ loadings + 0.3 * rng.normal(size=7) for i, site in enumerate(SITES)}


@pytest.mark.filterwarnings("ignore:the rounds ended at max_iter")
def test_a_different_scale_for_one_site_reveals_no_column_sums(federate, bound):
    alter = {
        "prepare": asks_by_site(
            lambda site, request: request if site == VICTIM else dataclasses.replace(request, spread=np.full(7, 1e12))
        )
    }
    sites = {site: mc.data.MultiViewData({"a": x[:, :3], "b": x[:, 3:]}) for site, x in columns().items()}
    engine, error = attacked(federate(sites), alter, mc.multiview.FedMvPPCA(2, max_iter=1, tol=1.0).fit)
    if bound:
        assert_unreadable(engine, "sum_first_moments", error)
        return
    request = engine.requests["prepare"]
    total = ((columns()[VICTIM] - request.centre) / request.spread).sum(axis=0)
    assert np.allclose(read(engine, "sum_first_moments", FirstMoments).total, total, atol=1e-6)


# Selections


def rows():
    return {
        site: mc.data.TableData(np.random.default_rng(i).normal(size=(60, 3)), np.arange(60) % 2, classes=["0", "1"])
        for i, site in enumerate(SITES)
    }


def sum_over_folds(federation):
    """Divide the records of all sites in five folds and count those of some folds."""
    opened = federation.begin(DrawnFolds)
    opened.ask(DrawnFolds.draw, Drawing(5, 7, ""))
    with contextlib.suppress(IntegrityError):
        opened.sum(DrawnFolds.count_folds, Nothing())
    opened.select((0, 1, 2), SITES).begin(CountingSite).sum(CountingSite.count_records, Nothing())


def test_different_folds_for_one_site_reveal_no_fold(federate, bound):
    """The difference of sums over folds 0 to 3 and over 0 to 2 at this site alone is what its fold 3 holds."""

    def others_get_another_fold(site, call):
        if site == VICTIM or call.selection is None:
            return call
        return dataclasses.replace(call, selection=Selection(call.selection.plan, (0, 1, 2, 3)))

    alter = dict.fromkeys(("keys", "count_records"), others_get_another_fold)
    engine, error = attacked(federate(rows()), alter, sum_over_folds)
    if bound:
        assert_unreadable(engine, "count_records", error)
    else:
        assert error is None
        assert read(engine, "count_records", Counted).n == 3 * 48 + 36


def test_a_different_plan_of_folds_for_one_site_makes_sums_unreadable(federate, bound):
    """Other folds at one site are another set of its records; the difference of two such sums is about few of them."""
    honest, _ = attacked(federate(rows()), {}, sum_over_folds)
    alter = {"draw": asks_by_site(lambda site, request: dataclasses.replace(request, seed=7 + (site == VICTIM)))}
    engine, error = attacked(federate(rows()), alter, sum_over_folds)
    if bound:
        assert_unreadable(engine, "count_records", error)
    else:
        one, other = (read(each, "count_records", Counted) for each in (honest, engine))
        assert one.n == other.n == 4 * 36
        assert one.total != other.total


# Sessions that begin again, are restored, or lack a call


def total_after(federation, *times):
    session = federation.begin(CountingSite)
    for n in times:
        session.ask(CountingSite.prepare, Times(n))
    return session.sum(CountingSite.count_records, Nothing()).n


def test_a_session_that_begins_again_forgets_its_earlier_state(federate):
    """The victim is told a lie, then hears the honest calls from the first one on; its memory of the lie is gone."""
    with federate(rows()) as federation:
        session = federation.begin(CountingSite)
        lie = Call(session.terms.study, session.name, 0, CountingSite.prepare, Times(100), SITES, place=Place(0))
        assert isinstance(federation.engine.exchange({VICTIM: lie}, None)[VICTIM], Acknowledgement)
        assert session.sum(CountingSite.count_records, Nothing()).n == 4 * 60


def test_the_order_of_calls_is_held_too(federate, bound):
    """The last of two states counts: in another order one site has another one."""
    swapped = asks_by_site(lambda site, request: Times(5 - request.n) if site == VICTIM else request)
    engine, error = attacked(federate(rows()), {"prepare": swapped}, lambda federation: total_after(federation, 2, 3))
    if bound:
        assert_unreadable(engine, "count_records", error)
    else:
        assert read(engine, "count_records", Counted).n == 3 * 180 + 120


class PickySite(CountingSite):
    """Refuses large factors where its first record is negative, as a site may that lacks what a step requests for."""

    method = "toy-picky"

    @step(releases=Acknowledgement)
    def prepare(self, request: Times) -> Acknowledgement:
        """Remember how often each record counts; nothing leaves."""
        if request.n == 13:
            self.state = Times(5)
        if request.n > 9 and self.data.X[0, 0] < 0:
            raise DataError("no record here counts so often")
        self.state = request
        return Acknowledgement()


class ReportingSite(PickySite):
    """Has a report that the same site refuses."""

    method = "toy-reporting"

    @step(releases=Counted, refusable=True)
    def report(self, request: Times) -> Counted:
        """Count the records of this site."""
        if self.data.X[0, 0] < 0:
            raise RefusedByPolicy("no report leaves this site")
        return Counted(len(self.data), 0.0, patients=len(self.data))


def rows_with_one_odd_site():
    columns = {site: np.array(table.X) for site, table in rows().items()}
    for site, X in columns.items():
        X[0, 0] = -1.0 if site == VICTIM else 1.0
    return {site: mc.data.TableData(X, np.arange(60) % 2, classes=["0", "1"]) for site, X in columns.items()}


@pytest.mark.parametrize("refused", [100, 13], ids=["before anything is remembered", "in between"])
def test_a_step_that_one_site_alone_refuses_leaves_no_sum_that_shows_it(federate, bound, refused):
    """All sites are asked the same; the victim refuses the last step, so that its state is the one before."""

    def run(federation):
        session = federation.begin(PickySite)
        for n in (1, refused):
            with contextlib.suppress(DataError):
                session.ask(PickySite.prepare, Times(n))
        session.sum(PickySite.count_records, Nothing())

    engine, error = attacked(federate(rows_with_one_odd_site()), {}, run)
    if bound:
        assert_unreadable(engine, "count_records", error)
    else:
        assert read(engine, "count_records", Counted).n == 3 * 60 * refused + 60 * (5 if refused == 13 else 1)


class ScalingSite(CountingSite):
    """Scales its records, which a site refuses whose first record is negative."""

    method = "toy-scaling"

    @step(releases=Acknowledgement)
    def prepare(self, request: Times) -> Acknowledgement:
        """Scale the records; nothing leaves."""
        if self.data.X[0, 0] < 0:
            raise DataError("a record is negative")
        self.data = self.data.with_arrays(X=self.data.X * request.n)
        return Acknowledgement()


class MarkingSite(CountingSite):
    """Remembers a factor outside of the state, which a site refuses whose first record is negative."""

    method = "toy-marking"
    session_memory = ("_factor",)
    _factor = 1

    @step(releases=Acknowledgement)
    def prepare(self, request: Times) -> Acknowledgement:
        """Remember a factor; nothing leaves."""
        if self.data.X[0, 0] < 0:
            raise DataError("a record is negative")
        self._factor = request.n
        return Acknowledgement()


@pytest.mark.parametrize("part", [ScalingSite, MarkingSite])
def test_records_and_declared_memory_that_one_site_alone_keeps_leave_no_sum(federate, part):
    def run(federation):
        session = federation.begin(part)
        with contextlib.suppress(DataError):
            session.ask(part.prepare, Times(100))
        session.sum(part.count_records, Nothing())

    engine, error = attacked(federate(rows_with_one_odd_site()), {}, run)
    assert_unreadable(engine, "count_records", error)


def test_a_report_that_one_site_refuses_spoils_no_sum(federate):
    """Nothing that a sum depends on differs afterwards."""
    with federate(rows_with_one_odd_site()) as federation:
        session = federation.begin(ReportingSite)
        session.ask(ReportingSite.prepare, Times(2))
        assert set(session.ask(ReportingSite.report, Times(1), skip_refusals=True).refused) == {VICTIM}
        assert session.sum(ReportingSite.count_records, Nothing()).n == 480


def test_a_call_that_one_site_did_not_receive_is_detected_at_the_next_call(federate):
    engine, error = attacked(
        federate(rows()),
        {"prepare": lambda site, call: None if site == VICTIM else call},
        lambda federation: total_after(federation, 2),
    )
    assert isinstance(error, ProtocolRefused)
    assert f"{VICTIM}, toy-counting, count_records: the site must receive all earlier calls of the fit" in str(error)
    assert VICTIM not in engine.masked["count_records"]


def test_a_site_that_took_no_part_before_cannot_be_added(federate):
    def others_for_one(site, call):
        return dataclasses.replace(call, peers=SITES[:3]) if site == VICTIM else call

    _, error = attacked(federate(rows()), {"prepare": others_for_one}, lambda federation: total_after(federation, 2))
    assert isinstance(error, ProtocolRefused)
    assert "must have taken part in the earlier calls" in str(error)


def test_a_state_restored_at_one_site_only_makes_the_sum_unreadable(tmp_path, bound):
    """What one site remembers of a session with a lie is brought into another session, at this site alone."""
    with mc.Federation.in_process(rows(), policy=EXACT, secure_sum=True, folder=tmp_path) as federation:
        engine = Telling(federation.engine)
        federation = with_engine(federation, engine)
        session = federation.begin(CountingSite)
        session.ask(CountingSite.prepare, Times(100))
        engine.run_command(StateCommand("keep", session.name, CountingSite, "lie", 1), SITES)
        session = federation.begin(CountingSite)
        session.ask(CountingSite.prepare, Times(1))
        engine.run_command(StateCommand("restore", session.name, CountingSite, "lie", 1), (VICTIM,))
        if not bound:
            assert session.sum(CountingSite.count_records, Nothing()).n == 3 * 60 + 6000
            return
        with pytest.raises(IntegrityError) as raised:
            session.sum(CountingSite.count_records, Nothing())
        assert_unreadable(engine, "count_records", raised.value)


@pytest.mark.parametrize("action", ["restore", "reset"])
def test_a_state_that_all_sites_restore_or_drop_alike_counts(action, tmp_path):
    with mc.Federation.in_process(rows(), policy=EXACT, secure_sum=True, folder=tmp_path) as federation:
        session = federation.begin(CountingSite)
        session.ask(CountingSite.prepare, Times(2))
        federation.engine.run_command(StateCommand("keep", session.name, CountingSite, "x", 1), SITES)
        session.ask(CountingSite.prepare, Times(3))
        federation.engine.run_command(StateCommand("restore", session.name, CountingSite, "x", 1), SITES[:1])
        federation.engine.run_command(StateCommand(action, session.name, CountingSite, "x", 1), SITES)
        assert session.sum(CountingSite.count_records, Nothing()).n == 240 * (2 if action == "restore" else 3)


# Steps that are addressed to each site


def ask_each(federation, sites=SITES[:2]):
    session = federation.begin(CountingSite)
    session.ask(CountingSite.prepare, Times(2))
    requests = {site: Times(place) for place, site in enumerate(sites)}
    own = session.collect(CountingSite.count_own, requests, to=sites)
    session.collect(CountingSite.count_own, requests, to=sites[:1])
    assert [one.n for one in own.values()] == [0, 60]
    return session.sum(CountingSite.count_records, Nothing()).n


def test_asks_that_are_declared_to_differ_do_not_spoil_the_sum(federate):
    with federate(rows()) as federation:
        assert ask_each(federation) == 480


@pytest.mark.parametrize("covered", [False, True])
def test_a_site_finds_its_request_in_the_list_and_all_sites_hold_the_same_list(federate, covered):
    def lie(site, call):
        if site != VICTIM:
            return call
        request = Times(7)
        requests = tuple((dict(call.place.requests) | ({site: digest_of(request)} if covered else {})).items())
        return dataclasses.replace(call, request=request, place=dataclasses.replace(call.place, requests=requests))

    engine, error = attacked(federate(rows()), {"count_own": lie}, lambda federation: _ask_both(federation))
    if covered:
        assert_unreadable(engine, "count_records", error)
    else:
        assert isinstance(error, ProtocolRefused)
        assert "must contain the message that this site received" in str(error)


def _ask_both(federation):
    session = federation.begin(CountingSite)
    session.collect(CountingSite.count_own, {site: Times(1) for site in SITES[:2]}, to=SITES[:2])
    session.sum(CountingSite.count_records, Nothing())


def test_steps_of_one_site_cannot_change_its_state(federate):
    class Forgetting(CountingSite):
        method = "toy-forgetting"

        @step(releases=Counted, addressed="each")
        def count_own(self, request: Times) -> Counted:
            """Remember what it must not."""
            self.state = request
            return Counted(0, 0.0, patients=0)

    with federate(rows()) as federation:
        session = federation.begin(Forgetting)
        session.ask(Forgetting.prepare, Times(2))
        with pytest.raises(ConfigurationError, match="must not change the state"):
            session.ask(Forgetting.count_own, Times(9), to=[VICTIM])


# Sums that outlive the loss of sites


@pytest.mark.parametrize("step_of_loss", ["count_records", "unmask"])
def test_a_site_lost_in_a_sum_leaves_it_readable_and_a_lie_does_not(step_of_loss, monkeypatch):
    faults = Faults(lose={SITES[3]: step_of_loss})
    options = {"policy": mc.Policy(min_patients=0), "secure_sum": True, "quorum": 3, "faults": faults}
    with mc.Federation.in_process(rows(), **options) as federation:
        assert total_after(federation, 2) == 2 * 60 * (3 if step_of_loss == "count_records" else 4)
    lie = asks_by_site(lambda site, request: Times(100) if site == VICTIM else request)
    _, error = attacked(
        mc.Federation.in_process(rows(), **options), {"prepare": lie}, lambda federation: total_after(federation, 2)
    )
    assert isinstance(error, IntegrityError)
    assert "the masks of the sites must cancel" in str(error)


def test_an_honest_coordinator_names_the_site_that_was_asked_other_things(federate):
    class Meddler(Wrapped):
        """Somebody between the coordinator and the sites."""

        def exchange(self, calls, time_limit_s):
            if calls[VICTIM].step.name == "prepare":
                calls = calls | {VICTIM: dataclasses.replace(calls[VICTIM], request=Times(3))}
            return super().exchange(calls, time_limit_s)

    with federate(rows()) as federation:
        federation = with_engine(federation, Meddler(federation.engine))
        with pytest.raises(IntegrityError, match=f"^{VICTIM}: all sites must receive the same requests") as raised:
            total_after(federation, 2)
    assert "multicentre ledger compare" in str(raised.value)


def test_a_refused_call_is_recorded_in_the_ledger():
    with mc.Federation.in_process(rows(), policy=EXACT, secure_sum=True) as federation:
        leave_out = {"prepare": lambda site, call: None if site == VICTIM else call}
        attacked(federation, leave_out, lambda federation: total_after(federation, 2))
        (entry,) = [one for one in federation.ledgers[VICTIM].entries if one["event"] == "refusal"]
    assert entry["reason"] == "the site must receive all earlier calls of the fit; it missed some"
    assert (entry["step"], entry["peers"], len(entry["request"])) == ("count_records", list(SITES), 64)


def test_a_resume_that_some_sites_cannot_follow_begins_alike_at_all(tmp_path, monkeypatch):
    """One site did not hear that it was to keep its state; the others have restored theirs, and drop it again."""
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(remote, "_CLOSING_S", 0.0)
    sites = RequestHandlers(rows(), tmp_path / "sites", policy=EXACT)

    def fit(mishap=lambda site, number: None):
        carrier = ByHand(sites.handles, mishap)
        with mc.Federation.over(carrier, secure_sum=True, folder=tmp_path, patience_s=0.0) as federation:
            session = federation.begin(CountingSite)

            def prepare():
                session.ask(CountingSite.prepare, Times(2))
                return Times(2)

            session.once("prepared", Times, prepare)
            return session.sum(CountingSite.count_records, Nothing()).n

    # The first letter opens the run, the second prepares, the third carries the errand.
    with pytest.raises(QuorumLost):
        fit(lambda site, number: "unsent" if site == VICTIM and number > 2 else None)
    assert fit() == 480


class CachingSite(SitePart):
    """Derives a value in a step that one site alone is asked, and counts by it."""

    method = "toy-caching"
    holds = np.ndarray
    derived = None

    @step(releases=Counted, addressed="each")
    def derive(self, request: Nothing) -> Counted:
        """Derive a value, and keep it."""
        self.derived = 2.0
        return Counted(1, 0.0, patients=len(self.data))

    @step(releases=Acknowledgement)
    def meet(self, request: Nothing) -> Acknowledgement:
        """Take in what was missed."""
        return Acknowledgement()


def test_a_step_that_one_site_was_asked_alone_leaves_no_derived_value():
    with mc.Federation.in_process({site: np.ones((20, 1)) for site in SITES}, secure_sum=True) as federation:
        session = federation.begin(CachingSite)
        session.ask(CachingSite.derive, Nothing(), to=SITES[:1])
        session.ask(CachingSite.meet, Nothing())
        parts = [runtimes_of(federation)[site].sessions.parts[session.name, CachingSite] for site in SITES]
        assert [part.derived for part in parts] == [None] * len(SITES)
