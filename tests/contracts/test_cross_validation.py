"""Every method that fits a model can be cross-validated; one that does not says so before a site is asked."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.validation import FederatedKFold, cross_validate
from support.method_cases import CASES, PREDICTS_NOTHING, each_of
from support.toy_method import federate

HANDED_MODELS = {"fed-stack"}


def run(name, estimator, **options):
    case = CASES[name]
    policy = case.policy or mc.Policy(min_patients=0)
    with federate(case.sites(), policy=policy, **options) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", ".* that sites fitted alone are constant", UserWarning)
        warnings.filterwarnings("ignore", "DPFactAsPublished minimises", UserWarning)
        return cross_validate(estimator, federation, cv=FederatedKFold(2), allow_leakage=True, error_score="raise")


@each_of(name for name in CASES if name not in PREDICTS_NOTHING)
def test_a_method_is_cross_validated(name):
    estimator = CASES[name].make()
    before = repr(estimator.get_params(deep=False))
    result = run(name, estimator)
    sites = CASES[name].sites()
    assert result.scores
    for score in result.scores:
        assert result[f"test_{score}"].shape == (2,)
        assert np.isfinite(result[f"test_{score}"]).all(), score
        assert result[f"site_test_{score}"].shape == (2, len(sites))
    assert result["n_test"].sum() == sum(len(data) for data in sites.values())
    assert (result["fit_time"] > 0).all()
    assert result["communication"]["bytes_from_sites"] > 0
    assert repr(estimator.get_params(deep=False)) == before
    assert not [fitted for fitted in vars(estimator) if fitted.endswith("_") and not fitted.startswith("_")]


@pytest.mark.parametrize("name", ["fed-mv-ppca", "dpfact", "fed-cox, grid", "ada-boost-f"])
def test_masks_change_no_score_by_more_than_rounding(name):
    unmasked, masked = (run(name, CASES[name].make(), secure_sum=secure) for secure in (False, True))
    for score in unmasked.scores:
        assert unmasked[f"test_{score}"] == pytest.approx(masked[f"test_{score}"], abs=1e-5), score


@pytest.mark.parametrize("name", sorted(PREDICTS_NOTHING & set(CASES)))
def test_a_method_without_predictions_says_so_before_a_site_is_asked(name):
    with federate(CASES[name].sites()) as federation:
        with pytest.raises(ConfigurationError, match=r"must support scoring|must be a federated estimator"):
            cross_validate(CASES[name].make(), federation, cv=FederatedKFold(2), allow_leakage=True)
        assert not federation.traffic.calls


@pytest.mark.parametrize("name", sorted(HANDED_MODELS & set(CASES)))
def test_an_estimator_that_was_handed_fitted_models_is_refused_unless_leakage_is_allowed(name):
    with federate(CASES[name].sites()) as federation:
        with pytest.raises(ConfigurationError, match="must not contain fitted models"):
            cross_validate(CASES[name].make(), federation)
        assert not federation.traffic.calls
