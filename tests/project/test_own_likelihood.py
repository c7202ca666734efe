"""A model that is given by its likelihood alone has what every model of a likelihood has."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.estimator import registry
from multicentre.regression.categorical.likelihoods import (
    CumulativeLikelihood,
    SingleIndexLikelihood,
    register_likelihood,
)
from multicentre.testing import MethodContract
from oracles import grouped_hazard_values

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "own_likelihood" / "fed_grouped_hazard.py"
CLASSES = ["30 days", "90 days", "year", "alive"]


def imported():
    name = "fed_grouped_hazard"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SOURCE)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


FedGroupedHazard, GroupedHazard = imported().FedGroupedHazard, imported().GroupedHazard


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register the method for one test, as an installed distribution would for good."""
    method = registry.Registered("fed_grouped_hazard:FedGroupedHazard", "own-method", "1.0")
    monkeypatch.setitem(registry.METHODS, "grouped-hazard", method)
    registry.packages.cache_clear()
    yield
    registry.packages.cache_clear()


def hospitals(n=1500, *, weighted=False):
    X, y, weight = (each[:n] for each in grouped_hazard_values.draw())
    columns = np.column_stack([X, weight]) if weighted else X
    names = ["age", "dose", "weight"][: columns.shape[1]]
    data = mc.data.TableData(columns, y, columns=names, classes=CLASSES)
    return {name: data.take(np.arange(start, n, 3)) for start, name in enumerate(("lyon", "oslo", "porto"))}


class GroupedHazardContract(MethodContract):  # collected by the plugin, whatever its name
    def make(self):
        return FedGroupedHazard(max_iter=6)

    def sites(self):
        return hospitals(600)

    def numbers(self, fitted):
        return {"coef": fitted.coef_, "thresholds": fitted.model_.intercepts}


def test_it_equals_the_binomial_model_of_a_row_per_interval():
    values = json.loads(grouped_hazard_values.FILE.read_text())
    sites = hospitals(weighted=True)
    model = FedGroupedHazard(weights="weight").fit(mc.Federation.in_process(sites, secure_sum=False))
    np.testing.assert_allclose(model.model_.parameters, values["coefficients"], atol=1e-8)
    assert model.log_likelihood_ == pytest.approx(values["log_likelihood"], rel=1e-10)
    masked = FedGroupedHazard(weights="weight").fit(mc.Federation.in_process(sites))
    np.testing.assert_allclose(masked.model_.parameters, model.model_.parameters, atol=1e-7)


def test_it_has_formulas_robust_errors_predictions_and_estimates_by_site():
    sites = hospitals()
    with mc.Federation.in_process(sites) as federation:
        model = FedGroupedHazard(formula="age * dose", errors="HC1").fit(federation)
    assert model.feature_names_in_ == ("age", "dose", "age:dose")
    assert np.isfinite(model.standard_errors_).all()
    assert model.answer().startswith("Hazard ratio of age")
    with mc.Federation.in_process(sites) as federation:
        plain = FedGroupedHazard().fit(federation)
        assert np.isfinite(plain.by_site().estimates).all()
    shares = plain.predict_proba(sites["lyon"])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    observed = np.bincount(np.concatenate([each.y for each in sites.values()]), minlength=4) / 1500
    everyone = np.concatenate([plain.predict_proba(each) for each in sites.values()])
    np.testing.assert_allclose(everyone.mean(axis=0), observed, atol=0.005)


def test_sums_of_derivatives_are_those_of_the_written_ones():
    """The general sums of a likelihood with one predictor equal those that are written out for ordinal models."""
    rng = np.random.default_rng(1)
    rows, classes, weights, offset = (
        rng.normal(size=(60, 2)),
        rng.integers(0, 3, 60),
        rng.random(60),
        rng.normal(size=60),
    )
    parameters = np.array([-0.5, 0.7, 0.3, -0.2])
    written, shift = CumulativeLikelihood("probit"), 1e-5

    class General(CumulativeLikelihood):
        derive = SingleIndexLikelihood.derive

        def second(self, intercepts, predictor, classes):
            columns = []
            for j in range(len(intercepts) + 1):
                up, down = (self._moved(j, sign * shift, intercepts, predictor, classes) for sign in (1, -1))
                columns.append((up - down) / (2 * shift))
            return np.stack(columns, axis=2)

        def _moved(self, j, step, intercepts, predictor, classes):
            moved = intercepts + step * (np.arange(len(intercepts)) == j)
            return self.first(moved, predictor + step * (j == len(intercepts)), classes)

    at = rows, classes, parameters, weights, offset
    for name in ("log_likelihood", "gradient", "information", "weights"):
        expected, found = (getattr(each.derive(*at), name) for each in (written, General("probit")))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_a_name_has_one_likelihood():
    register_likelihood("grouped-hazard", "cloglog", GroupedHazard())
    with pytest.raises(ValueError, match="choose another name"):
        register_likelihood("ordinal", "logit", GroupedHazard())


def test_page_and_example_are_the_same():
    page = (ROOT / "docs" / "a-method-in-60-lines.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    source = SOURCE.read_text(encoding="utf-8")
    assert sum(block.strip() in source for block in blocks) == 3
