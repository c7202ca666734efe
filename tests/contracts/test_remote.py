"""What every method inherits where sites are other processes: the same numbers, whatever happens to letters."""

import functools

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.engines.remote import engine
from multicentre.errors import QuorumLost
from support.method_cases import CASES, each_case
from support.remote_sites import ByHand, RequestHandlers

pytestmark = [
    pytest.mark.dealt(3),
    each_case,
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]
secure_or_not = pytest.mark.parametrize(
    "secure", [pytest.param(False, id="unmasked", marks=pytest.mark.slow), pytest.param(True, id="masked")]
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


@functools.cache
def reference(name, secure):
    """Return a case's numbers in this process, the number of its exchanges, and what its ledgers say."""
    case = CASES[name]
    with mc.Federation.in_process(case.sites(), policy=case.policy, secure_sum=secure, faults=Faults()) as federation:
        numbers = case.numbers(case.make().fit(federation))
        return numbers, federation.engine.exchanges, said(federation.ledgers)


def said(ledgers):
    left_out = ("time", "hash", "previous", "session", "records", "run", "transcript", "key", "signature", "terms")
    return {
        site: [{key: value for key, value in entry.items() if key not in left_out} for entry in ledger.entries]
        for site, ledger in ledgers.items()
    }


def fit(name, carrier, **options):
    case = CASES[name]
    with mc.Federation.over(carrier, **options) as federation:
        return case.numbers(case.make().fit(federation))


def handlers_of(name, folder):
    return RequestHandlers(CASES[name].sites(), folder, policy=CASES[name].policy)


def assert_same_bits(numbers, others):
    assert {key: value.tobytes() for key, value in numbers.items()} == {
        key: value.tobytes() for key, value in others.items()
    }


@secure_or_not
def test_letters_that_are_lost_or_come_twice_change_no_bit_and_no_ledger(name, secure, tmp_path):
    numbers, _, ledgers = reference(name, secure)
    sites = handlers_of(name, tmp_path)
    mishaps = dict(enumerate(["unsent", "unanswered", "twice"]))
    carrier = ByHand(sites.handles, lambda site, number: mishaps.get(number % 5))
    assert_same_bits(numbers, fit(name, carrier, secure_sum=secure))
    if not secure:  # keys of masks are drawn anew
        assert said(sites.ledgers) == ledgers


def test_flower_messages_change_no_bit(name, tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="flwr is not installed")
    from support.local_grid import local_carrier

    monkeypatch.setattr("multicentre_sites.flower.carrier._SHORTEST_POLL_S", 0.001)
    carrier = local_carrier(handlers_of(name, tmp_path).handles)
    assert_same_bits(reference(name, True)[0], fit(name, carrier, secure_sum=True))


@pytest.mark.parametrize("part", [0.5, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_run_broken_off_and_sites_begun_anew_resume_with_the_same_bits(name, part, tmp_path):
    secure = True
    numbers, n_exchanges, _ = reference(name, secure)
    sites = handlers_of(name, tmp_path / "sites")
    at = Faults(interrupt_at=round(part * (n_exchanges - 1)))
    with pytest.raises(KeyboardInterrupt):
        fit(name, ByHand(sites.handles), secure_sum=secure, folder=tmp_path, faults=at)
    for site in sites.sites:
        sites.restart(site)
    assert_same_bits(numbers, fit(name, ByHand(sites.handles), secure_sum=secure, folder=tmp_path))


@pytest.mark.slow
def test_a_coordinator_that_was_killed_between_two_rounds_loses_no_more_than_one(name, tmp_path):
    secure = True
    numbers, n_exchanges, _ = reference(name, secure)
    sites = handlers_of(name, tmp_path / "sites")
    killed = Silenced(sites.handles)
    with pytest.raises(KeyboardInterrupt):
        fit(name, killed, secure_sum=secure, folder=tmp_path, faults=Faults(interrupt_at=max(n_exchanges - 2, 0)))
    assert_same_bits(numbers, fit(name, ByHand(sites.handles), secure_sum=secure, folder=tmp_path))


@pytest.mark.filterwarnings("ignore:.*no longer take part:multicentre.errors.LeftOutWarning")
def test_a_site_whose_process_begins_anew_is_lost_to_the_fit_and_back_for_the_next(name, tmp_path):
    case = CASES[name]
    sites = handlers_of(name, tmp_path)
    last = sites.sites[-1]
    carrier = ByHand(sites.handles, lambda site, number: sites.restart(last) if number == 4 and site == last else None)
    options = {"secure_sum": True, "quorum": len(sites.sites) - 1}
    with mc.Federation.over(carrier, **options) as federation:
        if case.loses_sites:
            fitted = case.make().fit(federation)
            assert all(np.isfinite(value).all() for value in case.numbers(fitted).values())
        else:
            with pytest.raises(QuorumLost, match="restarted at"):
                case.make().fit(federation)
        answered = len(sites.ledgers[last].entries)
        again = case.make().fit(federation)
        assert len(sites.ledgers[last].entries) > answered + 2
        assert all(np.isfinite(value).all() for value in case.numbers(again).values())


class Silenced(ByHand):
    """A coordinator that was killed says no farewell."""

    def send(self, letters):
        if not any(b'"kind": "close"' in letter[:200] for letter in letters.values()):
            super().send(letters)
            return
        self.waiting = {}

    def collect(self, wait_s):
        return super().collect(wait_s) if self.waiting else {site: engine.Unreachable("offline") for site in self.sites}
