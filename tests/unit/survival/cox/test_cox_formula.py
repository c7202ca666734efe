"""Formulas of the Cox models: the fit to columns that are computed by hand, at the sites and for new patients."""

import warnings

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, LeftOutWarning, SchemaMismatch
from multicentre.formula.splines import natural_splines
from multicentre.survival import FedCox, FedMixedCox, FedStack, SurvivalEvaluation
from multicentre.validation.external.model_files import describe_model

N, N_SITES = 600, 3
OPEN = mc.Policy(min_patients=0, exact_times=True)
NS = "ns(age, knots=[55, 65], boundary=[45, 78])"
FORMULA = f"{NS} + C(stage, ref='II') + log(bmi):sex + sex"
CATEGORIES = {"stage": ["I", "II", "III"], "sex": ["f", "m"]}
FITS = {
    "stratified": lambda **options: FedCox(**options),
    "breslow": lambda **options: FedCox(ties="breslow", errors="HC0", **options),
    "grid": lambda **options: FedCox("grid", n_times=40, errors="HC0", **options),
    "exact": lambda **options: FedCox("exact", **options),
    "one round": lambda **options: FedCox(one_round=True, **options),
    "gamma effects": lambda **options: FedMixedCox(n_times=20, **options),
    "fixed effects": lambda **options: FedMixedCox("fixed", n_times=20, **options),
}


def draw(seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 10, N),
            "bmi": rng.normal(26, 4, N),
            "stage": rng.choice(["I", "II", "III"], N),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    predictor = np.sin(table["age"] / 8) + 0.6 * (table["stage"] == "III") + 0.3 * (np.arange(N) % N_SITES)
    time, end = rng.exponential(10 * np.exp(-predictor)), rng.exponential(20, N)
    return table.assign(time=np.ceil(4 * np.minimum(time, end)), event=(time <= end).astype(int))


def data_of(table):
    categories = {name: levels for name, levels in CATEGORIES.items() if name in table}
    return mc.data.SurvivalData.from_frame(table, time="time", event="event", categories=categories)


def federate(table, **terms):
    data = data_of(table)
    sites = {f"s{i}": data.take(np.arange(i, len(data), N_SITES)) for i in range(N_SITES)}
    terms.setdefault("secure_sum", False)
    terms.setdefault("policy", OPEN)
    return mc.Federation.in_process(sites, **terms)


def by_hand(table):
    """Compute the columns of the formula, in the order of its terms."""
    male, log = (table["sex"] == "m").to_numpy(np.float64), np.log(table["bmi"].to_numpy())
    spline = natural_splines(table["age"].to_numpy(), np.array([55.0, 65.0]), (45.0, 78.0))
    levels = [(table["stage"] == level).to_numpy(np.float64) for level in ("I", "III")]
    X = np.column_stack([spline, *levels, male, log * (1 - male), log * male])
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    return frame.assign(time=table["time"], event=table["event"])


def results(model):
    numbers = [np.sort(getattr(model, name)) for name in ("coef_", "standard_errors_")]
    return np.concatenate([*numbers, [model.log_likelihood_, model.tests_["wald"].statistic]])


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("name", FITS)
def test_each_fit_is_that_to_columns_computed_by_hand(name, masked):
    table = draw()
    model = FITS[name](formula=FORMULA).fit(federate(table, secure_sum=masked))
    expected = FITS[name]().fit(federate(by_hand(table), secure_sum=masked))
    assert results(model) == pytest.approx(results(expected), rel=1e-5 if masked else 1e-9)
    new = draw(1).iloc[::7]
    assert model.predict(new) == pytest.approx(expected.predict(by_hand(new)), rel=1e-5 if masked else 1e-9)
    columns = model.feature_names_in_
    assert {*columns} == {*(f"{NS}[{i}]" for i in (1, 2, 3)), "stage=I", "stage=III", "sex=m", *columns[-2:]}
    assert model.term_tests()["df"].to_dict() == {NS: 3, "stage": 2, "sex": 1, "log(bmi):sex": 2}


@pytest.mark.filterwarnings("ignore:Starting with pandas")
def test_the_knots_of_all_patients_are_shared_and_the_fit_is_that_of_lifelines():
    lifelines = pytest.importorskip("lifelines")
    table = draw()
    model = FedCox(formula="ns(age, df=4) * sex", ties="efron").fit(federate(table, secure_sum=True))
    rows = model.filled(table)
    frame = pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])])
    frame = frame.assign(time=table["time"], event=table["event"], site=np.arange(N) % N_SITES)
    pooled = lifelines.CoxPHFitter().fit(frame, "time", "event", strata=["site"], fit_options={"precision": 1e-10})
    assert model.coef_ == pytest.approx(pooled.params_.to_numpy(), abs=1e-5)
    assert model.standard_errors_ == pytest.approx(pooled.standard_errors_.to_numpy(), rel=1e-5)
    spline = next(factor for factor in model.design_.factors if factor.is_spline)
    low, high, *knots = spline.steps[0].numbers
    quantiles = np.quantile(table["age"], [0.05, 0.95, 0.25, 0.5, 0.75])
    assert [low, high, *knots] == pytest.approx(quantiles, abs=0.5)


@pytest.mark.parametrize("name", ["stratified", "grid", "gamma effects"])
def test_saved_models_tables_arrays_and_evaluations_agree(name, tmp_path):
    table = draw()
    federation, data = federate(table), data_of(table)
    model = FITS[name](formula=FORMULA).fit(federation)
    expected = model.predict(table)
    for X in (table[["stage", "sex", "bmi", "age"]], data, data.X):
        assert np.array_equal(model.predict(X), expected)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert np.array_equal(loaded.predict_time(table), model.predict_time(table))
    assert model.score(data) == loaded.score(data)
    evaluation = SurvivalEvaluation(model, horizon=float(model.times_[-1])).fit(federation)
    plain = FITS[name]().fit(federate(by_hand(table)))
    other = SurvivalEvaluation(plain, horizon=float(plain.times_[-1])).fit(federate(by_hand(table)))
    assert evaluation.to_frame()["value"].to_numpy() == pytest.approx(other.to_frame()["value"].to_numpy(), abs=1e-6)
    assert evaluation.assess(data) == pytest.approx(model.assess(data))
    evaluation.save(tmp_path / "evaluation")
    assert SurvivalEvaluation.load(tmp_path / "evaluation").assess(data) == pytest.approx(model.assess(data))


def test_a_spline_is_reported_by_its_test_and_its_curve():
    table = draw()
    model = FedCox(formula=FORMULA).fit(federate(table))
    assert model.to_frame().loc[f"{NS}[1]", ["hazard_ratio", "lower", "upper"]].isna().all()
    model.exposure = "age"
    assert model.answer().startswith(f"Effect of age by {NS}: chi-square ")
    model.exposure = "stage"
    assert " of stage=I: " in model.answer()
    titles = [figure.title for figure in model.figures({}, {})]
    assert titles == ["Hazard ratios", "Hazard ratios of all sites", "Tests of terms", "Effect of age", "Tests"]
    curve = model.effect_curve("age", reference=60.0, values=[50.0, 60.0])
    rows = model.filled(table.iloc[:1].assign(age=50.0)) - model.filled(table.iloc[:1].assign(age=60.0))
    assert curve["effect"].tolist() == pytest.approx([(rows @ model.coef_)[0], 0.0], abs=1e-9)
    alone = FedCox(formula=NS).fit(federate(table))
    assert alone.main_figure().title == "Effect of age"


@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
def test_missing_values_of_the_formula_are_handled_as_those_of_columns(missing):
    table = draw()
    table.loc[::9, "bmi"] = np.nan
    table.loc[::4, "stage"] = None  # not in the formula: leaves nobody out
    federation = federate(table)
    model = FedCox(formula="age + log(bmi)", missing=missing).fit(federation)
    plain = table[["age", "time", "event"]].assign(term=np.log(table["bmi"]))[["age", "term", "time", "event"]]
    expected = FedCox(missing=missing).fit(federate(plain))
    assert model.n_patients_ == expected.n_patients_ == (N - len(table.iloc[::9]) if missing == "complete" else N)
    assert model.to_frame().to_numpy() == pytest.approx(expected.to_frame().to_numpy(), rel=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.predict(table) == pytest.approx(expected.predict(plain), rel=1e-8, nan_ok=True)
    evaluation = SurvivalEvaluation(model).fit(federation)
    other = SurvivalEvaluation(expected).fit(federate(plain))
    assert evaluation.to_frame()["value"].to_numpy() == pytest.approx(other.to_frame()["value"].to_numpy(), abs=1e-6)
    assert evaluation.missing_line_.split(":")[0] == other.missing_line_.split(":")[0]


@pytest.mark.parametrize("step", ["build_design", "sum_derivatives"])
def test_a_lost_site_leaves_no_trace(step):
    table = draw()
    terms = {"secure_sum": True, "quorum": 2, "faults": Faults(lose={"s2": step})}
    with pytest.warns(LeftOutWarning):
        model = FedCox(formula="ns(age, df=3) + sex").fit(federate(table, **terms))
    data = data_of(table)
    rest = {f"s{i}": data.take(np.arange(i, N, N_SITES)) for i in (0, 1)}
    alone = FedCox(formula="ns(age, df=3) + sex").fit(mc.Federation.in_process(rest, policy=OPEN))
    if step == "sum_derivatives":  # the fit begins again, with knots of the other sites
        assert model.coef_ == pytest.approx(alone.coef_, rel=1e-6)
    assert "s2" in str(model.summary())


def test_a_site_with_few_patients_of_a_level_refuses_the_design_unmasked():
    table = draw()
    table.loc[table["stage"] == "III", "stage"] = "I"
    table.loc[[0, 3, 6], "stage"] = "III"  # all at s0
    with pytest.raises(DisclosureRefused, match="s0"):
        FedCox(formula="age + stage").fit(federate(table, policy=mc.Policy()))
    with pytest.raises(DataError, match="these have none: stage=II, stage=III"):
        FedCox(formula="age + stage").fit(federate(table.assign(stage="I"), secure_sum=True))


def test_estimates_of_sites_have_the_knots_of_all_sites():
    table = draw()
    model = FedCox(formula="ns(age, df=3) + sex").fit(federate(table))
    estimates = model.by_site()
    site = table.iloc[::N_SITES]
    built = pd.DataFrame(model.filled(site), columns=[*"abcd"], index=site.index)
    data = data_of(built.assign(time=site["time"], event=site["event"]))
    alone = FedCox().fit(mc.Federation.in_process({"s0": data}, policy=OPEN))
    assert estimates.coefficients[0] == pytest.approx(alone.coef_, rel=1e-6)


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        ("died ~ age", ConfigurationError, "formula must have no outcome.*; got died"),
        ("age - 1", ConfigurationError, "formula of FedCox must have an intercept"),
        ("age + weight", SchemaMismatch, "weight"),
        ("age + exp(bmi)", ConfigurationError, "function must be one of"),
        (" ", ConfigurationError, "formula must be None or a formula"),
    ],
)
def test_clear_errors(formula, error, message):
    with pytest.raises(error, match=message):
        FedCox(formula=formula).fit(federate(draw()))


def test_models_of_a_formula_are_no_members_of_a_mixture():
    federation = federate(draw())
    model = FedCox("grid", formula="age").fit(federation)
    with pytest.raises(ConfigurationError, match="must be of the columns of the data; got FedCox with a formula"):
        FedStack([model, model]).fit(federation)


def test_a_model_of_a_formula_is_described_by_its_columns():
    model = FedCox("grid", formula="age + sex").fit(federate(draw()))
    lines = dict(describe_model(model.evaluated_model()))
    assert lines["kind"].startswith("CoxModel")
    assert lines["sex=m"] == f"{model.coef_[1]:g}"
