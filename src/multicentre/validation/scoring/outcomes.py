"""Scores of a model of an outcome on memberships in phenotypes, as a message and beside the patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import DataError, MessageError
from multicentre.federation.messages import Message, array, number
from multicentre.phenotyping.outcome.phenotypes import refit_memberships
from multicentre.validation.scoring.classes.scores import ClassScores
from multicentre.validation.scoring.classes.site import ClassPart
from multicentre.validation.scoring.events.predictors import LARGEST, Factors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class OutcomeLaw(Factors):
    """Log odds of an outcome, linear in the memberships of a patient in phenotypes."""

    slopes: Floats = array("log odds of one unit of each membership", ("r",))
    intercept: float = number("log odds without any")

    def valid_for(self, data: EventTensor) -> Self:
        """Return the model if it is one of such patients."""
        super().valid_for(data)
        if len(self.slopes) != self.rank or max(abs(self.intercept), *np.abs(self.slopes)) > LARGEST:
            raise MessageError("the slopes do not fit the phenotypes", where="OutcomeLaw.slopes")
        if data.outcomes is None:
            raise DataError(
                "the patients have no outcomes", where="outcomes", mend="Give them as EventTensor(..., outcomes=...)."
            )
        return self

    def chances(self, data: EventTensor) -> Floats:
        """Return the chance of no outcome and of the outcome, shape (n, 2)."""
        memberships = refit_memberships(data, self.codes, self.factors, nonnegative=self.nonnegative)
        chance = expit(memberships @ self.slopes + self.intercept)
        return np.column_stack([1 - chance, chance])


class OutcomePart(ClassPart):
    """The site part that scores models of an outcome."""

    method: ClassVar[str] = "score-outcomes"
    holds: ClassVar[type] = EventTensor
    kinds: ClassVar[Mapping[str, type[Any]]] = {"OutcomeLaw": OutcomeLaw}
    data: EventTensor

    def true_classes(self) -> Integers:
        """Return the outcome of every patient, shape (n,)."""
        assert self.data.outcomes is not None  # the model was checked against the data
        return self.data.outcomes.astype(np.int64)

    def predict_chances(self) -> Floats:
        """Return the chance that the model gives to no outcome and to the outcome, shape (n, 2)."""
        chances: Floats = self.model.chances(self.data)
        return chances


def outcome_law(model: Any) -> Message:
    """Return a fitted model of an outcome as the message that sites take."""
    known = model.phenotypes_
    return OutcomeLaw(
        codes=dict(known.codes),
        factors=dict(known.factors),
        nonnegative=known.nonnegative,
        rates=False,
        cap=0,
        slopes=model.coefficients_ / model.spread_,
        intercept=float(model.intercept_),
    )


OUTCOMES = ClassScores(OutcomePart, outcome_law, usual=("roc_auc",))
