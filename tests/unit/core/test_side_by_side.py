"""Branches side by side: results, order, errors, warnings and round trips are those that the module promises."""

import contextvars
import os
import signal
import threading
import time
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import multicentre as mc
from multicentre.core import side_by_side
from multicentre.core.side_by_side import MAX_BRANCHES, run
from multicentre.core.steps import step
from multicentre.engines.faults import Faults
from multicentre.errors import DisclosureRefused, QuorumLost, RefusedByPolicy
from multicentre.privacy.ledger import verify_ledger
from support.remote_sites import ByHand, RequestHandlers
from support.toy_method import FedMean, Guess, MeanSite, Size, federate, toy_sites
from support.toy_private import PrivateMean, federate_privately

ROUNDS = (2, 5, 3)
START = Guess(np.zeros(3), 7)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert not [one for one in set(threading.enumerate()) - before if one.name == "branch"]


def fits(federation, rounds=ROUNDS, in_turn=False):
    """Return the means of fits of some rounds, side by side or one after the other."""
    works = [
        lambda branch=branch, n=n: FedMean(n).fit(branch).mean_
        for branch, n in zip(federation.branches(len(rounds)), rounds, strict=True)
    ]
    return [work() for work in works] if in_turn else run(works)


def entries(federation):
    """Return event, session, call, step and cost of every ledger entry, in the order of sessions."""
    facts = ("session", "call", "event", "step", "patients", "epsilon")
    return {
        site: sorted(str([entry.get(name) for name in facts]) for entry in ledger.entries)
        for site, ledger in federation.ledgers.items()
    }


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"secure_sum": False}, {"quorum": 2}], ids=str)
def test_fits_are_those_of_one_after_the_other_with_as_many_round_trips_as_the_longest(options, tmp_path):
    with federate(**options) as together, federate(**options) as alone, federate(**options) as longest:
        results, wanted = fits(together), fits(alone, in_turn=True)
        fits(longest, [max(ROUNDS)])
        assert [one.tobytes() for one in results] == [one.tobytes() for one in wanted]
        assert together.traffic.calls == alone.traffic.calls
        assert together.traffic.bytes_from_sites == alone.traffic.bytes_from_sites
        assert together.traffic.round_trips == longest.traffic.round_trips
        assert alone.traffic.round_trips == sum(alone.traffic.calls.values())
        assert entries(together) == entries(alone)
        for site, ledger in together.ledgers.items():
            ledger.write(tmp_path / site)
            assert verify_ledger(tmp_path / site) == ledger.head


def test_over_remote_sites_each_site_gets_as_many_requests_as_the_longest_fit_has_calls(tmp_path):
    with federate() as alone:
        wanted = fits(alone, in_turn=True)
    carrier = ByHand(RequestHandlers(toy_sites(), tmp_path).handles)
    with mc.Federation.over(carrier) as federation:
        before = dict(carrier.sent)
        results = fits(federation)
        n_sent = {site: carrier.sent[site] - before[site] for site in before}
        assert set(n_sent.values()) == {federation.traffic.round_trips}
    assert [one.tobytes() for one in results] == [one.tobytes() for one in wanted]


def test_branches_within_branches_travel_together_too():
    with federate() as federation, federate() as longest:
        outer = federation.branches(2)
        results = run([partial(fits, branch) for branch in outer])
        fits(longest, [max(ROUNDS)])
        assert federation.traffic.round_trips == longest.traffic.round_trips
    assert [one.tobytes() for one in results[0]] == [one.tobytes() for one in results[1]]


def test_no_more_than_ten_branches_run_at_once_within_and_around():
    running, most = [], []

    def leaf(branch):
        running.append(branch)
        session = branch.begin(MeanSite)
        for _ in range(3):
            most.append(len(running))
            session.ask(MeanSite.size, START)
        running.remove(branch)

    with federate() as federation:
        run([lambda one=one: run([partial(leaf, each) for each in one.branches(5)]) for one in federation.branches(4)])
    assert max(most) == MAX_BRANCHES


def test_the_first_error_in_order_is_raised_after_earlier_branches_ended_and_later_ones_were_ended():
    log = []

    def work(branch, place, n_calls, error=None):
        session = branch.begin(MeanSite)
        try:
            for _ in range(n_calls):
                session.ask(MeanSite.size, START)
                log.append(place)
            if error is not None:
                raise error
        finally:
            log.append(f"left {place}")

    with federate() as federation:
        branches = federation.branches(4)
        errors = [None, ValueError("second"), None, ValueError("fourth")]
        n_calls = [5, 3, 9, 1]
        works = [partial(work, branches[k], k, n_calls[k], errors[k]) for k in range(4)]
        with pytest.raises(ValueError, match="second"):
            run(works)
    assert log.count(0) == 5
    assert log.count(2) < 9
    assert {f"left {place}" for place in range(4)} <= set(log)


def test_an_earlier_branch_that_fails_later_takes_the_place_of_the_error():
    def work(branch, n_calls, name):
        session = branch.begin(MeanSite)
        for _ in range(n_calls):
            session.ask(MeanSite.size, START)
        raise ValueError(name)

    with federate() as federation:
        first, second = federation.branches(2)
        with pytest.raises(ValueError, match="first"):
            run([partial(work, first, 4, "first"), partial(work, second, 1, "second")])


def test_an_interrupt_ends_all_branches():
    left = []

    def work(branch):
        try:
            FedMean(9).fit(branch)
        finally:
            left.append(branch.name)

    with federate(faults=Faults(interrupt_at=5)) as federation:
        branches = federation.branches(3)
        with pytest.raises(KeyboardInterrupt):
            run([partial(work, branch) for branch in branches])
    assert sorted(left) == sorted(branch.name for branch in branches)


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt; a shell makes the commands that it runs in the background ignore it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_an_interrupt_while_a_branch_computes_ends_the_run_when_it_yields(interrupts):
    log = []

    def work(branch):
        os.kill(os.getpid(), signal.SIGINT)  # reaches the main thread, which waits for this one
        session = branch.begin(MeanSite)
        try:
            session.ask(MeanSite.size, START)
            time.sleep(0.01)
            session.ask(MeanSite.size, START)
            log.append("second answer")
        finally:
            log.append("left")

    with federate() as federation:
        branches = federation.branches(2)
        with pytest.raises(KeyboardInterrupt):
            run([partial(work, branches[0]), lambda: log.append("began")])
    assert log == ["left"]


def test_warnings_come_in_the_order_of_the_branches_and_filters_stay_within_one():
    def work(branch, place):
        session = branch.begin(MeanSite)
        for number in range(2):
            with warnings.catch_warnings():
                if place == 1:
                    warnings.simplefilter("ignore")
                session.ask(MeanSite.size, START)
                warnings.warn(f"{place}, {number}", UserWarning, stacklevel=1)

    filters = warnings.filters[:]
    with federate() as federation, warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run([partial(work, branch, place) for place, branch in enumerate(federation.branches(3))])
    assert [str(one.message) for one in shown] == ["0, 0", "0, 1", "2, 0", "2, 1"]
    assert warnings.filters == filters


def test_a_warning_that_is_an_error_is_one_in_its_branch():
    def work(place):
        warnings.warn(f"of {place}", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="of 0"):
            run([partial(work, place) for place in range(2)])


def test_a_warning_for_the_caller_of_a_branch_names_the_place_that_ran_it():
    def work():
        warnings.warn("far up", UserWarning, stacklevel=20)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run([work, work])
    assert {one.filename for one in shown} == {__file__}


def test_context_variables_are_those_of_the_caller():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(3)
    assert run([variable.get, lambda: variable.set(4) and variable.get()]) == [3, 4]
    assert variable.get() == 3


def test_a_site_lost_in_one_branch_is_lost_in_that_branch():
    with federate(quorum=2, faults=Faults(lose={"site-1": "residuals"})) as federation:
        first, second = federation.branches(2)
        n_sites = run([lambda: len(FedMean(2).fit(first).federation_), lambda: _sized(second)])
        assert n_sites == [2, 3]


def _sized(branch):
    session = branch.begin(MeanSite)
    session.ask(MeanSite.size, START)  # in the exchange before the loss
    return len(session.sites)


def test_a_refusal_in_one_branch_is_that_branchs():
    sites = {**toy_sites(), "small": np.zeros((4, 3))}
    policy = {name: mc.Policy(min_patients=10, secure_sums_only=False) for name in sites}
    with federate(sites, policy=policy, secure_sum=False) as federation:
        large = replace(federation, sites=tuple(toy_sites()))

        def refused(branch):
            with pytest.raises(DisclosureRefused) as error:
                FedMean(2).fit(branch)
            return str(error.value)

        text, mean = run([partial(refused, federation), lambda: FedMean(2).fit(large).mean_])
        assert text == refused(federation)
        assert mean.tobytes() == FedMean(2).fit(large).mean_.tobytes()


@pytest.mark.filterwarnings("ignore:a policy has a privacy budget:multicentre.errors.DisclosureWarning")
def test_private_fits_take_their_turn_so_that_a_budget_for_two_completes_two():
    def outcomes(in_turn):
        policy = mc.Policy(epsilon=2.1, delta=1e-5, min_patients=0)
        with federate_privately(policy=policy) as federation:
            fits = [partial(_private, branch) for branch in federation.branches(4)]
            return [fit() for fit in fits] if in_turn else run(fits)

    side, turn = outcomes(False), outcomes(True)
    assert side == turn
    assert "fitted" in side
    assert side[-1] != "fitted"


def _private(branch):
    try:
        PrivateMean(epsilon=1.0).fit(branch)
    except RefusedByPolicy as error:
        return str(error)
    return "fitted"


@pytest.mark.parametrize("quorum", ["all", 2])
def test_sums_of_one_session_side_by_side_agree_on_keys_once(quorum):
    with federate(quorum=quorum) as federation:
        session = federation.begin(MeanSite)
        sums = session.together([lambda: session.sum(MeanSite.residuals, START) for _ in range(3)])
        assert federation.traffic.calls["advertise"] == 1
        assert [one.calls for one in sums] == [3, 6, 9]  # in order at each site
        if quorum == "all":
            assert federation.traffic.round_trips == 3


class RefusingSite(MeanSite):
    """Refuses one step at one site."""

    @step(releases=Size)
    def refused(self, request: Guess) -> Size:
        """Answer except at one site."""
        if self.site == "site-1":
            raise DisclosureRefused("the answer must not leave; it would")
        return Size(0.0, patients=len(self.data))


def refused_in_the_second_request(federation):
    """Return the sites of every sum that the first request read, and the sites left out, while the second refuses."""
    read = []

    def sum_twice(session):
        for _ in range(2):
            session.ask(RefusingSite.size, START)
            session.sum(RefusingSite.residuals, START)
            read.append(session.sites)

    for attempt in federation.attempts(RefusingSite):
        with attempt as session:
            session.together([partial(sum_twice, session), partial(session.ask, RefusingSite.refused, START)])
    return read, session.left_out


@pytest.mark.parametrize("options", [{}, {"quorum": 2}, {"secure_sum": False}], ids=str)
def test_a_refusal_ends_the_other_requests_and_accuses_no_site_of_other_requests(options):
    with federate(**options) as federation, pytest.raises(DisclosureRefused, match=r"site-1.*must not leave"):
        refused_in_the_second_request(federation)


@pytest.mark.filterwarnings("ignore::multicentre.errors.LeftOutWarning")
@pytest.mark.parametrize("options", [{}, {"quorum": 2}, {"secure_sum": False}], ids=str)
def test_no_sum_with_a_site_that_is_left_out_is_read_after_it_refused_a_request_beside(options):
    with federate(refusing_sites="leave_out", **options) as federation:
        read, left_out = refused_in_the_second_request(federation)
    assert read == [("site-0", "site-2")] * 2
    assert list(left_out) == ["site-1"]


def test_the_clock_of_a_branch_stands_still_while_others_run():
    def work(branch, busy_s):
        began = side_by_side.clock()
        session = branch.begin(MeanSite)
        for _ in range(3):
            session.ask(MeanSite.size, START)
            time.sleep(busy_s)
        return side_by_side.clock() - began

    with federate() as federation:
        first, second = federation.branches(2)
        quick, slow = run([partial(work, first, 0.0), partial(work, second, 0.05)])
    assert slow >= 0.15
    assert quick < slow


def test_the_clock_of_a_branch_within_a_branch_never_goes_back():
    def inner(consortium):
        began = side_by_side.clock()
        session = consortium.begin(MeanSite)
        for _ in range(3):
            session.ask(MeanSite.size, START)
            time.sleep(0.01)
        return side_by_side.clock() - began

    def outer(consortium):
        return run([partial(inner, branch) for branch in consortium.branches(2)])

    with federate() as federation:
        measured = run([partial(outer, branch) for branch in federation.branches(2)])
    assert all(seconds >= 0.03 for branch in measured for seconds in branch)


def test_branches_that_wait_for_each_other_are_an_error():
    with pytest.raises(RuntimeError, match="circle"):
        run([lambda: side_by_side.wait_while(lambda: True), lambda: side_by_side.wait_while(lambda: True)])


def test_a_quorum_that_is_lost_ends_the_run():
    with federate(faults=Faults(lose={"site-1": 3})) as federation, pytest.raises(QuorumLost):
        fits(federation)
