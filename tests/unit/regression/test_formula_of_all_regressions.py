"""A formula means the same in every regression: the fit to columns that are computed by hand."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError
from multicentre.formula.splines import b_splines, natural_splines
from multicentre.regression import (
    FedGLMM,
    FedLinearMixedModel,
    FedLinearRegression,
    FedMultinomialRegression,
    FedOrdinalRegression,
)

N, N_SITES = 600, 4
OPEN = mc.Policy(min_patients=0)
CATEGORIES = {"stage": ["I", "II", "III"], "sex": ["f", "m"]}
CLASSES = ["none", "mild", "severe"]
MODELS = {
    "linear mixed": (FedLinearMixedModel, "number"),
    "logistic mixed": (FedGLMM, "class"),
    "multinomial": (FedMultinomialRegression, "classes"),
    "ordinal": (FedOrdinalRegression, "classes"),
}
NS = "ns(age, knots=[55, 65], boundary=[45, 78])"
STATED = f"y ~ {NS} + C(stage, ref='II') + log(bmi):sex + sex"
BY_QUANTILES = "bs(age, df=4) * sex"


def draw(outcome):
    rng = np.random.default_rng(11)
    site = np.arange(N) % N_SITES
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 10, N),
            "bmi": rng.normal(26, 4, N),
            "stage": rng.choice(["I", "II", "III"], N),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    predictor = np.sin(table["age"] / 8) + 0.6 * (table["stage"] == "III") + 0.4 * (site - 1.5)
    latent = predictor + rng.logistic(size=N)
    y = {"number": latent, "class": (latent > 0).astype(int), "classes": np.digitize(latent, [-1.0, 1.0])}[outcome]
    return table.assign(y=y), site


def data_of(table, outcome):
    options = {"classes": CLASSES} if outcome == "classes" else {"kind": "number"} if outcome == "number" else {}
    categories = {name: levels for name, levels in CATEGORIES.items() if name in table}
    named = table.assign(y=np.array(CLASSES)[table["y"]]) if outcome == "classes" else table
    return mc.data.TableData.from_frame(named, outcome="y", categories=categories, **options)


def federate(table, site, outcome, **terms):
    data = data_of(table, outcome)
    sites = {f"s{i}": data.take(np.flatnonzero(site == i)) for i in range(N_SITES) if (site == i).any()}
    terms.setdefault("secure_sum", False)
    return mc.Federation.in_process(sites, policy=OPEN, **terms)


def columns_of(table, formula, design=None):
    """Compute the columns of a formula, in the order of its terms."""
    age, male = table["age"].to_numpy(), (table["sex"] == "m").to_numpy(np.float64)
    if formula == STATED:
        spline = natural_splines(age, np.array([55.0, 65.0]), (45.0, 78.0))
        log = np.log(table["bmi"].to_numpy())
        levels = [table["stage"] == "I", table["stage"] == "III"]
        parts = [spline, *levels, male, log * (1 - male), log * male]
    else:
        _, low, high, *knots = next(factor for factor in design.factors if factor.is_spline).steps[-1].numbers
        spline = b_splines(age, np.array(knots), (low, high))
        parts = [spline, male, spline * male[:, None]]
    return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])


def by_hand(table, formula, design):
    X = columns_of(table, formula, design)
    return pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]).assign(y=table["y"].to_numpy())


def results(model):
    values = [np.sort(model.to_frame()[name].to_numpy()) for name in ("coefficient", "standard_error")]
    values += [np.array([model.log_likelihood_, model.aic_]), np.ravel(getattr(model, "random_covariance_", 0.0))]
    return np.concatenate([*values, [model.tests_["wald"].statistic]])


def chances(model, table):
    return model.predict_proba(table) if hasattr(model, "predict_proba") else model.predict(table)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("formula", [STATED, BY_QUANTILES])
@pytest.mark.parametrize("name", MODELS)
def test_each_fit_is_that_to_columns_computed_by_hand(name, formula, masked):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    model = kind(formula=formula, tol=1e-10).fit(federate(table, site, outcome, secure_sum=masked))
    explicit = by_hand(table, formula, model.design_)
    expected = kind(tol=1e-10).fit(federate(explicit, site, outcome, secure_sum=masked))
    assert results(model) == pytest.approx(results(expected), rel=1e-5 if masked else 1e-10)
    new, _ = draw(outcome)
    new = new.iloc[::7].assign(age=lambda t: t["age"] + 5)
    hand = by_hand(new, formula, model.design_).drop(columns="y")
    assert chances(model, new) == pytest.approx(chances(expected, hand), abs=1e-5 if masked else 1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_of_a_saved_model_tables_and_scores_agree(name, tmp_path):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    federation = federate(table, site, outcome)
    model = kind(formula=STATED).fit(federation)
    expected, data = chances(model, table), data_of(table, outcome)
    assert np.array_equal(chances(model, table[["stage", "sex", "bmi", "age"]]), expected)
    assert np.array_equal(chances(model, data), expected)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model")
    assert np.array_equal(chances(loaded, table), expected)
    scoring = "r2" if outcome == "number" else "accuracy"
    assert mc.validation.score(model, federation, scoring).values[scoring] == pytest.approx(model.score(data))
    names = list(model.to_frame().index.get_level_values(-1).unique())
    wanted = [*(f"{NS}[{i}]" for i in (1, 2, 3)), "stage=I", "stage=III", "sex=m", "log(bmi):sex=f", "log(bmi):sex=m"]
    assert [one for one in names if one in wanted] == wanted
    tests = model.term_tests()
    n_classes = 2 if name == "multinomial" else 1
    assert tests["df"].to_dict() == {
        term: df * n_classes for term, df in {NS: 3, "stage": 2, "sex": 1, "log(bmi):sex": 2}.items()
    }
    model.exposure = "age"
    assert model.answer().startswith(f"Effect of age by {NS}: chi-square ")
    model.exposure = "sex"
    assert " of sex=m" in model.answer()
    assert {"Coefficients", "Tests of terms"} <= {figure.title for figure in model.figures({}, {})}
    assert "joint" in str(model.summary()).lower()
    if hasattr(model, "effect_curve"):
        curve = model.effect_curve("age", reference=60.0, values=[50.0, 60.0])
        moved = table.iloc[:1].assign(sex="f", age=[50.0]), table.iloc[:1].assign(sex="f", age=[60.0])
        linear = [model.model_.linear(model._columns_of(one))[0] for one in moved]
        assert curve["effect"].tolist() == pytest.approx([linear[0] - linear[1], 0.0], abs=1e-9)


@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
@pytest.mark.parametrize("name", MODELS)
def test_missing_values_of_the_formula_are_handled_as_those_of_columns(name, missing):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    table.loc[::9, "bmi"] = np.nan
    table.loc[::4, "stage"] = None  # not in the formula: leaves nobody out
    model = kind(formula="age + log(bmi)", missing=missing).fit(federate(table, site, outcome))
    plain = pd.DataFrame({"age": table["age"], "term": np.log(table["bmi"]), "y": table["y"]})
    expected = kind(missing=missing).fit(federate(plain, site, outcome))
    assert model.n_patients_ == expected.n_patients_ == (N - len(table.iloc[::9]) if missing == "complete" else N)
    assert model.to_frame().to_numpy() == pytest.approx(expected.to_frame().to_numpy(), rel=1e-8, nan_ok=True)
    if missing == "complete":
        with pytest.raises(DataError, match="must have no missing values"):
            model.predict(table)
        with pytest.warns(UserWarning, match="patients have missing values"):
            scored = model.score(data_of(table, outcome))
        assert scored == pytest.approx(expected.score(data_of(plain.dropna(), outcome)), rel=1e-9)
    else:
        assert chances(model, table) == pytest.approx(chances(expected, plain), rel=1e-8)


@pytest.mark.parametrize("name", ["multinomial", "ordinal"])
def test_sites_are_compared_with_stated_knots_only(name):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    federation = federate(table, site, outcome)
    model = kind(formula=f"{NS} + stage").fit(federation)
    estimates = model.by_site().to_frame()
    columns = {label if isinstance(label, str) else label[1] for label in estimates["column"]}
    assert {"stage=II", "stage=III"} <= columns
    assert not any(column.startswith("ns(") for column in columns)
    assert np.isfinite(estimates["estimate"]).all()
    with pytest.raises(ConfigurationError, match="must have stated knots"):
        kind(formula="ns(age, df=3)").fit(federation).by_site()


@pytest.mark.parametrize("name", ["multinomial", "ordinal"])
def test_the_coefficients_of_a_spline_alone_are_drawn(name):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    model = kind(formula=NS).fit(federate(table, site, outcome))
    titles = [figure.title for figure in model.figures({}, {})]
    assert titles == ["Coefficients", "Coefficients of all sites", "Tests of terms"]
    assert model.answer().startswith("Effect of age by")


@pytest.mark.parametrize(
    ("name", "formula", "options", "message"),
    [
        ("linear mixed", "age - 1", {}, "must have an intercept; got a formula without intercept"),
        ("ordinal", "0 + stage", {}, "must have an intercept"),
        ("multinomial", "age + offset(bmi)", {}, "must have no offset; got"),
        ("logistic mixed", "age + offset(bmi)", {"offset": "bmi"}, "must be one offset"),
        ("logistic mixed", "age + bmi", {"offset": "bmi"}, "must not be in the formula; got bmi"),
        ("logistic mixed", "age", {"slopes": ["bmi"]}, "slopes must be covariates; got bmi"),
        ("ordinal", " ", {}, "formula must be None or a formula"),
    ],
)
def test_clear_errors(name, formula, options, message):
    kind, outcome = MODELS[name]
    table, site = draw(outcome)
    with pytest.raises(ConfigurationError, match=message):
        kind(formula=formula, **options).fit(federate(table, site, outcome))


def test_an_offset_and_slopes_are_columns_of_the_formula():
    rng = np.random.default_rng(3)
    days, age, site = rng.uniform(10, 60, N), rng.normal(60, 10, N), np.arange(N) % N_SITES
    y = rng.poisson(days / 30 * np.exp(0.02 * (age - 60) * (1 + 0.5 * site) + 0.3 * site)).astype(float)
    table = pd.DataFrame({"days": days, "age": age, "y": y})
    plain = pd.DataFrame({"decades": age / 10, "log_days": np.log(days), "y": y})
    model = FedGLMM("poisson", formula="y ~ scale(age, 0, 10) + offset(log(days))", slopes=["scale(age, 0, 10)"])
    expected = FedGLMM("poisson", offset="log_days", slopes=["decades"]).fit(federate(plain, site, "number"))
    model.fit(federate(table, site, "number"))
    assert results(model) == pytest.approx(results(expected), rel=1e-8)
    assert model.predict(table) == pytest.approx(expected.predict(plain), rel=1e-8)
    assert len(model.site_effects()) == 2 * N_SITES


@pytest.mark.parametrize("kind", [FedLinearRegression, FedLinearMixedModel])
def test_an_offset_of_numbers_is_subtracted_from_the_outcome(kind):
    rng = np.random.default_rng(3)
    known, age, site = rng.uniform(100, 160, N), rng.normal(60, 10, N), np.arange(N) % N_SITES
    y = known + 0.5 * age + rng.normal(size=N) + site
    table = pd.DataFrame({"known": known, "age": age, "y": y})
    plain = pd.DataFrame({"age": age, "y": y - known})
    expected = kind().fit(federate(plain, site, "number"))
    of_formula = kind(formula="y ~ age + offset(known)").fit(federate(table, site, "number"))
    for model in (kind(offset="known").fit(federate(table, site, "number")), of_formula):
        assert results(model) == pytest.approx(results(expected), rel=1e-7)
        assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
        assert model.predict(table) == pytest.approx(expected.predict(plain) + known, rel=1e-8)
    if kind is FedLinearMixedModel:
        effects = [each.site_effects().select_dtypes("number").to_numpy() for each in (of_formula, expected)]
        assert effects[0] == pytest.approx(effects[1], rel=1e-6, abs=1e-8)


def test_an_ordinal_formula_takes_an_offset():
    table, site = draw("classes")
    model = FedOrdinalRegression(formula="age + offset(log(bmi))").fit(federate(table, site, "classes"))
    plain = table[["age", "y"]].assign(log_bmi=np.log(table["bmi"]))
    expected = FedOrdinalRegression(offset="log_bmi").fit(federate(plain, site, "classes"))
    assert results(model) == pytest.approx(results(expected), rel=1e-7)
    assert model.predict_proba(table) == pytest.approx(expected.predict_proba(plain), rel=1e-8)
    assert model.null_log_likelihood_ == pytest.approx(expected.null_log_likelihood_, rel=1e-9)
