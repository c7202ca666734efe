"""Requests, answers and checkpoints of federated XGBoost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting.trees import TIME_DISTRIBUTIONS, check_margins, check_objective
from multicentre.core.messages import Message, array, count, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.errors import MessageError
from multicentre.trees import table
from multicentre.trees.table import NodeTable

Floats = NDArray[np.float32]

Integers = NDArray[np.int32]

Flags = NDArray[np.uint8]

Sums = NDArray[np.int64]

# Bound of a sum at one site: the sums of 512 sites then still fit a signed integer of 64 bits.
MAX_SUM = 2.0**54
# Bound of a count of records at one site: far above any site.
RECORDS = 2.0**40
# Exponents of two of outcomes, -100 to 119: about 1e-30 to 1e36, most of the range of single precision.
LOWEST_EXPONENT, N_EXPONENTS = -100, 220


@dataclass(frozen=True)
class Described(Release):
    """Names of the columns and classes of a site."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    classes: tuple[str, ...] = texts("names of the classes; none where numbers are predicted")
    digits: int = count("binary digits to which values are compared with cuts; it follows from the policy")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())


@dataclass(frozen=True)
class Roles(Message):
    """Columns that are not features."""

    weights: tuple[str, ...] = texts("column with the weights of the records; none for equal weights")
    margins: tuple[str, ...] = texts("columns with the first margins; none for a common one")
    events: tuple[str, ...] = texts("column with 1 where a time ends with the event, else 0", default=())

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns with a role."""
        return (*self.weights, *self.margins, *self.events)


@dataclass(frozen=True)
class OfClasses(Message):
    """Number of classes."""

    n_classes: int = count("classes")


@dataclass(frozen=True)
class ClassCounts(Release):
    """Records by class."""

    counts: Sums = array("records of every class", ("k",), dtype="i8", unit="records", bound=RECORDS, counts=True)


@dataclass(frozen=True)
class Magnitudes(Release):
    """Records by the order of magnitude of their outcome, or of their weight."""

    counts: Sums = array(
        "records by the exponent of two of their outcome or weight, from -100",
        (N_EXPONENTS,),
        dtype="i8",
        bound=RECORDS,
    )


@dataclass(frozen=True)
class InUnits(Message):
    """Units of the sums of outcomes and of weights."""

    exponent: int = count("exponent of two of the unit")
    weight_exponent: float | None = number(
        "exponent of two of the unit of weights; none for equal weights", optional=True
    )


@dataclass(frozen=True)
class Outcomes(Release):
    """Sum of the outcomes."""

    total: Sums = array(
        "weighted sum of the outcomes in the unit, and number of records or sum of weights",
        (2,),
        dtype="i8",
        bound=MAX_SUM,
    )


@dataclass(frozen=True)
class Cuts(Message):
    """Cuts of every column, one column after the other."""

    cuts: Floats = array("values below a cut are in the bins before it", ("c",), dtype="f4")
    n_cuts: Integers = array("cuts of every column", ("d",), dtype="i4")

    @cached_property
    def n_bins(self) -> Sums:
        """Number of bins per column, shape (d,), without the cell of missing values."""
        return self.n_cuts.astype(np.int64) + 1

    @property
    def first(self) -> Sums:
        """First cell per column, and the end, shape (d + 1,); one cell per bin and one for missing values."""
        return np.append(0, np.cumsum(self.n_bins + 1)).astype(np.int64)


@dataclass(frozen=True)
class Start(Cuts):
    """Settings that all sites agree on before the first tree."""

    objective: str = text("loss, by its name in xgboost")
    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order; none for numbers")
    base: Floats = array("margin that all records start from", ("k",), dtype="f4")
    positive: float = number("weight of the records of the second class")
    slope_exponent: int = count("exponent of two of the unit of slopes")
    curvature_exponent: int = count("exponent of two of the unit of curvatures")
    loss_exponent: int = count("exponent of two of the unit of losses")
    weight_exponent: float | None = number(
        "exponent of two of the unit of weights; none for equal weights", optional=True
    )
    subsample: float | None = number("share of the records that a round uses; none for all", optional=True)
    seed: float | None = number("seed of the draws of records", optional=True)
    power: float | None = number("power of the mean in the variance of a Tweedie outcome", optional=True)
    scale: float | None = number("scale of the log times of survival:aft", optional=True)
    distribution: tuple[str, ...] = texts("distribution of the log times of survival:aft", default=())
    events: tuple[str, ...] = texts("column with 1 where a time ends with the event, else 0", default=())
    weights: tuple[str, ...] = texts("column with the weights of the records", default=())
    margins: tuple[str, ...] = texts("columns with the first margins", default=())
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())

    @property
    def roles(self) -> Roles:
        """Columns that are not features."""
        return Roles(self.weights, self.margins, events=self.events)


@dataclass(frozen=True)
class Trees(NodeTable):
    """Trees one after the other, on bins; a cut of -1 sends missing values alone to the left."""

    default_left: Flags = array("1 where missing values go left", ("m",), dtype="u1")
    value: Floats = array("what a leaf adds to the margin", ("m",), dtype="f4")

    @property
    def splits(self) -> tuple[Integers, Integers, Integers, Flags, Integers]:
        """Roots, and of each node its column, cut, side of missing values and left child."""
        return self.roots, self.column, self.cut, self.default_left, self.left

    @property
    def trees(self) -> Trees:
        """Trees without other fields."""
        return self.only(Trees)


@dataclass(frozen=True)
class Finished(Trees):
    """Trees that the coordinator finished after the first `since` rounds."""

    since: int = count("rounds that the site already has")


@dataclass(frozen=True)
class Level(table.Level, Finished):
    """Finished trees, followed by the growing ones of this round, and the leaves for which sums are requested."""

    counted: bool = flag("numbers of records are wanted next to the sums")


@dataclass(frozen=True)
class Histograms(Release):
    """Sums over records by node and cell; whole numbers, so that their order does not matter."""

    sums: Sums = array(
        "slopes and curvatures of the loss, and numbers of records if requested; "
        "the model shows ratios of totals over all sites, its leaves, and so the outcomes in a leaf of few records",
        ("s", "q", "z"),
        dtype="i8",
        bound=MAX_SUM,
    )
    losses: Sums = array(
        "sum of the losses before the present round, and records or their weight", (2,), dtype="i8", bound=MAX_SUM
    )


@dataclass(frozen=True)
class Losses(Release):
    """Sum of the losses under the trees so far."""

    losses: Sums = array("sum of the losses, and number of records or their weight", (2,), dtype="i8", bound=MAX_SUM)


@dataclass(frozen=True)
class Ranking(Finished):
    """Trees so far, and borders of margins between which records are counted."""

    borders: Floats = array("margins below a border are in the cells before it", ("w",), dtype="f4")


@dataclass(frozen=True)
class Ranked(Release):
    """Records by class and cell of their margin."""

    sums: Sums = array(
        "records of the first and of the second class, or their weight, by cell",
        (2, "r"),
        dtype="i8",
        bound=MAX_SUM,
    )


@dataclass(frozen=True)
class Memory(Start, Trees):
    """State of a site: the agreed settings and the trees so far. Margins follow from them."""


@dataclass(frozen=True)
class BuiltTrees(Trees):
    """State of the coordinator: the trees so far with the statistics of their nodes."""

    gain: Floats = array("by how much a split lowered the loss", ("m",), dtype="f4")
    cover: Floats = array("sum of the loss's curvatures", ("m",), dtype="f4")
    weight: Floats = array("Newton step of a node", ("m",), dtype="f4")


# Largest number of cuts per column: 1024 bins, four times xgboost's default.
MAX_CUTS = 1023
# Largest number of rounds: a bound of the memory and time that a request takes at a site.
MAX_ROUNDS = 100_000
# Largest number of cells of an answer: 384 MiB of sums with counts.
MAX_CELLS = 2**24
# Largest number of borders of margins: four times as many as the search uses.
MAX_BORDERS = 2**14
# Largest first margin, so that sums of margins stay finite in single precision.
MAX_BASE = 1e30
# Largest scale of log times: a time then spans more orders of magnitude than single precision.
MAX_SCALE = 1e3
# Largest weight of a record: above survey weights, which are numbers of persons that a record represents.
MAX_RECORD_WEIGHT = 1e6
# Largest weight of the second class: far above useful ratios of classes.
MAX_WEIGHT = 1e4
# Exponents of units: wide enough for squares of outcomes in single precision, with DIGITS digits.
EXPONENTS = range(-260, 260)


def check_start(request: Start, n_columns: int) -> None:
    """Raise MessageError unless cuts increase within each column and all other fields are in range."""
    check_cuts(request, n_columns)
    check_objective(request.objective, len(request.classes), len(request.base))
    exponents = (request.slope_exponent, request.curvature_exponent, request.loss_exponent)
    if not (np.abs(request.base) <= MAX_BASE).all():
        raise MessageError(
            f"margins must be at most {MAX_BASE:g} in magnitude; got {np.abs(request.base).max():g}",
            where="Start.base",
        )
    if not 0 < request.positive <= MAX_WEIGHT:
        raise MessageError(
            f"the weight must be above 0 and at most {MAX_WEIGHT:g}; got {request.positive:g}",
            where="Start.positive",
        )
    if not all(each in EXPONENTS for each in exponents):
        expected = f"from {EXPONENTS[0]} to {EXPONENTS[-1]}"
        raise MessageError(f"exponents of units must be {expected}; got {exponents}", where="Start")
    check_margins(request.objective, request.base, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))
    _check_options(request)


def _check_options(request: Start) -> None:
    """Raise MessageError unless the sampling, the weights and the power are in range and complete."""
    tweedie, sampled = request.objective == "reg:tweedie", request.subsample is not None
    power, share, seed = request.power, request.subsample, request.seed
    if tweedie != (power is not None) or (power is not None and not 1 < power < 2):
        raise MessageError(
            f"the power must be above 1 and below 2 for reg:tweedie only; got {power}", where="Start.power"
        )
    of_times, scale = request.objective == "survival:aft", request.scale
    is_complete = len(request.distribution) == of_times and set(request.distribution) <= set(TIME_DISTRIBUTIONS)
    is_complete &= of_times == (scale is not None) and len(request.events) <= of_times
    if not is_complete or (scale is not None and not 0 < scale <= MAX_SCALE):
        raise MessageError(
            f"survival:aft, and no other objective, must have a distribution and a scale; got {request.distribution} "
            f"and {scale}",
            where="Start.distribution",
        )
    if sampled != (seed is not None) or (share is not None and not 0 < share < 1):
        raise MessageError(f"the share must be between 0 and 1, with a seed; got {share}", where="Start.subsample")
    if bool(request.weights) != (request.weight_exponent is not None) or len(request.weights) > 1:
        raise MessageError(
            f"one column of weights and their unit must be sent together; got {len(request.weights)} columns",
            where="Start.weights",
        )
    if request.weight_exponent is not None and request.weight_exponent not in EXPONENTS:
        raise MessageError(
            f"exponents of units must be from {EXPONENTS[0]} to {EXPONENTS[-1]}; got {request.weight_exponent}",
            where="Start.weight_exponent",
        )
    if len(request.margins) not in (0, len(request.base)) or (request.margins and request.base.any()):
        raise MessageError(
            f"columns of first margins must be none or {len(request.base)}, and the common margin then 0; "
            f"got {len(request.margins)}",
            where="Start.margins",
        )


def check_cuts(cuts: Cuts, n_columns: int) -> None:
    """Raise MessageError unless each column has at most 1023 cuts in increasing order.

    Examples
    --------
    >>> check_cuts(Cuts(np.array([1, 2], dtype=np.float32), np.array([2, 0], dtype=np.int32)), 2)
    """
    n_cuts = cuts.n_cuts.astype(np.int64)
    if len(n_cuts) != n_columns or (n_cuts < 0).any() or (n_cuts > MAX_CUTS).any() or n_cuts.sum() != len(cuts.cuts):
        hint = f"Use at most {MAX_CUTS} cuts per column."
        raise MessageError(
            f"cuts must be at most {MAX_CUTS} for each of {n_columns} columns; got numbers of {len(n_cuts)} columns",
            where="Cuts.n_cuts",
            hint=hint,
        )
    ends = np.cumsum(n_cuts)
    rises = np.diff(cuts.cuts) > 0
    between = ends[:-1][(ends[:-1] > 0) & (ends[:-1] < len(cuts.cuts))] - 1
    rises[between] = True
    if not rises.all():
        raise MessageError("cuts of a column must increase; got equal or decreasing cuts", where="Cuts.cuts")


def check_trees(request: Finished, n_bins: NDArray[np.int64], n_groups: int) -> None:
    """Raise MessageError unless the trees are whole rounds, one tree per margin, on these columns and bins."""
    n_trees = len(request.roots)
    if not 0 <= request.since <= MAX_ROUNDS or n_trees > MAX_ROUNDS * n_groups or n_trees % n_groups:
        raise MessageError(
            f"trees must be complete rounds of {n_groups} trees; got {n_trees} trees", where="Finished.since"
        )
    table.check_splits(request, n_bins, lowest=-1)


def check_level(request: Level, n_bins: NDArray[np.int64], n_groups: int) -> None:
    """Raise MessageError unless the request is for different leaves of the last round."""
    check_trees(request, n_bins, n_groups)
    if len(request.roots) < n_groups:
        raise MessageError(f"growing trees must be {n_groups}; got {len(request.roots)}", where="Level.roots")
    table.check_leaves(request, request.wanted, int(request.roots[-n_groups]))
    n_cells = len(request.wanted) * (int(n_bins.sum()) + len(n_bins))
    if n_cells > MAX_CELLS:
        hint = "Lower max_depth or max_bins."
        raise MessageError(f"sums must have at most {MAX_CELLS} cells; got {n_cells}", where="Level.wanted", hint=hint)


def check_borders(borders: Floats) -> None:
    """Raise MessageError unless borders of margins increase and are few enough."""
    if not 1 <= len(borders) <= MAX_BORDERS or not (np.diff(borders) > 0).all():
        raise MessageError(
            f"borders must be 1 to {MAX_BORDERS} increasing margins; got {len(borders)}", where="Ranking.borders"
        )
