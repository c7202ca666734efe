"""Messages of the descriptive table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, text, texts
from multicentre.core.steps import Release

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Bounds of a site's counts and sums, for masking; as in survival methods.
PATIENTS, TOTAL = 2.0**24, 2.0**36
# Bound of exponents; units.py clips them to 500.
EXPONENT = 2.0**10


@dataclass(frozen=True)
class Described(Release):
    """Names of columns, levels and classes; independent of patients' values."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    classes: tuple[str, ...] = texts("classes of the outcome; none for a number", public=True)
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())
    outcome: tuple[str, ...] = texts("name of the outcome; none if it is unnamed", public=True, default=())


@dataclass(frozen=True)
class Groups(Message):
    """Groups that are compared, and the variables."""

    by: str = text("variable whose levels are the groups; empty for none")
    group_levels: tuple[str, ...] = texts("levels of that variable")
    numbers: tuple[str, ...] = texts("numeric variables")
    levels: tuple[str, ...] = texts("levels of the other variables, as name=level")


@dataclass(frozen=True)
class Units(Groups):
    """Units in which the numeric variables are summed."""

    exponent: Integers = array("exponent of two of the unit of each variable", ("d",), dtype="i8")


@dataclass(frozen=True)
class Means(Units):
    """Means of the numeric variables by group."""

    mean: Floats = array("mean by group and variable", ("g", "d"))


@dataclass(frozen=True)
class Magnitudes(Release):
    """Orders of magnitude of the numeric variables: of their size, and of their standard deviation."""

    sites: Integers = array(
        "1 if a variable has numbers other than 0, and if it has different numbers; else 0",
        ("m", "d"),
        dtype="i8",
        bound=1.0,
    )
    exponent: Integers = array(
        "exponents of the powers of two nearest to root mean square and standard deviation",
        ("m", "d"),
        dtype="i8",
        bound=EXPONENT,
    )


@dataclass(frozen=True)
class Counts(Release):
    """Counts by group, and sums of the numeric variables; patients without a group are the last group."""

    n_patients: Integers = array("patients of each group", ("g",), dtype="i8", bound=PATIENTS, counts=True)
    present: Integers = array(
        "patients with a number, by group and variable", ("g", "d"), dtype="i8", bound=PATIENTS, counts=True
    )
    levels: Integers = array("patients by group and level", ("g", "l"), dtype="i8", bound=PATIENTS, counts=True)
    total: Floats = array("sum of the numbers by group and variable, in their unit", ("g", "d"), bound=TOTAL)


@dataclass(frozen=True)
class Squares(Release):
    """Sums for the variances of the numeric variables."""

    shift: Floats = array(
        "sum of differences from the mean, by group and variable, in the unit", ("g", "d"), bound=TOTAL
    )
    squares: Floats = array(
        "sum of squared differences from the mean, by group and variable, in the squared unit", ("g", "d"), bound=TOTAL
    )


@dataclass(frozen=True)
class SiteSummary(Release):
    """Counts, means and standard deviations of one site."""

    n_patients: Integers = array("patients", (1,), dtype="i8")
    present: Integers = array("patients with a number, by variable", ("d",), dtype="i8")
    levels: Integers = array("patients by level", ("l",), dtype="i8")
    mean: Floats = array("mean of every numeric variable; 0 without patients", ("d",))
    deviation: Floats = array("standard deviation of every numeric variable; 0 for fewer than two patients", ("d",))


@dataclass(frozen=True)
class ResolutionFlag(Release):
    """Flags of values that are not multiples of a step; their sum is a number of sites."""

    sites: Integers = array("1 if a value is not a multiple, by variable and step", ("d", "t"), dtype="i8", bound=1.0)


@dataclass(frozen=True)
class BinEdges(Groups):
    """Bins of equal width for each numeric variable."""

    low: Floats = array("lower edge of the first bin of each variable", ("d",))
    width: Floats = array("width of the bins of each variable", ("d",))


@dataclass(frozen=True)
class BinCounts(Release):
    """Counts of each numeric variable by group and bin."""

    counts: Integers = array(
        "patients by group, variable and bin; the first and the last bin are open",
        ("g", "d", "b"),
        dtype="i8",
        bound=PATIENTS,
        counts=True,
    )


@dataclass(frozen=True)
class Standard(Groups):
    """Means and standard deviations of the numeric variables, for correlations."""

    mean: Floats = array("mean of each variable", ("d",))
    deviation: Floats = array("standard deviation of each variable; 1 where it is 0", ("d",))


@dataclass(frozen=True)
class RankScores(BinEdges):
    """Mean rank of each bin among the patients of all sites, for rank correlations."""

    score: Floats = array("mean rank of each bin of each variable; the counts of the bins follow", ("d", "b"))


@dataclass(frozen=True)
class Products(Release):
    """Sums of standardised variables, or of their scores, over the patients with both variables of a pair."""

    pairs: Integers = array("patients with both variables", ("d", "d"), dtype="i8", bound=PATIENTS, counts=True)
    total: Floats = array("sum of the first variable", ("d", "d"), bound=TOTAL)
    squares: Floats = array("sum of squares of the first variable", ("d", "d"), bound=TOTAL)
    products: Floats = array("sum of products", ("d", "d"), bound=TOTAL)


@dataclass(frozen=True)
class SiteQuality(Release):
    """Rounded figures of one site, for comparison with other sites.

    A number that would rest on fewer patients than the policy's minimum is 0 or NaN instead.
    """

    present: Integers = array("patients with a number, by variable", ("d",), dtype="i8")
    moments: Floats = array("mean and standard deviation, by variable", ("d", 2), finite=False)
    quarters: Floats = array("quartiles to two digits, by variable", ("d", 3), finite=False)
    ends: Floats = array(
        "to two digits, values below and above which the minimum of patients are, by variable", ("d", 2), finite=False
    )
    spikes: Integers = array("patients with each code apart from other values, by variable", ("d", "k"), dtype="i8")
    uses: Integers = array("1 if the minimum of patients have the level", ("l",), dtype="i8")
