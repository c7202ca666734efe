"""Tests stratified by site are those of R's survival package on the pooled patients (see survival_of_r.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.survival import FedCox, LogRank
from oracles.survival_of_r import patients

R = json.loads((Path(__file__).parent / "survival_of_r.json").read_text(encoding="utf-8"))
NAMES = ["continuous", "tied"]
OPEN = mc.Policy(min_patients=0, exact_times=True)


def by_site(name, columns=("a", "b", "c", "group")):
    X, time, event, site, group = patients(ties=name == "tied")
    rows = np.column_stack([X, group])[:, : len(columns)]
    return {
        f"site-{k}": mc.data.SurvivalData(rows[site == k], time[site == k], event[site == k], columns=columns)
        for k in np.unique(site)
    }


@pytest.mark.parametrize("secure_sum", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize(("groups", "column"), [("two_groups", "a"), ("three_groups", "group")])
@pytest.mark.parametrize("name", NAMES)
def test_the_default_log_rank_test_is_that_of_survdiff_with_strata(name, groups, column, secure_sum):
    expected = R[name][groups]
    levels = None if column == "a" else [0, 1, 2]
    test = LogRank(column, levels=levels).fit(mc.Federation.in_process(by_site(name), secure_sum=secure_sum))
    assert test.statistic_ == pytest.approx(expected["statistic"], abs=1e-6)
    assert test.degrees_of_freedom_ == expected["df"]
    assert test.p_value_ == pytest.approx(expected["p"], rel=1e-6)
    assert test.observed_.tolist() == expected["observed"]
    np.testing.assert_allclose(test.expected_, expected["expected"], atol=1e-6)
    assert "horizon" not in test.answer()


@pytest.fixture(scope="module", params=NAMES)
def cox(request):
    sites = by_site(request.param, ("a", "b", "c"))
    return R[request.param], FedCox(tol=1e-10).fit(mc.Federation.in_process(sites, secure_sum=False, policy=OPEN))


@pytest.mark.parametrize("transform", ["identity", "log"])
def test_the_default_test_of_proportionality_is_cox_zph(cox, transform):
    expected, model = cox
    np.testing.assert_allclose(model.coef_, expected["coefficients"], atol=1e-7)
    tests = model.check_proportionality(transform)
    assert list(tests) == ["a", "b", "c", "global"]
    found = [[test.statistic, test.degrees_of_freedom, test.p_value] for test in tests.values()]
    values = [expected["proportionality"][transform][key] for key in ("statistic", "df", "p")]
    np.testing.assert_allclose(np.transpose(found), values, rtol=1e-6)
    assert "since version 3" in tests["global"].name


@pytest.mark.parametrize("transform", ["km", "rank"])
def test_transforms_on_the_grid_are_close_to_cox_zph(cox, transform):
    expected, model = cox
    statistics = [test.statistic for test in model.check_proportionality(transform).values()]
    np.testing.assert_allclose(statistics, expected["proportionality"][transform]["statistic"], rtol=0.05, atol=0.02)


def test_the_test_before_version_3_says_so(cox):
    _, model = cox
    tests = model.check_proportionality("identity", test="residuals")
    assert "before version 3" in tests["global"].name
    assert tests["global"].statistic != model.check_proportionality("identity")["global"].statistic
