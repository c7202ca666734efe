"""Federated cross-validation gives the same numbers as cross-validation of pooled records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from multicentre.boosting import FedXGBClassifier
from multicentre.datasets import SimulatedDuplicates, simulate_duplicated
from multicentre.federation import Federation
from multicentre.privacy.policy import Policy
from multicentre.validation.cross_validation import cross_validate
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, values
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import PAPER, predict_fold
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.records import Floats, Integers, Pooled, pool_simulated

# Arbitrary but fixed: federated and pooled fits are compared on one simulation, the same in every run.
SEED = 0
# Fewer than the 256 of xgboost's histograms, so that it keeps every bin.
N_BINS = 128
SAME, SEPARATE = "the same bins", "separate bins"
FEDERATED, POOLED = "five hospitals, masked sums", "pooled records, xgboost"


def n_fits(plan: Plan) -> int:
    """Return the number of cross-validations."""
    return 4


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate over five hospitals and on pooled records, with the same folds."""
    simulated = simulate_duplicated(plan.n_records, plan.n_duplicates, random_state=SEED)
    records, _ = pool_simulated(simulated)
    folds = divisions.hash_folds(records.person, SEED, records.y)
    cuts = [np.quantile(column, np.arange(1, N_BINS) / N_BINS).astype(np.float32) for column in records.X.T]
    rows: list[Row] = []
    for bins, some in ((SAME, cuts), (SEPARATE, None)):
        for way, results in (
            (FEDERATED, _federated(simulated, some, plan.n_federated_rounds)),
            (POOLED, _pooled(records, folds, some, plan.n_federated_rounds)),
        ):
            rows += [{"bins": bins, "records": way, "fold": fold, **one} for fold, one in enumerate(results)]
            progress(len(distinct(rows, "bins")) * 2 - (way == FEDERATED))
    return rows


def _federated(simulated: SimulatedDuplicates, cuts: list[Any] | None, n_rounds: int) -> list[dict[str, float]]:
    model = FedXGBClassifier(
        n_rounds,
        max_depth=PAPER["max_depth"],
        learning_rate=PAPER["eta"],
        cuts=None if cuts is None else [column.tolist() for column in cuts],
    )
    # With a minimum of patients, sites would compare values and cuts by public cells, and move records next to a cut.
    policy = Policy(min_patients=0)
    federation = Federation.in_process(simulated.sites, study=divisions.STUDY, policy=policy)
    cv = divisions.hash_splitter(SEED)
    result = cross_validate(model, federation, cv=cv, scoring="accuracy", by_site=False, error_score="raise")
    sent = float(result["communication"]["bytes_from_sites"])
    return [{"accuracy": float(one), "megabytes": sent / 1e6} for one in result["test_accuracy"]]


def _pooled(records: Pooled, folds: Integers, cuts: list[Any] | None, n_rounds: int) -> list[dict[str, float]]:
    X = records.X if cuts is None else _binned(records.X, cuts)
    some = Pooled(X, records.y, records.person, records.site)
    results = []
    for fold in range(divisions.N_SPLITS):
        settings = {**PAPER, "base_score": float(records.y[folds != fold].mean())}
        correct = (predict_fold(some, folds, fold, settings, n_rounds) > 0.5) == (records.y[folds == fold] > 0.5)
        results.append({"accuracy": float(correct.mean())})
    return results


def _binned(X: Floats, cuts: list[Any]) -> Floats:
    rounded = X.astype(np.float32)
    columns = [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, rounded.T, strict=True)]
    return np.column_stack(columns).astype(np.float64)


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return accuracies by fold, and the claims on their equality."""
    folds = distinct(rows, "fold")
    headings = ["records", "bins", *(f"fold {fold + 1}" for fold in folds), "mean"]
    lines = []
    for bins in (SAME, SEPARATE):
        for way in (FEDERATED, POOLED):
            mine = pick(rows, bins=bins, records=way)
            cells = [f"{one:.4f}" for one in values(mine, "accuracy")]
            lines.append([way, bins, *cells, f"{mean(mine, 'accuracy'):.4f}"])
    sent = values(pick(rows, bins=SEPARATE, records=FEDERATED), "megabytes")[0]
    note = (
        f"{plan.n_federated_rounds} rounds; folds by the hash of the person; all hospitals together sent {sent:.0f} MB."
    )
    return Section([note, markdown(headings, lines)], claims=_claims(rows))


def _claims(rows: Sequence[Row]) -> list[Claim]:
    same, separate = (_differences(pick(rows, bins=bins)) for bins in (SAME, SEPARATE))
    apart = float(np.abs(same).max())
    return [
        Claim("with the same bins, all folds have the same accuracy", apart == 0, f"{apart:.2g} apart"),
        Claim(
            "with separate bins, mean accuracies are within 0.006",
            abs(float(separate.mean())) <= 0.006,
            f"{separate.mean():+.4f}, of one simulation",
            n_repetitions=1,
        ),
    ]


def _differences(rows: Sequence[Row]) -> Floats:
    one, other = (values(pick(rows, records=way), "accuracy") for way in (FEDERATED, POOLED))
    return np.asarray(np.array(one) - np.array(other))


FEDERATED_RUN: Exercise[Plan] = Exercise("federated", "The same numbers over a federation", n_fits, run, show)
