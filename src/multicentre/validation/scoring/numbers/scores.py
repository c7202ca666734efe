"""The coordinator's side of scoring numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Message, Nothing
from multicentre.validation.scoring.judging import SiteScores, ask_own, judge, total, unfixed
from multicentre.validation.scoring.numbers import messages as sent
from multicentre.validation.scoring.numbers.site import NumberPart
from multicentre.validation.scoring.scores import Scores

NAMES = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error")


@dataclass(frozen=True)
class NumberScores:
    """Scores of a model of numbers, under scikit-learn's names.

    Parameters
    ----------
    part : type
        The site part.
    message : callable
        From a fitted estimator to the message that sites take.
    """

    part: type[NumberPart]
    message: Callable[[Any], Message]
    usual: tuple[str, ...] = ("r2",)
    names: tuple[str, ...] = NAMES

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model by sums of errors over sites."""
        told = self.message(model)
        score = partial(self._score, names=names, by_site=by_site)
        return judge(federation, self.part, told, type(told).__name__, score)

    def _score(self, opened: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        order = total(opened, self.part.tell_order, Nothing())
        exponent = round(order.exponent / order.sites) if order.sites else 0
        sums = total(opened, self.part.sum_numbers, sent.InUnits(exponent))
        n, centre = sums.n_records, unfixed(sums.total) / sums.n_records
        errors = total(opened, self.part.sum_errors, sent.About(exponent, centre))
        unit = 2.0**exponent
        squared, spread = (unfixed(each) / n * unit**2 for each in (errors.squared, errors.spread))
        values = {
            "r2": 1 - squared / spread if spread else float("nan"),
            "neg_mean_squared_error": -squared,
            "neg_root_mean_squared_error": -float(np.sqrt(squared)),
            "neg_mean_absolute_error": -unfixed(errors.absolute) / n * unit,
        }
        own = ask_own(opened, self.part, names) if by_site else SiteScores()
        shown = {name: float(values[name]) for name in names}
        return Scores(shown, float(n), own.scores, refused=own.refused)
