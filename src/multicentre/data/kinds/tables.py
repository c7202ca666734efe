"""Operations of studies on tabular data with an outcome."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.kinds.kind import Kind, carry_identifiers, draw_signs, join_ids
from multicentre.data.schema import check_columns
from multicentre.data.tabledata import TableData
from multicentre.errors import SchemaMismatch

Sites = Mapping[str, TableData]


def check_tables(sites: Sites) -> None:
    """Check that all sites have the columns and the classes of the first site, in the same order.

    Raises
    ------
    SchemaMismatch
        A site has different columns or classes.

    Examples
    --------
    >>> lyon = TableData([[61.0], [64.0]], [0, 1], columns=["age"])
    >>> check_tables({"lyon": lyon, "oslo": TableData([[70.0], [71.0]], [0, 1], columns=["weight"])})
    Traceback (most recent call last):
    multicentre.errors.SchemaMismatch: oslo: columns must be those of lyon, in the same order; got differences in ...
    """
    (first, expected), *others = sites.items()
    for site, data in others:
        check_columns(site, data, first, expected)
        if data.classes != expected.classes:
            raise SchemaMismatch(
                f"classes must be those of {first}; got different classes",
                where=site,
                hint="Declare the same `classes` at every site.",
            )


def stack_tables(sites: Sites) -> TableData:
    """Stack the patients of all sites.

    Examples
    --------
    >>> lyon = TableData([[61.0], [64.0]], [0, 1], identifier=["7", "8"])
    >>> both = stack_tables({"lyon": lyon, "oslo": TableData([[70.0], [71.0]], [1, 0], identifier=["7", None])})
    >>> both.identifier.column("identifier")
    ['7', '8', '7', None]
    """
    check_tables(sites)
    parts = list(sites.values())
    ids = join_ids({site: data.ids for site, data in sites.items()})
    return carry_identifiers(TableData.stacked(parts, ids), parts)


def amplify_record(data: TableData, row: int, factor: float, random: np.random.Generator | None = None) -> TableData:
    """Multiply every number of one patient; the outcome and missing entries are unchanged.

    Examples
    --------
    >>> amplify_record(TableData([[61.0], [64.0]], [0, 1]), 1, 10.0).X.tolist()
    [[640.0]]
    """
    patient = data.take([row]).without_identifier()
    return patient.with_arrays(X=patient.X * (factor * draw_signs(patient.X.shape, random)))


TABLES = Kind(check=check_tables, stack=stack_tables, amplify=amplify_record)
