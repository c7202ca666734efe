"""How a site's file of patients becomes times to an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.data import SurvivalData, read_table
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.studies.checks import ONE_FILE
from multicentre.studies.sites import SiteData, files_of
from multicentre.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from multicentre.studies.tables import SurvivalTable


def read_survival_site(study: Study, name: str) -> SiteData:
    """Read the patients of one site, one row each.

    Parameters
    ----------
    study : Study
        With a table ``[data.survival]``.
    name : str
        The site.

    Returns
    -------
    SiteData
        Groups are those of the label column, which is then no column of the data, or else the events.

    Raises
    ------
    ConfigurationError
        The study does not say how the file is read.
    DataError
        The file cannot be used; the message names it and the column, never a value.
    """
    how = study.data.survival
    if how is None:
        raise ConfigurationError(
            "the method works on times to an event, and nothing says how they are read",
            where="data.survival",
            mend="Add the table, with the columns of times and events; docs/study-file.md shows one.",
        )
    path = files_of(study, name)[ONE_FILE]
    id_column, label_column = study.data.id_column, study.data.label_column
    table = read_table(path, [*_text_categories(how), *(one for one in (id_column, label_column) if one is not None)])
    try:
        labels = None if label_column is None else _labels(table, label_column)
        return SiteData(_read_patients(table, how, {id_column, label_column}, id_column), labels)
    except DataError as error:
        raise error.at(str(path)) from None


def _read_patients(
    table: pd.DataFrame, how: SurvivalTable, aside: set[str | None], id_column: str | None
) -> SurvivalData:
    columns = how.columns or [column for column in table.columns if column not in aside | {how.time, how.event}]
    data = SurvivalData.from_frame(
        table,
        time=how.time,
        event=how.event,
        columns=columns,
        categories=how.categories,
        id_column=id_column,
        unit=how.unit,
    )
    references = {f"{category}={level}" for category, level in how.references.items()}
    return data.keep_columns(column for column in data.columns if column not in references)


def _text_categories(how: SurvivalTable) -> list[str]:
    """Return the categories whose levels are texts, so that ``01`` and ``1`` stay apart."""
    return [name for name, levels in how.categories.items() if isinstance(levels[0], str)]


def _labels(table: pd.DataFrame, column: str) -> tuple[str, ...]:
    if column not in table.columns:
        raise DataError(
            "the file lacks this column",
            where=f"column {column!r}",
            mend="Correct its name, add it, or leave label_column out.",
        )
    n_without = int(table[column].isna().sum())
    if n_without:
        raise DataError(
            f"{n_without} patients have no label",
            where=f"column {column!r}",
            mend="Give every patient one, or leave label_column out.",
        )
    return tuple(str(one) for one in table[column])
