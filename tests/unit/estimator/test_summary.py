"""A fitted model prints its summary, which states what was left out, and its class documents every fitted attribute."""

import functools
import inspect

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.docstrings import read_attributes
from support.method_cases import CASES, each_case
from support.toy_method import federate


def patients(number, size):
    rng = np.random.default_rng(number)
    return mc.data.SurvivalData(rng.normal(size=(size, 1)), rng.exponential(5.0, size), np.ones(size, dtype=int))


SITES = {name: patients(number, size) for number, (name, size) in enumerate([("lyon", 60), ("oslo", 50), ("tiny", 4)])}


@functools.cache
def fit_case(name):
    """Fit a case once for all tests of this file; skip what is no estimator."""
    case = CASES[name]
    if not isinstance(case.make(), FederatedEstimator):
        pytest.skip("no estimator")
    with federate(case.sites(), policy=case.policy) as federation:
        return case.make().fit(federation)


def public_attributes(fitted):
    """Return the names of the fitted attributes, properties included, that exist."""
    names = {*vars(fitted), *(name for name, _ in inspect.getmembers(type(fitted), inspect.isdatadescriptor))}
    return {name for name in names if name.endswith("_") and not name.startswith("_") and hasattr(fitted, name)}


@each_case
@pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning")
@pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises")
def test_every_fitted_attribute_is_documented(name):
    fitted = fit_case(name)
    entries = read_attributes(inspect.cleandoc(type(fitted).__doc__))
    documented = {each for names, _ in entries for each in names.split(", ")}
    assert public_attributes(fitted) - documented == set()


@each_case
@pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning")
@pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises")
def test_every_fitted_model_has_a_summary_that_print_shows(name):
    fitted = fit_case(name)
    unfitted = CASES[name].make()
    assert str(unfitted) == repr(unfitted)
    summary = fitted.summary()
    assert isinstance(summary, pd.DataFrame)
    assert fitted.describe_model() in " ".join(str(fitted).split())
    assert all(len(line) <= 80 for line in str(fitted.summary()).splitlines())
    assert len(summary)
    assert str(fitted).startswith(repr(fitted))
    assert str(fitted).endswith(str(summary))


@pytest.mark.parametrize("make", [mc.survival.FedCox, lambda: mc.survival.FedRSF(n_estimators=2)], ids=["cox", "rsf"])
def test_sites_that_were_left_out_are_named(make):
    with (
        pytest.warns(UserWarning, match="without 1 of 3 sites"),
        mc.Federation.in_process(SITES, refusing_sites="leave_out", quorum=2) as federation,
    ):
        fitted = make().fit(federation)
    assert "Fitted without tiny" in str(fitted)


def test_a_site_that_was_lost_during_the_fit_is_named(tmp_path):
    sites = {name: patients(number, 60) for number, name in enumerate(["lyon", "oslo", "porto"])}
    fitted = {}
    for n_answers in (5, 10**6):
        with mc.Federation.in_process(sites, quorum=2, faults=Faults(lose={"oslo": n_answers})) as federation:
            fitted[n_answers] = mc.survival.FedRSF(n_estimators=2).fit(federation)
    of_two, of_three = fitted.values()
    assert of_three.lost_ == {}
    assert list(of_two.lost_) == ["oslo"]
    assert of_two.left_out_ == {}
    assert "Lost during the fit, with sums until then: oslo" in str(of_two)
    assert "Lost" not in str(of_three)
    of_two.save(tmp_path)
    assert mc.survival.FedRSF.load(tmp_path).lost_ == of_two.lost_


def test_an_unfitted_model_has_no_summary():
    with pytest.raises(Exception, match="not fitted"):
        mc.survival.KaplanMeier().summary()
