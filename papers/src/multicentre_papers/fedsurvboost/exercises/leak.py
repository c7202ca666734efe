"""What the columns of SUPPORT give away that were written down after the outcome was known."""

from __future__ import annotations

from collections.abc import Sequence

from multicentre.data.survival import SurvivalData
from multicentre_papers.fedsurvboost.contenders import COX, HAZARD, RSF, Contender, contenders
from multicentre_papers.fedsurvboost.fits import fit
from multicentre_papers.fedsurvboost.measure import assess
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import at_hand
from multicentre_papers.fedsurvboost.splits import hold_out
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import Claim, Exercise, Heard, Row, Section, distinct, mean, pick, values

SAMPLE = "support-leaky"
FOLLOW_UP, STAY, COSTS, INTENSITY = ("sfdm2",), ("slos",), ("charges", "totcst"), ("avtisst",)
ALL, CLEAN = "all 55, as in the paper", "without all five"
WITHOUT: dict[str, tuple[str, ...]] = {
    ALL: (),
    "without sfdm2": FOLLOW_UP,
    "without sfdm2, slos": FOLLOW_UP + STAY,
    "without sfdm2, slos, charges, totcst": FOLLOW_UP + STAY + COSTS,
    CLEAN: FOLLOW_UP + STAY + COSTS + INTENSITY,
}
ONLY: dict[str, tuple[str, ...]] = {"sfdm2 alone": FOLLOW_UP, "sfdm2 and slos alone": FOLLOW_UP + STAY}


def columns_without(data: SurvivalData, left_out: Sequence[str]) -> list[str]:
    """Return the names of the columns, those of the categories `left_out` excepted."""
    return [name for name in data.columns if name.partition("=")[0] not in left_out]


def columns_of(data: SurvivalData, kept: Sequence[str]) -> list[str]:
    """Return the names of the columns of the categories `kept`."""
    return [name for name in data.columns if name.partition("=")[0] in kept]


def n_fits(plan: Plan) -> int:
    """Return how many cells are measured."""
    return len(_variants()) * plan.n_large_splits * len(_models(plan)) if SAMPLE in plan.samples else 0


def run(plan: Plan, heard: Heard) -> list[Row]:
    """Fit exact methods to the patients of SUPPORT with fewer and fewer columns."""
    rows: list[Row] = []
    for sample, data in at_hand(tuple(name for name in plan.samples if name == SAMPLE)):
        if not isinstance(data, SurvivalData):
            return [{"sample": sample, "skipped": data}]
        for name in _variants():
            kept = columns_without(data, WITHOUT[name]) if name in WITHOUT else columns_of(data, ONLY[name])
            chosen = data.keep_columns(kept)
            for split in range(plan.n_large_splits):
                training, test = hold_out(chosen, split)
                for contender in _models(plan):
                    fitted = fit(contender, contender.settings[0], {"all": training}, split)
                    place = {"columns": name, "n_columns": len(kept), "split": split, "method": contender.name}
                    rows.append({**place, **assess(fitted, test, training)})
                    heard(len(rows))
    return rows


def _variants() -> list[str]:
    return [*WITHOUT, *ONLY]


def _models(plan: Plan) -> list[Contender]:
    return [one for one in contenders(plan) if one.name in (COX, RSF, HAZARD)]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show concordance and Brier score by columns and method."""
    known = [row for row in rows if not row.get("skipped")]
    if not known:
        return Section(["*Left out: SUPPORT.*"])
    methods = distinct(known, "method")
    headings = ["columns", "number", *(f"{method}: C" for method in methods), *(f"{method}: IBS" for method in methods)]
    lines = []
    for name in distinct(known, "columns"):
        mine = pick(known, columns=name)
        cells = [
            mean_and_spread(values(pick(mine, method=method), figure))
            for figure in ("concordance", "ibs")
            for method in methods
        ]
        lines.append([name, str(mine[0]["n_columns"]), *cells])
    return Section([markdown(headings, lines)], claims=[_claim(known)])


def _claim(rows: Sequence[Row]) -> Claim:
    leaky, clean = (mean(pick(rows, columns=name, method=COX), "concordance") for name in (ALL, CLEAN))
    return Claim(
        "the five columns lift the concordance of a Cox model by more than 0.1",
        leaky - clean > 0.1,
        f"{leaky:.3f} with them, {clean:.3f} without",
    )


LEAK: Exercise[Plan] = Exercise("leak", "What five columns of SUPPORT give away", n_fits, run, show)
