"""Agreement of the sites before the first round of a multi-view method: views, columns and scales.

The agreement takes four calls per site:

1. Each site names its views and columns; the coordinator checks that they agree.
2. A sum over sites gives the order of magnitude of each column, in which the next sums are expressed.
3. A sum over sites gives the mean of each column.
4. A sum over sites gives the standard deviation of each column about that mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from multicentre.core.messages import Lengths, Message, Nothing, array, count, flag, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, SitePart, step
from multicentre.data.blocks import place
from multicentre.data.multiview import MultiViewData
from multicentre.data.records import fewest_different
from multicentre.data.schema import Kind, MultiViewSchema, agree_schemas
from multicentre.errors import DataError, SchemaMismatch
from multicentre.estimator.base import Metric

Floats = NDArray[np.float64]

ViewScale = Literal["view", "feature", "none"]

SCALES: tuple[ViewScale, ...] = ("view", "feature", "none")

# Squares of spreads above it are normal doubles.
MIN_SPREAD = 2.0**-500

# A column whose spread is a smaller share of its mean is constant at a site: more than rounding of doubles makes of it.
CONSTANT = 1e-12

# Squares in the agreed unit, which is near the spread of a column, or near its value where it varies at no site.
# Rounding of masked sums of 50 sites is below, a difference of a thousandth between sites above.
MIN_SQUARES = 1e-5

# Blocks of a thousand columns then take 256 MB.
BLOCK_ROWS = 2**15


@dataclass(frozen=True)
class Description(Release):
    """Names of a site's views and columns; nothing about any patient."""

    views: tuple[str, ...] = texts("names of the views", public=True)
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True, public=True)
    kinds: dict[str, tuple[str, ...]] = texts("kind of each column: number or boolean", keyed=True, public=True)


@dataclass(frozen=True)
class Stacking(Message):
    """Order and widths of the agreed views in a stacked row."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    sizes: dict[str, int] = count("number of columns of each view", keyed=True)


@dataclass(frozen=True)
class Measured(Stacking):
    """The agreed views and a unit for every column, so that masked sums neither underflow nor overflow."""

    units: Floats = array("power of two near the column's spread", ("d",), unit="column's")


@dataclass(frozen=True)
class Centred(Stacking):
    """The agreed views and a centre for every column."""

    centre: Floats = array("mean of each column over all sites", ("d",), unit="column's")


@dataclass(frozen=True)
class CentredMeasured(Centred):
    """The agreed views, a centre and a unit for every column."""

    units: Floats = array("power of two near the column's spread", ("d",), unit="column's")


@dataclass(frozen=True)
class Orders(Release):
    """Magnitudes of one site's columns, to the nearest power of two; zeros for columns without an entry."""

    sites: Floats = array("1 for each column that has an entry at the site", ("d",), bound=1.0)
    varying: Floats = array("1 for each column that varies at the site", ("d",), bound=1.0)
    orders: Floats = array(
        "exponent of the power of two nearest to the standard deviation, of columns that vary", ("d",), bound=2.0**10
    )
    levels: Floats = array("exponent of the power of two nearest to the value, of the others", ("d",), bound=2.0**10)

    @property
    def units(self) -> Floats:
        """Power of two near each column's spread, or near its size where it varies at no site, shape (d,)."""
        spread = self.orders / np.maximum(self.varying, 1.0)
        size = self.levels / np.maximum(self.sites, 1.0)
        return np.asarray(2.0 ** np.rint(np.where(self.varying > 0.5, spread, size)))


@dataclass(frozen=True)
class Totals(Release):
    """Column sums of one site; zeros for views that it lacks."""

    observed: Floats = array("patients with an entry", ("d",), unit="patients", bound=2.0**40)
    total: Floats = array("sum of the entries", ("d",), unit="the agreed one", bound=2.0**36)
    sites: Floats = array("1 for each view that the site has", ("k",), bound=1.0)
    incomplete: int = count("1 if some patient has a view in part", bound=1.0)


@dataclass(frozen=True)
class Squares(Release):
    """Sums of squares of one site about the agreed centres."""

    squares: Floats = array(
        "sum of squared distances to the centre", ("d",), unit="the agreed one, squared", bound=2.0**36
    )


class MultiViewPart(SitePart):
    """Base of the site parts of multi-view methods: steps of the agreement on columns and scales."""

    holds: ClassVar[type] = MultiViewData
    data: MultiViewData
    sums_fields: ClassVar[bool] = True
    min_patients: ClassVar[int] = 3
    lengths: ClassVar[Lengths] = {"d": "columns of all views", "k": "views"}

    @step(releases=Description, when="once")
    def describe(self, request: Nothing) -> Description:
        """Return the names of views and columns, from which the coordinator detects sites that differ."""
        self.data.check_for_fit(self.min_patients)
        schema = self.data.schema
        columns = {view: tuple(schema.columns[view]) for view in schema.views}
        kinds = {view: tuple(str(kind) for kind in schema.kinds[view]) for view in schema.views}
        return Description(schema.views, columns, kinds, patients=self.fewest)

    @step(releases=Orders, when="once", summed=True)
    def column_orders(self, request: Stacking) -> Orders:
        """Return each column's order of magnitude: of its spread, or of its value if constant."""
        observed = self._count_entries(request)
        n = np.maximum(observed, 1.0)
        mean = sum(np.nansum(rows, axis=0) for rows in self.blocks(request)) / n
        variance = sum(np.nansum((rows - mean) ** 2, axis=0) for rows in self.blocks(request)) / n
        size, spread = np.abs(mean), np.sqrt(variance)
        varies = spread > CONSTANT * size
        return Orders(
            sites=(observed > 0).astype(np.float64),
            varying=varies.astype(np.float64),
            orders=np.where(varies, _exponents(spread), 0.0),
            levels=np.where(varies | (size == 0), 0.0, _exponents(size)),
            patients=self.behind(),
        )

    @step(releases=Totals, when="once", summed=True)
    def column_totals(self, request: Measured) -> Totals:
        """Count and sum the entries of every column, for the means over all sites."""
        has_view = np.array([float(view in self.data.views) for view in request.views])
        return Totals(
            observed=self._count_entries(request),
            total=np.asarray(sum(np.nansum(rows / request.units, axis=0) for rows in self.blocks(request))),
            sites=has_view,
            incomplete=int(self.data.has_missing_entries),
            patients=self.behind(),
        )

    @step(releases=Squares, when="once", summed=True)
    def column_squares(self, request: CentredMeasured) -> Squares:
        """Sum the squares about the means over all sites, for the scales."""
        squares = sum(
            np.nansum(((rows - request.centre) / request.units) ** 2, axis=0) for rows in self.blocks(request)
        )
        return Squares(np.asarray(squares), patients=self.behind())

    @cached_property
    def fewest(self) -> int:
        """Smallest number of patients behind a value of a release."""
        return min((int(n) for n in self.patient_counts() if n), default=0)

    def behind(self) -> int:
        """Return the number of patients behind sums over columns.

        Unmasked, this is the smallest number of patients whose value differs from that of all others in a column.
        """
        return self.fewest if self.masked else min(self.fewest, self._fewest_different)

    @cached_property
    def _fewest_different(self) -> int:
        return min(fewest_different(self.data.array(view)) for view in self.data.views)

    def patient_counts(self) -> Floats:
        """Return the number of patients behind each released value: those with an entry, by column."""
        return self._count_entries(Stacking(self.data.views, self.data.schema.sizes))

    def rows(self, stacking: Stacking) -> Floats:
        """Return the site's rows, shape (n, d), not-a-number where missing."""
        return self.data.stacked(stacking.views, stacking.sizes)

    def blocks(self, stacking: Stacking) -> Iterator[Floats]:
        """Yield the site's rows block by block, so that memory does not grow with the number of patients."""
        for start in range(0, len(self.data), BLOCK_ROWS):
            block = np.arange(start, min(start + BLOCK_ROWS, len(self.data)))
            yield self.data.take(block).stacked(stacking.views, stacking.sizes)

    def _count_entries(self, stacking: Stacking) -> Floats:
        return np.asarray(sum((~np.isnan(rows)).sum(axis=0, dtype=np.float64) for rows in self.blocks(stacking)))


@dataclass(frozen=True)
class Agreement(Message):
    """Views, columns and scales that the sites agreed on before the first round."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True)
    kinds: dict[str, tuple[str, ...]] = texts("kind of each column", keyed=True)
    centre: Floats = array("mean of each column", ("d",), unit="column's")
    deviation: Floats = array("standard deviation of each column", ("d",), unit="column's")
    observed: Floats = array("patients with an entry", ("d",), unit="patients")
    sites: Floats = array("sites that have the view", ("k",))
    incomplete: bool = flag("some patient at some site has a view in part")

    @property
    def schema(self) -> MultiViewSchema:
        """Views and columns."""
        return MultiViewSchema(self.views, self.columns, cast("Mapping[str, tuple[Kind, ...]]", self.kinds))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each view."""
        return {view: len(self.columns[view]) for view in self.views}

    @property
    def stacking(self) -> Stacking:
        """Order and widths of the views in a stacked row."""
        return Stacking(self.views, self.sizes)

    def units(self, scale: ViewScale) -> tuple[Floats, Floats]:
        """Return the centre and the divisor of every column, two arrays of shape (d,).

        Parameters
        ----------
        scale : {"view", "feature", "none"}
            One divisor per view (the root of its columns' mean variance), one per column, or one power of two for
            all columns, which changes only exponents and no digit of the fit.
        """
        if scale == "none":
            common = 2.0 ** np.rint(np.log2(np.median(self.deviation)))
            return np.zeros_like(self.centre), np.full_like(self.centre, common)
        if scale == "feature":
            return self.centre, self.deviation
        widths = list(self.sizes.values())
        starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
        variance = np.add.reduceat(self.deviation**2 * self.observed, starts) / np.add.reduceat(self.observed, starts)
        return self.centre, np.repeat(np.sqrt(variance), widths)


def check_columns(data: MultiViewData, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise DataError unless the data have some of the views, each with exactly these columns in this order."""
    shared_views = [view for view in data.views if view in columns]
    if not shared_views:
        raise DataError(
            f"data must have at least one of the views {', '.join(columns)}; got {', '.join(data.views)}",
            where="data",
            hint="Use data with the views of the fit.",
        )
    for view in shared_views:
        if tuple(data.columns[view]) != tuple(columns[view]):
            raise SchemaMismatch(
                f"columns must be those of the fit, in the same order; got {len(data.columns[view])} others",
                where=f"view {view!r}",
                hint=f"Use {', '.join(columns[view])}, in this order.",
            )


def agree(session: Session, part: type[MultiViewPart]) -> Agreement:
    """Agree on views, columns, means and deviations: one request to each site, then three sums.

    Raises
    ------
    SchemaMismatch
        Two sites describe a view differently.
    DataError
        A site's data cannot be fitted, the only site with a view was lost, or a column has no entry at any site or does
        not vary over all of them.
    """
    schema = agree_on_views(session, part)
    views, sizes = tuple(schema.views), dict(schema.sizes)
    orders = session.sum(part.column_orders, Stacking(views, sizes))
    _check_entries(schema, orders.sites)
    totals = session.sum(part.column_totals, Measured(views, sizes, orders.units))
    _check_entries(schema, totals.observed)
    centre = totals.total / totals.observed * orders.units
    squares = session.sum(part.column_squares, CentredMeasured(views, sizes, centre, orders.units)).squares
    _check_variation(schema, squares)
    return Agreement(
        views=tuple(schema.views),
        columns={view: tuple(schema.columns[view]) for view in schema.views},
        kinds={view: tuple(str(kind) for kind in schema.kinds[view]) for view in schema.views},
        centre=centre,
        deviation=np.sqrt(squares / totals.observed) * orders.units,
        observed=totals.observed,
        sites=totals.sites,
        incomplete=totals.incomplete > 0,
    )


def _exponents(sizes: Floats) -> Floats:
    return np.asarray(np.rint(np.log2(np.maximum(sizes, MIN_SPREAD))))


def _check_entries(schema: MultiViewSchema, counts: Floats) -> None:
    """Raise DataError where no site that takes part has an entry of a column."""
    of_view = "each view must be held by a site that takes part; got no site with the view"
    _refuse_columns(
        schema, counts < 0.5, of_view, "each column must have an entry at some site; got a column without entries"
    )


def _check_variation(schema: MultiViewSchema, squares: Floats) -> None:
    """Raise DataError where a column is the same for all patients of the sites that take part."""
    of_view = "each view must vary over the sites that take part; got a view without variation"
    _refuse_columns(
        schema,
        squares < MIN_SQUARES,
        of_view,
        "each column must vary over the patients of all sites; got a constant column",
    )


def _refuse_columns(schema: MultiViewSchema, refused: NDArray[np.bool_], of_view: str, of_column: str) -> None:
    start = 0
    for view in schema.views:
        columns = schema.columns[view]
        flags, start = refused[start : start + len(columns)], start + len(columns)
        if flags.all():
            hint = "Bring its site back, or leave the view out of the study."
            raise DataError(of_view, where=place(view), hint=hint)
        if flags.any():
            names = [name for name, flag in zip(columns, flags, strict=True) if flag]
            raise DataError(of_column, where=place(view, *names), hint="Leave the column out at every site.")


def agree_on_views(session: Session, part: type[MultiViewPart]) -> MultiViewSchema:
    """Return the schema that all sites share; the error names a site that differs."""
    descriptions = session.ask(part.describe, Nothing())
    schemas = {
        site: MultiViewSchema(answer.views, answer.columns, cast("Mapping[str, tuple[Kind, ...]]", answer.kinds))
        for site, answer in descriptions.items()
    }
    return agree_schemas(schemas)


SHARED_METRICS = {
    "mae": Metric(
        "MAE, test",
        "lower",
        "standard deviations",
        "mean absolute error of held-out patients' columns rebuilt from their latents",
    ),
    "accuracy": Metric(
        "accuracy in latent space",
        "higher",
        "",
        "share of held-out patients whose group linear discriminant analysis of the latents names",
    ),
}


def accuracy_of_groups(
    training: Floats, training_labels: Sequence[str], held_out: Floats, labels: Sequence[str]
) -> float:
    """Return the share of held-out patients whose group linear discriminant analysis predicts correctly.

    Parameters
    ----------
    training : array of shape (n, q)
        Latents to which the discriminant is fitted.
    training_labels : sequence of str
    held_out : array of shape (m, q)
    labels : sequence of str

    Returns
    -------
    float
        NaN if the training patients are all of one group.
    """
    if len(set(training_labels)) < 2:
        return float("nan")
    discriminant = LinearDiscriminantAnalysis().fit(training, np.asarray(training_labels))
    return float(discriminant.score(held_out, np.asarray(labels)))


def unit_of_errors(rows: Floats, deviation: Floats) -> Floats:
    """Return one over each column's standard deviation among these patients, so that fits compare in one unit.

    Parameters
    ----------
    rows : array of shape (n, d)
        Held-out patients, NaN where missing.
    deviation : array of shape (d,)
        Used for columns that do not vary among them.
    """
    has_values = (~np.isnan(rows)).sum(axis=0) > 1
    spread = deviation.copy()
    spread[has_values] = np.nanstd(rows[:, has_values], axis=0)
    return 1 / np.where(spread > 0, spread, deviation)
