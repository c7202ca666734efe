"""Findings about the data of sites: units, codes for missing values, levels of one site, shifts.

A finding is a suspicion with its reason, from rounded figures of each site. It is for a person to examine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.messages import SiteQuality
from multicentre.analytics.describe.site_quality import SPIKES
from multicentre.data.categories import split_level

Floats = NDArray[np.float64]
# Standardised difference from the other sites above which a shift is named; 0.1 is small, 0.25 large (Stuart 2010).
SHIFT = 0.25
# Factors between common units, and what they convert.
FACTORS: Mapping[float, str] = {
    1000.0: "a thousand (g and mg, mmol and mol)",
    100.0: "a hundred (m and cm, share and per cent)",
    10.0: "ten (g/dl and g/l, cm and mm)",
    88.4: "88.4 (creatinine, mg/dl and umol/l)",
    59.48: "59.48 (uric acid, mg/dl and umol/l)",
    38.67: "38.67 (cholesterol, mmol/l and mg/dl)",
    18.02: "18.02 (glucose, mmol/l and mg/dl)",
    17.1: "17.1 (bilirubin, mg/dl and umol/l)",
    7.50: "7.5 (kPa and mmHg)",
    2.54: "2.54 (inch and cm)",
    2.205: "2.2 (kg and pound)",
}
# Largest relative differences of medians and of quartile ranges from a factor: those of sites differ by chance and case
# mix, quartile ranges more than medians.
MEDIAN_SLACK, RANGE_SLACK = 0.12, 0.35
# Medians of temperatures in degrees Celsius: stored blood and winter air to fever and warmed rooms.
CELSIUS = (-40.0, 50.0)


@dataclass(frozen=True)
class Finding:
    """Suspicion about a variable at a site.

    Parameters
    ----------
    variable, site : str
    check : {"unit", "code", "level", "shift", "refused"}
    value : float
        Factor, code, or standardised difference; NaN for findings without a number.
    sentence : str
    """

    variable: str
    site: str
    check: str
    value: float
    sentence: str


def find_problems(
    answers: Mapping[str, SiteQuality], refused: Mapping[str, str], numbers: Sequence[str], levels: Sequence[str]
) -> list[Finding]:
    """Return the findings about all variables, by variable and site; sites that refused come last."""
    findings: list[Finding] = []
    for place, name in enumerate(numbers):
        sites = [site for site, answer in answers.items() if answer.present[place] > 0]
        columns = [answers[site] for site in sites]
        findings += _units(name, sites, [answer.quarters[place] for answer in columns])
        findings += _codes(name, sites, [answer.spikes[place] for answer in columns])
        sizes = np.array([answer.present[place] for answer in columns], dtype=np.float64)
        findings += _shifts(name, sites, sizes, np.array([answer.moments[place] for answer in columns]).reshape(-1, 2))
    findings += _lone_levels(answers, levels)
    return findings + [
        Finding("", site, "refused", float("nan"), f"{site} was not checked: {reason}.")
        for site, reason in refused.items()
    ]


def _units(name: str, sites: Sequence[str], quarters: Sequence[Floats]) -> list[Finding]:
    """Compare each site's median and quartile range with the middle ones of the other sites."""
    findings = []
    for place, site in enumerate(sites):
        others = [each for number, each in enumerate(quarters) if number != place]
        if not others:
            continue
        here, there = quarters[place], np.median(np.array(others), axis=0)
        factor = suspected_factor(float(here[1]), float(here[2] - here[0]), float(there[1]), float(there[2] - there[0]))
        if factor is not None:
            direction = "above" if factor > 1 else "below"
            unit = next(meaning for each, meaning in FACTORS.items() if factor in (each, 1.0 / each))
            sentence = (
                f"The median of {name} at {site} is {direction} that of the other sites by a factor of about {unit}: "
                "perhaps another unit."
            )
            findings.append(Finding(name, site, "unit", factor, sentence))
        elif is_fahrenheit(here, there):
            sentence = f"{name} at {site} looks like degrees Fahrenheit, at the other sites like degrees Celsius."
            findings.append(Finding(name, site, "unit", 1.8, sentence))
        elif is_fahrenheit(there, here):
            sentence = f"{name} at {site} looks like degrees Celsius, at the other sites like degrees Fahrenheit."
            findings.append(Finding(name, site, "unit", 1.0 / 1.8, sentence))
    return findings


def suspected_factor(median: float, spread: float, other_median: float, other_spread: float) -> float | None:
    """Return the factor between units by which median and quartile range differ; None without one.

    Examples
    --------
    >>> suspected_factor(97.0, 30.0, 5.5, 1.6), suspected_factor(5.6, 1.5, 5.5, 1.6)
    (18.02, None)
    """
    if min(abs(median), abs(other_median), spread, other_spread) <= 0 or median * other_median < 0:
        return None
    ratio, spread_ratio = median / other_median, spread / other_spread
    candidates = [factor for each in FACTORS for factor in (each, 1.0 / each)]
    nearest = min(candidates, key=lambda factor: abs(np.log(ratio / factor)))
    fits = abs(np.log(ratio / nearest)) <= MEDIAN_SLACK and abs(np.log(spread_ratio / nearest)) <= RANGE_SLACK
    return nearest if fits else None


def is_fahrenheit(quarters: Floats, others: Floats) -> bool:
    """Return whether quartiles are those of `others` in degrees Fahrenheit instead of Celsius.

    Quartiles that are as near to those of `others` as their spread have the same unit, as have those far from
    temperatures of a body or of its surroundings.

    Examples
    --------
    >>> is_fahrenheit(np.array([97.7, 98.6, 99.5]), np.array([36.5, 37.0, 37.5]))
    True
    >>> is_fahrenheit(np.array([560.0, 1010.0, 2070.0]), np.array([540.0, 980.0, 1990.0]))
    False
    """
    low, high = CELSIUS
    expected, here = 32.0 + 1.8 * others, float(quarters[2] - quarters[0])
    spread = 1.8 * float(others[2] - others[0])
    if min(spread, here) <= 0 or not low <= others[1] <= high:
        return False
    fits = np.abs(quarters - expected).max() <= spread / 2.0 and abs(np.log(here / spread)) <= RANGE_SLACK
    return bool(fits and quarters[1] - others[1] > max(spread, here))


def _codes(name: str, sites: Sequence[str], spikes: Sequence[NDArray[np.int64]]) -> list[Finding]:
    return [
        Finding(
            name,
            site,
            "code",
            code,
            f"At least {count} patients at {site} have {name} = {code:g}, apart from all other values: perhaps a code "
            "for a missing value.",
        )
        for site, counts in zip(sites, spikes, strict=True)
        for code, count in zip(SPIKES, counts.tolist(), strict=True)
        if count
    ]


def _shifts(name: str, sites: Sequence[str], sizes: Floats, moments: Floats) -> list[Finding]:
    findings = []
    for place, site in enumerate(sites):
        difference = difference_from_others(sizes, moments, place)
        if abs(difference) > SHIFT:
            direction = "above" if difference > 0 else "below"
            sentence = (
                f"The mean of {name} at {site} is {abs(difference):.2f} standard deviations {direction} that of "
                "the other sites."
            )
            findings.append(Finding(name, site, "shift", difference, sentence))
    return findings


def difference_from_others(sizes: Floats, moments: Floats, place: int) -> float:
    """Return the standardised difference of a site's mean from that of all other sites together.

    Parameters
    ----------
    sizes : array of shape (s,)
    moments : array of shape (s, 2)
        Mean and standard deviation of each site.
    place : int

    Examples
    --------
    >>> difference_from_others(np.array([50.0, 50.0]), np.array([[3.0, 1.0], [1.0, 1.0]]), 0)
    2.0
    """
    others = np.arange(len(sizes)) != place
    total = sizes[others].sum()
    if not total > 0:
        return float("nan")
    mean = float(sizes[others] @ moments[others, 0] / total)
    variance = float(sizes[others] @ (moments[others, 1] ** 2 + (moments[others, 0] - mean) ** 2) / total)
    spread = np.sqrt((variance + moments[place, 1] ** 2) / 2.0)
    return float((moments[place, 0] - mean) / spread) if spread > 0 else float("nan")


def _lone_levels(answers: Mapping[str, SiteQuality], levels: Sequence[str]) -> list[Finding]:
    if len(answers) < 2:
        return []
    findings = []
    for place, level in enumerate(levels):
        users = [site for site, answer in answers.items() if answer.uses[place]]
        if len(users) == 1:
            variable, name = split_level(level)
            sentence = f"Only {users[0]} has at least the minimum of patients with {variable} = {name}."
            findings.append(Finding(variable, users[0], "level", float("nan"), sentence))
    return findings
