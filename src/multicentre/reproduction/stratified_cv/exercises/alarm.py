"""How many duplicates random against hashed folds give away: the optimism, and when it is above the alarm's level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from multicentre.datasets import simulate_duplicated
from multicentre.reproduction._shared.markdown import markdown
from multicentre.reproduction._shared.section import Claim, Exercise, Heard, Row, Section, mean, pick, values
from multicentre.reproduction.stratified_cv import divisions
from multicentre.reproduction.stratified_cv.boosting import accuracy_over
from multicentre.reproduction.stratified_cv.plan import Plan
from multicentre.reproduction.stratified_cv.records import pool_simulated

LEVEL = 0.006
N_REPEATS = 2
_FIRST_SEED = 9000


def n_fits(plan: Plan) -> int:
    """Return how many simulations are compared."""
    return len(plan.alarm_duplicates) * plan.n_alarms


def run(plan: Plan, heard: Heard) -> list[Row]:
    """Compare random with hashed folds over simulations, two repeats of each."""
    rows: list[Row] = []
    for n_duplicates in plan.alarm_duplicates:
        for simulation in range(plan.n_alarms):
            seed = _FIRST_SEED + simulation
            records, _ = pool_simulated(simulate_duplicated(plan.n_records, n_duplicates, seed=seed))
            gains = []
            for repeat in range(N_REPEATS):
                shuffled = divisions.random_folds(records, 100 * seed + repeat)
                hashed = divisions.hash_folds(records.person, records.y, 100 * seed + repeat)
                gains.append(
                    accuracy_over(records, shuffled, plan.n_rounds) - accuracy_over(records, hashed, plan.n_rounds)
                )
            place = {"duplicates": n_duplicates, "share": n_duplicates / len(records.y), "simulation": simulation}
            optimism = float(np.mean(gains))
            rows.append({**place, "optimism": optimism, "alarm": int(optimism > LEVEL)})
            heard(len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show optimism and alarms by the share of duplicates."""
    headings = ["duplicates", "share", "optimism", "standard deviation", "alarms"]
    lines = [_line(pick(rows, duplicates=number)) for number in plan.alarm_duplicates]
    told = f"An alarm is an optimism above {LEVEL}, the mean of {N_REPEATS} repeats."
    return Section([markdown(headings, lines), told], claims=list(_claims(rows, plan)))


def _line(rows: Sequence[Row]) -> list[str]:
    found = values(rows, "optimism")
    spread = f"{np.std(found, ddof=1):.4f}" if len(found) > 1 else "–"
    alarms = f"{sum(values(rows, 'alarm')):.0f} of {len(rows)}"
    return [str(rows[0]["duplicates"]), f"{rows[0]['share']:.1%}", f"{mean(rows, 'optimism'):+.4f}", spread, alarms]


def _claims(rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    none = values(pick(rows, duplicates=0), "alarm")
    if none:
        yield Claim("without duplicates there is no alarm", not any(none), f"{sum(none):.0f} of {len(none)}")
    many = values(pick(rows, duplicates=max(plan.alarm_duplicates)), "alarm")
    yield Claim(
        "with the most duplicates there is an alarm in nine of ten simulations or more",
        sum(many) >= 0.9 * len(many),
        f"{sum(many):.0f} of {len(many)}",
    )


ALARM: Exercise[Plan] = Exercise("alarm", "What random against hashed folds give away", n_fits, run, show)
