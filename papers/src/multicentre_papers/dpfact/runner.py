"""Runs the exercises one after the other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multicentre.core.rounds import Listener
from multicentre_papers.dpfact import published
from multicentre_papers.dpfact.differences import DIFFERENCES
from multicentre_papers.dpfact.exercises.accounting import ACCOUNTING
from multicentre_papers.dpfact.exercises.columns import COLUMNS
from multicentre_papers.dpfact.exercises.communication import COMMUNICATION
from multicentre_papers.dpfact.exercises.curves import CURVES
from multicentre_papers.dpfact.exercises.phenotypes import PHENOTYPES
from multicentre_papers.dpfact.exercises.prediction import PREDICTION
from multicentre_papers.dpfact.exercises.privacy import PRIVACY
from multicentre_papers.dpfact.plan import FULL, QUICK, Plan
from multicentre_papers.runner.paper import Paper, ReproductionResult

EXERCISES = (CURVES, COMMUNICATION, PREDICTION, PRIVACY, PHENOTYPES, COLUMNS, ACCOUNTING)


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult[Plan]:
    """Recompute figures 2 to 4 and tables 2 to 8 on simulated and public data, and write them to a folder.

    Parameters
    ----------
    quick : bool, default False
        A small version that takes a few minutes; the whole one takes about a quarter of an hour on one core.
    output : path, optional
        Folder of the results; ``runs/reproduce-dpfact`` by default. Exercises that a run with an equal plan finished
        there before it was broken off are not run again; anything else that is there is replaced.
    listener : Listener, optional
        Receives the progress of fits, one loop per exercise.
    plan : Plan, optional
        What to run in place of the quick or the whole version.

    Returns
    -------
    ReproductionResult
    """
    return PAPER.run(plan or (QUICK if quick else FULL), output, listener)


def _published() -> dict[str, Any]:
    return {
        "table_2_and_8_seconds": published.SECONDS_BY_SITES,
        "table_3_seconds": {"TRIP": published.SECONDS_OF_TRIP, "DPFact": published.SECONDS_OF_DPFACT},
        "table_4_auc": published.AUC,
        "table_5": [dataclasses.asdict(one) for one in published.TABLE_5],
        "table_7": [dataclasses.asdict(one) for one in published.TABLE_7],
        "epsilon": published.EPSILON,
    }


PAPER = Paper(
    name="dpfact",
    citation="Ma, Zhang, Lou, Ho, Xiong and Jiang, CIKM 2019",
    title="# DPFact: figures and tables of Ma et al. (CIKM 2019), on other data",
    preamble=(
        "Published figures are of data that may not be passed on (MIMIC-III) or are not identified (samples of "
        "DE-SynPUF): compare orderings, not values. Mean ± standard deviation over seeds. Times and rounds are this "
        "run's."
    ),
    exercises=EXERCISES,
    published=_published,
    differences=DIFFERENCES,
)
