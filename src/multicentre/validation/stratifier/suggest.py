"""Choosing a covariate to cut folds by: count, rank, and try the few best inside the sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Nothing
from multicentre.federation.session import Session
from multicentre.statistics.quantiles import find_thresholds
from multicentre.validation.stratifier import site as sent
from multicentre.validation.stratifier.maths import (
    AS_IT_IS,
    BOOSTED_CLASSES,
    Calibration,
    fold_imbalance,
    half_width,
    mutual_information,
    weighted_mean,
)
from multicentre.validation.stratifier.site import MOST_ROUNDS, MOST_SPLITS, StratifierSite
from multicentre.validation.stratifier.suggestion import MODELS, Candidate, Suggestion

MOST_MISSING = 0.01
LEAST_STABILITY = 0.95
LARGEST_IMBALANCE = 1.5
BINS_A_FOLD = 2


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
    """Rank covariates by the bias that folds cut by them would have.

    Folds cut by thresholds of a covariate keep duplicates together, but each fold is then predicted from records whose
    values lie elsewhere, which makes scores too low: the more, the more the covariate tells of the outcome. (1) Columns
    with ties, missing or unstable values are set aside. (2) The others are ranked by their mutual information with the
    outcome, from one table of sums. (3) For the lowest few, each site cross-validates a small model on its own records,
    which hold no duplicates, with random folds and with folds cut by the covariate. The ratio of the two scores, as a
    mean over sites, predicts the bias over all sites.

    Parameters
    ----------
    federation : Federation
        Sites with :class:`multicentre.data.TableData` or :class:`multicentre.data.SurvivalData`.
    candidates : sequence of str, optional
        Columns to look at; all that every site has by default.
    n_splits : int, default 5
        From 2 to 20.
    person_key : str, optional
        Column of identifiers by which a site knows several records of one patient. They stay together in the pilot, and
        show how stable a covariate is.
    model : {"boosting", "linear"}, default "boosting"
        The pilot's model; take the one that is more like the estimator to be validated. Trees of depth 3 at a learning
        rate of 0.6; or logistic, ridge or Poisson regression. Accuracy of classes is scored, concordance of numbers and
        times to an event.
    n_pilots : int or None, default 3
        Covariates that are tried; None for all that are usable.
    n_rounds : int, default 50
        Trees of the pilot's model, up to 500.
    calibration : (float, float, float), optional
        Intercept, slope and residual standard deviation of the line from the pilot's ratio to that over all sites. By
        default 0.096, 0.902 and 0.006 for boosted classes, which were found on simulated federations of five sites; for
        all else the pilot's own ratio stands.
    random_state : int, default 0
        Seed of the pilot's random folds.

    Returns
    -------
    Suggestion

    Raises
    ------
    ConfigurationError
        A parameter is out of range.
    DataError
        A candidate is absent at a site, the sites' outcomes differ in kind, or no column is left.

    Notes
    -----
    The predicted bias is (predicted ratio - 1) times the pilot's score with random folds. Its interval adds the spread
    over sites (Student's t) to what the line leaves open. Where all sites have identifiers, hashed folds have no such
    bias and are preferred, and so are hashed bins of a covariate that is shared exactly.

    References
    ----------
    R. Bey, R. Goussault, F. Grolleau, M. Benchoufi, R. Porcher (2020), Fold-stratified cross-validation for unbiased
    and privacy-preserving federated learning, Journal of the American Medical Informatics Association 27(8),
    1244-1251.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.simulate_duplicated(900, 100, n_sites=3, seed=1).sites
    >>> federation = mc.Federation.in_process(sites)
    >>> found = suggest_stratifier(federation, candidates=["x3", "x5", "x10"], n_rounds=10)
    >>> found.best, found.identifiers, found.to_frame().strategy.tolist()[0]
    ('x10', ('person',), 'hash of person')
    """
    _check(n_splits, model, n_pilots, n_rounds)
    line = _line(calibration, model)
    asked = repr([candidates, n_splits, person_key, model, n_pilots, n_rounds, random_state])
    for attempt in federation.attempts(StratifierSite, asked):
        with attempt as opened:
            chosen, screened = _described(opened, candidates, person_key or "", BINS_A_FOLD * n_splits)
            found = _ranked(chosen.columns, screened, n_splits)
            usable = [one.name for one in found if one.usable]
            tried = tuple(usable if n_pilots is None else usable[:n_pilots])
            piloted = _pilot(opened, sent.Trial(tried, model, n_splits, n_rounds, int(random_state))) if tried else None
    kind = chosen.outcome[0]
    line = line or (BOOSTED_CLASSES if (kind, model) == ("class", "boosting") else AS_IT_IS)
    random_score = np.nan
    if piloted is not None:
        random_score = _over(piloted.drawn.sum(), piloted.weight.sum())
        found = _with_pilots(found, tried, piloted, line)
    score = "accuracy" if kind == "class" else "concordance"
    return Suggestion(tuple(found), score, random_score, chosen.identifiers, line is not AS_IT_IS, n_splits, str(model))


def _described(
    opened: Session, candidates: Sequence[str] | None, person_key: str, n_bins: int
) -> tuple[sent.Chosen, sent.Screened]:
    chosen = opened.once("described", sent.Chosen, lambda: _choose(opened, candidates))
    settled = sent.Candidates(chosen.columns, person_key, n_bins)
    opened.once("settled", Nothing, lambda: _settle(opened, settled))
    return chosen, _screen(opened, chosen, n_bins)


def _pilot(opened: Session, trial: sent.Trial) -> sent.Piloted:
    return opened.once("piloted", sent.Piloted, lambda: opened.sum(StratifierSite.pilot, trial))


def _choose(session: Session, candidates: Sequence[str] | None) -> sent.Chosen:
    told = session.ask(StratifierSite.describe, Nothing())
    first = next(iter(told.values()))
    odd = [site for site, one in told.items() if one.outcome != first.outcome]
    if odd:
        raise DataError(
            "the outcome is of another kind or has other classes", where=", ".join(odd), hint="Declare them alike."
        )
    shared = [name for name in first.columns if all(name in one.columns for one in told.values())]
    wanted = tuple(shared if candidates is None else dict.fromkeys(candidates))
    for name in wanted:
        absent = [site for site, one in told.items() if name not in one.columns]
        if absent:
            raise DataError(f"there is no column {name!r}", where=", ".join(absent), hint="Leave out the candidate.")
    if not wanted:
        raise DataError("the sites share no column", where="candidates", hint="Use HashGroupKFold.")
    identifiers = tuple(n for n in first.identifiers if all(n in one.identifiers for one in told.values()))
    return sent.Chosen(wanted, identifiers, first.outcome)


def _settle(session: Session, settled: sent.Candidates) -> Nothing:
    session.ask(StratifierSite.settle, settled)
    return Nothing()


def _screen(session: Session, chosen: sent.Chosen, n_bins: int) -> sent.Screened:
    n_columns = len(chosen.columns) + (chosen.outcome[0] != "class")
    cuts = find_thresholds(session, StratifierSite, n_columns=n_columns, n_parts=n_bins)
    told = sent.Cuts.of(cuts)
    ask = sent.Cuts(told.values, told.first)
    return session.once("screened", sent.Screened, lambda: session.sum(StratifierSite.screen, ask))


def _ranked(columns: Sequence[str], screened: sent.Screened, n_splits: int) -> list[Candidate]:
    """Return the candidates, usable ones first, by mutual information upwards."""
    rows = zip(columns, screened.records, screened.missing, screened.repeated, screened.stable, strict=True)
    found = [_candidate(name, table, n_splits, *map(float, counts)) for name, table, *counts in rows]
    return sorted(found, key=lambda one: (not one.usable, one.information))


def _candidate(
    name: str, table: sent.Floats, n_splits: int, missing: float, repeated: float, stable: float
) -> Candidate:
    share = missing / (missing + table.sum())
    imbalance, stability = fold_imbalance(table.sum(axis=1), n_splits), _over(stable, repeated)
    reason = ""
    if share > MOST_MISSING:
        reason = f"{share:.1%} of its values are missing"
    elif imbalance > LARGEST_IMBALANCE:
        reason = "too few different values for folds of similar sizes"
    elif stability < LEAST_STABILITY:
        reason = f"only {stability:.1%} of the patients with several records have one value"
    return Candidate(name, not reason, reason, share, imbalance, stability, mutual_information(table))


def _with_pilots(
    found: Sequence[Candidate], tried: Sequence[str], piloted: sent.Piloted, line: Calibration
) -> list[Candidate]:
    """Return the candidates with what the pilot found, those with the least predicted bias first."""
    known = {one.name: one for one in found}
    known.update({name: _predicted(known[name], piloted, place, line) for place, name in enumerate(tried)})

    def order(one: Candidate) -> tuple[bool, bool, float]:
        tells_not = bool(np.isnan(one.predicted_bias))
        return not one.usable, tells_not, one.information if tells_not else abs(one.predicted_bias)

    return sorted(known.values(), key=order)


def _predicted(one: Candidate, piloted: sent.Piloted, place: int, line: Calibration) -> Candidate:
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
            "intercept, slope and standard deviation are needed", where="calibration", hint="Give three numbers."
        )
    return Calibration(*values.tolist())


def _check(n_splits: int, model: str, n_pilots: int | None, n_rounds: int) -> None:
    if model not in MODELS:
        raise ConfigurationError("the model is not known", where="model", hint=f"Take one of {', '.join(MODELS)}.")
    for name, value, low, high in (
        ("n_splits", n_splits, 2, MOST_SPLITS),
        ("n_rounds", n_rounds, 1, MOST_ROUNDS),
        ("n_pilots", 1 if n_pilots is None else n_pilots, 0, np.inf),
    ):
        if int(value) != value or not low <= value <= high:
            raise ConfigurationError(f"a whole number from {low} to {high:g} is needed", where=name)
