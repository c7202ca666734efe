"""Robustness: agreement of clusters when sites send fewer neighbours, lack records, or are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre.data import MultiViewData
from multicentre.datasets import lose_records, split_views
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.errors import MulticentreError
from multicentre_papers.fedmsgl.contenders import ONE_SHOT, Settings, contenders
from multicentre_papers.fedmsgl.fits import Sites, fit, labels_for, match
from multicentre_papers.fedmsgl.levels import NAMES
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.fedmsgl.samples import SAMPLES, at_hand
from multicentre_papers.runner.markdown import markdown, mean_and_spread
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

WHOLE, FEWER_SENT, LACKING, GONE = "nothing lost", "neighbours sent", "records lacking", "site missing"
# Loss of ACC up to which a method counts as robust. A smaller one would also count chance differences between seeds.
MAX_LOST = 0.05
INTRO = (
    "FedMSGL with its preset, one round. Sites lack records at random, each patient being at one site or more, and "
    "*site missing* leaves one site out in turn. Patients whom no site has left are not counted."
)
Case = tuple[str, str, Sites, Settings]


def n_fits(plan: Plan) -> int:
    """Return about how many fits there are; the number of sites differs."""
    return len(plan.samples) * (1 + len(plan.sizes) + len(plan.shares) * plan.n_runs + 3)


def run(plan: Plan, heard: FitCallback) -> list[Row]:
    """Fit the preset to every data set under every loss."""
    rows: list[Row] = []
    contender = next(one for one in contenders() if one.name == ONE_SHOT)
    for sample, labelled in at_hand(plan.samples):
        if not isinstance(labelled, LabelledMultiView):
            rows.append({"sample": sample.name, "skipped": labelled})
            continue
        for loss, level, sites, settings in _cases(labelled, plan):
            place = {"sample": sample.name, "loss": loss, "level": level}
            model = contender.make(len(labelled.groups), settings, 0)
            try:
                figures = match(labelled, labels_for(fit(model, sites), labelled.data))
                rows.append({**place, **figures})
            except MulticentreError as error:
                rows.append({**place, "skipped": f"{sample.label}, {loss} {level}: {error}"})
            heard(len(rows))
    return rows


def _cases(labelled: LabelledMultiView, plan: Plan) -> Iterator[Case]:
    sites = split_views(labelled)
    yield WHOLE, "", sites, {}
    for size in plan.sizes:
        if size < len(labelled):
            yield FEWER_SENT, str(size), sites, {"n_neighbors": size}
    for share in plan.shares:
        for seed in range(plan.n_runs if len(labelled) <= plan.small else plan.n_large_runs):
            yield LACKING, f"{share:.0%}", lose_records(sites, share, seed), {"incomplete": True}
    yield from _one_missing(sites)


def _one_missing(sites: dict[str, MultiViewData]) -> Iterator[Case]:
    for gone in sites:
        yield GONE, gone, {site: data for site, data in sites.items() if site != gone}, {}


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show a table of each data set, and what a third of the records costs."""
    scored_rows = [row for row in rows if row.get("acc") is not None]
    blocks, claims = [INTRO, *skipped([row for row in rows if row.get("loss") is None])], []
    for name in distinct(scored_rows, "sample"):
        sample_rows = pick(scored_rows, sample=name)
        blocks.append(markdown([SAMPLES[name].label, "", "runs", *NAMES.values()], list(_lines(sample_rows))))
        claims += list(_claims(name, sample_rows, plan))
    return Section(blocks, claims=claims)


def _lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    for loss in distinct(rows, "loss"):
        for level in distinct(pick(rows, loss=loss), "level"):
            sample_rows = pick(rows, loss=loss, level=level)
            figures = [mean_and_spread(values(sample_rows, measure), 4) for measure in NAMES]
            yield [loss, level, str(len(sample_rows)), *figures]


def _claims(name: str, rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    whole = mean(pick(rows, loss=WHOLE), "acc")
    share = f"{max((one for one in plan.shares if one <= 0.3), default=plan.shares[0]):.0%}"
    lacking = mean(pick(rows, loss=LACKING, level=share), "acc")
    yield Claim(
        f"{name}: with {share} of the records of every site lacking, ACC falls by {MAX_LOST} at most",
        whole - lacking <= MAX_LOST,
        f"{whole:.4f} to {lacking:.4f}",
    )


LOSSES: Exercise[Plan] = Exercise("losses", "Fewer neighbours, lacking records, missing sites", n_fits, run, show)
