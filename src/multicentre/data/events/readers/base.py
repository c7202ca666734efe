"""What a reader returns, and how it finds and reads the files of a folder."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data.events.columns import id_text
from multicentre.federation.errors import DataError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LOG = logging.getLogger("multicentre.data.events")


@dataclass(frozen=True, repr=False)
class PatientEvents:
    """Events of patients as `EventTensor.from_events` takes them, with what is known of the patients.

    Parameters
    ----------
    events : pandas DataFrame
        Columns ``patient``, ``date``, ``system``, ``code`` and, where the source has them, ``admission``; all texts.
    outcomes : dict from str to int, optional
        0 or 1 for every patient; nothing where the source does not tell.
    sites : dict from str to str
        The site of every patient whose site is known: an intensive care unit, a hospital, a state.

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

    def __repr__(self) -> str:
        return f"PatientEvents({self.events['patient'].nunique()} patients, {len(self.events)} events)"

    def by_site(self) -> dict[str, PatientEvents]:
        """Return the events of every site, sites sorted by name; patients of no known site are left out."""
        site = self.events["patient"].map(self.sites)
        return {str(name): self._only(rows) for name, rows in self.events.groupby(site, sort=True)}

    def _only(self, rows: pd.DataFrame) -> PatientEvents:
        patients = set(rows["patient"])
        outcomes = self.outcomes and {one: value for one, value in self.outcomes.items() if one in patients}
        sites = {one: site for one, site in self.sites.items() if one in patients}
        return PatientEvents(rows.reset_index(drop=True), outcomes, sites)


def read_named(folder: str | Path, name: str, columns: Iterable[str], code: str | None = None) -> pd.DataFrame:
    """Read columns of the table of this name; upper and lower case do not matter, neither in names nor in columns.

    Cells become texts, so that keys of different files meet; those of the column of codes stay as they are, for
    numbers among them are not to be trusted.

    Raises
    ------
    DataError
        The folder or the file is missing, the file is damaged, or it lacks a column.
    MissingExtra
        The file is Parquet and pyarrow is not installed.
    """
    files = find_files(folder, lambda stem: stem == name)
    if not files:
        raise DataError(
            f"there is no table {name}",
            where=str(folder),
            hint=f"Put {name}.csv, {name}.csv.gz or {name}.parquet there.",
        )
    texts = list(columns)
    wanted = texts if code is None else [*texts, code]
    table = need_columns(read_columns(files[0], lambda column: column in wanted), wanted, files[0])[wanted]
    return table.assign(**{column: table[column].map(id_text, na_action="ignore") for column in texts})


def find_files(folder: str | Path, fits: Callable[[str], bool]) -> list[Path]:
    """Return the tables of a folder whose name, in lower case and without ending, fits; sorted.

    Raises
    ------
    DataError
        There is no such folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError("the folder does not exist", where=str(folder), hint="Check the path.")
    return sorted(file for file in place.iterdir() if (stem := _stem(file)) is not None and fits(stem))


def read_columns(file: Path, wanted: Callable[[str], bool]) -> pd.DataFrame:
    """Read the columns whose name in lower case is wanted; cells of a CSV file stay texts, empty ones are missing.

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
            frame = frame[[name for name in frame.columns if wanted(str(name).lower())]]
        else:
            frame = pd.read_csv(
                file, dtype=str, keep_default_na=False, na_values=[""], usecols=lambda name: wanted(name.lower())
            )
    except ImportError as error:
        raise MissingExtra(
            "reading Parquet needs pyarrow", where=str(file), hint="Install multicentre[parquet], or export to CSV."
        ) from error
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        raise DataError("the file is damaged or cut short", where=str(file), hint="Copy or export it again.") from error
    return frame.rename(columns=lambda name: str(name).lower())


def need_columns(frame: pd.DataFrame, columns: Iterable[str], file: Path) -> pd.DataFrame:
    """Return the frame once it is known to have these columns.

    Raises
    ------
    DataError
        One is missing.
    """
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"the table lacks the column {name!r}", where=str(file), hint="Export it with this column.")
    return frame


def stack_events(parts: Iterable[pd.DataFrame], source: str) -> pd.DataFrame:
    """Return the events of several tables as one; the log says how many without patient, date or code are left out."""
    import pandas as pd

    stacked = pd.concat(list(parts), ignore_index=True)
    whole = stacked.dropna(subset=["patient", "date", "code"]).reset_index(drop=True)
    if len(whole) < len(stacked):
        n_left_out = len(stacked) - len(whole)
        _LOG.info("%s: %d of %d events without patient, date or code left out", source, n_left_out, len(stacked))
    return whole


def first_known(frame: pd.DataFrame, key: str, value: str) -> dict[str, str]:
    """Return the first value that is not missing, by key."""
    known = frame.dropna(subset=[key, value]).drop_duplicates(key)
    return dict(zip(known[key].astype(str), known[value].astype(str), strict=True))


def ever(frame: pd.DataFrame, key: str, true: pd.Series) -> dict[str, int]:
    """Return 1 for keys of which any row is true, 0 for the others."""
    return {str(one): int(value) for one, value in true.groupby(frame[key]).any().items()}


def _stem(file: Path) -> str | None:
    name = file.name.lower()
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), None)
