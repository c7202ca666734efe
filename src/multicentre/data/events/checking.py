"""What is checked of a tensor of events before it is made: codes, entries, identifiers, outcomes, rows."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.federation.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
MOST_PATIENTS = 2**31 - 1
LARGEST_COUNT = 2.0**31
SMALLEST_COUNT = 1e-6


def checked_codes(codes: object) -> dict[str, tuple[str, ...]]:
    """Return the codes of every mode as tuples.

    Raises
    ------
    DataError
        There are fewer than two modes, a mode is no list of codes, or a code is not a text that can be written or is
        listed twice in its mode.

    Examples
    --------
    >>> checked_codes({"procedure": ["p1"], "diagnosis": ["d1", "d2"]})
    {'procedure': ('p1',), 'diagnosis': ('d1', 'd2')}
    """
    if not isinstance(codes, Mapping) or len(codes) < 2:
        raise DataError(
            "codes that occur together need two modes or more",
            where="modes",
            hint="Name procedures and diagnoses, say: a mapping from each mode to the list of its codes.",
        )
    listed = {mode: _listed(names, mode) for mode, names in codes.items()}
    for mode, names in listed.items():
        if not all(_is_code(name) for name in names):
            raise DataError(
                "a code is not a text", where=f"mode {mode!r}", hint="Read codes as texts: numbers lose leading zeros."
            )
        if len(set(names)) < len(names):
            n_twice = len(names) - len(set(names))
            raise DataError(f"{n_twice} codes are listed twice", where=f"mode {mode!r}", hint="List each code once.")
        if not all(map(_can_be_written, [mode, *names])):
            raise DataError(
                "a code holds half of a character (a lone surrogate), which no file can",
                where=f"mode {mode!a}",
                hint="Read the codes in the encoding that they were written in.",
            )
    return listed


def _listed(names: object, mode: object) -> tuple[Any, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable) or not isinstance(mode, str):
        raise DataError(
            "a mode is a text, with a list of codes", where=f"mode {mode!a}", hint='Write {"diagnosis": ["4280"]}, say.'
        )
    return tuple(names)


def _is_code(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())


def _can_be_written(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def checked_size(n_patients: object, n_seen: int) -> int:
    """Return the number of patients: `n_seen` where none is given.

    Raises
    ------
    DataError
        It is not a whole number, or too large for a tensor.

    Examples
    --------
    >>> checked_size(None, 3), checked_size(5, 3)
    (3, 5)
    """
    try:
        size = n_seen if n_patients is None else operator.index(n_patients)  # type: ignore[arg-type]
    except TypeError:
        size = MOST_PATIENTS + 1
    if size > MOST_PATIENTS:
        raise DataError(
            f"it is not a whole number up to {MOST_PATIENTS}", where="n_patients", hint="Give the number of patients."
        )
    return size


def checked_entries(coordinates: ArrayLike, counts: ArrayLike, n_modes: int) -> tuple[Integers, Floats]:
    """Return coordinates, shape (nnz, n_modes), and counts, shape (nnz,), as arrays; `n_modes` includes the patients.

    Raises
    ------
    DataError
        Coordinates are not whole numbers up to 2^31 - 1, do not fit the counts, or a count is not from 1e-6 to 2^31.

    Examples
    --------
    >>> places, counts = checked_entries([[0, 1, 0]], [2], 3)
    >>> places.shape, counts.tolist()
    ((1, 3), [2.0])
    """
    given, values = _as_array(coordinates, "coordinates"), _as_array(counts, "counts", np.float64)
    if given.size == 0:
        given = np.zeros((0, n_modes), dtype=np.int32)
    if values.ndim != 1 or given.dtype.kind not in "iu" or given.shape != (len(values), n_modes):
        raise DataError(
            f"coordinates should be whole numbers, one row an entry and {n_modes} columns",
            where="coordinates",
            hint="Give the patient's row and one position a mode.",
        )
    if given.max(initial=0) > MOST_PATIENTS:
        raise DataError(
            f"a coordinate is above {MOST_PATIENTS}",
            where="coordinates",
            hint="Give positions, counted from 0, not identifiers.",
        )
    n_unfit = int((~((values >= SMALLEST_COUNT) & (values <= LARGEST_COUNT))).sum())
    if n_unfit:
        raise DataError(
            f"{n_unfit} counts are negative, zero, not finite, or not from {SMALLEST_COUNT:g} to 2^31",
            where="counts",
            hint="Leave out entries of zero; correct the others.",
        )
    return given, values


def _as_array(given: object, where: str, dtype: Any = None) -> NDArray[Any]:
    try:
        return np.asarray(given, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            "they do not make one array of numbers", where=where, hint="Give rows of one length, of numbers only."
        ) from None


def check_places(places: NDArray[np.integer], shape: tuple[int, ...]) -> None:
    """Check that every entry lies in the tensor, which has a patient.

    Raises
    ------
    DataError
        There is no patient, or entries lie outside.

    Examples
    --------
    >>> check_places(np.array([[0, 1]]), (1, 2))
    """
    if shape[0] < 1:
        raise DataError("there is no patient", where="data", hint="Give at least one patient with an event.")
    n_outside = int(((places < 0) | (places >= np.array(shape))).any(axis=1).sum())
    if n_outside:
        raise DataError(
            f"{n_outside} entries lie outside the {' x '.join(str(side) for side in shape)} tensor",
            where="coordinates",
            hint="Count patients and codes from 0.",
        )


def sorted_entries(places: NDArray[np.integer], counts: Floats) -> tuple[Integers, Floats]:
    """Return the entries sorted by patient, then by the codes of every mode; read-only.

    Raises
    ------
    DataError
        An entry is listed twice.

    Examples
    --------
    >>> places, counts = sorted_entries(np.array([[1, 0], [0, 1]]), np.array([1.0, 2.0]))
    >>> places.tolist(), counts.tolist()
    ([[0, 1], [1, 0]], [2.0, 1.0])
    """
    order = np.lexsort(places.T[::-1])
    coordinates = np.ascontiguousarray(places[order], dtype=np.int32)
    n_twice = int((np.diff(coordinates, axis=0) == 0).all(axis=1).sum()) if len(coordinates) > 1 else 0
    if n_twice:
        raise DataError(
            f"{n_twice} entries are listed twice", where="coordinates", hint="Add up their counts and list each once."
        )
    values = counts[order]
    coordinates.setflags(write=False)
    values.setflags(write=False)
    return coordinates, values


def checked_ids(ids: Iterable[object], n_patients: int) -> NDArray[np.str_]:
    """Return the identifiers as texts, shape (n,); read-only.

    Raises
    ------
    DataError
        They are not one a patient, or some are empty or repeated; the message says how many.

    Examples
    --------
    >>> checked_ids([7, "a"], 2).tolist()
    ['7', 'a']
    """
    texts = np.array([str(one) for one in ids], dtype=np.str_)
    if len(texts) != n_patients:
        raise DataError(f"{len(texts)} ids for {n_patients} patients", where="ids", hint="Give one id a patient.")
    n_repeated = len(texts) - len(np.unique(texts))
    if n_repeated or (texts == "").any():
        raise DataError(
            f"{n_repeated} ids repeat an earlier one, {int((texts == '').sum())} are empty",
            where="ids",
            hint="Give every patient an id of its own.",
        )
    texts.setflags(write=False)
    return texts


def checked_outcomes(outcomes: ArrayLike, n_patients: int) -> NDArray[np.int8]:
    """Return the outcomes, shape (n,); read-only.

    Raises
    ------
    DataError
        They are not one value of 0 or 1 a patient.

    Examples
    --------
    >>> checked_outcomes([True, False], 2).tolist()
    [1, 0]
    """
    given = _as_array(outcomes, "outcomes")
    if given.shape != (n_patients,) or not np.isin(given, (0, 1)).all():
        raise DataError(
            f"outcomes should be {n_patients} values of 0 or 1",
            where="outcomes",
            hint="Give every patient one; leave out patients whose outcome is not known.",
        )
    values = given.astype(np.int8)
    values.setflags(write=False)
    return values


def checked_rows(rows: ArrayLike, n_patients: int) -> NDArray[np.int64]:
    """Return the chosen patients' rows, shape (chosen,), from rows or from one flag a patient.

    Raises
    ------
    DataError
        No patient is chosen, one is chosen twice, or a row does not exist.

    Examples
    --------
    >>> checked_rows([True, False, True], 3).tolist()
    [0, 2]
    """
    given = np.asarray(rows)
    if given.dtype == bool and given.shape == (n_patients,):
        given = np.flatnonzero(given)
    if given.dtype.kind not in "iu" or given.ndim != 1 or given.size == 0:
        raise DataError("no patient is chosen", where="rows", hint="Give at least one row, or one flag a patient.")
    if given.min() < 0 or given.max() >= n_patients:
        raise DataError("some rows do not exist", where="rows", hint=f"Rows go from 0 to {n_patients - 1}.")
    if len(np.unique(given)) < len(given):
        raise DataError("a patient is chosen more than once", where="rows", hint="Give every row once.")
    return given.astype(np.int64)
