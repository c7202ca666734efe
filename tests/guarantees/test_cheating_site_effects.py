"""A coordinator that aims requests of models with effects of sites at single patients gets no answer."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.regression import messages as regression_messages
from multicentre.regression.mixed import messages
from multicentre.regression.mixed.site import GeneralizedMixedSite, LinearMixedSite
from multicentre.regression.site import RegressionSite
from multicentre.survival.mixed_cox.site import MixedCoxSite

N = 60


def tables(*, classes):
    """Return three sites; patient 0 of the first has the highest age of all."""
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        age = rng.normal(60, 10, N)
        age[0] = 150.0 if place == 0 else 60.0
        y = (rng.random(N) < 0.5).astype(int) if classes else age + rng.normal(size=N)
        X, kind = np.column_stack([age, rng.normal(size=N)]), {} if classes else {"outcome": "number"}
        sites[f"s{place}"] = mc.data.TableData(X, y, columns=["age", "dose"], **kind)
    return sites


def federate(sites, **options):
    return mc.Federation.in_process(sites, one_row_per_patient=True, **options)


def fields(family, **more):
    link = {"gaussian": "identity", "binomial": "logit"}[family]
    return {
        "family": family,
        "link": link,
        "offset": "",
        "weights": "",
        "cluster": "",
        "frequency": True,
        "centre": np.zeros(2),
        "mean": 0.0,
        "spread": np.ones(2),
        "scale": 1.0,
        **more,
    }


# Everybody but the patient of 150 years is predicted with certainty.
SINGLED_OUT = np.array([-3000.0, 20.0, 0.0])


def test_an_intercept_that_rests_on_few_patients_is_refused():
    """A steep slope leaves weight on the patients next to one age only, wherever the site's intercept is."""
    session = federate(tables(classes=True)).begin(RegressionSite)
    at = fields("binomial", site_intercepts=True, coefficients=np.array([0.0, 20.0, 0.0]))
    with pytest.raises(DisclosureRefused):
        session.sum(RegressionSite.sum_derivatives, regression_messages.At(**at))
    request = regression_messages.Uncertainty(**at, covariance=np.zeros((3, 3)), dispersion=1.0)
    answers = session.ask(RegressionSite.tell_intercept, request, skip_refusals=True)
    assert set(answers.refused) == {"s0", "s1", "s2"}


def test_a_site_answers_once_about_itself():
    session = federate(tables(classes=False)).begin(LinearMixedSite)
    common = fields("gaussian", slopes=(), covariance=np.eye(1), directions=np.eye(1), variance=1.0)
    request = messages.AtSolution(**common, coefficients=np.zeros(3))
    for _ in range(2):
        session.ask(LinearMixedSite.tell_effects, request, skip_refusals=True)
    other = dataclasses.replace(request, coefficients=np.array([0.0, 0.0, 1e-3]))
    with pytest.raises(ConfigurationError, match="must be identical"):
        session.ask(LinearMixedSite.tell_effects, other)


@pytest.mark.parametrize(
    ("covariance", "slopes", "error"),
    [
        (-np.eye(1), (), MessageError),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), ("age",), MessageError),
        (np.eye(2), (), MessageError),
        (np.eye(2), ("height",), SchemaMismatch),
    ],
    ids=["negative", "indefinite", "wrong size", "unknown column"],
)
def test_a_matrix_that_is_no_covariance_is_refused(covariance, slopes, error):
    session = federate(tables(classes=False)).begin(LinearMixedSite)
    request = messages.Candidates(**fields("gaussian", slopes=slopes), covariances=covariance[None])
    with pytest.raises(error):
        session.sum(LinearMixedSite.sum_candidates, request)


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "unmasked"])
def test_coefficients_that_leave_weight_on_one_patient_are_refused(secure):
    session = federate(tables(classes=True), secure_sum=secure).begin(GeneralizedMixedSite)
    request = messages.AtFactor(**fields("binomial", slopes=()), coefficients=SINGLED_OUT, factor=np.full(1, 1e-3))
    with pytest.raises(DisclosureRefused):
        session.sum(GeneralizedMixedSite.sum_laplace, request)
    answers = session.ask(GeneralizedMixedSite.tell_effects, request, skip_refusals=True)
    assert set(answers.refused) == {"s0"}


def test_effects_that_make_a_site_a_step_function_are_refused():
    session = federate(tables(classes=True)).begin(GeneralizedMixedSite)
    request = messages.AtFactor(**fields("binomial", slopes=("age",)), coefficients=np.zeros(3), factor=np.full(3, 1e3))
    with pytest.raises(MessageError, match="at most"):
        session.sum(GeneralizedMixedSite.sum_laplace, request)


def fitted_cox():
    sites = {}
    for place in range(3):
        rng = np.random.default_rng(place)
        X, time = rng.normal(size=(200, 1)), rng.exponential(5.0 * 2.0**place, size=200)
        sites[f"s{place}"] = mc.data.SurvivalData(X, time, rng.random(200) < 0.7, columns=["age"])
    return mc.survival.FedMixedCox(n_times=8).fit(federate(sites, policy=mc.Policy(min_patients=10)))


def test_a_hazard_at_one_time_does_not_show_who_is_at_risk_there():
    model = fitted_cox()
    request = model._fitted.request
    last = np.zeros_like(request.increments)
    last[-1] = 1.0
    answers = model.session.ask(MixedCoxSite.tell_effect, request, skip_refusals=True)
    assert not answers.refused
    with pytest.raises(ConfigurationError, match="must be identical"):
        model.session.ask(MixedCoxSite.tell_effect, dataclasses.replace(request, increments=last))
    with pytest.raises(ConfigurationError, match="increments of at least 0"):
        model.session.sum(MixedCoxSite.sum_effects, dataclasses.replace(request, increments=-request.increments))


def test_a_hazard_ratio_that_outweighs_all_others_is_refused():
    sites = tables(classes=False)
    sites = {
        site: mc.data.SurvivalData(data.X, 2.0**place * np.arange(1.0, N + 1), np.ones(N, dtype=bool))
        for place, (site, data) in enumerate(sites.items())
    }
    model = mc.survival.FedMixedCox(n_times=4).fit(federate(sites, policy=mc.Policy(min_patients=5)))
    session, request = model.session, model._fitted.request
    steep = dataclasses.replace(request, coefficients=np.array([20.0, 0.0]))
    answers = session.ask(MixedCoxSite.tell_effect, steep, skip_refusals=True)
    assert "s0" in answers.refused


def test_a_single_site_answers_only_where_its_policy_lets_it():
    policy = mc.Policy(min_patients=10, secure_sums_only=True)
    model = mc.regression.FedLinearMixedModel().fit(federate(tables(classes=False), policy=policy))
    frame = model.site_effects()
    assert frame["value"].isna().all()
    assert set(frame.attrs["refused"]) == {"s0", "s1", "s2"}
