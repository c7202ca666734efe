"""Scores of each held-out site, and their random-effects summary with a prediction interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.results import with_note
from multicentre.statistics.meta_analysis import Pooled, describe_limits, pool
from multicentre.validation.scoring.classes.site import ERROR

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
SiteProfiles = Mapping[str, Mapping[str, float]]
POOLED, NEW_SITE = "random effects", "new site"
# Scores between 0 and 1 are combined on the scale of log odds, ratios on that of logarithms (Debray et al., 2019).
_SHARES, _RATIOS = ("roc_auc", "concordance"), ("observed_over_expected",)
_REFERENCES = {"roc_auc": 0.5, "concordance": 0.5, "calibration_slope": 1.0, "observed_over_expected": 1.0}
_FIRST = ("roc_auc", "concordance", "calibration_slope", "mean_error")


def tabulate_sites(profiles: SiteProfiles) -> pd.DataFrame:
    """Return a row per score and held-out site, then the random effects and the prediction interval of a new site.

    Columns: value, standard_error, lower and upper (95 % intervals, by Hartung and Knapp for the combined rows), and
    tau_squared and i_squared of the combined rows. A score without standard errors has no combined rows.

    Parameters
    ----------
    profiles : dict of str to dict of str to float
        Scores by site; the standard error of ``name`` is ``name.error``.

    References
    ----------
    T. P. A. Debray et al. (2019), A framework for meta-analysis of prediction model studies with binary and
    time-to-event outcomes, Statistical Methods in Medical Research 28, 2768-2786.

    Examples
    --------
    >>> profiles = {name: {"roc_auc": 0.7, "roc_auc.error": 0.02} for name in ("lyon", "oslo")}
    >>> round(float(tabulate_sites(profiles).loc[("roc_auc", "random effects"), "value"]), 3)
    0.7
    """
    import pandas as pd

    names = _names_of(profiles)
    rows = {key: row for name in names for key, row in _rows_of(name, profiles).items()}
    columns = ["value", "standard_error", "lower", "upper", "tau_squared", "i_squared"]
    index = pd.MultiIndex.from_tuples(list(rows), names=["score", "site"])
    frame = pd.DataFrame(list(rows.values()), index=index, columns=columns, dtype=float)
    return with_note(frame, "", remark=" ".join(_limits_of(profiles, names)))


def show_sites(profiles: SiteProfiles) -> list[Figure]:
    """Return the table of the held-out sites, and a forest plot of discrimination and of calibration."""
    frame = tabulate_sites(profiles)
    names = list(dict.fromkeys(frame.index.get_level_values("score")))
    rows = [[name.replace("_", " "), site, *map(_plain, row[:4])] for (name, site), row in _lines(frame)]
    caption = (
        "Each site's patients, predicted by a model of the other sites, with 95 % intervals. Random effects are those "
        "of Hartung and Knapp; the interval of a new site is a prediction interval."
    )
    columns = ["score", "held-out site", "value", "standard error", "lower", "upper"]
    limits = " ".join(["", *_limits_of(profiles, _names_of(profiles))])
    figures: list[Figure] = [Table("Held-out sites", caption + limits, "comparison", columns, rows)]
    return figures + [
        _forest(name, frame.loc[[name]].droplevel("score"), " ".join([caption, *_limits_of(profiles, [name])]))
        for name in _FIRST
        if name in names
    ]


def _names_of(profiles: SiteProfiles) -> list[str]:
    return list(dict.fromkeys(name for scores in profiles.values() for name in scores if not name.endswith(ERROR)))


def _limits_of(profiles: SiteProfiles, names: Sequence[str]) -> list[str]:
    """Return the sentences on limits of the combined scores."""
    pooled = {name: _pool(*_values_of(name, profiles)[2:]) for name in names}
    return describe_limits({name.replace("_", " "): each.limits() for name, each in pooled.items() if each})


def _lines(frame: pd.DataFrame) -> list[tuple[tuple[str, str], Floats]]:
    return list(zip(frame.index.tolist(), frame.to_numpy(float), strict=True))


def _forest(name: str, frame: pd.DataFrame, caption: str) -> Forest:
    values, lower, upper = ([_plain(value) for value in frame[column]] for column in ("value", "lower", "upper"))
    n_pooled = int(frame.index.isin([POOLED, NEW_SITE]).sum())
    label, reference = name.replace("_", " "), _REFERENCES.get(name, 0.0)
    heterogeneity = ""
    if n_pooled:
        pooled = frame.loc[POOLED]
        heterogeneity = f" I squared {100 * pooled['i_squared']:.0f} %, tau squared {pooled['tau_squared']:.4g}."
    title = f"Held-out sites: {label}"
    sites = [str(site) for site in frame.index]
    return Forest(title, caption + heterogeneity, "comparison", label, sites, values, lower, upper, n_pooled, reference)


def _rows_of(name: str, profiles: SiteProfiles) -> dict[tuple[str, str], list[float]]:
    values, errors, scaled, scaled_errors = _values_of(name, profiles)
    name = name.removeprefix("neg_")
    half = float(norm.ppf(0.975)) * scaled_errors
    lower, upper = (_from_scale(name, ends) for ends in (scaled - half, scaled + half))
    columns = zip(values, errors, lower, upper, strict=True)
    rows = {(name, site): [*map(float, row), np.nan, np.nan] for site, row in zip(profiles, columns, strict=True)}
    pooled = _pool(scaled, scaled_errors)
    return rows | _combined(name, pooled) if pooled else rows


def _values_of(name: str, profiles: SiteProfiles) -> tuple[Floats, Floats, Floats, Floats]:
    """Return scores and standard errors by site, and both on the scale of their combination."""
    values, errors = (
        np.array([scores.get(f"{name}{end}", np.nan) for scores in profiles.values()]) for end in ("", ERROR)
    )
    if name.startswith("neg_"):  # losses are positive in a table
        values, name = -values, name.removeprefix("neg_")
    return values, errors, *_to_scale(name, values, errors)


def _pool(scaled: Floats, scaled_errors: Floats) -> Pooled | None:
    usable = np.isfinite(scaled) & (scaled_errors > 0)
    return pool(scaled[usable], scaled_errors[usable]) if usable.sum() > 1 else None


def _combined(name: str, pooled: Pooled) -> dict[tuple[str, str], list[float]]:
    ends = np.array([pooled.random.value, pooled.random.lower, pooled.random.upper, *pooled.prediction])
    value, lower, upper, low, high = _from_scale(name, ends).tolist()
    return {
        (name, POOLED): [value, np.nan, lower, upper, pooled.tau_squared, pooled.i_squared],
        (name, NEW_SITE): [np.nan, np.nan, low, high, np.nan, np.nan],
    }


def _to_scale(name: str, values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore", invalid="ignore"):
        if name in _SHARES:
            return logit(values), errors / (values * (1 - values))
        return (np.log(values), errors / values) if name in _RATIOS else (values, errors)


def _from_scale(name: str, values: Floats) -> Floats:
    if name in _SHARES:
        return np.asarray(expit(values), dtype=np.float64)
    return np.exp(values) if name in _RATIOS else values


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
