"""Loaders of public multi-view data sets, which are common benchmarks of clustering methods."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data import MultiViewData
from multicentre.datasets.base import read_archive
from multicentre.datasets.labelled import Floats, LabelledMultiView, Texts
from multicentre.datasets.sources import SOURCES, Source

_CALTECH_VIEWS = ("gabor", "wavelet", "centrist", "hog", "gist", "lbp")

_ORL4_VIEWS = ("gist", "lbp", "hog", "centrist")

# Low, middle and high: 60 frequency bands in three views of twenty bands.
_SONAR_PARTS = 3


def load_bbcsport(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the sports news of the BBC, with each article divided into two segments.

    There are 544 articles with the weights of 3183 terms of one segment (``segment_1``) and 3203 terms of the other
    (``segment_2``); nearly all weights are zero. Labels are the five sports, ``1`` to ``5``.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    D. Greene, P. Cunningham (2006), Practical solutions to the problem of diagonal dominance in kernel document
    clustering, ICML, 377-384.
    """
    source = SOURCES["bbcsport"]
    arrays = read_archive(source, folder)
    views = {f"segment_{number}": _dense(arrays, f"v{number}") for number in (1, 2)}
    return _labelled_by_row(source, views, arrays["y"].astype(str))


def load_orl(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the AT&T faces with three views of the sizes in papers on clustering.

    There are 400 photographs of 40 people, ten of each. The view ``intensity`` (4096) contains the pixels. The views
    ``lbp`` (3304, histograms of local binary patterns) and ``gabor`` (6750) were extracted again from the pixels,
    because the original file is no longer public. They have the same sizes but different values. Labels are ``1`` to
    ``40``.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    See Also
    --------
    load_orl4 : The same photographs with four views as published.

    References
    ----------
    F. S. Samaria, A. C. Harter (1994), Parameterisation of a stochastic model for human face identification, IEEE
    Workshop on Applications of Computer Vision, 138-142.
    """
    source = SOURCES["orl"]
    arrays = read_archive(source, folder)
    keys = ("v1_intensity", "v2_lbp", "v3_gabor")
    return _labelled_by_row(source, {key[3:]: arrays[key] for key in keys}, arrays["y"].astype(str))


def load_orl4(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the AT&T faces with four published views.

    These are the 400 photographs of :func:`load_orl` in the same order, with the views ``gist`` (512), ``lbp`` (59),
    ``hog`` (864) and ``centrist`` (254). Labels are ``1`` to ``40``.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    See :func:`load_orl`.
    """
    source = SOURCES["orl4"]
    arrays = read_archive(source, folder)
    views = {view: arrays[f"v{number}"] for number, view in enumerate(_ORL4_VIEWS, start=1)}
    return _labelled_by_row(source, views, arrays["y"].astype(str))


def load_sonar(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the sonar echoes of mines and rocks, with 60 frequency bands divided into three views of twenty bands.

    There are 208 echoes with the energies of the ``low``, ``middle`` and ``high`` bands. Labels are ``mine`` and
    ``rock``. Papers state two views of 60 columns each, but the set has 60 columns in total, and no paper describes the
    second view. The views here are therefore not those of the papers.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    R. P. Gorman, T. J. Sejnowski (1988), Analysis of hidden units in a layered network trained to classify sonar
    targets, Neural Networks 1, 75-89; UCI Machine Learning Repository, doi 10.24432/C5T01Q.
    """
    source = SOURCES["sonar"]
    arrays = read_archive(source, folder)
    parts = np.array_split(arrays["X"], _SONAR_PARTS, axis=1)
    views = dict(zip(("low", "middle", "high"), parts, strict=True))
    return _labelled_by_row(source, views, np.where(arrays["y"] == 1, "mine", "rock"))


def load_caltech101_7(folder: str | Path | None = None) -> LabelledMultiView:
    """Load seven categories of the photographs of Caltech-101 with six views.

    There are 1474 photographs with the views ``gabor`` (48), ``wavelet`` (40), ``centrist`` (254), ``hog`` (1984),
    ``gist`` (512) and ``lbp`` (928). The views were extracted again from the photographs, because the original file is
    no longer public. They have the same sizes but different values. Labels are the names of the categories; 798
    photographs show motorbikes, and 34 show the cat Garfield.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    F.-F. Li, M. Andreeto, M. Ranzato, P. Perona (2022), Caltech 101, CaltechDATA, doi 10.22002/D1.20086.
    """
    source = SOURCES["caltech101_7"]
    arrays = read_archive(source, folder)
    views = {view: arrays[f"v{number}"] for number, view in enumerate(_CALTECH_VIEWS, start=1)}
    return _labelled_by_row(source, views, np.char.partition(arrays["ids"], "/")[:, 0])


def _dense(arrays: Mapping[str, NDArray[Any]], view: str) -> Floats:
    """Return a matrix that is stored in compressed sparse rows, shape (n, d)."""
    from scipy.sparse import csr_matrix

    parts = tuple(arrays[f"{view}_{part}"] for part in ("data", "indices", "indptr"))
    return np.asarray(csr_matrix(parts, shape=tuple(arrays[f"{view}_shape"])).toarray(), dtype=np.float64)


def _labelled_by_row(source: Source, views: Mapping[str, NDArray[Any]], labels: NDArray[np.str_]) -> LabelledMultiView:
    """Return views whose patient ids are the rows of the archive."""
    data = MultiViewData(
        {view: np.asarray(entries, dtype=np.float64) for view, entries in views.items()},
        [str(row) for row in range(len(labels))],
    )
    return LabelledMultiView(data, np.asarray(labels, np.str_), source.name, source.description, source.licence)


_NUCLEUS = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave_points",
    "symmetry",
    "fractal_dimension",
)

_DIGIT_VIEWS = ("fou", "fac", "kar", "pix", "zer", "mor")


def load_wisconsin() -> LabelledMultiView:
    """Load the breast cancer Wisconsin (diagnostic) data of scikit-learn.

    There are 569 tumours. The views ``mean``, ``standard_error`` and ``worst`` contain the same ten measurements of
    cell nuclei: their mean over the image, its standard error, and the mean of the three largest values. Labels are
    ``malignant`` and ``benign``.

    References
    ----------
    W. H. Wolberg, O. L. Mangasarian, N. Street, W. Street (1993), UCI Machine Learning Repository,
    doi 10.24432/C5DW2B.

    Examples
    --------
    >>> load_wisconsin().data.views
    ('mean', 'standard_error', 'worst')
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    values = np.asarray(bunch.data, dtype=np.float64)
    views = {view: values[:, 10 * k : 10 * (k + 1)] for k, view in enumerate(("mean", "standard_error", "worst"))}
    data = MultiViewData(views, _row_numbers(len(values)), dict.fromkeys(views, _NUCLEUS))
    return _labelled(SOURCES["wisconsin"], data, np.asarray(bunch.target_names)[bunch.target])


def load_breast_tcga(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the breast cancer samples of TCGA, as prepared by mixOmics.

    There are 220 patients with mRNA (200 columns), miRNA (184) and protein (142). The proteins of the 70 patients of
    the part ``test`` were never measured, so the view is genuinely missing. Labels are the subtypes ``Basal``, ``Her2``
    and ``LumA``.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    F. Rohart, B. Gautier, A. Singh, K.-A. Le Cao (2017), mixOmics: an R package for 'omics feature selection and
    multiple data integration, PLoS Computational Biology 13(11), e1005752.
    """
    source = SOURCES["breast_tcga"]
    arrays = read_archive(source, folder)
    n_train, n_test = len(arrays["y_train"]), len(arrays["y_test"])
    absent = np.full((n_test, arrays["protein_train"].shape[1]), np.nan)
    views = {
        view: np.vstack([arrays[f"{view}_train"], arrays.get(f"{view}_test", absent)])
        for view in ("mrna", "mirna", "protein")
    }
    ids = np.concatenate([arrays["ids_train"], arrays["ids_test"]])
    columns = {view: [str(name) for name in arrays[f"{view}_names"]] for view in views}
    parts = np.repeat(["train", "test"], [n_train, n_test])
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return _labelled(source, MultiViewData(views, ids, columns), labels, parts)


def load_handwritten(folder: str | Path | None = None) -> LabelledMultiView:
    """Load the multiple features of handwritten digits.

    There are 2000 digits with six views: Fourier coefficients ``fou`` (76), profile correlations ``fac`` (216),
    Karhunen-Loeve coefficients ``kar`` (64), pixel averages ``pix`` (240), Zernike moments ``zer`` (47) and morphology
    ``mor`` (6). Labels are ``0`` to ``9``.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    R. Duin, Multiple Features, UCI Machine Learning Repository, doi 10.24432/C5HC70.
    """
    source = SOURCES["handwritten"]
    arrays = read_archive(source, folder)
    views = {view: arrays[f"v{k + 1}"] for k, view in enumerate(_DIGIT_VIEWS)}
    data = MultiViewData(views, _row_numbers(len(arrays["y"])))
    return _labelled(source, data, arrays["y"].astype(str))


def _row_numbers(n: int) -> list[str]:
    return [str(row) for row in range(n)]


def _labelled(
    source: Source, data: MultiViewData, labels: NDArray[np.str_], parts: Texts | None = None
) -> LabelledMultiView:
    return LabelledMultiView(
        data, np.asarray(labels, dtype=np.str_), source.name, source.description, source.licence, parts
    )
