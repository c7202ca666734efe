"""Quantiles of columns over all sites, found by sums of counts, without any patient's value leaving a site.

`find_thresholds` cuts each column in parts of as many records; `cuts_for_bins` gives the cuts of histogram boosting. A
method whose site part is a `CountingPart` can call either.
"""

from multicentre.statistics.quantiles.rounds import cuts_for_bins, find_thresholds, pooled_thresholds
from multicentre.statistics.quantiles.site import CountingPart

__all__ = ["CountingPart", "cuts_for_bins", "find_thresholds", "pooled_thresholds"]
