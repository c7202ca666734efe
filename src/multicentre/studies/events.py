"""How a site's files of events and outcomes become a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data import EventTensor, read_table
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.studies.checks import EVENTS_FILE, OUTCOMES_FILE
from multicentre.studies.sites import SiteData, files_of
from multicentre.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

OUTCOME = "outcome"


def read_event_site(study: Study, name: str) -> SiteData:
    """Read the events of one site, and its outcomes where it has a file of them.

    Parameters
    ----------
    study : Study
        With a table ``[data.events]``.
    name : str
        The site.

    Raises
    ------
    ConfigurationError
        The study does not say how events are read.
    DataError
        A file cannot be used; the message names it and the column, never a value.
    """
    how = study.data.events
    if how is None:
        raise ConfigurationError(
            "the method works on events, and nothing says how they are read",
            where="data.events",
            mend="Add the table, with the code systems of every mode; docs/study-file.md shows one.",
        )
    files = files_of(study, name)
    path = files[EVENTS_FILE]
    events = _read(path, list(how.columns.values()), how.patient)
    outcomes = None
    if OUTCOMES_FILE in files:
        outcomes = read_outcomes(files[OUTCOMES_FILE], how.patient, study.data.label_column or OUTCOME)
    try:
        tensor = EventTensor.from_events(
            events,
            modes=how.modes,
            window_days=how.window_days,
            anchor=how.anchor,
            columns=how.columns,
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
        Of a table with one row a patient.
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
                "the file lacks this column", where=_place(path, name), mend="Name it in the study, or add it."
            )
    patients = table[patient].dropna().astype(str).str.strip()
    n_repeated, n_nameless = int(patients.duplicated().sum()), len(table) - len(patients)
    if n_repeated or n_nameless:
        raise DataError(
            f"{n_repeated} rows repeat an earlier patient, {n_nameless} name none",
            where=_place(path, patient),
            mend="Give every patient one row.",
        )
    n_unfit = int((~table[column].isin([0, 1])).sum())
    if n_unfit:
        raise DataError(
            f"{n_unfit} outcomes are missing or neither 0 nor 1",
            where=_place(path, column),
            mend="Write 1 where it happened and 0 where not; leave out patients of whom it is not known.",
        )
    return dict(zip(patients, table[column].astype(int).tolist(), strict=True))


def _read(path: Path, text_columns: Sequence[str], patient: str) -> pd.DataFrame:
    """Return a table with texts as they stand; in Parquet, cells have types of their own, which tell of lost zeros."""
    return read_table(path, [patient] if path.suffix.lower() == ".parquet" else text_columns)


def _place(path: Path, column: str) -> str:
    return f"{path}, column {column!r}"
