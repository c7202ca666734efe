"""Scores of multi-view models: errors of reconstructed entries and log densities of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Lengths, Message, Nothing, array, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.data.multiview import MultiViewData
from multicentre.errors import MessageError
from multicentre.multiview.agreement import check_columns
from multicentre.multiview.ppca.maths import predict
from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.validation.scoring.judging import (
    MAX_FIXED,
    RECORDS,
    ScoringPart,
    SiteScores,
    judge,
    limited,
    request_site_scores,
    total,
    unfixed,
)
from multicentre.validation.scoring.scores import Scores

Floats = NDArray[np.float64]

# One q x q matrix, such as a posterior covariance, then takes at most 800 MB in doubles.
MAX_COMPONENTS = 10_000

# Posteriors need the products of a column's loadings, shape (d, q * q): 2^28 doubles are 2 GiB.
MAX_PRODUCTS = 2**28

# As MAX_VALUE of judging.py; squares and reciprocals of such numbers stay finite.
LARGEST = 1e30

# Rounding errors of 1e14 * 2.2e-16 = 0.02 stay below 1, which the identity adds to every eigenvalue.
MAX_PRECISE = 1e14


@dataclass(frozen=True)
class RowModel(Message):
    """Views and columns of a model, and the unit of its errors."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns of every view", keyed=True)
    deviation: Floats = array("standard deviation of each column, the unit of errors", ("d",))

    @property
    def layout(self) -> Layout:
        """Order and widths of the views in a stacked row."""
        return Layout(self.views, tuple(len(self.columns[view]) for view in self.views))

    def valid_for(self, data: MultiViewData) -> Self:
        """Return the model after a check against the data.

        Raises
        ------
        MessageError
            The arrays do not match the columns.
        DataError
                The data have none of the model's views, or different columns in one of them.
        """
        self.checked()
        fits = bool(self.views) and set(self.views) == set(self.columns) and len(set(self.views)) == len(self.views)
        if not fits or not all(self.columns.values()) or len(self.deviation) != self.layout.n_features:
            raise MessageError(
                f"every view must have columns, and every column one deviation; got {len(self.views)} views and "
                f"{len(self.deviation)} deviations that do not match",
                where=type(self).__name__,
            )
        if (self.deviation <= 1 / LARGEST).any():
            raise MessageError(
                f"deviations must be above {1 / LARGEST:g}; got {self.deviation.min():g}", where=type(self).__name__
            )
        check_columns(data, self.columns)
        self.check_arrays()
        return self

    def check_arrays(self) -> None:
        """Raise MessageError unless the arrays are valid."""
        raise NotImplementedError

    def rebuild(self, X: Floats) -> Floats:
        """Return the model's reconstruction of every row, shape (n, d)."""
        raise NotImplementedError

    def log_likelihoods(self, X: Floats) -> Floats:
        """Return log densities of rows, shape (n, 1 + k): of all observed entries, then of those of each view."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowLaw(RowModel):
    """Gaussian model of rows, t = W x + mu + eps."""

    loadings: Floats = array("W", ("d", "q"))
    mean: Floats = array("mu", ("d",))
    noise: Floats = array("noise variance of each column", ("d",))

    @property
    def parameters(self) -> Parameters:
        """Parameters of the Gaussian model."""
        return Parameters(self.loadings, self.mean, self.noise)

    def check_arrays(self) -> None:
        """Raise MessageError unless the noise is above 0 and there are latent dimensions.

        The precision in the latent space must be numerically distinguishable from the identity for any observed
        entries. No row can then raise an error in a step.
        """
        d, q = self.loadings.shape
        in_range = (self.noise > 1 / LARGEST).all() and max(
            np.abs(values).max(initial=0.0) for values in (self.loadings, self.mean, self.noise)
        ) <= LARGEST
        if not in_range or not 1 <= q <= MAX_COMPONENTS or d * q**2 > MAX_PRODUCTS:
            raise MessageError(
                f"entries must be at most {LARGEST:g} in absolute value, noise above 0, and components from 1 to "
                f"{MAX_COMPONENTS}; got invalid values, or {d} columns and {q} components",
                where="RowLaw",
            )
        if float((np.square(self.loadings) / self.noise[:, None]).sum()) > MAX_PRECISE:
            raise MessageError(
                f"the sum of squared loadings over noise must be at most {MAX_PRECISE:g}; it is larger",
                where="RowLaw.noise",
            )

    def rebuild(self, X: Floats) -> Floats:
        """Return the reconstruction W x + mu of every row, shape (n, d)."""
        return predict.reconstruct(X, self.parameters)

    def log_likelihoods(self, X: Floats) -> Floats:
        """Return log densities of rows, shape (n, 1 + k)."""
        densities = [predict.row_log_likelihood(X, self.parameters)]
        for view in self.views:
            features = self.layout.features_of([view])
            densities.append(predict.row_log_likelihood(X[:, features], self.parameters.restrict(features)))
        return np.column_stack(densities)


def row_law(model: Any) -> RowLaw:
    """Return the message for a fitted Fed-mv-PPCA."""
    law = model._patient_law  # with the offset of a site that is not known
    return RowLaw(**schema_fields(model.schema_), deviation=model.deviation_, loadings=law.loadings, mean=law.mean,
                  noise=law.noise)  # fmt: skip


def schema_fields(schema: Any) -> dict[str, Any]:
    """Return the message fields with the names of views and columns."""
    return {"views": tuple(schema.views), "columns": {view: tuple(schema.columns[view]) for view in schema.views}}


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class RowErrors(Release):
    """Reconstruction errors by view."""

    absolute: Integers = array(
        "sum of |entry - reconstruction| in standard deviations, times 2^24", ("k",), dtype="i8", bound=MAX_FIXED
    )
    entries: Integers = array("entries", ("k",), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class RowDensities(Release):
    """Log densities of rows: of all entries, then of each view."""

    log: Integers = array("sum of log densities, times 2^24", ("v",), dtype="i8", bound=MAX_FIXED)
    records: Integers = array("records with an entry", ("v",), dtype="i8", bound=RECORDS)


class RowPart(ScoringPart):
    """Site part that scores models of rows."""

    method: ClassVar[str] = "score-views"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = MultiViewData
    sums_fields: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, type[Any]]] = {"RowLaw": RowLaw}
    lengths: ClassVar[Lengths] = {"k": "views", "v": "views, or one for all views together"}
    data: MultiViewData
    model: RowModel

    @step(releases=RowErrors, when="at the end", summed=True)
    def sum_errors(self, request: Nothing) -> RowErrors:
        """Sum absolute reconstruction errors by view."""
        entries = np.array([self.observed[:, block].sum() for block in self.blocks])
        absolute, behind = self._summed([self._errors_of_rows(block) for block in self.blocks])
        return RowErrors(absolute, entries, patients=behind)

    @step(releases=RowDensities, when="at the end", summed=True)
    def sum_densities(self, request: Nothing) -> RowDensities:
        """Sum log densities of rows and of each view."""
        observed = [self._with_entry(block) for block in (slice(None), *self.blocks)]
        pairs = zip(self.log_likelihoods.T, observed, strict=True)
        log, behind = self._summed([densities[rows] for densities, rows in pairs])
        return RowDensities(log, np.array([rows.sum() for rows in observed]), patients=behind)

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        stem, _, view = name.partition("/")
        place = self.model.views.index(view) if view in self.model.views else None
        columns = slice(None) if place is None else self.blocks[place]
        rows = self._with_entry(columns)
        if not rows.any():
            return float("nan"), 0
        if stem == "log_likelihood":
            mean, behind = self.site_mean(self.log_likelihoods[rows, 0 if place is None else 1 + place])
            return mean, min(behind, int(rows.sum()))
        mean, behind = self.site_mean(self._errors_of_rows(columns))
        entries = int(self.observed[:, columns].sum())
        return -mean * int(rows.sum()) / entries, min(behind, int(rows.sum()))

    @property
    def blocks(self) -> list[slice]:
        """Columns of every view."""
        return [self.model.layout.columns(view) for view in self.model.views]

    @cached_property
    def rows(self) -> Floats:
        """Rows, shape (n, d), NaN where missing."""
        sizes = {view: len(names) for view, names in self.model.columns.items()}
        return self.data.stacked(self.model.views, sizes)

    @cached_property
    def observed(self) -> NDArray[np.bool_]:
        """Entries that are not missing, shape (n, d)."""
        return np.isfinite(self.rows)

    @cached_property
    def errors(self) -> Floats:
        """Absolute reconstruction errors in standard deviations, shape (n, d), 0 where missing."""
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(self.rows - limited(self.model.rebuild(self.rows))) / self.model.deviation
        return np.where(self.observed, limited(errors), 0.0)

    @cached_property
    def log_likelihoods(self) -> Floats:
        """Log densities of rows, shape (n, 1 + k)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return limited(self.model.log_likelihoods(self.rows))

    def _with_entry(self, columns: slice) -> NDArray[np.bool_]:
        """Return flags of the records with an entry in some columns, shape (n,)."""
        return np.asarray(self.observed[:, columns].any(axis=1))

    def _errors_of_rows(self, columns: slice) -> Floats:
        """Return the sum of errors of every record with an entry in some columns."""
        return np.asarray(self.errors[self._with_entry(columns)][:, columns].sum(axis=1), dtype=np.float64)

    def _summed(self, terms: list[Floats]) -> tuple[Integers, int]:
        """Return sums over records and the fewest patients behind a non-empty sum; all if sums are masked."""
        totals, sizes = zip(*(self.summed(column) for column in terms), strict=True)
        numbers = [min(behind, len(column)) for behind, column in zip(sizes, terms, strict=True) if len(column)]
        return np.array(totals), self.n_records if self.masked else min(numbers, default=self.n_records)


MAE, LOG = "neg_mean_absolute_error", "log_likelihood"


@dataclass(frozen=True)
class RowScores:
    """Negative mean absolute reconstruction error (in standard deviations), and mean log density per record.

    For several views there is also one score per view, such as ``neg_mean_absolute_error/mri``. The log density of a
    view is its marginal density.

    Parameters
    ----------
    message : callable
        Converts a fitted estimator to the message for the sites.
    names, usual : tuple of str
        Names of all scores and of the default scores.
    """

    message: Callable[[Any], RowModel]
    names: tuple[str, ...]
    usual: tuple[str, ...]
    part: type[RowPart] = RowPart

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model via sums over records of all sites."""
        message = self.message(model)
        score = partial(self._score, views=message.views, names=names, by_site=by_site)
        return judge(federation, self.part, message, type(message).__name__, score)

    def _score(self, opened: Session, views: Sequence[str], names: Sequence[str], *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        n_records = np.nan
        if MAE in names:
            errors = total(opened, self.part.sum_errors, Nothing())
            absolute = np.array([unfixed(each) for each in errors.absolute])
            parts = -absolute / np.where(errors.entries, errors.entries, np.nan)
            values[MAE] = -float(absolute.sum() / errors.entries.sum())
            values |= {f"{MAE}/{view}": float(part) for view, part in zip(views, parts, strict=True)}
        if LOG in names:
            sums = total(opened, self.part.sum_densities, Nothing())
            densities = np.array([unfixed(each) for each in sums.log]) / np.where(sums.records, sums.records, np.nan)
            values[LOG], n_records = float(densities[0]), float(sums.records[0])
            values |= {f"{LOG}/{view}": float(part) for view, part in zip(views, densities[1:], strict=True)}
        if len(views) == 1:
            values = {name: values[name] for name in names}
        site_scores = request_site_scores(opened, self.part, tuple(values)) if by_site else SiteScores()
        refused, absent = site_scores.refused, opened.absent
        return Scores(values, n_records, site_scores.scores, refused=refused, left_out=absent)


LAWS = RowScores(row_law, (MAE, LOG), (MAE, LOG))
