"""Runs the exercises one after the other."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from multicentre.federation.progress import Listener, Silence
from multicentre.reproduction._shared.loops import loop
from multicentre.reproduction.dpfact.exercises.accounting import ACCOUNTING
from multicentre.reproduction.dpfact.exercises.columns import COLUMNS
from multicentre.reproduction.dpfact.exercises.communication import COMMUNICATION
from multicentre.reproduction.dpfact.exercises.curves import CURVES
from multicentre.reproduction.dpfact.exercises.phenotypes import PHENOTYPES
from multicentre.reproduction.dpfact.exercises.prediction import PREDICTION
from multicentre.reproduction.dpfact.exercises.privacy import PRIVACY
from multicentre.reproduction.dpfact.plan import FULL, QUICK, Plan
from multicentre.reproduction.dpfact.result import SUMMARY, Finished, ReproductionResult
from multicentre.reproduction.dpfact.section import Exercise
from multicentre.studies.plain import to_plain

FOLDER = Path("runs") / "reproduce-dpfact"
EXERCISES = (CURVES, COMMUNICATION, PREDICTION, PRIVACY, PHENOTYPES, COLUMNS, ACCOUNTING)


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult:
    """Recompute figures 2 to 4 and tables 2 to 8 on simulated and public data, and write them to a folder.

    Parameters
    ----------
    quick : bool, default False
        A small version that takes a minute or two; the whole one takes tens of minutes.
    output : path, optional
        Folder of the results; ``runs/reproduce-dpfact`` by default. Exercises that a run with an equal plan finished
        there before it was broken off are not run again; anything else that is there is replaced.
    listener : Listener, optional
        Hears of fits, one loop an exercise.
    plan : Plan, optional
        What to run in place of the quick or the whole version.

    Returns
    -------
    ReproductionResult
    """
    chosen = plan or (QUICK if quick else FULL)
    told: Listener = Silence() if listener is None else listener
    result = ReproductionResult(chosen, FOLDER if output is None else Path(output))
    before = read_finished(result.folder / SUMMARY, chosen)
    for exercise in EXERCISES:
        known = before.get(exercise.name)
        result.finished.append(
            _run(exercise, chosen, told) if known is None else Finished(exercise, known["rows"], known["seconds"])
        )
        result.complete = exercise is EXERCISES[-1]
        result.write()
    return result


def read_finished(summary: Path, plan: Plan) -> dict[str, Any]:
    """Return the exercises that a run with an equal plan finished before it was broken off, by name.

    Parameters
    ----------
    summary : Path
        Summary of the earlier run; it need not be there.
    plan : Plan
        What is to be run.
    """
    if not summary.exists():
        return {}
    told = json.loads(summary.read_text(encoding="utf-8"))
    if told.get("plan") != to_plain(dataclasses.asdict(plan)) or told.get("complete"):
        return {}
    return dict(told.get("exercises", {}))


def _run(exercise: Exercise, plan: Plan, told: Listener) -> Finished:
    began = time.perf_counter()
    with loop(told, exercise.name, exercise.n_fits(plan)) as heard:
        rows = exercise.run(plan, heard)
    return Finished(exercise, rows, time.perf_counter() - began)
