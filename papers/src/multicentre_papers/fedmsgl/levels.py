"""Levels that were set before the runs: what the preset and the published behaviour must reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from multicentre_papers.fedmsgl.contenders import AS_PUBLISHED, ONE_SHOT, PAPER, THREE_ROUNDS
from multicentre_papers.fedmsgl.published import MEASURES
from multicentre_papers.runner.section import Claim, PairedDifference, Row, compare, distinct, mean, pick, values

OURS = (ONE_SHOT, THREE_ROUNDS, AS_PUBLISHED, PAPER)
NAMES = {"acc": "ACC", "purity": "purity", "nmi": "NMI"}


@dataclass(frozen=True)
class Level:
    """Least means over runs of a method on a data set, in the order of :data:`MEASURES`; None asks for nothing."""

    sample: str
    method: str
    least: tuple[float | None, float | None, float | None]


LEVELS = (
    Level("bbcsport", ONE_SHOT, (0.98, 0.98, 0.94)),
    Level("handwritten", ONE_SHOT, (0.96, 0.96, 0.93)),
    Level("orl", ONE_SHOT, (0.81, 0.84, 0.91)),
    Level("sonar", ONE_SHOT, (0.63, None, None)),
    Level("bbcsport", AS_PUBLISHED, (0.88, 0.88, 0.71)),
)


def judge(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield a verdict for each level, and per data set whether the preset is ahead of every compared method.

    Parameters
    ----------
    rows : sequence of mapping
        Runs with settings selected without labels, by `sample` and `method`. Those of a data set that is not available
        have no method; what they would show is untested.
    """
    present = distinct(rows, "sample")
    for level in LEVELS:
        level_rows = [row for row in pick(rows, sample=level.sample, method=level.method) if row.get("acc") is not None]
        if level_rows or level.sample in present:
            yield _reached(level, level_rows)
    for name in present:
        yield from _ahead(name, [row for row in pick(rows, sample=name) if row.get("acc") is not None])


def _reached(level: Level, rows: Sequence[Row]) -> Claim:
    thresholds = {name: least for name, least in zip(MEASURES, level.least, strict=True) if least is not None}
    means = {name: mean(rows, name) for name in thresholds}
    figures = ", ".join(f"{NAMES[name]} {value:.4f}" for name, value in means.items()) + f"; {len(rows)} runs"
    return Claim(
        f"{level.sample}, {level.method}: "
        + ", ".join(f"{NAMES[name]} {least:.2f}" for name, least in thresholds.items()),
        all(means[name] >= least for name, least in thresholds.items()),
        figures if rows else "not run",
        n_repetitions=len(rows),
    )


def _ahead(name: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield whether the preset is ahead of the best compared method or plain baseline in ACC and in NMI."""
    rivals = [method for method in distinct(rows, "method") if method not in OURS]
    preset_rows = pick(rows, method=ONE_SHOT)
    for measure in ("acc", "nmi"):
        claim = f"{name}: {ONE_SHOT}, is ahead of all compared methods and plain baselines in {NAMES[measure]}"
        if not rivals or not preset_rows:
            yield Claim(claim, False, "not run", n_repetitions=0)
            continue
        means = {method: mean(pick(rows, method=method), measure) for method in rivals}
        best = max(rivals, key=means.__getitem__)
        best_rows, middle = pick(rows, method=best), mean(preset_rows, measure)
        error = math.hypot(_standard_error(preset_rows, measure), _standard_error(best_rows, measure))
        times = "1 run" if len(best_rows) == 1 else f"{len(best_rows)} runs"
        remark = f"{middle:.4f}; best of {len(rivals)}: {best}, {means[best]:.4f} ({times})"
        yield compare(claim, PairedDifference(middle - means[best], error, len(preset_rows)), remark)


def _standard_error(rows: Sequence[Row], measure: str) -> float:
    """Return the standard error of a mean over runs, 0 for a single run."""
    figures = values(rows, measure)
    if len(figures) < 2:
        return 0.0
    middle = sum(figures) / len(figures)
    return math.sqrt(sum((one - middle) ** 2 for one in figures) / (len(figures) - 1) / len(figures))
