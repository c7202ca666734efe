"""Operations of studies on survival data and a table of the same patients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.both import SurvivalAndTable
from multicentre.data.kinds.kind import Kind
from multicentre.data.kinds.survival import SURVIVAL
from multicentre.data.kinds.tables import TABLES

Sites = Mapping[str, SurvivalAndTable]


def check_both(sites: Sites) -> None:
    """Check that all sites have the columns, classes and unit of the first site.

    Raises
    ------
    SchemaMismatch
        A site differs from the first one.
    """
    SURVIVAL.check({site: data.survival for site, data in sites.items()})
    TABLES.check({site: data.table for site, data in sites.items()})


def stack_both(sites: Sites) -> SurvivalAndTable:
    """Stack the patients of all sites.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.data.tabledata import TableData
    >>> both = SurvivalAndTable(SurvivalData([[61.0]], [12.0], [1]), TableData([[61.0]], [0], classes=["no", "yes"]))
    >>> len(stack_both({"lyon": both, "oslo": both}))
    2
    """
    return SurvivalAndTable(
        SURVIVAL.stack({site: data.survival for site, data in sites.items()}),
        TABLES.stack({site: data.table for site, data in sites.items()}),
    )


def amplify_both(
    data: SurvivalAndTable, row: int, factor: float, random: np.random.Generator | None = None
) -> SurvivalAndTable:
    """Multiply every number of one patient in both halves."""
    survival = SURVIVAL.amplify(data.survival, row, factor, random)
    return SurvivalAndTable(survival, TABLES.amplify(data.table, row, factor, random))


BOTH = Kind(check=check_both, stack=stack_both, amplify=amplify_both)
