"""Bases of the site parts of regression models: patients, their columns and outcomes, and the steps before the rounds.

An answer states its effective number of patients: those of its smallest group, or fewer if a few patients dominate the
weights. The guard refuses an answer with too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import step
from multicentre.core.wire import encode
from multicentre.data.missing.values import Missing
from multicentre.data.rare_columns import RareColumnsPart
from multicentre.data.records import check_squares, effective_number, fewest_different, is_dominated
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, MessageError, SchemaMismatch
from multicentre.formula.site import FormulaPart
from multicentre.likelihood.sandwich import score_products
from multicentre.regression import messages
from multicentre.regression.maths import LINKS, Family, Link, Terms, saturated
from multicentre.regression.negative_binomial import MAX_COUNT

Floats = NDArray[np.float64]
# Handling of missing entries by the regression models.
RegressionMissing = Literal["complete", "indicator", "mean"]
# Per standard deviation of a column, on the scale of the linear predictor. Larger coefficients turn the model into a
# step between two patients, so that its derivatives depend on these two.
STEEPEST = 1e3
# Rounding error of effective numbers; 10 equal patients must not count as 9.
ROUNDING = 1e-6


class RegressionColumns(RareColumnsPart, FormulaPart):
    """Base of the site parts of all regression models: their columns, of the data or of a formula."""

    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = messages.Model
    handles: ClassVar[tuple[Missing, ...]] = get_args(RegressionMissing)
    lengths: ClassVar[Lengths] = {"d": "covariates; a category has one for each of its levels"}
    links: ClassVar[Mapping[str, tuple[str, ...]]] = LINKS
    data: TableData
    state: messages.Model | None = None
    _about_site: bytes = b""

    @step(releases=messages.Described, when="once")
    def describe(self, request: Nothing) -> messages.Described:
        """Return the names of columns, levels of categories and classes, which must agree over sites."""
        data = self.data
        outcome = (data.outcome_name,) if data.outcome_name else ()
        return messages.Described(data.columns, data.classes, levels=data.levels, outcome=outcome, patients=len(data))

    def _ask_only_once(self, request: Message) -> None:
        """Refuse a second, different request about this site alone: the difference could single out a patient."""
        encoded = encode(request)
        if self._about_site not in (b"", encoded):
            raise ConfigurationError(
                "repeated requests about a single site must be identical; got a different one",
                where=self.method,
                hint="Start a new fit.",
            )
        self._about_site = encoded

    @property
    def _model(self) -> messages.Model:
        if self.state is None:
            raise ConfigurationError(
                "the fit must begin with its model; got another request first",
                where=self.method,
                hint="Begin the fit again.",
            )
        return self.state

    def _agree(self, request: messages.Model) -> None:
        """Check and store the model of the fit, the same in all requests."""
        fields: dict[str, Any] = {name: getattr(request, name) for name in messages.Model.declarations()}
        model = messages.Model(**fields)
        if self.state not in (None, model):
            raise ConfigurationError(
                "the model must be that of the first request; got a different one",
                where=self.method,
                hint="Begin a new fit.",
            )
        if request.link not in self.links.get(request.family, ()):
            raise ConfigurationError(
                f"the link must be one of {request.family}; got {request.link}",
                where="link",
                hint="See the parameters of the estimator.",
            )
        named = [name for name in (request.offset, request.weights, request.cluster) if name]
        if absent := sorted(set(named) - set(self.data.columns)):
            raise SchemaMismatch(
                f"offset, weights and cluster must be columns; got {', '.join(absent)}",
                where="columns",
                hint=f"The columns are {', '.join(self.data.columns[:10])}.",
            )
        if self.state is None:
            self.state = model

    @cached_property
    def _places(self) -> list[int]:
        """Places of the covariates among the columns."""
        model = self._model
        others = {model.offset, model.weights, model.cluster}
        return [place for place, name in enumerate(self.data.columns) if name not in others]

    @property
    def _covariates(self) -> Floats:
        return self.data.X[:, self._places]

    def _column(self, name: str) -> Floats:
        values = self.data.X[:, self.data.columns.index(name)]
        if np.isnan(values).any():
            raise DataError(
                "a column of offsets, weights or clusters must be complete; an entry is missing",
                where=name,
                hint='Fit with missing="complete", or complete the column.',
            )
        return values

    @cached_property
    def _weights(self) -> Floats:
        name = self._model.weights
        if not name:
            return np.ones(len(self.data))
        weights = self._column(name)
        if (weights < 0).any() or not weights.any():
            raise DataError(
                "weights must be at least 0 and not all 0; got others",
                where=name,
                hint="Correct the column.",
            )
        return weights

    @cached_property
    def _clusters(self) -> NDArray[np.int64] | None:
        """Number of each patient's cluster from 0, shape (n,); None without clusters."""
        name = self._model.cluster
        return np.unique(self._column(name), return_inverse=True)[1].astype(np.int64) if name else None

    def _score_products(self, scores: Floats) -> tuple[float, Floats]:
        """Return the number of clusters or patients, and the products of their scores of shape (n, w)."""
        return score_products(scores, self._weights, self._clusters, frequency=self._model.frequency)

    @cached_property
    def _offset(self) -> Floats:
        name = self._model.offset
        return self._column(name) if name else np.zeros(len(self.data))

    def _centred(self, request: messages.Centre) -> Floats:
        """Return the covariates minus their means, with missing entries at the mean, shape (n, d)."""
        if len(request.centre) != len(self._places):
            raise MessageError(
                f"the request must hold {len(self._places)} covariates; got {len(request.centre)}", where=self.method
            )
        return np.nan_to_num(self._covariates - request.centre)

    def _column_sums(self) -> tuple[float, float, Floats, Floats]:
        """Return patients, and sums of weights, of weights of present values, and of weighted covariates."""
        weights, covariates = self._weights, self._covariates
        return (
            float(len(self.data)),
            float(weights.sum()),
            weights @ ~np.isnan(covariates),
            weights @ np.nan_to_num(covariates),
        )

    def _products(self, rows: Floats) -> Floats:
        """Return the weighted products of centred covariates, shape (d, d); refuse squares beyond the bound."""
        products = rows.T @ (rows * self._weights[:, None])
        names = [self.data.columns[place] for place in self._places]
        check_squares(names, np.diagonal(products), messages.TOTAL)
        return np.asarray(products, dtype=np.float64)

    def _behind(self, *weights: Floats) -> int:
        """Return the effective number of patients of weighted sums; unmasked, also that of the smallest group."""
        checked = weights[:1] if self.masked else weights
        effective = [int(min(effective_number(each), len(self.data)) + ROUNDING) for each in checked]
        return min(effective if self.masked else [*effective, self._fewest])

    @property
    def _most(self) -> int:
        """Largest effective number of patients behind derivatives, at any parameters."""
        return self._behind(self._weights)

    @cached_property
    def _fewest(self) -> int:
        return self._fewest_of(np.ones(len(self.data), dtype=np.bool_))

    def _fewest_of(self, here: NDArray[np.bool_]) -> int:
        """Return the fewest patients with a class, or who differ from the others in a column; 1 if one dominates it."""
        y, fewest = self.data.y[here], fewest_different(self.data.X[here])
        if self.data.outcome != "class":
            return 1 if is_dominated(y) else fewest
        counts = np.bincount(y)
        return int(min(fewest, counts[counts > 0].min(initial=len(y))))


class RegressionPatients(RegressionColumns):
    """Base of the site parts of regression models of a number or of two classes."""

    @step(releases=messages.Totals, when="once", summed=True)
    def sum_columns(self, request: messages.Model) -> messages.Totals:
        """Count the patients, and sum covariates and outcomes, for their means."""
        self._agree(request)
        weights, outcome = self._weights, self._outcome
        return messages.Totals(
            *self._column_sums(),
            float(weights @ outcome),
            float(weights @ saturated(self._family, outcome)),
            float(weights @ xlogy(outcome, outcome)) if self._family == "poisson" else 0.0,
            patients=self._behind(weights),
        )

    @step(releases=messages.Moments, when="once", summed=True)
    def sum_products(self, request: messages.Centre) -> messages.Moments:
        """Sum products of covariates and outcome about their means, for their scale and the start of the rounds."""
        self._agree(request)
        rows, weights = self._centred(request), self._weights
        outcome = self._outcome - request.mean
        products = self._products(rows)
        check_squares(["the outcome"], weights @ np.square(outcome)[:, None], messages.TOTAL)
        return messages.Moments(
            products,
            rows.T @ (weights * outcome),
            float(weights @ np.square(outcome)),
            patients=self._behind(weights),
        )

    @property
    def _family(self) -> Family:
        return cast(Family, self._model.family)

    @property
    def _link(self) -> Link:
        return cast(Link, self._model.link)

    @cached_property
    def _outcome(self) -> Floats:
        """Outcomes, shape (n,): 1 for the second of two classes."""
        family, data = self._family, self.data
        if (family == "binomial") != (data.outcome == "class") or len(data.classes) not in (0, 2):
            expected = "one of two classes" if family == "binomial" else "a number"
            kind = "a number" if data.outcome == "number" else f"one of {len(data.classes)} classes"
            raise SchemaMismatch(
                f"the outcome of family {family} must be {expected}; got {kind}",
                where="y",
                hint='Set family="binomial" for two classes, and outcome="number" in the data for numbers.',
            )
        outcome = data.y.astype(np.float64)
        wrong = {
            "poisson": outcome < 0,
            "gamma": outcome <= 0,
            "negative_binomial": (outcome < 0) | (outcome != np.rint(outcome)) | (outcome > MAX_COUNT),
        }.get(family, np.zeros(0, dtype=np.bool_))
        if wrong.any():
            whole = f"whole numbers from 0 to {MAX_COUNT:,}"
            expected = {"poisson": "at least 0", "gamma": "positive"}.get(family, whole)
            raise DataError(
                f"outcomes of family {family} must be {expected}; some are not",
                where="y",
                hint="Choose another family, or correct the outcomes.",
            )
        return outcome

    def _behind_terms(self, terms: Terms) -> int:
        """Return the effective number of patients behind the derivatives."""
        return self._behind(self._weights * terms.weight, self._weights * terms.score)
