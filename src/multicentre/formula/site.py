"""Steps that build the columns of a formula at a site, for the site parts of regression models."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, array
from multicentre.core.steps import Acknowledgement, Release, step
from multicentre.core.wire import encode
from multicentre.data.missing.values import TabularPart
from multicentre.errors import ConfigurationError
from multicentre.formula.columns import Table, build_columns, check_values, level_values
from multicentre.formula.design import Design
from multicentre.formula.functions import LEADING, SCALARS, apply_scalar
from multicentre.statistics.quantiles.site import CountingPart

Floats = NDArray[np.float64]
DESIGN_STEPS = frozenset({"build_design", "build_columns"})
# Patients of a site, for masking; as in the regression models.
PATIENTS = 2.0**24


@dataclass(frozen=True)
class Occupied(Release):
    """Counts of patients that the columns of a formula rest on."""

    patients_of_cells: NDArray[np.int64] = array(
        "patients of each level, and between neighbouring knots of each spline",
        ("c",),
        dtype="i8",
        bound=PATIENTS,
        counts=True,
    )


class FormulaPart(TabularPart, CountingPart):
    """Base class of the site parts that build the columns of a formula.

    Attributes
    ----------
    data : Tabular
        After :meth:`build_design`, the columns of the formula, and the columns that remain as they are.
    """

    lengths: ClassVar[Lengths] = {"c": "levels of the formula's categories, and ranges between knots of its splines"}
    design: Design | None = None
    table: Table | None = None

    @step(releases=Occupied, when="once", summed=True)
    def build_design(self, request: Design) -> Occupied:
        """Replace the columns by those of a formula; count patients by level and between knots."""
        self._build(request)
        cells = count_cells(request, self._table)
        return Occupied(cells, patients=self.n_contributing(len(self.data), cells))

    @step(releases=Acknowledgement, when="once")
    def build_columns(self, request: Design) -> Acknowledgement:
        """Replace the columns by those of a formula, for a fit to this site alone; no count leaves the site."""
        self._build(request)
        return Acknowledgement()

    def _build(self, request: Design) -> None:
        label = f"formula={sha256(encode(request)).hexdigest()[:16]}"
        if self.design is None:
            if self.has_answered:  # smallest cells are those of the columns of the first sum
                raise ConfigurationError(
                    "the columns of a formula must be built before the first sum of the fit; got a formula after it",
                    where="formula",
                    hint="Start a new fit.",
                )
            request.check()
            data = self.data
            self.table = Table(data.X, data.columns, data.levels)
            check_values(request, self.table)
            self.data = data.with_columns(build_columns(request, self.table), request.column_names)
            self.design = request
            # States stored between rounds belong to these columns.
            self.within = f"{self.within}/{label}" if self.within else label
        elif label not in self.within:
            raise ConfigurationError(
                "the formula must be that of the first request of this fit; got a different one",
                where="formula",
                hint="Start a new fit.",
            )

    @property
    def has_answered(self) -> bool:
        """True once the site has returned sums of its columns."""
        return self.state is not None

    def quantile_values(self) -> Floats:
        """Return the numeric columns of the fit, in the order of its request for missing entries."""
        names = [name for name in self._columns if name in self.data.columns]
        X = np.asarray(self.data.X, dtype=np.float64)
        return X[:, [self.data.columns.index(name) for name in names]]

    @property
    def _table(self) -> Table:
        if self.table is None:
            raise ConfigurationError(
                "the columns of the formula must be built before this request; they were not",
                where="formula",
                hint="Start the fit again.",
            )
        return self.table


def count_cells(design: Design, table: Table) -> NDArray[np.int64]:
    """Return the patients of each level, and between neighbouring knots of each spline; outer ranges are open.

    Examples
    --------
    >>> from multicentre.formula.design import BuiltFactor, Step
    >>> spline = BuiltFactor("ns(age, knots=[60])", "age", (Step("ns", (50.0, 70.0, 60.0)),))
    >>> table = Table(np.array([[40.0], [55.0], [61.0]]), ("age",))
    >>> count_cells(Design.of([spline], [(0,)]), table).tolist()
    [2, 1]
    """
    cells = [np.zeros(0)]
    for factor in design.factors:
        if factor.levels:
            cells.append(np.nansum(level_values(factor, table), axis=0))
        elif factor.is_spline:
            value = table.column(factor.source)
            for inner in factor.steps:
                if inner.function in SCALARS:
                    value = apply_scalar(inner.function, inner.numbers, value)[0]
            knots = np.sort(factor.steps[-1].numbers[LEADING[factor.steps[-1].function] + 2 :])
            places = np.searchsorted(knots, value[~np.isnan(value)])
            cells.append(np.bincount(places, minlength=len(knots) + 1).astype(np.float64))
    return np.rint(np.concatenate(cells)).astype(np.int64)
