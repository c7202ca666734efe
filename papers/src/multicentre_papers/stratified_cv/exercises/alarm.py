"""Optimism of random against hashed folds by number of duplicates, and alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from multicentre.datasets import simulate_duplicated
from multicentre.validation.leakage import ALARM_AT, null_spread
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, mean, pick, values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import fold_accuracies
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.records import pool_simulated

# Set by simulations of this size.
LEVEL = 0.006
# The smallest number that shows the spread between repeats.
N_REPEATS = 2
# Seeds differ from those of the other exercises.
_FIRST_SEED = 9000


def n_fits(plan: Plan) -> int:
    """Return the number of compared simulations."""
    return len(plan.alarm_duplicates) * plan.n_alarms


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Compare random with hashed folds over simulations, two repeats of each."""
    rows: list[Row] = []
    for n_duplicates in plan.alarm_duplicates:
        for simulation in range(plan.n_alarms):
            seed = _FIRST_SEED + simulation
            records, _ = pool_simulated(simulate_duplicated(plan.n_records, n_duplicates, random_state=seed))
            seeds = [100 * seed + repeat for repeat in range(N_REPEATS)]
            shuffled = [divisions.random_folds(records, one) for one in seeds]
            hashed = [divisions.hash_folds(records.person, one, records.y) for one in seeds]
            random, safe = (
                np.array([fold_accuracies(records, folds, plan.n_rounds) for folds in drawn])
                for drawn in (shuffled, hashed)
            )
            place = {"duplicates": n_duplicates, "share": n_duplicates / len(records.y), "simulation": simulation}
            optimism, report_level = float(random.mean() - safe.mean()), ALARM_AT * null_spread(random, safe)
            rows.append({**place, "optimism": optimism, "report_level": report_level})
            progress(len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return optimism and alarms by the share of duplicates."""
    headings = ["duplicates", "share", "optimism", "standard deviation", f"above {LEVEL}", "above the report's level"]
    lines = [_line(pick(rows, duplicates=number)) for number in plan.alarm_duplicates]
    note = (
        f"Optimism: accuracy of random folds minus accuracy of hashed folds, mean of {N_REPEATS} repeats; {LEVEL} is a "
        "level from simulations of this size. `leakage_report` derives its level from the scores of "
        f"the folds, here {mean(rows, 'report_level'):.4f} on average."
    )
    return Section([markdown(headings, lines), note], claims=list(_claims(rows, plan)))


def _line(rows: Sequence[Row]) -> list[str]:
    optimisms = values(rows, "optimism")
    spread = f"{np.std(optimisms, ddof=1):.4f}" if len(optimisms) > 1 else "–"
    alarms = [f"{_n_above(rows, fixed=fixed)} of {len(rows)}" for fixed in (True, False)]
    return [str(rows[0]["duplicates"]), f"{rows[0]['share']:.1%}", f"{mean(rows, 'optimism'):+.4f}", spread, *alarms]


def _n_above(rows: Sequence[Row], *, fixed: bool) -> int:
    return sum(row["optimism"] > (LEVEL if fixed else row["report_level"]) for row in rows)


def _claims(rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    without, most = (pick(rows, duplicates=number) for number in (0, max(plan.alarm_duplicates)))
    for fixed, level in ((True, str(LEVEL)), (False, "the report's level")):
        if fixed:
            above = _n_above(without, fixed=fixed)
            yield Claim(
                f"without duplicates no simulation is above {level}",
                above == 0,
                f"{above} of {len(without)}",
                len(without),
            )
        above = _n_above(most, fixed=fixed)
        yield Claim(
            f"with the most duplicates at least nine of ten are above {level}",
            above >= 0.9 * len(most),
            f"{above} of {len(most)}",
            n_repetitions=len(most),
        )


ALARM: Exercise[Plan] = Exercise("alarm", "Optimism of random against hashed folds", n_fits, run, show)
