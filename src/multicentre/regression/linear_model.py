"""Fitted generalised linear model as a message, its predictions, and its fitted attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import Message, array, number, text, texts
from multicentre.data.missing.values import HandlesMissing
from multicentre.data.tabledata import TableData
from multicentre.data.tabular import add_indicators
from multicentre.errors import IntegrityError
from multicentre.regression.maths import LINKS, Family, Link, predicted_mean

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearModel(Message):
    """Coefficients of a generalised linear model, and what predictions need.

    Examples
    --------
    >>> model = LinearModel("binomial", "logit", ("age",), (), ("age",), ("no", "yes"), (), "", 0.0, np.array([0.5]),
    ...                     np.array([60.0]))
    >>> model.mean(np.array([[0.0]])).tolist()
    [0.5]
    """

    family: str = text("gaussian, binomial, poisson, gamma or negative_binomial")
    link: str = text("identity, logit, probit, cloglog or log")
    columns: tuple[str, ...] = texts("names of the columns of the data")
    marked: tuple[str, ...] = texts("columns whose missing entries have an indicator, categories without levels")
    covariates: tuple[str, ...] = texts("names of the covariates, indicators last")
    classes: tuple[str, ...] = texts("names of the two classes; none for a number")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level")
    offset: str = text("column that is added to the linear predictor; empty for none")
    intercept: float = number("intercept")
    coefficients: Floats = array("coefficient per unit of each covariate", ("d",))
    centre: Floats = array("mean of every covariate, which replaces missing entries", ("d",))
    complete: tuple[str, ...] = texts("columns in which missing entries are not allowed", default=())

    def check(self) -> Self:
        """Return the model if its parts fit each other.

        Raises
        ------
        IntegrityError
            Family, link, columns or lengths do not fit.
        """
        self.checked()
        names = {*self.columns, *(f"missing_{name}" for name in self.marked)}
        fits = (
            self.link in LINKS.get(self.family, ())
            and len(self.covariates) == len(self.coefficients) == len(self.centre)
            and set(self.covariates) <= names
            and (not self.offset or self.offset in self.columns)
            and len(self.classes) == (2 if self.family == "binomial" else 0)
        )
        if not fits:
            raise IntegrityError(
                "family, link, columns and coefficients of a model must fit each other; they do not", where="model"
            )
        return self

    @property
    def values(self) -> Floats:
        """Intercept and coefficients, shape (d + 1,)."""
        return np.concatenate([[self.intercept], self.coefficients])

    def design(self, X: Floats) -> tuple[Floats, Floats]:
        """Return rows with a column of ones, shape (n, d + 1), and offsets, shape (n,), for the columns of the data."""
        values = add_indicators(X, self.columns, self.levels, self.marked)
        names = (*self.columns, *(f"missing_{name}" for name in self.marked))
        covariates = values[:, [names.index(name) for name in self.covariates]]
        filled = np.where(np.isnan(covariates), self.centre, covariates)
        offset = X[:, self.columns.index(self.offset)] if self.offset else np.zeros(len(X))
        return np.column_stack([np.ones(len(X)), filled]), offset

    def linear(self, X: Floats) -> Floats:
        """Return linear predictors with the offset, shape (n,)."""
        rows, offset = self.design(X)
        return rows @ self.values + offset

    def mean(self, X: Floats) -> Floats:
        """Return predicted means, shape (n,)."""
        return predicted_mean(cast(Link, self.link), self.linear(X))

    @property
    def kind(self) -> tuple[Family, Link]:
        """Family and link."""
        return cast(Family, self.family), cast(Link, self.link)


class HasLinearModel(HandlesMissing):
    """Fitted attributes and score of estimators whose result is a linear predictor of covariates."""

    model_: LinearModel

    def score(self, data: TableData, y: None = None) -> float:
        """Return the share of patients whose more probable class is theirs; of numbers, the coefficient R2.

        After a fit to complete records, incomplete records are left out, with a warning.

        Parameters
        ----------
        data : TableData
        y : None
            Not used, present for API consistency by convention.

        Raises
        ------
        SchemaMismatch
            The data lack columns of the fit, or have other levels or classes.
        """
        check_is_fitted(self, "model_")
        scored = self.leave_out_incomplete(data)
        outcomes, means = self._outcomes(scored), self._means(scored)
        return float(((means > 0.5) == outcomes).mean() if self.model_.classes else r2_score(outcomes, means))

    def _means(self, X: Any) -> Floats:
        """Return predicted means, shape (n,); of two classes, the probability of the second."""
        raise NotImplementedError

    def _outcomes(self, data: TableData) -> Floats:
        """Return the outcomes, shape (n,), after the check that they are those of the model."""
        data.require_classes(self.model_.classes)
        return np.asarray(data.y, dtype=np.float64)

    @property
    def coef_(self) -> Floats:
        """Coefficients per unit of each covariate, shape (d,)."""
        check_is_fitted(self, "model_")
        return self.model_.coefficients

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return self.model_.covariates

    @property
    def n_features_in_(self) -> int:
        """Number of covariates."""
        return len(self.model_.covariates)
