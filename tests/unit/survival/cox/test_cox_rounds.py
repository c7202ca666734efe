"""Newton rounds of the Cox model after the loss of a site: nothing of two rosters is mixed or compared."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.cox.rounds import Ascent, Plan, Totals, _climb, add_up
from multicentre.survival.cox.site import CoxSite
from support.survival_sites import draw_patients, shared_out

OPEN = mc.Policy(min_patients=0, exact_times=True)
BEFORE = Ascent(np.zeros(1), np.ones(1), 1.0, -50.0, 0.0, 100.0, -60.0, 3.0)


def totals(value, n_patients):
    none, rows = np.zeros(0), np.zeros((0, 1))
    return Totals(n_patients, 20.0, 0.0, value, np.ones(1), np.eye(1), none, none, rows, none, rows)


def climbed(value, n_patients):
    return _climb(BEFORE, np.array([0.5]), totals(value, n_patients), 0.0)


def test_a_step_that_lowers_the_objective_of_the_same_patients_is_halved():
    state, gain = climbed(-51.0, 100.0)
    assert (state.share, gain) == (0.5, -1.0)
    assert state.coefficients.tolist() == [0.0]
    assert state.objective == -50.0


@pytest.mark.parametrize("n_patients", [60.0, 99.0, 101.0])
@pytest.mark.parametrize("value", [-51.0, -50.0, -40.0])
def test_objectives_of_different_patients_are_not_compared(n_patients, value):
    state, gain = climbed(value, n_patients)
    assert gain == np.inf  # neither a reason to halve the step nor one to stop
    assert state.coefficients.tolist() == [0.5]
    assert (state.share, state.objective, state.n_patients) == (1.0, value, n_patients)


@pytest.mark.parametrize(("times", "second"), [("grid", "sum_products"), ("exact", "sum_exact_products")])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_both_sums_of_a_round_are_over_the_same_sites(times, second, secure):
    sites = shared_out(draw_patients(240), 4)
    options = {"policy": OPEN, "quorum": 3, "secure_sum": secure, "faults": Faults(lose={"site-3": second})}
    plan = Plan(times, "efron", 0.0, 20, 1e-8)
    with mc.Federation.in_process(sites, **options) as made:
        federation = made.begin(CoxSite)
        agree(federation, CoxSite, Needs(n_times=16, exact=times == "exact"), "complete")
        at = np.array([0.3, -0.2, 0.1])
        first = add_up(federation, at, 0.0, plan)
        assert federation.sites == ("site-0", "site-1", "site-2")
        again = add_up(federation, at, 0.0, plan)
    assert first.n_patients == sum(len(sites[site].time) for site in ("site-0", "site-1", "site-2"))
    for field in dataclasses.fields(Totals):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(again, field.name), err_msg=field.name)
