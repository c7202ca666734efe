"""Published values: the numbers of Figure 2, and the points of Figures 3 and 4 from the vector graphics."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> dict[str, Any]:
    """Return the published figures.

    ``figure_2`` has accuracies of one simulation by name, ``figure_3`` thirty accuracies per strategy, ``figure_4`` a
    thousand pairs of importance and ratio.

    Examples
    --------
    >>> len(published()["figure_4"]), sorted(published()["figure_3"])[:3]
    (1000, ['random', 'unbiased', 'x1'])
    """
    text = files("multicentre_papers.stratified_cv").joinpath("published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def published_mean(strategy: str) -> float | None:
    """Return the mean accuracy of a strategy in Figure 3; None for strategies that the paper lacks.

    Examples
    --------
    >>> round(published_mean("x5"), 4)
    0.7812
    """
    points = published()["figure_3"].get(strategy)
    return None if points is None else sum(points) / len(points)
