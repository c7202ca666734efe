"""Plain arrays, one row a patient, as audits and tests of small methods hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.kinds.kind import Kind, draw_signs
from multicentre.federation.errors import SchemaMismatch

Array = NDArray[Any]


def check_columns(sites: Mapping[str, Array]) -> None:
    """Check that the rows of all sites are as long as those of the first.

    Raises
    ------
    SchemaMismatch
        A site has rows of another shape.

    Examples
    --------
    >>> check_columns({"lyon": np.zeros((2, 3)), "oslo": np.zeros((5, 3))})
    """
    (first, expected), *others = sites.items()
    for site, rows in others:
        if rows.shape[1:] != expected.shape[1:]:
            raise SchemaMismatch(
                f"a row has shape {rows.shape[1:]}; {first} has {expected.shape[1:]}",
                where=site,
                mend="Give every site the same columns.",
            )


def stack_rows(sites: Mapping[str, Array]) -> Array:
    """Return the rows of all sites.

    Examples
    --------
    >>> stack_rows({"lyon": np.zeros((2, 3)), "oslo": np.ones((1, 3))}).shape
    (3, 3)
    """
    check_columns(sites)
    return np.concatenate(list(sites.values()))


def amplify_row(data: Array, row: int, factor: float, random: np.random.Generator | None = None) -> Array:
    """Return one row multiplied, of the array's own type.

    Examples
    --------
    >>> amplify_row(np.array([[1, 2], [3, -4]]), 1, 10.0).tolist()
    [[30, -40]]
    """
    record = data[[row]]
    return np.asarray(record * (factor * draw_signs(record.shape, random))).astype(data.dtype)


ARRAYS = Kind(check=check_columns, stack=stack_rows, amplify=amplify_row)
