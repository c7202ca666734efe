"""Whatever numbers a coordinator chooses, an accepted unmasked sum rests on at least the minimum of patients.

Every array of numbers in a request for a sum is replaced by ones that single out a place: a jump, all weight in one
cell, a very large entry. Then the rows of one patient after another are changed at one site, which receives the same
requests. A cell of the answer that some patient moves must be moved by as many patients as the policy requires. What a
masked total may single out is stated for every step in ``tests/guarantees/test_summed_steps.py``.
"""

import dataclasses
import functools

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Refused
from multicentre.core.messages import array
from multicentre.core.steps import Release
from multicentre.data.records import add_record, amplify_record
from support.engines import with_engine
from support.lying import Noting
from support.method_cases import CASES, TABLES_OF_PAIRS, Case, each_of
from support.toy_method import federate

MINIMUM = 10
POLICY = mc.Policy(min_patients=MINIMUM, max_parameters_per_patient=0)
# A patient who moves a cell by less than this share of the largest movement is hidden behind that one.
SHARE = 1e-5
# Movements below this share of the largest value of a field come from the rounding of its sums, and cells of which no
# movement is clearly larger are not judged.
ROUNDING, CLEAR = 1e-10, 1e3
# Calls of a fit that are played again before the forged one; all steps but those of late rounds are among them.
MAX_CALLS = 60
# The toy has no rows that can be changed, and answers about pairs of patients need a permission of their own.
OTHERS = {"toy-mean"} | {name for name, case in CASES.items() if case.policy is TABLES_OF_PAIRS}
# Steps whose cells few patients move, and why many are behind them.
COUNTING = {("ada-boost-f", "judge"): "weights on one side of a threshold, which a patient moves only by crossing it"}


def few_values():
    """Return three sites whose bins all hold many patients, so that Table 1 with rank correlations is unmasked."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(360, 2)).astype(float)
    data = mc.data.TableData(X, rng.integers(0, 2, 360), columns=["grade", "stage"], classes=["no", "yes"])
    return {f"site-{i}": data.take(np.arange(i, 360, 3)) for i in range(3)}


TABLE_ONE = Case(lambda: mc.analytics.Describe(histograms=True, correlations=True), few_values, dict)
HELD = {**{name: case for name, case in CASES.items() if name not in OTHERS}, "describe, few values": TABLE_ONE}

pytestmark = pytest.mark.filterwarnings("ignore")


def forged(request):
    """Return requests with one array of numbers replaced."""
    requests = []
    for name, declaration in request.declarations().items():
        value = getattr(request, name)
        if declaration.kind != "array" or not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        jump, lone, large = np.zeros_like(value), np.zeros_like(value), value.copy()
        if value.size:
            jump[..., value.shape[-1] // 2 :] = lone[..., -1] = 1.0
            large[..., 0] = 1e4
            requests += [dataclasses.replace(request, **{name: other}) for other in (jump, lone, large)]
    return requests


@functools.cache
def honest_calls(name):
    """Return the calls of an unmasked fit of all sites."""
    case = HELD[name]
    with federate(case.sites(), secure_sum=False, policy=case.policy or POLICY) as federation:
        engine = Noting(federation.engine)
        case.make().fit(with_engine(federation, engine))
    return engine.calls[:MAX_CALLS]


def answer_of(sites, calls):
    """Return the answer of the first site to the last of some calls; None if it refuses one of them."""
    site = next(iter(sites))
    with federate(sites, secure_sum=False, policy=POLICY) as federation:
        for call in calls:
            outcome = federation.engine.exchange({site: call}, None)[site]
    return None if isinstance(outcome, Refused) else outcome


def with_one_changed(sites, i):
    """Return the sites with the numbers of one patient of the first site multiplied."""
    site, data = next(iter(sites.items()))
    rest = data.take(np.delete(np.arange(len(data)), i))
    return {**sites, site: add_record(rest, amplify_record(data, i, 1.37))}


def movements(base, other):
    """Return by how much each cell differs, in units of the rounding of its field."""
    cells = []
    for (_, _, declaration, value), (_, _, _, changed) in zip(base.items(), other.items(), strict=True):
        if declaration.kind in ("text", "texts") or np.shape(value) != np.shape(changed):
            continue
        one, another = np.ravel(np.asarray(value, float)), np.ravel(np.asarray(changed, float))
        largest = max(np.abs(one).max(initial=0.0), np.abs(another).max(initial=0.0))
        cells.append(np.abs(one - another) / (ROUNDING * max(largest, 1.0)))
    return np.concatenate([np.zeros(0), *cells])


def fewest_movers(sites, calls):
    """Return the fewest patients who move a cell that any patient moves; None if the site refuses."""
    base = answer_of(sites, calls)
    if base is None:
        return None
    moved = []
    for i in range(len(next(iter(sites.values())))):
        other = answer_of(with_one_changed(sites, i), calls)
        if other is not None:
            moved.append(movements(base, other))
        if len(moved) > MINIMUM and n_movers(moved) >= MINIMUM:
            break
    return n_movers(moved)


def n_movers(moved):
    table = np.array([row for row in moved if len(row) == len(moved[0])]) if moved else np.zeros((0, 0))
    largest = table.max(axis=0, initial=0.0)
    is_moved = table > np.maximum(SHARE * largest, 1.0)
    return int(is_moved.sum(axis=0)[largest > CLEAR].min(initial=MINIMUM))


@pytest.mark.slow
@each_of(HELD)
def test_no_choice_of_numbers_rests_an_unmasked_sum_on_few_patients(name):
    calls, sites = honest_calls(name), HELD[name].sites()
    first = {}
    for place, call in enumerate(calls):
        if call.step.summed and (call.step.method, call.step.name) not in COUNTING:
            first.setdefault((call.step.method, call.step.name), place)
    for step, place in first.items():
        if answer_of(sites, calls[: place + 1]) is None:
            continue  # the honest request is refused unmasked, for its small cells
        for request in forged(calls[place].request):
            played = [*calls[:place], dataclasses.replace(calls[place], request=request)]
            assert (fewest_movers(sites, played) or MINIMUM) >= MINIMUM, f"{step}: {request}"


def test_the_contract_finds_an_answer_that_rests_on_one_patient():
    @dataclasses.dataclass(frozen=True)
    class Sums(Release):
        total: np.ndarray = array("sums", ("d",), bound=1e9)

    rows = np.random.default_rng(0).normal(size=(30, 2))
    weights = np.eye(30)[3] + 1e-9

    def answer(data):
        return Sums(weights @ data)

    def changed(i):
        other = rows.copy()
        other[i] *= 1.37
        return other

    moved = [movements(answer(rows), answer(changed(i))) for i in range(len(rows))]
    assert n_movers(moved) == 1
