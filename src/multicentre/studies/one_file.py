"""How a site's file of patients becomes times to an event, or a table with an outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multicentre.data import SurvivalData, TableData, read_table
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.studies.checks import ONE_FILE
from multicentre.studies.sites import SiteData, files_of
from multicentre.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from multicentre.studies.tables import OutcomeTable, SurvivalTable


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

    def read(table: pd.DataFrame, columns: list[str]) -> SurvivalData:
        return SurvivalData.from_frame(
            table,
            time=how.time,
            event=how.event,
            columns=columns,
            categories=how.categories,
            references=how.references,
            id_column=study.data.id_column,
            identifiers=study.data.identifiers or (),
            unit=how.unit,
        )

    return _read_one_file(study, name, how, {how.time, how.event}, [], read)


def read_table_site(study: Study, name: str) -> SiteData:
    """Read the records of one site, one row each, with the outcome to predict.

    Parameters
    ----------
    study : Study
        With a table ``[data.table]``.
    name : str
        The site.

    Returns
    -------
    SiteData
        Groups are those of the label column, which is then no column of the data, or else the classes.

    Raises
    ------
    ConfigurationError
        The study does not say how the file is read.
    DataError
        The file cannot be used; the message names it and the column, never a value.
    """
    how = study.data.table
    if how is None:
        raise ConfigurationError(
            "the method predicts an outcome, and nothing says how it is read",
            where="data.table",
            mend="Add the table, with the column of the outcome; docs/study-file.md shows one.",
        )
    classes = None if how.classes is None else [str(one) for one in how.classes]

    def read(table: pd.DataFrame, columns: list[str]) -> TableData:
        return TableData.from_frame(
            table,
            outcome=how.outcome,
            kind=how.kind,
            classes=classes,
            columns=columns,
            categories=how.categories,
            references=how.references,
            id_column=study.data.id_column,
            identifiers=study.data.identifiers or (),
        )

    return _read_one_file(study, name, how, {how.outcome}, [how.outcome] if classes else [], read)


def _read_one_file(
    study: Study,
    name: str,
    how: SurvivalTable | OutcomeTable,
    outcome: set[str],
    as_text: list[str],
    read: Callable[[pd.DataFrame, list[str]], SurvivalData | TableData],
) -> SiteData:
    path, about = files_of(study, name)[ONE_FILE], study.data
    named = [one for one in (about.id_column, about.label_column) if one is not None]
    aside = {*named, *(about.identifiers or ()), *outcome}
    table = read_table(path, [*_text_categories(how), *named, *(about.identifiers or ()), *as_text])
    try:
        labels = None if about.label_column is None else _labels(table, about.label_column)
        data = read(table, list(how.columns or [column for column in table.columns if column not in aside]))
        return SiteData(data, labels)
    except DataError as error:
        raise error.at(str(path)) from None


def _text_categories(how: SurvivalTable | OutcomeTable) -> list[str]:
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
