"""Table 3 as its authors made it: the setting of the highest accuracy, found with the labels."""

from __future__ import annotations

from collections.abc import Sequence

from multicentre.datasets.labelled import LabelledMultiView
from multicentre_papers.fedmsgl.contenders import Contender, Settings, contenders
from multicentre_papers.fedmsgl.fits import runs
from multicentre_papers.fedmsgl.levels import NAMES
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.fedmsgl.samples import SAMPLES, at_hand
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import Exercise, FitCallback, Row, Section, distinct, mean, pick, values

INTRODUCTION = (
    "The best of the settings by accuracy, which needs the very labels that clustering is to find: no result of a "
    "method, but what the printed table rests on."
)


def tunable() -> list[Contender]:
    """Return the methods that have settings to compare."""
    return [one for one in contenders() if len(one.grid) > 1]


def n_fits(plan: Plan) -> int:
    """Return how many settings are tried out at most."""
    return len(plan.samples) * sum(len(one.grid) for one in tunable()) if plan.most_tuned else 0


def run(plan: Plan, heard: FitCallback) -> list[Row]:
    """Run every setting of the methods that have some, with one seed."""
    rows: list[Row] = []
    for sample, labelled in at_hand(plan.samples if plan.most_tuned else ()):
        if not isinstance(labelled, LabelledMultiView) or len(labelled) > plan.most_tuned:
            continue
        for contender in tunable():
            for settings in contender.grid:
                place = {"sample": sample.name, "method": contender.name, "settings": name_settings(settings)}
                rows += [{**place, **row} for row in runs(contender, labelled, settings, (0,), plan)]
                heard(len(rows))
    return rows


def name_settings(settings: Settings) -> str:
    """Return settings as a text.

    Examples
    --------
    >>> name_settings({"share_penalty": 5.0}), name_settings({})
    ('share_penalty=5.0', 'preset')
    """
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "preset"


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show for each data set and method its best setting, and the spread over all."""
    scored_rows = [row for row in rows if row.get("acc") is not None]
    lines = [
        _line(name, method, pick(scored_rows, sample=name, method=method))
        for name in distinct(scored_rows, "sample")
        for method in distinct(pick(scored_rows, sample=name), "method")
    ]
    headings = ["data", "method", "settings", "best", *NAMES.values(), "ACC over all settings"]
    return Section([INTRODUCTION, markdown(headings, lines)])


def _line(name: str, method: str, rows: Sequence[Row]) -> list[str]:
    best = max(rows, key=lambda row: float(row["acc"]))
    figures = [f"{mean([best], measure):.4f}" for measure in NAMES]
    every = mean_and_spread(values(rows, "acc"), 4)
    return [SAMPLES[name].label, method, str(len(rows)), str(best["settings"]), *figures, every]


TUNED: Exercise[Plan] = Exercise("tuned", "Settings found with the labels, as in the paper", n_fits, run, show)
