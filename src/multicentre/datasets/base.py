"""Where data sets come from: bundled with a library, simulated, or a file in a local folder. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DataError, IntegrityError

FOLDER_VARIABLE = "MULTICENTRE_DATA"


@dataclass(frozen=True)
class Source:
    """What is known of a data set without reading it.

    Parameters
    ----------
    name : str
        Name of the data set.
    description : str
        What it holds.
    licence : str
        Terms of use.
    origin : str
        Where it comes from, or how to get it.
    file : str
        Path of its archive inside a data folder; empty for sets that need no file.
    digest : str
        Digest of the archive's arrays, see `digest_arrays`.
    """

    name: str
    description: str
    licence: str
    origin: str
    file: str = ""
    digest: str = ""


@dataclass(frozen=True)
class DatasetStatus:
    """A data set and whether it can be loaded here.

    Parameters
    ----------
    name, description, licence : str
        As in its source.
    available : bool
        Whether its loader would find it. Contents are only checked when they are loaded.
    why : str
        Where it was found, or how to get it.
    """

    name: str
    description: str
    licence: str
    available: bool
    why: str


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source(
            "wisconsin",
            "Breast cancer Wisconsin (diagnostic): 569 tumours, three views of ten measurements, two diagnoses.",
            "CC BY 4.0",
            "bundled with scikit-learn",
        ),
        Source(
            "breast_tcga",
            "Breast cancer samples of TCGA: 220 patients, mRNA, miRNA and protein; 70 of them lack the protein view.",
            "GPL (>= 2) as distributed by mixOmics; the TCGA data are open access",
            "Export breast.TCGA of the R package mixOmics (data.train and data.test) to an archive with mrna, mirna "
            "and protein as <view>_train and <view>_test in float32 (there is no protein_test), and <view>_names, "
            "ids_train, ids_test, y_train and y_test as text.",
            "breast_tcga_mv/breast_tcga.npz",
            "25e75d12ded6854c0bbfbb5e0fb40eadf7bc68ae2b9cdd4602e81ac60b547ed6",
        ),
        Source(
            "handwritten",
            "UCI multiple features: 2000 handwritten digits, six views, ten classes.",
            "CC BY 4.0",
            "Get Multiple Features of the UCI repository (doi 10.24432/C5HC70) in full precision and save an archive "
            "with v1 to v6 = fou, fac, kar, pix, zer and mor (float32, but fac as uint16 and pix as uint8), view_names "
            "as text and y = 0 to 9 as int64.",
            "handwritten/handwritten.npz",
            "da9ca46b71f280de96c1a3aae88abb155ed01413f9896ca5d2aa9119af2ee349",
        ),
        Source(
            "sd",
            "Simulated three-view data with two groups, after the synthetic data set of Balelli et al. 2021.",
            "Apache-2.0",
            "simulated; call simulate_sd",
        ),
        Source(
            "paper_tensor",
            "Simulated counts without structure, after the synthetic data set of Ma et al. 2019.",
            "Apache-2.0",
            "simulated; call simulate_paper_tensor",
        ),
        Source(
            "planted",
            "Simulated procedures and diagnoses of patients at several sites, drawn from planted phenotypes.",
            "Apache-2.0",
            "simulated; call simulate_planted",
        ),
        Source(
            "mimic3_demo",
            "MIMIC-III demo 1.4: procedures and diagnoses of 100 intensive care patients, and who died in hospital.",
            "ODbL 1.0",
            "Get the MIMIC-III Clinical Database Demo 1.4 of PhysioNet (doi 10.13026/C2HM2Q), count pairs of codes in "
            "admissions at most 30 days apart, and save an archive with patient, procedure and diagnosis (int32) and "
            "count, shape, patient_ids, procedure_codes and diagnosis_codes as text, label = died in hospital (int8) "
            "and site = first care unit.",
            "mimic3_demo/tensor30d.npz",
            "42e25bd8eb32008332eb5439d9b1dda54cf091df5b4e708fa09fd3eb2f2af049",
        ),
        Source(
            "synpuf500",
            "CMS DE-SynPUF: synthetic claims of 500 beneficiaries in 2008 and 2009, their states, and who died.",
            "public domain (CMS public use file); MIT as distributed by claimsdb",
            "Get the tables of the R package claimsdb (500 beneficiaries of sample 2), count pairs of codes in claims "
            "at most 30 days apart, and save an archive with patient, procedure and diagnosis (int32) and count, "
            "shape, patient_ids, procedure_codes (HCPCS: or ICD9P: before each) and diagnosis_codes as text, label = "
            "died (int8) and site = state.",
            "synpuf500/tensor30d.npz",
            "263b33108b0def4aa2789c15e41167289991f2903137370fe761bd792c13422d",
        ),
    )
}


def data_folders(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, in order.

    First `folder`, then the folder that the environment variable ``MULTICENTRE_DATA`` names, then the package's own
    folder in the user's cache.
    """
    import platformdirs

    named = [folder, os.environ.get(FOLDER_VARIABLE)]
    cache = platformdirs.user_cache_path("multicentre") / "datasets"
    return (*(Path(one) for one in named if one), cache)


def list_datasets(folder: str | Path | None = None) -> tuple[DatasetStatus, ...]:
    """Return every data set that has a loader, and whether it is at hand.

    Examples
    --------
    >>> [status.name for status in list_datasets()]
    ['wisconsin', 'breast_tcga', 'handwritten', 'sd', 'paper_tensor', 'planted', 'mimic3_demo', 'synpuf500']
    """
    return tuple(_status(source, folder) for source in SOURCES.values())


def fetch(name: str, folder: str | Path | None = None) -> str:
    """Say how a data set is got. Nothing is downloaded: no set here has a stable public address in this form.

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
        raise ConfigurationError(f"no data set is called {name!r}", mend=f"Choose one of {', '.join(SOURCES)}.")
    source = SOURCES[name]
    status = _status(source, folder)
    if not source.file:
        return f"{name} needs no file: {status.why}."
    return f"{name} is {status.why}." if status.available else status.why


def read_archive(source: Source, folder: str | Path | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a data set's archive, once they are known to be the expected ones.

    Raises
    ------
    DataError
        No folder holds the archive; the message says how to get it.
    IntegrityError
        The archive is damaged, or its contents differ from those that the package was tested with.
    """
    path = _find(source, folder)
    if path is None:
        raise DataError(
            "no folder holds the file", where=f"data set {source.name!r}", mend=_instructions(source, folder)
        )
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise IntegrityError("the file is damaged", where=str(path), mend="Copy or make it again.") from error
    if digest_arrays(arrays) != source.digest:
        raise IntegrityError(
            "the contents are not those of the data set",
            where=str(path),
            mend=f"Replace the file. {source.origin}",
        )
    return arrays


def digest_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of named arrays: names, types, shapes and entries, whatever the file around them.

    Compression and time stamps change a file but not its contents, so an archive made again from the origin has the
    same digest.
    """
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _find(source: Source, folder: str | Path | None) -> Path | None:
    return next((one / source.file for one in data_folders(folder) if (one / source.file).is_file()), None)


def _status(source: Source, folder: str | Path | None) -> DatasetStatus:
    if not source.file:
        return DatasetStatus(source.name, source.description, source.licence, True, source.origin)
    path = _find(source, folder)
    why = f"found at {path}" if path else _instructions(source, folder)
    return DatasetStatus(source.name, source.description, source.licence, path is not None, why)


def _instructions(source: Source, folder: str | Path | None) -> str:
    places = ", ".join(str(one) for one in data_folders(folder))
    return (
        f"{source.origin} Put it as {source.file} into a folder that {FOLDER_VARIABLE} names, or into the cache. "
        f"Looked in: {places}."
    )
