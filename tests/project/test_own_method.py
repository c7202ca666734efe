"""A method of another distribution has the same rights as the package's own, and its author can test it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import multicentre as mc
from multicentre import extend
from multicentre.data import TableData
from multicentre.estimator import registry
from multicentre.testing import MethodContract

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "own_method" / "fed_logistic.py"
# The page's title says 60 lines; blank lines, imports and docstrings are not counted.
MAX_LINES = 60


def imported():
    name = "fed_logistic"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SOURCE)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


FedLogistic = imported().FedLogistic


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register the method for one test, as an installed distribution would for good."""
    method = registry.Registered("fed_logistic:FedLogistic", "own-method", "1.0")
    monkeypatch.setitem(registry.METHODS, "fed-logistic", method)
    registry.packages.cache_clear()
    yield
    registry.packages.cache_clear()


def hospitals():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.random(300) < 1.0 / (1.0 + np.exp(-0.5 - X @ [1.0, -1.0]))
    return {
        name: TableData(X[rows], y[rows].astype(int))
        for name, rows in zip(("lyon", "oslo", "porto"), np.array_split(np.arange(300), 3), strict=True)
    }


class FedLogisticContract(MethodContract):  # collected by the plugin, whatever its name
    def make(self):
        return FedLogistic(2, max_iter=6)

    def sites(self):
        return hospitals()

    def numbers(self, fitted):
        return {"coef": fitted.coef_, "intercept": np.asarray(fitted.intercept_)}


def test_it_equals_the_pooled_fit_of_scikit_learn():
    sites = hospitals()
    model = FedLogistic(2).fit(mc.Federation.in_process(sites))
    X, y = (np.concatenate([getattr(data, name) for data in sites.values()]) for name in ("X", "y"))
    pooled = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, pooled.coef_[0], atol=1e-5)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_[0], atol=1e-5)


def test_it_is_as_short_as_the_page_says():
    text = re.sub(r'"""[^"]*"""', "", SOURCE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
    assert len(lines) <= MAX_LINES


def test_page_and_example_have_the_same_steps():
    page = (ROOT / "docs" / "a-method-in-60-lines.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        if line.startswith(("        ", "    @")) and "def " not in line:
            assert line in code, line


def test_every_name_of_extend_is_documented():
    assert all(getattr(extend, name).__doc__ for name in extend.__all__)


def test_the_contract_notices_hidden_randomness():
    class Hidden(FedLogisticContract):
        def sites(self):
            rng = np.random.default_rng()
            return {name: TableData(rng.normal(size=(40, 2)), np.tile([0, 1], 20)) for name in ("a", "b", "c")}

    with pytest.raises(AssertionError):
        Hidden().test_the_same_fit_twice_gives_the_same_bits()


CONTRACT_FILE = """
from fed_logistic import FedLogistic
import numpy as np
from multicentre.data import TableData
from multicentre.testing import MethodContract

class Unfinished(MethodContract):
    masked_error = 1e-5

class LogisticOfHospitals(Unfinished):
    def make(self):
        return FedLogistic(2, max_iter=6)

    def sites(self):
        rng = np.random.default_rng({seed})
        return {{name: TableData(rng.normal(size=(40, 2)), np.tile([0, 1], 20)) for name in ("a", "b", "c")}}

    def numbers(self, fitted):
        return {{"coef": fitted.coef_}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "outcome"), [("0", "11 passed"), ("", "failed")])
def test_pytest_runs_the_contract_on_an_installed_method(tmp_path, seed, outcome):
    site, tests = tmp_path / "site", tmp_path / "tests"
    about = site / "own_method-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-method\nVersion: 1.0\n", encoding="utf-8")
    entry = "[multicentre.methods]\nfed-logistic = fed_logistic:FedLogistic\n"
    (about / "entry_points.txt").write_text(entry, encoding="utf-8")
    shutil.copy(SOURCE, site)
    tests.mkdir()
    (tests / "test_logistic.py").write_text(CONTRACT_FILE.format(seed=seed), encoding="utf-8")
    plugin = 'pytest_plugins = ["multicentre.testing.plugin"]\n'
    (tests / "conftest.py").write_text(plugin, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(command, cwd=tests, env=environment, capture_output=True, text=True, check=False)
    assert outcome in run.stdout, run.stdout
    assert ("AssertionError: coef" in run.stdout) == (outcome == "failed")  # the assertion shows its values
