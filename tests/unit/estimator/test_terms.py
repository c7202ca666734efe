"""Terms of fitted models: joint tests, no ratios of bases, curves of effects against a reference."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.estimator.drawing import forest_limits
from multicentre.estimator.figures import EffectCurve, Forest, read_figure
from multicentre.estimator.terms import terms_of
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw

STAGES = ["I", "II", "III"]


def federation():
    rng = np.random.default_rng(0)
    n = 450
    frame = pd.DataFrame(
        {"age": rng.uniform(20, 80, n), "sex": rng.choice(["f", "m"], n), "stage": rng.choice(STAGES, n)}
    )
    risk = ((frame["age"] - 50) / 15) ** 2 - 1 + 0.3 * (frame["sex"] == "m")
    frame["died"] = (rng.random(n) < 1 / (1 + np.exp(-risk))).astype(int)
    terms = {"categories": {"sex": ["f", "m"], "stage": STAGES}, "references": {"sex": "f", "stage": "I"}}
    sites = {
        name: mc.data.TableData.from_frame(part, outcome="died", columns=["age", "sex", "stage"], **terms)
        for name, part in frame.groupby(rng.choice(["lyon", "oslo", "turin"], n))
    }
    return mc.Federation.in_process(sites)


def fitted(formula):
    with federation() as sites:
        return mc.regression.FedLogisticRegression(formula=formula).fit(sites)


@pytest.fixture(scope="module")
def spline():
    return fitted("ns(age, df=3) * sex + stage")


def test_a_spline_has_one_test_and_no_ratio(spline):
    assert list(spline.term_tests().index) == ["ns(age, df=3)", "sex", "stage", "ns(age, df=3):sex"]
    assert spline.term_tests()["df"].tolist() == [3, 1, 2, 3]
    bases = spline.to_frame().filter(like="[", axis=0)
    assert bases.filter(like="odds_ratio").isna().all(axis=None)
    assert bases["coefficient"].notna().all()
    assert list(spline.summary().index) == [
        "(intercept)",
        "ns(age, df=3)",
        "sex=m",
        "stage=II",
        "stage=III",
        "ns(age, df=3):sex",
    ]
    assert "stage: chi-square" in str(spline.summary())
    forest = spline.main_figure()
    assert isinstance(forest, Forest)
    assert not [name for name in forest.rows if "[" in name]
    assert spline.answer().startswith("Effect of age by ns(age, df=3): chi-square")
    table = spline.figures({}, {})[0]
    assert not [row[0] for row in table.rows if "[" in row[0]]
    assert {"terms"} <= set(spline.result_tables())


def test_the_test_is_the_quadratic_form_of_the_covariance(spline):
    coefficients, covariance = spline.coef_[:3], spline.covariance_[1:4, 1:4]
    expected = coefficients @ np.linalg.solve(covariance, coefficients)
    assert spline.term_tests().loc["ns(age, df=3)", "statistic"] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("sex", ["f", "m"])
def test_a_curve_is_the_difference_of_predictions(spline, sex):
    curve = spline.effect_curve("age", reference=50, at={"sex": sex})
    assert curve.attrs["reference"] == 50
    patients = pd.DataFrame({"age": [*curve["age"], 50.0], "sex": sex, "stage": "II"})
    predictor = spline.predict_linear(patients)
    assert curve["effect"].to_numpy() == pytest.approx(predictor[:-1] - predictor[-1], abs=1e-10)
    at_reference = spline.effect_curve("age", reference=50, values=[50.0])
    assert at_reference[["effect", "lower", "upper"]].to_numpy().ravel() == pytest.approx([0.0, 0.0, 0.0], abs=1e-10)


def test_the_band_of_a_linear_effect_is_that_of_its_coefficient():
    model = fitted("age + sex")
    curve = model.effect_curve("age", reference=50, values=[60.0])
    row = model.to_frame().loc["age"]
    assert curve.loc[0, ["effect", "lower", "upper"]].to_list() == pytest.approx(
        [10 * row["coefficient"], 10 * row["lower"], 10 * row["upper"]], rel=1e-8
    )


@pytest.mark.slow  # draws with matplotlib
def test_the_figure_states_reference_and_adjustment(spline):
    figure = next(figure for figure in spline.figures({}, {}) if isinstance(figure, EffectCurve))
    assert f"against age = {figure.reference:g}" in figure.caption
    assert "adjusted for sex, stage; at sex = its mean or reference level" in figure.caption
    assert read_figure(figure.to_dict()) == figure
    assert "<svg" in draw(figure)
    assert "Curve of odds ratio over age" in describe(figure)
    axes = spline.plot_effect("age", reference=40)
    assert axes.get_yscale() == "log"


def test_a_polynomial_is_one_term_and_its_main_figure_a_curve():
    model = fitted("age + power(age, 2)")
    assert model.term_tests().loc["age + power(age, 2)", "df"] == 2
    assert model.to_frame()["odds_ratio"].isna().tolist() == [False, True, True]
    assert isinstance(model.main_figure(), EffectCurve)


def test_a_logarithm_has_a_ratio_and_needs_values_for_a_curve():
    model = fitted("log(age) + sex")
    assert model.to_frame()["odds_ratio"].notna().all()
    with pytest.raises(ConfigurationError, match="values of age must be given"):
        model.effect_curve("age")
    assert len(model.effect_curve("age", values=[30.0, 40.0])) == 2
    with pytest.raises(ConfigurationError, match="must be a column of numbers"):
        model.effect_curve("sex")


def test_levels_of_a_cox_model_are_tested_together():
    columns, levels = ("age", "stage=II", "stage=III"), tuple(f"stage={name}" for name in STAGES)
    rng = np.random.default_rng(1)
    sites = {}
    for site in ("lyon", "oslo"):
        stage = rng.integers(3, size=200)
        X = np.column_stack([rng.normal(60, 9, 200), stage == 1, stage == 2]).astype(float)
        times = rng.exponential(np.exp(-0.5 * X[:, 2]))
        sites[site] = mc.data.SurvivalData(X, times, rng.random(200) < 0.8, columns=columns, levels=levels)
    with mc.Federation.in_process(sites) as consortium:
        model = mc.survival.FedCox().fit(consortium)
    tests = model.term_tests()
    assert tests["df"].to_dict() == {"age": 1, "stage": 2}
    assert tests.loc["age", "p_value"] == pytest.approx(model.p_values_[0], rel=1e-8)
    assert "Joint Wald tests: stage: chi-square" in str(model.summary())
    assert model.effect_curve("age", reference=60, values=[70])["effect"][0] == pytest.approx(10 * model.coef_[0])


def test_terms_without_a_design_follow_the_declared_levels():
    terms = terms_of(["a=b", "stage=II", "stage=III"], ["stage=I", "stage=II", "stage=III"])
    assert [(term.name, len(term.columns)) for term in terms] == [("a=b", 1), ("stage", 2)]


def test_one_wide_interval_does_not_move_the_axis_of_a_forest_plot():
    rows = Forest(
        "", "", "model", "odds ratio", ["a", "b", "c"], [1.0, 1.2, 0.9], [0.8, 1.0, 1e-4], [1.3, 1.5, 1e4], 0, 1.0
    )
    low, high = forest_limits(rows)
    assert 0.3 < low < 0.8
    assert 1.5 < high < 3.0
