"""Union of the sites' forests: shares, sites without trees, warnings and saved models."""

import numpy as np
import pytest
from sklearn.base import clone

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused
from multicentre.estimator.base import FederatedEstimator
from multicentre_papers.baselines import LocalForests
from support.survival_sites import EXACT, draw_patients, shared_out

PATIENTS = draw_patients(400)
SITES = shared_out(PATIENTS, 4)
NEW = draw_patients(600, seed=9)


def federation(sites=SITES, **options):
    return mc.Federation.in_process(sites, **options)


def test_the_union_weights_sites_by_their_patients():
    sites = {"large": PATIENTS.take(np.arange(300)), "small": PATIENTS.take(np.arange(300, 400))}
    model = LocalForests(5).fit(federation(sites))
    np.testing.assert_allclose(model.model_.shares, [0.15] * 5 + [0.05] * 5)
    alone = [LocalForests(5).fit(federation({site: data}, policy=EXACT)) for site, data in sites.items()]
    assert [one.trees_by_site_ for one in alone] == [{"large": 5}, {"small": 5}]


def test_the_union_is_the_weighted_mean_of_the_sites_forests():
    sites = {"large": PATIENTS.take(np.arange(300)), "small": PATIENTS.take(np.arange(300, 400))}
    model = LocalForests(5, random_state=2).fit(federation(sites))
    curves = model.model_.curves[model.model_.leaves(NEW.X)]
    expected = 0.75 * curves[:, :5].mean(axis=1) + 0.25 * curves[:, 5:].mean(axis=1)
    np.testing.assert_allclose(model.predict_survival_function(NEW, return_array=True), expected, atol=1e-12)


def test_every_site_grows_the_number_of_trees_that_was_set_last():
    model = clone(LocalForests(5)).set_params(n_estimators=3)
    assert model.fit(federation()).trees_by_site_ == dict.fromkeys(SITES, 3)


def test_no_exact_time_and_no_value_of_a_patient_is_in_the_model():
    model = LocalForests(10).fit(federation()).model_
    assert not np.isin(model.times, PATIENTS.time).any()
    assert not np.isin(model.threshold[model.column == 0], PATIENTS.X[:, 0]).any()


def test_sites_without_events_or_with_few_patients_give_no_tree():
    censored = SITES["site-0"]
    sites = {
        **SITES,
        "site-0": SurvivalData(censored.X, censored.time, 0 * censored.event, columns=censored.columns, unit="months"),
        "site-1": SITES["site-1"].take(np.arange(12)),
    }
    assert LocalForests(6).fit(federation(sites)).trees_by_site_ == {"site-2": 6, "site-3": 6}


def test_an_unmasked_fit_is_refused_with_a_hint():
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
        LocalForests(4).fit(federation(secure_sum=False))


def test_a_fit_without_a_tree_with_a_split_is_refused():
    small = shared_out(draw_patients(100), 4)
    with pytest.raises(DataError, match="at least one site must have enough patients and events"):
        LocalForests(3).fit(federation(small))


def test_a_saved_forest_is_the_same(tmp_path):
    model = LocalForests(4, max_depth=3).fit(federation())
    model.save(tmp_path)
    loaded = FederatedEstimator.load(tmp_path)
    assert type(loaded) is LocalForests
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))


@pytest.mark.parametrize(
    "parameters", [{"n_estimators": 0}, {"min_samples_leaf": 0}, {"max_features": "half"}, {"random_state": -1}]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        LocalForests(**parameters).fit(federation())
