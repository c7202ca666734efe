"""Site part of the path of penalties: sums by fold, and derivatives without a fold.

Steps also inherited: those of regression/site.py.

Each site divides its patients into folds by a hash of its data, so that the coordinator does not know who is in which.
All answers are terms of sums over sites. They state the effective number of patients of the smallest fold.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message
from multicentre.core.steps import step
from multicentre.errors import ConfigurationError, MessageError
from multicentre.regression.maths import derive, patient_terms, unit_deviances
from multicentre.regression.messages import At, Centre
from multicentre.regression.path.folds import divide
from multicentre.regression.path.messages import AtFolds, AtPath, FoldMoments, PathSums
from multicentre.regression.patients import STEEPEST
from multicentre.regression.site import RegressionSite

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# More folds than patients of a small site tell nothing that 50 folds do not.
MAX_FOLDS = 50


class PathSite(RegressionSite):
    """Site part of the path of penalties."""

    method: ClassVar[str] = "fed-glm-cv"
    revision: ClassVar[int] = 3
    session_memory: ClassVar[tuple[str, ...]] = ("division_of_fit",)
    lengths: ClassVar[Lengths] = {
        "k": Length("folds", "cv"),
        "q": "intercept, covariates and outcome",
        "m": "pairs of a penalty and a fold that is left out",
        "b": "sub-cells of a cell",
    }
    division_of_fit: tuple[int, int] | None = None

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients of a request."""
        return request.coefficients.shape[1] if isinstance(request, AtPath) else super().n_parameters(request)

    @step(releases=FoldMoments, when="once", summed=True)
    def sum_fold_products(self, request: AtFolds) -> FoldMoments:
        """Sum products of standardised covariates and outcome by fold, for least squares without each fold."""
        rows, outcome, offset = self._standardised_rows(request)
        folds, weights = self._folds_of(request), self._weights
        values = np.column_stack([rows, outcome - offset - request.mean / request.scale])
        products = [
            values[here].T @ (values[here] * weights[here, None])
            for here in (folds == fold for fold in range(request.n_folds))
        ]
        n_patients = np.bincount(folds, minlength=request.n_folds)
        behind = min(self._behind_fold(weights, folds == fold) for fold in range(request.n_folds))
        return FoldMoments(n_patients, np.array(products), patients=behind)

    @step(releases=PathSums, when="every round", summed=True)
    def sum_path_derivatives(self, request: AtPath) -> PathSums:
        """Sum deviances and their derivatives at several coefficients, each without the patients of a fold."""
        rows, outcome, offset = self._standardised_rows(request)
        self._check_path(request, rows.shape[1])
        folds = self._folds_of(request)
        sums, behind = zip(
            *(
                self._sums_at(rows, outcome, rows @ coefficients + offset, folds == held_out)
                for coefficients, held_out in zip(request.coefficients, request.held_out.tolist(), strict=True)
            ),
            strict=True,
        )
        columns = [np.array(column) for column in zip(*sums, strict=True)]
        return PathSums(float(len(rows)), *columns, patients=min(behind))

    def _sums_at(
        self, rows: Floats, outcome: Floats, predictor: Floats, is_out: NDArray[np.bool_]
    ) -> tuple[tuple[float, float, float, float, Floats, Floats], int]:
        """Return the sums of one pair of a penalty and a fold, and the effective number of patients behind them."""
        family, link, weights = self._family, self._link, self._weights
        inside = ~is_out
        sums = derive(family, link, rows[inside], outcome[inside], predictor[inside], weights[inside])
        held = weights[is_out] @ unit_deviances(family, link, outcome[is_out], predictor[is_out])
        terms = patient_terms(family, link, outcome, predictor)
        behind = self._behind_fold(weights * terms.weight, inside)
        if is_out.any():
            behind = min(behind, self._behind_fold(weights * terms.weight, is_out))
        totals = float(weights[inside].sum()), float(weights[is_out].sum()), sums.deviance, float(held)
        return (*totals, sums.gradient, sums.information), behind

    def _standardised_rows(self, request: AtFolds) -> tuple[Floats, Floats, Floats]:
        """Return standardised rows with a column of ones, outcomes and offsets."""
        fields = {name: getattr(request, name) for name in Centre.declarations()}
        nothing = np.zeros(len(request.spread) + 1)
        return self._standardised(At(**fields, spread=request.spread, scale=request.scale, coefficients=nothing))

    def _check_path(self, request: AtPath, p: int) -> None:
        shape, held_out = request.coefficients.shape, request.held_out
        if shape[1] != p or not shape[0] or held_out.min() < -1 or held_out.max() >= request.n_folds:
            raise MessageError(
                f"the request must hold {p} coefficients per fold, and folds from -1 to {request.n_folds - 1}; got "
                "others",
                where=self.method,
            )
        largest = float(np.abs(request.coefficients[:, 1:]).max(initial=0.0))
        if largest > STEEPEST:
            raise ConfigurationError(
                f"coefficients must be at most {STEEPEST:g} per standard deviation; got {largest:g}",
                where="coefficients",
                hint="Fit with larger penalties.",
            )

    def _folds_of(self, request: AtFolds) -> Integers:
        """Return the fold of each patient, shape (n,); the same in all requests of a fit."""
        division = (request.n_folds, request.seed)
        if not 2 <= request.n_folds <= MAX_FOLDS or self.division_of_fit not in (None, division):
            raise ConfigurationError(
                f"the folds must be those of the first request of the fit, 2 to {MAX_FOLDS}; got {request.n_folds}",
                where="cv",
                hint="Begin a new fit.",
            )
        self.division_of_fit = division
        return self._folds

    @cached_property
    def _folds(self) -> Integers:
        n_folds, seed = self.division_of_fit or (2, 0)
        persons = self.persons
        if persons is not None and self.used is not None and len(persons) != len(self.data):
            persons = persons[self.used]
        strata = self.data.y if self.data.outcome == "class" else np.zeros(len(self.data), dtype=np.int64)
        key = sha256(f"{self.data.digest()}:{n_folds}:{seed}".encode()).digest()
        return divide(n_folds, strata, persons, key)

    def _behind_fold(self, weights: Floats, here: NDArray[np.bool_]) -> int:
        """Return the effective number of patients of some folds; unmasked, also that of their smallest group."""
        behind = self._behind(weights[here])
        if self.masked or not here.any():
            return behind
        return min(behind, self._fewest_of(here))
