"""Fits by rank, and the area under the curve of mortality from their memberships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from multicentre.datasets import load_mimic3_demo
from multicentre.datasets.labelled import LabelledEvents, SimulatedEvents
from multicentre.errors import DataError
from multicentre.phenotyping.outcome import PhenotypeOutcome
from multicentre.phenotyping.outcome.phenotypes import PhenotypeFactors
from multicentre.phenotyping.scores import factor_match_score
from multicentre_papers.baselines.cp import CPALS
from multicentre_papers.dpfact import fits, published
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import MAX_OF_RANK, draw_planted
from multicentre_papers.runner.section import (
    FitCallback,
    Row,
)

CP_ALS, TRIP, PRIVATE, AS_PUBLISHED = "CP-ALS", "TRIP", "DPFact, private", "DPFact as published, no noise"
PLAIN, SPARSE, RANDOM = "DPFact w/o l2,1 and DP", "DPFact w/o DP", "random factors"
METHODS = (CP_ALS, TRIP, PRIVATE, PLAIN, SPARSE, AS_PUBLISHED, RANDOM)
PLANTED, DEMO = "mimic-like", "mimic3_demo"
TRUE_FACTORS, TRUE_MEMBERSHIPS = "true factors", "true memberships"


def _methods() -> tuple[str, ...]:
    return METHODS if fits.HAS_NOISE else tuple(one for one in METHODS if one != PRIVATE)


def n_fits(plan: Plan) -> int:
    """Return the number of fits."""
    return len(plan.seeds) * len(plan.ranks) * len(_methods()) + (4 if DEMO in plan.samples else 0)


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Fit every method at every rank, and the demo."""
    rows: list[Row] = [] if fits.HAS_NOISE else [{"sample": "private fits", "skipped": fits.NO_NOISE}]
    done = 0
    for seed in plan.seeds:
        drawn = draw_planted(plan, seed)
        rows += _of_truth(drawn, seed)
        for rank in plan.ranks:
            for method in _methods():
                model = _phenotypes(method, drawn, rank, plan, seed)
                place = {"sample": PLANTED, "method": method, "rank": rank, "seed": seed}
                rows.append({**place, **_measure(model, drawn, seed)})
                done += 1
                report(done)
    if DEMO in plan.samples:
        rows += _demo(plan)
        report(done + 4)
    return rows


def _phenotypes(method: str, data: LabelledEvents, rank: int, plan: Plan, seed: int) -> PhenotypeFactors:
    sites, codes, n_patients = data.by_site(), data.tensor.codes, len(data)
    settings: dict[str, Any] = {"max_iter": plan.max_iter}
    private = {"epsilon": published.EPSILON[published.MIMIC], "delta": published.DELTA}
    fit: dict[str, Callable[[], object]] = {
        CP_ALS: lambda: CPALS(rank, nonnegative=True, max_iter=plan.trip_rounds, random_state=seed).fit(data.tensor),
        TRIP: lambda: fits.fit(fits.trip(rank, codes, seed, n_patients, plan.trip_rounds), sites),
        PRIVATE: lambda: fits.fit(fits.dpfact(rank, codes, seed, **private), sites, secure_sum=True),
        PLAIN: lambda: fits.fit(fits.dpfact(rank, codes, seed, **settings), sites),
        SPARSE: lambda: fits.fit(fits.dpfact(rank, codes, seed, sparsity=fits.SPARSITY, **settings), sites),
        AS_PUBLISHED: lambda: fits.fit(fits.as_published(rank, codes, seed, plan.max_iter, published.MIMIC), sites),
        RANDOM: lambda: _random(codes, rank, seed),
    }
    with fits.quiet():
        return PhenotypeFactors.of(fit[method]())


def _random(codes: Mapping[str, tuple[str, ...]], rank: int, seed: int) -> PhenotypeFactors:
    generator = np.random.default_rng(seed)
    factors = {mode: generator.random((len(names), rank)) for mode, names in codes.items()}
    return PhenotypeFactors(
        {mode: one / np.linalg.norm(one, axis=0) for mode, one in factors.items()}, codes, np.ones(rank)
    )


def _measure(model: PhenotypeFactors, drawn: SimulatedEvents, seed: int) -> Row:
    with fits.federated(drawn.by_site()) as federation:
        outcome = PhenotypeOutcome(model, test_size=fits.HELD_OUT, random_state=seed).fit(federation)
    match = factor_match_score(drawn.truth.factors, model.factors)
    n_matched = max(int((match.partners >= 0).sum()), 1)
    exclusive = sorted(drawn.truth.exclusive)
    return {
        "auc": outcome.auc_,
        "fms": float(match.similarities.sum() / n_matched),
        "fms_exclusive": float(match.similarities[exclusive].mean()) if exclusive else None,
        "auc_exclusive": _mean_of_present(_auc_at_home(model, drawn, seed)),
    }


def _auc_at_home(model: PhenotypeFactors, drawn: SimulatedEvents, seed: int) -> Iterator[float | None]:
    for site, data in homes_of_exclusive(drawn).items():
        assert data.outcomes is not None, site  # planted events have outcomes
        yield fits.auc_of(model.memberships(data), data.outcomes, seed)


def homes_of_exclusive(drawn: SimulatedEvents) -> fits.Sites:
    """Return the patients of the sites that have a phenotype to themselves, as the neonatal unit has."""
    truth = drawn.truth
    homes = {truth.sites[int(np.flatnonzero(truth.present[:, one])[0])] for one in truth.exclusive}
    return {site: data for site, data in drawn.by_site().items() if site in homes}


def _mean_of_present(areas: Iterator[float | None]) -> float | None:
    finite_areas = [one for one in areas if one is not None]
    return float(np.mean(finite_areas)) if finite_areas else None


def _of_truth(drawn: SimulatedEvents, seed: int) -> Iterator[Row]:
    truth = drawn.truth
    place = {"sample": PLANTED, "rank": truth.memberships.shape[1], "seed": seed}
    factors = PhenotypeFactors(truth.factors, drawn.tensor.codes, np.ones(place["rank"]))
    yield {**place, "method": TRUE_FACTORS, **_measure(factors, drawn, seed)}
    assert drawn.tensor.outcomes is not None
    yield {
        **place,
        "method": TRUE_MEMBERSHIPS,
        "auc": fits.auc_of(truth.memberships, drawn.tensor.outcomes, seed),
        "fms": 1.0,
    }


def _demo(plan: Plan) -> Iterator[Row]:
    try:
        labelled = load_mimic3_demo()
    except DataError as error:
        yield {"sample": DEMO, "skipped": str(error)}
        return
    assert labelled.tensor.outcomes is not None
    for method in (CP_ALS, TRIP, PLAIN, RANDOM):
        model = _phenotypes(method, labelled, MAX_OF_RANK, plan, 0)
        memberships = model.memberships(labelled.tensor)
        for split in range(plan.n_splits):
            area = fits.auc_of(memberships, labelled.tensor.outcomes, split)
            place = {"sample": DEMO, "method": method, "rank": MAX_OF_RANK, "seed": split}
            yield {**place, "auc": area, "n_patients": len(labelled), "n_died": int(labelled.tensor.outcomes.sum())}
