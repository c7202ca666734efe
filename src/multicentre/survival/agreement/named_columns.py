"""Base of the site parts of survival models with an offset, weights or clusters, and with formulas."""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.core.steps import Acknowledgement, step
from multicentre.core.wire import encode
from multicentre.data.records import check_squares, effective_number
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.formula.site import FormulaPart
from multicentre.survival.agreement import messages
from multicentre.survival.agreement.site import SurvivalPart

Floats = NDArray[np.float64]
# Rounding error of effective numbers; 10 equal patients must not count as 9.
ROUNDING = 1e-6


class _SetAside(NamedTuple):
    """Columns that were taken out of the covariates, and the request that named them."""

    request: messages.NamedColumns
    columns: dict[str, Floats]


class NamedColumnsPart(SurvivalPart, FormulaPart):
    """Base of the site parts of survival models with an offset, weights or clusters, and with formulas."""

    _aside: _SetAside | None = None

    @step(releases=Acknowledgement, when="once")
    def set_aside(self, request: messages.NamedColumns) -> Acknowledgement:
        """Take the columns of offset, weights and clusters out of the covariates; no value leaves the site."""
        if self._aside is not None and self._aside.request == request:
            return Acknowledgement()
        if self._aside is not None or self.has_answered:
            raise ConfigurationError(
                "offset, weights and cluster must be named once, before the first sum; got another request",
                where=self.method,
                hint="Start a new fit.",
            )
        columns = self.data.columns
        if absent := sorted(set(request.names) - set(columns)):
            raise SchemaMismatch(
                f"offset, weights and cluster must be columns; got {', '.join(absent)}",
                where="columns",
                hint=f"The columns are {', '.join(columns[:10])}.",
            )
        aside = {name: self.data.X[:, columns.index(name)] for name in request.names}
        for name, values in aside.items():
            if np.isnan(values).any():
                raise DataError(
                    "a column of offsets, weights or clusters must be complete; an entry is missing",
                    where=name,
                    hint='Fit with missing="complete", or complete the column.',
                )
        if request.weights and ((aside[request.weights] < 0).any() or not aside[request.weights].any()):
            raise DataError(
                "weights must be at least 0 and not all 0; got others",
                where=request.weights,
                hint="Correct the column.",
            )
        self.data = self.data.keep_columns(set(columns) - set(request.names))
        self._aside = _SetAside(request, aside)
        # States stored between rounds belong to these columns.
        label = f"named={sha256(encode(request)).hexdigest()[:16]}"
        self.within = f"{self.within}/{label}" if self.within else label
        return Acknowledgement()

    @property
    def has_answered(self) -> bool:
        """True once the site has returned sums of its columns."""
        return bool(self._first_requests) or self.state is not None

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return the number of patients behind a sum; with weights, at most the effective number under the weights."""
        return min(super().behind(counts), self._n_effective)

    @property
    def _n_effective(self) -> int:
        """Effective number of patients under the weights."""
        return len(self.data) if self._weight is None else int(effective_number(self._weight) + ROUNDING)

    @property
    def named(self) -> messages.NamedColumns:
        """Columns of offset, weights and clusters."""
        return messages.NamedColumns("", "", "", True) if self._aside is None else self._aside.request

    def _column(self, name: str) -> Floats | None:
        return None if self._aside is None else self._aside.columns.get(name)

    @property
    def _weight(self) -> Floats | None:
        """Weight of each patient, shape (n,); None without weights."""
        return self._column(self.named.weights)

    @property
    def _offset(self) -> Floats | None:
        """Offset of each patient, shape (n,); None without an offset."""
        return self._column(self.named.offset)

    @cached_property
    def _clusters(self) -> NDArray[np.int64] | None:
        """Number of each patient's cluster from 0, shape (n,); None without clusters."""
        values = self._column(self.named.cluster)
        return None if values is None else np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)

    @property
    def _counts(self) -> NDArray[np.bool_]:
        """Flags of the patients with a positive weight, shape (n,)."""
        return np.ones(len(self.data), dtype=np.bool_) if self._weight is None else self._weight > 0

    def _sizes(self, request: messages.OfCause) -> dict[str, Any]:
        sizes, weights, X = super()._sizes(request), self._weight, self.data.X
        if weights is not None:
            sizes["n_events"] = float(((self.data.event == request.cause) & self._counts).sum())
            sizes |= {"present": weights @ ~np.isnan(X), "total": weights @ np.nan_to_num(X)}
        return sizes

    def _squares(self, centre: Floats) -> Floats:
        squares = super()._squares(centre)
        if self._weight is not None:
            squares = np.asarray(self._weight @ np.square(np.nan_to_num(self.data.X - centre)), dtype=np.float64)
            check_squares(self.data.columns, squares, messages.TOTAL)
        return squares
