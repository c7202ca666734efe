"""Scores of models of tables over sites, against scikit-learn's of the pooled records."""

import dataclasses

import numpy as np
import pytest
from sklearn import metrics

import multicentre as mc
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.validation.scoring.classes.site import NAMES
from multicentre.validation.scoring.scores import find_evaluator, score
from multicentre.validation.scoring.tables import BoostedTrees, table_model
from multicentre_papers import baselines
from multicentre_papers.baselines.adaboost_f.scoring import VotedTrees, voting_message

SITES = ("lyon", "oslo", "graz")
EXACT = mc.Policy(min_patients=0)


def table(n=600, k=2, seed=0, gaps=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + 0.7 * rng.normal(size=n) > 0).astype(int) + (k > 2) * (X[:, 1] > 0.6)
    if gaps:
        X[rng.uniform(size=X.shape) < 0.05] = np.nan
    return mc.data.TableData(X, y, classes=[f"c{place}" for place in range(k)])


def numbers(n=600, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return mc.data.TableData(X, scale * (3.0 + X[:, 0] + 0.5 * rng.normal(size=n)), outcome="number")


def split(data):
    return {name: data.take(np.arange(place, len(data), len(SITES))) for place, name in enumerate(SITES)}


def federate(data, **options):
    return mc.Federation.in_process(split(data), **options)


def fitted(kind, k=2):
    made = {"votes": baselines.AdaBoostF(4), "boosted": FedXGBClassifier(5, max_depth=2, max_bins=16)}[kind]
    return made.fit(federate(table(k=k), policy=EXACT))


def expected(name, truth, chances):
    named, k = chances.argmax(axis=1), chances.shape[1]
    if name in ("roc_auc", "average_precision", "roc_auc_ovr", "neg_log_loss", "neg_brier_score"):
        one = chances[:, 1] if k == 2 else chances
        return {
            "roc_auc": lambda: metrics.roc_auc_score(truth, one),
            "average_precision": lambda: metrics.average_precision_score(truth, one),
            "roc_auc_ovr": lambda: metrics.roc_auc_score(truth, one, multi_class="ovr"),
            "neg_log_loss": lambda: -metrics.log_loss(truth, chances),
            "neg_brier_score": lambda: -metrics.brier_score_loss(truth, one),
        }[name]()
    options = {"average": "macro" if name.endswith("_macro") else "binary", "zero_division": 0}
    stem = name.removesuffix("_macro")
    of = {"f1": metrics.f1_score, "precision": metrics.precision_score, "recall": metrics.recall_score}
    plain = {
        "accuracy": metrics.accuracy_score,
        "balanced_accuracy": metrics.balanced_accuracy_score,
        "matthews_corrcoef": metrics.matthews_corrcoef,
    }
    return of[stem](truth, named, **options) if stem in of else plain[name](truth, named)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("kind", ["votes", "boosted"])
@pytest.mark.parametrize("k", [2, 3])
def test_scores_are_those_of_the_pooled_records(kind, k, secure):
    model, held = fitted(kind, k), table(420, k, seed=1)
    names = [name for name in NAMES if k == 2 or name.endswith(("_macro", "_ovr")) or "_" in name[4:]]
    names = [name for name in names if k == 2 or name not in ("roc_auc", "average_precision")]
    found = score(model, federate(held, policy=EXACT, secure_sum=secure), names)
    chances = np.asarray(model.predict_proba(held), dtype=np.float64)
    for name, value in found.values.items():
        close = {"roc_auc": 1e-4, "roc_auc_ovr": 1e-4, "average_precision": 2e-3}.get(name, 1e-7)
        assert value == pytest.approx(expected(name, held.y, chances), abs=close), name
    assert found.n_records == 420


def test_masked_scores_and_those_of_other_splits_are_the_same_numbers():
    model, held = fitted("boosted"), table(420, seed=1)
    by_order = held.take(np.random.default_rng(3).permutation(420))
    found = [
        score(model, federate(data, policy=EXACT, secure_sum=secure), ["accuracy", "neg_log_loss", "roc_auc"]).values
        for data, secure in ((held, False), (held, True), (by_order, False))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e9])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_scores_of_numbers_are_those_of_scikit_learn(scale, secure):
    model = FedXGBRegressor(8, max_depth=2, max_bins=16).fit(federate(numbers(scale=scale), policy=EXACT))
    held = numbers(300, seed=1, scale=scale)
    names = find_evaluator(model).names
    policy = None if secure else EXACT
    found = score(model, federate(held, secure_sum=secure, policy=policy), names).values
    told = np.asarray(model.predict(held), dtype=np.float64)
    of = {
        "r2": metrics.r2_score,
        "neg_mean_squared_error": lambda true, said: -metrics.mean_squared_error(true, said),
        "neg_root_mean_squared_error": lambda true, said: -metrics.root_mean_squared_error(true, said),
        "neg_mean_absolute_error": lambda true, said: -metrics.mean_absolute_error(true, said),
    }
    assert set(found) == set(of)
    for name, value in found.items():
        assert value == pytest.approx(of[name](held.y, told), rel=2e-6), name


def test_unmasked_sums_of_enough_give_the_same_scores_and_of_fewer_none():
    regressor = FedXGBRegressor(8, max_depth=2, max_bins=16).fit(federate(numbers(), policy=EXACT))
    cases = [(regressor, numbers(1200, seed=1), ["r2"]), (fitted("boosted"), table(1200, seed=1), ["neg_brier_score"])]
    for model, held, names in cases:
        masked, unmasked = (score(model, federate(held, secure_sum=secure), names).values for secure in (True, False))
        assert unmasked == masked
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            score(model, federate(held.take(np.arange(36)), secure_sum=False), names)


def test_a_model_that_says_the_same_of_everybody_is_scored_unmasked():
    X, y = np.zeros((60, 1)), np.repeat([0, 1], 30)
    data = mc.data.TableData(X, y)
    model = FedXGBClassifier(1, cuts=[[0.5]], max_depth=1).fit(mc.Federation.in_process({"lyon": data}, policy=EXACT))
    federation = mc.Federation.in_process({"lyon": data, "oslo": data}, secure_sum=False)
    found = score(model, federation, ["accuracy", "neg_log_loss"], by_site=True)
    assert found.values == pytest.approx({"accuracy": 0.5, "neg_log_loss": -np.log(2)})
    assert found.by_site["lyon"] == pytest.approx({"accuracy": 0.5, "neg_log_loss": -np.log(2)})


def test_a_model_that_is_far_off_has_a_score_or_one_that_is_not_known():
    model = FedXGBRegressor(8, max_depth=2, max_bins=16).fit(federate(numbers(), policy=EXACT))
    away = numbers(300)
    moved = mc.data.TableData(away.X, away.y + 1e4, outcome="number")
    found = score(model, federate(moved), ["r2", "neg_mean_absolute_error"]).values
    said = np.asarray(model.predict(moved), dtype=np.float64)
    assert np.isnan(found["r2"])
    assert found["neg_mean_absolute_error"] == pytest.approx(-np.abs(moved.y - said).mean(), rel=1e-6)


def test_own_scores_of_sites_are_exact_where_enough_stand_behind_them_and_else_unknown():
    model, held = fitted("boosted"), table(1200, seed=1)
    names = ["accuracy", "f1", "neg_log_loss", "roc_auc", "average_precision"]
    told = score(model, federate(held), names, by_site=True).by_site
    for site, data in split(held).items():
        chances = np.asarray(model.predict_proba(data), dtype=np.float64)
        for name in names:
            assert told[site][name] == pytest.approx(expected(name, data.y, chances), abs=1e-7), name
    masked = federate(held.take(np.arange(45)))
    assert all(np.isnan(own["roc_auc"]) for own in score(model, masked, "roc_auc", by_site=True).by_site.values())


def test_a_site_that_answers_by_masked_sums_alone_is_left_out():
    policies = {name: mc.Policy(secure_sums_only=name == "oslo") for name in SITES}
    model, held = fitted("boosted"), table(420, seed=1)
    found = score(model, federate(held, policy=policies), "accuracy", by_site=True)
    assert set(found.by_site) == {"lyon", "graz"}
    assert found.values["accuracy"] == model.score(held)


def test_an_area_from_unmasked_bins_is_that_of_the_records_or_refused():
    model, held = fitted("boosted"), table(900, seed=1)
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        score(model, federate(held, secure_sum=False), "roc_auc")
    found = score(model, federate(held, secure_sum=False, policy=EXACT), "roc_auc")
    exact = metrics.roc_auc_score(held.y, model.predict_proba(held)[:, 1])
    assert abs(found.values["roc_auc"] - exact) <= found.facts["bound_roc_auc"] + 1e-12
    assert found.values == score(model, federate(held), "roc_auc").values


def named_right(n_wrong, n=60):
    """Return a model, and records of which it names the class of all but a few."""
    model = FedXGBClassifier(3, cuts=[[0.0]], max_depth=1)
    X = np.repeat([-1.0, 1.0], n // 2)[:, None]
    y = (X[:, 0] > 0).astype(int)
    model.fit(mc.Federation.in_process({"lyon": mc.data.TableData(X, y)}, policy=EXACT))
    y[:n_wrong] = 1
    return model, mc.data.TableData(X, y)


@pytest.mark.parametrize("name", ["accuracy", "f1", "neg_brier_score", "roc_auc"])
def test_as_many_as_the_policy_wants_are_enough_and_one_fewer_are_not(name):
    for n_wrong in (10, 9):
        model, data = named_right(n_wrong)
        federation = mc.Federation.in_process({"lyon": data, "oslo": data}, secure_sum=False)
        own = score(model, mc.Federation.in_process({"lyon": data, "oslo": data}), name, by_site=True).by_site
        if n_wrong == 10:
            expected_value = expected(name, data.y, np.asarray(model.predict_proba(data), dtype=np.float64))
            assert score(model, federation, name).values[name] == pytest.approx(expected_value, abs=1e-7)
            assert own["lyon"][name] == pytest.approx(expected_value, abs=1e-7)
        else:
            assert np.isnan(own["lyon"][name])
            with pytest.raises(DisclosureRefused, match="secure_sum=True"):
                score(model, federation, name)


def test_a_column_in_which_few_records_differ_changes_no_score():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    X[:, 2] = np.arange(600) < 6
    data = mc.data.TableData(X, ((X[:, 0] > 0) | (X[:, 2] > 0)).astype(int))
    model = FedXGBClassifier(5, max_depth=2, max_bins=8).fit(federate(data))
    held = mc.data.TableData(X[rng.permutation(600)], data.y)
    found = score(model, federate(held, secure_sum=False), "neg_log_loss", by_site=True)
    for site, part in split(held).items():
        chances = np.asarray(model.predict_proba(part), dtype=np.float64)
        assert found.by_site[site]["neg_log_loss"] == pytest.approx(-metrics.log_loss(part.y, chances), abs=1e-7)


def test_one_class_alone_cannot_be_ranked():
    data = table(420, seed=1)
    with pytest.raises(DataError, match="at least two classes"):
        score(fitted("boosted"), federate(data.take(np.flatnonzero(data.y == 0)), policy=EXACT), "roc_auc")


def test_a_score_of_two_classes_is_refused_for_more():
    for name in ("roc_auc", "f1"):
        with pytest.raises(ConfigurationError, match="two classes"):
            score(fitted("boosted", 3), federate(table(300, 3), policy=EXACT), name)


def test_other_columns_or_classes_are_named():
    model, held = fitted("boosted"), table(90, seed=1)
    renamed = mc.data.TableData(held.X, held.y, columns=["a", "b", "c"], classes=["c0", "c1"])
    with pytest.raises(SchemaMismatch, match="columns"):
        score(model, federate(renamed), "accuracy")
    others = mc.data.TableData(held.X, held.y, classes=["no", "yes"])
    with pytest.raises(SchemaMismatch, match="classes"):
        score(model, federate(others), "accuracy")
    counted = mc.data.TableData(held.X, held.y.astype(float), outcome="number")
    with pytest.raises(SchemaMismatch, match="classes"):
        score(model, federate(counted), "accuracy")


def test_an_unfitted_model_is_not_scored():
    for model in (baselines.AdaBoostF(), FedXGBClassifier()):
        with pytest.raises((ConfigurationError, ValueError), match=r"[Ff]it"):
            score(model, federate(table(90)), "accuracy")


BROKEN = {
    "votes beyond all": {"votes": lambda m: m.votes * 1e300},
    "a class beyond": {"label": lambda m: np.where(m.label == 1, 7, m.label).astype(np.int32)},
    "a column beyond": {"column": lambda m: np.where(m.column >= 0, 99, m.column).astype(np.int32)},
    "a child before": {"left": lambda m: np.where(m.left >= 0, 0, m.left).astype(np.int32)},
    "no vote": {"votes": lambda m: np.zeros_like(m.votes)},
    "a vote below 0": {"votes": lambda m: -m.votes},
    "more trees than there are": {"sizes": lambda m: m.sizes + 1},
    "an empty hypothesis": {"sizes": lambda m: np.concatenate([[0, m.sizes[0] + m.sizes[1]], m.sizes[2:]])},
    "other gaps": {"centre": lambda m: m.centre[:-1]},
    "not finite": {"centre": lambda m: m.centre * np.nan},
}


@pytest.mark.parametrize("how", BROKEN)
def test_voted_trees_are_checked_before_use(how):
    good = voting_message(fitted("votes"))
    assert isinstance(good.valid_for(table(30)), VotedTrees)
    changed = {name: change(good) for name, change in BROKEN[how].items()}
    with pytest.raises(MessageError):
        dataclasses.replace(good, **changed).valid_for(table(30))


def test_boosted_trees_are_checked_before_use():
    good = table_model(fitted("boosted"))
    assert isinstance(good.valid_for(table(30)), BoostedTrees)
    for changed in ({"column": good.column + 99}, {"roots": good.roots + 1}, {"base": good.base[:0]}):
        with pytest.raises(MessageError):
            dataclasses.replace(good, **changed).valid_for(table(30))
