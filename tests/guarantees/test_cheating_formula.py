"""A coordinator that aims the columns of a formula at single patients, or sends code, gets no answer."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.data.missing.values import Handling
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, RefusedByPolicy
from multicentre.formula.agreement import make_design
from multicentre.formula.columns import Table
from multicentre.formula.grammar import parse_formula
from multicentre.regression.messages import Model
from multicentre.regression.site import RegressionSite
from multicentre.survival.agreement.messages import OfCause
from multicentre.survival.cox.site import CoxSite

N = 60
NAMES = ("age", "dose")
TABLE = Table(np.zeros((1, 2)), NAMES)


def begin(*, secure=True, policy=None):
    """Begin at three sites; patient 0 of the first has the highest age of all."""
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        age = np.round(rng.normal(60, 10, N), 1)
        age[0] = 150.0 if place == 0 else 60.0
        y = (rng.random(N) < 0.5).astype(int)
        sites[f"s{place}"] = mc.data.TableData(np.column_stack([age, rng.normal(size=N)]), y, columns=NAMES)
    options = {} if policy is None else {"policy": policy}
    federation = mc.Federation.in_process(sites, secure_sum=secure, one_row_per_patient=True, **options)
    session = federation.begin(RegressionSite)
    session.sum(RegressionSite.count_gaps, Handling("complete", NAMES))
    return session


def begin_survival():
    """Begin a Cox model at three sites."""
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        X, time = rng.normal(60, 10, (N, 2)), rng.exponential(size=N)
        sites[f"s{place}"] = mc.data.SurvivalData(X, time, rng.random(N) < 0.5, columns=NAMES)
    session = mc.Federation.in_process(sites, one_row_per_patient=True).begin(CoxSite)
    session.sum(CoxSite.count_gaps, Handling("complete", NAMES))
    return session


def design_of(formula):
    return make_design(parse_formula(formula), TABLE)


# Knots, and levels, that only the patient of 150 years is beyond.
AIMED = ["bs(age, knots=[140], boundary=[40, 160], degree=1)", "ns(age, knots=[140], boundary=[40, 160])"]


@pytest.mark.parametrize("formula", AIMED)
def test_unmasked_knots_around_one_patient_are_refused(formula):
    with pytest.raises(DisclosureRefused):
        begin(secure=False).sum(RegressionSite.build_design, design_of(formula))


@pytest.mark.parametrize("formula", AIMED)
def test_masked_knots_around_one_patient_are_refused_by_a_minimum_of_totals(formula):
    session = begin(policy=mc.Policy(min_patients_in_total=5))
    with pytest.raises((DisclosureRefused, RefusedByPolicy), match="cell"):
        session.sum(RegressionSite.build_design, design_of(formula))


def test_the_formula_cannot_change_during_a_fit():
    """With other knots, the difference of two sums would be that of the patients between them."""
    session = begin()
    session.sum(RegressionSite.build_design, design_of("ns(age, knots=[60], boundary=[40, 80])"))
    with pytest.raises(ConfigurationError, match="must be that of the first request"):
        session.sum(RegressionSite.build_design, design_of("ns(age, knots=[61], boundary=[40, 80])"))


@pytest.mark.parametrize("part", [RegressionSite, CoxSite])
def test_columns_cannot_be_built_after_a_sum_of_others(part):
    """The smallest cells that the guard compares are those of the columns at the first sum."""
    session = begin() if part is RegressionSite else begin_survival()
    if part is RegressionSite:
        session.sum(part.sum_columns, Model("binomial", "logit", "", "", "", True))
    else:
        session.sum(part.sum_sizes, OfCause(1))
    with pytest.raises(ConfigurationError, match="before the first sum of the fit"):
        session.sum(part.build_design, design_of("power(age, 3)"))


@pytest.mark.parametrize(
    "changed",
    [
        {"functions": ("exec",)},
        {"functions": ("eval",)},
        {"functions": ("__import__",)},
        {"functions": ("exp",)},
        {"functions": ("power",), "function_numbers": np.array([50.0]), "function_numbers_end": np.array([1])},
        {
            "functions": ("centre", "log"),
            "functions_end": np.array([2]),
            "function_numbers": np.array([149.0]),
            "function_numbers_end": np.array([1, 1]),
        },
        {"terms": np.array([0, 0, 0, 0]), "terms_end": np.array([4])},
    ],
)
def test_a_site_refuses_functions_that_are_not_in_the_list(changed):
    """Also powers so large that a column is that of one patient, and limits that search for the smallest value."""
    design = replace(design_of("log(age)"), **changed)
    with pytest.raises(MessageError):
        begin().sum(RegressionSite.build_design, design)
