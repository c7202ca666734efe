"""The result as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multicentre_papers.fed_mv_ppca import published, unmeasured
from multicentre_papers.fed_mv_ppca.aggregate import Summary
from multicentre_papers.fed_mv_ppca.methods import PAPER, RIVALS
from multicentre_papers.fed_mv_ppca.selection import Choice, mean_by_candidate
from multicentre_papers.fed_mv_ppca.unmeasured import Imputed
from multicentre_papers.runner.markdown import NOTHING, markdown

FIGURES = ("mae_train", "mae_test", "accuracy")
HEADINGS = ("MAE train", "MAE test", "accuracy in LS")
PUBLISHED_NAMES = {PAPER: published.PPCA} | {name: name for name in RIVALS}


def table_of(lines: Sequence[Summary]) -> str:
    """Return the lines of one data set next to the published figures of another one."""
    headings = ["scenario", "centres", "method", *HEADINGS, *(f"*ADNI*: {heading}" for heading in HEADINGS)]
    return markdown(headings, [_line(line) for line in lines])


def table_of_selection(choices: list[Choice]) -> str:
    """Return WAIC and held-out error over the number of latent dimensions."""
    means = mean_by_candidate(choices)
    lowest = min(means, key=lambda q: means[q][0])
    rows = [[f"**{q}**" if q == lowest else str(q), f"{waic:.0f}", f"{mae:.4f}"] for q, (waic, mae) in means.items()]
    return markdown(["q", "WAIC (lower is better)", "MAE of held-out rows"], rows)


def table_of_unmeasured(rows: list[Imputed]) -> str:
    """Return the errors of the protein view by method and centres."""
    means = unmeasured.mean_by_arrangement(rows)
    headings = [
        "q",
        "method",
        "centres",
        "protein from the other views",
        "protein by the mean",
        "MAE test",
        "accuracy in LS",
    ]
    return markdown(
        headings,
        [
            [str(q), f"Fed-mv-PPCA ({method})", centres]
            + [f"{figures[name]:.4f}" for name in ("imputation_mae", "mean_imputation_mae", "mae_test", "accuracy")]
            for (q, method, centres), figures in means.items()
        ],
    )


def _line(line: Summary) -> list[str]:
    printed = published.TABLE_2.get((line.scenario, line.n_sites, PUBLISHED_NAMES.get(line.method, "")))
    theirs = [NOTHING] * len(FIGURES) if printed is None else [_format(*getattr(printed, name)) for name in FIGURES]
    ours = [_format(line.mean[name], line.deviation[name]) for name in FIGURES]
    return [line.scenario, str(line.n_sites), line.method, *ours, *theirs]


def _format(mean: float, deviation: float) -> str:
    if math.isnan(mean):
        return NOTHING
    return f"{mean:.4f}" if math.isnan(deviation) else f"{mean:.4f} ± {deviation:.4f}"
