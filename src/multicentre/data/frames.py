"""Conversion of tables of other libraries (polars, arrow) to pandas frames, at the border of the package."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from multicentre.errors import DataError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

_EXACT = 2**53  # largest magnitude up to which every whole number is a float


def is_frame(table: object) -> bool:
    """Return whether an object is a table with named columns: a pandas, polars (also lazy) or arrow table.

    Examples
    --------
    >>> import pandas as pd
    >>> is_frame([[0.0, 0.0]]), is_frame(pd.DataFrame({"age": [61]}))
    (False, True)
    """
    is_named = _is_polars(table) or hasattr(table, "columns")  # that of a lazy frame is slow, and warns
    return is_named and (hasattr(table, "iloc") or hasattr(table, "__arrow_c_stream__") or _is_polars(table))


def to_pandas(table: Any) -> pd.DataFrame:
    """Return a table as a pandas frame: nulls are missing, enumerations and dictionaries are categoricals.

    Whole numbers with nulls become floats, as in a pandas frame, unless digits would be lost.

    Parameters
    ----------
    table : pandas frame, polars frame (also lazy), or arrow table
        Arrow includes every object with the method ``__arrow_c_stream__``.

    Raises
    ------
    DataError
        `table` is of another type.
    MissingExtra
        An arrow table of another library than pyarrow and polars, without pyarrow.
    """
    if _is_polars(table):
        import pandas as pd

        eager = table.collect() if hasattr(table, "collect") else table
        return pd.DataFrame({series.name: _series_of(series) for series in eager.get_columns()})
    if hasattr(table, "iloc"):
        return table  # type: ignore[no-any-return]
    if hasattr(table, "__arrow_c_stream__"):
        return _from_arrow(table)
    raise DataError(
        f"frame must be a pandas, polars or arrow table; got {type(table).__module__.partition('.')[0]} "
        f"{type(table).__name__}",
        where="frame",
        hint="Convert it to one of these.",
    )


def _is_polars(table: object) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(table, polars.DataFrame | polars.LazyFrame)


def _from_arrow(table: Any) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra(
            "arrow tables need pyarrow, which is not installed",
            where="frame",
            hint='Install it with: pip install "multicentre[parquet]".',
        ) from None
    return pyarrow.table(table).to_pandas(integer_object_nulls=True)  # type: ignore[no-any-return]


def _series_of(series: Any) -> pd.Series:
    """Return a polars column as pandas would hold it."""
    import pandas as pd
    import polars as pl

    kind = series.dtype
    if kind == pl.Enum:
        return pd.Series(pd.Categorical(series.cast(pl.String).to_list(), categories=kind.categories.to_list()))
    if kind == pl.Boolean and series.has_nulls():
        return pd.Series(series.to_list(), dtype="boolean")
    if kind.is_decimal():
        return pd.Series(series.cast(pl.Float64).to_numpy())
    if isinstance(kind, pl.Datetime):
        series = series.dt.replace_time_zone(None)
    is_gappy = kind.is_integer() and series.has_nulls()
    is_wide = is_gappy and max(abs(series.min() or 0), abs(series.max() or 0)) > _EXACT
    if (kind.is_numeric() or kind.is_temporal() or kind == pl.Boolean) and kind != pl.Time and not is_wide:
        return pd.Series(series.to_numpy())
    return pd.Series(series.to_list(), dtype=object)
