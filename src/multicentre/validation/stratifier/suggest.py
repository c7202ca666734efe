"""Choice of the covariate that cuts folds: count, rank, and run a pilot of the best few at the sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError
from multicentre.statistics.quantiles import find_thresholds
from multicentre.validation.stratifier.maths import (
    BOOSTED_CLASSES,
    IDENTITY,
    Calibration,
    fold_imbalance,
    half_width,
    mutual_information,
    weighted_mean,
)
from multicentre.validation.stratifier.site import (
    MAX_ROUNDS,
    MAX_SPLITS,
    Candidates,
    Chosen,
    Cuts,
    Floats,
    Piloted,
    Screened,
    StratifierSite,
    Trial,
)
from multicentre.validation.stratifier.suggestion import MODELS, Candidate, Suggestion

# Largest share of records without a value: these are in no fold, so the scores would leave them out.
MAX_MISSING = 0.01
# Minimum share of patients whose values agree: a duplicate with a different value may be in a different fold.
MIN_STABILITY = 0.95
# Largest ratio of fold sizes, so that no fold dominates the mean score.
MAX_IMBALANCE = 1.5
# Number of parts of a column per fold: with one part per fold the ratio of fold sizes could not improve.
BINS_PER_FOLD = 2


def suggest_stratifier(
    federation: Consortium,
    *,
    candidates: Sequence[str] | None = None,
    n_splits: int = 5,
    person_key: str | None = None,
    model: Literal["boosting", "linear"] = "boosting",
    n_pilots: int | None = 3,
    n_rounds: int = 50,
    calibration: tuple[float, float, float] | None = None,
    random_state: int = 0,
) -> Suggestion:
    """Rank covariates by the predicted bias of folds cut by them.

    Folds cut by thresholds of a covariate keep duplicates together. However, each fold is then predicted from records
    with other values of the covariate, which makes scores too low. This bias is larger for covariates with more
    information on the outcome. The choice has three steps:

    1. Columns with ties, missing or unstable values are excluded.
    2. The others are ranked by their mutual information with the outcome, from one table of sums.
    3. For the lowest few, each site cross-validates a small model on its records, which have no duplicates, with random
       folds and with folds cut by the covariate. The ratio of the two scores, as a mean over sites, predicts the bias
       over all sites.

    Parameters
    ----------
    federation : Federation
        Sites with :class:`multicentre.data.TableData` or :class:`multicentre.data.SurvivalData`.
    candidates : sequence of str, optional
        Columns to rank; by default all columns that every site has.
    n_splits : int, default 5
        Number of folds, from 2 to 20.
    person_key : str, optional
        Column that identifies a patient at a site. Records of one patient are in one fold of the pilot, and their
        values give the stability of a covariate.
    model : {"boosting", "linear"}, default "boosting"
        Model of the pilot: trees of depth 3 with a learning rate of 0.6; or logistic, ridge or Poisson regression.
        Prefer the one that is more similar to the estimator that the folds validate. The score is the accuracy for
        classes, and the concordance for numbers and times to an event.
    n_pilots : int or None, default 3
        Number of covariates in the pilot; None for all usable ones.
    n_rounds : int, default 50
        Number of trees of the pilot's model, at most 500.
    calibration : (float, float, float), optional
        Intercept, slope and residual standard deviation of the line that predicts the ratio over all sites from that of
        the pilot. For boosted classes the default is 0.096, 0.902 and 0.006, fitted to simulated federations of five
        sites. Otherwise the ratio of the pilot is the prediction.
    random_state : int, default 0
        Seed of the pilot's random folds.

    Returns
    -------
    Suggestion
        Covariates in order of preference with their predicted biases, and the reasons why some cannot be used.

    Raises
    ------
    ConfigurationError
        A parameter is out of range.
    DataError
        A site lacks a candidate, the kinds of the sites' outcomes differ, or there is no column.

    Notes
    -----
    The predicted bias is (predicted ratio - 1) times the pilot's score with random folds. Its interval adds the spread
    over sites (Student's t) to the residual spread of the line. If all sites have identifiers, prefer hashed folds,
    which do not have this bias; or hashed bins of a covariate that is equal in all records of a person.

    References
    ----------
    R. Bey, R. Goussault, F. Grolleau, M. Benchoufi, R. Porcher (2020), Fold-stratified cross-validation for unbiased
    and privacy-preserving federated learning, Journal of the American Medical Informatics Association 27(8),
    1244-1251.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.simulate_duplicated(900, 100, n_sites=3, random_state=1).sites
    >>> federation = mc.Federation.in_process(sites)
    >>> suggestion = suggest_stratifier(federation, candidates=["x3", "x5", "x10"], n_rounds=10)
    >>> suggestion.best, suggestion.identifiers, suggestion.to_frame().strategy.tolist()[0]
    ('x10', ('person',), 'hash of person')
    """
    _check(n_splits, model, n_pilots, n_rounds)
    line = _line(calibration, model)
    settings = repr([candidates, n_splits, person_key, model, n_pilots, n_rounds, random_state])
    for attempt in federation.attempts(StratifierSite, settings):
        with attempt as opened:
            chosen, screened = _described(opened, candidates, person_key or "", BINS_PER_FOLD * n_splits)
            ranked = _ranked(chosen.columns, screened, n_splits)
            usable = [one.name for one in ranked if one.usable]
            tried = tuple(usable if n_pilots is None else usable[:n_pilots])
            piloted = _pilot(opened, Trial(tried, model, n_splits, n_rounds, int(random_state))) if tried else None
    kind = chosen.outcome[0]
    line = line or (BOOSTED_CLASSES if (kind, model) == ("class", "boosting") else IDENTITY)
    random_score = np.nan
    if piloted is not None:
        random_score = _over(piloted.drawn.sum(), piloted.weight.sum())
        ranked = _with_pilots(ranked, tried, piloted, line)
    score = "accuracy" if kind == "class" else "concordance"
    return Suggestion(
        tuple(ranked), score, random_score, chosen.identifiers, line is not IDENTITY, n_splits, str(model)
    )


def _described(
    opened: Session, candidates: Sequence[str] | None, person_key: str, n_bins: int
) -> tuple[Chosen, Screened]:
    chosen = opened.once("described", Chosen, lambda: _choose(opened, candidates))
    settled = Candidates(chosen.columns, person_key, n_bins)
    opened.once("settled", Nothing, lambda: _settle(opened, settled))
    return chosen, _screen(opened, chosen, n_bins)


def _pilot(opened: Session, trial: Trial) -> Piloted:
    return opened.once("piloted", Piloted, lambda: opened.sum(StratifierSite.pilot, trial))


def _choose(session: Session, candidates: Sequence[str] | None) -> Chosen:
    descriptions = session.ask(StratifierSite.describe, Nothing())
    first = next(iter(descriptions.values()))
    different = [site for site, one in descriptions.items() if one.outcome != first.outcome]
    if different:
        raise DataError(
            "outcomes must have the same kind and classes at all sites; these sites have different ones",
            where=", ".join(different),
            hint="Declare the outcome and its classes in the same way at all sites.",
        )
    shared = [name for name in first.columns if all(name in one.columns for one in descriptions.values())]
    columns = tuple(shared if candidates is None else dict.fromkeys(candidates))
    for name in columns:
        absent = [site for site, one in descriptions.items() if name not in one.columns]
        if absent:
            raise DataError(
                f"candidates must be columns of all sites; got {name!r}",
                where=", ".join(absent),
                hint="Leave the candidate out.",
            )
    if not columns:
        raise DataError(
            "sites must have at least one column in common; got none", where="candidates", hint="Use HashGroupKFold."
        )
    identifiers = tuple(n for n in first.identifiers if all(n in one.identifiers for one in descriptions.values()))
    return Chosen(columns, identifiers, first.outcome)


def _settle(session: Session, settled: Candidates) -> Nothing:
    session.ask(StratifierSite.settle, settled)
    return Nothing()


def _screen(session: Session, chosen: Chosen, n_bins: int) -> Screened:
    n_columns = len(chosen.columns) + (chosen.outcome[0] != "class")
    cuts = find_thresholds(session, StratifierSite, n_columns=n_columns, n_parts=n_bins)
    thresholds = Cuts.of(cuts)
    request = Cuts(thresholds.values, thresholds.first)
    return session.once("screened", Screened, lambda: session.sum(StratifierSite.screen, request))


def _ranked(columns: Sequence[str], screened: Screened, n_splits: int) -> list[Candidate]:
    """Return the candidates, usable ones first, by increasing mutual information."""
    rows = zip(columns, screened.records, screened.missing, screened.repeated, screened.stable, strict=True)
    candidates = [_candidate(name, table, n_splits, *map(float, counts)) for name, table, *counts in rows]
    return sorted(candidates, key=lambda one: (not one.usable, one.information))


def _candidate(name: str, table: Floats, n_splits: int, missing: float, repeated: float, stable: float) -> Candidate:
    share = missing / (missing + table.sum())
    imbalance, stability = fold_imbalance(table.sum(axis=1), n_splits), _over(stable, repeated)
    reason = ""
    if share > MAX_MISSING:
        reason = f"{share:.1%} of its values are missing"
    elif imbalance > MAX_IMBALANCE:
        reason = "too few different values for folds of similar sizes"
    elif stability < MIN_STABILITY:
        reason = f"only {stability:.1%} of the patients with several records have one value"
    return Candidate(name, not reason, reason, share, imbalance, stability, mutual_information(table))


def _with_pilots(
    ranked: Sequence[Candidate], tried: Sequence[str], piloted: Piloted, line: Calibration
) -> list[Candidate]:
    """Return the candidates with the results of the pilot, by increasing predicted bias."""
    by_name = {one.name: one for one in ranked}
    by_name.update({name: _predicted(by_name[name], piloted, place, line) for place, name in enumerate(tried)})

    def order(one: Candidate) -> tuple[bool, bool, float]:
        is_unknown = bool(np.isnan(one.predicted_bias))
        return not one.usable, is_unknown, one.information if is_unknown else abs(one.predicted_bias)

    return sorted(by_name.values(), key=order)


def _predicted(one: Candidate, piloted: Piloted, place: int, line: Calibration) -> Candidate:
    n_sites = round(float(piloted.n_sites[place]))
    weight, squared, total, ratio_squared = (
        float(each[place]) for each in (piloted.weight, piloted.weight_squared, piloted.ratio, piloted.ratio_squared)
    )
    ratio, error = weighted_mean(weight, squared, total, ratio_squared, n_sites).tolist()
    if n_sites == 0:
        return one
    level = _over(piloted.drawn[place], piloted.weight[place])
    predicted = line.predict(ratio)
    bias, width = level * (predicted - 1), level * half_width(error, n_sites, line)
    return replace(
        one,
        ratio=ratio,
        ratio_error=error,
        predicted_ratio=predicted,
        predicted_bias=bias,
        lower=bias - width,
        upper=bias + width,
        n_sites=n_sites,
    )


def _over(above: Any, below: Any) -> float:
    return float(above) / float(below) if below > 0 else float("nan")


def _line(calibration: tuple[float, float, float] | None, model: str) -> Calibration | None:
    if calibration is None:
        return None
    values = np.asarray(calibration, dtype=np.float64)
    if values.shape != (3,) or not np.isfinite(values).all() or values[2] < 0:
        raise ConfigurationError(
            "calibration must be three finite numbers: an intercept, a slope and a standard deviation of at least 0; "
            f"got {calibration}",
            where="calibration",
            hint="Example: (0.1, 0.9, 0.01).",
        )
    return Calibration(*values.tolist())


def _check(n_splits: int, model: str, n_pilots: int | None, n_rounds: int) -> None:
    if model not in MODELS:
        expected = ", ".join(map(repr, MODELS))
        raise ConfigurationError(
            f"model must be one of {expected}; got {model!r}", where="model", hint=f"Set model to one of {expected}."
        )
    for name, value, low, high in (
        ("n_splits", n_splits, 2, MAX_SPLITS),
        ("n_rounds", n_rounds, 1, MAX_ROUNDS),
        ("n_pilots", 1 if n_pilots is None else n_pilots, 0, np.inf),
    ):
        if int(value) != value or not low <= value <= high:
            expected = f"an integer of at least {low}" if high == np.inf else f"an integer from {low} to {high:g}"
            raise ConfigurationError(f"{name} must be {expected}; got {value}", where=name)
