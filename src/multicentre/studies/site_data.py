"""Readers of a site's data and, for simulated runs, of its patients' groups from the files of a study."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multicentre.data import (
    DataWarning,
    EventTensor,
    MultiViewData,
    SurvivalData,
    TableData,
    read_multiview,
    read_table,
)
from multicentre.data.both import SurvivalAndTable
from multicentre.data.cells import Fault, collected, raise_faults
from multicentre.data.concatenate import check_together
from multicentre.errors import ConfigurationError, DataError, MulticentreError, joined, nearest_name
from multicentre.formula.conditions import parse_condition
from multicentre.studies.cohort import leave_out_incomplete, select_in_table
from multicentre.studies.label_columns import Key, LabelColumns, read_label_columns
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study import Study
from multicentre.studies.tables import EVENTS_FILE, ONE_FILE, OUTCOMES_FILE, DataTable, OutcomeTable, SurvivalTable

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def read_sites(study: Study) -> dict[str, SiteData]:
    """Read the data of every site of a study.

    Raises
    ------
    DataError, ConfigurationError
        A site's files are invalid, or two sites' data are incompatible; the message and its notes name every such
        site. Sites with different views of the same patients need not be compatible.
    """
    read = reader_of(study)
    sites: dict[str, SiteData] = {}
    faults: dict[str, MulticentreError] = {}
    for name in study.sites:
        try:
            with _warnings_of(name):
                sites[name] = read(study, name)
        except MulticentreError as error:
            faults[name] = error.at(name)
    if faults:
        raise joined(faults, len(study.sites))
    if study.is_vertical:
        _check_some_labels(study, sites)
    else:
        check_together({name: site.data for name, site in sites.items()})
    return sites


@contextmanager
def _warnings_of(site: str) -> Iterator[None]:
    """Prefix warnings about a site's data with the site's name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield
    for each in caught:
        warnings.warn_explicit(f"{site}: {each.message}", each.category, each.filename, each.lineno)


def _check_some_labels(study: Study, sites: Mapping[str, SiteData]) -> None:
    if study.data.label_column is not None and all(site.labels is None for site in sites.values()):
        raise DataError(
            f"at least one site's files must have the label column {study.data.label_column!r}; none has",
            where="data.label_column",
            hint="Correct its name, add it at one of the sites, or leave label_column out.",
        )


def files_of(study: Study, name: str) -> Mapping[str, Path]:
    """Return the files of a site.

    Raises
    ------
    DataError
        The study names no file: the site's data must be passed in Python.
    """
    if not study.sites[name]:
        raise DataError(
            "the study must name a file of this site; got none", hint="Add one, or pass the data in Python."
        )
    return study.sites[name]


def read_multiview_site(study: Study, name: str) -> SiteData:
    """Read the views of one site.

    Groups and identifiers are columns outside the views. If sites have different views of the same patients, a site
    may lack the groups.
    """
    for table, content in (
        ("events", "events"),
        ("survival", "times to an event"),
        ("table", "tables with an outcome"),
    ):
        if getattr(study.data, table) is not None:
            raise ConfigurationError(
                f"data must be views for this method; got {content}", where=f"data.{table}", hint="Leave the table out."
            )
    files, about = files_of(study, name), study.data
    if ONE_FILE in files:
        files = dict.fromkeys(about.views, files[ONE_FILE])
    identifiers = about.identifiers or ()
    other_columns = [*identifiers, *([] if about.label_column is None else [about.label_column])]
    if not other_columns:
        columns = {view: names for view, names in about.views.items() if view in files}
        return SiteData(read_multiview(files, about.id_column, columns))
    label_columns = read_label_columns(files, about.id_column, other_columns)
    label = _label_column(study, label_columns)
    left_out = {about.id_column, *other_columns}
    columns = {
        view: about.views.get(view) or tuple(column for column in label_columns.headers[path] if column not in left_out)
        for view, path in files.items()
    }
    data = read_multiview(files, about.id_column, columns)
    patients: list[Key] = list(range(len(data))) if data.ids is None else [str(one) for one in data.ids]
    if identifiers:
        data = data.with_identifier(label_columns.identifiers(patients, identifiers))
    return SiteData(data, None if label is None else label_columns.groups(patients, label))


def _label_column(study: Study, label_columns: LabelColumns) -> str | None:
    """Return the column of groups, or None if there is none or another site has it for the same patients."""
    label = study.data.label_column
    if label is None or label_columns.has(label):
        return label
    if study.is_vertical:
        return None
    raise DataError(
        f"one of the site's files must have the label column {label!r}; none has",
        hint="Correct its name, add it to one of the files, or leave label_column out.",
    )


@dataclass(frozen=True)
class _Half:
    """A table of the study that is read from a site's file: `read` receives the records and the covariates."""

    settings: SurvivalTable | OutcomeTable
    as_text: list[str]
    read: Callable[[pd.DataFrame, list[str]], SurvivalData | TableData]


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
        Groups are those of the label column, which is then excluded from the data, or else the events.

    Raises
    ------
    ConfigurationError
        The study lacks this table.
    DataError
        The file is invalid; the message names it and all faulty columns, never a value.
    """
    (data,), labels = _read_one_file(study, name, _survival_half(study))
    return SiteData(data, labels)


def _survival_half(study: Study) -> _Half:
    settings = _require(study.data.survival, "data.survival", "columns of times and events")

    def read(table: pd.DataFrame, columns: list[str]) -> SurvivalData:
        return SurvivalData.from_frame(
            table,
            time=settings.time,
            event=settings.event,
            columns=columns,
            categories=settings.categories,
            references=settings.references,
            id_column=study.data.id_column,
            identifiers=study.data.identifiers or (),
            unit=settings.unit,
        )

    return _Half(settings, [], read)


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
        Groups are those of the label column, which is then excluded from the data, or else the classes.

    Raises
    ------
    ConfigurationError
        The study lacks this table.
    DataError
        The file is invalid; the message names it and all faulty columns, never a value.
    """
    (data,), labels = _read_one_file(study, name, _table_half(study))
    return SiteData(data, labels)


def _table_half(study: Study) -> _Half:
    settings = _require(study.data.table, "data.table", "column of the outcome")
    classes = None if settings.classes is None else [str(one) for one in settings.classes]

    def read(table: pd.DataFrame, columns: list[str]) -> TableData:
        return TableData.from_frame(
            table,
            outcome=settings.outcome,
            kind=settings.kind,
            classes=classes,
            columns=columns,
            categories=settings.categories,
            references=settings.references,
            id_column=study.data.id_column,
            identifiers=study.data.identifiers or (),
        )

    return _Half(settings, [settings.outcome] if classes else [], read)


def read_survival_and_table(study: Study, name: str) -> SiteData:
    """Read the patients of one site for analyses of times to an event and analyses of an outcome.

    Raises
    ------
    ConfigurationError, DataError
        As for :func:`read_survival_site` and :func:`read_table_site`.
    """
    (survival, table), labels = _read_one_file(study, name, _survival_half(study), _table_half(study))
    return SiteData(SurvivalAndTable(survival, table), labels)


def _outcome_columns(data: DataTable) -> set[str]:
    """Return the columns of times, events and outcomes, which are covariates of no analysis unless listed."""
    times = () if data.survival is None else (data.survival.time, data.survival.event)
    return {*times, *(() if data.table is None else (data.table.outcome,))}


def _require(table: T | None, name: str, columns: str) -> T:
    """Return a table of the study that the method requires, or raise an error that names its columns."""
    if table is None:
        raise ConfigurationError(
            f"[{name}] must be given for this method",
            where=name,
            hint=f"Add the table, with the {columns}. All keys: multicentre docs study-file",
        )
    return table


def _read_one_file(study: Study, name: str, *halves: _Half) -> tuple[list[Any], tuple[str, ...] | None]:
    """Return the data of each half and the labels; raise one error for all faults of the file."""
    path, about = files_of(study, name)[ONE_FILE], study.data
    text_columns = [one for one in (about.id_column, about.label_column) if one is not None]
    text_columns += [*(about.identifiers or ()), *(column for half in halves for column in half.as_text)]
    conditions = [] if about.where is None else parse_condition(about.where).text_columns
    categories = [column for half in halves for column in _text_categories(half.settings)]
    table = read_table(path, list(dict.fromkeys([*categories, *text_columns, *conditions])))
    faults: list[Fault] = []
    with collected(faults):
        selected, flow = select_in_table(about, table, sorted(_outcome_columns(about)))
    if faults:  # the other columns are checked without the condition
        with collected(faults):
            unconditional = about.model_copy(update={"where": None})
            selected, flow = select_in_table(unconditional, table, sorted(_outcome_columns(about)))
    labels = None
    if about.label_column is not None:
        with collected(faults):
            labels = _labels(selected, about.label_column)
    data = []
    for half in halves:
        others = {*(about.id_column, about.label_column), *(about.identifiers or ()), *_outcome_columns(about)}
        others |= {one for one in conditions if one not in half.settings.categories}
        columns = half.settings.columns or [column for column in table.columns if column not in others]
        with collected(faults):
            read = half.read(selected, list(columns))
            data.append(read.with_flow(flow) if about.selects else read)
    raise_faults(faults, str(path))
    return data, labels


def _text_categories(settings: SurvivalTable | OutcomeTable) -> list[str]:
    """Return the categories whose levels are texts, so that ``01`` and ``1`` remain distinct."""
    return [name for name, levels in settings.categories.items() if isinstance(levels[0], str)]


def _labels(table: pd.DataFrame, column: str) -> tuple[str, ...]:
    if column not in table.columns:
        raise DataError(
            "the file has no such column",
            where=f"column {column!r}",
            hint=f"{nearest_name([column], table.columns)}Correct its name, add it, or leave label_column out.",
        )
    n_without = int(table[column].isna().sum())
    if n_without:
        raise DataError(
            f"every patient must have a label; {n_without} patients have none",
            where=f"column {column!r}",
            hint="Give every patient a label, or leave label_column out.",
        )
    return tuple(str(one) for one in table[column])


OUTCOME = "outcome"


def read_event_site(study: Study, name: str) -> SiteData:
    """Read the events of one site, and its outcomes if it has a file of outcomes.

    Parameters
    ----------
    study : Study
        With a table ``[data.events]``.
    name : str
        The site.

    Raises
    ------
    ConfigurationError
        The study lacks this table.
    DataError
        A file is invalid; the message names it and the column, never a value.
    """
    settings = _require(study.data.events, "data.events", "code systems of every mode")
    files = files_of(study, name)
    path = files[EVENTS_FILE]
    events = _read(path, list(settings.columns.values()), settings.patient)
    outcomes = None
    if OUTCOMES_FILE in files:
        outcomes = read_outcomes(files[OUTCOMES_FILE], settings.patient, study.data.label_column or OUTCOME)
    try:
        tensor = EventTensor.from_events(
            events,
            modes=settings.modes,
            window_days=settings.window_days,
            anchor=settings.anchor,
            columns=settings.columns,
            outcomes=outcomes,
        )
    except DataError as error:
        raise error.at(str(files[OUTCOMES_FILE] if error.where == "outcomes" else path)) from None
    return SiteData(tensor)


def read_outcomes(path: Path, patient: str, column: str) -> dict[object, int]:
    r"""Return the outcome of every patient of a file, 0 or 1.

    Parameters
    ----------
    path : Path
        File of a table with one row per patient.
    patient, column : str
        Names of the columns of patients and outcomes.

    Raises
    ------
    DataError
        A column is missing, a patient is listed twice, or an outcome is neither 0 nor 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "outcomes.csv"
    ...     _ = file.write_text("patient,died\n007,1\n012,0\n")
    ...     read_outcomes(file, "patient", "died")
    {'007': 1, '012': 0}
    """
    table = _read(path, [patient], patient)
    for name in (patient, column):
        if name not in table.columns:
            raise DataError(
                "the file has no such column", where=_place(path, name), hint="Name it in the study, or add it."
            )
    patients = table[patient].dropna().astype(str).str.strip()
    n_repeated, n_nameless = int(patients.duplicated().sum()), len(table) - len(patients)
    if n_repeated or n_nameless:
        raise DataError(
            f"every patient must have one row; {n_repeated} rows repeat an earlier patient, {n_nameless} name none",
            where=_place(path, patient),
            hint="Give every patient one row.",
        )
    n_unfit = int((~table[column].isin([0, 1])).sum())
    if n_unfit:
        raise DataError(
            f"outcomes must be 0 or 1; {n_unfit} are missing or different",
            where=_place(path, column),
            hint="Write 1 for the outcome and 0 otherwise; leave out patients with an unknown outcome.",
        )
    return dict(zip(patients, table[column].astype(int).tolist(), strict=True))


def _read(path: Path, text_columns: Sequence[str], patient: str) -> pd.DataFrame:
    """Return a table with unchanged texts; Parquet cells have types, by which lost leading zeros are detected."""
    return read_table(path, [patient] if path.suffix.lower() == ".parquet" else text_columns)


def _place(path: Path, column: str) -> str:
    return f"{path}, column {column!r}"


# Reader of one site of a study, by the type of data of a site part or a base class of it.
_READERS: dict[type, Callable[[Study, str], SiteData]] = {
    MultiViewData: read_multiview_site,
    EventTensor: read_event_site,
    SurvivalData: read_survival_site,
    TableData: read_table_site,
}


def reader_of(study: Study) -> Callable[[Study, str], SiteData]:
    """Return the function that reads a site's files for all analyses of a study.

    Raises
    ------
    ConfigurationError
        A method is unknown, or the analyses need data that one site's data cannot provide together.
    """
    readers = list(dict.fromkeys(find_reader(part.method) for part in study.split().values()))
    if set(readers) == {read_survival_site, read_table_site}:
        readers = [read_survival_and_table]
    if len(readers) == 1:
        return lambda study, name: leave_out_incomplete(study.data, readers[0](study, name))
    raise ConfigurationError(
        "analyses of one study must work on one kind of data, or on times to an event and a table; got others",
        where="analysis",
        hint="Write a study for each kind of data.",
    )


def find_reader(method: str) -> Callable[[Study, str], SiteData]:
    """Return the function that reads a site's files for a method, chosen by the type of data of its site part.

    Raises
    ------
    ConfigurationError
        No method has this name, or a study file cannot describe its type of data.
    """
    from multicentre.estimator.base import find_estimator

    data_type = find_estimator(method).site_part.holds
    for base in data_type.__mro__:
        if base in _READERS:
            return _READERS[base]
    raise ConfigurationError(
        f"data of a study must be views, events, times to an event or a table; {method} works on {data_type.__name__}",
        where="method",
        hint="Fit the estimator in Python.",
    )
