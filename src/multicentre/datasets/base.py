"""Sources of data sets: bundled with a library, simulated, or a file in a local folder. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.readers import read_table
from multicentre.datasets.sources import SOURCES, Source
from multicentre.errors import ConfigurationError, DataError, IntegrityError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

FOLDER_VARIABLE = "MULTICENTRE_DATA"


@dataclass(frozen=True)
class DatasetStatus:
    """Availability of a data set.

    Parameters
    ----------
    name, description, licence : str
        See :class:`multicentre.datasets.sources.Source`.
    available : bool
        True if the files exist. Contents are only checked when they are loaded.
    why : str
        Location of the files, or instructions to get them.
    """

    name: str
    description: str
    licence: str
    available: bool
    why: str


def data_folders(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, in order.

    These are `folder`, the folder in the environment variable ``MULTICENTRE_DATA``, and the package's folder in the
    user's cache.
    """
    import platformdirs

    requested = [folder, os.environ.get(FOLDER_VARIABLE)]
    cache = platformdirs.user_cache_path("multicentre") / "datasets"
    return (*(Path(one) for one in requested if one), cache)


def list_datasets(folder: str | Path | None = None) -> tuple[DatasetStatus, ...]:
    """Return the availability of every data set that has a loader.

    Examples
    --------
    >>> [status.name for status in list_datasets()][:4]
    ['wisconsin', 'breast_tcga', 'handwritten', 'sd']
    """
    return tuple(_status(source, folder) for source in SOURCES.values())


def fetch(name: str, folder: str | Path | None = None) -> str:
    """Return instructions to get a data set. Nothing is downloaded: no set has a stable public address in this form.

    Raises
    ------
    ConfigurationError
        No data set has this name.

    Examples
    --------
    >>> fetch("wisconsin")
    'wisconsin needs no file: bundled with scikit-learn.'
    """
    if name not in SOURCES:
        raise ConfigurationError(f"name must be one of {', '.join(SOURCES)}; got {name!r}", hint="Correct the name.")
    source = SOURCES[name]
    status = _status(source, folder)
    if not source.file:
        return f"{name} needs no file: {status.why}."
    return f"{name} is {status.why}." if status.available else status.why


def read_archive(source: Source, folder: str | Path | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a data set's archive, after a check of its contents.

    Raises
    ------
    DataError
        No folder contains the archive; the hint explains how to get it.
    IntegrityError
        The archive is damaged, or its contents differ from those that the package was tested with.
    """
    path = _path_of(source, folder)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise IntegrityError(
            "the file is damaged or incomplete", where=str(path), hint="Copy or create it again."
        ) from error
    _check_contents(arrays, source, path)
    return arrays


def read_frame(source: Source, folder: str | Path | None = None) -> pd.DataFrame:
    """Return the table of a data set, after a check of its contents.

    Raises
    ------
    DataError
        No folder contains the file; the hint explains how to get it.
    MissingExtra
        The package that ships the file, or the reader of Parquet, is not installed.
    IntegrityError
        The contents differ from those that the package was tested with.
    """
    path = _path_of(source, folder)
    frame = read_table(path)
    _check_contents(arrays_of(frame), source, path)
    return frame


def arrays_of(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns of a table as arrays of numbers (NaN where missing) or texts (empty where missing).

    Examples
    --------
    >>> import pandas as pd
    >>> arrays_of(pd.DataFrame({"age": [61, None], "sex": ["f", None]}))
    {'age': array([61., nan]), 'sex': array(['f', ''], dtype='<U1')}
    """
    from pandas.api.types import is_numeric_dtype

    return {
        str(name): np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if is_numeric_dtype(column)
        else np.array([str(one) for one in column.astype(object).where(column.notna(), "")])
        for name, column in frame.items()
    }


def digest_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of the names, types, shapes and entries of arrays.

    It does not depend on compression and time stamps, so an archive that is created again from the origin has the same
    digest.
    """
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _check_contents(arrays: Mapping[str, NDArray[Any]], source: Source, path: Path) -> None:
    if digest_arrays(arrays) != source.digest:
        raise IntegrityError(
            "the file must have the recorded digest of the data set; it has a different one",
            where=str(path),
            hint=f"Replace the file. {source.origin}",
        )


def _path_of(source: Source, folder: str | Path | None) -> Path:
    path = _find(source, folder)
    if path is not None:
        return path
    where, hint = f"data set {source.name!r}", _instructions(source, folder)
    if source.package:
        raise MissingExtra(
            f"{source.package}, which contains the file, must be installed; it is not", where=where, hint=hint
        )
    raise DataError("the file must be in one of the data folders; it was not found", where=where, hint=hint)


def _find(source: Source, folder: str | Path | None) -> Path | None:
    if source.package:
        return _find_in_package(source)
    return next((one / source.file for one in data_folders(folder) if (one / source.file).is_file()), None)


def _find_in_package(source: Source) -> Path | None:
    """Return the path of a file inside an installed package, without importing the package."""
    spec = importlib.util.find_spec(source.package)
    homes = [] if spec is None else spec.submodule_search_locations or []
    return next((Path(home) / source.file for home in homes if (Path(home) / source.file).is_file()), None)


def _status(source: Source, folder: str | Path | None) -> DatasetStatus:
    if not source.file:
        return DatasetStatus(source.name, source.description, source.licence, True, source.origin)
    path = _find(source, folder)
    why = f"found at {path}" if path else _instructions(source, folder)
    return DatasetStatus(source.name, source.description, source.licence, path is not None, why)


def _instructions(source: Source, folder: str | Path | None) -> str:
    if source.package:
        return f"Install it with: pip install {source.package}."
    places = ", ".join(str(one) for one in data_folders(folder))
    return (
        f"{source.origin} Save it as {source.file} in the folder of {FOLDER_VARIABLE}, or in the cache. Searched "
        f"folders: {places}."
    )
