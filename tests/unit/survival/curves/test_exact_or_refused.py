"""Curves and tests over sites are exact, or refused where an unmasked cell has fewer patients than the policy wants."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import DisclosureRefused
from multicentre.survival import AalenJohansen, KaplanMeier, LogRank

CELL = 7
TIMES = [10.0, 20.0, 25.0]
LEAVING = [(10.0, 1), (10.0, 2), (20.0, 1), (30.0, 0)]
KINDS = {
    "kaplan-meier": (lambda: KaplanMeier("arm", times=TIMES), CELL),
    "aalen-johansen": (lambda: AalenJohansen("arm", times=TIMES), CELL),
    "log-rank": (lambda: LogRank("arm", stratify_by_site=False, times=TIMES), CELL),
    # Rests on the events of each group.
    "log-rank by site": (lambda: LogRank("arm"), 2 * CELL),
}
each = pytest.mark.parametrize("name", KINDS)


def site(cell=CELL, n_missing=0):
    """Return patients of two arms, `cell` for each time and cause in each; the last ones of arm 1 lack their arm."""
    arm, leaving = np.repeat([0.0, 1.0], len(LEAVING)), LEAVING * 2
    rows = np.repeat(np.arange(len(arm)), cell)
    time, event = np.array(leaving).T
    arm = arm[rows]
    arm[len(arm) - n_missing :] = np.nan
    return mc.data.SurvivalData(arm[:, None], time[rows], event[rows].astype(int), columns=["arm"])


def without_one(data):
    return data.take(np.arange(1, len(data)))


def fit(name, sites, **options):
    return KINDS[name][0]().fit(mc.Federation.in_process(sites, **options))


@each
def test_cells_of_the_policys_minimum_leave_unmasked_and_smaller_ones_do_not(name):
    terms = {"policy": mc.Policy(min_patients=KINDS[name][1]), "secure_sum": False}
    assert fit(name, {"lyon": site(), "oslo": site()}, **terms).n_left_out_ == 0
    with pytest.raises(DisclosureRefused, match=r"oslo.*secure_sum=True"):
        fit(name, {"lyon": site(), "oslo": without_one(site())}, **terms)


@each
def test_a_few_patients_without_a_group_are_refused_unmasked_and_counted_under_a_mask(name):
    sites = {"lyon": site(40), "oslo": site(40, n_missing=9)}
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        fit(name, sites, secure_sum=False)
    assert fit(name, sites).n_left_out_ == 9


@each
def test_unmasked_numbers_without_a_minimum_are_those_of_masked_sums(name):
    sites = {f"site-{i}": site(cell, n_missing=i) for i, cell in enumerate([2, 3, 5])}
    masked, unmasked = fit(name, sites), fit(name, sites, policy=mc.Policy(min_patients=0), secure_sum=False)
    assert masked.n_left_out_ == unmasked.n_left_out_ == 3
    arrays, expected = masked._state()[0], unmasked._state()[0]
    for key in set(arrays) - {"agreed_"}:
        np.testing.assert_allclose(arrays[key], expected[key], rtol=0, atol=1e-6)


def test_a_site_that_refuses_its_own_curves_has_nan_and_the_others_keep_their_numbers():
    sites = {"lyon": site(), "nice": without_one(site()), "oslo": site(2 * CELL)}
    model = fit("kaplan-meier", sites, policy=mc.Policy(min_patients=CELL))
    curves = model.by_site()
    assert list(curves) == list(sites)
    assert list(curves.refused) == ["nice"]
    assert f"at least {CELL} patients" in curves.refused["nice"]
    for name in ("lyon", "oslo"):
        alone = fit("kaplan-meier", {name: sites[name]}, policy=mc.Policy(min_patients=0))
        np.testing.assert_array_equal(curves[name].survival, alone.survival_)
        np.testing.assert_array_equal(curves[name].limits, (alone.lower_, alone.upper_))
        np.testing.assert_array_equal(list(curves[name].median.values()), list(alone.median_.values()))
        assert curves[name].restricted_mean() == alone.rmst_
    for values in (refused := curves["nice"]).survival, refused.cumulative_hazard, refused.limits, refused.variance:
        assert np.isnan(values).all()
    for estimates in (refused.median, refused.follow_up, refused.restricted_mean()):
        assert np.isnan(list(estimates.values())).all()
    assert np.isnan(refused.reverse_survival).all()
    assert np.isnan(refused.survival_at([5.0, 10.0])).all()


def test_a_site_without_a_group_has_nan_for_it_alone():
    one_arm = site().take(np.arange(4 * CELL))
    curves = fit("kaplan-meier", {"lyon": site(), "oslo": one_arm}, policy=mc.Policy(min_patients=CELL)).by_site()
    np.testing.assert_array_equal(curves["oslo"].survival[0], curves["lyon"].survival[0])
    assert np.isnan(curves["oslo"].survival[1]).all()
    assert curves["oslo"].table.n_patients.tolist() == [4 * CELL, 0.0]
