"""Models of several views as messages: a Gaussian law of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.data.multiview import MultiViewData
from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Message, array, texts
from multicentre.multiview.agreement import check_columns
from multicentre.multiview.ppca.maths import predict
from multicentre.multiview.ppca.maths.model import Layout, Parameters

Floats = NDArray[np.float64]
MOST_COMPONENTS = 10_000
MOST_PRODUCTS = 2**28
LARGEST = 1e30
MOST_PRECISE = 1e14


@dataclass(frozen=True)
class RowModel(Message):
    """Views and columns of a model, and the unit of its errors."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns of every view", keyed=True)
    deviation: Floats = array("standard deviation of each column, the unit of errors", ("d",))

    @property
    def layout(self) -> Layout:
        """How the views stand side by side."""
        return Layout(self.views, tuple(len(self.columns[view]) for view in self.views))

    def valid_for(self, data: MultiViewData) -> Self:
        """Return the model if it is one of such rows.

        Raises
        ------
        MessageError
            Its arrays do not fit its columns.
        DataError
            The data have none of its views, or other columns in one.
        """
        self.checked()
        fits = bool(self.views) and set(self.views) == set(self.columns) and len(set(self.views)) == len(self.views)
        if not fits or not all(self.columns.values()) or len(self.deviation) != self.layout.n_features:
            raise MessageError("the columns do not fit the model", where=type(self).__name__)
        if (self.deviation <= 1 / LARGEST).any():
            raise MessageError("a deviation is not above 0", where=type(self).__name__)
        check_columns(data, self.columns)
        self.check_arrays()
        return self

    def check_arrays(self) -> None:
        """Raise MessageError unless the arrays make a model."""
        raise NotImplementedError

    def rebuild(self, X: Floats) -> Floats:
        """Return every row as the model sees it, shape (n, d)."""
        raise NotImplementedError

    def log_likelihoods(self, X: Floats) -> Floats:
        """Return log densities of rows, shape (n, 1 + k): of all entries that a row has, then of each view's."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowLaw(RowModel):
    """A Gaussian law of rows, t = W x + mu + eps."""

    loadings: Floats = array("W", ("d", "q"))
    mean: Floats = array("mu", ("d",))
    noise: Floats = array("noise variance of each column", ("d",))

    @property
    def parameters(self) -> Parameters:
        """The law."""
        return Parameters(self.loadings, self.mean, self.noise)

    def check_arrays(self) -> None:
        """Raise MessageError unless the noise is above 0 and there are latent dimensions.

        The law must be one under which no row can make a step break: its precision in the latent space can be told
        from the identity, whatever entries a row has.
        """
        d, q = self.loadings.shape
        in_range = (self.noise > 1 / LARGEST).all() and max(
            np.abs(own).max(initial=0.0) for own in (self.loadings, self.mean, self.noise)
        ) <= LARGEST
        if not in_range or not 1 <= q <= MOST_COMPONENTS or d * q**2 > MOST_PRODUCTS:
            raise MessageError("the arrays make no law", where="RowLaw")
        if float((np.square(self.loadings) / self.noise[:, None]).sum()) > MOST_PRECISE:
            raise MessageError("the noise is too small for the loadings", where="RowLaw.noise")

    def rebuild(self, X: Floats) -> Floats:
        """Return every row as the law sees it, W x + mu, shape (n, d)."""
        return predict.reconstruct(X, self.parameters)

    def log_likelihoods(self, X: Floats) -> Floats:
        """Return log densities of rows, shape (n, 1 + k)."""
        found = [predict.row_log_likelihood(X, self.parameters)]
        for view in self.views:
            own = self.layout.features_of([view])
            found.append(predict.row_log_likelihood(X[:, own], self.parameters.restrict(own)))
        return np.column_stack(found)


def row_law(model: Any) -> RowLaw:
    """Return a fitted Fed-mv-PPCA as the message that sites take."""
    law = model._law
    return RowLaw(**schema_fields(model.schema_), deviation=model.deviation_, loadings=law.loadings, mean=law.mean,
                  noise=law.noise)  # fmt: skip


def schema_fields(schema: Any) -> dict[str, Any]:
    """Return the fields of a message that name views and columns."""
    return {"views": tuple(schema.views), "columns": {view: tuple(schema.columns[view]) for view in schema.views}}
