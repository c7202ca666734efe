"""Comparison of the areas under the curve with the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre_papers.dpfact import published
from multicentre_papers.dpfact.exercises.prediction.measure import (
    AS_PUBLISHED,
    CP_ALS,
    PLAIN,
    PRIVATE,
    RANDOM,
    SPARSE,
    TRIP,
)
from multicentre_papers.runner.section import Claim, Row, compare, distinct, mean, paired, pick

PAIRS = ("rank", "seed")


def judge(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about areas under the curve on planted events."""
    return [*_above_rivals(rows), *_parts(rows), _at_home(rows), *_random(rows), _on_mimic()]


def _on_mimic() -> Claim:
    areas = [row[published.DPFACT] for row in published.AUC.values()]
    return Claim(
        f"paper: DPFact's AUC on MIMIC-III is {min(areas):.4f} to {max(areas):.4f}, by rank",
        False,
        "MIMIC-III may not be passed on",
        n_repetitions=0,
    )


def _above_rivals(rows: Sequence[Row]) -> Iterator[Claim]:
    above_ten = [row for row in rows if row["rank"] > 10]
    for rival in (CP_ALS, TRIP):
        if pick(above_ten, method=rival):
            yield compare(
                f"paper: above rank 10 DPFact's AUC (without DP) is above that of {rival}",
                paired(above_ten, "auc", SPARSE, rival, by=PAIRS),
            )


def _parts(rows: Sequence[Row]) -> Iterator[Claim]:
    table = published.AUC.values()
    cost = max(row[published.WITHOUT_DP] - row[published.DPFACT] for row in table)
    worth = min(row[published.DPFACT] - row[published.WITHOUT_L21] for row in table)
    yield compare(
        f"paper: privacy costs an AUC of {cost:.4f} at most",
        paired(rows, "auc", PRIVATE, SPARSE, by=PAIRS),
        "under a guarantee for patients",
        least=-cost,
    )
    yield compare(
        f"paper: l2,1 raises the AUC by {worth:.4f} or more",
        paired(rows, "auc", SPARSE, PLAIN, by=PAIRS),
        "memberships are refitted alike with and without it",
        least=worth,
    )


def _at_home(rows: Sequence[Row]) -> Claim:
    sparse_match, trip_match = (mean(pick(rows, method=one), "fms_exclusive") for one in (SPARSE, TRIP))
    return compare(
        "paper: at a site with exclusive phenotypes, DPFact's AUC is above TRIP's",
        paired(rows, "auc_exclusive", SPARSE, TRIP, by=PAIRS),
        f"match of those phenotypes {sparse_match:.3f} against {trip_match:.3f}",
    )


def _random(rows: Sequence[Row]) -> Iterator[Claim]:
    random_rows = pick(rows, method=RANDOM)
    areas = {rank: mean(pick(random_rows, rank=rank), "auc") for rank in distinct(random_rows, "rank")}
    if not areas:
        return
    most = max(areas, key=lambda rank: areas[rank])
    match, literal = (mean(pick(rows, method=one), "fms") for one in (RANDOM, AS_PUBLISHED))
    yield Claim(
        "AUC separates good phenotypes from bad ones: random factors stay below 0.6",
        areas[most] < 0.6,
        f"random factors reach {areas[most]:.3f} at rank {most}, with a match of {match:.3f}; that of DPFact as "
        f"published is {literal:.3f}",
        n_repetitions=len(distinct(random_rows, "seed")),
    )
