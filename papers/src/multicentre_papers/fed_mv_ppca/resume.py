"""Resumption of an interrupted run: cells of the table that an equal plan finished are read again."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

from multicentre.studies.serialisation import to_plain
from multicentre_papers.fed_mv_ppca.aggregate import Row
from multicentre_papers.fed_mv_ppca.measure import Figures
from multicentre_papers.fed_mv_ppca.plan import Cell, Plan


def read_finished(rows: Path, summary: Path, plan: Plan) -> list[Row]:
    """Return the fits in a folder; none if the folder belongs to another plan.

    Rows are written cell by cell, atomically, so that every cell in the file is complete.

    Parameters
    ----------
    rows, summary : Path
        The two files of the folder.
    plan : Plan
        Plan of the run.
    """
    if not rows.exists() or not summary.exists():
        return []
    summary_data = json.loads(summary.read_text(encoding="utf-8"))
    if summary_data["plan"] != to_plain(dataclasses.asdict(plan)) or summary_data["complete"]:
        return []
    with rows.open(newline="", encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file)]


def rows_of_cell(rows: list[Row], sample: str, cell: Cell) -> list[Row]:
    """Return the rows of one cell of one data set."""
    place = (sample, cell.scenario, cell.n_sites)
    return [row for row in rows if (row.sample, row.scenario, row.n_sites) == place]


def _row(line: dict[str, str]) -> Row:
    figures = Figures(
        mae_train=float(line["mae_train"]),
        mae_test=float(line["mae_test"]),
        accuracy=float(line["accuracy"]),
        log_likelihood=float(line["log_likelihood"]),
        imputation_mae=float(line["imputation_mae"]),
        mean_imputation_mae=float(line["mean_imputation_mae"]),
        n_rounds=int(line["n_rounds"]),
        converged=line["converged"] == "True",
        seconds=float(line["seconds"]),
    )
    return Row(
        line["sample"],
        line["scenario"],
        int(line["n_sites"]),
        line["method"],
        repetition=int(line["repetition"]),
        fold=int(line["fold"]),
        n_components=int(line["n_components"]),
        figures=figures,
    )
