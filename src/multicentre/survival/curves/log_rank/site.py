"""The log-rank test beside the patients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.steps import step
from multicentre.survival.curves.log_rank.maths import WEIGHTS, compare_groups, weigh_times
from multicentre.survival.curves.log_rank.messages import Compared, Scores
from multicentre.survival.curves.tables.counting import count_table
from multicentre.survival.curves.tables.groups import find_members
from multicentre.survival.curves.tables.risk import RiskTable
from multicentre.survival.curves.tables.site import TablePart

LARGEST_POWER = 10.0


class LogRankSite(TablePart):
    """The site part of the log-rank test."""

    method: ClassVar[str] = "log-rank"

    @step(releases=Scores, when="once", summed=True)
    def sum_scores(self, ask: Compared) -> Scores:
        """Sum observed less expected events over the site's own times, and their covariance; no time leaves."""
        _check(ask)
        self.settle_on(ask)
        n_groups = max(1, len(ask.columns))
        group = find_members(self.data.X, self.data.columns, ask.columns, ask.levels, self.data.levels)
        happened = (group >= 0) & (self.outcomes == ask.causes[0]) & (self.data.time <= self.agreed.times[-1])
        sizes = np.bincount(group[group >= 0], minlength=n_groups)
        grid = np.unique(self.data.time[happened])
        events, leaving = count_table(self.data.time, self.outcomes, group, grid, ask.causes, n_groups)
        table = RiskTable(("",) * n_groups, grid, events.astype(float), leaving.astype(float), exact=True)
        weights = weigh_times(
            table.died, table.at_risk, ask.weights, rho=ask.rho, gamma=ask.gamma, scale=self.agreed.n_patients
        )
        score, covariance = compare_groups(table.died, table.at_risk, weights)
        behind = self.behind_cells(sizes, np.count_nonzero(group < 0), np.count_nonzero(happened))
        return Scores(float(len(self.data)), float(sizes.sum()), score, covariance, patients=behind)


def _check(ask: Compared) -> None:
    powers = (ask.rho, ask.gamma)
    if ask.weights not in WEIGHTS or len(ask.causes) != 1 or not all(0 <= power <= LARGEST_POWER for power in powers):
        raise ConfigurationError("the test is not known", where="weights", mend=f"Take one of {', '.join(WEIGHTS)}.")
