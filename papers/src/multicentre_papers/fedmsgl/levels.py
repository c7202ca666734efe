"""Levels that were set before the runs: what the preset and the published behaviour must reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from multicentre_papers.fedmsgl.contenders import AS_PUBLISHED, ONE_SHOT, PAPER, THREE_ROUNDS
from multicentre_papers.fedmsgl.published import MEASURES
from multicentre_papers.runner.section import Claim, Row, distinct, mean, pick

OURS = (ONE_SHOT, THREE_ROUNDS, AS_PUBLISHED, PAPER)
RIVAL_SAMPLE = "caltech101_7"
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
    """Yield a verdict for each level whose data set was run, and for every compared method on Caltech101-7.

    Parameters
    ----------
    rows : sequence of mapping
        Runs with settings selected without labels, by `sample` and `method`.
    """
    for level in LEVELS:
        level_rows = [row for row in pick(rows, sample=level.sample, method=level.method) if row.get("acc") is not None]
        if level_rows:
            yield _reached(level, level_rows)
    yield from _ahead(pick(rows, sample=RIVAL_SAMPLE))


def _reached(level: Level, rows: Sequence[Row]) -> Claim:
    thresholds = {name: least for name, least in zip(MEASURES, level.least, strict=True) if least is not None}
    means = {name: mean(rows, name) for name in thresholds}
    return Claim(
        f"{level.sample}, {level.method}: "
        + ", ".join(f"{NAMES[name]} {least:.2f}" for name, least in thresholds.items()),
        all(means[name] >= least for name, least in thresholds.items()),
        ", ".join(f"{NAMES[name]} {value:.4f}" for name, value in means.items()) + f"; {len(rows)} runs",
    )


def _ahead(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield whether the preset is ahead of the best compared method in ACC and in NMI."""
    scored_rows = [row for row in rows if row.get("acc") is not None]
    rivals = [method for method in distinct(scored_rows, "method") if method not in OURS]
    if not rivals or ONE_SHOT not in distinct(scored_rows, "method"):
        return
    for name in ("acc", "nmi"):
        means = {method: mean(pick(scored_rows, method=method), name) for method in (ONE_SHOT, *rivals)}
        best = max(rivals, key=means.__getitem__)
        yield Claim(
            f"{RIVAL_SAMPLE}: {ONE_SHOT}, is ahead of all {len(rivals)} compared methods in {NAMES[name]}",
            means[ONE_SHOT] > means[best],
            f"{means[ONE_SHOT]:.4f}; {best} {means[best]:.4f}",
        )
