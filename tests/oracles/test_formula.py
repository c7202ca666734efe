"""Fits of formulas are those of R and statsmodels on the pooled patients, for any split."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.formula.splines import b_splines, cardinal_splines, natural_splines
from multicentre.regression import FedGLM
from oracles.formula_values import BOUNDARY, CASES, KNOTS, PLACES, STAGES, draw

# Written by tests/oracles/formula_values.py, which names the versions.
FROZEN = json.loads(Path(__file__).with_name("formula_values.json").read_text())
COLUMNS, STAGE, SEX, OUTCOMES = draw()
SITE = np.random.default_rng(1).integers(8, size=len(STAGE))
OPEN = mc.Policy(min_patients=0)


def table(outcome, reference=None):
    names = [*COLUMNS, "stage=I", "stage=II", "stage=III", "sex=m"]
    X = np.column_stack([*COLUMNS.values(), *(np.equal(STAGE, place) for place in range(3)), SEX])
    kind = {"classes": ["no", "yes"]} if outcome == "died" else {"outcome": "number"}
    y = OUTCOMES[outcome] if outcome != "died" else np.array(["no", "yes"])[OUTCOMES[outcome]]
    levels = [*(f"stage={name}" for name in STAGES), "sex=f", "sex=m"]
    return mc.data.TableData(X, y, columns=names, levels=levels, outcome_name=outcome, **kind)


def fitted(family, formula, *, n_sites=3, secure=False, **options):
    data = table(formula.partition("~")[0].strip())
    sites = {f"site-{i}": data.take(np.flatnonzero(SITE % n_sites == i)) for i in range(n_sites)}
    federation = mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)
    return FedGLM(family, formula=formula, **({"tol": 1e-10} | options)).fit(federation)


def check(model, expected, rel):
    frame = model.to_frame()
    assert frame["coefficient"].to_numpy() == pytest.approx(np.array(expected["coefficients"]), rel=rel, abs=rel)
    assert frame["standard_error"].to_numpy() == pytest.approx(np.array(expected["errors"]), rel=rel)


@pytest.mark.parametrize("name", CASES)
def test_each_formula_equals_r(name):
    family, formula, _ = CASES[name]
    model = fitted(family, formula)
    check(model, FROZEN[name], 1e-8)
    assert model.deviance_ == pytest.approx(FROZEN[name]["deviance"], rel=1e-8)
    assert model.null_deviance_ == pytest.approx(FROZEN[name]["null_deviance"], rel=1e-8)


@pytest.mark.parametrize("name", ["splines", "crossed", "nested", "without intercept", "cells", "inner"])
def test_joint_tests_of_terms_equal_r(name):
    family, formula, _ = CASES[name]
    tests = fitted(family, formula).term_tests()
    assert sorted(tests["statistic"]) == pytest.approx(sorted(np.atleast_1d(FROZEN[name]["wald"])), rel=1e-7)


@pytest.mark.parametrize("name", ["splines", "cells"])
def test_masked_sums_lose_less_than_a_millionth(name):
    family, formula, _ = CASES[name]
    check(fitted(family, formula, n_sites=8, secure=True), FROZEN[name], 1e-6)


def test_any_split_gives_the_same_knots_and_fit():
    formula = "died ~ ns(bmi, df=4) + bs(log(creatinine), df=4) + stage"
    one, eight = (fitted("binomial", formula, n_sites=n) for n in (1, 8))
    assert np.array_equal(one.design_.function_numbers, eight.design_.function_numbers)
    assert eight.coef_ == pytest.approx(one.coef_, rel=1e-10)


def test_a_reference_equals_statsmodels():
    model = fitted("binomial", "died ~ C(stage, ref='II') + log(creatinine) + bmi")
    check(model, FROZEN["statsmodels"], 1e-8)


def test_bases_are_those_of_r_and_patsy():
    x, knots = np.array(PLACES), np.array(KNOTS)
    assert natural_splines(x, knots, BOUNDARY).ravel() == pytest.approx(np.array(FROZEN["ns"]), abs=1e-10)
    assert b_splines(x, knots, BOUNDARY).ravel() == pytest.approx(np.array(FROZEN["bs"]), abs=1e-10)
    assert b_splines(x, knots, BOUNDARY, 1).ravel() == pytest.approx(np.array(FROZEN["linear bs"]), abs=1e-10)
    inside = np.flatnonzero((x >= BOUNDARY[0]) & (x <= BOUNDARY[1]))
    expected = np.array(FROZEN["cr"]).reshape(len(x), -1)
    assert cardinal_splines(x, knots, BOUNDARY)[inside] == pytest.approx(expected[inside], abs=1e-10)
    # patsy continues cubic polynomials beyond the boundary, mgcv and this package straight lines
    outside = cardinal_splines(np.array([-1.0, -2.0, -3.0, 5.0, 6.0, 7.0]), knots, BOUNDARY)
    assert np.abs(np.diff(outside.reshape(2, 3, -1), 2, axis=1)).max() < 1e-12
