"""Leakage of the outcome by columns of SUPPORT that were recorded after it."""

from __future__ import annotations

from collections.abc import Sequence

from multicentre.data.survival import SurvivalData
from multicentre_papers.fedsurvboost.contenders import COX, HAZARD, RSF, Contender, contenders
from multicentre_papers.fedsurvboost.fits import fit
from multicentre_papers.fedsurvboost.measure import assess
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import available
from multicentre_papers.fedsurvboost.splits import at_most, hold_out
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    PairedDifference,
    Row,
    Section,
    compare,
    distinct,
    paired,
    pick,
    values,
)

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
ONLY: dict[str, tuple[str, ...]] = {"only sfdm2": FOLLOW_UP, "only sfdm2 and slos": FOLLOW_UP + STAY}


CLAIM = "the five columns raise the concordance of a Cox model by more than 0.1"
# Far above the standard error of a concordance on one test split, about 0.02 at this size.
LEAST = 0.1


def columns_without(data: SurvivalData, left_out: Sequence[str]) -> list[str]:
    """Return the names of the columns except those of the categories `left_out`."""
    return [name for name in data.columns if name.partition("=")[0] not in left_out]


def columns_of(data: SurvivalData, categories: Sequence[str]) -> list[str]:
    """Return the names of the columns of some categories."""
    return [name for name in data.columns if name.partition("=")[0] in categories]


def n_fits(plan: Plan) -> int:
    """Return the number of measured cells."""
    return len(_variants()) * plan.n_splits * len(_models(plan)) if SAMPLE in plan.samples else 0


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Fit exact methods to the patients of SUPPORT with decreasing sets of columns."""
    rows: list[Row] = []
    for sample, data in available(tuple(name for name in plan.samples if name == SAMPLE)):
        if not isinstance(data, SurvivalData):
            return [{"sample": sample, "skipped": data}]
        for name in _variants():
            columns = columns_without(data, WITHOUT[name]) if name in WITHOUT else columns_of(data, ONLY[name])
            chosen = at_most(data.keep_columns(columns), plan.most_patients)
            for split in range(plan.n_splits):
                training, test = hold_out(chosen, split)
                for contender in _models(plan):
                    fitted = fit(contender, contender.settings[0], {"all": training}, split)
                    place = {"columns": name, "n_columns": len(columns), "split": split, "method": contender.name}
                    rows.append({**place, **assess(fitted, test, training)})
                    progress(len(rows))
    return rows


def _variants() -> list[str]:
    return [*WITHOUT, *ONLY]


def _models(plan: Plan) -> list[Contender]:
    return [one for one in contenders(plan) if one.name in (COX, RSF, HAZARD)]


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return concordance and Brier score by columns and method."""
    measured = [row for row in rows if not row.get("skipped")]
    if not measured:
        return Section(["*Left out: SUPPORT.*"], claims=[compare(CLAIM, PairedDifference(0.0, 0.0, 0), least=LEAST)])
    methods = distinct(measured, "method")
    headings = ["columns", "number", *(f"{method}: C" for method in methods), *(f"{method}: IBS" for method in methods)]
    lines = []
    for name in distinct(measured, "columns"):
        subset = pick(measured, columns=name)
        cells = [
            mean_and_spread(values(pick(subset, method=method), figure))
            for figure in ("concordance", "ibs")
            for method in methods
        ]
        lines.append([name, str(subset[0]["n_columns"]), *cells])
    return Section([markdown(headings, lines)], claims=[_claim(measured)])


def _claim(rows: Sequence[Row]) -> Claim:
    by_columns = [
        {"method": row["columns"], "split": row["split"], "concordance": row["concordance"]}
        for row in pick(rows, method=COX)
    ]
    return compare(CLAIM, paired(by_columns, "concordance", ALL, CLEAN, by=["split"]), least=LEAST)


LEAK: Exercise[Plan] = Exercise("leak", "Leakage by five columns of SUPPORT", n_fits, run, show)
