"""Survival and medians of single sites with standard errors, for a meta-analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from multicentre.core.session import Answers
from multicentre.estimator.site_estimates import SiteEstimates
from multicentre.survival.curves.kaplan_meier.maths import Curves, Floats
from multicentre.survival.curves.tables.risk import read_curve


def survival_estimates(answers: Answers[Curves], times: Sequence[float] | Floats) -> SiteEstimates:
    """Return ``log(-log S)`` of each site, group and time, with Greenwood's standard errors.

    NaN where a site refused, has no patients of a group, has no event up to the time or no patient beyond it, and
    beyond the horizon.
    """
    values, errors = [], []
    for curves in answers.values():
        survival = read_curve(curves.survival, curves.table, times, start=1.0, horizon=curves.horizon)
        variance = read_curve(curves.variance, curves.table, times, start=0.0, horizon=curves.horizon)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = (survival > 0) & (survival < 1)
            values.append(np.where(inside, np.log(-np.log(survival)), np.nan).ravel())
            errors.append(np.where(inside, np.sqrt(variance) / -np.log(survival), np.nan).ravel())
    groups = next(iter(answers.values())).groups
    names = [f"survival at {time:g}" for time in np.asarray(times, dtype=np.float64)]
    columns = tuple(names if len(groups) == 1 else [f"{group}, {name}" for group in groups for name in names])
    return SiteEstimates(
        columns, tuple(answers), np.array(values), np.array(errors), answers.refused, "log-log", "survival"
    )


def median_estimates(answers: Answers[Curves]) -> SiteEstimates:
    """Return the logarithm of the median of each site and group; its standard error is that of its interval.

    A median has no standard error by formula. The length of its interval, divided by that of a normal distribution,
    takes its place: an approximation. NaN where the median or a limit of its interval was not reached.
    """
    rows = [
        [(each.value, each.lower, each.upper) for each in (curves.median[group] for group in curves.groups)]
        for curves in answers.values()
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.log(np.array(rows, dtype=np.float64))
    first = next(iter(answers.values()))
    width = 2.0 * float(norm.ppf(0.5 + first.confidence_level / 2.0))
    errors = (logarithms[..., 2] - logarithms[..., 1]) / width
    errors = np.where(np.isfinite(errors), errors, np.nan)
    groups = first.groups
    columns = ("median",) if len(groups) == 1 else tuple(f"{group}, median" for group in groups)
    return SiteEstimates(columns, tuple(answers), logarithms[..., 0], errors, answers.refused, "log", "median")
