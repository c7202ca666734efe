"""Fixed point that cannot overflow: every field of a summed release has a grid in the integers modulo 2**64.

A value v of a field stands as the whole number rint(v * 2**f). The fraction bits f are the most with which sites x
range x 2**f stays below 2**63, found in exact arithmetic before anything is asked, so that no sum of values within
their declared ranges can wrap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.federation.messages import check_range, place
from multicentre.federation.noise import Noise
from multicentre.federation.ranges import room_of
from multicentre.federation.steps import Release

Ring = NDArray[np.uint64]
_LARGEST = 2**63 - 1
_MOST_BITS = 1000


@dataclass(frozen=True)
class Grid:
    """Where the values of one field may lie.

    Parameters
    ----------
    capacity : float
        Largest magnitude of one site's value, room for noise included; above 0.
    fraction_bits : int
        Values are multiples of ``2**-fraction_bits``; below 0 for ranges beyond 2**63.
    is_whole : bool
        Values are whole numbers and are not rounded.
    """

    capacity: float
    fraction_bits: int
    is_whole: bool = False


@dataclass(frozen=True)
class SumTerms:
    """What holds for one field of a masked sum.

    Parameters
    ----------
    capacity : float
        Largest magnitude of one site's value; a site with a larger one refuses.
    rounding : float
        Largest error that fixed point adds to the sum, in the field's unit; 0 for whole numbers.
    """

    capacity: float
    rounding: float


def plan_grids(kind: type[Release], n_sites: int, noise: Noise | None = None) -> Mapping[str, Grid]:
    """Return the grid of every field of a summed release.

    Parameters
    ----------
    kind : type
        The release; every field declares ``bound``.
    n_sites : int
        Sites that the sum is taken over, at least 1.
    noise : Noise, optional
        The noise that each site adds; the range grows by 16 standard deviations of a Gaussian or 50 scales of a
        Laplace law (a tail below 1e-21 either way, before the field's own sampler cuts it).

    Raises
    ------
    ConfigurationError
        A field of whole numbers cannot be held: sites x range is 2**63 or more.

    Examples
    --------
    >>> from multicentre.federation.messages import count, number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=2.0**20)
    ...     n: int = count("patients", bound=1e6)
    >>> plan_grids(Ages, 4)["total"].fraction_bits, plan_grids(Ages, 4)["n"].fraction_bits
    (40, 0)
    """
    rooms = [room_of(kind, name, noise) for name in kind.declarations()]
    return _plan(kind, n_sites, tuple(rooms))  # type: ignore[arg-type]


def rounding(grid: Grid, n_sites: int) -> float:
    """Return the largest error that rounding adds to a sum over sites; 0 for whole numbers.

    Examples
    --------
    >>> rounding(Grid(1e6, 20), 4) == 4 * 2.0**-21
    True
    """
    return 0.0 if grid.is_whole else math.ldexp(n_sites, -(grid.fraction_bits + 1))


def sum_terms(kind: type[Release], n_sites: int, noise: Noise | None = None) -> dict[str, SumTerms]:
    """Return range and rounding of every field of a masked sum, for cards and reports.

    Parameters and errors are those of :func:`plan_grids`.

    Examples
    --------
    >>> from multicentre.federation.messages import number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=1e6)
    >>> sum_terms(Ages, 3)["total"]
    SumTerms(capacity=1000000.0, rounding=6.82...e-13)
    """
    grids = plan_grids(kind, n_sites, noise)
    return {name: SumTerms(grid.capacity, rounding(grid, n_sites)) for name, grid in grids.items()}


def check_values(release: Release, grids: Mapping[str, Grid], where: str) -> None:
    """Raise DisclosureRefused if a value lies beyond its range or is not a number; nothing is clipped.

    Examples
    --------
    >>> from multicentre.federation.messages import number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=1e6)
    >>> check_values(Ages(2e6), plan_grids(Ages, 3), "lyon")
    Traceback (most recent call last):
        ...
    multicentre.federation.errors.DisclosureRefused: lyon, Ages.total: a value is beyond the declared range of 1e+06...
    """
    for name, key, _, value in release.items():
        values, capacity = np.asarray(value), grids[name].capacity
        if values.size and not (-capacity <= values.min().item() and values.max().item() <= capacity):
            raise DisclosureRefused(
                f"a value is beyond the declared range of {capacity:.3g}",
                where=f"{where}, {place(type(release), name, key)}",
                mend="Look for a wrong unit or an outlier in the column behind it, or scale the column.",
            )


def to_ring(values: Any, grid: Grid, into: Ring) -> None:
    """Write values, each within its range, as ring numbers into a vector of as many.

    Examples
    --------
    >>> vector = np.empty(2, np.uint64)
    >>> to_ring(np.array([0.5, -1.0]), Grid(1.0, 4), vector)
    >>> vector.view(np.int64).tolist()
    [8, -16]
    """
    if grid.is_whole:
        into.view(np.int64)[:] = np.ravel(values)
    else:
        scaled = np.multiply(np.ravel(values), 2.0**grid.fraction_bits, dtype=np.float64)
        into.view(np.int64)[:] = np.rint(scaled, out=scaled)


def from_ring(vector: Ring, grid: Grid) -> NDArray[Any]:
    """Return the numbers that ring numbers stand for: int64 for whole numbers, float64 else.

    Examples
    --------
    >>> from_ring(np.array([8, 2**64 - 16], np.uint64), Grid(1.0, 4)).tolist()
    [0.5, -1.0]
    """
    signed = vector.view(np.int64)
    return signed if grid.is_whole else signed * 2.0**-grid.fraction_bits


def as_declared(kind: type[Release], name: str, value: NDArray[Any]) -> Any:
    """Return a summed value in the type that its field declares.

    Raises
    ------
    MessageError
        A sum is beyond what the declared integer type can hold.

    Examples
    --------
    >>> from multicentre.federation.messages import count
    >>> @dataclass(frozen=True)
    ... class Size(Release):
    ...     n: int = count("patients")
    >>> as_declared(Size, "n", np.array(42))
    42
    """
    declaration = kind.declarations()[name]
    if declaration.kind == "array":
        dtype = np.dtype(declaration.dtype)
        if dtype.kind in "iu":
            check_range(value.astype(np.float64), np.empty(0, dtype), place(kind, name))
        return value.astype(dtype)
    return value.item()


@functools.lru_cache(maxsize=512)
def _plan(kind: type[Release], n_sites: int, rooms: tuple[float, ...]) -> Mapping[str, Grid]:
    fields = zip(kind.declarations().items(), rooms, strict=True)
    return {
        name: _grid((declared.bound or 0.0) + room, n_sites, declared.is_whole, place(kind, name))
        for (name, declared), room in fields
    }


def _grid(capacity: float, n_sites: int, is_whole: bool, where: str) -> Grid:
    most = _LARGEST // n_sites
    if capacity == math.inf or (is_whole and capacity > most):
        raise ConfigurationError(
            f"a range of {capacity:.3g} over {n_sites} sites does not fit 64 bits",
            where=where,
            mend="Declare a smaller bound, plan less noise, or sum over fewer sites.",
        )
    return Grid(
        capacity, 0 if is_whole else min(_floor_log2(Fraction(most) / Fraction(capacity)), _MOST_BITS), is_whole
    )


def _floor_log2(ratio: Fraction) -> int:
    guess = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return guess if Fraction(2) ** guess <= ratio else guess - 1
