"""Tables 1 and 2 on repeated splits that all methods share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre.data.survival import SurvivalData
from multicentre_papers.fedsurvboost.contenders import BLEND, COX, HAZARD, RSF, STACK, contenders
from multicentre_papers.fedsurvboost.fits import Bench
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import available
from multicentre_papers.fedsurvboost.splits import hold_out, share_out
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
    values,
)

EXACT = (COX, RSF, HAZARD, BLEND, STACK)
# Well below the standard error of a metric on one test split (0.02 in concordance).
TOLERANCE = {"concordance": 0.003, "ibs": 0.001}


def n_fits(plan: Plan) -> int:
    """Return the number of measured cells, including those of data sets that are not available."""
    splits = sum(plan.splits_of(sample) for sample in plan.samples)
    return splits * len(plan.n_sites) * len(contenders(plan))


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure every method on every split and number of sites."""
    rows: list[Row] = []
    for sample, data in available(plan.samples):
        if not isinstance(data, SurvivalData):
            rows.append({"sample": sample, "skipped": data})
            continue
        for split in range(plan.splits_of(sample)):
            training, test = hold_out(data, split)
            rows += _measured(plan, sample, split, training, test, progress, len(rows))
    return rows


def _measured(
    plan: Plan, sample: str, split: int, training: SurvivalData, test: SurvivalData, progress: FitCallback, done: int
) -> list[Row]:
    rows: list[Row] = []
    for n_sites in plan.n_sites:
        bench = Bench(share_out(training, n_sites, split), split)
        for contender in contenders(plan):
            if contender.same_for_any_split and n_sites != max(plan.n_sites):
                continue
            place = {"sample": sample, "split": split, "sites": n_sites, "method": contender.name}
            figures = bench.judge(contender, test)
            rows.append({**place, "group": contender.group, "settings": bench.settings(contender), **figures})
            progress(done + len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return a table per data set, and a claim per cell on the best exact method."""
    blocks: list[str] = []
    claims: list[Claim] = []
    for sample in distinct(rows, "sample"):
        measured = [row for row in pick(rows, sample=sample) if not row.get("skipped")]
        if not measured:
            blocks.append(f"*Left out: {sample}.*")
            continue
        blocks.append(_table(sample, measured, plan))
        claims += _claims(sample, measured, plan)
    return Section(blocks, claims=claims)


def _table(sample: str, rows: Sequence[Row], plan: Plan) -> str:
    headings = [f"{sample}", *(f"C, {n} sites" for n in plan.n_sites), *(f"IBS, {n} sites" for n in plan.n_sites)]
    lines = [
        [method, *(_cell(rows, method, n, name, plan) for name in ("concordance", "ibs") for n in plan.n_sites)]
        for method in distinct(rows, "method")
    ]
    return markdown(headings, lines)


def _cell(rows: Sequence[Row], method: str, n_sites: int, name: str, plan: Plan) -> str:
    cell_rows = cell(rows, method, n_sites, plan)
    return mean_and_spread(values(cell_rows, name)) if cell_rows else NOTHING


def cell(rows: Sequence[Row], method: str, n_sites: int, plan: Plan) -> list[Row]:
    """Return a method's rows at a number of sites; exact methods have the same rows for all numbers."""
    return pick(rows, method=method, sites=n_sites) or (
        pick(rows, method=method, sites=max(plan.n_sites)) if method in EXACT else []
    )


def _claims(sample: str, rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    for name in ("concordance", "ibs"):
        for n_sites in plan.n_sites:
            yield _best(sample, rows, name, n_sites, plan)


def _best(sample: str, rows: Sequence[Row], name: str, n_sites: int, plan: Plan) -> Claim:
    sign = 1 if name == "concordance" else -1
    means = {
        method: sign * mean(cell(rows, method, n_sites, plan), name)
        for method in distinct(rows, "method")
        if cell(rows, method, n_sites, plan)
    }
    exact = {method: value for method, value in means.items() if method in EXACT}
    others = {method: value for method, value in means.items() if method not in EXACT}
    ours, rival = max(exact, key=exact.__getitem__), max(others, key=others.__getitem__)
    return Claim(
        f"{sample}, {n_sites} sites: the best exact method is within {TOLERANCE[name]} of every other in {name}",
        exact[ours] >= others[rival] - TOLERANCE[name],
        f"{ours} {sign * exact[ours]:.4f}, {rival} {sign * others[rival]:.4f}",
    )


PAIRED: Exercise[Plan] = Exercise("paired", "Tables 1 and 2 on shared splits", n_fits, run, show)
