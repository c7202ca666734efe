"""Contract tests for methods, those of other distributions included.

Every method of this package passes these tests. The author of another method subclasses :class:`MethodContract` in a
file that pytest collects, and the plugin :mod:`multicentre.testing.plugin` runs the contract on her method.

Examples
--------
>>> import numpy as np
>>> import multicentre as mc
>>> class KaplanMeierContract(MethodContract):
...     masked_error = 1e-9
...     def make(self):
...         return mc.survival.KaplanMeier(times=[1.0, 2.0])
...     def sites(self):
...         rng = np.random.default_rng(0)
...         return {
...             name: mc.data.SurvivalData(rng.exponential(2.0, 60), rng.random(60) < 0.7, np.zeros((60, 1)))
...             for name in ("lyon", "oslo", "porto")
...         }
...     def numbers(self, fitted):
...         return {"survival": np.asarray(fitted.survival_)}
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.engines.faults import Faults
from multicentre.errors import DisclosureRefused, RefusedByPolicy
from multicentre.estimator.base import FederatedEstimator
from multicentre.federation import Federation
from multicentre.privacy.ledger_comparison import compare_ledgers
from multicentre.privacy.policy import Policy

Numbers = Mapping[str, NDArray[Any]]


class MethodContract(ABC):
    """Promises that every method keeps, as test methods.

    Subclasses define :meth:`make`, :meth:`sites` and :meth:`numbers`.

    Attributes
    ----------
    masked_error : float, default 1e-6
        Largest absolute difference between the numbers of a fit with masked sums and of one without masks.
    policy : Policy or None, default None
        Policy of the sites; by default the package's.
    """

    masked_error: ClassVar[float] = 1e-6
    policy: ClassVar[Policy | None] = None

    @abstractmethod
    def make(self) -> FederatedEstimator:
        """Return an unfitted estimator with a fixed seed that takes a second or less to fit."""

    @abstractmethod
    def sites(self) -> Mapping[str, Any]:
        """Return the data of three or more sites, with at least 10 patients each."""

    @abstractmethod
    def numbers(self, fitted: Any) -> Numbers:
        """Return the arrays of a fitted estimator that must agree between runs."""

    def test_the_same_fit_twice_gives_the_same_bits(self) -> None:
        """Check that a fit has no hidden randomness."""
        for secure_sum in (False, True):
            numbers = self._run(secure_sum=secure_sum)
            assert numbers, "numbers() must return at least one array"
            assert all(np.isfinite(value).all() for value in numbers.values()), "numbers() must be finite"
            _assert_same_bits(numbers, self._run(secure_sum=secure_sum))

    def test_the_wire_changes_no_bit(self) -> None:
        """Check that messages survive being written and read, as between real machines."""
        _assert_same_bits(self._run(), self._run(strict=True))

    def test_masked_sums_change_no_more_than_declared(self) -> None:
        """Compare a fit with masked sums with one without masks."""
        numbers, masked = self._run(secure_sum=False), self._run(secure_sum=True)
        for name, value in numbers.items():
            assert np.abs(value - masked[name]).max() <= self.masked_error, name

    def test_an_interrupted_run_resumes_with_the_same_bits(self, tmp_path: Path) -> None:
        """Interrupt a run half-way and resume it from its folder."""
        with self._federate() as federation:
            numbers = self.numbers(self.make().fit(federation))
            n_exchanges = federation.engine.exchanges  # type: ignore[attr-defined]  # counted by the engine with faults
        with contextlib.suppress(KeyboardInterrupt):
            self._run(folder=tmp_path, faults=Faults(interrupt_at=n_exchanges // 2))
        _assert_same_bits(numbers, self._run(folder=tmp_path))

    def test_a_saved_model_is_the_fitted_model(self, tmp_path: Path) -> None:
        """Save a fitted model and load it again."""
        with self._federate() as federation:
            fitted = self.make().fit(federation)
        fitted.save(tmp_path / "model")
        _assert_same_bits(self.numbers(fitted), self.numbers(type(fitted).load(tmp_path / "model")))

    def test_small_sites_are_refused_and_the_refusal_is_recorded(self) -> None:
        """Fit under a minimum number of patients that no site reaches."""
        # No site in any test holds a billion patients.
        with self._federate(policy=Policy(min_patients=10**9)) as federation:
            _assert_raises(DisclosureRefused, lambda: self.make().fit(federation))
            events = [entry["event"] for ledger in federation.ledgers.values() for entry in ledger.entries]
        assert "refusal" in events, "a refused release must be recorded in the ledger"

    def test_a_method_that_no_policy_lists_is_refused(self) -> None:
        """Fit under a policy that lists no method."""
        _assert_raises(RefusedByPolicy, lambda: self._run(policy=Policy(methods=())))

    def test_what_leaves_a_site_is_on_the_disclosure_card(self) -> None:
        """Compare the ledgers of a fit with the disclosure card of the method."""
        with self._federate() as federation:
            estimator = self.make()
            estimator.fit(federation)
            ledgers = {site: ledger.entries for site, ledger in federation.ledgers.items()}
        announced = {(line.step, line.field.partition("[")[0]) for line in estimator.disclosure_card().lines}
        for entries in ledgers.values():
            left = {
                (entry["step"], field["field"].partition("[")[0])
                for entry in entries
                if entry["method"] == estimator.site_part.method
                for field in entry["fields"]
                if field["records"] is not None
            }
            assert left, "a fit must release something"
            assert left <= announced, f"not on the disclosure card: {sorted(left - announced)}"

    def test_the_ledgers_of_all_sites_agree(self) -> None:
        """Compare the sites' ledgers with each other after a fit."""
        with self._federate() as federation:
            self.make().fit(federation)
            comparison = compare_ledgers({site: ledger.entries for site, ledger in federation.ledgers.items()})
        assert comparison.n_calls > 0
        assert not comparison.differences

    def test_only_planned_steps_are_requested(self) -> None:
        """Compare the steps in the ledgers with those that the estimator announces."""
        with self._federate() as federation:
            estimator = self.make()
            estimator.fit(federation)
            entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
        requested = {entry["step"] for entry in entries if entry["method"] == estimator.site_part.method}
        assert requested <= estimator.planned_steps() <= set(estimator.site_part.steps())

    def test_parameters_can_be_written_to_a_study_file(self) -> None:
        """Check that parameters, except fitted models, are plain values that the constructor stores unchanged."""
        estimator = self.make()
        parameters = estimator.get_params(deep=False)
        assert type(estimator)(**parameters).get_params(deep=False) == parameters
        json.dumps({name: value for name, value in parameters.items() if name not in estimator.model_parameters})

    def _federate(self, **options: Any) -> Federation:
        settings = {"policy": self.policy, "faults": Faults(), **options}
        return Federation.in_process(self.sites(), **settings)

    def _run(self, **options: Any) -> Numbers:
        with self._federate(**options) as federation:
            return self.numbers(self.make().fit(federation))


def _assert_same_bits(numbers: Numbers, others: Numbers) -> None:
    assert numbers.keys() == others.keys()
    for name, value in numbers.items():
        assert np.asarray(value).tobytes() == np.asarray(others[name]).tobytes(), name


def _assert_raises(kind: type[Exception], run: Any) -> None:
    try:
        run()
    except kind:
        return
    raise AssertionError(f"the fit must raise {kind.__name__}")
