"""What scoring of numbers sends."""

from __future__ import annotations

from dataclasses import dataclass

from multicentre.federation.messages import Message, count, number
from multicentre.federation.steps import Release
from multicentre.validation.scoring.judging import LARGEST_FIXED, RECORDS


@dataclass(frozen=True)
class InUnits(Message):
    """The unit in which numbers are summed."""

    exponent: int = count("exponent of two of the unit", bound=2.0**10)


@dataclass(frozen=True)
class About(InUnits):
    """The unit, and the mean of the true numbers."""

    centre: float = number("mean over all sites, in the unit")


@dataclass(frozen=True)
class Order(Release):
    """How widely true numbers spread, to the nearest power of two."""

    sites: int = count("1 where they spread", bound=1.0)
    exponent: int = count("exponent of the power of two nearest to the standard deviation", bound=2.0**10, signed=True)


@dataclass(frozen=True)
class Sums(Release):
    """Records and their true numbers."""

    n_records: int = count("records", unit="records", bound=RECORDS)
    total: int = count("sum of the numbers in the unit, times 2^24", bound=LARGEST_FIXED, signed=True)


@dataclass(frozen=True)
class Errors(Release):
    """Sums of errors; whole numbers, so that they do not depend on how records are spread over sites."""

    absolute: int = count("sum of absolute errors in the unit, times 2^24", bound=LARGEST_FIXED)
    squared: int = count("sum of squared errors in the squared unit, times 2^24", bound=LARGEST_FIXED)
    spread: int = count("sum of squared distances to the mean, likewise", bound=LARGEST_FIXED)
