"""Runs the exercises one after the other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multicentre.core.rounds import Listener
from multicentre_papers.fedmsgl import published
from multicentre_papers.fedmsgl.differences import DIFFERENCES
from multicentre_papers.fedmsgl.exercises.ablation import ABLATION
from multicentre_papers.fedmsgl.exercises.figure2 import FIGURE_2
from multicentre_papers.fedmsgl.exercises.losses import LOSSES
from multicentre_papers.fedmsgl.exercises.table3 import TABLE_3
from multicentre_papers.fedmsgl.exercises.tuned import TUNED
from multicentre_papers.fedmsgl.plan import FULL, QUICK, Plan
from multicentre_papers.fedmsgl.possible import remark
from multicentre_papers.runner.paper import Paper, ReproductionResult


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult[Plan]:
    """Recompute Table 3 and Figure 2, what the hypergraph adds and what losses cost, and write them to a folder.

    Parameters
    ----------
    quick : bool, default False
        A small version that takes a few minutes.
    output : path, optional
        Folder of the results; ``runs/reproduce-fedmsgl`` by default. Exercises that a run with an equal plan finished
        there before it was broken off are not run again; anything else that is there is replaced.
    listener : Listener, optional
        Receives progress events of the fits, one loop per exercise.
    plan : Plan, optional
        What to run in place of the quick or the whole version.

    Returns
    -------
    ReproductionResult
    """
    return PAPER.run(plan or (QUICK if quick else FULL), output, listener)


def _published() -> dict[str, Any]:
    return {"table_3": {method: {one: _cell(method, one) for one in published.COLUMNS} for method in published.METHODS}}


def _cell(method: str, column: str) -> dict[str, Any]:
    return {**dataclasses.asdict(published.cell(method, column)), "remark": remark(method, column)}


PAPER = Paper(
    name="fedmsgl",
    citation="Li, Yang and Xie, FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI 2025",
    title="# FedMSGL: Table 3 and Figure 2, as printed, as published, and corrected",
    preamble=(
        "ACC is the share of patients in the cluster that is matched with their class, NMI mutual information over the "
        "larger entropy; higher is better. Mean ± standard deviation over runs that differ in their seed."
    ),
    exercises=(TABLE_3, TUNED, FIGURE_2, ABLATION, LOSSES),
    published=_published,
    differences=DIFFERENCES,
)
