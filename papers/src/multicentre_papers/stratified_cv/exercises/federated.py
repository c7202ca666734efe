"""A whole run over a federation, from folds to scores: the same numbers as with all records in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from multicentre.boosting import FedXGBClassifier
from multicentre.consortium.federation import Federation
from multicentre.datasets import SimulatedDuplicates, simulate_duplicated
from multicentre.validation.cross_validation import cross_validate
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, Heard, Row, Section, distinct, mean, pick, values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import PAPER, predict_fold
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled, pool_simulated

SEED = 0
N_BINS = 128
GIVEN, OWN = "the same bins given", "bins of their own"
FEDERATED, TOGETHER = "five hospitals, masked sums", "all records together, xgboost"


def n_fits(plan: Plan) -> int:
    """Return how many cross-validations are run."""
    return 4


def run(plan: Plan, heard: Heard) -> list[Row]:
    """Cross-validate over five hospitals and with all records together, on the same folds."""
    simulated = simulate_duplicated(plan.n_records, plan.n_duplicates, seed=SEED)
    records, _ = pool_simulated(simulated)
    folds = divisions.hash_folds(records.person, SEED, records.y)
    cuts = [np.quantile(column, np.arange(1, N_BINS) / N_BINS).astype(np.float32) for column in records.X.T]
    rows: list[Row] = []
    for bins, some in ((GIVEN, cuts), (OWN, None)):
        for way, found in (
            (FEDERATED, _federated(simulated, some, plan.n_federated_rounds)),
            (TOGETHER, _together(records, folds, some, plan.n_federated_rounds)),
        ):
            rows += [{"bins": bins, "records": way, "fold": fold, **one} for fold, one in enumerate(found)]
            heard(len(distinct(rows, "bins")) * 2 - (way == FEDERATED))
    return rows


def _federated(simulated: SimulatedDuplicates, cuts: list[Any] | None, n_rounds: int) -> list[dict[str, float]]:
    model = FedXGBClassifier(
        n_rounds,
        max_depth=PAPER["max_depth"],
        learning_rate=PAPER["eta"],
        cuts=None if cuts is None else [column.tolist() for column in cuts],
    )
    federation = Federation.in_process(simulated.sites, study=divisions.STUDY)
    cv = divisions.hash_splitter(SEED)
    result = cross_validate(model, federation, cv=cv, scoring="accuracy", by_site=False, error_score="raise")
    sent = float(result["communication"]["bytes_from_sites"])
    return [{"accuracy": float(one), "megabytes": sent / 1e6} for one in result["test_accuracy"]]


def _together(records: Pooled, folds: Integers, cuts: list[Any] | None, n_rounds: int) -> list[dict[str, float]]:
    X = records.X if cuts is None else _binned(records.X, cuts)
    some = Pooled(X, records.y, records.person, records.site)
    found = []
    for fold in range(divisions.N_SPLITS):
        settings = {**PAPER, "base_score": float(records.y[folds != fold].mean())}
        right = (predict_fold(some, folds, fold, settings, n_rounds) > 0.5) == (records.y[folds == fold] > 0.5)
        found.append({"accuracy": float(right.mean())})
    return found


def _binned(X: Floats, cuts: list[Any]) -> Floats:
    rounded = X.astype(np.float32)
    columns = [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, rounded.T, strict=True)]
    return np.column_stack(columns).astype(np.float64)


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show accuracies fold by fold, and whether they are the same."""
    folds = distinct(rows, "fold")
    headings = ["records", "bins", *(f"fold {fold + 1}" for fold in folds), "mean"]
    lines = []
    for bins in (GIVEN, OWN):
        for way in (FEDERATED, TOGETHER):
            mine = pick(rows, bins=bins, records=way)
            cells = [f"{one:.4f}" for one in values(mine, "accuracy")]
            lines.append([way, bins, *cells, f"{mean(mine, 'accuracy'):.4f}"])
    sent = values(pick(rows, bins=OWN, records=FEDERATED), "megabytes")[0]
    told = (
        f"{plan.n_federated_rounds} rounds; folds by the hash of the person; all hospitals sent {sent:.0f} MB together."
    )
    return Section([told, markdown(headings, lines)], claims=_claims(rows))


def _claims(rows: Sequence[Row]) -> list[Claim]:
    given, own = (_differences(pick(rows, bins=bins)) for bins in (GIVEN, OWN))
    apart = float(np.abs(given).max())
    return [
        Claim("with the same bins, all folds have the same accuracy", apart == 0, f"{apart:.2g} apart"),
        Claim(
            "with bins of their own, mean accuracies are within 0.006",
            abs(float(own.mean())) <= 0.006,
            f"{own.mean():+.4f}",
        ),
    ]


def _differences(rows: Sequence[Row]) -> Floats:
    one, other = (values(pick(rows, records=way), "accuracy") for way in (FEDERATED, TOGETHER))
    return np.asarray(np.array(one) - np.array(other))


FEDERATED_RUN: Exercise[Plan] = Exercise("federated", "The same numbers over a federation", n_fits, run, show)
