"""Survival curves beside the patients: what :class:`TablePart` counts, and on request a site's own counts."""

from __future__ import annotations

from typing import ClassVar

from multicentre.federation.steps import step
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.curves.tables.messages import ByGroup, ExactTable, Table
from multicentre.survival.curves.tables.site import TablePart


class KaplanMeierSite(TablePart):
    """The site part of the survival curves."""

    method: ClassVar[str] = "kaplan-meier"

    @step(releases=Table, refusable=True)
    def tell_table(self, ask: ByGroup) -> Table:
        """Return the site's own counts by group, outcome and time.

        A sum over sites cannot show how one differs from the others. It is asked for when an analyst wants to know.
        Where the policy has a minimum of patients, times are rounded up to public ones.
        """
        check_grid_is_coarse(self.agreed.times)
        return self.count(Table, ask, rounded=self.least_behind > 1)

    @step(releases=ExactTable, refusable=True)
    def tell_exact_table(self, ask: ByGroup) -> ExactTable:
        """Tell the site's own counts by recorded time; only with the policy's permission."""
        return self.count(ExactTable, ask)
