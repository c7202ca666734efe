"""Validation of a given model on the records of several sites.

The rounds are:

1. The coordinator sends the model to every site. A real site compares its digest with the one that it approved.
2. Each site computes predictions for its records, and returns counts and sums; see
   :mod:`multicentre.validation.classification.rounds` for classes, :mod:`multicentre.validation.scoring.numbers` for
   numbers.
3. The coordinator computes scores, curves and the recalibration from the sums over sites.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.validation.external.model_files import describe_model, digest_of, unpack_model
from multicentre.validation.external.recalibration import recalibrate
from multicentre.validation.scoring.judging import (
    Scored,
    ScoringPart,
    send_model,
)
from multicentre.validation.scoring.tables import BoostedTrees, ScoredLinearModel, table_model

Floats = NDArray[np.float64]
TableModel = ScoredLinearModel | BoostedTrees


class ModelValidation(FederatedEstimator):
    """Base class of the validations of a given model of tables.

    Attributes
    ----------
    model_digest_ : str
        SHA-256 of the model as the sites received it.
    n_incomplete_ : int
        Records that are not evaluated, because the model needs complete records.
    site_refusals_ : dict of str to str
        Reasons of the sites that refused to return their own scores.
    """

    model_parameters: ClassVar[Mapping[str, Literal["model", "models"]]] = {"model": "model"}
    metrics: ClassVar[Mapping[str, Metric]] = {}
    model_phrases: ClassVar[Phrases] = {
        "model": lambda validation: model_phrase(validation.model),
        "threshold": "records classified above a probability of {}",
        "thresholds": "net benefit at thresholds {}",
        "n_groups": "at most {} groups in the calibration curve",
        "subgroups": "subgroups by {}",
        "subgroup_limits": "limits of subgroups {}",
        "min_records": "bins of at least {} records",
        "by_site": {True: "scores by site", False: ""},
    }
    part: ClassVar[type[ScoringPart]]
    saved_attributes: ClassVar[SavedAttributes] = {
        "model_digest_": PLAIN,
        "n_incomplete_": PLAIN,
        "site_refusals_": PLAIN,
        "_judged": Saved(
            lambda judged: {"kind": judged.kind, "packed": judged.packed},
            lambda parts: Scored(str(parts["kind"]), parts["packed"]).checked(),
            in_parts=True,
        ),
    }
    model: Any
    model_digest_: str
    n_incomplete_: int
    site_refusals_: dict[str, str]
    _judged: Scored

    def _send(self, session: Session) -> TableModel:
        """Send the model to every site, and return it."""
        model = table_model(self.model)
        if not isinstance(model, TableModel):
            raise ConfigurationError(
                f"model must be a regression or boosted trees; got {type(model).__name__}", where="model"
            )
        self.model_digest_ = digest_of(model)
        self._judged = Scored(type(model).__name__, np.frombuffer(encode(model), dtype=np.uint8))
        send_model(session, self.part, self._judged)
        self.history_ = []
        return model

    @abstractmethod
    def line(self) -> tuple[float, float]:
        """Return intercept and slope of the recalibration."""

    def recalibrated(self, how: Literal["line", "intercept"] = "line") -> TableModel:
        """Return the model with its linear predictor replaced by ``intercept + slope * linear predictor``.

        Parameters
        ----------
        how : {"line", "intercept"}, default "line"
            "intercept" keeps the slope at 1 (recalibration in the large).

        Returns
        -------
        model
            Accepted wherever a given model is; :func:`~multicentre.validation.write_model` writes it.

        Raises
        ------
        ConfigurationError
            The link of the model is not the logit or the identity, or the recalibration did not converge.
        """
        check_is_fitted(self, "_judged")
        intercept, slope = self.line() if how == "line" else (self.shift(), 1.0)
        return recalibrate(self.given_model, intercept, slope)

    @abstractmethod
    def shift(self) -> float:
        """Return the intercept of the recalibration at a slope of 1."""

    @property
    def given_model(self) -> TableModel:
        """The validated model."""
        model = unpack_model(self._judged.kind, self._judged.packed.tobytes())
        assert isinstance(model, TableModel)
        return model

    def save(self, folder: str | Path) -> None:
        """Write the validation as ``model.npz`` and ``model.json``, including the validated model."""
        bare = copy.copy(self)
        bare.model = None
        FederatedEstimator.save(bare, folder)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.model = self.given_model


def model_phrase(model: Any) -> str:
    """Return the kind of a given model, for the sentence on what was validated."""
    return "" if model is None else describe_model(model)[0][1]


def as_texts(values: Any) -> list[str]:
    """Return numbers as texts, since JSON has no NaN."""
    return [repr(float(value)) for value in values]
