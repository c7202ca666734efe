"""Operations that a kind of data provides to studies, independent of the method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.identifiers import Identified, Identifiers
from multicentre.errors import SchemaMismatch

T = TypeVar("T")


class PatientData(Protocol):
    """Patients of one site as used by studies: they can be counted, split and restricted to some columns."""

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), or None."""

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an entry, by part of the data: a view, a mode."""

    def __len__(self) -> int:
        """Return the number of patients."""

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`, with all parts."""

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the permitted columns, codes or modes of a policy, or raise a DataError."""

    def digest(self) -> str:
        """Return the SHA-256 by which a resumed run identifies its data."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Operations on the data of several sites and on single patients, specific to a kind of data.

    Parameters
    ----------
    check : callable
        Raises SchemaMismatch if data (by site) are incompatible.
    stack : callable
        Returns the patients of all sites from compatible data by site.
    amplify : callable
        Returns the patient at a row with every number multiplied by a factor. The arguments are the data, the row, the
        factor and a generator or None. With a generator, the signs are random.
    """

    check: Callable[[Mapping[str, T]], object]
    stack: Callable[[Mapping[str, T]], T]
    amplify: Callable[[T, int, float, np.random.Generator | None], T]


def join_ids(ids: Mapping[str, Iterable[str] | None]) -> list[str] | None:
    """Return ``<site>/<id>`` of all patients, or None if a site has no identifiers.

    Parameters
    ----------
    ids : mapping from str to sequence of str or None
        Identifiers by site.

    Examples
    --------
    >>> join_ids({"lyon": ["7", "8"], "oslo": ["7"]})
    ['lyon/7', 'lyon/8', 'oslo/7']
    """
    joined: list[str] = []
    for site, site_ids in ids.items():
        if site_ids is None:
            return None
        joined += [f"{site}/{one}" for one in site_ids]
    return joined


D = TypeVar("D", bound=Identified)


def carry_identifiers(stacked: D, parts: Iterable[D]) -> D:
    """Attach the sites' identifiers to the stacked patients if all sites have the same columns of identifiers."""
    joined = Identifiers.stacked(part.identifier for part in parts)
    return stacked if joined is None else stacked.with_identifier(joined)


def draw_signs(shape: tuple[int, ...], random: np.random.Generator | None) -> NDArray[np.float64]:
    """Return random signs with equal probabilities; without a generator, all signs are positive.

    Examples
    --------
    >>> draw_signs((3,), None).tolist()
    [1.0, 1.0, 1.0]
    """
    return np.ones(shape) if random is None else random.choice([-1.0, 1.0], shape)


Array = NDArray[Any]


def check_columns(sites: Mapping[str, Array]) -> None:
    """Check that the rows of all sites have the shape of those of the first site.

    Raises
    ------
    SchemaMismatch
        A site has rows of a different shape.

    Examples
    --------
    >>> check_columns({"lyon": np.zeros((2, 3)), "oslo": np.zeros((5, 3))})
    """
    (first, expected), *others = sites.items()
    for site, rows in others:
        if rows.shape[1:] != expected.shape[1:]:
            raise SchemaMismatch(
                f"rows must have the shape of those of {first}, {expected.shape[1:]}; got {rows.shape[1:]}",
                where=site,
                hint="Use the same columns at every site.",
            )


def stack_rows(sites: Mapping[str, Array]) -> Array:
    """Stack the rows of all sites.

    Examples
    --------
    >>> stack_rows({"lyon": np.zeros((2, 3)), "oslo": np.ones((1, 3))}).shape
    (3, 3)
    """
    check_columns(sites)
    return np.concatenate(list(sites.values()))


def amplify_row(data: Array, row: int, factor: float, random: np.random.Generator | None = None) -> Array:
    """Multiply one row; the result has the type of the array.

    Examples
    --------
    >>> amplify_row(np.array([[1, 2], [3, -4]]), 1, 10.0).tolist()
    [[30, -40]]
    """
    record = data[[row]]
    return np.asarray(record * (factor * draw_signs(record.shape, random))).astype(data.dtype)


ARRAYS = Kind(check=check_columns, stack=stack_rows, amplify=amplify_row)
