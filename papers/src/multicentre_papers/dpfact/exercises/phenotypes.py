"""Tables 5 to 7: phenotypes with their codes, recovered ones next to the planted, and those of the MIMIC-III demo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from multicentre.datasets import load_mimic3_demo
from multicentre.datasets.labelled import SimulatedEvents
from multicentre.errors import DataError
from multicentre.phenotyping.dpfact import DPFact
from multicentre.phenotyping.outcome import PhenotypeOutcome
from multicentre.phenotyping.scores import factor_match_score, permuted_match_score
from multicentre.phenotyping.tables import PhenotypeTable
from multicentre_papers.dpfact import fits, published
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import MAX_OF_RANK, draw_planted
from multicentre_papers.runner.markdown import NOTHING, markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, skipped

# Tables fit on a page with N_CODES codes per mode, N_SHOWN phenotypes and N_TITLES titles per phenotype.
N_CODES = 5
N_SHOWN = 6
N_TITLES = 3
PLANTED, DEMO = "planted", "mimic3_demo"
STAT, AS_PUBLISHED = "DPFact, exact sums", "DPFact as published, no noise"
THEIRS = (
    "**Published** (tables 5 and 7, the named phenotypes). Coefficients and weights are in units of other data and "
    "another model."
)
RECOVERED = (
    "**Planted phenotypes**, first seed: the heaviest codes of the first {n}, and those of the fitted phenotype that "
    "matches best. Shared: how many of the {codes} heaviest codes of both modes are the same."
)
REAL = (
    "**MIMIC-III demo** (first care units as sites, rank {rank}): the heaviest phenotypes. lambda is the length of the "
    "memberships; prevalence counts patients whose total consists of the phenotype by a tenth or more (the paper: any "
    "membership above zero), where there are ten; coefficients are log odds of death in hospital for one standard "
    "deviation, ridge 1, of {n} patients who all died in the end: an example of a table, not a finding."
)


def n_fits(plan: Plan) -> int:
    """Return the number of fits."""
    return 2 * len(plan.seeds) + (DEMO in plan.samples)


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Fit the planted set and the demo, one row per phenotype and mode."""
    rows: list[Row] = []
    done = 0
    for seed in plan.seeds:
        drawn = draw_planted(plan, seed)
        for method in (STAT, AS_PUBLISHED):
            rows += _recovered(drawn, method, plan, seed)
            done += 1
            report(done)
    if DEMO in plan.samples:
        rows += _demo(plan)
        report(done + 1)
    return rows


def _recovered(drawn: SimulatedEvents, method: str, plan: Plan, seed: int) -> Iterator[Row]:
    codes, sites, rank = drawn.tensor.codes, drawn.by_site(), plan.rank
    if method == STAT:
        model = fits.fit(fits.dpfact(rank, codes, seed, max_iter=plan.max_iter), sites)
    else:
        model = fits.fit(fits.as_published(rank, codes, seed, plan.max_iter, published.MIMIC), sites)
    truth = drawn.truth.factors
    match = factor_match_score(truth, model.factors_)
    null = permuted_match_score(truth)
    for number, partner in enumerate(match.partners):
        for mode, names in codes.items():
            true = _heaviest(truth[mode][:, number], names)
            heaviest_codes = _heaviest(model.factors_[mode][:, partner], names) if partner >= 0 else []
            yield {
                "sample": PLANTED,
                "method": method,
                "seed": seed,
                "phenotype": number + 1,
                "mode": mode,
                "similarity": float(match.similarities[number]),
                "null": null,
                "true": "; ".join(true),
                "codes": "; ".join(heaviest_codes),
                "shared": len(set(true) & set(heaviest_codes)),
            }


def _heaviest(column: fits.Floats, names: Sequence[str]) -> list[str]:
    first = np.argsort(-column, kind="stable")[:N_CODES]
    return [names[place].split(":", 1)[-1] for place in first if column[place] > 0]


def _demo(plan: Plan) -> Iterator[Row]:
    try:
        labelled = load_mimic3_demo()
    except DataError as error:
        yield {"sample": DEMO, "skipped": str(error)}
        return
    sites, codes = labelled.by_site(), labelled.tensor.codes
    model = fits.fit(fits.dpfact(MAX_OF_RANK, codes, 0, max_iter=plan.trip_rounds), sites)
    for one in _with_outcome(model, sites):
        for mode, entries in one.codes.items():
            yield {
                "sample": DEMO,
                "phenotype": one.number,
                "mode": mode,
                "weight": one.weight,
                "prevalence": one.prevalence,
                "coefficient": one.coefficient,
                "p_value": one.p_value,
                "codes": "; ".join(f"{entry.title} ({entry.weight:.2f})" for entry in entries[:N_TITLES]),
                "n_patients": len(labelled),
            }


def _with_outcome(model: DPFact, sites: fits.Sites) -> PhenotypeTable:
    table = model.phenotypes(N_CODES, titles=True)
    with fits.federated(sites) as federation:
        outcome = PhenotypeOutcome(model, test_size=0.0).fit(federation)
    numbers = range(1, model.rank_ + 1)
    coefficients = dict(zip(numbers, outcome.coef_.tolist(), strict=True))
    p_values = {number: float(p) for number, p in zip(numbers, outcome.p_values_, strict=True) if np.isfinite(p)}
    return table.with_outcome(coefficients, p_values)


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show the published tables, the recovered phenotypes and those of the demo."""
    planted = pick(rows, sample=PLANTED)
    demo = [row for row in pick(rows, sample=DEMO) if not row.get("skipped")]
    blocks = [THEIRS, _published(), RECOVERED.format(n=N_SHOWN, codes=2 * N_CODES), _compare_codes(planted)]
    if demo:
        blocks += [REAL.format(rank=MAX_OF_RANK, n=demo[0]["n_patients"]), _of_demo(demo)]
    return Section(blocks + skipped(rows), claims=_judge(planted))


def _published() -> str:
    rows = [
        [table, one.name, f"{one.coefficient:g}", one.p_value, f"{one.weight:g}", f"{one.prevalence_per_cent:g}"]
        for table, many in (("5, neonatal unit", published.TABLE_5), ("7, all units", published.TABLE_7))
        for one in many
    ]
    return markdown(["table", "phenotype", "coef", "p", "lambda", "prevalence, %"], rows)


def _compare_codes(rows: Sequence[Row]) -> str:
    first = pick(rows, seed=rows[0]["seed"])
    cells = []
    for number in distinct(first, "phenotype")[:N_SHOWN]:
        for mode in distinct(first, "mode"):
            method_rows = [
                pick(first, phenotype=number, mode=mode, method=method)[0] for method in (STAT, AS_PUBLISHED)
            ]
            shared = sum(row["shared"] for row in pick(first, phenotype=number, method=STAT))
            head = (
                [str(number), f"{method_rows[0]['similarity']:.3f}", str(shared)]
                if mode == first[0]["mode"]
                else [""] * 3
            )
            cells.append([*head, mode, method_rows[0]["true"], method_rows[0]["codes"], method_rows[1]["codes"]])
    headings = ["phenotype", "match", "shared", "mode", "planted codes", STAT, AS_PUBLISHED]
    return markdown(headings, cells)


def _of_demo(rows: Sequence[Row]) -> str:
    cells = []
    for number in distinct(rows, "phenotype")[:N_SHOWN]:
        for row in pick(rows, phenotype=number):
            first = row["mode"] == rows[0]["mode"]
            head = [str(number), f"{row['weight']:.0f}", _format_value(row, "prevalence", "{:.3f}")]
            head += [_format_value(row, "coefficient", "{:.2f}"), _format_value(row, "p_value", "{:.3f}")]
            cells.append([*(head if first else [""] * len(head)), row["mode"], row["codes"]])
    return markdown(["phenotype", "lambda", "prevalence", "coef", "p", "mode", "codes"], cells)


def _format_value(row: Row, name: str, form: str) -> str:
    return NOTHING if row[name] is None else form.format(row[name])


def _judge(rows: Sequence[Row]) -> list[Claim]:
    per_phenotype = 2 * N_CODES / len(distinct(rows, "mode"))
    shares = {method: mean(pick(rows, method=method), "shared") / per_phenotype for method in (STAT, AS_PUBLISHED)}
    match = {method: mean(pick(rows, method=method), "similarity") for method in (STAT, AS_PUBLISHED)}
    null, n_seeds = mean(rows, "null"), len(distinct(rows, "seed"))
    return [
        Claim(
            "DPFact by exact sums recovers the planted phenotypes (match 0.85 or more)",
            match[STAT] >= 0.85,
            f"match {match[STAT]:.3f}, {100 * shares[STAT]:.0f} % of the heaviest codes; codes shuffled {null:.3f}",
            n_repetitions=n_seeds,
        ),
        Claim(
            "paper: DPFact as published discovers phenotypes (match above 0.1)",
            match[AS_PUBLISHED] > 0.1,
            f"match {match[AS_PUBLISHED]:.3f}, {100 * shares[AS_PUBLISHED]:.0f} % of the heaviest codes; a constant "
            "is nearly best for the loss at only the entries above zero",
            n_repetitions=n_seeds,
        ),
        Claim(
            "paper: the phenotypes of Tables 5 and 7 are found in MIMIC-III, with their coefficients",
            False,
            "MIMIC-III may not be passed on, and the codes of these phenotypes are not published",
            n_repetitions=0,
        ),
    ]


PHENOTYPES = Exercise("tables-5-to-7", "Tables 5 to 7: phenotypes and their codes", n_fits, run, show)
