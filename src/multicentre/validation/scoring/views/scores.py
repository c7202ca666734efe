"""The coordinator's side of scoring rows of several views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Nothing
from multicentre.validation.scoring.judging import SiteScores, ask_own, judge, total, unfixed
from multicentre.validation.scoring.scores import Scores
from multicentre.validation.scoring.views.predictors import RowModel, row_law
from multicentre.validation.scoring.views.site import RowPart

MAE, LOG = "neg_mean_absolute_error", "log_likelihood"


@dataclass(frozen=True)
class RowScores:
    """Mean absolute error of rebuilt entries (negative, in standard deviations), and log density a record.

    Of several views there is one of each besides, ``neg_mean_absolute_error/mri`` say; the log density of a view is
    that of the view by itself.

    Parameters
    ----------
    message : callable
        From a fitted estimator to the message that sites take.
    names, usual : tuple of str
    """

    message: Callable[[Any], RowModel]
    names: tuple[str, ...]
    usual: tuple[str, ...]
    part: type[RowPart] = RowPart

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model by sums over records of all sites."""
        told = self.message(model)
        score = partial(self._score, told=told, names=names, by_site=by_site)
        return judge(federation, self.part, told, type(told).__name__, score)

    def _score(self, opened: Federation, told: RowModel, names: Sequence[str], *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        n_records = np.nan
        if MAE in names:
            errors = total(opened, self.part.sum_errors, Nothing())
            absolute = np.array([unfixed(each) for each in errors.absolute])
            parts = -absolute / np.where(errors.entries, errors.entries, np.nan)
            values[MAE] = -float(absolute.sum() / errors.entries.sum())
            values |= {f"{MAE}/{view}": float(part) for view, part in zip(told.views, parts, strict=True)}
        if LOG in names:
            found = total(opened, self.part.sum_densities, Nothing())
            densities = np.array([unfixed(each) for each in found.log]) / np.where(found.records, found.records, np.nan)
            values[LOG], n_records = float(densities[0]), float(found.records[0])
            values |= {f"{LOG}/{view}": float(part) for view, part in zip(told.views, densities[1:], strict=True)}
        if len(told.views) == 1:
            values = {name: values[name] for name in names}
        own = ask_own(opened, self.part, tuple(values)) if by_site else SiteScores()
        return Scores(values, n_records, own.scores, refused=own.refused)


LAWS = RowScores(row_law, (MAE, LOG), (MAE, LOG))
