"""What the areas under the curve bear out of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre.reproduction.dpfact import published
from multicentre.reproduction.dpfact.exercises.prediction.measure import (
    AS_PUBLISHED,
    CP_ALS,
    PLAIN,
    PRIVATE,
    RANDOM,
    SPARSE,
    TRIP,
)
from multicentre.reproduction.dpfact.section import Claim, Row, distinct, mean, paired, pick


def judge(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about areas under the curve on planted events."""
    return [*_above_rivals(rows), *_parts(rows), _at_home(rows), *_random(rows)]


def _by_rank(rows: Sequence[Row], method: str) -> dict[int, float]:
    own = pick(rows, method=method)
    return {rank: mean(pick(own, rank=rank), "auc") for rank in sorted(set(distinct(own, "rank")))}


def _gains(rows: Sequence[Row], method: str, rival: str) -> dict[int, float]:
    ours, theirs = _by_rank(rows, method), _by_rank(rows, rival)
    return {rank: auc - theirs[rank] for rank, auc in ours.items() if rank in theirs}


def _above_rivals(rows: Sequence[Row]) -> Iterator[Claim]:
    gains = {(rival, rank): g for rival in (CP_ALS, TRIP) for rank, g in _gains(rows, SPARSE, rival).items()}
    above_ten = {place: gain for place, gain in gains.items() if place[1] > 10}
    if not above_ten:
        return
    worst = min(above_ten, key=lambda place: above_ten[place])
    yield Claim(
        "paper: DPFact's AUC is above those of CP-ALS and TRIP at every rank above 10 (without DP)",
        above_ten[worst] > 0,
        f"least advantage {above_ten[worst]:+.4f}, over {worst[0]} at rank {worst[1]}",
    )


def _parts(rows: Sequence[Row]) -> Iterator[Claim]:
    table = published.AUC.values()
    cost = max(row[published.WITHOUT_DP] - row[published.DPFACT] for row in table)
    worth = min(row[published.DPFACT] - row[published.WITHOUT_L21] for row in table)
    lost, won = _gains(rows, SPARSE, PRIVATE), _gains(rows, SPARSE, PLAIN)
    if lost:
        yield Claim(
            f"paper: privacy costs an AUC of {cost:.4f} at most",
            max(lost.values()) <= cost,
            f"{min(lost.values()):+.4f} to {max(lost.values()):+.4f}, under a guarantee for patients",
        )
    yield Claim(
        f"paper: l2,1 raises the AUC by {worth:.4f} or more",
        min(won.values()) >= worth,
        f"{min(won.values()):+.4f} to {max(won.values()):+.4f}; memberships are refitted alike with and without it",
    )


def _at_home(rows: Sequence[Row]) -> Claim:
    gain, error = paired(rows, "auc_exclusive", SPARSE, TRIP)
    found, missed = (mean(pick(rows, method=one), "fms_exclusive") for one in (SPARSE, TRIP))
    return Claim(
        "paper: at a site with phenotypes of its own, DPFact's AUC is above TRIP's",
        gain > 2 * error,
        f"{gain:+.4f}, standard error {error:.4f}, over pairs of rank and seed; match of those phenotypes {found:.3f} "
        f"against {missed:.3f}",
    )


def _random(rows: Sequence[Row]) -> Iterator[Claim]:
    areas = _by_rank(rows, RANDOM)
    if not areas:
        return
    most = max(areas, key=lambda rank: areas[rank])
    match, literal = (mean(pick(rows, method=one), "fms") for one in (RANDOM, AS_PUBLISHED))
    yield Claim(
        "AUC tells good phenotypes from bad ones: random factors stay below 0.6",
        areas[most] < 0.6,
        f"random factors reach {areas[most]:.3f} at rank {most}, with a match of {match:.3f}; that of DPFact as "
        f"published is {literal:.3f}",
    )
