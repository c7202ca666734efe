"""Validation of the parts of an event tensor: codes, entries, identifiers, outcomes and rows."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
MAX_PATIENTS = 2**31 - 1  # coordinates are stored as 32-bit integers
# Range of a 32-bit integer; a larger value is an error in the data and not a count of events.
MAX_COUNT = 2.0**31
# Admits fractional counts, such as weights, but refuses 0: a sparse tensor leaves out empty cells.
SMALLEST_COUNT = 1e-6


def checked_codes(codes: object) -> dict[str, tuple[str, ...]]:
    """Return the codes of every mode as tuples.

    Raises
    ------
    DataError
        There are fewer than two modes, a mode is not a list of codes, or a code is not valid text or is repeated.

    Examples
    --------
    >>> checked_codes({"procedure": ["p1"], "diagnosis": ["d1", "d2"]})
    {'procedure': ('p1',), 'diagnosis': ('d1', 'd2')}
    """
    if not isinstance(codes, Mapping) or len(codes) < 2:
        raise DataError(
            f"codes must be a mapping of at least two modes to lists of codes; got {_described(codes)}",
            where="modes",
            hint='Example: {"procedure": [...], "diagnosis": [...]}.',
        )
    codes_by_mode = {mode: _checked_list(names, mode) for mode, names in codes.items()}
    for mode, names in codes_by_mode.items():
        if not all(_is_code(name) for name in names):
            raise DataError(
                "codes must be non-empty text; at least one is not",
                where=f"mode {mode!r}",
                hint="Read codes as text: numbers lose leading zeros.",
            )
        if len(set(names)) < len(names):
            n_twice = len(names) - len(set(names))
            raise DataError(
                f"codes must be unique; {n_twice} are repeated", where=f"mode {mode!r}", hint="List each code once."
            )
        if not all(map(_can_be_written, [mode, *names])):
            raise DataError(
                "codes must be valid Unicode; at least one has a lone surrogate",
                where=f"mode {mode!a}",
                hint="Read the codes in the encoding of their file.",
            )
    return codes_by_mode


def _described(codes: object) -> str:
    return f"{len(codes)} modes" if isinstance(codes, Mapping) else type(codes).__name__


def _checked_list(names: object, mode: object) -> tuple[Any, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable) or not isinstance(mode, str):
        raise DataError(
            f"a mode must be text, with a list of codes; got {type(mode).__name__} with {type(names).__name__}",
            where=f"mode {mode!a}",
            hint='Example: {"diagnosis": ["4280"]}.',
        )
    return tuple(names)


def _is_code(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())


def _can_be_written(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def checked_size(n_patients: object, n_with_entry: int) -> int:
    """Return the number of patients: `n_with_entry` if `n_patients` is None.

    Raises
    ------
    DataError
        The number is not an integer, or too large for a tensor.

    Examples
    --------
    >>> checked_size(None, 3), checked_size(5, 3)
    (3, 5)
    """
    try:
        size = n_with_entry if n_patients is None else operator.index(n_patients)  # type: ignore[arg-type]
    except TypeError:
        size = MAX_PATIENTS + 1
    if size > MAX_PATIENTS:
        raise DataError(
            f"n_patients must be an integer of at most {MAX_PATIENTS}; got {n_patients!r}",
            where="n_patients",
            hint="Pass the number of patients.",
        )
    return size


def checked_entries(coordinates: ArrayLike, counts: ArrayLike, n_modes: int) -> tuple[Integers, Floats]:
    """Return coordinates, shape (nnz, n_modes), and counts, shape (nnz,), as arrays; `n_modes` includes the patients.

    Raises
    ------
    DataError
        Coordinates are not integers up to 2^31 - 1, their number differs from that of the counts, or a count is
        not from 1e-6 to 2^31.

    Examples
    --------
    >>> places, counts = checked_entries([[0, 1, 0]], [2], 3)
    >>> places.shape, counts.tolist()
    ((1, 3), [2.0])
    """
    places, values = _as_array(coordinates, "coordinates"), _as_array(counts, "counts", np.float64)
    if places.size == 0:
        places = np.zeros((0, n_modes), dtype=np.int32)
    if values.ndim != 1 or places.dtype.kind not in "iu" or places.shape != (len(values), n_modes):
        raise DataError(
            f"coordinates must be integers of shape ({values.size}, {n_modes}), and counts one-dimensional; got "
            f"{places.dtype} of shape {places.shape}, and counts of shape {values.shape}",
            where="coordinates",
            hint="Pass the patient's row and one position per mode for each count.",
        )
    if places.max(initial=0) > MAX_PATIENTS:
        raise DataError(
            f"coordinates must be at most {MAX_PATIENTS}; some are larger",
            where="coordinates",
            hint="Pass positions, counted from 0, instead of identifiers.",
        )
    n_invalid = int((~((values >= SMALLEST_COUNT) & (values <= MAX_COUNT))).sum())
    if n_invalid:
        raise DataError(
            f"counts must be from {SMALLEST_COUNT:g} to 2^31; {n_invalid} are not",
            where="counts",
            hint="Leave out entries of zero; correct the others.",
        )
    return places, values


def _as_array(values: object, where: str, dtype: Any = None) -> NDArray[Any]:
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            f"{where} must be an array of numbers; got {type(values).__name__} that cannot be converted",
            where=where,
            hint="Pass rows of equal length that contain only numbers.",
        ) from None


def check_places(places: NDArray[np.integer], shape: tuple[int, ...]) -> None:
    """Check that the tensor has a patient and that every entry is within its shape.

    Raises
    ------
    DataError
        There is no patient, or an entry is outside the shape.

    Examples
    --------
    >>> check_places(np.array([[0, 1]]), (1, 2))
    """
    if shape[0] < 1:
        raise DataError(
            "data must have at least one patient; got 0", where="data", hint="Pass at least one patient with an event."
        )
    n_outside = int(((places < 0) | (places >= np.array(shape))).any(axis=1).sum())
    if n_outside:
        raise DataError(
            f"coordinates must be within the {' x '.join(str(side) for side in shape)} tensor; {n_outside} are outside",
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
            f"coordinates must be unique; {n_twice} are repeated",
            where="coordinates",
            hint="Add up their counts and list each once.",
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
        The number of ids differs from `n_patients`, or ids are empty or repeated; the message counts them.

    Examples
    --------
    >>> checked_ids([7, "a"], 2).tolist()
    ['7', 'a']
    """
    texts = np.array([str(one) for one in ids], dtype=np.str_)
    if len(texts) != n_patients:
        raise DataError(
            f"ids must have one value per patient ({n_patients}); got {len(texts)}",
            where="ids",
            hint="Pass one id per patient.",
        )
    n_repeated = len(texts) - len(np.unique(texts))
    if n_repeated or (texts == "").any():
        raise DataError(
            f"ids must be unique and non-empty; {n_repeated} are repeated, {int((texts == '').sum())} are empty",
            where="ids",
            hint="Assign a unique id to every patient.",
        )
    texts.setflags(write=False)
    return texts


def checked_outcomes(outcomes: ArrayLike, n_patients: int) -> NDArray[np.int8]:
    """Return the outcomes, shape (n,); read-only.

    Raises
    ------
    DataError
        The outcomes are not one value of 0 or 1 per patient.

    Examples
    --------
    >>> checked_outcomes([True, False], 2).tolist()
    [1, 0]
    """
    outcome_array = _as_array(outcomes, "outcomes")
    if outcome_array.shape != (n_patients,) or not np.isin(outcome_array, (0, 1)).all():
        raise DataError(
            f"outcomes must be {n_patients} values of 0 or 1; got shape {outcome_array.shape}, or other values",
            where="outcomes",
            hint="Pass one outcome per patient, and leave out patients with an unknown outcome.",
        )
    values = outcome_array.astype(np.int8)
    values.setflags(write=False)
    return values


def checked_rows(rows: ArrayLike, n_patients: int) -> NDArray[np.int64]:
    """Return the chosen patients' rows, shape (chosen,), from rows or from one flag per patient.

    Raises
    ------
    DataError
        No patient is chosen, one is chosen twice, or a row does not exist.

    Examples
    --------
    >>> checked_rows([True, False, True], 3).tolist()
    [0, 2]
    """
    positions = np.asarray(rows)
    if positions.dtype == bool and positions.shape == (n_patients,):
        positions = np.flatnonzero(positions)
    if positions.dtype.kind not in "iu" or positions.ndim != 1 or positions.size == 0:
        raise DataError(
            f"rows must be integers, at least one, or one flag per patient; got {positions.dtype} of shape "
            f"{positions.shape}",
            where="rows",
            hint="Pass at least one row, or one flag per patient.",
        )
    if positions.min() < 0 or positions.max() >= n_patients:
        raise DataError(
            f"rows must be integers from 0 to {n_patients - 1}; some are not",
            where="rows",
            hint="Correct the rows.",
        )
    if len(np.unique(positions)) < len(positions):
        raise DataError("rows must be unique; some are repeated", where="rows", hint="Pass every row once.")
    return positions.astype(np.int64)
