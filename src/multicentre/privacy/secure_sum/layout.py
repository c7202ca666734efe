"""A summed release as one ring vector and back, field by field, each on its own grid.

What stands where follows from the declaration, the lengths of its sides, and the names of fields that go by name; these
alone travel, as a short text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from multicentre.federation.errors import MessageError
from multicentre.federation.steps import R, Release
from multicentre.privacy.secure_sum.ring import Grid, Ring, as_declared, check_values, from_ring, to_ring

Place = tuple[str, str, tuple[int, ...]]


def encode_release(release: Release, grids: Mapping[str, Grid], where: str) -> tuple[Ring, str]:
    """Return a release as ring numbers, shape (m,), and what stands where.

    Parameters
    ----------
    release : Release
        As declared (``checked``).
    grids : mapping of str to Grid
        See :func:`~multicentre.privacy.secure_sum.ring.plan_grids`.
    where : str
        Named when a value is refused.

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
    ([2097152, -4194304], '{"sides":{"d":2}}')
    >>> decode_release(Sums, vector, layout, plan_grids(Sums, 2)).total.tolist()
    [1.0, -2.0]
    """
    check_values(release, grids, where)
    layout = _describe(release)
    places = _places(type(release), layout)
    vector: Ring = np.empty(sum(math.prod(shape) for _, _, shape in places), dtype=np.uint64)
    start = 0
    for name, key, shape in places:
        value, stop = getattr(release, name), start + math.prod(shape)
        to_ring(value[key] if key else value, grids[name], vector[start:stop])
        start = stop
    return vector, layout


def decode_release(kind: type[R], vector: Ring, layout: str, grids: Mapping[str, Grid]) -> R:
    """Return the release that a vector of ring numbers stands for; see :func:`encode_release` for an example.

    Raises
    ------
    MessageError
        The layout does not fit the declaration or the vector, or a sum is beyond what its type can hold.
    """
    places = _places(kind, layout)
    if sum(math.prod(shape) for _, _, shape in places) != len(vector):
        raise MessageError("the masked values do not fit their layout", where=kind.__name__)
    declared = kind.declarations().items()
    fields: dict[str, Any] = {name: {} if found.keyed else None for name, found in declared}
    start = 0
    for name, key, shape in places:
        stop = start + math.prod(shape)
        value = as_declared(kind, name, np.asarray(from_ring(vector[start:stop], grids[name])).reshape(shape))
        start = stop
        if key:
            fields[name][key] = value
        else:
            fields[name] = value
    return kind(**fields).checked()


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
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def _places(kind: type[Release], layout: str) -> list[Place]:
    try:
        told = json.loads(layout)
        sides, absent = told.get("sides", {}), told.get("absent", [])
        places: list[Place] = []
        for name, declared in kind.declarations().items():
            if declared.keyed:
                named = told["names"][name]
                places += [(name, key, _shape(named[key])) for key in sorted(named)]
            elif name not in absent:
                places.append((name, "", _shape([sides.get(side, side) for side in declared.shape])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MessageError("the layout of masked values cannot be read", where=kind.__name__) from None
    return places


def _shape(sides: list[Any]) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError
    return tuple(sides)
