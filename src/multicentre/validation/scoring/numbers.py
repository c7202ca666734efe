"""Scores of predicted numbers.

1. The sites return sums of the exponents of their numbers' standard deviations, which give the unit of the sums.
2. The sites return sums of their true numbers, which give the mean.
3. The sites return sums of absolute and squared errors and of squared distances to the mean.

If requested, each site also returns scores of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, count, number
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.errors import MessageError
from multicentre.validation.scoring.gaps import count_left_out
from multicentre.validation.scoring.judging import (
    MAX_FIXED,
    RECORDS,
    ScoringPart,
    SiteScores,
    amount_to,
    fixed,
    is_alone,
    judge,
    request_site_scores,
    score_alone,
    total,
    unfixed,
)
from multicentre.validation.scoring.scores import Scores


@dataclass(frozen=True)
class InUnits(Message):
    """The unit in which numbers are summed."""

    exponent: int = count("exponent of two of the unit", bound=2.0**10)


@dataclass(frozen=True)
class About(InUnits):
    """The unit, and the mean of the true numbers."""

    centre: float = number("mean over all sites, in the unit")


@dataclass(frozen=True)
class Order(Release):
    """Standard deviation of the true numbers, to the nearest power of two."""

    sites: int = count("1 if the numbers differ, else 0", bound=1.0)
    exponent: int = count("exponent of the power of two nearest to the standard deviation", bound=2.0**10, signed=True)


@dataclass(frozen=True)
class Sums(Release):
    """Number of records and sum of their true numbers."""

    n_records: int = count("records", unit="records", bound=RECORDS)
    total: int = count("sum of the numbers in the unit, times 2^24", bound=MAX_FIXED, signed=True)


@dataclass(frozen=True)
class Errors(Release):
    """Sums of errors, as integers, so that they do not depend on the distribution of records over sites."""

    absolute: int = count("sum of absolute errors in the unit, times 2^24", bound=MAX_FIXED)
    squared: int = count("sum of squared errors in the squared unit, times 2^24", bound=MAX_FIXED)
    spread: int = count("sum of squared distances to the mean, in the same unit", bound=MAX_FIXED)


Floats = NDArray[np.float64]

# The squared unit, 2^-1000 to 2^1000, stays in the range of normal doubles (2^-1022 to 2^1023).
MAX_EXPONENT = 500

# Half of the 24 fractional bits of FIXED: in a unit of 2^12 deviations, 12 bits still resolve one deviation.
MAX_APART = 12

# About a million units, each near a standard deviation: changes only useless predictions and keeps errors finite.
WIDEST = 2.0**20


class NumberPart(ScoringPart):
    """Base class of the site parts that score numbers; a subclass returns true and predicted numbers."""

    described_by: ClassVar[tuple[str, ...]] = (
        *("mean_error", "mean_error.error", "calibration_slope", "calibration_slope.error"),
        *("r2", "neg_root_mean_squared_error"),
    )

    def true_numbers(self) -> Floats:
        """Return the number of every record, shape (n,)."""
        raise NotImplementedError

    def predict_numbers(self) -> Floats:
        """Return the predicted numbers, shape (n,)."""
        raise NotImplementedError

    @step(releases=Order, when="at the end", summed=True)
    def find_magnitude(self, request: Nothing) -> Order:
        """Return the order of magnitude of the numbers' standard deviation, for the unit of the sums."""
        exponent = self.exponent
        behind = self.behind_numbers(np.square(self.truth - self.truth.mean()))
        return Order(int(exponent is not None), exponent or 0, patients=behind)

    @step(releases=Sums, when="at the end", summed=True)
    def sum_numbers(self, request: InUnits) -> Sums:
        """Sum the true numbers, for their mean."""
        self.answer_once("sum_numbers", request)
        total = fixed(self.truth / self.unit_of(request))
        return Sums(len(self.truth), total, patients=self.behind_numbers(self.truth - np.median(self.truth)))

    @step(releases=Errors, when="at the end", summed=True)
    def sum_errors(self, request: About) -> Errors:
        """Sum absolute and squared errors, and squared distances to the mean."""
        self.answer_once("sum_errors", request)
        unit = self.unit_of(request)
        if not abs(request.centre - float(self.truth.mean()) / unit) <= WIDEST * max(1.0, self.site_unit / unit):
            raise MessageError(
                f"centre must be within {WIDEST:,.0f} units of the mean of the site's numbers; it is farther away",
                where="centre",
            )
        errors = self.errors(request.centre * unit, unit) / unit
        terms = (np.abs(errors), errors**2, (self.truth / unit - request.centre) ** 2)
        totals, behind = zip(*(self.summed(each) for each in terms), strict=True)
        return Errors(*totals, patients=min(*behind, self.n_differing))

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        unit, centre = self.site_unit, float(self.truth.mean())
        errors = self.errors(centre, unit) / unit
        if name in self.described_by[:4]:
            return self._site_line(name, errors)
        if name == "neg_mean_absolute_error":
            mean, behind = self.site_mean(np.abs(errors))
            return -mean * unit, min(behind, self.n_differing)
        mean, behind = self.site_mean(errors**2)
        behind = min(behind, self.n_differing)
        if name != "r2":
            return -(mean * unit**2 if name == "neg_mean_squared_error" else float(np.sqrt(mean)) * unit), behind
        spread, behind_spread = self.site_mean(np.square((self.truth - centre) / unit))
        return (1 - mean / spread if spread > 0 else float("nan")), min(behind, behind_spread)

    def _site_line(self, name: str, errors: Floats) -> tuple[float, int]:
        """Return the mean error or the slope of true by predicted numbers, or its standard error, and its records."""
        behind = min(self.summed(errors)[1], self.summed(errors**2)[1], self.n_differing)
        n, true = len(errors), self.truth / self.site_unit
        if name.startswith("mean_error"):
            terms = (errors.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan) if name.endswith(".error") else errors.mean()
            return float(terms) * self.site_unit, behind
        predicted = true - errors
        spread = float(np.square(predicted - predicted.mean()).sum())
        if not spread > 0 or n < 3:
            return float("nan"), 0
        slope = float((predicted - predicted.mean()) @ true) / spread
        rest = true - true.mean() - slope * (predicted - predicted.mean())
        return float(np.sqrt(rest @ rest / (n - 2) / spread)) if name.endswith(".error") else slope, behind

    @cached_property
    def truth(self) -> Floats:
        """True numbers, shape (n,)."""
        return self.true_numbers()

    @cached_property
    def exponent(self) -> int | None:
        """Exponent of the power of two nearest to the numbers' standard deviation; None if all numbers are equal."""
        spread = float(self.truth.std())
        limits = (-MAX_EXPONENT, MAX_EXPONENT)
        return round(float(np.clip(np.log2(spread), *limits))) if spread > 0 else None

    @property
    def n_differing(self) -> int:
        """Number of records whose predictions differ from the rest."""
        return self.fewest_differing(self.predicted(self.predict_numbers) / self.site_unit)

    @property
    def site_unit(self) -> float:
        """Power of two nearest to the standard deviation of the site's numbers."""
        return float(2.0 ** (self.exponent or 0))

    def unit_of(self, request: InUnits) -> float:
        """Return the unit of a request.

        In a unit far from the numbers' standard deviation, rounding would reveal how many lie beyond a value.

        Raises
        ------
        MessageError
            The unit is out of range or far from that standard deviation.
        """
        near = request.exponent if self.exponent is None else self.exponent
        if abs(request.exponent) > MAX_EXPONENT or abs(request.exponent - near) > MAX_APART:
            raise MessageError(
                f"exponent must be from -{MAX_EXPONENT} to {MAX_EXPONENT} and within {MAX_APART} of that of "
                f"the site; got {request.exponent}",
                where="exponent",
                hint="Use the same unit of the numbers at all sites.",
            )
        return float(2.0**request.exponent)

    def errors(self, centre: float, unit: float) -> Floats:
        """Return true minus predicted numbers, shape (n,), with predictions clipped to 2^20 units from the centre."""
        predicted = np.clip(self.predicted(self.predict_numbers), centre - WIDEST * unit, centre + WIDEST * unit)
        return np.asarray(self.truth - predicted, dtype=np.float64)

    def behind_numbers(self, terms: Floats) -> int:
        """Return the number of patients behind a sum of true values; all if sums are masked."""
        return self.n_records if self.masked else amount_to(terms)


NAMES = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error")


@dataclass(frozen=True)
class NumberScores:
    """Scores of a model of numbers, under scikit-learn's names.

    Parameters
    ----------
    part : type
        The site part.
    message : callable
        Converts a fitted estimator to the message for the sites.
    """

    part: type[NumberPart]
    message: Callable[[Any], Message]
    usual: tuple[str, ...] = ("r2",)
    names: tuple[str, ...] = NAMES

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model via sums of errors over sites."""
        message = self.message(model)
        score = partial(self._score, message=message, names=names, by_site=by_site)
        return judge(federation, self.part, message, type(message).__name__, score)

    def _score(self, opened: Session, message: Message, names: Sequence[str], *, by_site: bool) -> Scores:
        facts, (values, _, n) = opened.together(
            [partial(count_left_out, opened, self.part, message), partial(collect_errors, opened, self.part)]
        )
        if is_alone(opened):
            site_scores = SiteScores(score_alone(opened, self.part, names))
        else:
            site_scores = request_site_scores(opened, self.part, names) if by_site else SiteScores()
        ordered = {name: float(values[name]) for name in names}
        held_out = site_scores.scores if is_alone(opened) else {}
        return Scores(ordered, float(n), site_scores.scores, facts, site_scores.refused, opened.absent, held_out)


def collect_errors(opened: Session, part: type[NumberPart]) -> tuple[dict[str, float], About, int]:
    """Return all scores, the unit with the mean of the true numbers, and the number of records."""
    order = total(opened, part.find_magnitude, Nothing())
    exponent = round(order.exponent / order.sites) if order.sites else 0
    sums = total(opened, part.sum_numbers, InUnits(exponent))
    n, about = sums.n_records, About(exponent, unfixed(sums.total) / sums.n_records)
    errors = total(opened, part.sum_errors, about)
    unit = 2.0**exponent
    squared, spread = (unfixed(each) / n * unit**2 for each in (errors.squared, errors.spread))
    values = {
        "r2": 1 - squared / spread if spread else float("nan"),
        "neg_mean_squared_error": -squared,
        "neg_root_mean_squared_error": -float(np.sqrt(squared)),
        "neg_mean_absolute_error": -unfixed(errors.absolute) / n * unit,
    }
    return values, about, n
