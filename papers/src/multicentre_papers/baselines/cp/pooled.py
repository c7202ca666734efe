"""What the pooled factorisations share: they fit one tensor that holds all patients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.phenotyping.fitted.checks import MEMBER_SHARE, check_rank
from multicentre.phenotyping.fitted.model import Phenotypes
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.patients import count_members
from multicentre.phenotyping.scores import TensorErrors

History = list[dict[str, float]]


class PooledPhenotypes(Phenotypes, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the factorisations of one tensor; see :class:`Phenotypes` for what a fitted one offers.

    Attributes
    ----------
    memberships_ : array of shape (n, r)
        Memberships of the patients of the fit, phenotypes in order of weight.
    history_ : list of dict
        By pass over the data (``round``): ``rmse`` over all cells per root of the entries, ``rmse_at_entries``.
    n_iter_ : int
        Passes over the data.
    converged_ : bool
        Whether they ended by `tol`.
    """

    rank: int
    memberships_: Floats
    history_: History
    n_iter_: int
    converged_: bool

    def fit(self, data: EventTensor, y: None = None) -> Self:
        """Fit the phenotypes to the patients of one tensor.

        Parameters
        ----------
        data : EventTensor
            All patients; sites' tensors over the same codes are joined beforehand.
        y : None
            Ignored; there for scikit-learn's habits.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is not of its kind, or there are more phenotypes than codes of some mode.
        DataError
            The tensor has no entry.
        """
        if not isinstance(data, EventTensor):
            raise ConfigurationError(
                f"fit takes an EventTensor, {type(data).__name__} was given",
                where=type(self).__name__,
                hint="This method fits pooled patients; for a federation use DPFact or TRIP.",
            )
        self._check()
        check_rank(self.rank, {mode: len(names) for mode, names in data.codes.items()})
        if not data.nnz:
            raise DataError("the tensor has no entry", where=type(self).__name__)
        tensor = SparseTensor(data.coordinates, data.counts, data.shape)
        self.history_ = []
        self._describe(data, tensor, self._factorise(data, tensor))
        return self

    @abstractmethod
    def _check(self) -> None:
        """Raise ConfigurationError unless every parameter is of its kind."""

    @abstractmethod
    def _factorise(self, data: EventTensor, tensor: SparseTensor) -> Sequence[Floats]:
        """Return one factor a mode, patients first, in any scale."""

    def _note(self, tensor: SparseTensor, factors: Sequence[Floats], error: float) -> None:
        at_entries = squared_error_at_entries(tensor, factors)
        metrics = {
            "rmse": float(np.sqrt(error / tensor.nnz)),
            "rmse_at_entries": float(np.sqrt(at_entries / tensor.nnz)),
        }
        self.history_.append({"round": float(len(self.history_) + 1), **metrics})

    def _describe(self, data: EventTensor, tensor: SparseTensor, factors: Sequence[Floats]) -> None:
        units, lengths = zip(*(normalise_columns(factor) for factor in factors[1:]), strict=True)
        memberships = factors[0] * np.prod(lengths, axis=0)
        weights = np.linalg.norm(memberships, axis=0)
        order = self._set_factors(dict(zip(data.codes, units, strict=True)), weights, data.codes)
        self.memberships_ = np.ascontiguousarray(memberships[:, order])
        self.members_ = count_members(self.memberships_, MEMBER_SHARE)
        self.n_patients_ = float(data.n_patients)
        self.n_iter_ = len(self.history_)
        fitted = [self.memberships_, *self.factors_.values()]
        self.errors_ = TensorErrors(
            n_entries=float(tensor.nnz),
            n_cells=float(np.prod(tensor.shape, dtype=np.float64)),
            sum_counts=float(tensor.counts.sum()),
            sum_squares=tensor.norm_squared,
            squared_error=squared_error(tensor, fitted),
            squared_error_at_entries=squared_error_at_entries(tensor, fitted),
        )
