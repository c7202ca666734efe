"""What the estimators that rest on a table of patients by group, outcome and time have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.missing.values import HandlesMissing, Missing
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Arrays, FederatedEstimator
from multicentre.federation.coordinator import Federation
from multicentre.federation.wire import decode, encode
from multicentre.survival.agreement.messages import Agreed, Columns
from multicentre.survival.agreement.rounds import Needs, agree, steps_of_agreement
from multicentre.survival.curves.tables.counting import count_table
from multicentre.survival.curves.tables.groups import Grouping, find_groups, find_members
from multicentre.survival.curves.tables.messages import ByGroup
from multicentre.survival.curves.tables.risk import RiskTable
from multicentre.survival.curves.tables.rounds import Times, asks_exactly, needs_of, sum_table
from multicentre.survival.curves.tables.site import TablePart


class TableEstimator(HandlesMissing, FederatedEstimator):
    """Base of the estimators whose only rounds are an agreement and one table.

    Attributes
    ----------
    agreed_ : Agreed
        Columns and grid that the sites agreed on.
    table_ : RiskTable
        Patients by group, outcome and time, over all sites.
    """

    site_part: ClassVar[type[TablePart]]
    group: str | None
    levels: Sequence[float] | None
    times: Times
    n_times: int
    horizon: float | None
    missing: Missing
    agreed_: Agreed
    table_: RiskTable
    n_left_out_: int
    _grouping: Grouping

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        table = "sum_exact_table" if asks_exactly(self.times) else "sum_table"
        return steps_of_agreement(needs_of(self.times, self.n_times, self.horizon, 1)) | {table}

    @property
    def groups_(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.table_.groups

    @property
    def times_(self) -> Any:
        """The grid, shape (K,)."""
        return self.table_.grid

    @property
    def horizon_(self) -> float:
        """Last time that the fit speaks of."""
        last = float(self.agreed_.times[-1])
        return last if self.horizon is None else max(last, float(self.horizon))

    @property
    def n_patients_(self) -> dict[str, int]:
        """Patients by group."""
        return {name: round(n) for name, n in zip(self.groups_, self.table_.n_patients.tolist(), strict=True)}

    @abstractmethod
    def _check(self) -> None:
        """Raise ConfigurationError unless the parameters can be used."""

    @abstractmethod
    def _causes(self) -> tuple[int, ...]:
        """Return the causes that the table tells apart."""

    @abstractmethod
    def _show(self, table: RiskTable) -> None:
        """Set the fitted attributes that follow from the table."""

    def _first_cause(self) -> int:
        """Return the cause whose events make the grid, as the site part counts them."""
        return self._causes()[0]

    def _fit(self, federation: Federation) -> None:
        self._check()
        needs = needs_of(self.times, self.n_times, self.horizon, self._first_cause())
        self._agree(federation, needs)
        labels = self._grouping.labels
        found = sum_table(federation, self.site_part, self.agreed_, labels, self._ask(), self.times)
        self.table_, n_elsewhere = found
        self.n_left_out_ = n_elsewhere + self.missing_values_.n_incomplete
        self.history_ = []
        self._show(self.table_)

    def _agree(self, federation: Federation, needs: Needs) -> None:
        """Agree on columns and grid, and find the groups; patients whose group is missing are left out."""

        def grouped_by(described: Columns) -> Sequence[str]:
            grouping = find_groups(self.group, self.levels, described.columns, described.levels)
            return [name for name in dict.fromkeys(grouping.columns) if name in described.columns]

        self.agreed_, self.missing_values_ = agree(federation, self.site_part, needs, self.missing, counted=grouped_by)
        self._grouping = find_groups(self.group, self.levels, self.agreed_.columns, self.agreed_.levels)

    def _ask(self) -> ByGroup:
        grouping = self._grouping
        return ByGroup(grouping.columns, np.array(grouping.levels), np.array(self._causes(), dtype=np.int64))

    def _count(self, data: SurvivalData) -> RiskTable:
        """Return the table of patients that the caller holds."""
        grouping = self._grouping
        group = find_members(data.X, data.columns, grouping.columns, np.array(grouping.levels), data.levels)
        events, leaving = count_table(
            data.time, data.event, group, self.agreed_.times, np.array(self._causes()), len(grouping.labels)
        )
        return RiskTable(
            grouping.labels, self.agreed_.times, events.astype(float), leaving.astype(float), self.table_.exact
        )

    def _packed(self) -> NDArray[np.uint8]:
        return np.frombuffer(encode(self.agreed_), dtype=np.uint8)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"events": self.table_.events, "leaving": self.table_.leaving, "agreed": self._packed()}
        return arrays, {"n_left_out": self.n_left_out_}

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self.agreed_ = decode(Agreed, arrays["agreed"].tobytes())
        self._grouping = find_groups(self.group, self.levels, self.agreed_.columns, self.agreed_.levels)
        self.n_left_out_ = int(facts["n_left_out"])
        if "events" in arrays:
            exact, labels = isinstance(self.times, str), self._grouping.labels
            self.table_ = RiskTable(labels, self.agreed_.times, arrays["events"], arrays["leaving"], exact)
            self._show(self.table_)
