"""AdaBoost.F, DistBoost.F and PreWeak.F: what sites answer, when rounds end, what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data.tabledata import TableData
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MessageError,
    MulticentreError,
    SchemaMismatch,
)
from multicentre.survival.surv_boost.maths import FIRST_VOTE, NO_ERROR, TOO_MUCH_ERROR
from multicentre_papers.baselines import AdaBoostF, DistBoostF, PreWeakF
from multicentre_papers.baselines.adaboost_f import messages
from multicentre_papers.baselines.adaboost_f.rounds import COMMITTEE
from multicentre_papers.baselines.adaboost_f.site import ClassSite
from multicentre_papers.baselines.adaboost_f.trees import ClassTrees, grow_tree, plurality
from support.boosting_sites import federate

KINDS = [AdaBoostF, DistBoostF, PreWeakF]


def simulate(n=300, seed=6):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 1)
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int) + (X[:, 1] > 0.5)
    return TableData(X, y, classes=["a", "b", "c"])


def split(data, n_sites=3):
    return {f"site-{i}": data.take(np.arange(i, len(data), n_sites)) for i in range(n_sites)}


DATA = simulate()
SITES = split(DATA)


def prepared(data=DATA, *, least=10):
    part = ClassSite("lyon", data)
    part.least_behind = least
    X = data.X
    part.agree(messages.Prepared(data.columns, data.classes, float(len(data)), X.mean(axis=0), X.std(axis=0)))
    return part


ASK = messages.FitTree(0.0, 0, 1, 3, 1, False, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_each_names_most_classes_under_the_default_policy(kind, secure):
    # Unmasked, a site would refuse the weights of the few patients whom a good tree misclassifies.
    policy = mc.Policy() if secure else mc.Policy(min_patients=0)
    model = kind(8).fit(federate(SITES, policy=policy, secure_sum=secure))
    assert model.score(simulate(seed=7)) > 0.75
    shares = model.predict_proba(DATA)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(DATA), np.array(["a", "b", "c"])[shares.argmax(axis=1)])
    assert set(model.chosen_) <= ({COMMITTEE} if kind is DistBoostF else set(SITES))


def test_frames_are_read_by_name_and_classes_without_names_are_numbers():
    numbered = TableData(DATA.X, DATA.y, columns=["u", "v", "w"])
    model = AdaBoostF(5).fit(federate(split(numbered)))
    frame = pd.DataFrame(DATA.X, columns=["u", "v", "w"])[["w", "u", "v"]]
    assert np.array_equal(model.predict(frame), model.predict(DATA.X))
    assert model.predict(DATA.X).dtype.kind == "i"
    assert model.assess(numbered)["accuracy"] == pytest.approx(np.mean(model.predict(DATA.X) == DATA.y))
    with pytest.raises(DataError, match="3 columns of the fit; got 2"):
        model.predict(DATA.X[:, :2])


def test_a_perfect_tree_ends_the_rounds_with_one_vote():
    clear = TableData(DATA.X, (DATA.X[:, 0] > 0.25).astype(int))
    model = AdaBoostF(20).fit(federate(split(clear)))
    assert (model.votes_.tolist(), model.stopped_because_) == ([1.0], NO_ERROR)
    assert model.score(clear) == 1.0


def test_trees_no_better_than_a_guess_end_the_rounds_and_the_first_stays():
    sites = {f"small-{i}": TableData(np.zeros((12, 1)), np.zeros(12, int)) for i in range(3)}
    sites["large"] = TableData(np.zeros((30, 1)), np.ones(30, int))
    with pytest.warns(UserWarning, match="1 of 1 models that sites fitted alone are constant"):
        model = AdaBoostF(20).fit(federate(sites, policy=mc.Policy()))
    assert model.stopped_because_ == TOO_MUCH_ERROR
    assert model.votes_.tolist() == [FIRST_VOTE]
    np.testing.assert_allclose(model.training_errors_, 36 / 66, rtol=1e-9)


def test_a_site_with_one_class_takes_part():
    lonely = DATA.take(np.flatnonzero(DATA.y == 0)[:40])
    model = AdaBoostF(6).fit(federate({**SITES, "small": lonely}))
    assert model.score(DATA) > 0.75


def test_small_sites_judge_without_a_tree_of_their_own():
    sites = {**SITES, "small": DATA.take(np.arange(12))}
    model = AdaBoostF(3).fit(federate(sites, policy=mc.Policy()))
    assert model.dropped_ == ("small, round 1", "small, round 2", "small, round 3")
    with pytest.raises(DataError, match="no site could fit a hypothesis"):
        AdaBoostF(3).fit(federate(split(DATA.take(np.arange(36))), policy=mc.Policy()))


def test_classes_that_differ_are_a_mismatch_and_a_missing_last_one_is_not():
    fewer = TableData(DATA.X, np.minimum(DATA.y, 1))
    more = TableData(DATA.X, DATA.y)
    model = AdaBoostF(3).fit(federate({"one": fewer, "two": more}))
    assert len(model.classes_) == 3
    with pytest.raises(SchemaMismatch, match="classes differ"):
        AdaBoostF(3).fit(federate({"one": DATA, "two": more}))
    with pytest.raises(SchemaMismatch, match="columns must be those of one"):
        AdaBoostF(3).fit(federate({"one": more, "two": TableData(DATA.X, DATA.y, columns=["a", "b", "c"])}))


def test_no_leaf_rests_on_fewer_than_fifteen_and_thresholds_are_public_edges():
    part = prepared()
    tree = part.fit_tree(ASK)
    labels = tree.labels(DATA.X)
    assert tree.patients >= 15
    assert labels.shape == (300, 1)
    nodes = np.flatnonzero(tree.column < 0)
    reached = replace(tree, label=np.where(tree.column < 0, np.arange(len(tree.column)), -1).astype(np.int32))
    counts = np.bincount(reached.labels(DATA.X)[:, 0], minlength=len(tree.column))[nodes]
    assert counts.min() == tree.patients
    _, edges = part._binned()
    inner = tree.column >= 0
    assert all(t in edges[c] for c, t in zip(tree.column[inner], tree.threshold[inner], strict=True))


def test_a_tree_on_bins_is_scikit_learns_on_the_columns():
    edges = np.sort(np.unique(DATA.X))[None].repeat(3, axis=0) + 0.05
    codes = np.column_stack([np.searchsorted(edges[c], DATA.X[:, c]) for c in range(3)]).astype(float)
    weights = np.random.default_rng(1).random(300)
    tree = grow_tree(codes, DATA.y, weights, edges, max_depth=4, min_samples_leaf=5, seed=0)
    oracle = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    assert np.array_equal(tree.labels(DATA.X)[:, 0], oracle.fit(DATA.X, DATA.y, weights).predict(DATA.X))


def test_joined_trees_come_apart_again():
    part = prepared()
    trees = [part.fit_tree(replace(ASK, round=number, max_depth=number)) for number in (1, 2, 3)]
    forest = ClassTrees.joined(trees).valid(3, 3)
    assert forest.n_estimators == 3
    for place, tree in enumerate(trees):
        again = forest.take(place, place + 1)
        for name in ClassTrees.declarations():
            assert np.array_equal(getattr(again, name), getattr(tree, name)), name
    assert np.array_equal(forest.labels(DATA.X), np.hstack([tree.labels(DATA.X) for tree in trees]))


def test_a_committee_goes_by_most_votes_and_the_lowest_class():
    assert plurality(np.array([[2, 1, 2], [2, 1, 0], [1, 1, 0]]), 3).tolist() == [2, 0, 1]


def test_weights_are_those_of_samme_up_to_a_common_factor():
    part = prepared()
    tree = part.fit_tree(ASK)
    wrong = tree.labels(DATA.X)[:, 0] != DATA.y
    assert part.judge(hypotheses(tree)).errors[0] == pytest.approx(wrong.mean())
    assert part.judge(hypotheses(ClassTrees.none())).errors[0] == pytest.approx(wrong.mean())
    part.reweigh(messages.Chosen(0.0, 0, 1.7))
    weights = np.exp(part.memory.log_weights)
    np.testing.assert_allclose(weights / weights.sum(), np.exp(1.7 * wrong) / np.exp(1.7 * wrong).sum())


def hypotheses(trees, *, committee=False):
    arrays = {n: getattr(trees, n) for n in ClassTrees.declarations()}
    return messages.Hypotheses(**arrays, committee=committee, log_total=0.0)


def broken(tree):
    i4 = np.int32
    return [
        replace(tree, left=np.zeros_like(tree.left)),
        replace(tree, column=np.where(tree.column >= 0, 99, -1).astype(i4)),
        replace(tree, label=np.where(tree.label >= 0, 3, -1).astype(i4)),
        replace(tree, label=np.full_like(tree.label, -1)),
        replace(tree, threshold=np.full_like(tree.threshold, np.nan)),
        replace(tree, roots=np.zeros(0, dtype=i4)),
        replace(tree, roots=np.array([1], dtype=i4)),
        ClassTrees.none(),
    ]


@pytest.mark.parametrize("number", range(8))
def test_arrays_that_make_no_trees_are_refused_before_use(number):
    part = prepared()
    bad = broken(part.fit_tree(ASK))[number]
    before = part.state
    with pytest.raises(MulticentreError):
        part.judge(hypotheses(bad))
    assert part.state is before
    with pytest.raises(MessageError):
        bad.valid(3, 3)


def test_what_no_honest_coordinator_sends_is_refused():
    part = prepared()
    part.judge(hypotheses(part.fit_tree(ASK)))
    for request in (messages.Chosen(0.0, 1, 1.0), messages.Chosen(0.0, 0, -1.0), messages.Chosen(0.0, 0, 1e9)):
        with pytest.raises(ConfigurationError):
            part.reweigh(request)
    with pytest.raises(ConfigurationError, match="the one that the site has stored"):
        part.agree(replace(known(part), centre=np.ones(3)))
    with pytest.raises(SchemaMismatch):
        ClassSite("oslo", DATA).agree(replace(known(part), columns=("a", "b", "c")))


def known(part):
    return messages.Prepared(**{name: getattr(part.memory, name) for name in messages.Prepared.declarations()})


def test_weights_on_a_few_patients_rest_on_a_few_unmasked():
    part = prepared()
    part.judge(hypotheses(part.fit_tree(ASK)))
    part.state = replace(part.memory, log_weights=np.where(np.arange(300) < 3, 0.0, -40.0))
    assert part.judge(hypotheses(ClassTrees.none())).patients <= 3
    part.masked = True
    assert part.judge(hypotheses(ClassTrees.none())).patients <= 300


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_predicts_the_same(kind, tmp_path):
    model = kind(4).fit(federate(SITES))
    model.save(tmp_path)
    again = kind.load(tmp_path)
    assert np.array_equal(again.predict_proba(DATA), model.predict_proba(DATA))
    assert (again.chosen_, again.stopped_because_) == (model.chosen_, model.stopped_because_)


@pytest.mark.parametrize(
    "params",
    [{"n_estimators": 0}, {"max_depth": 0}, {"min_samples_leaf": 0}, {"learning_rate": 2.0}, {"random_state": -1}],
)
def test_parameters_out_of_range_are_refused_by_name(params):
    with pytest.raises(ConfigurationError) as refused:
        AdaBoostF(**params).fit(federate(SITES))
    assert next(iter(params)) in str(refused.value)


@pytest.mark.parametrize("n_rare", [9, 10])
def test_a_rare_value_is_summed_and_refused_unmasked_where_too_few_have_it(n_rare):
    rare = {
        name: TableData(np.column_stack([data.X, np.arange(len(data)) < n_rare]), data.y, classes=["a", "b", "c"])
        for name, data in SITES.items()
    }
    sums = ClassSite("lyon", rare["site-0"]).sum_sizes(Nothing())
    assert (sums.total[-1], sums.patients) == (n_rare, n_rare)
    masked = AdaBoostF(3).fit(federate(rare, policy=mc.Policy()))
    assert masked.agreed_.centre[-1] == pytest.approx(3 * n_rare / len(DATA), rel=1e-4)
    if n_rare == 10:
        clear = AdaBoostF(3).fit(federate(rare, policy=mc.Policy(min_patients=0), secure_sum=False))
        np.testing.assert_allclose(clear.votes_, masked.votes_, atol=1e-6)
        return
    with pytest.raises(DisclosureRefused, match=r"at least 10.*secure_sum=True"):
        AdaBoostF(3).fit(federate(rare, policy=mc.Policy(), secure_sum=False))
