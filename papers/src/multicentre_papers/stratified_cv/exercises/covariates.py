"""Figure 4: pessimism of folds by thresholds of a covariate, by its importance and by a pilot in hospitals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from multicentre.datasets import SimulatedDuplicates, draw_duplicated_truth, simulate_duplicated
from multicentre.datasets.duplicated import COVARIATES
from multicentre.estimator.figures import Cloud, Points
from multicentre.federation import Federation
from multicentre.validation.stratifier.suggest import suggest_stratifier
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import boosted_curves, fold_accuracies
from multicentre_papers.stratified_cv.divisions import HASH
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.published import published
from multicentre_papers.stratified_cv.records import Pooled, pool_simulated
from multicentre_papers.stratified_cv.relation import Relation, relate

# Seeds differ from those of the other exercises.
_FIRST_SEED = 5000


def n_fits(plan: Plan) -> int:
    """Return the number of measured ratios, including those of pilots."""
    return (plan.n_sets + plan.n_pilot_sets) * (len(COVARIATES) + 1)


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure the ratio of every covariate over the unbiased accuracy in every set of parameters."""
    rows: list[Row] = []
    done = 0
    for number in range(plan.n_sets):
        seed = _FIRST_SEED + number
        truth = draw_duplicated_truth(seed)
        simulated = simulate_duplicated(
            plan.n_records,
            plan.n_duplicates,
            covariance=truth.covariance,
            coefficients=truth.coefficients,
            random_state=seed,
        )
        records, originals = pool_simulated(simulated)
        pilot = pilot_ratios(simulated, plan.n_pilot_rounds) if number < plan.n_pilot_sets else None
        rows += _measured(number, seed, records, originals, plan.n_rounds, pilot)
        done += (1 if pilot is None else 2) * (len(COVARIATES) + 1)
        progress(done)
    return rows


def _measured(
    number: int, seed: int, records: Pooled, originals: Pooled, n_rounds: int, pilot: Mapping[str, float] | None
) -> list[Row]:
    unbiased = boosted_curves(originals, divisions.random_folds(originals, seed), n_rounds)
    divided = {HASH: divisions.hash_folds(records.person, seed, records.y)}
    divided |= {name: divisions.threshold_folds(column) for name, column in zip(COVARIATES, records.X.T, strict=True)}
    importance = dict(zip(COVARIATES, unbiased.importance.tolist(), strict=True))
    return [
        {
            "set": number,
            "covariate": name,
            "ratio": float(fold_accuracies(records, folds, n_rounds).mean()) / unbiased.accuracy,
            "importance": importance.get(name),
            "pilot": None if pilot is None else pilot.get(name),
        }
        for name, folds in divided.items()
    ]


def pilot_ratios(simulated: SimulatedDuplicates, n_rounds: int) -> dict[str, float]:
    """Return the accuracy by thresholds of each covariate over that of random folds, within hospitals.

    Within a hospital nobody has two records, so random folds do not leak.
    """
    federation = Federation.in_process(simulated.sites)
    suggestion = suggest_stratifier(federation, n_pilots=None, n_rounds=n_rounds)
    return {one.name: one.ratio for one in suggestion.candidates}


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return both relations next to the printed one, and the claims."""
    thresholds = [row for row in rows if row["covariate"] != HASH]
    piloted = [row for row in thresholds if row["pilot"] is not None]
    printed = published()["figure_4"]
    theirs = [{"set": place, "importance": x, "ratio": y} for place, (x, y) in enumerate(printed)]
    relations = {
        "importance, printed": relate(theirs, "importance"),
        "importance, here": relate(thresholds, "importance"),
        "pilot in hospitals": relate(piloted, "pilot"),
    }
    headings = ["ratio against", "points", "correlation", "95 % interval", "of ranks", "ratio at 0", "slope", "rest"]
    blocks = [markdown(headings, [[name, *relation.cells()] for name, relation in relations.items()])]
    blocks.append(_sentence(rows, thresholds))
    here, pilot = relations["importance, here"], relations["pilot in hospitals"]
    sizes = (len(distinct(thresholds, "set")), len(distinct(piloted, "set")))
    return Section(
        blocks,
        {"figure-4": _figure(thresholds, printed), "figure-4-pilot": _pilot(piloted)},
        list(_claims(here, pilot, *sizes)),
    )


def _sentence(rows: Sequence[Row], thresholds: Sequence[Row]) -> str:
    hashed, tenth = mean(pick(rows, covariate=HASH), "ratio"), mean(pick(thresholds, covariate="x10"), "ratio")
    lowest = min(float(row["ratio"]) for row in thresholds)
    return (
        f"Mean ratio by the hash of the person {hashed:.4f}, by x10 {tenth:.4f}; the lowest ratio of a covariate is "
        f"{lowest:.3f}. Intervals: bootstrap over sets of parameters."
    )


def _figure(thresholds: Sequence[Row], printed: Sequence[Sequence[float]]) -> Points:
    theirs = Cloud("all", "printed", [x for x, _ in printed], [y for _, y in printed])
    ours = Cloud(
        "all", "here", [float(row["importance"]) for row in thresholds], [float(row["ratio"]) for row in thresholds]
    )
    return Points(
        "Accuracy by thresholds of a covariate over the unbiased one (Figure 4)",
        "One point per covariate and set of parameters. Folds by important covariates are the most pessimistic.",
        "fit",
        "importance (gain, relative to the largest)",
        "ratio",
        [theirs, ours],
    )


def _pilot(piloted: Sequence[Row]) -> Points:
    cloud = Cloud("here", "here", [float(row["pilot"]) for row in piloted], [float(row["ratio"]) for row in piloted])
    return Points(
        "Ratio over the federation and ratio of a pilot within hospitals",
        "The pilot uses the records of one hospital at a time and sends two accuracies per covariate.",
        "fit",
        "ratio inside hospitals",
        "ratio over the federation",
        [cloud],
    )


def _claims(here: Relation, pilot: Relation, n_sets: int, n_pilots: int) -> Iterator[Claim]:
    yield Claim(
        "the correlation of ratio and importance is from -0.88 to -0.60",
        -0.88 <= here.pearson <= -0.60,
        f"{here.pearson:.3f}, 95 % interval {here.lower:.2f} to {here.upper:.2f}",
        n_repetitions=n_sets,
    )
    yield Claim(
        "the line has a ratio of 0.99 to 1.01 at importance 0, and a slope of -0.06 to -0.025",
        0.99 <= here.intercept <= 1.01 and -0.06 <= here.slope <= -0.025,
        f"{here.intercept:.4f}, slope {here.slope:.4f}",
        n_repetitions=n_sets,
    )
    yield Claim(
        "the correlation of ratio and pilot is 0.85 or more",
        pilot.pearson >= 0.85,
        f"{pilot.pearson:.3f}, 95 % interval {pilot.lower:.2f} to {pilot.upper:.2f}",
        n_repetitions=n_pilots,
    )
    yield Claim(
        "a pilot predicts the ratio better than importance does",
        abs(pilot.pearson) > abs(here.pearson),
        f"{pilot.pearson:.3f} against {here.pearson:.3f}",
        n_repetitions=n_pilots,
    )


COVARIATE_TABLE: Exercise[Plan] = Exercise(
    "figure-4", "Figure 4: pessimism by importance, and by a pilot", n_fits, run, show
)
