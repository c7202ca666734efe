"""Base class of the pooled factorisations, which fit one tensor with all patients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.parameters import ParameterRanges, check_parameters
from multicentre.phenotyping.agreement import check_rank
from multicentre.phenotyping.fitted.fit_sums import MEMBER_SHARE
from multicentre.phenotyping.fitted.model import Phenotypes
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.patients import count_members
from multicentre.phenotyping.scores import TensorErrors

History = list[dict[str, float]]


class PooledPhenotypes(Phenotypes, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the factorisations of one tensor; :class:`Phenotypes` describes the methods of a fitted model.

    Attributes
    ----------
    memberships_ : array of shape (n, r)
        Memberships of the training patients; phenotypes in descending order of weight.
    history_ : list of dict
        One entry per pass over the data (``round``). ``rmse`` is the root of the squared error over all cells divided
        by the number of entries; ``rmse_at_entries`` counts the error at the entries only.
    n_iter_ : int
        Number of passes over the data.
    converged_ : bool
        True if the passes ended by `tol`.
    """

    parameter_ranges: ClassVar[ParameterRanges]
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
            All patients; tensors of several sites must be joined over the same codes.
        y : None
            Not used, present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter has the wrong type or range, or `rank` exceeds the number of codes of a mode.
        DataError
            The tensor is empty.
        """
        if not isinstance(data, EventTensor):
            raise ConfigurationError(
                f"data must be an EventTensor; got {type(data).__name__}",
                where=type(self).__name__,
                hint="This method fits pooled patients. For a federation use DPFact or TRIP.",
            )
        check_parameters(self.get_params(deep=False), self.parameter_ranges)
        check_rank(self.rank, {mode: len(names) for mode, names in data.codes.items()})
        if not data.nnz:
            raise DataError("the tensor must have at least one entry; got none", where=type(self).__name__)
        tensor = SparseTensor(data.coordinates, data.counts, data.shape)
        self.history_ = []
        self._describe(data, tensor, self._factorise(data, tensor))
        return self

    @abstractmethod
    def _factorise(self, data: EventTensor, tensor: SparseTensor) -> Sequence[Floats]:
        """Return one factor per mode, patients first, in any scale."""

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
        self.reconstruction_errors_ = TensorErrors(
            n_entries=float(tensor.nnz),
            n_cells=float(np.prod(tensor.shape, dtype=np.float64)),
            sum_counts=float(tensor.counts.sum()),
            sum_squares=tensor.norm_squared,
            squared_error=squared_error(tensor, fitted),
            squared_error_at_entries=squared_error_at_entries(tensor, fitted),
        )
