"""Weights, offsets and robust errors of models of several classes: repeated patients, statsmodels and R's MASS."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.regression import FedMultinomialRegression, FedOrdinalRegression
from oracles.categorical_values import COLUMNS, draw
from oracles.robust_categorical_values import draw_design

# Written by tests/oracles/robust_categorical_values.py, which names the versions of the packages.
FROZEN = json.loads(Path(__file__).with_name("robust_categorical_values.json").read_text())
X, UNORDERED, ORDERED = draw()
CLUSTER, WEIGHT = draw_design()
TIMES = np.random.default_rng(5).integers(1, 4, len(X))
OPEN = mc.Policy(min_patients=0, max_parameters_per_patient=0)
CLASSES = ["none", "mild", "moderate", "severe"]
BOTH = pytest.mark.parametrize("kind", [FedMultinomialRegression, FedOrdinalRegression])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])


def fitted(model, columns=X, names=(), *, masked=False, repeat=None):
    """Fit to three sites; patients of a cluster are at the same site."""
    outcome = UNORDERED if isinstance(model, FedMultinomialRegression) else ORDERED
    site, names = CLUSTER.astype(int) % 3, [*COLUMNS, *names]
    if repeat is not None:
        columns, outcome, site = (np.repeat(each, repeat, axis=0) for each in (columns, outcome, site))
    data = mc.data.TableData(columns, outcome, columns=names, classes=CLASSES)
    sites = {f"s{i}": data.take(np.flatnonzero(site == i)) for i in range(3)}
    return model.fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=masked))


def with_column(values):
    return np.column_stack([X, values])


def slope_errors(model):
    frame = model.to_frame()
    return frame[frame.index.get_level_values(-1).isin(COLUMNS)]["standard_error"].to_numpy()


@pytest.mark.parametrize("errors", ["model", "HC0", "HC1"])
@pytest.mark.parametrize(
    "make",
    [FedMultinomialRegression, FedOrdinalRegression, lambda **terms: FedOrdinalRegression(link="probit", **terms)],
    ids=["multinomial", "ordinal", "probit"],
)
def test_frequency_weights_are_repeated_patients(make, errors):
    weighted = fitted(make(weights="times", errors=errors), with_column(TIMES), ["times"])
    repeated = fitted(make(errors=errors), repeat=TIMES)
    assert weighted.to_frame().to_numpy() == pytest.approx(repeated.to_frame().to_numpy(), rel=1e-10, nan_ok=True)
    for name in ("log_likelihood_", "null_log_likelihood_", "aic_", "bic_"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-12)
    assert weighted.tests_.keys() == repeated.tests_.keys()
    for name, test in repeated.tests_.items():
        assert weighted.tests_[name].statistic == pytest.approx(test.statistic, rel=1e-9)
    assert weighted.n_patients_ == len(X)


@MASKED
@BOTH
def test_robust_errors_equal_statsmodels(kind, masked):
    name = "multinomial" if kind is FedMultinomialRegression else "ordinal"
    robust = fitted(kind(errors="HC0"), masked=masked)
    # OrderedModel differentiates its likelihood numerically.
    rel = 1e-6 if name == "multinomial" else 1e-4
    assert slope_errors(robust) == pytest.approx(np.ravel(FROZEN[f"{name} HC0"]), rel=rel)
    clustered = fitted(kind(errors="cluster", cluster="ward"), with_column(CLUSTER), ["ward"], masked=masked)
    assert slope_errors(clustered) == pytest.approx(np.ravel(FROZEN[f"{name} cluster"]), rel=rel)
    assert list(clustered.tests_) == ["wald"]


@MASKED
def test_weighted_proportional_odds_equal_mass(masked):
    n, q, g = len(X), 6, len(np.unique(CLUSTER))
    terms = {"weights": "weight", "weight_type": "probability"}
    model = fitted(FedOrdinalRegression(errors="HC0", **terms), with_column(WEIGHT), ["weight"], masked=masked)
    assert model.coef_ == pytest.approx(FROZEN["weighted coefficients"], rel=1e-6)
    assert slope_errors(model) == pytest.approx(FROZEN["weighted HC0"], rel=1e-6)
    assert np.isnan([model.log_likelihood_, model.aic_, model.bic_]).all()
    assert model.equal_slopes_ is None
    columns = np.column_stack([X, WEIGHT, CLUSTER])
    clustered = fitted(
        FedOrdinalRegression(errors="cluster", cluster="ward", **terms), columns, ["weight", "ward"], masked=masked
    )
    factor = np.sqrt(g / (g - 1) * (n - 1) / (n - q))
    assert slope_errors(clustered) == pytest.approx(factor * np.array(FROZEN["weighted cluster"]), rel=1e-6)


@MASKED
def test_an_offset_of_proportional_odds_equals_mass(masked):
    model = fitted(FedOrdinalRegression(offset="known"), with_column(WEIGHT / 2), ["known"], masked=masked)
    # polr differentiates numerically, and ends at the tolerance of optim.
    assert model.coef_ == pytest.approx(FROZEN["offset coefficients"], rel=1e-4)
    assert slope_errors(model) == pytest.approx(FROZEN["offset errors"], rel=1e-3)
    assert model.log_likelihood_ == pytest.approx(FROZEN["offset log-likelihood"][0], rel=1e-8)
    assert model.null_log_likelihood_ == pytest.approx(FROZEN["offset null"][0], rel=1e-8)
    assert list(model.tests_) == ["wald", "likelihood_ratio", "equal_slopes"]
    shifted = model.predict_proba(np.column_stack([X, np.zeros(len(X))]))
    logits = [np.log(each[:, 0] / (1 - each[:, 0])) for each in (shifted, model.predict_proba(with_column(WEIGHT / 2)))]
    assert logits[0] - logits[1] == pytest.approx(WEIGHT / 2)


@BOTH
def test_a_cluster_per_patient_is_hc0_up_to_its_factor(kind):
    patient = np.arange(len(X), dtype=float)
    clustered = fitted(kind(errors="cluster", cluster="id"), with_column(patient), ["id"])
    robust = fitted(kind(errors="HC1"))
    assert slope_errors(clustered) == pytest.approx(slope_errors(robust), rel=1e-10)


@BOTH
def test_probability_weights_do_not_depend_on_their_unit(kind):
    terms = {"weights": "weight", "weight_type": "probability", "errors": "HC1"}
    one, ten = (fitted(kind(**terms), with_column(WEIGHT * unit), ["weight"]) for unit in (1.0, 10.0))
    assert ten.to_frame().to_numpy() == pytest.approx(one.to_frame().to_numpy(), rel=1e-8, nan_ok=True)


@BOTH
def test_a_saved_model_with_weights_is_the_same(kind, tmp_path):
    model = fitted(kind(weights="weight", weight_type="probability", errors="HC1"), with_column(WEIGHT), ["weight"])
    model.save(tmp_path)
    loaded = kind.load(tmp_path)
    assert str(loaded) == str(model)
    assert "log-likelihood" not in str(loaded.summary())
    assert "probability weights weight" in loaded.describe_model()
    assert "robust standard errors (HC1)" in loaded.describe_model()


@BOTH
@pytest.mark.parametrize(
    ("terms", "where"),
    [
        ({"cluster": "ward"}, "cluster"),
        ({"errors": "cluster"}, "cluster"),
        ({"weights": "weight", "weight_type": "probability"}, "errors"),
        ({"weights": "ward", "errors": "cluster", "cluster": "ward"}, "offset, weights, cluster"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(kind, terms, where):
    with pytest.raises(ConfigurationError) as caught:
        fitted(kind(**terms))
    assert caught.value.where == where
    assert caught.value.hint


@BOTH
def test_columns_that_do_not_exist_or_have_wrong_values_are_refused(kind):
    with pytest.raises(SchemaMismatch, match="got dose"):
        fitted(kind(weights="dose"))
    with pytest.raises(DataError, match="weights must be at least 0"):
        fitted(kind(weights="weight"), with_column(WEIGHT - 1.0), ["weight"])
    data = mc.data.TableData(with_column(np.ones(len(X))), ORDERED, columns=[*COLUMNS, "ward"], classes=CLASSES)
    federation = mc.Federation.in_process({"a": data}, policy=OPEN, secure_sum=False)
    with pytest.raises(DataError, match="at least two clusters"):
        kind(errors="cluster", cluster="ward").fit(federation)


@BOTH
def test_a_class_without_weight_is_named(kind):
    outcome = UNORDERED if kind is FedMultinomialRegression else ORDERED
    with pytest.raises(DataError, match="patients of every class; got none of severe"):
        fitted(kind(weights="weight"), with_column((outcome < 3).astype(float)), ["weight"])
