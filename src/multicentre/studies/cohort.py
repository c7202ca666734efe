"""Records of a study: one selection at each site, before all analyses.

A record is left out for the first reason that applies: the condition ``where`` is false, or unknown because of a
missing entry; an outcome is missing; a covariate is missing. Each record is judged by itself: of a patient with several
records, those that meet the terms stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.both import SurvivalAndTable
from multicentre.data.cells import ROW_OF_FILE, numbers_of
from multicentre.data.flow import Flow
from multicentre.data.kinds import PatientData
from multicentre.data.table import check_present
from multicentre.data.tabular import Tabular, flag_missing, sources_of
from multicentre.errors import ConfigurationError, DataError, nearest_name
from multicentre.formula.conditions import Reader, parse_condition, reader_of_data
from multicentre.studies.tables import DataTable

if TYPE_CHECKING:
    import pandas as pd

    from multicentre.studies.site_patients import SiteData

Flags = NDArray[np.bool_]


def select_in_table(about: DataTable, table: pd.DataFrame, outcomes: Sequence[str]) -> tuple[pd.DataFrame, Flow]:
    """Return the rows of a site's table that meet ``where`` and have the required outcomes, and their flow."""
    reasons = _where_reasons(about, len(table), _reader_of_table(table))
    for name in dict.fromkeys(outcomes):
        if about.complete is not None and (about.complete == "all" or name in about.complete) and name in table:
            reasons[f"missing {name}"] = table[name].isna().to_numpy(dtype=np.bool_)
    rows, flow = _select(Flow(len(table), {}), reasons)
    return (table if len(rows) == len(table) else table.rename_axis(index=ROW_OF_FILE).iloc[rows]), flow


def select_in_memory(about: DataTable, site: SiteData) -> SiteData:
    """Return the records of data in memory that meet the terms of a study.

    Raises
    ------
    ConfigurationError
        The data are views or events, or a condition names no column of theirs.
    """
    if not about.selects:
        return site
    halves = _halves(site.data)
    reasons = _where_reasons(about, len(site.data), reader_of_data(halves[0]))
    return leave_out_incomplete(about, _take(site, *_select(Flow(len(site.data), {}), reasons)))


def meeting(where: str, site: SiteData) -> SiteData | None:
    """Return the records of a simulated site that meet the condition of an analysis; None if there are none."""
    met, _ = parse_condition(where).evaluate(reader_of_data(_halves(site.data)[0]))
    rows, data = np.flatnonzero(met), site.data
    if not len(rows):
        return None
    labels = None if site.labels is None else tuple(site.labels[row] for row in rows)
    return replace(site, data=data.take(rows), labels=labels)


def leave_out_incomplete(about: DataTable, site: SiteData) -> SiteData:
    """Return a site's records without missing covariates, as ``complete`` requires, with their flow.

    Raises
    ------
    ConfigurationError
        ``complete`` names no variable of the data.
    DataError
        No record is left.
    """
    if about.complete is None:
        return site
    halves = _halves(site.data)
    flags: dict[str, Flags] = {}
    for half in halves:
        sources = tuple(dict.fromkeys(sources_of(half.columns, half.levels)))
        missing = flag_missing(half.X, half.columns, half.levels, sources)
        flags |= {f"missing {name}": missing[:, place] for place, name in enumerate(sources)}
    if about.complete != "all":
        valid = [*(name.removeprefix("missing ") for name in flags), *_outcomes(about)]
        if unknown := [name for name in about.complete if name not in valid]:
            raise ConfigurationError(
                f"complete must be variables of the study; got {unknown[0]!r}",
                where="data.complete",
                hint=f"{nearest_name(unknown, valid)}They are {', '.join(dict.fromkeys(valid))}.",
            )
        flags = {reason: flag for reason, flag in flags.items() if reason.removeprefix("missing ") in about.complete}
    return _take(site, *_select(halves[0].flow or Flow(len(site.data), {}), flags))


def _where_reasons(about: DataTable, n_records: int, read: Reader) -> dict[str, Flags]:
    if about.where is None:
        return {}
    condition = parse_condition(about.where)
    met, unknown = condition.evaluate(read)
    unclear = f"condition unknown: missing {' or '.join(condition.columns)}"
    return {f"condition not met: {condition.text}": ~met & ~unknown, unclear: unknown}


def _select(flow: Flow, reasons: Mapping[str, Flags]) -> tuple[NDArray[np.int64], Flow]:
    """Return the rows for which no reason applies, and the flow with the first reason of each other row."""
    left, counts = np.ones(flow.analysed, dtype=np.bool_), dict[str, int]()
    for reason, flags in reasons.items():
        counts[reason] = int((left & flags).sum()) + counts.get(reason, 0)
        left &= ~flags
    if not left.any():
        raise DataError(
            "at least one record must remain for the analyses; none does",
            where="data.where, data.complete",
            hint=f"Reasons: {', '.join(reason for reason, number in counts.items() if number)}.",
        )
    return np.flatnonzero(left), flow.leaving_out(counts)


def _take(site: SiteData, rows: NDArray[np.int64], flow: Flow) -> SiteData:
    data: Any = site.data if len(rows) == len(site.data) else site.data.take(rows)
    labels = None if site.labels is None else tuple(site.labels[row] for row in rows)
    return replace(site, data=data.with_flow(flow), labels=labels)


def _halves(data: PatientData) -> list[Tabular]:
    if isinstance(data, SurvivalAndTable):
        return [data.survival, data.table]
    if not isinstance(data, Tabular):
        raise ConfigurationError(
            f"complete and where must be with times to an event or a table; got {type(data).__name__}",
            where="data",
            hint="Leave them out, and select the records in the files.",
        )
    return [data]


def _outcomes(about: DataTable) -> list[str]:
    times = [] if about.survival is None else [about.survival.time, about.survival.event]
    return times + ([] if about.table is None else [about.table.outcome])


def _reader_of_table(table: pd.DataFrame) -> Reader:
    """Return the reader of the cells of a file."""

    def read(name: str, is_text: bool) -> tuple[NDArray[Any], Flags]:
        check_present(table, [name])
        column = table[name]
        missing = column.isna().to_numpy(dtype=np.bool_)
        if is_text:
            return column.astype(str).str.strip().to_numpy(dtype=object).astype(str), missing
        return numbers_of(column, ""), missing

    return read
