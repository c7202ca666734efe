"""Printed figures that no labelling of the data set can have, whatever the method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from multicentre_papers.fedmsgl.published import CLASS_SIZES, HANDWRITTEN, SC, Cell, cell

ROUNDING = 1e-4
"""Twice the rounding of printed figures, for differences."""

SLACK = 1e-3
"""Tolerance of a bound of NMI, above the effect of rounding."""


def remark(method: str, column: str) -> str | None:
    """Return why a cell of Table 3 is no level to be compared with, None for all others.

    Examples
    --------
    >>> remark("FedMVFCM", "Caltech101-7")
    'purity .5522 is below ACC .6705; no labelling has that, nor a mean over labellings'
    >>> remark("FedMVFCM", "ORL") is None
    True
    """
    if (method, column) == (SC, HANDWRITTEN):
        return (
            "not reproducible: spectral clustering of single views of the same file is far better (see the row here), "
            "so that this baseline was broken, or its views were not scaled"
        )
    return next(_reasons(cell(method, column), CLASS_SIZES[column], is_mean_over_views=method == SC), None)


def least_deviation(purity: float, acc: float, larger: float) -> float:
    """Return the least standard deviation over runs that a mean purity above ACC has with two classes and two clusters.

    If the clusters of a run have different majorities, its purity equals its ACC. If they have the same, its purity is
    the share of the larger class and its ACC one half or more. So at least a share p = (purity - acc) / (larger - 1/2)
    of the runs is of the second kind, and the others' purity lies that much higher.

    Parameters
    ----------
    purity, acc : float
        Means over runs.
    larger : float
        Share of the larger class.

    Returns
    -------
    float
        Infinity where no runs have such means.

    Examples
    --------
    >>> least_deviation(0.6, 0.6, 0.55), least_deviation(0.7, 0.6, 0.55)
    (0.0, inf)
    """
    gap = purity - acc - ROUNDING
    if gap <= 0.0:
        return 0.0
    share = gap / (larger - 0.5) if larger > 0.5 else math.inf
    return math.inf if share >= 1.0 else math.sqrt(share / (1.0 - share)) * abs(purity - larger)


def least_nmi(purity: float, class_sizes: Sequence[int], n_clusters: int | None = None) -> float:
    """Return the least NMI, over the larger entropy, of labellings with a purity, or of their mean.

    One minus purity is the error of guessing a class from a cluster, so that the clusters leave at most
    ``h(e) + e log(classes - 1)`` of the classes' entropy (Fano's inequality), which is concave in e. Clusters have an
    entropy of log n at most, or of the logarithm of their number.

    Parameters
    ----------
    purity : float
    class_sizes : sequence of int
        Patients of every class.
    n_clusters : int, optional
        Any number by default.

    References
    ----------
    T. M. Cover, J. A. Thomas (2006), Elements of information theory, theorem 2.10.1.

    Examples
    --------
    >>> round(least_nmi(1.0, (50, 50), 2), 4), round(least_nmi(0.5, (50, 50), 2), 4)
    (1.0, 0.0)
    """
    n = sum(class_sizes)
    of_classes = sum(_part(size / n) for size in class_sizes)
    error = 1.0 - purity
    left = _part(error) + _part(purity) + error * math.log(max(1, len(class_sizes) - 1))
    return max(0.0, of_classes - left) / max(of_classes, math.log(n if n_clusters is None else n_clusters))


def _reasons(printed: Cell, sizes: Sequence[int], *, is_mean_over_views: bool) -> Iterator[str]:
    if printed.purity < printed.acc - ROUNDING:
        yield (
            f"purity {_short(printed.purity)} is below ACC {_short(printed.acc)}; no labelling has that, nor a mean "
            "over labellings"
        )
    least = least_nmi(printed.purity, sizes)
    if printed.nmi < least - SLACK:
        yield (
            f"NMI {_short(printed.nmi)} next to purity {_short(printed.purity)}; by Fano's inequality such a purity "
            f"needs {_short(least)} with any number of clusters"
        )
    if len(sizes) == 2 and not is_mean_over_views:
        yield from _of_two_clusters(printed, max(sizes) / sum(sizes))
    least = least_nmi(printed.purity, sizes, len(sizes))
    if printed.nmi < least - SLACK:
        yield (
            f"NMI {_short(printed.nmi)} next to purity {_short(printed.purity)}; by Fano's inequality such a purity "
            f"needs {_short(least)} with {len(sizes)} clusters, so there were more"
        )


def _of_two_clusters(printed: Cell, larger: float) -> Iterator[str]:
    least = least_deviation(printed.purity, printed.acc, larger)
    if least <= printed.deviations[1] + 0.005:
        return
    figures = f"purity {_short(printed.purity)} next to ACC {_short(printed.acc)}"
    if math.isinf(least):
        yield f"{figures}; with two clusters purity is {_short(larger - 0.5)} above ACC at most, so there were more"
    else:
        yield (
            f"{figures}; with two clusters purity would have to vary between runs with a standard deviation of "
            f"{least:.2f}, and {printed.deviations[1]:.2f} is printed; so there were more"
        )


def _part(share: float) -> float:
    """Return -p log p."""
    return -share * math.log(share) if share > 0.0 else 0.0


def _short(figure: float) -> str:
    return f"{figure:.4f}".removeprefix("0")
