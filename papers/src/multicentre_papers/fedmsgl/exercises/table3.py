"""Table 3: every method on every data set with settings chosen without labels, next to the printed figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre.datasets.labelled import LabelledMultiView
from multicentre_papers.fedmsgl import published
from multicentre_papers.fedmsgl.contenders import ONE_SHOT, PLAIN, contenders
from multicentre_papers.fedmsgl.fits import runs
from multicentre_papers.fedmsgl.levels import NAMES, judge
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.fedmsgl.possible import remark
from multicentre_papers.fedmsgl.samples import SAMPLES, at_hand
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
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

FAR = 0.08
"""Compared methods' normalisation and settings are unpublished: a smaller difference is not interpreted."""

MARK = "†"
PRINTED = {one.name: one.printed for one in contenders()}


def n_fits(plan: Plan) -> int:
    """Return how many runs there are at most, those of data sets that are not at hand included."""
    return len(plan.samples) * len(contenders()) * plan.n_runs


def run(plan: Plan, heard: FitCallback) -> list[Row]:
    """Run every method with its preset."""
    rows: list[Row] = []
    for sample, labelled in at_hand(plan.samples):
        if not isinstance(labelled, LabelledMultiView):
            rows.append({"sample": sample.name, "skipped": labelled})
            continue
        for contender in contenders():
            place = {"sample": sample.name, "method": contender.name}
            if not contender.is_run(len(labelled), plan):
                why = f"{contender.name}: untested, not run on more than {plan.most_published} patients"
                rows.append({**place, "skipped": why})
                continue
            seeds = range(contender.n_runs(len(labelled), plan))
            results = runs(contender, labelled, PLAIN[0], seeds, plan)
            rows += [{**place, **row} for row in results]
            heard(len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show a table for each data set with the printed figures, and verdicts."""
    introduction = (
        "All methods use the package's defaults; labels are used only for scoring. The default of FedMSGL was chosen "
        "on these data sets, each left out in turn, so unseen data sets are more informative. The paper does not "
        f"report ARI. A figure marked {MARK} is not comparable; the reason is given below its table."
    )
    blocks, claims = [introduction], []
    for name in distinct(rows, "sample"):
        method_rows = pick(rows, sample=name)
        if any(row.get("skipped") and row.get("method") is None for row in method_rows):
            blocks += skipped(method_rows)
            continue
        blocks += _blocks(name, method_rows)
        claims += list(_against_print(name, method_rows))
    return Section(blocks, claims=[*judge(rows), *claims])


def _blocks(name: str, rows: Sequence[Row]) -> Iterator[str]:
    sample = SAMPLES[name]
    yield f"**{sample.label}.** {sample.caveat}"
    headings = ["method", "runs", *NAMES.values(), "ARI", *(f"{one}, printed" for one in NAMES.values()), "s a run"]
    lines = [_line(method, pick(rows, method=method), sample.column) for method in distinct(rows, "method")]
    yield markdown(headings, lines)
    yield from _counts(rows)
    if sample.column is not None:
        yield from _remarks(sample.column)
        yield from _far(rows, sample.column)
    failed = [f"{row['skipped']}" for row in rows if row.get("skipped")]
    if failed:
        yield "\n".join(f"* {one}" for one in failed)


def _line(method: str, rows: Sequence[Row], column: str | None) -> list[str]:
    accuracies = values(rows, "acc")
    figures = [mean_and_spread(values(rows, name), 4) for name in (*NAMES, "ari")]
    seconds = f"{mean(rows, 'seconds'):.1f}" if accuracies else NOTHING
    return [method, str(len(accuracies)), *figures, *_printed(PRINTED[method], column), seconds]


def _printed(row: str | None, column: str | None) -> list[str]:
    if row is None or column is None:
        return [NOTHING] * len(NAMES)
    cell = published.cell(row, column)
    mark = MARK if remark(row, column) else ""
    return [f"{getattr(cell, name):.4f}{mark}" for name in NAMES]


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    """Yield which methods returned another number of clusters than was asked for, in the mean."""
    requested = max(values(rows, "n_asked"), default=0.0)
    means = {method: mean(pick(rows, method=method), "n_found") for method in distinct(rows, "method")}
    other = [f"{method} {n_clusters:.1f}" for method, n_clusters in means.items() if abs(n_clusters - requested) > 0.05]
    if other:
        yield f"Clusters returned, where not {requested:.0f} as asked: {', '.join(other)}."


def _remarks(column: str) -> Iterator[str]:
    remarks = {method: remark(method, column) for method in published.METHODS}
    lines = [f"* {MARK} {method}: {why}." for method, why in remarks.items() if why]
    if lines:
        yield "\n".join(lines)


def _far(rows: Sequence[Row], column: str) -> Iterator[str]:
    """Yield which compared methods' printed accuracy lies far from what is measured, in either direction."""
    far = []
    for one in contenders():
        measured = values(pick(rows, method=one.name), "acc")
        if one.ours or one.printed is None or not measured or remark(one.printed, column):
            continue
        difference = published.cell(one.printed, column).acc - sum(measured) / len(measured)
        if abs(difference) > FAR:
            far.append(f"{one.name} {difference:+.3f}")
    if far:
        yield f"Printed accuracy less the one measured here, where more than {FAR} apart: {', '.join(far)}."


def _against_print(name: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield whether the preset meets FedMSGL's own row of the table, measure by measure."""
    column, method_rows = SAMPLES[name].column, pick(rows, method=ONE_SHOT)
    if column is None or not values(method_rows, "acc"):
        return
    printed = published.cell(published.FEDMSGL, column)
    for measure, label in NAMES.items():
        least, value = getattr(printed, measure), mean(method_rows, measure)
        yield Claim(
            f"{name}, {ONE_SHOT}: the printed {label} of FedMSGL, {least:.4f}, is met",
            value >= least,
            f"{value:.4f}",
            n_repetitions=len(method_rows),
        )


TABLE_3: Exercise[Plan] = Exercise("table-3", "Table 3 with settings chosen without labels", n_fits, run, show)
