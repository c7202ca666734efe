"""Design of a fit: the columns of new patients, and the numbers and levels whose effects it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import texts
from multicentre.data.categories import families, join_level
from multicentre.data.tabular import add_indicators
from multicentre.formula.columns import Table, build_columns, check_values
from multicentre.formula.design import Design

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FittedDesign(Design):
    """Design of a fit, and the columns of the data that it is built from."""

    data_columns: tuple[str, ...] = texts("columns of the data", default=())
    data_levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())
    data_marked: tuple[str, ...] = texts("columns whose missing entries have an indicator", default=())

    @property
    def used(self) -> list[str]:
        """Columns of the data that the design needs, without indicators."""
        names = {*self.sources, *self.passed}
        of_category = {
            level for name, family in families(self.data_levels).items() if name in names for level in family
        }
        return [name for name in self.data_columns if name in names or name in of_category]

    def build(self, values: Floats, columns: tuple[str, ...]) -> Floats:
        """Return the columns of the design, shape (n, number of columns), for columns of the data."""
        marked = add_indicators(values, columns, self.data_levels, self.data_marked)
        names = (*columns, *(f"missing_{name}" for name in self.data_marked))
        table = Table(marked, names, self.data_levels)
        check_values(self, table)
        return build_columns(self, table)


def requested_effects(design: Design) -> tuple[list[str], list[str], list[str]]:
    """Return the numeric columns, the levels, and the reference of each level, as ``name=level``.

    Examples
    --------
    >>> from multicentre.formula.design import BuiltFactor
    >>> factors = [BuiltFactor("age", "age"), BuiltFactor("sex", "sex", (), ("f", "m"), True)]
    >>> requested_effects(Design.of(factors, [(0,), (1,)]))
    (['age'], ['sex=m'], ['sex=f'])
    """
    used: Sequence[int] = sorted({place for term in design.products for place in term})
    factors = [design.factors[place] for place in used]
    columns = list(dict.fromkeys(factor.source for factor in factors if not factor.levels))
    references = {
        join_level(factor.source, level): join_level(factor.source, factor.levels[0])
        for factor in factors
        for level in factor.levels[1:]
    }
    return columns, list(references), list(references.values())
