"""How the files that a study names become a site's data and, for simulated runs, its patients' groups."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from multicentre.data import DataWarning, TableData, read_multiview
from multicentre.data.concatenate import check_together
from multicentre.data.kinds import PatientData
from multicentre.federation.errors import ConfigurationError, DataError, MulticentreError
from multicentre.studies.beside import Beside, Key, read_beside
from multicentre.studies.checks import ONE_FILE
from multicentre.studies.methods import find_reader, is_aligned
from multicentre.studies.study import Study


@dataclass(frozen=True)
class SiteData:
    """What one site of a simulated run holds.

    Parameters
    ----------
    data : PatientData
        Of the type that the method works on.
    labels : tuple of str, optional
        Group of every patient; by default the outcomes, the events or the classes of data that have them, as texts.
        Used for figures and for assessment only; no method sees it.
    """

    data: PatientData
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        outcomes = getattr(self.data, "outcomes", getattr(self.data, "event", None))
        if isinstance(self.data, TableData) and self.data.outcome == "class":
            outcomes = np.array(self.data.classes)[self.data.y]
        if self.labels is None and outcomes is not None:
            object.__setattr__(self, "labels", tuple(str(one) for one in outcomes))


def read_sites(study: Study) -> dict[str, SiteData]:
    """Read the data of every site of a study.

    Raises
    ------
    DataError, ConfigurationError
        A site's files cannot be used, or two sites' data do not fit together; the message names the site. Sites with
        different views of the same patients need not fit together.
    """
    read = find_reader(study.method)
    sites: dict[str, SiteData] = {}
    for name in study.sites:
        try:
            with _warnings_of(name):
                sites[name] = read(study, name)
        except MulticentreError as error:
            raise error.at(name) from None
    if is_vertical(study):
        _check_some_labels(study, sites)
    else:
        check_together({name: site.data for name, site in sites.items()})
    return sites


@contextmanager
def _warnings_of(site: str) -> Iterator[None]:
    """Put the site's name before what is warned of while its data are read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield
    for each in caught:
        warnings.warn_explicit(f"{site}: {each.message}", each.category, each.filename, each.lineno)


def is_vertical(study: Study) -> bool:
    """Tell whether the study's method works on different views of the same patients, a site each or several."""
    return is_aligned(study.method)


def _check_some_labels(study: Study, sites: Mapping[str, SiteData]) -> None:
    if study.data.label_column is not None and all(site.labels is None for site in sites.values()):
        raise DataError(
            f"no site's files have the label column {study.data.label_column!r}",
            where="data.label_column",
            mend="Correct its name, add it at one of the sites, or leave label_column out.",
        )


def files_of(study: Study, name: str) -> Mapping[str, Path]:
    """Return the files of a site.

    Raises
    ------
    DataError
        The study names none: the site's data were, or are to be, handed over in Python.
    """
    if not study.sites[name]:
        raise DataError("the study names no file of this site", mend="Add one, or hand the data over in Python.")
    return study.sites[name]


def read_multiview_site(study: Study, name: str) -> SiteData:
    """Read the views of one site.

    Groups and identifiers stand beside the views. Where sites hold different views of the same patients, a site may
    lack the groups.
    """
    for table, what in (("events", "events"), ("survival", "times to an event"), ("table", "tables with an outcome")):
        if getattr(study.data, table) is not None:
            raise ConfigurationError(
                f"the method works on views, not on {what}", where=f"data.{table}", mend="Leave the table out."
            )
    files, about = files_of(study, name), study.data
    if ONE_FILE in files:
        files = dict.fromkeys(about.views, files[ONE_FILE])
    identifiers = about.identifiers or ()
    aside = [*identifiers, *([] if about.label_column is None else [about.label_column])]
    if not aside:
        columns = {view: names for view, names in about.views.items() if view in files}
        return SiteData(read_multiview(files, about.id_column, columns))
    beside = read_beside(files, about.id_column, aside)
    label = _label_column(study, beside)
    left_out = {about.id_column, *aside}
    columns = {
        view: about.views.get(view) or tuple(column for column in beside.headers[path] if column not in left_out)
        for view, path in files.items()
    }
    data = read_multiview(files, about.id_column, columns)
    patients: list[Key] = list(range(len(data))) if data.ids is None else [str(one) for one in data.ids]
    if identifiers:
        data = data.with_identifier(beside.identifiers(patients, identifiers))
    return SiteData(data, None if label is None else beside.groups(patients, label))


def _label_column(study: Study, beside: Beside) -> str | None:
    """Return the column of groups; None where there is none, or where another site has it of the same patients."""
    label = study.data.label_column
    if label is None or beside.has(label):
        return label
    if is_vertical(study):
        return None
    raise DataError(
        f"none of the site's files has the label column {label!r}",
        mend="Correct its name, add it to one of the files, or leave label_column out.",
    )
