"""Evaluation of classifiers over sites, next to scikit-learn on the pooled records."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, confusion_matrix, roc_auc_score

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError
from multicentre.validation import evaluate_classifier

SITES = ("graz", "lyon", "oslo")


def table(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n),
            "dose": rng.normal(size=n),
            "sex": rng.choice(["f", "m"], n),
            "stage": rng.choice(["I", "II", "III", "IV"], n, p=[0.5, 0.3, 0.19, 0.01]),
        }
    )
    log_odds = -2 + 0.05 * (frame["age"] - 60) + frame["dose"] + 0.5 * (frame["sex"] == "m")
    frame["dead"] = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return mc.data.TableData.from_frame(
        frame,
        outcome="dead",
        columns=["age", "dose", "sex", "stage"],
        categories={"sex": ["f", "m"], "stage": ["I", "II", "III", "IV"]},
        references={"sex": "f", "stage": "I"},
    )


def federate(data, n_sites=3, **options):
    parts = {name: data.take(np.arange(place, len(data), n_sites)) for place, name in enumerate(SITES[:n_sites])}
    return mc.Federation.in_process(parts, **options)


@pytest.fixture(scope="module")
def model():
    return mc.regression.FedLogisticRegression(alpha=20.0).fit(federate(table(600, seed=1)))


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def evaluation(model, data):
    return evaluate_classifier(model, federate(data), thresholds=[0.1, 0.2, 0.5], subgroups="stage", by_site=True)


@pytest.fixture(scope="module")
def chances(model, data):
    return model.predict_proba(data)[:, 1]


def test_scores_are_those_of_the_pooled_records(evaluation, data, chances):
    values = evaluation.to_frame()["value"]
    log_odds = np.log(chances / (1 - chances))
    fit = LogisticRegression(C=np.inf, tol=1e-10).fit(log_odds[:, None], data.y)
    assert abs(values["roc_auc"] - roc_auc_score(data.y, chances)) <= evaluation.bound_roc_auc < 2e-3
    assert values["brier_score"] == pytest.approx(brier_score_loss(data.y, chances), abs=1e-7)
    assert values["observed_over_expected"] == pytest.approx(data.y.sum() / chances.sum(), abs=1e-6)
    assert values["calibration_slope"] == pytest.approx(fit.coef_[0, 0], abs=1e-5)


def test_at_the_calibration_intercept_expected_events_are_those_observed(evaluation, data, chances):
    intercept = evaluation.to_frame().loc["calibration_intercept", "value"]
    moved = np.log(chances / (1 - chances)) + intercept
    assert (1 / (1 + np.exp(-moved))).sum() == pytest.approx(data.y.sum(), abs=1e-4)


def test_standard_error_of_the_area_covers_the_spread_over_samples(model, data):
    areas = [evaluate_classifier(model, federate(table(400, seed))).to_frame().loc["roc_auc"] for seed in range(2, 22)]
    spread = np.std([area["value"] for area in areas], ddof=1)
    assert 0.7 < np.mean([area["standard_error"] for area in areas]) / spread < 1.4


def test_figures_are_the_same_for_any_split_of_the_records(evaluation, model, data):
    one_site = federate(data, 1, policy=mc.Policy(min_patients=0))
    other = evaluate_classifier(model, one_site, thresholds=[0.1, 0.2, 0.5], subgroups="stage")
    pd.testing.assert_frame_equal(other.to_frame(), evaluation.to_frame(), rtol=1e-9)
    pd.testing.assert_frame_equal(other.subgroups(), evaluation.subgroups(), rtol=1e-9)
    pd.testing.assert_frame_equal(other.calibration_curve(), evaluation.calibration_curve(), rtol=1e-9)


@pytest.mark.parametrize("threshold", [0.1, 0.2, 0.5])
def test_operating_points_are_exact(evaluation, data, chances, threshold):
    table_of_counts = confusion_matrix(data.y, chances > threshold)
    np.testing.assert_array_equal(evaluation.confusion_matrix(threshold), table_of_counts)
    point = evaluation.operating_points().loc[threshold]
    (true_negatives, false_positives), (_, true_positives) = table_of_counts
    assert point["sensitivity"] == pytest.approx(true_positives / data.y.sum())
    assert point["specificity"] == pytest.approx(true_negatives / (data.y == 0).sum())
    benefit = (true_positives - false_positives * threshold / (1 - threshold)) / len(data)
    assert point["net_benefit"] == pytest.approx(benefit)


def test_subgroups_are_those_of_their_records_alone(evaluation, model, data):
    assert evaluation.subgroup_names == ("stage=I", "stage=II")
    in_first = (data.X[:, -3:] == 0).all(axis=1)
    alone = evaluate_classifier(model, federate(data.take(np.flatnonzero(in_first))), thresholds=[0.1, 0.2, 0.5])
    ours = evaluation.subgroups().loc["stage=I"].drop(["roc_auc", "average_precision"])
    theirs = alone.to_frame().drop(["roc_auc", "average_precision"])
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_small_subgroup_does_not_follow_from_the_total(evaluation):
    """Stage IV is too small; stage III is withheld with it, because the total minus all others would reveal IV."""
    assert evaluation.withheld == ("stage=III", "stage=IV")
    assert "Withheld subgroups" in repr(evaluation)


def test_numbers_are_divided_by_limits(model, data):
    evaluation = evaluate_classifier(model, federate(data), subgroups="age", subgroup_limits=[50, 65])
    assert evaluation.subgroup_names == ("age below 50", "age from 50 to below 65", "age from 65")
    counts = evaluation.collected.counts.sum(axis=(1, 2))
    assert counts[0] == counts[1:].sum() == len(data)
    assert counts[1] == (data.X[:, 0] < 50).sum()


def test_calibration_groups_hold_all_records(evaluation, data, chances):
    curve = evaluation.calibration_curve()
    assert curve["n_records"].sum() == len(data)
    assert curve["predicted"].is_monotonic_increasing
    assert float((curve["predicted"] * curve["n_records"]).sum()) == pytest.approx(chances.sum(), abs=1e-4)


def test_curves_end_where_they_must(evaluation):
    roc, precision = evaluation.roc_curve(), evaluation.precision_recall_curve()
    assert roc.iloc[0].tolist() == [0.0, 0.0]
    assert roc.iloc[-1].tolist() == [1.0, 1.0]
    assert precision["precision"].iloc[-1] == pytest.approx(evaluation.prevalence)


def test_sites_have_scores_of_their_own_records(evaluation, model, data, chances):
    place = SITES.index("oslo")
    rows = np.arange(place, len(data), 3)
    site = evaluation.by_site().loc["oslo"]
    assert site["roc_auc"] == pytest.approx(roc_auc_score(data.y[rows], chances[rows]))
    assert site["prevalence"] == pytest.approx(data.y[rows].mean())
    assert site["observed_over_expected"] == pytest.approx(data.y[rows].sum() / chances[rows].sum(), abs=1e-6)


def test_sites_have_intervals_of_the_scores_of_their_own_records(evaluation, model, data, chances):
    rows = np.arange(SITES.index("oslo"), len(data), 3)
    site, odds, died = evaluation.by_site().loc["oslo"], np.log(chances[rows] / (1 - chances[rows])), data.y[rows] == 1
    slope = LogisticRegression(C=np.inf, tol=1e-10).fit(odds[:, None], died).coef_[0, 0]
    assert site["calibration_slope"] == pytest.approx(slope, abs=1e-4)
    wins = (odds[died][:, None] > odds[~died]) + 0.5 * (odds[died][:, None] == odds[~died])
    parts = [wins.mean(axis=axis) for axis in (1, 0)]
    error = np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))  # DeLong's
    middle = np.log(wins.mean() / (1 - wins.mean()))
    half = 1.959964 * error / (wins.mean() * (1 - wins.mean()))
    limits = 1 / (1 + np.exp([-(middle - half), -(middle + half)]))
    assert site[["roc_auc_lower", "roc_auc_upper"]].to_numpy(float) == pytest.approx(limits, abs=1e-6)
    for name in ("neg_brier_score", "observed_over_expected", "calibration_intercept", "calibration_slope"):
        assert site[f"{name}_lower"] < site[name] < site[f"{name}_upper"]
    forest = next(figure for figure in evaluation.figures() if figure.title == "Discrimination by site")
    assert forest.rows == [*SITES, "all"]


def test_each_subgroup_has_its_roc_curve(evaluation, data, chances):
    for name in evaluation.subgroup_names:
        level = data.X[:, data.columns.index(f"stage={name}")] == 1 if f"stage={name}" in data.columns else None
        curve = evaluation.roc_curve(name).to_numpy()
        area = np.trapezoid(curve[:, 1], curve[:, 0])
        assert area == pytest.approx(evaluation.subgroups().loc[(name, "roc_auc"), "value"], abs=1e-9)
        if level is not None:
            assert area == pytest.approx(roc_auc_score(data.y[level], chances[level]), abs=0.01)
    with pytest.raises(ConfigurationError, match="subgroup must be one of"):
        evaluation.roc_curve("none of them")


@pytest.mark.parametrize("kind", ["roc", "precision_recall", "calibration", "net_benefit", "subgroups"])
def test_every_curve_is_drawn(evaluation, kind):
    axes = evaluation.plot(kind)
    assert isinstance(axes, Axes)
    plt.close(axes.figure)


def test_boosted_trees_are_evaluated(data):
    model = mc.boosting.FedXGBClassifier(3, max_depth=2).fit(federate(table(600, seed=1)))
    values = evaluate_classifier(model, federate(data)).to_frame()["value"]
    assert values["brier_score"] == pytest.approx(brier_score_loss(data.y, model.predict_proba(data)[:, 1]), abs=1e-6)


def test_a_model_that_predicts_the_same_for_all_has_no_slope(data):
    model = mc.regression.FedLogisticRegression(alpha=1e9).fit(federate(table(600, seed=1)))
    scores = evaluate_classifier(model, federate(data)).to_frame()
    assert np.isnan(scores.loc["calibration_slope", "value"]) or scores.loc["calibration_slope", "value"] > 100


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"threshold": 1.0}, "thresholds"),
        ({"thresholds": [0.5, 2.0]}, "thresholds"),
        ({"thresholds": []}, "thresholds"),
        ({"subgroups": "weight"}, "subgroups"),
        ({"subgroups": "age"}, "subgroups"),
        ({"subgroups": "stage", "subgroup_limits": [1.0]}, "subgroups"),
        ({"subgroups": "age", "subgroup_limits": [60, 50]}, "subgroups"),
        ({"n_groups": 1}, "n_groups"),
        ({"min_records": 0}, "min_records"),
        ({"confidence_level": 1.0}, "confidence_level"),
    ],
)
def test_invalid_arguments_are_refused(model, data, options, where):
    with pytest.raises(ConfigurationError, match=where):
        evaluate_classifier(model, federate(data), **options)


def test_models_of_numbers_and_of_more_classes_are_refused(data):
    numbers = mc.data.TableData(data.X[:, :1], data.X[:, 1], outcome="number")
    linear = mc.regression.FedLinearRegression().fit(federate(numbers))
    with pytest.raises(ConfigurationError, match="must be a classifier"):
        evaluate_classifier(linear, federate(numbers))
    classes = mc.data.TableData(data.X[:, :2], np.arange(len(data)) % 3)
    trees = mc.boosting.FedXGBClassifier(2).fit(federate(classes))
    with pytest.raises(ConfigurationError, match="must have two classes"):
        evaluate_classifier(trees, federate(classes))


def test_records_of_one_class_are_refused(model, data):
    with pytest.raises(DataError, match="at least two classes"):
        evaluate_classifier(model, federate(data.take(np.flatnonzero(data.y == 0))))


def test_glm_of_two_classes_is_evaluated(data):
    model = mc.regression.FedGLM("binomial", link="probit", alpha=1.0).fit(federate(table(600, seed=1)))
    assert 0.6 < evaluate_classifier(model, federate(data)).to_frame().loc["roc_auc", "value"] < 0.95


def with_gaps(data, n=60):
    X = data.X.copy()
    X[:n, 1] = np.nan
    return mc.data.TableData(X, data.y, columns=data.columns, levels=data.levels)


def test_incomplete_records_are_left_out_and_counted_after_a_fit_to_complete_ones(model, data):
    evaluation = evaluate_classifier(model, federate(with_gaps(data)))
    complete = evaluate_classifier(model, federate(data.take(np.arange(60, len(data)))))
    assert evaluation.n_incomplete == 60
    assert "60 records with missing entries are left out" in repr(evaluation)
    pd.testing.assert_frame_equal(evaluation.to_frame(), complete.to_frame(), rtol=1e-6)


@pytest.mark.parametrize("kind", [mc.regression.FedLogisticRegression, mc.regression.FedLinearRegression])
def test_cross_validation_counts_the_records_that_it_does_not_score(data, kind):
    y = data.y if kind is mc.regression.FedLogisticRegression else data.X[:, 0]
    X = data.X[:600, :2].copy()
    X[:, 0] += np.random.default_rng(3).normal(size=600)  # not the outcome itself
    X[::20, 1] = np.nan
    outcome = "class" if kind is mc.regression.FedLogisticRegression else "number"
    table_of_gaps = mc.data.TableData(X, y[:600], [f"person-{row}" for row in range(600)], outcome=outcome)
    result = mc.validation.cross_validate(kind(), federate(table_of_gaps), cv=3, by_site=False)
    assert result["n_incomplete"].sum() == 30
    assert "30 records with missing entries are not scored" in repr(result)


def exact_line(log_odds, outcomes):
    """Return intercept and slope of the outcomes by Newton's method on the pooled records."""
    line = np.zeros(2)
    rows = np.column_stack([np.ones(len(log_odds)), log_odds])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ line))
        line = line + np.linalg.solve(rows.T @ (rows * (chance * (1 - chance))[:, None]), rows.T @ (outcomes - chance))
    return line


@pytest.mark.parametrize("steeper", [2.0, 4.0, 12.0])
def test_models_that_are_far_too_sure_have_the_slope_of_the_pooled_records(model, data, steeper):
    X = data.X.copy()
    X[:, 1] *= steeper
    wild = mc.data.TableData(X, data.y, columns=data.columns, levels=data.levels)
    line = exact_line(model.predict_linear(wild), data.y)
    values = evaluate_classifier(model, federate(wild)).to_frame()["value"]
    assert line[1] < 0.9
    assert values["calibration_slope"] == pytest.approx(line[1], abs=1e-6)
    moved = model.predict_linear(wild) + values["calibration_intercept"]
    assert (1 / (1 + np.exp(-moved))).sum() == pytest.approx(data.y.sum(), abs=1e-3)


def test_sites_that_are_lost_in_between_leave_no_mixture(model, data):
    """The first site is lost after the counts; the evaluation begins again and is that of the others."""
    parts = {name: data.take(np.arange(place, len(data), 3)) for place, name in enumerate(SITES)}
    faults = Faults(lose={"graz": "sum_lines"})
    lossy = mc.Federation.in_process(parts, quorum=2, faults=faults)
    others = mc.Federation.in_process({name: parts[name] for name in SITES[1:]})
    evaluation = evaluate_classifier(model, lossy)
    pd.testing.assert_frame_equal(evaluation.to_frame(), evaluate_classifier(model, others).to_frame(), rtol=1e-9)
    assert list(evaluation.left_out) == ["graz"]
    assert "Without graz: " in repr(evaluation)


def test_the_figures_of_a_last_site_do_not_follow_from_the_others(model, data):
    rare = np.flatnonzero((np.arange(len(data)) % 3 == 0) & (data.y == 1))[5:]
    keep = np.setdiff1d(np.arange(len(data)), rare)
    parts = {name: data.take(keep[keep % 3 == place]) for place, name in enumerate(SITES)}
    evaluation = evaluate_classifier(model, mc.Federation.in_process(parts), by_site=True)
    assert evaluation.by_site()["prevalence"].isna().all()
    assert evaluation.by_site()["roc_auc"].notna().sum() == 2
    assert "Withheld at all sites" in repr(evaluation)
