"""Table 1: descriptive statistics of all patients and of groups, from sums over sites.

The fit consists of:

1. Each site returns the names of its columns, levels and classes. The coordinator checks that they are equal.
2. Each site returns orders of magnitude of its numeric variables. Their means over sites give the unit of each sum.
3. Each site counts its patients by group and level, and sums its numeric variables by group.
4. The coordinator sends the means. Each site returns sums of differences from them, which correct the means for
   rounding, and of their squares. If the squares of a variable are so small in their unit that masked sums may round
   them, the step is repeated in a finer unit.
5. With ``quartiles=True``, a search for quartiles of every numeric variable, overall and by group, via counts
   (:mod:`multicentre.statistics.quantiles`).
6. With ``histograms=True``, each site returns whether its values are multiples of steps such as 1 and 0.1. The
   coordinator sends bins, each of one value if there is a step, and the sites count their patients by bin and group.
7. With ``correlations=True``, the coordinator sends means and standard deviations, and the sites sum products. With
   ``histograms=True`` it then sends the mean rank of each bin, and the sites sum products of ranks.

If a site is lost, the fit begins again with the other sites.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.bins import QUARTILE_RANGE, STEPS, choose_grid
from multicentre.analytics.describe.histograms import Histograms
from multicentre.analytics.describe.maths import MIN_OF_QUARTILES, correlations, means
from multicentre.analytics.describe.messages import (
    BinEdges,
    Counts,
    Described,
    Groups,
    Magnitudes,
    Means,
    Products,
    RankScores,
    ResolutionFlag,
    Squares,
    Standard,
    Units,
)
from multicentre.analytics.describe.published import Published
from multicentre.analytics.describe.results import DescribeResults
from multicentre.analytics.describe.site import MAX_DIGITS, OUTCOME, DescribeSite
from multicentre.analytics.describe.units import MORE_DIGITS, agree_exponents, need_finer, recentre
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.categories import families, join_level, split_level
from multicentre.data.schema import agree_tables
from multicentre.errors import ConfigurationError, nearest_name
from multicentre.estimator.model_in_force import Phrases
from multicentre.estimator.parameters import Flag, Integer, ParameterRanges, Where
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes, saved_message
from multicentre.statistics.quantiles import find_quantiles

Floats = NDArray[np.float64]
# Binary digits of a value that the search for quartiles distinguishes, and those that one call adds. A variable whose
# values are far from 0 needs more digits; each call then adds fewer, so that cells are not narrower than needed.
QUARTILE_DIGITS, DIGITS_PER_CALL, FEWER_PER_CALL = 24, 8, 4
# Widest cell of a quartile that is not a multiple of a step, in standard deviations.
WIDEST = 1 / 16
# Two patients always have a correlation of 1 or -1.
MIN_PAIRS = 3
_NAME = (None, Where("the name of a variable", lambda value: isinstance(value, str) and bool(value)))


# Shares of the patients below the quartiles.
QUARTERS = np.array([0.25, 0.5, 0.75])


class Describe(DescribeResults):
    """Descriptive statistics (Table 1): counts, means and quartiles of all patients and of groups, and differences.

    Sites hold ``TableData``. The outcome is a variable with the name of its column, or "outcome" if it is unnamed.

    Parameters
    ----------
    by : str, optional
        Variable whose levels are the groups: a category, a column of `categorical`, or "outcome" if it is a class. By
        default there are no groups.
    categorical : sequence of str, default ()
        Columns of zeros and ones that are counted instead of averaged.
    quartiles : bool, default True
        Search for medians and quartiles, which takes four more calls. They are those of ``numpy.quantile`` on the
        pooled patients: exactly if the values are multiples of a step (whole numbers, tenths, ...) that is not too fine
        for their size, and otherwise within a 4096th of the value or, if values are far from 0, a 16th of the standard
        deviation, as ``quartiles_exact_`` states; up to ten calls are needed then.
    histograms : bool, default False
        Count patients in up to 256 bins of each numeric variable by group, for histograms and rank tests, which takes
        two calls. The coordinator receives counts of all sites by bin.
    correlations : bool, default False
        Compute Pearson's correlations of the numeric variables, which takes one call, and with ``histograms=True`` also
        Spearman's, which takes another one.
    min_cell : int, default 5
        Smallest count that the table shows. Smaller counts, except 0, and further counts from which they would follow,
        are left out.

    Raises
    ------
    ConfigurationError
        `by` or `categorical` does not name a variable of this kind.
    DataError
        A column of `categorical` has values other than 0 and 1.
    SchemaMismatch
        Sites differ in columns, levels or classes.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(60, 10, 300), rng.integers(0, 2, 300)])
    >>> data = mc.data.TableData(X, rng.integers(0, 2, 300), columns=["age", "smoker"], classes=["alive", "dead"])
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.analytics.Describe(by="outcome", categorical=["smoker"], quartiles=False).fit(federation)
    >>> print(model.to_frame()["overall"].to_string())
    n                            300
    age, mean (SD)       59.6 (10.2)
    smoker = 0, n (%)     142 (47.3)
    smoker = 1, n (%)     158 (52.7)
    """

    site_part: ClassVar[type[SitePart]] = DescribeSite
    model_phrases: ClassVar[Phrases] = {
        "by": "by {}",
        "categorical": "{} counted as categories",
        "quartiles": {True: "medians and quartiles", False: "without quartiles"},
        "histograms": {True: "histograms and rank tests", False: ""},
        "correlations": {True: "correlations", False: ""},
        "min_cell": lambda model: (
            f"counts below {model.min_cell} not shown" if model.min_cell > 1 else "all counts shown"
        ),
    }
    parameter_ranges: ClassVar[ParameterRanges] = {
        "by": _NAME,
        "categorical": Where(
            "a list of names",
            lambda value: (
                not isinstance(value, str)
                and isinstance(value, Sequence)
                and all(isinstance(name, str) for name in value)
            ),
        ),
        "quartiles": Flag(),
        "histograms": Flag(),
        "correlations": Flag(),
        "min_cell": Integer(0),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        "groups_": saved_message(Groups),
        "published_": Saved(Published.to_dict, Published.from_dict),
        "off_steps_": PLAIN,
        "quartiles_": PLAIN,
        "quartiles_exact_": PLAIN,
        "correlations_": PLAIN,
        "rank_correlations_": PLAIN,
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"quartiles_", "correlations_", "rank_correlations_"})

    def __init__(
        self,
        by: str | None = None,
        *,
        categorical: Sequence[str] = (),
        quartiles: bool = True,
        histograms: bool = False,
        correlations: bool = False,
        min_cell: int = 5,
    ) -> None:
        self.by = by
        self.categorical = categorical
        self.quartiles = quartiles
        self.histograms = histograms
        self.correlations = correlations
        self.min_cell = min_cell

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {"describe", "find_magnitudes", "count_groups", "sum_squares", "describe_site", "check_quality"}
        steps |= {"count_below"} if self.quartiles else set()
        steps |= {"find_steps"} if self.quartiles or self.histograms else set()
        steps |= {"count_bins"} if self.histograms else set()
        steps |= {"sum_products"} if self.correlations else set()
        return frozenset(steps | {"sum_rank_products"} if self.correlations and self.histograms else steps)

    def _fit(self, session: Session) -> None:
        described = session.once("described", Described, lambda: _agreed(session.ask(DescribeSite.describe, Nothing())))
        self._published = None
        self.groups_ = groups = self._plan(described)
        self.counts_, self.squares_ = self._sum_numbers(session, groups)
        self.off_steps_ = self._find_steps(session)
        self.quartiles_, self.quartiles_exact_ = self._search(session)
        self.histograms_ = Histograms.none()
        if self.histograms and groups.numbers:
            self.histograms_ = session.once("histograms", Histograms, lambda: self._count(session))
        self.correlations_ = np.full((len(groups.numbers), len(groups.numbers)), np.nan)
        if self.correlations and groups.numbers:
            self.correlations_ = self._correlate(session)
        self.rank_correlations_ = np.full(self.correlations_.shape, np.nan)
        if self.correlations and not self.histograms_.is_empty:
            self.rank_correlations_ = self._correlate_ranks(session)
        self.history_ = []

    def _sum_numbers(self, session: Session, groups: Groups) -> tuple[Counts, Squares]:
        """Return counts and sums, and sums of squared differences from the means, in the units of the data."""
        sizes = session.once("magnitudes", Magnitudes, lambda: session.sum(DescribeSite.find_magnitudes, groups))
        magnitude, exponent = agree_exponents(sizes.sites, sizes.exponent)
        units = Units(**self._fields(), exponent=magnitude)
        counts = session.once("counts", Counts, lambda: session.sum(DescribeSite.count_groups, units))
        counts = replace(counts, total=counts.total * np.exp2(magnitude))
        mean = np.nan_to_num(means(counts.present.astype(np.float64), counts.total))
        varies, attempts = sizes.sites[1] > 0, itertools.count(1)
        while True:
            request = Means(**self._fields(), exponent=exponent, mean=mean)
            name = f"squares-{next(attempts)}"
            squares = session.once(name, Squares, partial(session.sum, DescribeSite.sum_squares, request))
            is_small = need_finer(squares.squares.sum(axis=0), magnitude, exponent, varies, len(session.sites))
            if not is_small.any():
                return recentre(counts, squares, mean, np.exp2(exponent))
            exponent = np.where(is_small, exponent - MORE_DIGITS, exponent)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self.groups_, name) for name in Groups.declarations()}

    def _count(self, session: Session) -> Histograms:
        """Agree on bins and count the patients of all sites in them."""
        moments = self._table().moments
        quarters = self.quartiles_[0]
        centre = np.where(np.isfinite(quarters[:, 1]), quarters[:, 1], moments.mean[0])
        deviation = np.nan_to_num(moments.deviation[0])
        spread = (quarters[:, 2] - quarters[:, 0]) / QUARTILE_RANGE
        spread = np.where(np.nan_to_num(spread) > 0, spread, deviation)
        grid = choose_grid(centre, spread, deviation, self.off_steps_)
        edges = BinEdges(**self._fields(), low=grid.low, width=grid.width)
        counts = session.sum(DescribeSite.count_bins, edges).counts
        return Histograms(counts, grid.low, grid.width, grid.step, np.nan_to_num(centre), spread)

    def _correlate(self, session: Session) -> Floats:
        moments = self._table().moments
        deviation = moments.deviation[0]
        scale = np.where(np.nan_to_num(deviation) > 0, deviation, 1.0)
        request = Standard(**self._fields(), mean=np.nan_to_num(moments.mean[0]), deviation=scale)
        sums = session.once("products", Products, lambda: session.sum(DescribeSite.sum_products, request))
        return self._correlations_of(sums)

    def _correlate_ranks(self, session: Session) -> Floats:
        bins = self.histograms_
        request = RankScores(**self._fields(), low=bins.low, width=bins.width, score=bins.mean_ranks())
        sums = session.once("rank-products", Products, lambda: session.sum(DescribeSite.sum_rank_products, request))
        return self._correlations_of(sums)

    def _correlations_of(self, sums: Products) -> Floats:
        least = max(int(self.min_cell), MIN_PAIRS)
        return correlations(sums.pairs, sums.total, sums.squares, sums.products, least)

    def _plan(self, described: Described) -> Groups:
        """Return groups and variables for the columns of the sites."""
        by_category = families(described.levels)
        levels = [name for names in by_category.values() for name in names]
        absent = [name for name in self.categorical if name not in described.columns]
        if absent:
            raise ConfigurationError(
                f"categorical must name columns; got {', '.join(absent)}",
                where="categorical",
                hint=f"The columns are {', '.join(described.columns[:10])}.",
            )
        levels += [join_level(name, level) for name in self.categorical for level in ("0", "1")]
        others = {*described.levels, *self.categorical}
        numbers = [name for name in described.columns if name not in others]
        outcome = next(iter(described.outcome), OUTCOME)
        if described.classes:
            levels += [join_level(outcome, level) for level in described.classes]
        elif outcome not in numbers:
            numbers.append(outcome)
        by = outcome if self.by == OUTCOME and OUTCOME not in described.columns else self.by
        group_levels = tuple(level for variable, level in map(split_level, levels) if variable == by)
        if self.by and not group_levels:
            categories = families(levels)
            raise ConfigurationError(
                f"by must name a category, a column of categorical, or the outcome if it is a class; got {self.by!r}",
                where="by",
                hint=f"{nearest_name([self.by], categories)}Categories are {', '.join(categories) or 'none'}.",
            )
        other_levels = tuple(name for name in levels if split_level(name)[0] != by)
        return Groups(by or "", group_levels, tuple(numbers), other_levels)

    def _find_steps(self, session: Session) -> NDArray[np.bool_]:
        """Return whether some value of a variable is not a multiple of a step, shape (d, len(STEPS))."""
        if not (self.quartiles or self.histograms) or not self.groups_.numbers:
            return np.ones((len(self.groups_.numbers), len(STEPS)), dtype=np.bool_)
        off = session.once("steps", ResolutionFlag, lambda: session.sum(DescribeSite.find_steps, self.groups_))
        return np.asarray(off.sites > 0, dtype=np.bool_)

    def _search(self, session: Session) -> tuple[Floats, NDArray[np.bool_]]:
        """Return quartiles by group (all patients first), variable and quarter, and whether they are exact."""
        n_groups, d = max(len(self.groups_.group_levels), 1), len(self.groups_.numbers)
        shape = (n_groups + 1, d, len(QUARTERS))
        if not self.quartiles or not d:
            return np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        coarsest = [
            next((step for step, is_off in zip(STEPS, row, strict=True) if not is_off), 0.0)
            for row in self.off_steps_.tolist()
        ]
        self.quartiles_, self.histograms_ = np.full(shape, np.nan), Histograms.none()  # a table has moments before
        steps, moments = np.array(coarsest), self._table().moments
        digits = digits_of(moments.mean[0], moments.deviation[0], steps)
        quantiles = find_quantiles(
            session,
            DescribeSite,
            n_columns=(n_groups + 1) * d,
            shares=QUARTERS,
            bits=DIGITS_PER_CALL if (digits <= QUARTILE_DIGITS).all() else FEWER_PER_CALL,
            finest=np.tile(np.minimum(digits, MAX_DIGITS), n_groups + 1),
            fewest=max(int(self.min_cell), MIN_OF_QUARTILES),
            name="quartiles",
        )
        values, is_exact = quantiles.values(np.tile(steps, n_groups + 1))
        values, is_exact = values.reshape(shape), is_exact.reshape(shape)
        is_too_fine = digits > MAX_DIGITS
        values[:, is_too_fine], is_exact[:, is_too_fine] = np.nan, False
        self._warn_of_far_values(is_too_fine)
        return values, is_exact

    def _warn_of_far_values(self, is_too_fine: NDArray[np.bool_]) -> None:
        if not is_too_fine.any():
            return
        names = [self.groups_.numbers[place] for place in np.flatnonzero(is_too_fine).tolist()]
        warnings.warn(
            f"{', '.join(names[:6])}: the values are too far from 0 for quartiles, which are missing. Subtract a "
            "constant from the column.",
            UserWarning,
            stacklevel=5,
        )


def digits_of(mean: Floats, deviation: Floats, steps: Floats) -> NDArray[np.int64]:
    """Return the binary digits of quartiles, shape (d,), for cells of a 16th of the deviation or of a step.

    Examples
    --------
    >>> digits_of(np.array([60.0, 1e7, 1e7]), np.array([9.0, 15.0, 15.0]), np.array([0.0, 1.0, 0.0])).tolist()
    [24, 36, 36]
    """
    size, deviation = np.abs(np.nan_to_num(mean)) + 3.0 * np.nan_to_num(deviation), np.nan_to_num(deviation)
    widest = np.maximum(WIDEST * deviation, steps)
    varies = (deviation > 0) & (size > 0)
    # Cells of 24 digits at values from 2^e to 2^(e + 1) have a width of 2^(e - 12).
    excess = np.zeros(len(size))
    excess[varies] = np.floor(np.log2(size[varies])) - 12 - np.log2(widest[varies])
    return QUARTILE_DIGITS + FEWER_PER_CALL * np.ceil(np.maximum(excess, 0.0) / FEWER_PER_CALL).astype(np.int64)


def _agreed(answers: Mapping[str, Described]) -> Described:
    """Return the description that all sites share; the outcome is unnamed if they name it differently."""
    agreed = agree_tables(answers)
    names = {answer.outcome for answer in answers.values()}
    return agreed if len(names) == 1 else replace(agreed, outcome=())
