"""Tests stratified by site are those of R's survival package on the pooled patients (see survival_of_r.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.survival import LogRank
from oracles.survival_of_r import patients

R = json.loads((Path(__file__).parent / "survival_of_r.json").read_text(encoding="utf-8"))
NAMES = ["continuous", "tied"]


def by_site(name):
    X, time, event, site, group = patients(ties=name == "tied")
    rows = np.column_stack([X, group])
    return {
        f"site-{k}": mc.data.SurvivalData(rows[site == k], time[site == k], event[site == k], columns=[*"abc", "group"])
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
