"""Runner of the reproduction."""

from __future__ import annotations

from pathlib import Path

from multicentre.core.rounds import Listener
from multicentre_papers.runner.paper import Paper, ReproductionResult
from multicentre_papers.stratified_cv.differences import DIFFERENCES
from multicentre_papers.stratified_cv.exercises.alarm import ALARM
from multicentre_papers.stratified_cv.exercises.covariates import COVARIATE_TABLE
from multicentre_papers.stratified_cv.exercises.curves import CURVES
from multicentre_papers.stratified_cv.exercises.federated import FEDERATED_RUN
from multicentre_papers.stratified_cv.exercises.hospitals import HOSPITALS
from multicentre_papers.stratified_cv.exercises.key_stability import KEY_STABILITY
from multicentre_papers.stratified_cv.exercises.linkage import LINKAGE
from multicentre_papers.stratified_cv.exercises.strategies import STRATEGY_TABLE
from multicentre_papers.stratified_cv.plan import FULL, QUICK, Plan
from multicentre_papers.stratified_cv.published import published


def reproduce(
    quick: bool = False, output: Path | None = None, listener: Listener | None = None, *, plan: Plan | None = None
) -> ReproductionResult[Plan]:
    """Recompute figures 2 to 4 with further exercises (hashes, pilots, real records), and write them to a folder.

    Parameters
    ----------
    quick : bool, default False
        Run a small version, which takes a few minutes; the full one takes less than an hour on one core.
    output : path, optional
        Folder of the results; ``runs/reproduce-stratified-cv`` by default. Exercises that an interrupted run with an
        equal plan finished there are not repeated; other contents are replaced.
    listener : Listener, optional
        Receives the progress of measurements, one loop per exercise.
    plan : Plan, optional
        Replaces the quick and the full plan.

    Returns
    -------
    ReproductionResult

    Raises
    ------
    MissingExtra
        xgboost is not installed.
    """
    return PAPER.run(plan or (QUICK if quick else FULL), output, listener)


PAPER = Paper(
    name="stratified-cv",
    citation="Bey and others, Fold-stratified cross-validation for unbiased and privacy-preserving federated learning, "
    "JAMIA 27(8), 2020",
    title="# Fold-stratified cross-validation: figures 2 to 4, with hashes, pilots and real records",
    preamble=(
        "Some people have records at two or more hospitals. Accuracies are means over five folds. `unbiased` divides "
        "the records without duplicates at random, `random` all records; x1 to x10 are thresholds of a "
        "covariate. Bias is the difference from `unbiased`."
    ),
    exercises=(CURVES, STRATEGY_TABLE, COVARIATE_TABLE, ALARM, FEDERATED_RUN, LINKAGE, KEY_STABILITY, HOSPITALS),
    published=published,
    differences=DIFFERENCES,
)
