"""Cross-validated penalties: parameters, folds of persons, and attributes."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError
from multicentre.regression import FedGLM, FedGLMCV
from multicentre.regression.path.folds import divide

OPEN = mc.Policy(min_patients=0)
N = 300


def data_of(*, classes=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)) * np.array([1.0, 5.0, 1.0, 1.0]) + np.array([60.0, 0.0, 0.0, 0.0])
    predictor = X[:, 0] - 60 + 0.1 * X[:, 1]
    if classes:
        return mc.data.TableData(X, (rng.random(N) < 1 / (1 + np.exp(-predictor))).astype(int))
    return mc.data.TableData(X, 9 + predictor + rng.normal(size=N), outcome="number")


def federate(data, *, secure=False):
    sites = {f"s{i}": data.take(np.arange(i, N, 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@pytest.mark.parametrize("classes", [False, True], ids=["gaussian", "binomial"])
def test_the_fit_is_that_of_the_chosen_penalty(classes, tmp_path):
    data, family = data_of(classes=classes), "binomial" if classes else "gaussian"
    model = FedGLMCV(family, alphas=8, l1_ratio=0.5, cv=3).fit(federate(data))
    same = FedGLM(family, alpha=model.alpha_, l1_ratio=0.5).fit(federate(data))
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-7, abs=1e-12)
    assert model.intercept_ == pytest.approx(same.intercept_, rel=1e-8)
    place = list(model.alphas_).index(model.alpha_)
    assert model.coef_path_[place] == pytest.approx(model.coef_, rel=1e-6, abs=1e-9)
    assert model.intercept_path_[place] == pytest.approx(model.intercept_, rel=1e-7)
    assert (model.coef_path_[0] == 0).all()
    frame = model.path_frame()
    assert frame["mean_deviance"].idxmin() == model.alpha_min_ <= model.alpha_1se_
    model.save(tmp_path / "model")
    loaded = FedGLMCV.load(tmp_path / "model")
    assert loaded.path_frame().equals(frame)
    assert np.array_equal(loaded.predict(data), model.predict(data))


def test_ridge_paths_and_offsets():
    rng = np.random.default_rng(1)
    years = rng.uniform(0.5, 3.0, N)
    X = np.column_stack([rng.normal(size=(N, 2)), np.log(years)])
    y = rng.poisson(np.exp(0.5 * X[:, 0]) * years)
    data = mc.data.TableData(X, y, columns=["age", "dose", "log_years"], outcome="number")
    model = FedGLMCV("poisson", offset="log_years", l1_ratio=0.0, alphas=5, cv=3).fit(federate(data))
    same = FedGLM("poisson", offset="log_years", alpha=model.alpha_).fit(federate(data))
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-6)


def test_missing_entries_and_formulas():
    data = data_of(classes=False)
    X = data.X.copy()
    X[::7, 1] = np.nan
    gaps = mc.data.TableData(X, data.y, outcome="number")
    model = FedGLMCV(formula="x0 + x1 + ns(x2, df=3)", alphas=10, cv=3).fit(federate(gaps))
    assert model.n_patients_ == N - len(X[::7])
    same = FedGLM(formula="x0 + x1 + ns(x2, df=3)", alpha=model.alpha_, l1_ratio=1.0).fit(federate(gaps))
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-8, abs=1e-12)
    assert model.predict(data).shape == (N,)


@pytest.mark.parametrize(
    "options",
    [
        {"alphas": 0},
        {"alphas": []},
        {"alphas": [1.0, -1.0]},
        {"alphas": "many"},
        {"eps": 1.0},
        {"cv": 1},
        {"rule": "max"},
        {"family": "negative_binomial"},
        {"l1_ratio": 1.5},
    ],
)
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(ConfigurationError):
        FedGLMCV(**options).fit(federate(data_of(classes=False)))


def test_there_are_no_intervals_no_criteria_and_no_sites_to_combine():
    model = FedGLMCV(alphas=3, cv=2).fit(federate(data_of(classes=False)))
    assert np.isnan([model.aic_, model.bic_]).all()
    with pytest.raises(DataError, match="must have standard errors"):
        model.predict_interval(data_of(classes=False))
    with pytest.raises(ConfigurationError, match="without a penalty"):
        model.by_site()


def test_all_records_of_a_person_are_in_one_fold():
    persons = np.repeat(np.arange(20), 3)
    folds = divide(4, np.zeros(60, dtype=np.int64), persons, b"key")
    assert (folds.reshape(20, 3) == folds.reshape(20, 3)[:, :1]).all()
    assert np.bincount(folds).tolist() == [15, 15, 15, 15]
    assert not np.array_equal(folds, divide(4, np.zeros(60, dtype=np.int64), persons, b"other"))
    unnamed = divide(4, np.zeros(8, dtype=np.int64), np.full(8, -1), b"key")
    assert np.bincount(unnamed).tolist() == [2, 2, 2, 2]
