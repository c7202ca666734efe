"""Base class of the estimators that use a table of patients by group, outcome and time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.core.published_counts import MIN_PUBLISHED, published
from multicentre.core.session import Session
from multicentre.data.missing.values import HandlesMissing
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Band
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Applicable, Integer, OneOf, Only, ParameterRanges, Real, Where
from multicentre.estimator.presentation import number_text
from multicentre.estimator.saved import Arrays, Saved, SavedAttributes, saved_message
from multicentre.survival.agreement.horizon import HasHorizon, horizon_in_force
from multicentre.survival.agreement.messages import Columns, Prepared
from multicentre.survival.agreement.rounds import Needs, StatedTimes, agree, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.curves.tables.groups import Grouping, find_groups, find_members
from multicentre.survival.curves.tables.risk import RiskTable, count_table
from multicentre.survival.curves.tables.rounds import Times, asks_exactly, needs_of, sum_table
from multicentre.survival.curves.tables.site import ByGroup, TablePart
from multicentre.survival.times import is_sequence

# Patients without a group are left out, because a filled group would be another group.
CompleteOnly = Literal["complete"]
COLUMN = Where("the name of a column or category", lambda value: isinstance(value, str))
SEQUENCE = Where("a sequence of numbers", is_sequence)


def _times_in_force(model: TableEstimator) -> str:
    times = model.times
    if times is None or isinstance(times, str):
        of_sites = getattr(model, "stratify_by_site", False)  # a test by site uses the times of each site
        grid = "" if of_sites else f"on a grid of at most {model.n_times} times"
        return grid if times is None else "at the times of all events"
    return f"at the times {', '.join(f'{time:g}' for time in times[:MAX_STATED])}" + (
        f" and {len(times) - MAX_STATED} more" if len(times) > MAX_STATED else ""
    )


class TableEstimator(HasHorizon, HandlesMissing, FederatedEstimator):
    """Base of the estimators that need an agreement and one table.

    Attributes
    ----------
    agreed_ : Prepared
        Columns and grid that the sites agreed on.
    table_ : RiskTable
        Patients by group, outcome and time, over all sites.
    groups_ : tuple of str
        Names of the g groups; ``("all",)`` without `group`.
    times_ : array of shape (K,)
        The K times of the grid.
    horizon_ : float
        Last time of the fit.
    n_patients_ : dict of str to int
        Patients by group.
    n_left_out_ : int
        Patients without a group.
    n_times_agreed_ : int
        Times of the grid before some were joined because their counts were of few patients.
    coarsening_line_ : str
        Sentences on these; empty if none were joined.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.
    """

    site_part: ClassVar[type[TablePart]]
    model_phrases: ClassVar[Phrases] = {
        "group": "groups of {}",
        "levels": "levels {}",
        "times": lambda model: _times_in_force(model),
        "n_times": "",
        "horizon": horizon_in_force,
        "cause": lambda model: "" if model.cause == 1 else f"events of cause {model.cause}, other causes censored",
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "group": (None, COLUMN),
        "levels": (None, SEQUENCE),
        "times": (None, OneOf("exact"), SEQUENCE),
        "n_times": Integer(2, MAX_TIMES),
        "horizon": (None, Real(0, open="low")),
        "missing": OneOf(*get_args(CompleteOnly)),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        "agreed_": saved_message(Prepared),
        "n_left_out_": Saved(published),
        "n_times_agreed_": Saved(optional=True),
        **HasHorizon.saved_horizon,
    }
    applicable: ClassVar[Applicable] = {
        "n_times": Only("times=None", lambda model: model.times is None),
        "levels": Only("a group", lambda model: model.group is not None),
    }
    group: str | None
    levels: Sequence[float] | None
    times: Times
    n_times: int
    horizon: float | None
    missing: CompleteOnly
    agreed_: Prepared
    table_: RiskTable
    n_left_out_: int
    n_times_agreed_: int
    _grid_at_sites: NDArray[np.float64]
    _grouping: Grouping

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        table = "sum_exact_table" if asks_exactly(self.times) else "sum_table"
        return steps_of_agreement(needs_of(self.times, self.n_times, self.horizon, 1)) | {table}

    @property
    def groups_(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.table_.groups

    @property
    def times_(self) -> Any:
        """Times of the grid, shape (K,)."""
        return self.table_.grid

    @property
    def horizon_(self) -> float:
        """Last time of the fit."""
        last = float(self.agreed_.times[-1])
        return last if self.horizon is None or self._ends_early else max(last, float(self.horizon))

    @property
    def coarsening_line_(self) -> str:
        """One or two sentences on times that were joined because their counts were of few patients; empty if none."""
        n_times = len(self.agreed_.times) if "n_times_agreed_" in vars(self) else 0
        if n_times == vars(self).get("n_times_agreed_", 0):
            return ""
        line = (
            f"The grid has {n_times} of {self.n_times_agreed_} times: those without events and ends of follow-up, or "
            "with counts below the sites' minimum, are joined with the next."
        )
        end = f"{number_text(self.horizon_)} {self.agreed_.unit}".rstrip()
        return f"{line} Results end at {end}: too few patients were followed longer." if self._ends_early else line

    @property
    def _ends_early(self) -> bool:
        is_coarser = vars(self).get("n_times_agreed_", 0) > len(self.agreed_.times)
        return is_coarser and float(self.agreed_.times[-1]) < self.agreed_.ends

    def describe_model(self) -> str:
        """Return the model in force in one sentence, and further ones on the horizon and on times that were joined."""
        return f"{super().describe_model()} {self.coarsening_line_ if 'agreed_' in vars(self) else ''}".rstrip()

    @property
    def n_patients_(self) -> dict[str, int]:
        """Patients by group."""
        return {name: round(n) for name, n in zip(self.groups_, self.table_.n_patients.tolist(), strict=True)}

    @abstractmethod
    def _causes(self) -> tuple[int, ...]:
        """Return the causes that the table distinguishes."""

    @abstractmethod
    def _show(self, table: RiskTable) -> None:
        """Set the fitted attributes that follow from the table."""

    def _first_cause(self) -> int:
        """Return the cause whose events define the grid, as the site part counts them."""
        return self._causes()[0]

    def _fit(self, session: Session) -> None:
        needs = needs_of(self.times, self.n_times, self.horizon, self._first_cause(), self._stated_times)
        self._agree(session, needs)
        labels = self._grouping.labels
        table_and_rest = sum_table(session, self.site_part, self.agreed_, labels, self._ask(), self.times)
        self.table_, n_elsewhere = table_and_rest
        self._grid_at_sites, self.n_times_agreed_ = self.agreed_.times, len(self.agreed_.times)
        self.agreed_ = replace(self.agreed_, times=self.table_.grid)
        self.n_left_out_ = n_elsewhere + (self.missing_values_.n_incomplete or 0)
        self.history_ = []
        self._show(self.table_)

    @property
    def _stated_times(self) -> StatedTimes | None:
        """Function from the horizon and the unit to times at which results are stated, which the grid contains."""
        return None

    def _agree(self, session: Session, needs: Needs) -> None:
        """Agree on columns and grid, and define the groups; patients whose group is missing are left out."""

        def grouped_by(described: Columns) -> Sequence[str]:
            grouping = find_groups(self.group, self.levels, described.columns, described.levels)
            return [name for name in dict.fromkeys(grouping.columns) if name in described.columns]

        agreement = agree(session, self.site_part, needs, self.missing, counted=grouped_by)
        self.agreed_, self.missing_values_, after = agreement.agreed, agreement.missing, agreement.after
        self._count_after(after, any_cause=len(self._causes()) > 1)
        self._grouping = find_groups(self.group, self.levels, self.agreed_.columns, self.agreed_.levels)

    def _ask(self) -> ByGroup:
        grouping = self._grouping
        return ByGroup(grouping.columns, np.array(grouping.levels), np.array(self._causes(), dtype=np.int64))

    def _count(self, data: SurvivalData) -> RiskTable:
        """Return the table of local patients."""
        grouping = self._grouping
        group = find_members(data.X, data.columns, grouping.columns, np.array(grouping.levels), data.levels)
        events, leaving = count_table(
            data.time, data.event, group, self.agreed_.times, np.array(self._causes()), len(grouping.labels)
        )
        return RiskTable(
            grouping.labels, self.agreed_.times, events.astype(float), leaving.astype(float), self.table_.exact
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        tables = {"events": self.table_.events, "leaving": self.table_.leaving} if "table_" in vars(self) else {}
        return {**arrays, **tables}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._grouping = find_groups(self.group, self.levels, self.agreed_.columns, self.agreed_.levels)
        if "events" in arrays:
            exact, labels = isinstance(self.times, str), self._grouping.labels
            self.table_ = RiskTable(labels, self.agreed_.times, arrays["events"], arrays["leaving"], exact)
            self._show(self.table_)


Floats = NDArray[np.float64]

# Smallest number of patients that figures show, the default minimum of a site's policy.
MIN_SHOWN = 10

# Approximate number of times at which figures show numbers at risk.
N_POSITIONS = 6


# Steps between times in months: quarters, half years and years.
MONTHS = (1.0, 2.0, 3.0, 6.0, 12.0, 24.0, 60.0, 120.0)


def chosen_times(horizon: float, unit: str = "") -> list[float]:
    """Return round times from 0 to a horizon, at most eight; in months, those of quarters or years.

    Examples
    --------
    >>> chosen_times(95.0), chosen_times(41.0, "months")
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.0, 12.0, 24.0, 36.0])
    """
    rough = horizon / N_POSITIONS
    power = 10.0 ** np.floor(np.log10(rough))
    steps = [power * step for step in (1.0, 2.0, 2.5, 5.0, 10.0)]
    if unit.lower().startswith("month") and 0.5 <= rough <= MONTHS[-1]:
        steps = list(MONTHS)
    width = next(step for step in steps if step >= rough * 0.9)
    return [float(np.round(place * width, 12)) for place in range(int(horizon / width + 1e-9) + 1)]


# Largest number of times that a study may state for its table of survival.
MAX_STATED = 12


def stated_times(at: Sequence[float] | None) -> StatedTimes:
    """Return the function from the horizon and the unit to the times that a grid contains: round ones, and `at`."""
    return lambda horizon, unit: sorted({*chosen_times(horizon, unit), *(at or ())})


def shown_times(at: Sequence[float] | None, times: Times, horizon: float, unit: str = "") -> list[float]:
    """Return the times of a table of results: stated ones, those of a short grid, or round ones up to the horizon.

    Examples
    --------
    >>> shown_times([12.0, 24.0], None, 30.0), shown_times(None, [6.0], 6.0), shown_times(None, None, 95.0)
    ([12.0, 24.0], [6.0], [20.0, 40.0, 60.0, 80.0])
    """
    if at is not None:
        return [float(time) for time in at]
    if times is None or isinstance(times, str) or len(times) > MAX_STATED:
        return chosen_times(horizon, unit)[1:]
    return [float(time) for time in times]


def counted_times(grid: Floats, positions: Sequence[float], *, exact: bool) -> list[float]:
    """Return positions of numbers at risk: 0 and given times; on a grid that is not exact, its nearest times.

    Between two times of such a grid, nobody knows who is at risk.

    Examples
    --------
    >>> grid = np.array([9.0, 20.0, 31.0])
    >>> counted_times(grid, [10.0, 20.0], exact=False), counted_times(grid, [10.0, 20.0], exact=True)
    ([0.0, 9.0, 20.0], [0.0, 10.0, 20.0])
    """
    if not exact:
        positions = [float(grid[np.abs(grid - time).argmin()]) for time in positions if time > 0]
    return sorted({0.0, *positions})


def band_of(name: str, table: RiskTable, place: int, curve: tuple[Floats, Floats, Floats], *, start: float) -> Band:
    """Return a group's curve and limits from time 0, while enough patients are at risk.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([2.0]), np.array([[[5.0]]]), np.array([[0.0, 0.0, 15.0]]), True)
    >>> band_of("all", table, 0, (np.array([0.75]), np.array([0.6]), np.array([0.9])), start=1.0).y
    [1.0, 0.75]
    """
    is_drawn = table.at_risk[place] >= MIN_SHOWN
    values = ([start, *line[is_drawn].tolist()] for line in curve)
    return Band(name, [0.0, *table.grid[is_drawn].tolist()], *values)


def numbers_below(
    table: RiskTable, positions: list[float], group: str | None = None, *, least: int = MIN_PUBLISHED
) -> dict[str, list[float | None]]:
    """Return the numbers at risk by group at given times; None for small ones.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([2.0]), np.array([[[5.0]]]), np.array([[8.0, 0.0, 3.0]]), True)
    >>> numbers_below(table, [0.0, 3.0])
    {'all': [16.0, None]}
    """
    counted = table.count_at(np.array(positions))
    return {
        named(group, name): [None if 0 < number < least else number for number in row]
        for name, row in zip(table.groups, counted.tolist(), strict=True)
    }


def named(group: str | None, label: str) -> str:
    """Return the name of a group with its column.

    Examples
    --------
    >>> named("arm", "1"), named(None, "all")
    ('arm 1', 'all')
    """
    return label if group is None else f"{group} {label}"


def time_label(unit: str) -> str:
    """Return the label of an axis of times.

    Examples
    --------
    >>> time_label("days"), time_label("")
    ('time (days)', 'time')
    """
    return f"time ({unit})" if unit else "time"
