"""Proportional hazards for grouped survival times: death within one of K - 1 intervals, or not within them.

Interval j has the hazard 1 - exp(-exp(a_j + x'b)) (complementary log-log), so that exp(b) are hazard ratios of the
continuous times.
"""

import numpy as np

from multicentre.extend import CategoricalSite, SingleIndexLikelihood, SingleIndexRegression, register_likelihood


class GroupedHazard(SingleIndexLikelihood):
    """Log-likelihood of the class (the interval of death; the last one is survival), with derivatives."""

    def null(self, counts):
        at_risk = counts[::-1].cumsum()[::-1]
        return np.log(-np.log1p(-counts[:-1] / at_risk[:-1]))

    def probabilities(self, intercepts, predictor):
        added = np.exp(intercepts + predictor[:, None])
        alive = np.exp(-np.column_stack([np.zeros(len(added)), added.cumsum(axis=1)]))
        return np.column_stack([alive[:, :-1] * -np.expm1(-added), alive[:, -1]])

    def first(self, intercepts, predictor, classes):
        added, survived, died = self._intervals(intercepts, predictor, classes)
        slope = died * added / np.expm1(added) - survived * added
        return np.column_stack([slope, slope.sum(axis=1)])

    def second(self, intercepts, predictor, classes):
        added, survived, died = self._intervals(intercepts, predictor, classes)
        ratio = added / np.expm1(added)
        curve = died * ratio * (1.0 - added - ratio) - survived * added
        blocks = np.zeros((len(added), len(intercepts) + 1, len(intercepts) + 1))
        blocks[:, range(len(intercepts)), range(len(intercepts))] = curve
        blocks[:, -1, :-1] = blocks[:, :-1, -1] = curve
        blocks[:, -1, -1] = curve.sum(axis=1)
        return blocks

    def _intervals(self, intercepts, predictor, classes):
        intervals = np.arange(len(intercepts))
        return np.exp(intercepts + predictor[:, None]), classes[:, None] > intervals, classes[:, None] == intervals


class GroupedHazardSite(CategoricalSite):
    """Holds a table whose outcome is the interval of death."""

    method = "grouped-hazard"
    links = {"grouped-hazard": ("cloglog",)}


class FedGroupedHazard(SingleIndexRegression):
    """Grouped proportional hazards over all sites' patients; equals the maximum likelihood fit of the pooled rows."""

    site_part = GroupedHazardSite
    kind, link, ratio = "grouped-hazard", "cloglog", "hazard_ratio"


register_likelihood("grouped-hazard", "cloglog", GroupedHazard())
