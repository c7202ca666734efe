from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre_papers.baselines.surf.estimator import FedSurF
from multicentre_papers.baselines.surf.site import ForestSite, Order
from support.survival_sites import EXACT, agreed_on, draw_patients, shared_out

SMALL = {"n_estimators": 12, "n_local_estimators": 10}
PATIENTS = draw_patients(400)
SITES = shared_out(PATIENTS, 4)
NEW = draw_patients(600, seed=9)


def federation(sites=SITES, **options):
    return mc.Federation.in_process(sites, **options)


@pytest.mark.parametrize("sampling", ["uniform", "ibs", "concordance"])
def test_a_forest_is_the_mean_of_trees_that_the_sites_gave(sampling):
    model = FedSurF(**SMALL, sampling=sampling).fit(federation())
    assert sum(model.trees_by_site_.values()) == 12
    assert max(model.trees_by_site_.values()) <= 10
    np.testing.assert_allclose(model.model_.shares, 1 / 12)
    curves = model.predict_survival_function(NEW, return_array=True)
    np.testing.assert_allclose(curves, model.model_.curves[model.model_.leaves(NEW.X)].mean(axis=1), atol=1e-12)
    assert model.score(NEW) > 0.58


def test_the_same_seed_gives_the_same_forest_and_another_seed_another():
    first, again = (FedSurF(**SMALL).fit(federation()) for _ in range(2))
    other = FedSurF(**SMALL, random_state=1).fit(federation())
    np.testing.assert_array_equal(first.predict(NEW), again.predict(NEW))
    assert (first.predict(NEW) != other.predict(NEW)).any()


def test_sites_draw_with_their_own_data_so_that_no_seed_tells_who_was_drawn():
    named = {
        site: SurvivalData(data.X, data.time, data.event, range(len(data)), columns=data.columns, unit="months")
        for site, data in SITES.items()
    }
    first, second = FedSurF(**SMALL).fit(federation()), FedSurF(**SMALL).fit(federation(named))
    assert first.trees_by_site_ == second.trees_by_site_
    assert (first.predict(NEW) != second.predict(NEW)).any()


@pytest.mark.slow
def test_sampling_by_score_prefers_better_trees():
    # Stumps on the third column, which says least, are a third of all and a quarter of those drawn by score. Over 1000
    # trees the difference of the two shares has a standard deviation of 0.02: the draws may differ between processors.
    stumps = {"n_local_estimators": 1000, "min_samples_leaf": 15, "max_features": 1, "max_depth": 1}
    fits = [FedSurF(1000, **stumps, sampling=sampling).fit(federation()) for sampling in ("uniform", "concordance")]
    share = [np.mean(fit.model_.column[fit.model_.column >= 0] == 2) for fit in fits]
    assert share[1] < share[0]


def test_replacement_draws_trees_again():
    model = FedSurF(40, n_local_estimators=3, replacement=True).fit(federation())
    assert max(model.trees_by_site_.values()) <= 3
    assert model.model_.shares.max() > 2 / 40
    np.testing.assert_allclose(40 * model.model_.shares, np.round(40 * model.model_.shares), atol=1e-9)
    assert model.model_.shares.sum() == pytest.approx(1.0)


def test_where_trees_are_short_all_are_given():
    model = FedSurF(100, n_local_estimators=4).fit(federation())
    assert model.trees_by_site_ == dict.fromkeys(SITES, 4)


def test_the_papers_stumps():
    model = FedSurF(50, n_local_estimators=50, max_depth=1).fit(federation())
    assert len(model.model_.column) == 3 * 50


@pytest.mark.parametrize("least", [0, 25])
def test_no_leaf_of_few_patients_leaves_a_site(least):
    agreed, _ = agreed_on(SITES)
    part = ForestSite("lyon", PATIENTS)
    part.least_behind = least
    part.agree(agreed)
    smallest = max(15, least)
    order = Order(30, 64, smallest, 3, 3, "uniform", False, 0, 30)
    trees = part.grow_trees(order)
    assert trees.patients >= smallest
    assert len(trees.curves) <= 30 * 400 / smallest
    with pytest.raises(ConfigurationError, match=f"min_samples_leaf={smallest}"):
        part.grow_trees(replace(order, min_samples_leaf=smallest - 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"n_estimators": 0},
        {"n_estimators": 10**9},
        {"max_depth": 10**9},
        {"wanted": 10**9},
        {"sampling": "all"},
        {"max_features": 0},
    ],
)
def test_a_site_checks_what_it_is_asked(changes):
    agreed, _ = agreed_on(SITES)
    part = ForestSite("lyon", PATIENTS)
    part.agree(agreed)
    with pytest.raises(ConfigurationError):
        part.grow_trees(replace(Order(5, 64, 15, 3, 3, "uniform", False, 0, 5), **changes))


def test_a_site_refuses_smaller_leaves_than_its_policy():
    with pytest.raises(ConfigurationError, match="min_samples_leaf=15"):
        FedSurF(**SMALL, min_samples_leaf=5).fit(federation(policy=EXACT))
    with pytest.raises(ConfigurationError, match="min_samples_leaf=20"):
        FedSurF(**SMALL).fit(federation(policy=mc.Policy(min_patients=20)))


def test_trees_are_a_sites_own_answer_and_need_a_policy_that_allows_them():
    model = FedSurF(**SMALL).fit(federation())
    assert sum(model.trees_by_site_.values()) == 12
    with pytest.raises(RefusedByPolicy, match="must be masked sums"):
        FedSurF(**SMALL).fit(federation(policy=mc.Policy(secure_sums_only=True)))


def test_no_exact_time_and_no_value_of_a_patient_is_in_the_model():
    model = FedSurF(40, n_local_estimators=10).fit(federation()).model_
    assert not np.isin(model.times, PATIENTS.time).any()
    inner = model.column >= 0
    ages = PATIENTS.X[:, 0]
    assert not np.isin(model.threshold[inner & (model.column == 0)], ages).any()


def test_sites_without_events_or_with_few_patients_give_no_tree():
    censored = SITES["site-0"]
    sites = {
        **SITES,
        "site-0": SurvivalData(censored.X, censored.time, 0 * censored.event, columns=censored.columns, unit="months"),
        "site-1": SITES["site-1"].take(np.arange(12)),
    }
    model = FedSurF(12, n_local_estimators=6).fit(federation(sites))
    assert model.trees_by_site_ == {"site-2": 6, "site-3": 6}


def test_no_tree_at_all_is_an_error_that_says_why():
    few = {site: data.take(np.arange(13)) for site, data in SITES.items()}
    with pytest.raises(DataError, match="enough patients and events for a tree with a split"):
        FedSurF(**SMALL).fit(federation(few))


def test_an_unmasked_fit_is_refused_with_a_hint():
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
        FedSurF(4).fit(federation(secure_sum=False))


def test_sites_too_small_for_a_split_have_no_part_and_are_named():
    half = {**shared_out(draw_patients(100), 2), "large": draw_patients(300, seed=3)}
    with pytest.warns(UserWarning, match="2 of 3 sites have no part in the forest.*site-0, site-1"):
        model = FedSurF(12, n_local_estimators=4, min_samples_leaf=26).fit(federation(half))
    assert model.trees_by_site_ == {"large": 4}
    assert model.model_.has_split.all()


@pytest.mark.filterwarnings("ignore:.*sites have no part in the forest")
@pytest.mark.parametrize("sampling", ["uniform", "ibs", "concordance"])
def test_a_forest_of_small_sites_is_refused_or_tells_patients_apart(sampling):
    forest = FedSurF(12, sampling=sampling)
    with pytest.raises(DataError, match="tree with a split"):
        forest.fit(federation(shared_out(draw_patients(100), 4)))
    model = forest.fit(federation(shared_out(draw_patients(260), 4)))
    assert model.model_.has_split.all()
    assert np.ptp(model.predict(NEW)) > 0


def mean_error(federated):
    """Return the mean distance of a forest's mean curve from the Kaplan-Meier curve of all patients."""
    model = FedSurF(100, n_local_estimators=25).fit(federated)
    curve = model.predict_survival_function(PATIENTS, return_array=True).mean(axis=0)
    events = PATIENTS.event == 1
    at_risk = (PATIENTS.time[None, :] >= np.unique(PATIENTS.time[events])[:, None]).sum(axis=1)
    died = np.array([(PATIENTS.time[events] == time).sum() for time in np.unique(PATIENTS.time[events])])
    steps = np.concatenate([[1.0], np.cumprod(1 - died / at_risk)])
    expected = steps[np.searchsorted(np.unique(PATIENTS.time[events]), model.times_, side="right")]
    return np.abs(curve - expected).mean()


def test_curves_on_grouped_times_are_not_late():
    """The events of a group are at its last time; a step there would keep survival too high before it."""
    grouped, exact = mean_error(federation()), mean_error(federation(policy=EXACT))
    # With steps at the last times of the groups it is 0.076 above.
    assert grouped < exact + 0.025


def test_one_site_is_a_random_survival_forest():
    model = FedSurF(20, n_local_estimators=20).fit(federation({"alone": PATIENTS}, policy=EXACT))
    assert model.trees_by_site_ == {"alone": 20}
    assert model.score(NEW) > 0.6


def test_gaps_and_constant_columns_are_no_trouble():
    X = PATIENTS.X.copy()
    X[::7, 0] = np.nan
    X = np.column_stack([X, np.full(len(X), 3.0)])
    data = SurvivalData(X, PATIENTS.time, PATIENTS.event)
    model = FedSurF(**SMALL).fit(federation(shared_out(data, 3)))
    assert np.isfinite(model.predict(X)).all()
    assert not (model.model_.column == 3).any()


def test_a_saved_forest_is_the_same(tmp_path):
    model = FedSurF(**SMALL).fit(federation())
    model.save(tmp_path)
    back = FedSurF.load(tmp_path)
    np.testing.assert_array_equal(back.predict(NEW), model.predict(NEW))
    assert back.trees_by_site_ == model.trees_by_site_


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_estimators": 0},
        {"n_local_estimators": 10**6},
        {"sampling": "best"},
        {"min_samples_leaf": 0},
        {"max_features": "half"},
    ],
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        FedSurF(**{**SMALL, **wrong}).fit(federation())
