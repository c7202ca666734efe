"""Loaders of public multi-view data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multicentre.data import MultiViewData
from multicentre.datasets.base import read_archive
from multicentre.datasets.labelled import LabelledMultiView, Texts
from multicentre.datasets.sources import SOURCES, Source

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
    """Load the breast cancer Wisconsin (diagnostic) data that scikit-learn bundles.

    569 tumours. Views ``mean``, ``standard_error`` and ``worst`` hold the same ten measurements of cell nuclei: their
    mean over the image, its standard error, and the mean of the three largest. Labels are ``malignant`` and ``benign``.

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
    """Load the breast cancer samples of TCGA as mixOmics prepared them.

    220 patients with mRNA (200 columns), miRNA (184) and protein (142). The 70 patients of the part ``test`` were never
    measured for protein, so this set has a view that is truly missing. Labels are the subtypes ``Basal``, ``Her2`` and
    ``LumA``.

    Parameters
    ----------
    folder : path, optional
        Data folder to look in before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are not at hand; the message says how to get them.
    IntegrityError
        The file's contents are not those expected.

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

    2000 digits with six views: Fourier coefficients ``fou`` (76), profile correlations ``fac`` (216), Karhunen-Loeve
    coefficients ``kar`` (64), pixel averages ``pix`` (240), Zernike moments ``zer`` (47) and morphology ``mor`` (6).
    Labels are ``0`` to ``9``.

    Parameters
    ----------
    folder : path, optional
        Data folder to look in before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are not at hand; the message says how to get them.
    IntegrityError
        The file's contents are not those expected.

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
