"""Tables 1 and 2 on the split and with the metrics of the published scripts: printed, published code, this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from multicentre.data.survival import SurvivalData
from multicentre_papers.fedsurvboost import published
from multicentre_papers.fedsurvboost.contenders import (
    BLEND,
    COX,
    FED_AVG,
    FED_SURF,
    FED_SURF_IBS,
    HAZARD,
    RSF,
    UNION,
    Contender,
    boosted,
    contenders,
)
from multicentre_papers.fedsurvboost.fits import Bench
from multicentre_papers.fedsurvboost.measure import assess_as_the_authors
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import available
from multicentre_papers.fedsurvboost.splits import as_the_authors, share_out
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, values

PRINTED = {"metabric": published.METABRIC, "support-leaky": published.SUPPORT}
COUNTERPARTS = {
    boosted("cox", "as_published"): "FedSurvBoost CoxPH",
    boosted("tree", "as_published"): "FedSurvBoost RST",
    boosted("deepsurv", "as_published"): "FedSurvBoost PyCox",
    FED_SURF: "FedSurF",
    FED_SURF_IBS: "FedSurF-IBS",
    FED_AVG: "FedAvg (PyCox)",
    UNION: "RSF",
}
OURS = (COX, RSF, HAZARD, BLEND, boosted("tree", "default"))


class Level(NamedTuple):
    """Acceptance interval for the scripts' algorithm, from its spread over seeds."""

    method: str
    sample: str
    sites: tuple[int, ...]
    concordance: tuple[float, float]
    ibs: tuple[float, float] | None


LEVELS = (
    Level(boosted("cox", "as_published"), "metabric", (4, 8), (0.645, 0.662), (0.153, 0.159)),
    Level(boosted("cox", "as_published"), "support-leaky", (4,), (0.828, 0.842), None),
)


def n_fits(plan: Plan) -> int:
    """Return the number of measured cells."""
    n_samples = sum(sample in PRINTED for sample in plan.samples)
    return n_samples * len(plan.n_sites) * plan.n_repeats * len(_methods(plan))


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure the scripts' algorithm and this package's methods on the scripts' split."""
    rows: list[Row] = []
    for sample, data in available(tuple(sample for sample in plan.samples if sample in PRINTED)):
        if not isinstance(data, SurvivalData):
            rows.append({"sample": sample, "skipped": data})
            continue
        training, test = as_the_authors(data)
        for n_sites in plan.n_sites:
            for seed in range(plan.n_repeats):
                bench = Bench(share_out(training, n_sites, seed), seed)
                for contender in _methods(plan):
                    place = {"sample": sample, "sites": n_sites, "seed": seed, "method": contender.name}
                    rows.append({**place, **assess_as_the_authors(bench.fitted(contender), test)})
                    progress(len(rows))
    return rows


def _methods(plan: Plan) -> list[Contender]:
    return [one for one in contenders(plan) if one.name in COUNTERPARTS or one.name in OURS]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return a table per data set, and the claims on the scripts' metrics."""
    blocks = []
    for sample in distinct(rows, "sample"):
        measured = [row for row in pick(rows, sample=sample) if not row.get("skipped")]
        blocks.append(_table(sample, measured, plan) if measured else f"*Left out: {sample}.*")
    return Section(blocks, claims=list(_claims(rows)))


def _table(sample: str, rows: Sequence[Row], plan: Plan) -> str:
    printed = {one.method: one for one in published.TABLES}
    headings = [sample, "sites", "C printed", "C here", "IBS printed", "IBS here"]
    lines = []
    for method in distinct(rows, "method"):
        counterpart = printed.get(COUNTERPARTS.get(method, ""))
        for n_sites in plan.n_sites:
            cell = pick(rows, method=method, sites=n_sites)
            printed_cell = counterpart.cell(PRINTED[sample], n_sites) if counterpart else None
            C, ibs = (f"{figure:.3f}" for figure in printed_cell) if printed_cell else (NOTHING, NOTHING)
            here = [mean_and_spread(values(cell, name)) for name in ("concordance", "ibs")]
            lines.append([method, str(n_sites), C, here[0], ibs, here[1]])
    return markdown(headings, lines)


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for level in LEVELS:
        for n_sites in level.sites:
            cell = pick(rows, sample=level.sample, method=level.method, sites=n_sites)
            if cell:
                yield _within(level, n_sites, mean(cell, "concordance"), mean(cell, "ibs"))


def _within(level: Level, n_sites: int, concordance: float, ibs: float) -> Claim:
    low, high = level.concordance
    expected = f"C from {low} to {high}"
    is_inside = low <= concordance <= high
    if level.ibs:
        expected += f", IBS from {level.ibs[0]} to {level.ibs[1]}"
        is_inside = is_inside and level.ibs[0] <= ibs <= level.ibs[1]
    claim = f"{level.sample}, {n_sites} sites, {level.method}: {expected}"
    return Claim(claim, is_inside, f"C {concordance:.4f}, IBS {ibs:.4f}")


AS_PUBLISHED: Exercise[Plan] = Exercise(
    "as-published", "Tables 1 and 2 on the split of the published scripts", n_fits, run, show
)
