"""Figures and tables of validation: folds, scores by strategy, boosting curves, covariates, leakage, searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Band, Bars, Cloud, Curves, Figure, Forest, Points, Table
from multicentre.validation.cross_validation import CVResult
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.leakage import LeakageReport
from multicentre.validation.stratifier.suggestion import Suggestion
from multicentre.validation.tuning import FederatedGridSearchCV

Floats = NDArray[np.float64]
Cell = str | float | None


def show_plan(plan: FoldPlan, classes: Sequence[str] | None = None) -> list[Figure]:
    """Return a plot of the records of each class by fold.

    Parameters
    ----------
    plan : FoldPlan
    classes : sequence of str, optional
        Names of the classes.

    Examples
    --------
    >>> import multicentre as mc
    >>> data = mc.data.TableData(np.zeros((60, 1)), np.arange(60) % 2)
    >>> plan = mc.validation.FederatedKFold(3).plan(mc.Federation.in_process({"lyon": data, "oslo": data}))
    >>> show_plan(plan)[0].categories
    ['fold 0', 'fold 1', 'fold 2']
    """
    table = plan.class_table
    names = classes or [f"class {place}" for place in range(table.shape[1])] if table.shape[1] > 1 else ["records"]
    safety = "keeps" if plan.duplicate_safe else "does not keep"
    caption = (
        f"Records of all sites by fold; {plan.strategy} {safety} all records of a person in one fold. "
        f"Shares of a class differ by at most {plan.imbalance():.1f} percentage points. "
        f"{plan.exclusions or 'All records are in a fold.'}"
    )
    folds = [f"fold {fold}" for fold in range(plan.n_splits)]
    series = {name: column.tolist() for name, column in zip(names, table.T, strict=True)}
    return [Bars("Folds", caption, "data", "records", folds, series, {})]


def show_strategies(
    results: Mapping[str, CVResult], score: str | None = None, *, reference: str | None = None
) -> list[Figure]:
    """Return a plot of the scores of several strategies of folds, each with a 95 % interval over its folds.

    Parameters
    ----------
    results : mapping of str to CVResult
        By strategy.
    score : str, optional
        Name of the score; by default the first common one.
    reference : str, optional
        Strategy whose mean is drawn as a line; the first by default.

    Raises
    ------
    ConfigurationError
        The score or the strategy is not in all results.

    Examples
    --------
    >>> import multicentre as mc
    >>> data = {f"site-{seed}": mc.datasets.simulate_survival(150, 2, seed) for seed in range(2)}
    >>> federation = mc.Federation.in_process(data)
    >>> cv = mc.validation.FederatedKFold(3)
    >>> result = mc.validation.cross_validate(
    ...     mc.survival.FedCox(n_times=20), federation, cv=cv, scoring="concordance", allow_leakage=True, by_site=False
    ... )
    >>> show_strategies({"random": result})[0].rows
    ['random']
    """
    if not results:
        raise ConfigurationError(
            "results must contain at least one strategy; got none",
            where="results",
            hint="Cross-validate with at least one strategy.",
        )
    first = next(iter(results.values()))
    shared = [name for name in first.scores if all(name in one.scores for one in results.values())]
    score, reference = score or next(iter(shared), ""), reference or next(iter(results))
    if score not in shared or reference not in results:
        raise ConfigurationError(
            f"score and reference must be in all results; got {score!r} and {reference!r}",
            where="score",
            hint=f"Common scores are {', '.join(shared)}.",
        )
    summaries = {name: one.summary().loc[score].to_numpy(dtype=np.float64) for name, one in results.items()}
    means = {name: float(row[0]) for name, row in summaries.items()}
    freedom = {name: max(1, len(one["fit_time"]) - 1) for name, one in results.items()}
    widths = {name: float(t.ppf(0.975, freedom[name]) * row[1]) for name, row in summaries.items()}
    caption = (
        f"Mean {score} over the folds of each strategy, with 95 % intervals; the line is {reference}. Strategies that "
        "put records of one person into several folds have too high scores if there are duplicates."
    )
    names = list(means)
    lower, upper = ([_cell(means[name] + sign * widths[name]) for name in names] for sign in (-1, 1))
    rows = [_cell(means[name]) for name in names]
    forest = Forest("Scores by strategy", caption, "comparison", score, names, rows, lower, upper, 0, means[reference])
    return [forest]


def show_boosting(
    curves: Mapping[str, ArrayLike], score: str, *, rounds: Sequence[float] | None = None
) -> list[Figure]:
    """Return a plot of scores by round of boosting, per strategy of folds, with bands of one standard error.

    Parameters
    ----------
    curves : mapping of str to array of shape (K, T)
        Scores by fold and round.
    score : str
        Name of the score.
    rounds : sequence of float, optional
        Numbers of the rounds, shape (T,); 1, 2, ... by default.

    Examples
    --------
    >>> show_boosting({"random": [[0.7, 0.8], [0.72, 0.82]]}, "accuracy")[0].bands[0].y
    [0.71, 0.81]
    """
    bands = []
    for name, fold_scores in curves.items():
        scores = np.asarray(fold_scores, dtype=np.float64)
        places = np.arange(1.0, scores.shape[1] + 1) if rounds is None else np.asarray(rounds, dtype=np.float64)
        mean, error = scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
        bands.append(Band(name, places.tolist(), _rounded(mean), _rounded(mean - error), _rounded(mean + error)))
    caption = (
        f"Mean {score} over the folds by number of rounds; bands are one standard error of the folds. A curve that "
        "still rises where that of safe folds is flat indicates memorised records."
    )
    return [Curves("Scores by round", caption, "fit", "rounds", score, bands, False, [], {})]


def show_suggestion(suggestion: Suggestion) -> list[Figure]:
    """Return plots of predicted biases, and of pilots versus mutual information, and the table of all covariates.

    Examples
    --------
    >>> from multicentre.validation.stratifier.suggestion import Candidate
    >>> one = Candidate("age", True, "", 0.0, 1.1, np.nan, 0.02, 0.98, 0.004, 0.98, -0.016, -0.03, -0.002, 5)
    >>> [type(one).__name__ for one in show_suggestion(Suggestion((one,), "accuracy", 0.8, (), True, 5, "boosting"))]
    ['Forest', 'Points', 'Table']
    """
    candidates = [one for one in suggestion.candidates if np.isfinite(one.predicted_bias)]
    figures: list[Figure] = [_biases(suggestion)] if candidates else []
    if candidates:
        clouds = [Cloud("all sites", one.name, [one.information], [one.ratio]) for one in candidates]
        caption = (
            "Horizontal axis: mutual information of each covariate with the outcome. Vertical axis: mean over sites of "
            f"the ratio of the pilot's {suggestion.score}, folds cut by the covariate over random folds. The ratio is "
            "near 1 for a covariate with little information."
        )
        figures.append(Points("Pilots", caption, "comparison", "mutual information", "ratio of scores", clouds))
    return [*figures, _covariates(suggestion)]


def show_leakage(report: LeakageReport) -> list[Figure]:
    """Return a plot of the repeats' means by strategy, and a table of the optimism with its threshold.

    Examples
    --------
    >>> scores = np.array([[0.8, 0.82], [0.81, 0.81]])
    >>> report = LeakageReport("accuracy", scores + 0.03, scores, 0.0, 0.004, 0.008, "HashGroupKFold")
    >>> show_leakage(report)[1].rows[-1]
    ['alarm', 'yes']
    """
    error = report.spread / np.sqrt(1 / len(report.random) + 1 / len(report.safe))
    width = float(norm.ppf(0.975) * error)
    by_strategy = {"random": report.random.mean(axis=1), report.strategy: report.safe.mean(axis=1)}
    means = {f"{name}, repeat {place}": float(m) for name, all_ in by_strategy.items() for place, m in enumerate(all_)}
    lower, upper = ([mean + sign * width for mean in means.values()] for sign in (-1, 1))
    line = float(report.safe.mean())
    title, names, values = "Random and safe folds", list(means), list(means.values())
    forest = Forest(title, report.message, "comparison", report.score, names, values, lower, upper, 0, line)
    low, high = report.interval
    rows: list[list[Cell]] = [
        ["optimism", report.optimism],
        ["95 % interval from", low],
        ["to", high],
        ["threshold", report.threshold],
        ["alarm", "yes" if report.alarm else "no"],
    ]
    return [forest, Table("Optimism", report.message, "comparison", ["", report.score], rows)]


def show_search(search: FederatedGridSearchCV) -> list[Figure]:
    """Return a table of the mean score of every combination of parameters, the best first.

    Examples
    --------
    >>> import multicentre as mc
    >>> data = {f"site-{seed}": mc.datasets.simulate_survival(150, 2, seed) for seed in range(2)}
    >>> federation = mc.Federation.in_process(data)
    >>> cv = mc.validation.FederatedKFold(3)
    >>> search = FederatedGridSearchCV(mc.survival.FedCox(), {"n_times": [10, 20]}, cv=cv, allow_leakage=True)
    >>> show_search(search.fit(federation))[0].columns
    ['n_times', 'mean concordance', 'standard deviation']
    """
    frame = search.to_frame()
    names = [name for name in frame.columns if name.startswith("param_")]
    columns = [*(name.removeprefix("param_") for name in names), f"mean {search.scorer_}", "standard deviation"]
    values = frame[[*names, "mean_test_score", "std_test_score"]].itertuples(index=False)
    rows = [[_cell(value) for value in row] for row in values]
    caption = (
        f"Mean {search.scorer_} over {len(search.plans_[0].class_table)} folds of {search.plans_[0].strategy} by "
        "combination of parameters. The score of the best is too optimistic, because it was selected."
    )
    return [Table("Search", caption, "fit", columns, rows)]


def _biases(suggestion: Suggestion) -> Forest:
    candidates = [one for one in suggestion.candidates if np.isfinite(one.predicted_bias)]
    names = [
        *(f"thresholds of {one.name}" for one in candidates),
        *(f"hash of {name}" for name in suggestion.identifiers),
    ]
    hashed = [0.0] * len(suggestion.identifiers)
    bias, lower, upper = (
        [_cell(getattr(one, side)) for one in candidates] + hashed for side in ("predicted_bias", "lower", "upper")
    )
    caption = (
        f"Predicted bias of the {suggestion.score}, by the covariate that cuts {suggestion.n_splits} folds, with 95 % "
        f"intervals over sites. It is estimated by a pilot with a small {suggestion.model} model; hashes of "
        f"identifiers have no bias. {suggestion.advice}"
    )
    label = f"predicted bias of the {suggestion.score}"
    return Forest("Predicted bias", caption, "comparison", label, names, bias, lower, upper, 0, 0.0)


def _covariates(suggestion: Suggestion) -> Table:
    columns = ["covariate", "predicted bias", "from", "to", "pilot's ratio"]
    more = ["mutual information", "missing", "stability", "not usable because"]
    names = ("predicted_bias", "lower", "upper", "ratio", "information", "missing", "stability")
    rows: list[list[Cell]] = [
        [one.name, *(_cell(getattr(one, name)) for name in names), one.reason] for one in suggestion.candidates
    ]
    caption = "Covariates in order of preference, and reasons why some cannot be used."
    return Table("Covariates", caption, "comparison", [*columns, *more], rows)


def _rounded(values: Floats) -> list[float]:
    return [float(value) for value in np.round(values, 12)]


def _cell(value: Any) -> Any:
    """Convert a value for a report: None for a number that is not finite, a text for other types."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number | str | None):
        return str(value)
    if isinstance(value, str) or value is None:
        return value
    return float(value) if np.isfinite(value) else None
