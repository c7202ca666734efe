"""Site parts that evaluate a given model.

The analyst chose the model, and its approval fixes it. A model that predicts the same for all patients except a few
would disclose these few in a sum over all sites as well. Masked or not, the site therefore counts the patients whose
predictions differ from the rest (see :func:`~multicentre.validation.scoring.judging.differing`), and its guard refuses
an answer that rests on fewer than the site's minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import count
from multicentre.core.steps import Release, step
from multicentre.validation.scoring.judging import MAX_FIXED, ScoringPart
from multicentre.validation.scoring.numbers import About
from multicentre.validation.scoring.tables import TableClassPart, TableNumberPart

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line(Release):
    """Sums for the line of true by predicted numbers; both are distances from the mean, in the unit."""

    true: int = count("sum of true numbers, times 2^24", bound=MAX_FIXED, signed=True)
    predicted: int = count("sum of predicted numbers, times 2^24", bound=MAX_FIXED, signed=True)
    squared: int = count("sum of squared predicted numbers, times 2^24", bound=MAX_FIXED)
    product: int = count("sum of products of both, times 2^24", bound=MAX_FIXED, signed=True)


class _GivenModel(ScoringPart):
    """Counts patients with other predictions under a mask too."""

    counts_under_masks: ClassVar[bool] = True


class GivenClassPart(_GivenModel, TableClassPart):
    """Site part that evaluates a given classifier."""

    method: ClassVar[str] = "classifier-validation"
    revision: ClassVar[int] = 2


class GivenNumberPart(_GivenModel, TableNumberPart):
    """Site part that evaluates a given model of numbers."""

    method: ClassVar[str] = "regressor-validation"
    revision: ClassVar[int] = 2

    @step(releases=Line, when="at the end", summed=True)
    def sum_line(self, request: About) -> Line:
        """Sum true and predicted numbers, squares and products, for the calibration line."""
        self.answer_once("sum_line", request)
        unit = self.unit_of(request)
        true = self.truth / unit - request.centre
        predicted = true - self.errors(request.centre * unit, unit) / unit
        terms = (true, predicted, predicted**2, true * predicted)
        totals, behind = zip(*(self.summed(each) for each in terms), strict=True)
        return Line(*totals, patients=min(*behind, self.n_differing))
