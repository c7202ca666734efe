"""Result of a reader, and functions that find and read the files of a folder."""

from __future__ import annotations

import logging
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from multicentre.data.events.columns import id_text
from multicentre.errors import DataError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LOG = logging.getLogger("multicentre.data.events")


class SeveralSitesWarning(UserWarning):
    """Patients are recorded at several sites, and each is assigned to the first."""


@dataclass(frozen=True, repr=False)
class PatientEvents:
    """Events of patients in the format of `EventTensor.from_events`, with the patients' outcomes and sites.

    Parameters
    ----------
    events : pandas DataFrame
        Columns ``patient``, ``date``, ``system``, ``code`` and, if the source has them, ``admission`` and ``site``
        (where the event was recorded); all are texts.
    outcomes : dict from str to int, optional
        0 or 1 for every patient; None if the source has no outcomes.
    sites : dict from str to str
        First site of every patient with a recorded site: an intensive care unit, a hospital, a state.
    n_sites_of_patient : dict from str to int, optional
        Number of different sites of every patient with more than one.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"patient": ["a", "b"], "date": "2020-01-01", "system": "icd9cm-dx", "code": "4280"})
    >>> PatientEvents(rows, None, {"a": "lyon", "b": "nice"}).by_site()
    {'lyon': PatientEvents(1 patients, 1 events), 'nice': PatientEvents(1 patients, 1 events)}
    """

    events: pd.DataFrame
    outcomes: dict[str, int] | None
    sites: dict[str, str]
    n_sites_of_patient: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"PatientEvents({self.events['patient'].nunique()} patients, {len(self.events)} events)"

    def by_site(self, several: Literal["first", "split", "drop"] | None = None) -> dict[str, PatientEvents]:
        """Return the events by site, sorted by name.

        The number of patients without a site, who are left out, is written to the log ``multicentre.data.events``.

        Parameters
        ----------
        several : {"first", "split", "drop"}, optional
            Patients of several sites. ``"first"``: all their events belong to the first recorded site. ``"split"``:
            each event belongs to the site that recorded it, so that the patient is counted at several sites, and
            differential privacy bounds the release of each site separately. ``"drop"``: they are left out. None is
            ``"first"`` with a warning that counts them.

        Raises
        ------
        DataError
            No patient has a site; or the events name no site, which ``"split"`` requires.

        Warns
        -----
        SeveralSitesWarning
            Patients are recorded at several sites, and `several` is None.
        """
        site = self.events["patient"].map(self.sites)
        if site.isna().all():
            raise DataError(
                "at least one patient must have a site; none has",
                where="by_site",
                hint="Pass the events of each hospital's own export, or add the site to the source (OMOP: care_site_id "
                "of person).",
            )
        is_several = self.events["patient"].isin(self.n_sites_of_patient)
        n_several = self.events.loc[is_several, "patient"].nunique()
        if several is None and n_several:
            warnings.warn(
                f"{n_several} of {self.events['patient'].nunique()} patients are recorded at several sites; all their "
                "events are assigned to the first. Set several='first', 'split' or 'drop'.",
                SeveralSitesWarning,
                stacklevel=2,
            )
        if several == "split":
            site = self._recorded_sites().fillna(site)
        elif several == "drop":
            site = site.mask(is_several)
        n_without = self.events.loc[site.isna() & ~is_several, "patient"].nunique()
        if n_without:
            _LOG.info("Left out %d patients without a site", n_without)
        return {str(name): self._only(rows) for name, rows in self.events.groupby(site, sort=True)}

    def _recorded_sites(self) -> pd.Series:
        if "site" not in self.events:
            raise DataError(
                "events must name the site that recorded them with several='split'; got no column 'site'",
                where="by_site",
                hint="Set several to 'first' or 'drop'.",
            )
        return self.events["site"]

    def _only(self, rows: pd.DataFrame) -> PatientEvents:
        patients = set(rows["patient"])
        outcomes = self.outcomes and {one: value for one, value in self.outcomes.items() if one in patients}
        sites = {one: site for one, site in self.sites.items() if one in patients}
        return PatientEvents(rows.reset_index(drop=True), outcomes, sites)


def read_columns_of(folder: str | Path, name: str, columns: Iterable[str], code: str | None = None) -> pd.DataFrame:
    """Read columns of a table by its name; names of files and columns are case-insensitive.

    Cells are converted to texts, so that keys of different files can be compared. Cells of the column of codes are
    unchanged, so that later checks can detect codes that were read as numbers.

    Raises
    ------
    DataError
        The folder, the file or a column is missing, or the file is damaged.
    MissingExtra
        The file is Parquet and pyarrow is not installed.
    """
    files = find_files(folder, lambda stem: stem == name)
    if not files:
        raise DataError(
            f"the folder must contain a table {name}; got none",
            where=str(folder),
            hint=f"Add {name}.csv, {name}.csv.gz or {name}.parquet.",
        )
    texts = list(columns)
    selected = texts if code is None else [*texts, code]
    table = need_columns(read_columns(files[0], lambda column: column in selected), selected, files[0])[selected]
    return table.assign(**{column: table[column].map(id_text, na_action="ignore") for column in texts})


def find_files(folder: str | Path, fits: Callable[[str], bool]) -> list[Path]:
    """Return the sorted tables of a folder whose name (lower case, without suffix) satisfies `fits`.

    Raises
    ------
    DataError
        The folder does not exist.
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(
            "folder must be an existing folder; got none at this path", where=str(folder), hint="Check the path."
        )
    return sorted(file for file in place.iterdir() if (stem := _stem(file)) is not None and fits(stem))


def read_columns(file: Path, is_selected: Callable[[str], bool]) -> pd.DataFrame:
    """Read the columns whose lower-case name satisfies `is_selected`.

    Cells of a CSV file are texts. Empty cells are missing.

    Raises
    ------
    DataError
        The file is damaged.
    MissingExtra
        The file is Parquet and pyarrow is not installed.
    """
    import pandas as pd

    try:
        if file.suffix.lower() == ".parquet":
            frame = pd.read_parquet(file, engine="pyarrow")
            frame = frame[[name for name in frame.columns if is_selected(str(name).lower())]]
        else:
            frame = pd.read_csv(
                file, dtype=str, keep_default_na=False, na_values=[""], usecols=lambda name: is_selected(name.lower())
            )
    except ImportError as error:
        raise MissingExtra(
            "reading Parquet requires pyarrow", where=str(file), hint="Install multicentre[parquet], or export to CSV."
        ) from error
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        raise DataError(
            "the file is damaged or incomplete", where=str(file), hint="Copy or export it again."
        ) from error
    return frame.rename(columns=lambda name: str(name).lower())


def need_columns(frame: pd.DataFrame, columns: Iterable[str], file: Path) -> pd.DataFrame:
    """Return the frame after checking that it has these columns.

    Raises
    ------
    DataError
        A column is missing.
    """
    for name in columns:
        if name not in frame.columns:
            raise DataError(
                f"the table must have a column {name!r}; got none",
                where=str(file),
                hint="Export it with this column.",
            )
    return frame


def stack_events(parts: Iterable[pd.DataFrame], source: str) -> pd.DataFrame:
    """Stack the events of several tables.

    Events without patient, date or code are left out, and their number is logged.
    """
    import pandas as pd

    stacked = pd.concat(list(parts), ignore_index=True)
    complete = stacked.dropna(subset=["patient", "date", "code"]).reset_index(drop=True)
    if len(complete) < len(stacked):
        n_left_out = len(stacked) - len(complete)
        _LOG.info("%s: left out %d of %d events without patient, date or code", source, n_left_out, len(stacked))
    return complete


def first_present(frame: pd.DataFrame, key: str, value: str) -> dict[str, str]:
    """Return the first value that is not missing, by key."""
    complete = frame.dropna(subset=[key, value]).drop_duplicates(key)
    return dict(zip(complete[key].astype(str), complete[value].astype(str), strict=True))


def count_several(frame: pd.DataFrame, key: str, value: str) -> dict[str, int]:
    """Return the number of different values by key, of keys with more than one.

    Examples
    --------
    >>> import pandas as pd
    >>> count_several(pd.DataFrame({"patient": ["a", "a", "b"], "site": ["x", "y", "x"]}), "patient", "site")
    {'a': 2}
    """
    numbers = frame.dropna(subset=[key, value]).groupby(key)[value].nunique()
    return {str(one): int(number) for one, number in numbers[numbers > 1].items()}


def ever(frame: pd.DataFrame, key: str, true: pd.Series) -> dict[str, int]:
    """Return 1 for keys with any true row, 0 for the others."""
    return {str(one): int(value) for one, value in true.groupby(frame[key]).any().items()}


def _stem(file: Path) -> str | None:
    name = file.name.lower()
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), None)
