"""Bins of numeric variables: a fine grid for counts at the sites, and wide bins for a printed histogram.

The grid of a variable has ``N_BINS`` bins of equal width and an open bin at each end. If all values of all sites are
multiples of a step (whole numbers, tenths), the bins are centred at the multiples and contain one value each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Scores, ages and blood pressures in whole numbers have fewer different values; a table of sums remains small.
N_BINS = 256
# Steps of recorded values, from coarse to fine.
STEPS = (100.0, 10.0, 5.0, 1.0, 0.5, 0.1, 0.05, 0.01, 0.001)
# A quotient this near to a whole number is one; decimals are not exact as binary numbers.
WHOLE = 1e-6
# Largest quotient of the lower edge of a grid by the width of its bins where a policy has a minimum of patients: about
# the 24 binary digits that a search for quartiles distinguishes. The bins that are chosen have at most 3,128.
MAX_WIDTHS, CHOSEN_WIDTHS = 3840.0, 3000.0
# Half the range of the grid, in standard deviations: of a normal distribution all but 1 in 15,000 patients.
HALF_RANGE = 4.0
# A printed histogram has about this many bins over half as many standard deviations each side, and two open ones.
N_SHOWN, HALF_SHOWN = 10, 2.0
# Standard deviations of a normal distribution between its quartiles.
QUARTILE_RANGE = 1.349


@dataclass(frozen=True)
class Grid:
    """Fine bins of d variables.

    Parameters
    ----------
    low, width : arrays of shape (d,)
        Lower edge of the first bin of each variable, and width of its bins.
    step : array of shape (d,)
        Step of which all values are multiples, if a bin contains one value only; otherwise 0.
    """

    low: Floats
    width: Floats
    step: Floats

    def first_values(self, variable: int) -> Floats:
        """Return the lower edges of the bins, or their values if they contain one each, shape (N_BINS + 1,)."""
        offset = self.step[variable] / 2.0
        return np.asarray(self.low[variable] + offset + self.width[variable] * np.arange(N_BINS + 1))


def is_multiple(values: Floats, step: float) -> NDArray[np.bool_]:
    """Return whether values are multiples of a step.

    Examples
    --------
    >>> is_multiple(np.array([0.3, 0.35]), 0.1).tolist()
    [True, False]
    """
    quotients = values / step
    return np.asarray(np.abs(quotients - np.rint(quotients)) <= WHOLE, dtype=np.bool_)


def choose_grid(centre: Floats, spread: Floats, deviation: Floats, off_step: NDArray[np.bool_]) -> Grid:
    """Return the bins of each variable.

    Parameters
    ----------
    centre : array of shape (d,)
        Medians or means; NaN without patients.
    spread, deviation : arrays of shape (d,)
        Spread of most patients, and standard deviation. The larger one counts if bins contain several values, so that
        few patients are in the open bins.
    off_step : array of bool of shape (d, len(STEPS))
        Whether some value is not a multiple of the step.

    Examples
    --------
    >>> spread, off_step = np.array([10.0]), ~np.isin([STEPS], [1.0, 0.5, 0.1])
    >>> grid = choose_grid(np.array([60.0]), spread, spread, off_step)
    >>> grid.low.tolist(), grid.width.tolist(), grid.step.tolist()
    ([-68.5], [1.0], [1.0])
    """
    low, width, step = np.zeros(len(centre)), np.ones(len(centre)), np.zeros(len(centre))
    middles, spreads, deviations = (np.nan_to_num(each).tolist() for each in (centre, spread, deviation))
    for place, middle in enumerate(middles):
        finest = abs(middle) / CHOSEN_WIDTHS
        narrow, wide = (max(2.0 * HALF_RANGE * each[place] / N_BINS, finest) for each in (spreads, deviations))
        common = [each for each, is_off in zip(STEPS, off_step[place].tolist(), strict=True) if not is_off]
        chosen = next((each for each in common if each >= narrow), None)
        if chosen is not None:
            width[place] = step[place] = chosen
            low[place] = chosen * (np.rint(middle / chosen) - N_BINS // 2) - chosen / 2.0
        else:
            width[place] = round_width(max(narrow, wide)) if max(narrow, wide) > 0 else 1.0
            low[place] = width[place] * (np.floor(middle / width[place]) - N_BINS // 2)
    return Grid(low, width, step)


def round_width(width: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below a width.

    Examples
    --------
    >>> round_width(0.3), round_width(7.0), round_width(1.0)
    (0.5, 10.0, 1.0)
    """
    power = 10.0 ** np.floor(np.log10(width))
    return float(next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= width * (1 - WHOLE)))


def are_fine(low: Floats, width: Floats) -> bool:
    """Return whether some bins are narrower than the values of single patients should be known.

    Examples
    --------
    >>> are_fine(np.array([60.0]), np.array([0.1])), are_fine(np.array([2020.0]), np.array([0.1]))
    (False, True)
    """
    return bool((np.abs(low) > MAX_WIDTHS * width).any())


def bins_of(values: Floats, low: float, width: float) -> Integers:
    """Return the bin of each value; 0 and ``N_BINS + 1`` are the open bins.

    Examples
    --------
    >>> bins_of(np.array([-1.0, 0.0, 0.5, 1.0, 1e9]), 0.0, 1.0).tolist()
    [0, 1, 1, 2, 257]
    """
    return np.asarray(np.clip(np.floor((values - low) / width), -1, N_BINS) + 1, dtype=np.int64)


def shown_borders(grid: Grid, variable: int, centre: float, spread: float) -> Integers:
    """Return the bins of the grid at which the bins of a printed histogram begin; the first one is open below.

    The borders depend on median and spread, not on the smallest or largest value.

    Examples
    --------
    >>> spread = np.array([10.0])
    >>> grid = choose_grid(np.array([60.0]), spread, spread, ~np.isin([STEPS], [1.0]))
    >>> grid.first_values(0)[shown_borders(grid, 0, 60.0, 10.0)[1:] - 1].tolist()
    [40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0]
    """
    width = float(grid.width[variable])
    wide = max(2.0 * HALF_SHOWN * spread / N_SHOWN, width)
    # A multiple of the bins whose borders are round numbers.
    joined = max(int(np.rint(round_width(wide) / width)), 1)
    values = grid.first_values(variable)
    numbers = np.rint(values / width).astype(np.int64)
    inside = (values >= centre - HALF_SHOWN * spread - width * joined / 2.0) & (
        values <= centre + HALF_SHOWN * spread + width * joined / 2.0
    )
    borders = np.flatnonzero(inside & (numbers % joined == 0)) + 1
    return np.concatenate([[0], borders]).astype(np.int64)


def join_bins(counts: Integers, borders: Integers) -> Integers:
    """Return counts of the printed bins, shape (G, len(borders)), from those of the grid, shape (G, N_BINS + 2)."""
    return np.add.reduceat(counts, borders, axis=1)
