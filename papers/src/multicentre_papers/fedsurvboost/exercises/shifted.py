"""Heterogeneous sites: by outcome, age, follow-up and size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from multicentre.data.survival import SurvivalData
from multicentre.datasets import partitions
from multicentre_papers.fedsurvboost.contenders import (
    CHOSEN,
    FED_SURF,
    FOREST_ALONE,
    Contender,
    boosted,
    contenders,
)
from multicentre_papers.fedsurvboost.exercises.paired import EXACT, SIGN, claim_of
from multicentre_papers.fedsurvboost.fits import Bench
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import SIMULATED, available
from multicentre_papers.fedsurvboost.splits import at_most, hold_out
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import Exercise, FitCallback, Row, Section, distinct, pick, values

Share = Callable[[SurvivalData, int, int], Mapping[str, SurvivalData]]
# Largest number of sites of tables 1 and 2.
N_SITES = 8


def _by_age(data: SurvivalData, n_sites: int, seed: int) -> Mapping[str, SurvivalData]:
    column = "age_at_diagnosis" if "age_at_diagnosis" in data.columns else data.columns[0]
    return partitions.split_by_column(data, column, n_sites, seed)


def _by_follow_up(data: SurvivalData, n_sites: int, seed: int) -> Mapping[str, SurvivalData]:
    return partitions.censor_by_site(partitions.split_iid(data, n_sites, seed))


KINDS: dict[str, Share] = {
    "at random": partitions.split_iid,
    "Dirichlet(1) over time": lambda data, n, seed: partitions.split_dirichlet(data, n, seed, alpha=1.0),
    "sorted by time": partitions.split_by_time,
    "sorted by age": _by_age,
    "different follow-up": _by_follow_up,
    "sizes halving": partitions.split_sizes,
}


def n_fits(plan: Plan) -> int:
    """Return the number of measured cells."""
    return len(KINDS) * plan.n_splits * len(_methods(plan))


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure every method without networks over eight sites of every kind of heterogeneity."""
    name = "metabric" if "metabric" in plan.samples else SIMULATED
    rows: list[Row] = []
    for sample, data in available((name,)):
        if not isinstance(data, SurvivalData):
            rows.append({"sample": sample, "skipped": data})
            continue
        for split in range(plan.n_splits):
            training, test = hold_out(at_most(data, plan.most_patients), split)
            pooled = Bench({"all": training}, split)
            for kind, share in KINDS.items():
                bench = Bench(share(training, N_SITES, split), split)
                # Sites with a shorter follow-up have other patients; all other kinds only distribute them.
                exact = Bench({"all": bench.training}, split) if share is _by_follow_up else pooled
                for contender in _methods(plan):
                    figures = (exact if contender.same_for_any_split else bench).judge(contender, test)
                    rows.append({"sample": sample, "kind": kind, "split": split, "method": contender.name, **figures})
                    progress(len(rows))
    return rows


def _methods(plan: Plan) -> list[Contender]:
    """Return the exact methods, except the cross-validated one for time, and one method of every other kind."""
    others = (FOREST_ALONE, boosted("cox", "as_published"), boosted("tree", "as_published"), FED_SURF)
    return [one for one in contenders(plan) if one.name in others or (one.name in EXACT and one.name != CHOSEN)]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return tables by kind of heterogeneity, and the claims on the named method."""
    measured = [row for row in rows if not row.get("skipped")]
    if not measured:
        return Section(["*Left out: METABRIC.*"], claims=[claim_of(kind, [], name) for kind in KINDS for name in SIGN])
    kinds = distinct(measured, "kind")
    blocks = [_table(measured, kinds, figure, title) for figure, title in (("concordance", "C"), ("ibs", "IBS"))]
    claims = [claim_of(kind, pick(measured, kind=kind), name) for kind in kinds for name in SIGN]
    return Section(blocks, claims=claims)


def _table(rows: Sequence[Row], kinds: Sequence[str], figure: str, title: str) -> str:
    lines = [
        [method, *(mean_and_spread(values(pick(rows, method=method, kind=kind), figure)) for kind in kinds)]
        for method in distinct(rows, "method")
    ]
    return markdown([f"{title}, {N_SITES} sites", *kinds], lines)


SHIFTED: Exercise[Plan] = Exercise("shifted", "Heterogeneous sites", n_fits, run, show)
