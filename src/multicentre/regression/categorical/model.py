"""Fitted multinomial or ordinal model as a message, and its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, text, texts
from multicentre.data.tabular import add_indicators
from multicentre.errors import IntegrityError
from multicentre.regression.categorical.likelihoods import ClassLikelihood, is_registered, likelihood_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CategoricalModel(Message):
    """Parameters of a multinomial or ordinal model, and what predictions need.

    Examples
    --------
    >>> model = CategoricalModel("ordinal", "logit", ("age",), (), ("age",), ("none", "mild", "severe"), (), "",
    ...                          np.array([-1.0, 1.0]), np.array([[0.5]]), np.array([60.0]))
    >>> model.probabilities(np.array([[0.0]])).round(3).tolist()
    [[0.269, 0.462, 0.269]]
    """

    kind: str = text("kind of the model: multinomial, ordinal")
    link: str = text("logit or probit")
    columns: tuple[str, ...] = texts("names of the columns of the data")
    marked: tuple[str, ...] = texts("columns whose missing entries have an indicator, categories without levels")
    covariates: tuple[str, ...] = texts("names of the covariates, indicators last")
    classes: tuple[str, ...] = texts("names of the classes; the first is the reference of a multinomial model")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level")
    offset: str = text("column that is added to the linear predictor; empty for none")
    intercepts: Floats = array("intercepts of all classes but the first, or thresholds", ("k",))
    slopes: Floats = array("coefficient per unit of each covariate; a row per class, or one row", ("r", "d"))
    centre: Floats = array("mean of every covariate, which replaces missing entries", ("d",))
    complete: tuple[str, ...] = texts("columns in which missing entries are not allowed", default=())

    def check(self) -> Self:
        """Return the model if its parts fit each other.

        Raises
        ------
        IntegrityError
            Kind, link, columns, classes or lengths do not fit.
        """
        self.checked()
        names = {*self.columns, *(f"missing_{name}" for name in self.marked)}
        fits = (
            is_registered(self.kind, self.link)
            and self.slopes.shape[1] == len(self.covariates) == len(self.centre)
            and len(self.slopes) == self.likelihood.n_predictors(len(self.intercepts))
            and len(self.intercepts) == len(self.classes) - 1
            and set(self.covariates) <= names
            and self.likelihood.is_feasible(self.intercepts)
            and (not self.offset or (self.likelihood.takes_offset and self.offset in self.columns))
        )
        if not fits:
            raise IntegrityError(
                "kind, link, classes, columns and parameters of a model must fit each other; they do not",
                where="model",
            )
        return self

    @property
    def parameters(self) -> Floats:
        """Parameters in the order of the rounds, shape (q,)."""
        return self.likelihood.join(self.intercepts, self.slopes)

    @property
    def likelihood(self) -> ClassLikelihood:
        """Likelihood of the model."""
        return likelihood_of(self.kind, self.link)

    def predictors(self, X: Floats) -> Floats:
        """Return linear predictors for the columns of the data, without thresholds, shape (n, r)."""
        values = add_indicators(X, self.columns, self.levels, self.marked)
        names = (*self.columns, *(f"missing_{name}" for name in self.marked))
        covariates = values[:, [names.index(name) for name in self.covariates]]
        filled = np.where(np.isnan(covariates), self.centre, covariates)
        offset = X[:, [self.columns.index(self.offset)]] if self.offset else 0.0
        return np.asarray(filled @ self.slopes.T + offset, dtype=np.float64)

    def probabilities(self, X: Floats) -> Floats:
        """Return the probability of each class, shape (n, K)."""
        return self.likelihood.predict(self.intercepts, self.predictors(X))
