"""Grid of fits: data sets, scenarios, methods and folds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from multicentre.core.rounds import Listener
from multicentre.datasets import load_breast_tcga
from multicentre.errors import DataError
from multicentre_papers.fed_mv_ppca import methods, unmeasured
from multicentre_papers.fed_mv_ppca.aggregate import Row
from multicentre_papers.fed_mv_ppca.folds import hold_out
from multicentre_papers.fed_mv_ppca.measure import measure
from multicentre_papers.fed_mv_ppca.plan import FULL, QUICK, Cell, Plan
from multicentre_papers.fed_mv_ppca.result import ROWS, SUMMARY, ReproductionResult
from multicentre_papers.fed_mv_ppca.resume import read_finished, rows_of_cell
from multicentre_papers.fed_mv_ppca.samples import SAMPLES, scale_to_unit_interval
from multicentre_papers.fed_mv_ppca.selection import choose_dimensions
from multicentre_papers.runner.loops import loop

FOLDER = Path("runs") / "reproduce-fed-mv-ppca"


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult:
    """Recompute Table 2 and Figure 3 on simulated and public data, and write the figures to a folder.

    Parameters
    ----------
    quick : bool, default False
        A small version that takes a minute or two; the full version takes about half an hour on one core.
    output : path, optional
        Folder of the results; ``runs/reproduce-fed-mv-ppca`` by default. Cells that a run with an equal plan finished
        there before it was interrupted are not run again; all other files there are replaced.
    listener : Listener, optional
        Receives the progress of the fits, one loop per cell of the table.
    plan : Plan, optional
        What to run in place of the quick or the full version.

    Returns
    -------
    ReproductionResult
    """
    began = time.perf_counter()
    chosen = plan or (QUICK if quick else FULL)
    progress: Listener = Listener() if listener is None else listener
    result = ReproductionResult(chosen, FOLDER if output is None else Path(output))
    result.notes += list(methods.remarks())
    finished = read_finished(result.folder / ROWS, result.folder / SUMMARY, chosen)
    for sample, cell in itertools.product(chosen.samples, chosen.cells):
        finished_rows = rows_of_cell(finished, sample, cell)
        result.rows += finished_rows or _run_cell(sample, cell, chosen, progress)
        result.seconds = time.perf_counter() - began
        result.write()
    _run_selection(result, progress)
    _run_unmeasured(result, progress)
    result.seconds, result.complete = time.perf_counter() - began, True
    result.write()
    return result


def _run_cell(sample: str, cell: Cell, plan: Plan, progress: Listener) -> list[Row]:
    with loop(progress, f"{sample}, {cell}", _fits_of(cell) * plan.n_fits) as report:
        return _fit_cell(sample, cell, plan, report)


def _fit_cell(sample: str, cell: Cell, plan: Plan, report: Callable[[int], None]) -> list[Row]:
    rows: list[Row] = []
    data_set = SAMPLES[sample]
    for repetition in range(plan.n_repetitions):
        labelled = scale_to_unit_interval(data_set.draw(repetition))
        for fold in hold_out(labelled, cell, plan.n_folds, repetition):
            if fold.number >= plan.n_folds_used:
                break
            for candidate in methods.candidates():
                if candidate.takes(cell):
                    figures = measure(candidate, plan, fold, data_set.n_components, repetition)
                    place = (sample, cell.scenario, cell.n_sites, candidate.name, repetition, fold.number)
                    rows.append(Row(*place, data_set.n_components, figures))
                    report(len(rows))
    return sorted(rows, key=lambda row: [candidate.name for candidate in methods.candidates()].index(row.method))


def _run_selection(result: ReproductionResult, progress: Listener) -> None:
    n = result.plan.selection_repetitions * len(result.plan.selection_candidates)
    with loop(progress, "choice of q on SD", n) as report:
        result.choices = choose_dimensions(result.plan, report)


def _run_unmeasured(result: ReproductionResult, progress: Listener) -> None:
    try:
        labelled = scale_to_unit_interval(load_breast_tcga())
    except DataError as error:
        result.notes.append(f"Breast cancer of TCGA is left out: {error}")
        return
    with loop(progress, "breast cancer of TCGA", unmeasured.n_fits(result.plan)) as report:
        result.imputed = unmeasured.impute_unmeasured(labelled, result.plan, report)


def _fits_of(cell: Cell) -> int:
    return sum(candidate.takes(cell) for candidate in methods.candidates())
