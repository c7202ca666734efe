"""How the files that a study names become a site's data and, for simulated runs, its patients' groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multicentre.data import TableData, read_multiview, read_table
from multicentre.data.concatenate import check_together
from multicentre.data.kinds import PatientData
from multicentre.federation.errors import ConfigurationError, DataError, MulticentreError
from multicentre.studies.checks import ONE_FILE
from multicentre.studies.methods import find_reader
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
        A site's files cannot be used, or two sites' data do not fit together; the message names the site.
    """
    read = find_reader(study.method)
    sites = {}
    for name in study.sites:
        try:
            sites[name] = read(study, name)
        except MulticentreError as error:
            raise error.at(name) from None
    check_together({name: site.data for name, site in sites.items()})
    return sites


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
    """Read the views of one site."""
    for table, what in (("events", "events"), ("survival", "times to an event"), ("table", "tables with an outcome")):
        if getattr(study.data, table) is not None:
            raise ConfigurationError(
                f"the method works on views, not on {what}", where=f"data.{table}", mend="Leave the table out."
            )
    files = files_of(study, name)
    if ONE_FILE in files:
        files = dict.fromkeys(study.data.views, files[ONE_FILE])
    id_column, label_column = study.data.id_column, study.data.label_column
    if label_column is None:
        columns = {view: names for view, names in study.data.views.items() if view in files}
        return SiteData(read_multiview(files, id_column, columns))
    headers, groups = _read_labels(files, id_column, label_column)
    left_out = {id_column, label_column}
    columns = {
        view: study.data.views.get(view) or tuple(column for column in headers[path] if column not in left_out)
        for view, path in files.items()
    }
    data = read_multiview(files, id_column, columns)
    order = range(len(data)) if data.ids is None else [str(one) for one in data.ids]
    return SiteData(data, _in_order(groups, list(order), label_column))


def _read_labels(
    files: Mapping[str, Path], id_column: str | None, label_column: str
) -> tuple[dict[Path, tuple[str, ...]], dict[object, str]]:
    headers: dict[Path, tuple[str, ...]] = {}
    groups: dict[object, str] = {}
    text = [label_column] if id_column is None else [id_column, label_column]
    for path in dict.fromkeys(files.values()):
        table = read_table(path, text)
        headers[path] = tuple(str(column) for column in table.columns)
        if label_column in headers[path]:
            keys = range(len(table)) if id_column not in headers[path] else [str(one) for one in table[id_column]]
            found = zip(keys, table[label_column], table[label_column].notna(), strict=True)
            groups = {key: str(label) for key, label, known in found if known} | groups
    if not any(label_column in header for header in headers.values()):
        raise DataError(
            f"none of the site's files has the label column {label_column!r}",
            mend="Correct its name, add it to one of the files, or leave label_column out.",
        )
    return headers, groups


def _in_order(groups: Mapping[object, str], patients: list[Any], label_column: str) -> tuple[str, ...]:
    n_without = sum(patient not in groups for patient in patients)
    if n_without:
        raise DataError(
            f"{n_without} patients have no entry in the label column",
            where=f"column {label_column!r}",
            mend="Give every patient a label in one of the site's files, or leave label_column out.",
        )
    return tuple(groups[patient] for patient in patients)
