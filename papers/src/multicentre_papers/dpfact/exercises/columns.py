"""Figure 4: how long the columns of memberships are by site and phenotype, and which are switched off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multicentre.datasets.labelled import SimulatedEvents
from multicentre.estimator.figures import HeatMap
from multicentre.phenotyping.scores import factor_match_score
from multicentre_papers.dpfact import fits
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import draw_planted
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, pick

# Least similarity to the planted phenotype for a match. Unrelated sparse phenotypes have a similarity close to 0.
MATCHED = 0.5

# Number of present pairs that may be off at the recommended sparsity.
MAX_FALSE = 1
INTRO = (
    "Root mean square membership by site and planted phenotype, at the fitted phenotype that matches it. The group "
    "lasso's weight at a site is mu_0 times the root of its patients, which takes the place of the paper's six values "
    "of mu for six units. A pair is *off* where no patient has any of the phenotype; some are absent by design."
)


def n_fits(plan: Plan) -> int:
    """Return the number of fits."""
    return len(plan.sparsities) * len(plan.seeds)


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Fit at every weight, and compare each pair of site and phenotype with the truth."""
    rows: list[Row] = []
    done = 0
    for seed in plan.seeds:
        drawn = draw_planted(plan, seed)
        for sparsity in plan.sparsities:
            rows += _pairs(drawn, sparsity, plan, seed)
            done += 1
            report(done)
    return rows


def _pairs(drawn: SimulatedEvents, sparsity: float, plan: Plan, seed: int) -> list[Row]:
    model = fits.dpfact(plan.rank, drawn.tensor.codes, seed, sparsity=sparsity, max_iter=plan.max_iter)
    with fits.federated(drawn.by_site()) as federation:
        lengths = model.fit(federation).profile_sites()
    match = factor_match_score(drawn.truth.factors, model.factors_)
    rows: list[Row] = []
    for number, (partner, similarity) in enumerate(zip(match.partners, match.similarities, strict=True)):
        if partner < 0 or similarity < MATCHED:
            continue
        for place, site in enumerate(drawn.truth.sites):
            length = float(lengths.loc[site, partner + 1])
            labels = {"sparsity": sparsity, "seed": seed, "site": site, "phenotype": number + 1}
            present = bool(drawn.truth.present[place, number])
            rows.append({**labels, "present": present, "length": None if np.isnan(length) else length})
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show how many absent and present pairs are off, and one heat map per weight."""
    cells = []
    for sparsity in distinct(rows, "sparsity"):
        counts = [_count(rows, sparsity, seed) for seed in distinct(rows, "seed")]
        absent_off, absent, present_off, present = (sum(one[k] for one in counts) for k in range(4))
        sparsity_rows = pick(rows, sparsity=sparsity)
        lengths = [
            mean_and_spread([row["length"] for row in pick(sparsity_rows, present=one)], 4) for one in (True, False)
        ]
        cells.append([f"{sparsity:g}", f"{absent_off} of {absent}", f"{present_off} of {present}", *lengths])
    headings = ["mu_0", "absent pairs off", "present pairs off", "length, present and on", "length, absent and on"]
    figures = {
        f"figure-4-mu-{f'{sparsity:g}'.replace('.', '-')}": _heat_map(rows, sparsity)
        for sparsity in distinct(rows, "sparsity")
    }
    return Section([INTRO, markdown(headings, cells)], figures, _judge(rows))


def _count(rows: Sequence[Row], sparsity: float, seed: int) -> tuple[int, int, int, int]:
    pair_rows = pick(rows, sparsity=sparsity, seed=seed)
    absent, present = pick(pair_rows, present=False), pick(pair_rows, present=True)
    return len(pick(absent, length=None)), len(absent), len(pick(present, length=None)), len(present)


def _heat_map(rows: Sequence[Row], sparsity: float) -> HeatMap:
    pair_rows = pick(rows, sparsity=sparsity, seed=rows[0]["seed"])
    sites, phenotypes = distinct(pair_rows, "site"), distinct(pair_rows, "phenotype")
    values = [[pick(pair_rows, site=site, phenotype=one)[0]["length"] for one in phenotypes] for site in sites]
    high = max((value for row in values for value in row if value is not None), default=1.0)
    return HeatMap(
        f"Memberships by site, mu_0 = {sparsity:g}",
        "Root mean square; hatched pairs are off. First seed.",
        "model",
        sites,
        [str(one) for one in phenotypes],
        values,
        "membership (rms)",
        0.0,
        high or 1.0,
    )


def _judge(rows: Sequence[Row]) -> list[Claim]:
    counts = {
        sparsity: [_count(rows, sparsity, seed) for seed in distinct(rows, "seed")]
        for sparsity in distinct(rows, "sparsity")
    }
    n_seeds = len(distinct(rows, "seed"))
    share = {one: mean_share(pairs, 0) for one, pairs in counts.items()}
    claims = [
        Claim(
            "paper: too large a weight switches off phenotypes that a site has, a small one none",
            share_off(counts[max(counts)]) > share_off(counts[min(counts)]),
            f"{100 * share_off(counts[min(counts)]):.1f} % of the present pairs at {min(counts):g}, "
            f"{100 * share_off(counts[max(counts)]):.1f} % at {max(counts):g}",
            n_repetitions=n_seeds,
        )
    ]
    if fits.SPARSITY in counts:
        false = max(one[2] for one in counts[fits.SPARSITY])
        claims.append(
            Claim(
                f"mu_0 = {fits.SPARSITY:g} finds nine tenths of the absent pairs with {MAX_FALSE} false one at most",
                share[fits.SPARSITY] >= 0.9 and false <= MAX_FALSE,
                f"{100 * share[fits.SPARSITY]:.1f} %, {false} false",
                n_repetitions=n_seeds,
            )
        )
    return claims


def mean_share(counts: Sequence[tuple[int, int, int, int]], first: int) -> float:
    """Return the share of the pairs of one kind that are off, over all seeds.

    Examples
    --------
    >>> mean_share([(3, 4, 0, 16), (4, 4, 1, 16)], 0)
    0.875
    """
    return sum(one[first] for one in counts) / max(1, sum(one[first + 1] for one in counts))


def share_off(counts: Sequence[tuple[int, int, int, int]]) -> float:
    """Return the share of the present pairs that are off."""
    return mean_share(counts, 2)


COLUMNS = Exercise("figure-4", "Figure 4: memberships by site and phenotype", n_fits, run, show)
