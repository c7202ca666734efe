"""What every method inherits: the same numbers on every engine, masked or not, with a resume or a lost site."""

import dataclasses
import functools

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.steps import SitePart
from multicentre.engines.faults import Faults
from multicentre.errors import DisclosureRefused, QuorumLost, RefusedByPolicy
from multicentre.privacy.ledger_comparison import compare_ledgers
from support.method_cases import CASES, each_case
from support.toy_method import federate

pytestmark = [
    pytest.mark.dealt(3),
    each_case,
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]
# Methods of many rounds, where a loss is a smaller evil than beginning again. All others must begin again.
GO_ON_AFTER_A_LOSS = {
    *(
        "toy-mean",
        "suggest-stratifier",
        "fed-mv-ppca",
        "dpfact",
        "trip",
        "fed-msgl",
        "fed-mvl",
        "fed-mvfcm",
        "fed-mvfpc",
    ),
    *("fed-hazard-boost", "fed-rsf", "fed-surv-boost", "fed-surf", "local-forests", "fed-stack", "fed-deep-surv"),
    *("ada-boost-f", "dist-boost-f", "pre-weak-f", "fed-xgb", "fed-vae", "fed-mcvae"),
}
secure_or_not = pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])


def run(name, sites=None, **options):
    """Fit a case again; return its numbers, the number of exchanges, and the federation."""
    case = CASES[name]
    options.setdefault("faults", Faults())
    options.setdefault("policy", case.policy)
    with federate(case.sites() if sites is None else sites, **options) as federation:
        fitted = case.make().fit(federation)
        return case.numbers(fitted), federation.engine.exchanges, federation


@functools.cache
def reference(name, secure):
    return run(name, secure_sum=secure)


@functools.cache
def exchanges_with_losses_tolerated(name, secure):
    return run(name, secure_sum=secure, quorum=len(CASES[name].sites()) - 1)[1]


def assert_same_bits(numbers, others):
    assert numbers.keys() == others.keys()
    assert {key: value.tobytes() for key, value in numbers.items()} == {
        key: value.tobytes() for key, value in others.items()
    }


@secure_or_not
def test_the_numbers_are_finite_and_repeatable(name, secure):
    numbers, *_ = reference(name, secure)
    assert numbers
    assert all(np.isfinite(value).all() and value.size for value in numbers.values())
    assert_same_bits(numbers, run(name, secure_sum=secure)[0])


@secure_or_not
def test_the_wire_changes_no_bit(name, secure):
    assert_same_bits(reference(name, secure)[0], run(name, secure_sum=secure, strict=True)[0])


@secure_or_not
def test_threads_change_no_bit(name, secure):
    assert_same_bits(reference(name, secure)[0], run(name, secure_sum=secure, time_limit_s=60.0)[0])


slow = pytest.mark.slow
masked_and_slowly_unmasked = pytest.mark.parametrize(
    "secure", [pytest.param(False, marks=slow), True], ids=["unmasked", "masked"]
)
PROTECTIONS = {
    "masked": {},
    "losses tolerated": {"quorum": 2},
    "a site colludes": {"colluding_sites": 1},
    "through the wire, losses tolerated": {"quorum": 2, "strict": True},
}


@pytest.mark.parametrize(
    "protection", [pytest.param(one, marks=() if one == "losses tolerated" else slow) for one in PROTECTIONS]
)
def test_masks_change_no_more_than_declared(name, protection):
    unmasked = reference(name, False)[0]
    options = dict(PROTECTIONS[protection])
    if "colluding_sites" in options:
        options["policy"] = dataclasses.replace(CASES[name].policy or mc.Policy(), **options)
        del options["colluding_sites"]
    masked = run(name, secure_sum=True, **options)[0]
    for key, value in unmasked.items():
        assert np.abs(value - masked[key]).max() <= CASES[name].masked_error, key


@secure_or_not
@pytest.mark.parametrize("part", [pytest.param(0.0, marks=slow), 0.5, pytest.param(1.0, marks=slow)])
def test_a_run_broken_off_resumes_with_the_same_bits(name, secure, part, tmp_path):
    numbers, n_exchanges, _ = reference(name, secure)
    at = round(part * (n_exchanges - 1))
    with pytest.raises(KeyboardInterrupt):
        run(name, secure_sum=secure, folder=tmp_path, faults=Faults(interrupt_at=at))
    assert_same_bits(numbers, run(name, secure_sum=secure, folder=tmp_path)[0])


@masked_and_slowly_unmasked
def test_a_site_that_comes_back_after_quorum_was_lost(name, secure, tmp_path):
    numbers, n_exchanges, _ = reference(name, secure)
    away = Faults(lose={list(CASES[name].sites())[1]: n_exchanges - 1})
    with pytest.raises(QuorumLost):
        run(name, secure_sum=secure, folder=tmp_path, faults=away)
    assert_same_bits(numbers, run(name, secure_sum=secure, folder=tmp_path)[0])


@secure_or_not
@pytest.mark.filterwarnings("ignore:.*no longer take part:multicentre.errors.LeftOutWarning")
@pytest.mark.parametrize("place", [pytest.param(0, id="first", marks=slow), pytest.param(-1, id="last")])
def test_the_fit_without_a_site_that_never_answered_is_that_of_the_others(name, secure, place):
    case = CASES[name]
    sites = dict(case.sites())
    lost = list(sites)[place]
    options = {"quorum": len(sites) - 1, "faults": Faults(lose={lost: 0}), "secure_sum": secure}
    if not case.loses_sites:
        with pytest.raises(QuorumLost):
            run(name, **options)
        return
    numbers, *_ = run(name, **options)
    del sites[lost]
    assert_same_bits(numbers, run(name, sites, secure_sum=secure)[0])


@masked_and_slowly_unmasked
@pytest.mark.filterwarnings("ignore:.*no longer take part:multicentre.errors.LeftOutWarning")
@pytest.mark.parametrize("part", [0.4, pytest.param(1.0, marks=slow)])
def test_a_lost_site_within_the_quorum(name, secure, part):
    case = CASES[name]
    sites = list(case.sites())
    n_exchanges = exchanges_with_losses_tolerated(name, secure)
    faults = Faults(lose={sites[-1]: round(part * (n_exchanges - 1))})
    options = {"quorum": len(sites) - 1, "faults": faults, "secure_sum": secure}
    if not case.loses_sites:
        with pytest.raises(QuorumLost):
            run(name, **options)
        return
    numbers, *_ = run(name, **options)
    assert all(np.isfinite(value).all() for value in numbers.values())
    assert_same_bits(numbers, run(name, strict=True, **options)[0])
    goes_on = name.partition(",")[0] in GO_ON_AFTER_A_LOSS
    assert getattr(case.make(), "same_sites", False) is not goes_on
    if not goes_on and case.make().privacy_plan() is None:
        others = {site: data for site, data in case.sites().items() if site != sites[-1]}
        assert_same_bits(numbers, run(name, others, secure_sum=secure)[0])


def test_two_fits_on_one_federation_are_the_same(name):
    case = CASES[name]
    with federate(case.sites(), policy=case.policy) as federation:
        one, two = (case.numbers(case.make().fit(federation)) for _ in range(2))
    assert_same_bits(one, two)


def test_small_sites_are_refused_and_the_refusal_is_written_down(name):
    case = CASES[name]
    with federate(case.sites(), policy=mc.Policy(min_patients=10**9)) as federation:
        with pytest.raises(DisclosureRefused):
            case.make().fit(federation)
        events = [entry["event"] for ledger in federation.ledgers.values() for entry in ledger.entries]
    assert "refusal" in events


def test_a_method_that_is_not_on_the_list_is_refused(name):
    with pytest.raises(RefusedByPolicy):
        run(name, policy=mc.Policy(methods=()))


@secure_or_not
def test_what_left_is_what_the_cards_announce(name, secure):
    federation = reference(name, secure)[2]
    parts = {part.method: part for part in _descendants(SitePart)}
    methods = {entry["method"] for ledger in federation.ledgers.values() for entry in ledger.entries}
    announced = {
        (method, line.step, line.field.partition("[")[0])
        for method in methods
        for line in federation.card(parts[method]).lines
    }
    for ledger in federation.ledgers.values():
        assert ledger.entries
        left = {
            (entry["method"], entry["step"], field["field"].partition("[")[0])
            for entry in ledger.entries
            for field in entry["fields"]
            if field["records"] is not None
        }
        assert left
        assert left <= announced


@secure_or_not
def test_the_ledgers_of_all_sites_say_the_same(name, secure):
    ledgers = reference(name, secure)[2].ledgers
    found = compare_ledgers({site: ledger.entries for site, ledger in ledgers.items()})
    assert found.n_calls > 0
    assert not found.n_unknown
    assert not found.differences


@secure_or_not
def test_only_steps_that_the_estimator_named_were_asked(name, secure):
    estimator, federation = CASES[name].make(), reference(name, secure)[2]
    if not hasattr(estimator, "planned_steps"):
        return
    methods = {estimator.site_part.method}
    asked = {e["step"] for led in federation.ledgers.values() for e in led.entries if e["method"] in methods}
    assert asked <= estimator.planned_steps() <= set(estimator.site_part.steps())


def _descendants(kind):
    return {kind}.union(*(_descendants(child) for child in kind.__subclasses__()))
