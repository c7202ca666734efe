"""What every method inherits where a site refuses: the fit without it, bit for bit, whatever carries the calls."""

import functools

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.remote import engine
from multicentre.errors import LeftOutWarning, QuorumLost, RefusedByPolicy
from support.method_cases import CASES, each_case
from support.remote_sites import ByHand, RequestHandlers

EXTRA = "site-9"
LEAVE_OUT = {"refusing_sites": "leave_out"}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


@functools.cache
def reference(name):
    """Return a case's numbers over the sites that do not refuse."""
    case = CASES[name]
    with mc.Federation.in_process(case.sites(), policy=case.policy) as federation:
        return case.numbers(case.make().fit(federation))


def with_unwilling(name, refusing):
    """Return a case's sites with one more, whose policy is another, and the policies of all."""
    case = CASES[name]
    sites = dict(case.sites())
    own = case.policy or mc.Policy()
    policies = dict.fromkeys(sites, own) | {EXTRA: refusing}
    return {**sites, EXTRA: next(iter(sites.values()))}, policies


def assert_same_bits(numbers, others):
    assert {key: value.tobytes() for key, value in numbers.items()} == {
        key: value.tobytes() for key, value in others.items()
    }


@each_case
def test_a_method_goes_on_without_a_site_whose_policy_refuses_it(name):
    case = CASES[name]
    sites, policies = with_unwilling(name, mc.Policy(min_patients=0, methods=("another",)))
    with (
        mc.Federation.in_process(sites, policy=policies, **LEAVE_OUT) as federation,
        pytest.warns(LeftOutWarning, match=f"without 1 of {len(sites)} sites, which refuse .{EXTRA}: .*not permit"),
    ):
        fitted = case.make().fit(federation)
    assert_same_bits(case.numbers(fitted), reference(name))
    assert not any(_is_about_patients(entry) for entry in federation.ledgers[EXTRA].entries)


@pytest.mark.parametrize("name", ["fed-cox", "fed-mv-ppca"])
def test_a_method_goes_on_without_two_small_sites_bit_for_bit(name):
    case = CASES[name]
    sites = dict(case.sites())
    small = {f"small-{i}": next(iter(sites.values())).take(np.arange(6)) for i in range(2)}
    with mc.Federation.in_process({**small, **sites}, **LEAVE_OUT) as federation, pytest.warns(LeftOutWarning):
        fitted = case.make().fit(federation)
    assert_same_bits(case.numbers(fitted), reference(name))
    assert list(fitted.left_out_) == list(small)


@pytest.mark.parametrize("name", ["fed-cox", "fed-mv-ppca"])
def test_a_refusal_over_letters_leaves_the_site_out_bit_for_bit(name, tmp_path):
    case = CASES[name]
    sites, policies = with_unwilling(name, mc.Policy(methods=("another",)))
    sites = RequestHandlers(sites, tmp_path, policy=policies)
    with (
        mc.Federation.over(ByHand(sites.handles), **LEAVE_OUT) as federation,
        pytest.warns(LeftOutWarning, match="does not permit"),
    ):
        fitted = case.make().fit(federation)
    assert_same_bits(case.numbers(fitted), reference(name))
    assert not any(_is_about_patients(entry) for entry in sites.ledgers[EXTRA].entries)


def _is_about_patients(entry):
    return any(field["patients"] is not None for field in entry.get("fields", []))


def refuse(opening, store):
    raise RefusedByPolicy("the study was not approved here")


def test_a_site_that_refuses_the_opening_is_left_out_of_the_run(tmp_path):
    name = "fed-cox"
    case = CASES[name]
    sites, policies = with_unwilling(name, mc.Policy())
    sites = RequestHandlers(sites, tmp_path, policy=policies)
    sites.services[EXTRA].open = refuse
    with pytest.warns(LeftOutWarning, match=f"{EXTRA}: the study was not approved here"):
        federation = mc.Federation.over(ByHand(sites.handles), **LEAVE_OUT)
    with federation:
        fitted = case.make().fit(federation)
    assert_same_bits(case.numbers(fitted), reference(name))
    assert fitted.left_out_ == {EXTRA: "the study was not approved here"}


def test_too_few_sites_that_take_the_opening_end_the_run(tmp_path):
    sites, policies = with_unwilling("fed-cox", mc.Policy())
    handlers = RequestHandlers(sites, tmp_path, policy=policies)
    handlers.services[EXTRA].open = refuse
    carrier = ByHand(handlers.handles)
    with pytest.raises(QuorumLost, match=f"^{EXTRA}: {len(sites) - 1} of {len(sites)} sites answered"):
        mc.Federation.over(carrier, quorum=len(sites), **LEAVE_OUT)
    assert carrier.closed
