"""Cross-validation over sites: the same as on pooled records, and nothing of a held-out record in a fit."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import xgboost
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import cross_val_score as sklearn_cross_val_score

import multicentre as mc
from multicentre.boosting import FedXGBClassifier
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    LeftOutWarning,
    RefusedByPolicy,
)
from multicentre.studies.cross_validation import cross_validation_results, show_cross_validation
from multicentre.validation import FederatedKFold, HashGroupKFold, cross_val_score, cross_validate, score
from multicentre.validation.cross_validation import CVResult, unfitted
from multicentre_papers import baselines
from support.event_sites import simulate_events

SITES = ("lyon", "oslo", "graz")
EXACT = mc.Policy(min_patients=0)
CUTS = [list(np.arange(0.5, 9)) for _ in range(3)]


def table(n=600, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 10, size=(n, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] * (X[:, 2] > 4) + 3 * rng.normal(size=n) > 8).astype(int)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return mc.data.TableData(X, y, [f"person-{row // 2}" for row in range(n)])


def split(data):
    return {name: data.take(np.arange(place, len(data), len(SITES))) for place, name in enumerate(SITES)}


def federate(data=None, **options):
    options.setdefault("policy", EXACT)
    return mc.Federation.in_process(split(table() if data is None else data), **options)


def boosted(**options):
    return FedXGBClassifier(**{"n_estimators": 12, "max_depth": 3, "cuts": CUTS, "base_score": 0.5, **options})


def pooled_xgb():
    return xgboost.XGBClassifier(
        n_estimators=12, max_depth=3, tree_method="hist", base_score=0.5, n_jobs=1, learning_rate=0.3, reg_lambda=1.0
    )


def folds_of(federation, plan):
    """Return the folds that sites keep, in the order of the pooled records."""
    pooled = np.empty(sum(len(runtime.data) for runtime in federation.engine._runtimes.values()), dtype=int)
    for place, name in enumerate(SITES):
        parts = federation.engine._runtimes[name].sessions.parts
        (part,) = [part for (session, _), part in parts.items() if session == plan.session.name
                   and part.folds is not None]  # fmt: skip
        pooled[place :: len(SITES)] = part.folds
    return pooled


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_every_fold_is_that_of_pooled_records(missing, secure):
    data = table(missing=missing)
    federation = federate(data, secure_sum=secure)
    result = cross_validate(
        boosted(), federation, cv=3, scoring=["accuracy", "neg_log_loss"], return_estimator=True, by_site=False
    )
    folds = folds_of(federation, result["plans"][0])
    assert np.bincount(folds).tolist() == result["n_test"].tolist()
    for fold, model in enumerate(result["estimator"]):
        held = folds == fold
        central = pooled_xgb().fit(data.X[~held], data.y[~held])
        chances = central.predict_proba(data.X[held])
        assert np.abs(model.predict_proba(data.X[held]) - chances).max() < 1e-6
        assert result["test_accuracy"][fold] == accuracy_score(data.y[held], chances.argmax(axis=1))
        assert result["test_neg_log_loss"][fold] == pytest.approx(-log_loss(data.y[held], chances), abs=1e-6)


@pytest.mark.slow
def test_scikit_learn_finds_the_same_with_the_same_splitter_on_arrays():
    data = table()
    found = cross_val_score(boosted(), federate(data), cv=HashGroupKFold(3))
    groups = np.array([f"person-{row // 2}" for row in range(600)])
    expected = sklearn_cross_val_score(pooled_xgb(), data.X, data.y, groups=groups, cv=HashGroupKFold(3))
    assert found == pytest.approx(expected, abs=1e-12)


def test_adaboost_of_one_site_is_that_of_the_pooled_records_of_every_fold():
    data = table()
    federation = mc.Federation.in_process({"lyon": data}, policy=EXACT)
    result = cross_validate(baselines.AdaBoostF(5), federation, cv=2, return_estimator=True)
    one = cross_validate(baselines.AdaBoostF(5), federation, cv=2)
    assert result["test_accuracy"].tolist() == one["test_accuracy"].tolist()
    assert result["site_test_accuracy"][:, 0].tolist() == result["test_accuracy"].tolist()


def views(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(90, 6))
    return {
        name: mc.data.MultiViewData({"a": X[place::3, :3], "b": X[place::3, 3:]}) for place, name in enumerate(SITES)
    }


def changed_views(sites):
    data = sites["lyon"]
    arrays = {view: np.array(data.array(view)) for view in data.views}
    return {**sites, "lyon": mc.data.MultiViewData({view: _with_first(x, x[0] + 4.0) for view, x in arrays.items()})}


def changed_table(sites):
    data = sites["lyon"]
    X = _with_first(data.X, np.nan_to_num(data.X[0]) * 0 + 5.0)
    return {**sites, "lyon": mc.data.TableData(X, _with_first(data.y, 1 - data.y[0]), classes=data.classes)}


def changed_survival(sites):
    data = sites["lyon"]
    X = _with_first(data.X, data.X[0] + 3.0)
    changed = mc.data.SurvivalData(X, _with_first(data.time, data.time[0] / 2 + 1), data.event, unit=data.unit)
    return {**sites, "lyon": changed}


def changed_events(sites):
    name, data = next(iter(sites.items()))
    counts = np.where(data.coordinates[:, 0] == data.coordinates[0, 0], data.counts + 3.0, data.counts)
    assert data.coordinates[0, 0] == 0
    changed = mc.data.EventTensor(data.coordinates, counts, data.codes, n_patients=len(data), outcomes=data.outcomes)
    return {**sites, name: changed}


def _with_first(values, first):
    return np.concatenate([np.asarray(first)[None], values[1:]])


def survival_sites():
    return {name: mc.datasets.simulate_survival(90, 3, seed) for seed, name in enumerate(SITES)}


LEARNERS = {
    "means and scales of views": (lambda: mc.multiview.FedMvPPCA(1, tol=1e-2), views, changed_views),
    "means, scales and times": (lambda: mc.survival.FedCox("grid", n_times=8), survival_sites, changed_survival),
    "bins of columns": (lambda: FedXGBClassifier(3, max_depth=2, max_bins=8), lambda: split(table()), changed_table),
    "scales and edges": (lambda: baselines.AdaBoostF(2), lambda: split(table()), changed_table),
    "codes and counts": (
        lambda: mc.phenotyping.DPFact(2, tol=0.1, init="random"),
        lambda: simulate_events().sites(3),
        changed_events,
    ),
}


@pytest.mark.parametrize("what", LEARNERS)
def test_nothing_of_a_held_out_record_is_in_a_fit(what):
    make, sites, change = LEARNERS[what]
    before = sites()
    results, folds = [], []
    splitter = HashGroupKFold(2, stratify=False)
    for each in (before, change(before)):
        named = {
            site: data.with_identifier([f"{site}-{row}" for row in range(len(data))]) for site, data in each.items()
        }
        federation = mc.Federation.in_process(named, policy=EXACT)
        scoring = ["neg_log_loss"] if what in ("bins of columns", "scales and edges") else None
        results.append(cross_validate(make(), federation, cv=splitter, scoring=scoring, return_estimator=True))
        parts = federation.engine._runtimes[next(iter(before))].sessions.parts.values()
        folds.append(next(part.folds for part in parts if part.folds is not None))
    assert np.array_equal(*folds)
    fold = int(folds[0][0])
    for k in (0, 1):
        one, other = (result["estimator"][k]._state()[0] for result in results)
        same = [np.array_equal(one[name], other.get(name), equal_nan=True) for name in one]
        assert all(same) == (k == fold)
    scored = "neg_log_loss" if what in ("bins of columns", "scales and edges") else results[0].scores[0]
    assert results[0][f"test_{scored}"][fold] != results[1][f"test_{scored}"][fold]


@pytest.mark.slow
def test_strategies_that_leak_are_refused_before_a_site_is_asked():
    federation = federate()
    with pytest.raises(ConfigurationError, match="one fold; got FederatedKFold"):
        cross_validate(boosted(), federation, cv=FederatedKFold(3))
    with pytest.raises(ConfigurationError, match="allow_leakage"):
        cross_validate(boosted(n_iter_no_change=2), federation, early_stopping=FederatedKFold(3))
    assert not federation.traffic.calls
    plan = FederatedKFold(3).plan(federation)
    with pytest.raises(ConfigurationError, match="FederatedKFold"):
        cross_validate(boosted(), federation, cv=plan)
    assert len(cross_val_score(boosted(), federation, cv=plan, allow_leakage=True)) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"cv": "five"},
        {"cv": True},
        {"cv": 1},
        {"error_score": "nan"},
        {"scoring": "concordance"},
        {"scoring": {"one": "accuracy", "other": "r2"}},
        {"scoring": []},
        {"early_stopping": HashGroupKFold(3), "estimator": baselines.AdaBoostF()},
        {"estimator": pooled_xgb()},
        {"federation": split(table())},
    ],
    ids=str,
)
def test_unfit_arguments_are_named_before_a_site_is_asked(options):
    given = dict(options)
    federation = given.pop("federation", None) or federate()
    with pytest.raises(ConfigurationError):
        cross_validate(given.pop("estimator", boosted()), federation, **given)
    if isinstance(federation, mc.Federation):
        assert not federation.traffic.calls


@pytest.mark.slow
def test_keys_are_those_of_scikit_learn_and_more():
    result = cross_validate(
        boosted(), federate(), cv=3, scoring=["roc_auc"], return_train_score=True, return_estimator=True
    )
    assert {"fit_time", "score_time", "test_roc_auc", "train_roc_auc", "estimator"} <= set(result)
    assert result["site_test_roc_auc"].shape == (3, 3)
    assert result["sites"] == tuple(sorted(SITES))
    assert result["n_test"].sum() == 600
    assert (result["train_roc_auc"] > result["test_roc_auc"]).all()
    assert (result["bound_roc_auc"] < 0.03).all()
    assert result["privacy"] == [None, None, None]
    assert result.scores == ("roc_auc",)
    frame = result.to_frame()
    assert len(frame) == 3
    assert {"fit_time", "test_roc_auc", "n_test"} <= set(frame.columns)
    assert "3 folds of HashGroupKFold; roc_auc 0." in repr(result)


@pytest.mark.slow
def test_functions_of_a_model_and_its_held_out_records_may_score():
    seen = []

    def trees(model, held):
        seen.append(held)
        return float(len(model.ensemble_.roots))

    federation = federate()
    plan = HashGroupKFold(2).plan(federation)
    alone = cross_validate(boosted(), federation, cv=plan, scoring=trees)
    assert alone["test_score"].tolist() == [12.0, 12.0]
    assert all(isinstance(each, mc.Federation) for each in seen)
    both = cross_validate(boosted(), federation, cv=plan, scoring={"size": trees, "right": "accuracy"})
    assert both.scores == ("right", "size")
    assert both["test_right"] == pytest.approx(cross_val_score(boosted(), federation, cv=plan, scoring="accuracy"))
    assert np.isnan(both["site_test_size"]).all()
    survival = mc.Federation.in_process(survival_sites())
    options = {"cv": FederatedKFold(2), "allow_leakage": True, "scoring": lambda model, held: 1.0}
    assert cross_val_score(mc.survival.KaplanMeier(), survival, **options).tolist() == [1, 1]


@pytest.mark.slow
def test_inner_folds_divide_the_training_records_alone():
    federation = federate()
    outer = HashGroupKFold(3).plan(federation)
    inner = HashGroupKFold(2).plan(outer.train(0))
    assert inner.counts.sum() == outer.counts[1:].sum()
    result = cross_validate(boosted(), outer.train(0), cv=inner)
    assert result["n_test"].tolist() == inner.counts.tolist()


class Refusing(baselines.AdaBoostF):
    """Refuses the data of its first fold."""

    fits = 0

    def fit(self, federation, y=None):
        type(self).fits += 1
        if type(self).fits == 1:
            raise DataError("there is too little", where="lyon")
        return super().fit(federation, y)


@pytest.mark.slow
def test_a_fold_whose_data_are_refused_has_the_error_score():
    Refusing.fits = 0
    with pytest.warns(FitFailedWarning, match="fold 0 has no score"):
        result = cross_validate(Refusing(2), federate(), cv=3, return_estimator=True, error_score=-1)
    assert result["test_accuracy"][0] == -1
    assert np.isfinite(result["test_accuracy"][1:]).all()
    assert result["estimator"][0] is None
    assert np.isnan(result["fit_time"][0])
    Refusing.fits = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        summary = cross_validate(Refusing(2), federate(), cv=3).summary()
    assert np.isfinite(summary.loc["accuracy"]).all()
    Refusing.fits = 0
    with pytest.raises(DataError, match="too little"):
        cross_val_score(Refusing(2), federate(), cv=3)


def test_what_a_policy_refuses_is_raised():
    with pytest.raises(RefusedByPolicy, match="ada-boost-f"):
        cross_validate(baselines.AdaBoostF(2), federate(policy=mc.Policy(methods=("hashed-folds",))), cv=3)
    with pytest.raises(DisclosureRefused):
        cross_validate(baselines.AdaBoostF(2), federate(policy=mc.Policy(min_patients=60), secure_sum=False), cv=3)


LEAVE_OUT = {"refusing_sites": "leave_out"}


def test_a_small_site_is_in_no_fold_and_scores_are_those_without_it():
    sites, few = split(table()), "the site has fewer patients than its policy's minimum of 10"
    small = {"riga": sites["lyon"].take(np.arange(6))}
    ada = baselines.AdaBoostF(2)
    with pytest.warns(LeftOutWarning, match="without 1 of 4 sites"):
        found = cross_validate(ada, mc.Federation.in_process({**sites, **small}, **LEAVE_OUT), cv=3)
    expected = cross_validate(ada, mc.Federation.in_process(sites), cv=3)
    assert found["test_accuracy"].tolist() == expected["test_accuracy"].tolist()
    assert found["left_out"] == [{"riga": few}] * 3
    assert found["sites"].index("riga") == 3
    assert np.isnan(found["site_test_accuracy"][:, 3]).all()
    assert expected["left_out"] == [{}] * 3


def test_folds_that_a_site_has_are_fitted_without_it_where_it_refuses_the_method():
    allowed = mc.Policy(min_patients=0, methods=("hashed-folds", "score-votes"))
    policy = {name: allowed if name == "graz" else EXACT for name in SITES}
    with pytest.warns(LeftOutWarning, match="graz: .*does not permit the method ada-boost-f"):
        found = cross_validate(baselines.AdaBoostF(2), federate(policy=policy, **LEAVE_OUT), cv=2)
    assert [list(sites) for sites in found["left_out"]] == [["graz"]] * 2
    assert np.isfinite(found["site_test_accuracy"]).all()
    assert np.isfinite(found["test_accuracy"]).all()


def test_a_site_that_refuses_its_own_scores_costs_no_other_sites_and_says_why():
    sites = {name: mc.datasets.simulate_survival(120, 2, seed) for seed, name in enumerate(SITES)}
    policy = {name: mc.Policy(min_patients=0, secure_sums_only=name == "graz") for name in SITES}
    sites = {name: data.with_identifier([f"{name}-{row}" for row in range(120)]) for name, data in sites.items()}
    federation = mc.Federation.in_process(sites, policy=policy)
    found = cross_validate(mc.survival.FedCox(n_times=20), federation, cv=2, scoring="concordance")
    place = found["sites"].index("graz")
    assert np.isnan(found["site_test_concordance"][:, place]).all()
    assert np.isfinite(np.delete(found["site_test_concordance"], place, axis=1)).all()
    assert [list(each) for each in found["site_refusals"]] == [["graz"]] * 2
    assert "must be masked sums" in found["site_refusals"][0]["graz"]


@pytest.mark.parametrize("secure", [True, False])
def test_a_site_that_is_lost_while_a_fold_is_scored_is_named(secure):
    plan = HashGroupKFold(3).plan(federate(secure_sum=secure))
    lossy = federate(secure_sum=secure, quorum=2, faults=Faults(lose={"graz": "count_right"}))
    with pytest.warns(LeftOutWarning, match="3 of 3 folds are without sites"):
        result = cross_validate(boosted(), lossy, cv=3, scoring="accuracy", return_estimator=True)
    for fold, (left_out, model) in enumerate(zip(result["left_out"], result["estimator"], strict=True)):
        assert list(left_out) == ["graz"]
        assert left_out["graz"].startswith("not scored: ")
        assert model.left_out_ == {}
        others = replace(plan.test(fold), sites=("lyon", "oslo"))
        assert result["test_accuracy"][fold] == score(model, others, "accuracy").values["accuracy"]
    assert np.isnan(result["site_test_accuracy"][:, result["sites"].index("graz")]).all()
    assert "graz: not scored: " in repr(result)
    assert result.summary().attrs["absences"] == result.absences
    assert result.absences in show_cross_validation(result)[0].caption
    assert cross_validation_results(result)["left_out"] == result["left_out"]


def test_without_losses_no_site_is_named():
    result = cross_validate(boosted(n_estimators=1), federate(), cv=3, scoring="accuracy")
    assert result["left_out"] == [{}, {}, {}]
    assert result.absences == result.summary().attrs["absences"] == ""
    assert "without" not in repr(result)


def number_sites():
    rng = np.random.default_rng(4)
    return split(mc.data.TableData(rng.normal(size=(90, 2)), rng.normal(size=90), outcome="number"))


KINDS = {
    "survival": (lambda: mc.survival.FedCox("grid", n_times=8), survival_sites, "concordance", "count_pairs"),
    "numbers": (mc.regression.FedLinearRegression, number_sites, "r2", "find_magnitude"),
    "views": (lambda: mc.multiview.FedMvPPCA(1, tol=1e-1), views, "neg_mean_absolute_error", "sum_errors"),
    "events": (
        lambda: mc.phenotyping.DPFact(2, tol=0.5, init="random"),
        lambda: simulate_events().sites(3),
        "explained_counts",
        "sum_entries",
    ),
}


@pytest.mark.filterwarnings("ignore:.*no longer take part:multicentre.errors.LeftOutWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_every_kind_name_a_site_that_is_lost(kind):
    make, sites, scoring, step = KINDS[kind]
    sites = sites()
    lost = max(sites)
    model = make().fit(mc.Federation.in_process(sites, policy=EXACT))
    lossy = mc.Federation.in_process(sites, policy=EXACT, quorum=2, faults=Faults(lose={lost: step}))
    assert list(score(model, lossy, scoring).left_out) == [lost]


@pytest.mark.slow
def test_a_site_that_tells_nothing_of_its_own_has_no_own_score():
    policies = {name: mc.Policy(methods=None, secure_sums_only=False, min_patients=0) for name in SITES}
    result = cross_validate(boosted(), federate(policy=policies), cv=3)
    assert np.isfinite(result["site_test_accuracy"]).all()
    without = cross_validate(boosted(), federate(), cv=3, by_site=False)
    assert np.isnan(without["site_test_accuracy"]).all()
    assert without["communication"]["exchanges"] < result["communication"]["exchanges"]


@pytest.mark.slow
def test_early_stopping_watches_a_part_of_the_training_folds():
    result = cross_validate(
        boosted(n_estimators=60, learning_rate=0.8, n_iter_no_change=3),
        federate(),
        cv=3,
        early_stopping=HashGroupKFold(4, repeat=1),
        return_estimator=True,
    )
    assert all(len(model.history_) < 60 for model in result["estimator"])
    with pytest.raises(ConfigurationError, match="early stopping"):
        cross_validate(boosted(n_iter_no_change=3), federate(), cv=3)


@pytest.mark.slow
def test_a_run_broken_off_resumes_with_the_same_scores(tmp_path):
    def run(**options):
        federation = mc.Federation.in_process(split(table(240)), policy=EXACT, **options)
        return cross_validate(baselines.AdaBoostF(2), federation, cv=2, scoring="roc_auc"), federation

    expected, federation = run(faults=Faults())
    n_exchanges = federation.engine.exchanges
    for part in (0.2, 0.5, 0.95):
        folder = tmp_path / str(part)
        with pytest.raises(KeyboardInterrupt):
            run(folder=folder, faults=Faults(interrupt_at=int(part * n_exchanges)))
        resumed, _ = run(folder=folder)
        assert resumed["test_roc_auc"].tolist() == expected["test_roc_auc"].tolist()
        assert resumed["site_test_roc_auc"].tolist() == expected["site_test_roc_auc"].tolist()


def test_a_strict_wire_changes_no_score():
    one, other = (
        cross_validate(boosted(n_estimators=3), federate(strict=strict), cv=2, scoring=["roc_auc", "f1"])
        for strict in (False, True)
    )
    for name in ("test_roc_auc", "test_f1", "site_test_roc_auc"):
        assert np.array_equal(one[name], other[name])


def test_the_standard_error_is_that_of_folds_or_of_repeats():
    plan = HashGroupKFold(4).plan(federate())
    values = np.array([0.5, 0.6, 0.7, 0.9])
    one = CVResult({"plans": [plan], "fit_time": values, "test_a": values})
    assert one.summary().loc["a", "standard_error"] == pytest.approx(values.std(ddof=1) / 2)
    twice = CVResult({"plans": [plan, plan], "fit_time": np.tile(values, 2), "test_a": np.tile(values, 2)})
    spread = np.tile(values, 2).std(ddof=1)
    assert twice.summary().loc["a", "standard_error"] == pytest.approx(spread * np.sqrt(1 / 8 + 1 / 3))
    nothing = CVResult({"plans": [plan], "fit_time": values, "test_a": values * np.nan})
    assert np.isnan(nothing.summary().loc["a"]).all()


def test_a_result_says_in_words_how_many_records_are_in_no_fold():
    sites = split(table(240)) | {"small": table(18, seed=9).with_identifier([f"small {row}" for row in range(18)])}
    federation = mc.Federation.in_process(sites)
    with pytest.warns(UserWarning, match="18 of 258 records are in no fold"):
        result = cross_validate(boosted(n_estimators=2), federation, cv=3, scoring="accuracy", by_site=False)
    (plan,) = result["plans"]
    assert plan.n_left_out == plan.n_excluded == 18
    assert result.exclusions == plan.exclusions
    assert repr(result).endswith(plan.exclusions)
    assert "no fold" not in repr(cross_validate(boosted(n_estimators=2), federate(table(240)), cv=3, by_site=False))


def test_an_estimator_is_made_anew_and_models_among_its_parameters_stay_fitted():
    fitted = mc.survival.FedCox("grid", n_times=8).fit(mc.Federation.in_process(survival_sites()))
    stack = mc.survival.FedStack([fitted], weights="equal")
    made = unfitted(stack)
    assert made is not stack
    assert made.estimators[0] is fitted
    federation = mc.Federation.in_process(survival_sites())
    with pytest.raises(
        ConfigurationError, match="parameters must not contain fitted models, which may have been fitted"
    ):
        cross_validate(stack, federation, cv=2)
    kept = copy.copy(stack)
    result = cross_validate(kept, federation, cv=FederatedKFold(2), allow_leakage=True, scoring="concordance")
    assert (result["test_concordance"] > 0.6).all()


def private_phenotypes():
    codes = next(iter(simulate_events().sites(3).values())).codes
    return mc.phenotyping.DPFact(2, epsilon=8.0, vocabulary=codes, init="random", public_site_size=40)


@pytest.mark.filterwarnings("ignore")
def test_the_promise_of_each_fit_is_kept_and_a_budget_refuses_scores_without_noise():
    pytest.importorskip("opendp")
    options = {"cv": FederatedKFold(2), "allow_leakage": True, "by_site": False}
    federation = mc.Federation.in_process(simulate_events().sites(3))
    result = cross_validate(private_phenotypes(), federation, **options)
    assert [round(promise.epsilon, 3) for promise in result["privacy"]] == [8.0, 8.0]
    budget = mc.Federation.in_process(simulate_events().sites(3), policy=mc.Policy(epsilon=30.0))
    with pytest.raises(RefusedByPolicy, match="answers must have noise if the policy has a privacy budget"):
        cross_validate(private_phenotypes(), budget, **options)


def duplicated_survival(n_people=1500, n_duplicates=0, seed=0):
    """Return three sites with times to an event; some people have their record at a second site too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_people, 8))
    time = rng.exponential(np.exp(-0.5 * X[:, 0] - 0.4 * X[:, 1] * X[:, 2]))
    end, site = rng.exponential(1.5, n_people), rng.integers(3, size=n_people)
    twice = rng.choice(n_people, n_duplicates, replace=False)
    person = np.concatenate([np.arange(n_people), twice])
    where = np.concatenate([site, (site[twice] + rng.integers(1, 3, size=n_duplicates)) % 3])
    data = mc.data.SurvivalData(X[person], np.minimum(time, end)[person], (time <= end)[person].astype(int))
    data = data.with_identifier([f"person-{one}" for one in person])
    return {name: data.take(np.flatnonzero(where == place)) for place, name in enumerate(SITES)}


@pytest.mark.slow
def test_duplicates_inflate_the_concordance_of_random_folds_and_not_of_hashed_ones():
    model = mc.survival.FedHazardBoost(
        40, n_times=16, max_depth=4, learning_rate=0.5, min_child_hessian=1.0, early_stopping=False
    )

    def mean(cv, n_duplicates):
        federation = mc.Federation.in_process(duplicated_survival(n_duplicates=n_duplicates), policy=EXACT)
        return cross_val_score(model, federation, cv=cv, scoring="concordance", allow_leakage=True).mean()

    unbiased = mean(FederatedKFold(3), 0)
    assert mean(FederatedKFold(3), 400) > unbiased + 0.02
    assert abs(mean(HashGroupKFold(3), 400) - unbiased) < 0.03


def test_a_plan_of_other_records_is_refused():
    with federate() as federation, federate() as other:
        plan = HashGroupKFold(2).plan(federation)
        for strange in (other, plan.train(0)):
            with pytest.raises(ConfigurationError, match="of another federation"):
                cross_validate(boosted(), strange, cv=plan)


@pytest.mark.slow
def test_a_score_that_a_fold_does_not_allow_leaves_the_others():
    data = table(90)
    one_class = {"lyon": data.take(np.flatnonzero(data.y == 0)[:30]), "oslo": data, "graz": data}
    with mc.Federation.in_process(one_class, policy=EXACT) as federation:
        with pytest.warns(UserWarning, match="no records of class 1"):
            plan = mc.validation.LeaveOneSiteOut().plan(federation)
        with pytest.warns(FitFailedWarning, match="the score roc_auc is undefined"):
            found = cross_validate(boosted(), federation, cv=plan, scoring=["accuracy", "roc_auc"], allow_leakage=True)
    assert np.isfinite(found["test_accuracy"]).all()
    assert dict(zip(plan.facts["held_out"], np.isnan(found["test_roc_auc"]).tolist(), strict=True)) == {
        "graz": False,
        "lyon": True,
        "oslo": False,
    }


def test_when_no_fold_can_be_fitted_that_is_an_error(monkeypatch):
    def refuse(self, federation):
        raise DataError("these records cannot be fitted", where="X")

    monkeypatch.setattr(FedXGBClassifier, "_fit", refuse)
    with federate() as federation, pytest.warns(FitFailedWarning), pytest.raises(DataError, match="cannot be fitted"):
        cross_validate(boosted(), federation, cv=2)


@pytest.mark.parametrize(
    ("terms", "said"),
    [({"early_stopping": 4}, "early_stopping must be a splitter; got int"), ({"scoring": 5}, "a callable; got int")],
)
def test_what_is_no_argument_is_refused_in_words(terms, said):
    with federate() as federation, pytest.raises(ConfigurationError, match=said):
        cross_validate(boosted(n_iter_no_change=2), federation, cv=2, **terms)


@pytest.mark.parametrize(("share", "scores"), [(0.1, ("roc_auc", "accuracy")), (0.5, ("accuracy",))])
def test_rare_classes_are_scored_by_the_area_under_the_curve(share, scores):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = (X[:, 0] > np.quantile(X[:, 0], 1 - share)).astype(int)
    data = mc.data.TableData(X, y, [f"person-{row}" for row in range(900)])
    sites = {name: data.take(np.arange(place, 900, 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    estimator = mc.boosting.FedXGBClassifier(2, max_depth=2)
    result = cross_validate(estimator, mc.Federation.in_process(sites), cv=3, by_site=False)
    assert result.scores == scores
    assert result["prevalence"] == pytest.approx(share)
    assert f"{100 * share:.1f} % of the records" in repr(result)
