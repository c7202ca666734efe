"""A summed release as one ring vector and back, field by field, each on its own grid.

What stands where follows from the declaration, the lengths of its sides, and the names of fields that go by name; these
alone travel, as a short text. After the values stands a zero: the sum over sites has a zero there as well if the masks
cancel, and practically never otherwise. Where patients are counted, their number behind each value follows.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from multicentre.federation.errors import IntegrityError, MessageError
from multicentre.federation.steps import R, Release
from multicentre.federation.totals import Behind
from multicentre.privacy.secure_sum.ring import Grid, Ring, as_declared, check_values, from_ring, to_ring

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Place(NamedTuple):
    """Place of one value, and of a name's value in a field that goes by name, in the vector."""

    name: str
    key: str
    shape: tuple[int, ...]
    start: int
    stop: int


def encode_release(
    release: Release, grids: Mapping[str, Grid], where: str, *, counted: bool = False
) -> tuple[Ring, str]:
    """Return a release as ring numbers, shape (m,), and what stands where.

    Parameters
    ----------
    release : Release
        As declared (``checked``).
    grids : mapping of str to Grid
        See :func:`~multicentre.privacy.secure_sum.ring.plan_grids`.
    where : str
        Named when a value is refused.
    counted : bool, default False
        Add the number of patients behind each value.

    Raises
    ------
    DisclosureRefused
        A value lies beyond its declared range.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from multicentre.federation.messages import array
    >>> from multicentre.privacy.secure_sum.ring import plan_grids
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
    """Return the release that a vector of ring numbers stands for, and the number of patients behind its values.

    See :func:`encode_release` for an example. Without `counted` no number of patients is known.

    Raises
    ------
    IntegrityError
        The vector still wears masks.
    MessageError
        The layout does not fit the declaration or the vector, or a sum is beyond what its type can hold.
    """
    places = _places(kind, layout)  # type: ignore[arg-type]
    if _length(places, counted) != len(vector):
        raise MessageError("the masked values do not fit their layout", where=kind.__name__)
    if vector[_end(places)]:
        raise IntegrityError(
            "the masks of the sites must cancel in the sum; they do not, and nothing of it can be read",
            where=kind.__name__,
            mend="The sites were asked different things, or hold different keys. Start the run again.",
        )
    declared = kind.declarations().items()
    fields: dict[str, Any] = {name: {} if found.keyed else None for name, found in declared}
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
    told: dict[str, Any] = {}
    for name, declared in release.declarations().items():
        value = getattr(release, name)
        if value is None:
            told.setdefault("absent", []).append(name)
        elif declared.keyed:
            told.setdefault("names", {})[name] = {key: list(np.shape(entry)) for key, entry in value.items()}
        elif declared.kind == "array":
            sides = zip(declared.shape, value.shape, strict=True)
            lengths = {side: length for side, length in sides if isinstance(side, str)}
            if lengths:
                told.setdefault("sides", {}).update(lengths)
    return _ENCODER.encode(told)


@functools.lru_cache(maxsize=64)
def _places(kind: type[Release], layout: str) -> tuple[Place, ...]:
    try:
        shapes = _shapes(kind, json.loads(layout))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError("the layout of masked values cannot be read", where=kind.__name__) from None
    stops = itertools.accumulate(math.prod(shape) for *_, shape in shapes)
    return tuple(Place(*known, stop - math.prod(known[2]), stop) for known, stop in zip(shapes, stops, strict=True))


def _shapes(kind: type[Release], told: Mapping[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    sides, absent = told.get("sides", {}), told.get("absent", [])
    shapes: list[tuple[str, str, tuple[int, ...]]] = []
    for name, declared in kind.declarations().items():
        if declared.keyed:
            named = told["names"][name]
            shapes += [(name, key, _shape(named[key])) for key in sorted(named)]
        elif name not in absent:
            shapes.append((name, "", _shape([sides.get(side, side) for side in declared.shape])))
    return shapes


def _shape(sides: list[Any]) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError
    return tuple(sides)
