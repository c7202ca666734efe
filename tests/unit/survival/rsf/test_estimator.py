"""FedRSF: the forest of a plain implementation, the same however patients are split, and what it refuses."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.kernels.pairs import draw_poisson, patient_keys
from multicentre.survival.rsf.estimator import FedRSF
from multicentre.survival.times import kaplan_meier
from support.hazard_toy import federate, parts_of, simulate

pytestmark = pytest.mark.filterwarnings("ignore:the median follow-up of:UserWarning")
DATA = simulate(500, seed=3)
ONE = [np.arange(len(DATA))]
SMALL = {"n_estimators": 6, "n_times": 16, "n_split_times": 8, "max_bins": 12, "max_features": 2}


@pytest.fixture(scope="module")
def pooled():
    return FedRSF(**SMALL).fit(federate(DATA, ONE))


def curves(model):
    return model.predict_survival_function(DATA, return_array=True)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "by time", "by column"])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_it_is_the_same_forest_to_the_last_bit_however_patients_are_split(pooled, order, secure):
    found = FedRSF(**SMALL).fit(federate(DATA, parts_of(DATA, 8, order), secure_sum=secure))
    assert curves(found).tobytes() == curves(pooled).tobytes()
    assert np.array_equal(found.model_.threshold, pooled.model_.threshold)


def grow_plainly(patients, drawn, min_samples_leaf, min_events_leaf, n_times):
    """Return the survival curve of every patient in a tree that tries all columns."""
    n, agreed = len(drawn), patients.agreed
    curve = np.empty((n, n_times))

    def events_and_risk(inside):
        events = np.array([drawn[inside & patients.happened & (patients.bins == k)].sum() for k in range(n_times)])
        return events.astype(float), np.array(
            [drawn[inside & (patients.bins >= k)].sum() for k in range(n_times)], float
        )

    def statistic(left, node):
        (d1, y1), (d, y) = events_and_risk(left), events_and_risk(node)
        at = y > 1
        variance = (y1 * (y - y1) * d * (y - d))[at] / (y[at] ** 2 * (y[at] - 1))
        known = y > 0
        return (d1[known] - y1[known] * d[known] / y[known]).sum() ** 2 / max(variance.sum(), 1e-9)

    def grow(node):
        best, where = 0.0, None
        for column in range(patients.rows.shape[1]):
            for edge in agreed.edges_of(column):
                left = node & (patients.rows[:, column] <= edge)
                sides = [each & (drawn > 0) for each in (left, node & ~left)]
                if min(s.sum() for s in sides) < min_samples_leaf:
                    continue
                if min((s & patients.happened).sum() for s in sides) < min_events_leaf:
                    continue
                found = statistic(left, node)
                if found > best * (1 + 1e-9):
                    best, where = found, left
        if where is None:
            curve[node] = kaplan_meier(*events_and_risk(node))
        else:
            grow(where)
            grow(node & ~where)

    grow(np.ones(n, dtype=bool))
    return curve


def test_it_is_the_forest_of_a_plain_implementation():
    model = FedRSF(
        n_estimators=3,
        max_features=None,
        n_times=8,
        max_bins=8,
        min_samples_leaf=20,
        min_events_leaf=4,
        random_state=7,
    ).fit(federate(DATA, parts_of(DATA, 4, "random")))
    patients = Patients(DATA, model.agreed_)
    keys = patient_keys(DATA.X, DATA.time, DATA.event, None)
    trees = [grow_plainly(patients, draw_poisson(keys, 7, tree).astype(int), 20, 4, 8) for tree in range(3)]
    inside = np.ones(len(DATA), dtype=bool)
    for tree in range(3):
        inside &= np.isclose(_of_tree(model, tree), trees[tree], atol=1e-12).all(axis=1)
    # Cuts through empty bins are placed in their middle, so that patients who were not drawn may fall elsewhere.
    assert inside.mean() > 0.9
    everywhere = np.stack([draw_poisson(keys, 7, tree) > 0 for tree in range(3)]).all(axis=0)
    assert inside[everywhere].all()


def _of_tree(model, tree):
    single = model.model_.of_trees(np.array([tree]), np.ones(1))
    return single.survival(np.where(np.isnan(DATA.X), model.agreed_.centre, DATA.X))


def test_no_leaf_is_smaller_than_asked(pooled):
    keys = patient_keys(DATA.X, DATA.time, DATA.event, None)
    leaves = pooled.model_.leaves(np.where(np.isnan(DATA.X), pooled.agreed_.centre, DATA.X))
    for tree in range(6):
        drawn = draw_poisson(keys, 0, tree) > 0
        assert np.unique(leaves[drawn, tree], return_counts=True)[1].min() >= 15
        assert np.unique(leaves[drawn & (DATA.event == 1), tree], return_counts=True)[1].min() >= 3


def test_it_ranks_and_importances_find_the_columns_that_act(pooled):
    assert pooled.score(DATA) > 0.65
    assert pooled.feature_importances_.sum() == pytest.approx(1.0)
    assert pooled.feature_importances_.argmin() in (2, 3)
    (bars,) = pooled.figures({}, {})
    assert bars.categories[0] in ("x0", "x1")


def test_identifiers_decide_who_is_drawn():
    ids = [f"p{k}" for k in range(len(DATA))]
    named = mc.data.SurvivalData(DATA.X, DATA.time, DATA.event, ids)
    first, again = (curves(FedRSF(**SMALL).fit(federate(named, parts_of(DATA, n, "random")))) for n in (2, 5))
    assert first.tobytes() == again.tobytes()
    assert np.abs(first - curves(FedRSF(**SMALL).fit(federate(DATA, ONE)))).max() > 1e-3


def test_another_seed_gives_another_forest(pooled):
    other = FedRSF(**SMALL, random_state=1).fit(federate(DATA, ONE))
    assert np.abs(curves(other) - curves(pooled)).max() > 1e-3


def test_few_patients_give_the_curve_of_all():
    few = DATA.take(np.arange(25))
    model = FedRSF(n_estimators=2, n_times=4).fit(federate(few, [np.arange(12), np.arange(12, 25)]))
    found = model.predict_survival_function(few, return_array=True)
    assert len(model.model_.curves) == 2
    assert np.ptp(found, axis=0).max() == 0.0
    assert found[0, -1] < 1.0


def test_depth_is_limited():
    model = FedRSF(**{**SMALL, "max_depth": 1}).fit(federate(DATA, ONE))
    assert len(model.model_.column) == 3 * 6
    assert len(FedRSF(**{**SMALL, "max_depth": 0}).fit(federate(DATA, ONE)).model_.column) == 6


def test_constant_columns_give_no_split():
    flat = mc.data.SurvivalData(np.ones((80, 2)), DATA.time[:80], DATA.event[:80])
    model = FedRSF(n_estimators=2).fit(federate(flat, [np.arange(40), np.arange(40, 80)]))
    assert len(model.model_.column) == 2
    assert np.ptp(model.predict(flat)) == 0.0


def test_an_unmasked_fit_is_refused_with_a_hint_and_a_masked_one_passes():
    sites = parts_of(DATA, 3, "random")
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        FedRSF(**SMALL).fit(federate(DATA, sites, policy=mc.Policy(), secure_sum=False))
    model = FedRSF(**SMALL).fit(federate(DATA, sites, policy=mc.Policy()))
    assert model.score(DATA) > 0.6


def test_a_saved_forest_is_the_forest(pooled, tmp_path):
    pooled.save(tmp_path)
    again = FedRSF.load(tmp_path)
    assert np.array_equal(curves(again), curves(pooled))
    assert np.array_equal(again.feature_importances_, pooled.feature_importances_)


def test_it_asks_what_it_says():
    federation = federate(DATA, parts_of(DATA, 3, "random"))
    model = FedRSF(**SMALL).fit(federation)
    unasked = {"handle_gaps", "add_indicators", "report_gaps"}
    assert set(federation.traffic.calls) - {"advertise"} == model.planned_steps() - unasked


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_estimators": 0},
        {"max_features": "half"},
        {"max_features": 0},
        {"max_depth": -1},
        {"min_samples_leaf": 0},
        {"min_events_leaf": -1},
        {"max_bins": 300},
        {"n_times": 0},
        {"n_split_times": 0},
        {"cause": 0},
        {"horizon": 0.0},
        {"random_state": -5},
    ],
)
def test_parameters_out_of_range_are_named(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FedRSF(**wrong).fit(federate(DATA, ONE))
