"""Records every comparison of the oracle tests for the validation dossier: pytest tests/oracles --dossier FILE."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc

_APPROX, _ALLCLOSE = pytest.approx, np.testing.assert_allclose


def pytest_addoption(parser):
    parser.addoption("--dossier", type=Path, help="write the comparisons with oracles to this JSON file")


def pytest_configure(config):
    if path := config.getoption("--dossier", default=None):
        config.pluginmanager.register(Dossier(path), "dossier")


class Dossier:
    """Comparisons by test, written when the session ends."""

    def __init__(self, path):
        self.path, self.tests, self.current = path, {}, None

    def compare(self, actual, expected, rtol, atol, join):
        """Record the largest difference of numbers from their oracle, and its share of the tolerance.

        `join` makes one tolerance of the relative and the absolute one: pytest takes the larger one, numpy the sum.
        """
        try:
            actual, expected = np.broadcast_arrays(np.asarray(actual, dtype=float), np.asarray(expected, dtype=float))
        except (TypeError, ValueError):
            return  # a mapping, or not of numbers: the test's own verdict counts
        usable = np.isfinite(actual) & np.isfinite(expected)
        if self.current is None or not usable.any():
            return
        actual, expected = actual[usable], expected[usable]
        difference = np.abs(actual - expected)
        scale = np.abs(expected)
        allowed = join(atol, rtol * scale)
        # Where the tolerance is absolute, values near 0 would have large relative differences that mean nothing.
        stated = float(np.max(difference / np.where(scale > 0, scale, 1.0) if rtol else difference))
        share = float(np.max(difference / np.where(allowed > 0, allowed, np.inf)))
        self.current["compared"] += int(usable.sum())
        self.current["difference"] = max(self.current["difference"], stated)
        self.current["share_of_tolerance"] = max(self.current["share_of_tolerance"], share)
        tolerance = "rtol" if rtol else "atol"
        self.current[tolerance] = max(self.current[tolerance], float(rtol or atol))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        name = item.originalname
        entry = {"file": item.path.name, "test": name, "cases": 0, "compared": 0, "failed": 0}
        entry |= {"difference": 0.0, "share_of_tolerance": 0.0, "rtol": 0.0, "atol": 0.0}
        self.current = self.tests.setdefault(f"{item.path.name}::{name}", entry)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pytest, "approx", self._approx)
            patch.setattr(np.testing, "assert_allclose", self._allclose)
            try:
                return (yield)
            except BaseException:
                self.current["failed"] += 1
                raise
            finally:
                self.current["cases"] += 1
                self.current = None

    def pytest_sessionfinish(self):
        record = {
            "multicentre": mc.__version__,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "tests": [self.tests[name] for name in sorted(self.tests)],
        }
        self.path.write_text(json.dumps(record, indent=1) + os.linesep, encoding="utf-8")

    def _approx(self, expected, rel=None, abs=None, nan_ok=False):  # noqa: A002 - the name in pytest.approx
        real = _APPROX(expected, rel=rel, abs=abs, nan_ok=nan_ok)
        return _Approximately(real, expected, self, 1e-6 if rel is None and abs is None else rel or 0.0, abs or 1e-12)

    def _allclose(self, actual, desired, rtol=1e-7, atol=0, **options):
        self.compare(actual, desired, rtol, atol, np.add)
        _ALLCLOSE(actual, desired, rtol=rtol, atol=atol, **options)


class _Approximately:
    """Compares as pytest.approx does, and records the difference."""

    __array_ufunc__ = None  # numpy leaves the comparison to this class
    __array_priority__ = 100

    def __init__(self, real, expected, dossier, rtol, atol):
        self._real, self._expected, self._dossier, self._tolerances = real, expected, dossier, (rtol, atol)

    def __eq__(self, actual):
        self._dossier.compare(actual, self._expected, *self._tolerances, np.maximum)
        return self._real == actual

    def __ne__(self, actual):
        return not self._real == actual

    __hash__ = None

    def __repr__(self):
        return repr(self._real)
