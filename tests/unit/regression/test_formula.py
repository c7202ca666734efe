"""Formulas of the regression models: agreement over sites, predictions, missing entries, and refusals."""

import warnings

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.regression import FedGLM, FedLogisticRegression
from multicentre.regression.maths import predicted_mean

OPEN = mc.Policy(min_patients=0)
N = 240
CATEGORIES = {"stage": ["I", "II", "III"]}


def frame(seed=0):
    rng = np.random.default_rng(seed)
    columns = {"age": rng.normal(60, 10, N), "dose": rng.lognormal(size=N), "stage": rng.choice(["I", "II", "III"], N)}
    table = pd.DataFrame(columns)
    predictor = 0.04 * (table["age"] - 60) + 0.5 * np.log(table["dose"]) + 0.5 * (table["stage"] == "III")
    return table.assign(died=(rng.random(N) < 1 / (1 + np.exp(-predictor))).astype(int))


def data_of(table):
    return mc.data.TableData.from_frame(table, outcome="died", categories=CATEGORIES)


def federate(data, *, secure=False, policy=OPEN):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=policy, secure_sum=secure)


def test_a_formula_of_all_columns_is_the_fit_without_formula():
    data = data_of(frame()).keep_columns(["age", "dose"])
    with_formula = FedGLM("binomial", formula="died ~ age + dose").fit(federate(data))
    without = FedGLM("binomial").fit(federate(data))
    assert np.array_equal(with_formula.coef_, without.coef_)
    assert sum(with_formula.session.traffic.calls.values()) == sum(without.session.traffic.calls.values()) + 1


@pytest.mark.slow
def test_predictions_are_of_frames_tables_and_saved_models(tmp_path):
    table = frame()
    data = data_of(table)
    model = FedLogisticRegression(formula="age:stage + ns(dose, df=3)").fit(federate(data))
    expected = model.predict_proba(table)
    assert np.array_equal(model.predict_proba(table[["stage", "dose", "age"]]), expected)
    assert np.array_equal(model.predict_proba(data), expected)
    assert np.array_equal(model.predict_proba(data.X), expected)
    model.save(tmp_path / "model")
    loaded = FedLogisticRegression.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(table), expected)
    ends = loaded.predict_interval(table[:5])
    assert ((ends[:, 0] < expected[:5, 1]) & (expected[:5, 1] < ends[:, 1])).all()


def test_only_columns_of_the_formula_count_as_missing():
    table = frame()
    table.loc[::5, "dose"] = np.nan
    data = data_of(table)
    model = FedLogisticRegression(formula="age + stage").fit(federate(data))
    assert model.n_patients_ == N
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.assess(data)
    assert FedLogisticRegression(formula="age + dose").fit(federate(data)).n_patients_ == N - N // 5


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_missing_terms_are_filled_and_marked(missing):
    table = frame()
    table.loc[::5, "dose"] = np.nan
    data = data_of(table)
    model = FedLogisticRegression(formula="age + log(dose)", missing=missing).fit(federate(data))
    term = np.log(table["dose"])
    filled = pd.DataFrame({"age": table["age"], "term": term.fillna(term.mean()), "died": table["died"]})
    if missing == "indicator":
        filled.insert(2, "gap", table["dose"].isna().astype(float))
    same = mc.data.TableData.from_frame(filled, outcome="died")
    expected = FedLogisticRegression().fit(federate(same))
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-9)
    assert model.predict_proba(table) == pytest.approx(expected.predict_proba(same), rel=1e-9)


def test_the_outcome_of_the_formula_must_be_that_of_the_data():
    with pytest.raises(SchemaMismatch, match="must be that of the data, died; got alive"):
        FedLogisticRegression(formula="alive ~ age").fit(federate(data_of(frame())))
    unnamed = mc.data.TableData(frame()[["age"]].to_numpy(), frame()["died"], columns=["age"])
    FedLogisticRegression(formula="alive ~ age").fit(federate(unnamed))


@pytest.mark.parametrize(
    ("formula", "options", "error", "message"),
    [
        ("died ~ weight", {}, SchemaMismatch, "got weight"),
        ("age + exp(dose)", {}, ConfigurationError, "function must be one of"),
        ("log(zero)", {}, DataError, r"defined for all values; those of log\(zero\) are not"),
        ("C(zero, levels=[0, 1])", {}, DataError, r"those of C\(zero, levels=\[0, 1\]\) are not"),
        ("C(stage, ref='IV')", {}, ConfigurationError, "got IV"),
        ("ns(age, knots=[500], boundary=[40, 900])", {}, DataError, r"have none: ns.*range 2"),
        ("age + offset(dose)", {"offset": "dose"}, ConfigurationError, "one offset"),
        ("age + dose", {"weights": "dose"}, ConfigurationError, "must not be in the formula; got dose"),
        ("age - 1", {"missing": "mean"}, ConfigurationError, "without intercept"),
        (" ", {}, ConfigurationError, "formula must be None or a formula"),
        ("age + dose + age:dose + power(age, 1)", {}, DataError, "combinations of others: age, power"),
    ],
)
def test_clear_errors(formula, options, error, message):
    table = frame().assign(zero=np.resize([0.0, 1.0, 2.0, 5.0], N))
    with pytest.raises(error, match=message):
        FedGLM("binomial", formula=formula, **options).fit(federate(data_of(table)))


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(("column", "factor"), [("dose", "log(dose)"), ("rooms", "C(rooms, levels=[1, 2])")])
def test_an_error_of_a_formula_names_the_sites_and_the_factor_but_no_value(column, factor, secure):
    table = frame().assign(rooms=np.resize([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], N))
    table.loc[[1, 7], column] = -77.0  # both at s1
    with pytest.raises(DataError) as at_one:
        FedLogisticRegression(formula=f"age + {factor}").fit(federate(data_of(table), secure=secure))
    assert at_one.value.where == "s1, formula"
    assert f"those of {factor} are not" in str(at_one.value)
    assert "77" not in str(at_one.value)
    table.loc[2, column] = -77.0
    with pytest.raises(DataError, match=r"at 2 of 3 sites \(s1, s2\), formula: .* defined for all values"):
        FedLogisticRegression(formula=f"age + {factor}").fit(federate(data_of(table), secure=secure))


def test_a_level_without_patients_is_named():
    table = frame()
    table.loc[table["stage"] == "III", "stage"] = "I"
    with pytest.raises(DataError, match="these have none: stage=III"):
        FedLogisticRegression(formula="age + stage").fit(federate(data_of(table), secure=True))


def test_a_column_with_few_values_needs_stated_knots():
    table = frame().assign(rooms=np.resize([1.0, 2.0, 3.0], N))
    with pytest.raises(DataError, match="at least 5 different quantiles"):
        FedLogisticRegression(formula="ns(rooms, df=4)").fit(federate(data_of(table)))


def test_sites_are_compared_with_stated_knots_only():
    model = FedLogisticRegression(formula="ns(age, df=3)").fit(federate(data_of(frame())))
    with pytest.raises(ConfigurationError, match="must have stated knots"):
        model.by_site()


def test_without_intercept_there_is_no_row_for_it():
    model = FedLogisticRegression(formula="stage - 1").fit(federate(data_of(frame())))
    assert list(model.to_frame().index) == ["stage=I", "stage=II", "stage=III"]
    assert model.intercept_ == 0.0
    share = frame().groupby("stage")["died"].mean().to_numpy()
    assert model.coef_ == pytest.approx(np.log(share / (1 - share)), rel=1e-8)


def mean_prediction(model, values, table):
    """Return the mean prediction with other coefficients."""
    rows, offset = model.model_.design(model._columns_of(table))
    return predicted_mean(model._link, rows @ values + offset).mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "formula"),
    [
        ("binomial", "age * stage + ns(dose, df=3)"),
        ("gaussian", "log(dose):age + C(stage, ref='II') + power(age, 2)"),
    ],
)
def test_marginal_effects_are_differences_of_predictions(family, formula):
    """Effects and their delta-method errors, by small changes of columns and of coefficients."""
    table = frame()
    data = data_of(table)
    if family == "gaussian":
        data = mc.data.TableData.from_frame(
            table.assign(died=9 + 0.1 * table["age"] + np.log(table["dose"]) + np.random.default_rng(3).normal(size=N)),
            outcome="died",
            kind="number",
            categories=CATEGORIES,
        )
    model = FedGLM(family, formula=formula, tol=1e-10).fit(federate(data))
    effects, values = model.marginal_effects(), model.model_.values
    reference = "II" if "ref='II'" in formula else "I"

    def effect_of(name, values):
        if name in ("age", "dose"):
            h = 1e-4
            ends = [mean_prediction(model, values, table.assign(**{name: table[name] + s * h})) for s in (1, -1)]
            return (ends[0] - ends[1]) / (2 * h)
        level = table.assign(stage=name.partition("=")[2])
        return mean_prediction(model, values, level) - mean_prediction(model, values, table.assign(stage=reference))

    for name, row in effects.iterrows():
        assert row["effect"] == pytest.approx(effect_of(name, values), rel=1e-5)
        steps = 1e-4 * np.sqrt(np.diagonal(model.covariance_))
        slopes = [
            (effect_of(name, values + step * unit) - effect_of(name, values - step * unit)) / (2 * step)
            for step, unit in zip(steps, np.eye(len(values)), strict=True)
        ]
        assert row["standard_error"] == pytest.approx(np.sqrt(slopes @ model.covariance_ @ slopes), rel=1e-4)
    assert len(effects) == 4


def test_marginal_effects_of_plain_columns_are_those_without_formula():
    data = data_of(frame()).keep_columns(["age", "dose"])
    with_formula = FedGLM("binomial", formula="age + dose").fit(federate(data)).marginal_effects()
    without = FedGLM("binomial").fit(federate(data)).marginal_effects()
    pd.testing.assert_frame_equal(with_formula, without, rtol=1e-9)
