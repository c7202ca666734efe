"""Figure 2: how much the penalties and the weight of the hypergraph matter on one data set, and the objective."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from multicentre.datasets import split_views
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.estimator.figures import Figure, HeatMap, Lines
from multicentre_papers.fedmsgl.contenders import AS_PUBLISHED, ONE_SHOT, THREE_ROUNDS, Settings, contenders
from multicentre_papers.fedmsgl.fits import fit, runs
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.fedmsgl.samples import SAMPLES, at_hand
from multicentre_papers.runner.markdown import NOTHING, markdown
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    Row,
    Section,
    distinct,
    mean,
    pick,
    skipped,
    values,
)

FIRST_AND_THIRD, SECOND, BETA, OBJECTIVE = "lambda_1, lambda_3", "lambda_2", "beta", "objective"
# Range of ACC from which a method counts as sensitive. A smaller one would also count chance differences of one seed; a
# larger one would miss settings that change the ranking of methods.
SENSITIVE = 0.05
# Relative change of the objective per round below which it counts as converged.
CONVERGED = 1e-3
INTRODUCTION = (
    "ACC with one seed. In the corrected method lambda_1 and lambda_3 act through lambda_1 lambda_3 / (lambda_1 + "
    "lambda_3) only, so that its map is symmetric, and lambda_2 is relative to distances of mean 1. beta acts from "
    "the second round on."
)


def n_fits(plan: Plan) -> int:
    """Return how many fits there are, that of the objective included."""
    grid = len(plan.lambdas) ** 2 + len(plan.lambdas) + len(plan.betas)
    return grid * (1 + plan.published_grid) + 1


def run(plan: Plan, heard: FitCallback) -> list[Row]:
    """Vary lambda_1 and lambda_3 together, then lambda_2, then beta; then take the objective after every round."""
    rows: list[Row] = []
    for sample, labelled in at_hand((plan.figure_sample,)):
        if not isinstance(labelled, LabelledMultiView):
            return [{"sample": sample.name, "skipped": labelled}]
        for panel, method, settings in _settings(plan):
            contender = next(one for one in contenders() if one.name == method)
            place = {"sample": sample.name, "panel": panel, "method": method, **settings}
            method_settings = settings if method == AS_PUBLISHED else library_settings(settings)
            rows += [{**place, **row} for row in runs(contender, labelled, method_settings, (0,), plan)]
            heard(len(rows))
        rows += _objective(sample.name, labelled, plan)
        heard(len(rows))
    return rows


def _settings(plan: Plan) -> Iterator[tuple[str, str, Settings]]:
    for method, rounds in ((ONE_SHOT, THREE_ROUNDS), (AS_PUBLISHED, AS_PUBLISHED)):
        if method == AS_PUBLISHED and not plan.published_grid:
            continue
        for first, third in itertools.product(plan.lambdas, plan.lambdas):
            yield FIRST_AND_THIRD, method, {"lambda_1": first, "lambda_3": third}
        for second in plan.lambdas:
            yield SECOND, method, {"lambda_2": second}
        for beta in plan.betas:
            yield BETA, rounds, {"beta": beta}


def library_settings(settings: Settings) -> Settings:
    """Return the paper's settings by the library's names; one penalty stands for lambda_1 and lambda_3.

    Examples
    --------
    >>> library_settings({"lambda_1": 10.0, "lambda_3": 10.0}), library_settings({"beta": 1.0})
    ({'share_penalty': 5.0}, {'embedding_penalty': 1.0})
    """
    if "lambda_1" in settings:
        first, third = settings["lambda_1"], settings["lambda_3"]
        return {"share_penalty": first * third / (first + third)}
    names = {"lambda_2": "distance_penalty", "beta": "embedding_penalty"}
    return {names[name]: value for name, value in settings.items()}


def _objective(sample: str, labelled: LabelledMultiView, plan: Plan) -> list[Row]:
    """Return the objective after each round from the second on; the first has no coupling, and another objective."""
    contender = next(one for one in contenders() if one.name == THREE_ROUNDS)
    model = contender.make(len(labelled.groups), {}, 0).set_params(max_iter=plan.n_rounds)
    place = {"sample": sample, "panel": OBJECTIVE, "method": THREE_ROUNDS}
    history = fit(model, split_views(labelled.data)).history_
    return [
        {**place, "step": number, "objective": float(one["objective"])}
        for number, one in enumerate(history, start=1)
        if number > 1
    ]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show a table and a figure of every panel, and whether the paper's reading of them holds."""
    scored_rows = [row for row in rows if not row.get("skipped")]
    if not scored_rows:
        return Section(skipped(rows))
    blocks: list[str] = [INTRODUCTION]
    figures: dict[str, Figure] = {}
    for method in distinct(pick(scored_rows, panel=FIRST_AND_THIRD), "method"):
        panel_rows = pick(scored_rows, panel=FIRST_AND_THIRD, method=method)
        blocks.append(_map_table(method, panel_rows, plan))
        figures[f"figure-2a-{_file_name(method)}"] = _heat_map(method, panel_rows, plan)
    for panel, setting, letter in ((SECOND, "lambda_2", "b"), (BETA, "beta", "c")):
        panel_rows = pick(scored_rows, panel=panel)
        blocks.append(_line_table(setting, panel_rows))
        figures[f"figure-2{letter}"] = _lines(setting, panel_rows)
    figures["figure-2d"] = _curve(pick(scored_rows, panel=OBJECTIVE))
    label = SAMPLES[scored_rows[0]["sample"]].label
    return Section([f"**{label}.**", *blocks], figures, list(_claims(scored_rows)))


def _map_table(method: str, rows: Sequence[Row], plan: Plan) -> str:
    headings = [f"{method}: lambda_1 \\ lambda_3", *(f"{third:g}" for third in plan.lambdas)]
    lines = [
        [f"{first:g}", *(_acc(pick(rows, lambda_1=first, lambda_3=third)) for third in plan.lambdas)]
        for first in plan.lambdas
    ]
    return markdown(headings, lines)


def _line_table(setting: str, rows: Sequence[Row]) -> str:
    tested = distinct(rows, setting)
    lines = [
        [method, *(_acc(pick(rows, method=method, **{setting: value})) for value in tested)]
        for method in distinct(rows, "method")
    ]
    return markdown([setting, *(f"{value:g}" for value in tested)], lines)


def _acc(rows: Sequence[Row]) -> str:
    return f"{mean(rows, 'acc'):.4f}" if values(rows, "acc") else NOTHING


def _heat_map(method: str, rows: Sequence[Row], plan: Plan) -> HeatMap:
    names = [f"{value:g}" for value in plan.lambdas]
    cells = [
        [next(iter(values(pick(rows, lambda_1=first, lambda_3=third), "acc")), None) for third in plan.lambdas]
        for first in plan.lambdas
    ]
    return HeatMap(f"ACC, {method}", "Rows: lambda_1; columns: lambda_3.", "fit", names, names, cells, "ACC", 0.0, 1.0)


def _lines(setting: str, rows: Sequence[Row]) -> Lines:
    tested = distinct(rows, setting)
    series = {
        method: [mean(pick(rows, method=method, **{setting: value}), "acc") for value in tested]
        for method in distinct(rows, "method")
    }
    axis = [math.log10(value) for value in tested]
    return Lines(f"ACC by {setting}", "One seed.", "fit", f"{setting}, power of ten", "ACC", axis, series, {})


def _curve(rows: Sequence[Row]) -> Lines:
    heights = values(rows, "objective")
    steps = [float(row["step"]) for row in rows]
    return Lines(
        "Objective",
        "After every round from the second on.",
        "fit",
        "round",
        "objective",
        steps,
        {THREE_ROUNDS: heights},
        {},
    )


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for method in distinct(pick(rows, panel=SECOND), "method"):
        first = _range(pick(rows, panel=FIRST_AND_THIRD, method=method))
        second = _range(pick(rows, panel=SECOND, method=method))
        yield Claim(
            f"paper: robust to lambda_2 and sensitive to lambda_1 and lambda_3 ({method}; {SENSITIVE} in ACC)",
            second < SENSITIVE <= first,
            f"ACC ranges over {second:.3f} with lambda_2, over {first:.3f} with the others",
        )
    for method in distinct(pick(rows, panel=BETA), "method"):
        panel_rows = pick(rows, panel=BETA, method=method)
        tested = distinct(panel_rows, "beta")
        least, most = (mean(pick(panel_rows, beta=value), "acc") for value in (min(tested), max(tested)))
        yield Claim(
            f"paper: beta should be small ({method})",
            least > most,
            f"ACC {least:.4f} at {min(tested):g}, {most:.4f} at {max(tested):g}",
        )
    heights = values(pick(rows, panel=OBJECTIVE), "objective")
    if len(heights) > 1:
        rises = [later / earlier - 1 for earlier, later in itertools.pairwise(heights)]
        yield Claim(
            f"paper: the objective settles within {len(heights) + 1} rounds, to {CONVERGED:.1%} per round",
            abs(rises[-1]) < CONVERGED,
            f"{heights[0]:.5g} to {heights[-1]:.5g}; last change {rises[-1]:+.3%}, largest rise {max(0.0, *rises):.3%}",
        )


def _range(rows: Sequence[Row]) -> float:
    accuracies = values(rows, "acc")
    return max(accuracies) - min(accuracies) if accuracies else math.nan


def _file_name(method: str) -> str:
    return method.lower().replace(",", "").replace(" ", "-")


FIGURE_2: Exercise[Plan] = Exercise("figure-2", "Figure 2: sensitivity and convergence", n_fits, run, show)
