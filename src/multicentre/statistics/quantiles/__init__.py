"""Quantiles of columns over all sites via sums of counts; no patient's value leaves a site.

`find_thresholds` cuts each column into parts of equal size. `cuts_for_bins` returns the cuts of histogram boosting.
`find_quantiles` returns quantiles with the cells in which they lie. All require a site part that is a `CountingPart`.
"""

from multicentre.statistics.quantiles.orders import Quantiles, find_quantiles
from multicentre.statistics.quantiles.rounds import cuts_for_bins, find_thresholds, pooled_thresholds
from multicentre.statistics.quantiles.site import CountingPart

__all__ = ["CountingPart", "Quantiles", "cuts_for_bins", "find_quantiles", "find_thresholds", "pooled_thresholds"]
