"""Fixed-point encoding of summed releases: integers modulo 2**64 that cannot overflow.

A value v of a field is encoded as the integer rint(v * 2**f). The number of fraction bits f is the largest for which
sites x range x 2**f is below 2**63. It is computed in exact arithmetic before any request, so that no sum of values
within their declared ranges can overflow.

A release is encoded as one vector, field by field, with a separate f per field. The layout of the vector follows from
the declaration, the lengths of the sides of arrays, and the names in fields that are keyed by name. Only these lengths
and names are sent, as a short text.

The values are followed by a zero. The sum over sites is zero there if the masks cancel, and practically never
otherwise. If patients are counted, the number of patients behind each value follows.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import place
from multicentre.core.noise_plan import Noise
from multicentre.core.range_checks import extremes_of, room_of
from multicentre.core.steps import R, Release
from multicentre.core.summation import check_integer_range
from multicentre.core.total_minimum import Behind
from multicentre.errors import ConfigurationError, DisclosureRefused, IntegrityError, MessageError

Ring = NDArray[np.uint64]
_LARGEST = 2**63 - 1  # largest signed 64-bit integer
_MAX_BITS = 1000  # 2.0**-1000 is still a normal float64


@dataclass(frozen=True)
class Grid:
    """Fixed-point grid of one field.

    Parameters
    ----------
    capacity : float
        Largest magnitude of one site's value, including room for noise; above 0.
    fraction_bits : int
        Values are multiples of ``2**-fraction_bits``; negative for ranges beyond 2**63.
    is_whole : bool
        True if values are integers, which are not rounded.
    """

    capacity: float
    fraction_bits: int
    is_whole: bool = False


@dataclass(frozen=True)
class SumTerms:
    """Range and rounding of one field of a masked sum.

    Parameters
    ----------
    capacity : float
        Largest magnitude of one site's value; a site with a larger value refuses the request.
    rounding : float
        Largest rounding error of the sum, in the field's unit; 0 for integers.
    """

    capacity: float
    rounding: float


def plan_grids(kind: type[Release], n_sites: int, noise: Noise | None = None) -> Mapping[str, Grid]:
    """Return the grid of every field of a summed release.

    Parameters
    ----------
    kind : type
        Class of the release; every field declares ``bound``.
    n_sites : int
        Number of sites in the sum, at least 1.
    noise : Noise, optional
        Noise that each site adds. It extends the range by 16 standard deviations (Gaussian) or 50 scales (Laplace),
        beyond which the probability is below 1e-21.

    Raises
    ------
    ConfigurationError
        A field of integers does not fit: sites x range is 2**63 or more.

    Examples
    --------
    >>> from multicentre.core.messages import count, number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=2.0**20)
    ...     n: int = count("patients", bound=1e6)
    >>> plan_grids(Ages, 4)["total"].fraction_bits, plan_grids(Ages, 4)["n"].fraction_bits
    (40, 0)
    """
    rooms = None if noise is None else tuple(room_of(kind, name, noise) for name in kind.declarations())
    return _plan(kind, n_sites, rooms)  # type: ignore[arg-type]


def rounding(grid: Grid, n_sites: int) -> float:
    """Return the largest rounding error of a sum over sites; 0 for integers.

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
    >>> from multicentre.core.messages import number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=1e6)
    >>> sum_terms(Ages, 3)["total"]
    SumTerms(capacity=1000000.0, rounding=6.82...e-13)
    """
    grids = plan_grids(kind, n_sites, noise)
    return {name: SumTerms(grid.capacity, rounding(grid, n_sites)) for name, grid in grids.items()}


def check_values(release: Release, grids: Mapping[str, Grid], where: str) -> None:
    """Raise DisclosureRefused if a value is beyond its range or NaN; values are not clipped.

    Examples
    --------
    >>> from multicentre.core.messages import number
    >>> @dataclass(frozen=True)
    ... class Ages(Release):
    ...     total: float = number("sum of the ages", bound=1e6)
    >>> check_values(Ages(2e6), plan_grids(Ages, 3), "lyon")
    Traceback (most recent call last):
        ...
    multicentre.errors.DisclosureRefused: lyon, Ages.total: values must be within the declared range of 1e...
    """
    for name, key, _, value in release.items():
        extremes, capacity = extremes_of(value), grids[name].capacity
        if extremes and not (-capacity <= extremes[0] and extremes[1] <= capacity):
            raise DisclosureRefused(
                f"values must be within the declared range of {capacity:.3g}; at least one is not",
                where=f"{where}, {place(type(release), name, key)}",
                hint="Check the column for a wrong unit or an outlier, or scale it.",
            )


def to_ring(values: Any, grid: Grid, into: Ring) -> None:
    """Encode values within their range as ring numbers, into a vector of the same length.

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
    """Decode ring numbers: int64 for integers, otherwise float64.

    Examples
    --------
    >>> from_ring(np.array([8, 2**64 - 16], np.uint64), Grid(1.0, 4)).tolist()
    [0.5, -1.0]
    """
    signed = vector.view(np.int64)
    return signed if grid.is_whole else signed * 2.0**-grid.fraction_bits


def as_declared(kind: type[Release], name: str, value: NDArray[Any]) -> Any:
    """Return a summed value in the declared type of its field.

    Raises
    ------
    MessageError
        A sum is beyond the range of the declared integer type.

    Examples
    --------
    >>> from multicentre.core.messages import count
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
            check_integer_range(value.astype(np.float64), np.empty(0, dtype), place(kind, name))
        return value.astype(dtype)
    return value.item()


@functools.lru_cache(maxsize=512)
def _plan(kind: type[Release], n_sites: int, rooms: tuple[float, ...] | None) -> Mapping[str, Grid]:
    declared_fields = kind.declarations().items()
    fields = zip(declared_fields, rooms or [0.0] * len(declared_fields), strict=True)
    return {
        name: _grid((declared.bound or 0.0) + room, n_sites, declared.is_whole, place(kind, name))
        for (name, declared), room in fields
    }


def _grid(capacity: float, n_sites: int, is_whole: bool, where: str) -> Grid:
    most = _LARGEST // n_sites
    if capacity == math.inf or (is_whole and capacity > most):
        raise ConfigurationError(
            f"the sum over {n_sites} sites must fit 64 bits; got a range of {capacity:.3g} per site",
            where=where,
            hint="Declare a smaller bound, plan less noise, or sum over fewer sites.",
        )
    return Grid(capacity, 0 if is_whole else min(_floor_log2(Fraction(most) / Fraction(capacity)), _MAX_BITS), is_whole)


def _floor_log2(ratio: Fraction) -> int:
    guess = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return guess if Fraction(2) ** guess <= ratio else guess - 1


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Place(NamedTuple):
    """Place of one value in the vector, or of one name's value in a field that is keyed by name."""

    name: str
    key: str
    shape: tuple[int, ...]
    start: int
    stop: int


def encode_release(
    release: Release, grids: Mapping[str, Grid], where: str, *, counted: bool = False
) -> tuple[Ring, str]:
    """Encode a release as ring numbers, shape (m,), and return them with their layout.

    Parameters
    ----------
    release : Release
        Release that matches its declaration (``checked``).
    grids : mapping of str to Grid
        See :func:`~multicentre.privacy.secure_sum.fixed_point.plan_grids`.
    where : str
        Location for error messages.
    counted : bool, default False
        True to add the number of patients behind each value.

    Raises
    ------
    DisclosureRefused
        A value is beyond its declared range.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from multicentre.core.messages import array
    >>> from multicentre.privacy.secure_sum.fixed_point import plan_grids
    >>> @dataclass(frozen=True)
    ... class Sums(Release):
    ...     total: np.ndarray = array("column sums", ("d",), bound=2.0**40)
    >>> vector, layout = encode_release(Sums(np.array([1.0, -2.0])), plan_grids(Sums, 2), "lyon")
    >>> vector.view(np.int64).tolist(), layout
    ([2097152, -4194304, 0], '{"sides":{"d":2}}')
    >>> decode_release(Sums, vector, layout, plan_grids(Sums, 2))[0].total.tolist()
    [1.0, -2.0]
    """
    check_values(release, grids, where)
    layout = _describe(release)
    places = _places(type(release), layout)  # type: ignore[arg-type]
    vector: Ring = np.zeros(_length(places, counted), dtype=np.uint64)
    for name, key, _, start, stop in places:
        value = getattr(release, name)
        to_ring(value[key] if key else value, grids[name], vector[start:stop])
    if counted and places:
        vector[-len(places) :] = [release.patients_behind(name, key) or 0 for name, key, *_ in places]
    return vector, layout


def decode_release(
    kind: type[R], vector: Ring, layout: str, grids: Mapping[str, Grid], *, counted: bool = False
) -> tuple[R, Behind]:
    """Decode a release from ring numbers, and return it with the number of patients behind its values.

    See :func:`encode_release` for an example. Without `counted`, the numbers of patients are not included.

    Raises
    ------
    IntegrityError
        The masks in the vector did not cancel.
    MessageError
        The layout does not match the declaration or the vector, or a sum is beyond the range of its type.
    """
    places = _places(kind, layout)  # type: ignore[arg-type]
    if _length(places, counted) != len(vector):
        raise MessageError(
            f"the layout must have {len(vector)} masked values; got {_length(places, counted)}", where=kind.__name__
        )
    if vector[_end(places)]:
        raise IntegrityError(
            "the masks of the sites must cancel in the sum; they do not, and the sum cannot be read",
            where=kind.__name__,
            hint="The sites received different requests, or have different keys. Start the run again.",
        )
    declared = kind.declarations().items()
    fields: dict[str, Any] = {name: {} if declared.keyed else None for name, declared in declared}
    for name, key, shape, start, stop in places:
        value = as_declared(kind, name, np.asarray(from_ring(vector[start:stop], grids[name])).reshape(shape))
        if key:
            fields[name][key] = value
        else:
            fields[name] = value
    behind = vector[_end(places) + 1 :].view(np.int64).tolist()
    return kind(**fields).checked(), {(one.name, one.key): n for one, n in zip(places, behind, strict=counted)}


def _end(places: tuple[Place, ...]) -> int:
    return places[-1].stop if places else 0


def _length(places: tuple[Place, ...], counted: bool) -> int:
    return _end(places) + 1 + (len(places) if counted else 0)


def _describe(release: Release) -> str:
    layout_values: dict[str, Any] = {}
    for name, declared in release.declarations().items():
        value = getattr(release, name)
        if value is None:
            layout_values.setdefault("absent", []).append(name)
        elif declared.keyed:
            layout_values.setdefault("names", {})[name] = {key: list(np.shape(entry)) for key, entry in value.items()}
        elif declared.kind == "array":
            sides = zip(declared.shape, value.shape, strict=True)
            lengths = {side: length for side, length in sides if isinstance(side, str)}
            if lengths:
                layout_values.setdefault("sides", {}).update(lengths)
    return _ENCODER.encode(layout_values)


@functools.lru_cache(maxsize=64)
def _places(kind: type[Release], layout: str) -> tuple[Place, ...]:
    try:
        shapes = _shapes(kind, json.loads(layout))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError(
            "the layout of masked values must be JSON with names and lengths; it cannot be read", where=kind.__name__
        ) from None
    stops = itertools.accumulate(math.prod(shape) for *_, shape in shapes)
    return tuple(Place(*item, stop - math.prod(item[2]), stop) for item, stop in zip(shapes, stops, strict=True))


def _shapes(kind: type[Release], layout_values: Mapping[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    sides, absent = layout_values.get("sides", {}), layout_values.get("absent", [])
    shapes: list[tuple[str, str, tuple[int, ...]]] = []
    for name, declared in kind.declarations().items():
        if declared.keyed:
            shapes_by_key = layout_values["names"][name]
            shapes += [(name, key, _shape(shapes_by_key[key])) for key in sorted(shapes_by_key)]
        elif name not in absent:
            shapes.append((name, "", _shape([sides.get(side, side) for side in declared.shape])))
    return shapes


def _shape(sides: list[Any]) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError
    return tuple(sides)
