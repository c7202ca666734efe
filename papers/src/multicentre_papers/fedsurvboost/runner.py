"""Runner of the reproduction."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multicentre.core.rounds import Listener
from multicentre_papers.fedsurvboost.differences import DIFFERENCES
from multicentre_papers.fedsurvboost.exercises.as_published import AS_PUBLISHED
from multicentre_papers.fedsurvboost.exercises.leak import LEAK
from multicentre_papers.fedsurvboost.exercises.paired import PAIRED
from multicentre_papers.fedsurvboost.exercises.shifted import SHIFTED
from multicentre_papers.fedsurvboost.plan import FULL, QUICK, Plan
from multicentre_papers.fedsurvboost.published import TABLES
from multicentre_papers.runner.paper import Paper, ReproductionResult


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult[Plan]:
    """Recompute tables 1 and 2, as the published scripts do and with corrected methods, and write them.

    Parameters
    ----------
    quick : bool, default False
        Run a small version, which takes a few minutes; the full one takes less than half an hour on one core.
    output : path, optional
        Folder of the results; ``runs/reproduce-fedsurvboost`` by default. Exercises that an interrupted run with an
        equal plan finished there are not repeated; other contents are replaced.
    listener : Listener, optional
        Receives the progress of fits, one loop per exercise.
    plan : Plan, optional
        Replaces the quick and the full plan.

    Returns
    -------
    ReproductionResult
    """
    return PAPER.run(plan or (QUICK if quick else FULL), output, listener)


def _published() -> dict[str, Any]:
    return {"tables_1_and_2": [dataclasses.asdict(row) for row in TABLES]}


PAPER = Paper(
    name="fedsurvboost",
    citation="Harrak and others, Federated AdaBoost for survival analysis, 2024",
    title="# FedSurvBoost: tables 1 and 2, as printed, as the scripts run, and corrected",
    preamble=(
        "C is Harrell's concordance (higher is better), IBS the integrated Brier score (lower is better). Mean ± "
        "standard deviation over splits or seeds. The fits of exact methods do not depend on the split of patients over"
        " sites, so all numbers of sites share the metrics of one fit."
    ),
    exercises=(AS_PUBLISHED, PAIRED, SHIFTED, LEAK),
    published=_published,
    differences=DIFFERENCES,
)
