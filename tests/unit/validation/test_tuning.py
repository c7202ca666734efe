import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, LeftOutWarning
from multicentre.validation.cross_validation import cross_val_score, cross_validate
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.site import FoldPart
from multicentre.validation.scoring.scores import find_evaluator
from multicentre.validation.tuning import FederatedGridSearchCV, _with_params

OPEN = mc.Policy(min_patients=0)
HASHED = HashGroupKFold(3, person_key="person")


def federate(n_records=400, n_duplicates=200, seed=0):
    simulated = mc.datasets.simulate_duplicated(n_records, n_duplicates, 3, random_state=seed)
    return mc.Federation.in_process(simulated.sites, policy=OPEN)


def boosting(n_estimators=2):
    return mc.boosting.FedXGBClassifier(n_estimators, max_depth=3, learning_rate=0.6, max_bins=16)


@pytest.fixture(scope="module")
def federation():
    return federate()


@pytest.fixture(scope="module")
def search(federation):
    grid = {"n_estimators": [1, 6], "max_depth": [1, 2]}
    return FederatedGridSearchCV(boosting(), grid, cv=HASHED, scoring="accuracy").fit(federation)


@pytest.mark.slow
def test_the_table_is_scikit_learn_s(search):
    results = search.cv_results_
    assert results["params"] == list(ParameterGrid(search.param_grid))
    assert results["param_max_depth"] == [1, 1, 2, 2]
    folds = np.column_stack([results[f"split{fold}_test_score"] for fold in range(3)])
    np.testing.assert_allclose(results["mean_test_score"], folds.mean(axis=1))
    np.testing.assert_allclose(results["std_test_score"], folds.std(axis=1))
    best = int(results["mean_test_score"].argmax())
    assert results["rank_test_score"][best] == 1
    assert search.best_index_ == best
    assert search.best_params_ == results["params"][best]
    assert search.best_score_ == results["mean_test_score"][best]
    assert (results["mean_fit_time"] > 0).all()
    assert search.to_frame().rank_test_score.tolist() == sorted(results["rank_test_score"])


def test_the_scores_are_those_of_cross_validation_on_the_same_folds(search, federation):
    for number, params in enumerate(search.cv_results_["params"][:2]):
        own = cross_val_score(boosting().set_params(**params), federation, cv=HASHED, scoring="accuracy")
        assert own.mean() == pytest.approx(search.cv_results_["mean_test_score"][number], abs=1e-12)


def test_the_best_is_fitted_on_all_records(search, federation):
    again = boosting().set_params(**search.best_params_).fit(federation)
    X = np.random.default_rng(0).normal(size=(20, 10))
    np.testing.assert_array_equal(search.best_estimator_.predict_proba(X), again.predict_proba(X))
    assert search.history_ == search.best_estimator_.history_
    assert search.session is search.best_estimator_.session
    assert search.planned_steps() == boosting().planned_steps()


def test_the_best_is_kept_and_read_by_its_own_class(search, tmp_path):
    search.save(tmp_path)
    kept = mc.boosting.FedXGBClassifier.load(tmp_path)
    assert kept.n_estimators == search.best_params_["n_estimators"]
    with pytest.raises(mc.errors.IntegrityError):
        FederatedGridSearchCV.load(tmp_path)


@pytest.mark.slow
def test_random_folds_pick_what_memorises_and_flatter_it():
    federation = federate(300, 200, seed=2)
    eager = boosting().set_params(learning_rate=0.8, max_bins=12)

    def best(cv):
        found = FederatedGridSearchCV(
            eager, {"n_estimators": [6, 30]}, cv=cv, scoring="accuracy", refit=False, allow_leakage=True
        ).fit(federation)
        return found.best_params_["n_estimators"], found.best_score_

    drawn, hashed = best(FederatedKFold(3)), best(HASHED)
    assert drawn[0] == 30
    assert drawn[1] > hashed[1] + 0.05


def test_unsafe_folds_are_refused_before_anything_is_fitted(federation):
    before = federation.traffic.calls.get("sum_gradients", 0)
    with pytest.raises(ConfigurationError, match="allow_leakage"):
        FederatedGridSearchCV(boosting(), {"n_estimators": [1]}, cv=FederatedKFold(3)).fit(federation)
    assert federation.traffic.calls.get("sum_gradients", 0) == before


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"param_grid": {"depth": [1]}}, "depth"),
        ({"scoring": "beauty"}, "beauty"),
        ({"cv": 1}, "cv must be an integer from 2 to 100 or a splitter; got 1"),
        ({"cv": "five"}, "cv must be an integer from 2 to 100 or a splitter; got 'five'"),
        ({"refit": "yes"}, "refit must be True or False; got 'yes'"),
        ({"allow_leakage": None}, "allow_leakage must be True or False; got None"),
    ],
)
def test_unknown_parameters_and_scores(federation, terms, said):
    made = FederatedGridSearchCV(boosting(), {"n_estimators": [1]}, cv=HASHED).set_params(**terms)
    with pytest.raises(ConfigurationError, match=said):
        made.fit(federation)


def test_without_refit_there_is_no_best_estimator(federation):
    found = FederatedGridSearchCV(boosting(), {"n_estimators": [1]}, cv=HASHED, refit=False).fit(federation)
    assert found.best_params_ == {"n_estimators": 1}
    with pytest.raises(NotFittedError):
        found.save("nowhere")


def test_sites_that_are_lost_during_the_search_are_named():
    sites = mc.datasets.simulate_duplicated(120, 60, 3, random_state=0).sites
    lost = list(sites)[-1]
    faults = Faults(lose={lost: "count_right"})
    lossy = mc.Federation.in_process(sites, policy=OPEN, quorum=2, faults=faults)
    search = FederatedGridSearchCV(boosting(), {"n_estimators": [1, 2]}, cv=HASHED, scoring="accuracy", refit=False)
    with pytest.warns(LeftOutWarning, match="3 of 3 folds are without sites"):
        search.fit(lossy)
    assert [list(left_out) for left_out in search.cv_results_["left_out"]] == [[lost], [lost]]
    assert all(left_out[lost] for left_out in search.cv_results_["left_out"])
    assert search.absences_.startswith(f"6 of 6 folds are without sites ({lost}: ")
    assert search.absences_ in str(search)
    assert search.answer().endswith(search.absences_)
    table = search.to_frame()
    assert table.attrs["absences"] == search.absences_
    assert "left_out" not in table


def test_without_losses_a_search_names_no_site(search):
    assert search.cv_results_["left_out"] == [{}] * 4
    assert search.absences_ == search.to_frame().attrs["absences"] == ""
    assert search.answer().endswith(").")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_combinations_that_cannot_be_fitted_come_last(federation, monkeypatch):
    fit = mc.boosting.FedXGBClassifier.fit

    def refuse(self, *given, **named):
        if self.max_depth in broken:
            raise DataError("no such data", where="here")
        return fit(self, *given, **named)

    monkeypatch.setattr(mc.boosting.FedXGBClassifier, "fit", refuse)
    broken = [1]
    found = FederatedGridSearchCV(boosting(), {"max_depth": [1, 2]}, cv=HASHED).fit(federation)
    assert found.best_params_ == {"max_depth": 2}
    assert found.cv_results_["rank_test_score"].tolist() == [2, 1]
    broken += [2]
    with pytest.raises(DataError, match="on all folds"):
        FederatedGridSearchCV(boosting(), {"max_depth": [1, 2]}, cv=HASHED).fit(federation)


def test_parts_of_an_estimator_are_tuned_and_left_as_they_were():
    inner = FederatedGridSearchCV(boosting(), {"max_depth": [1]}, cv=HASHED, scoring="accuracy")
    outer = FederatedGridSearchCV(inner, {"estimator__n_estimators": [1, 3]}, cv=HASHED)
    made = [_with_params(inner, params) for params in ParameterGrid(outer.param_grid)]
    assert [one.estimator.n_estimators for one in made] == [1, 3]
    assert inner.estimator.n_estimators == 2


def test_a_search_can_be_cloned_and_its_estimator_s_parameters_set():
    made = clone(FederatedGridSearchCV(boosting(), {"n_estimators": [1, 2]}, cv=4))
    assert made.set_params(estimator__max_depth=5).estimator.max_depth == 5
    assert "FederatedGridSearchCV" in repr(made)


def test_a_search_is_scored_as_its_best_estimator(search, federation):
    assert find_evaluator(search).names == find_evaluator(search.best_estimator_).names
    own = mc.validation.score(search, federation, "accuracy").values
    assert own == mc.validation.score(search.best_estimator_, federation, "accuracy").values


@pytest.mark.slow
def test_nested_the_inner_folds_know_nobody_of_the_outer_test_fold(monkeypatch):
    federation = federate(300, 100)
    settled = []
    settle = FoldPart.settle

    def watch(self, *given, **named):
        settled.append(self)
        return settle(self, *given, **named)

    monkeypatch.setattr(FoldPart, "settle", watch)
    nested = FederatedGridSearchCV(boosting(), {"n_estimators": [1, 3]}, cv=HASHED, scoring="accuracy")
    found = cross_validate(nested, federation, cv=HASHED, return_estimator=True, error_score="raise", by_site=False)
    assert np.isfinite(found["test_accuracy"]).all()
    assert len(found["estimator"]) == 3
    assert {len(settled), len({part.site for part in settled})} == {12, 3}
    # Each site divides in the order of the plans; plans side by side are divided by one site after the other.
    by_site = [[part for part in settled if part.site == site] for site in dict.fromkeys(one.site for one in settled)]
    plans = [_merged(parts) for parts in zip(*by_site, strict=True)]
    outer, inner = plans[0], plans[1:]
    assert len(inner) == 3
    for number, folds in enumerate(inner):
        assert {outer[person] for person in folds} == {0, 1, 2} - {number}
        # Inner folds are dealt anew, not left over from the outer ones.
        assert {(outer[person], fold) for person, fold in folds.items()} >= {
            (kept, fold) for kept in {0, 1, 2} - {number} for fold in range(3)
        }


def _merged(parts):
    """Return the fold of every person, who has one fold at all sites."""
    assert len({part.site for part in parts}) == 3
    merged = {}
    for part in parts:
        for person, fold in zip(part.data.identifier.column("person"), part.folds.tolist(), strict=True):
            assert merged.setdefault(person, fold) == fold
    return merged
