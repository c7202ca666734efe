"""Scoring of numbers beside the patients: sums of errors, in a unit near the numbers' own spread."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Nothing
from multicentre.federation.steps import step
from multicentre.validation.scoring.judging import JudgingPart, fixed
from multicentre.validation.scoring.numbers import messages as sent

Floats = NDArray[np.float64]
LARGEST_EXPONENT = 500


class NumberPart(JudgingPart):
    """Base of the site parts that score numbers; a subclass says what is true and what the model says."""

    def true_numbers(self) -> Floats:
        """Return the number of every record, shape (n,)."""
        raise NotImplementedError

    def predict_numbers(self) -> Floats:
        """Return the predicted numbers, shape (n,)."""
        raise NotImplementedError

    @step(releases=sent.Order, when="at the end", summed=True)
    def tell_order(self, ask: Nothing) -> sent.Order:
        """Tell the order of magnitude of the numbers' spread, for the unit of the sums."""
        spread = float(self.truth.std())
        exponent = round(np.log2(spread)) if spread > 0 else 0
        limited = int(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        return sent.Order(int(spread > 0), limited, patients=len(self.truth))

    @step(releases=sent.Sums, when="at the end", summed=True)
    def sum_numbers(self, ask: sent.InUnits) -> sent.Sums:
        """Sum the true numbers, for their mean."""
        self.answer_once("sum_numbers", ask)
        return sent.Sums(len(self.truth), fixed(self.truth / _unit(ask)), patients=len(self.truth))

    @step(releases=sent.Errors, when="at the end", summed=True)
    def sum_errors(self, ask: sent.About) -> sent.Errors:
        """Sum absolute and squared errors, and squared distances to the mean."""
        self.answer_once("sum_errors", ask)
        errors = self.errors / _unit(ask)
        distances = self.truth / _unit(ask) - ask.centre
        terms = (np.abs(errors), errors**2, distances**2)
        return sent.Errors(*(fixed(each) for each in terms), patients=self.n_records)

    def own_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's own records, and how many patients stand behind it."""
        if name == "neg_mean_absolute_error":
            return -float(np.abs(self.errors).mean()), self.n_records
        squares = self.errors**2
        spread = float(np.square(self.truth - self.truth.mean()).sum())
        values = {
            "neg_mean_squared_error": -float(squares.mean()),
            "neg_root_mean_squared_error": -float(np.sqrt(squares.mean())),
            "r2": 1 - float(squares.sum()) / spread if spread > 0 else float("nan"),
        }
        return values[name], self.n_records

    @cached_property
    def truth(self) -> Floats:
        """True numbers, shape (n,)."""
        return self.true_numbers()

    @property
    def errors(self) -> Floats:
        """True less predicted numbers, shape (n,)."""
        return np.asarray(self.truth - self.predicted(self.predict_numbers), dtype=np.float64)


def _unit(ask: sent.InUnits) -> float:
    if abs(ask.exponent) > LARGEST_EXPONENT:
        raise MessageError("the unit is out of range", where="exponent")
    return float(2.0**ask.exponent)
