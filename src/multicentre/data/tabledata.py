"""Container for tabular records with numeric columns, and a class or a number to predict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.cells import numbers_of
from multicentre.data.frames import to_pandas
from multicentre.data.table import encode_table
from multicentre.data.tabular import Tabular, asides
from multicentre.errors import DataError, SchemaMismatch

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# As in `boosting.trees`, where a round sends one tree per class; more values suggest a number or an identifier.
MAX_CLASSES = 1000


class TableData(Tabular):
    """Numeric columns of one site's records, and the class or number to predict for each.

    Parameters
    ----------
    X : array of shape (n, d) or pandas frame
        Numbers; NaN for missing.
    y : array of shape (n,)
        Class of each record: an integer from 0, or one of `classes`. With ``outcome="number"``, any finite number.
    identifier : sequence, mapping of str to sequence, or pandas frame, optional
        Identifiers of the persons in the records, which may repeat and be missing; see
        :class:`multicentre.data.Identifiers`. They never leave the site.
    columns : sequence of str, optional
        Names of the columns; by default those of the frame, or x0, x1, ... for an array.
    classes : sequence of str, optional
        Names of the classes, at least two, in the same order at all sites. By default "0", "1", ... up to the largest
        class in `y`.
    outcome : {"class", "number"}, default "class"
        Type of `y`.
    ids : sequence, optional
        Unique id of every record, for the comparison of cohorts at the site. The ids never leave the site.
    levels : sequence of str
        Declared levels, ``name=level``, of categories whose columns are in `X`; levels without a column are
        references. :meth:`from_frame` sets them.
    outcome_name : str, default ""
        Name of the outcome, with which a formula must agree; empty if unnamed. :meth:`from_frame` sets it.

    Raises
    ------
    DataError
        An outcome is missing, a class is unknown or not an integer from 0, lengths differ, or there is no record.
        The message counts the records and never contains them.

    Warns
    -----
    DataWarning
        A column has no entry, or a code such as 999 probably means missing.

    Notes
    -----
    A policy's minimum number of patients counts records here. If patients have several records, increase the minimum.

    Examples
    --------
    >>> data = TableData([[5.1, 0.2], [6.3, 1.8]], ["setosa", "virginica"], classes=["setosa", "virginica"])
    >>> data
    TableData(2 records; 2 columns, 2 classes)
    >>> data.y.tolist(), data.columns
    ([0, 1], ('x0', 'x1'))
    """

    __slots__ = ("_classes", "_outcome_name", "_y")
    _outcome_slots: ClassVar[tuple[str, ...]] = ("_y",)

    def __init__(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        identifier: Iterable[object] | Mapping[str, Iterable[object]] | pd.DataFrame | None = None,
        *,
        columns: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        outcome: Literal["class", "number"] = "class",
        ids: Iterable[object] | None = None,
        levels: Sequence[str] = (),
        outcome_name: str = "",
    ) -> None:
        self._set_columns(X, columns, levels, ids)
        self._outcome_name = outcome_name
        self._y, self._classes = _checked_outcome(y, len(self._X), classes, outcome)
        if identifier is not None:
            self._identifier = self.with_identifier(identifier).identifier
        self._y.setflags(write=False)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        outcome: str,
        kind: Literal["class", "number"] = "class",
        classes: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[object]] | Sequence[str] | None = None,
        references: Mapping[str, object] | None = None,
        identifiers: Sequence[str] = (),
        id_column: str | None = None,
    ) -> Self:
        """Create the data from a table; each level of a category becomes a column ``name=level`` of zeros and ones.

        Parameters
        ----------
        frame : pandas frame, polars frame (also lazy) or arrow table
            One row per record.
        outcome : str
            Name of the column to predict.
        kind : {"class", "number"}, default "class"
            Type of the outcome.
        classes : sequence of str, optional
            Names of the classes, the same at all sites; required if the outcome is text.
        columns : sequence of str, optional
            Features; by default all other columns.
        categories : mapping of str to sequence, or sequence of str, optional
            Levels of every categorical column, the same at all sites. If only columns are named, their levels are
            taken from this table, with a warning. Pandas categoricals define their levels. A missing level is missing
            in all columns of its category.
        references : mapping of str to level, optional
            Reference level by category. It has no column; the other levels are compared with it.
        identifiers : sequence of str
            Columns that identify the person of a record; they never leave the site and are not features.
        id_column : str, optional
            Column of the records' ids.

        Raises
        ------
        DataError
            Columns are missing, or contain entries other than numbers or declared levels. The message names all of
            them.
        ConfigurationError
            A reference is not a level of a category.

        Warns
        -----
        DataWarning
            See :class:`TableData`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [61, 70], "sex": ["f", "m"], "born": ["1950-01-31", None], "ill": [1, 0]})
        >>> data = TableData.from_frame(frame, outcome="ill", categories={"sex": ["f", "m"]}, identifiers=["born"])
        >>> data.columns, data.identifier
        (('age', 'sex=f', 'sex=m'), Identifiers(2 records; born))
        """
        frame = to_pandas(frame)

        def check_outcome(column: pd.Series) -> object:
            y = numbers_of(column, 'Leave out kind="number" for classes.') if kind == "number" else column.to_numpy()
            return _checked_outcome(y, len(column), classes, kind)

        encoded = encode_table(
            frame,
            aside={**asides(identifiers, id_column), outcome: check_outcome},
            columns=columns,
            categories=categories,
            references=references,
        )
        return cls(
            encoded.values,
            frame[outcome].to_numpy(),
            frame[list(identifiers)] if identifiers else None,
            columns=encoded.columns,
            classes=classes,
            outcome=kind,
            ids=None if id_column is None else frame[id_column].tolist(),
            levels=encoded.levels,
            outcome_name=str(outcome),
        )

    @property
    def y(self) -> NDArray[Any]:
        """Class of each record (its position in `classes`) or its number, shape (n,)."""
        return self._y

    @property
    def outcome(self) -> Literal["class", "number"]:
        """Type of `y`."""
        return "class" if self._classes else "number"

    @property
    def outcome_name(self) -> str:
        """Name of the outcome; empty if unnamed."""
        return self._outcome_name

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty if the outcome is a number."""
        return self._classes

    def require_classes(self, classes: tuple[str, ...]) -> None:
        """Raise SchemaMismatch unless the outcome has the classes of a model, or is a number as the model's is."""
        if classes[: len(self._classes)] != self._classes or bool(classes) != bool(self._classes):
            raise SchemaMismatch(
                f"classes must be the {len(classes)} classes of the model; got {len(self._classes)} that differ",
                where="classes",
                hint="Declare the same classes at every site.",
            )

    @property
    def parts(self) -> dict[str, int]:
        """Empty mapping: a table has no parts that a record could lack."""
        return {}

    def digest(self) -> str:
        """Return the SHA-256 of columns, classes and identifiers, by which a resumed run identifies its data."""
        ids = None if self._ids is None else self._ids.tolist()
        names = repr((self._columns, self._classes, ids)) + self._levels_digest()
        digest = hashlib.sha256(names.encode() + self._identifier_digest())
        for array in (self._X, self._y):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = ((len(self), "record"), (len(self._columns), "column"))
        records, columns = (f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in sizes)
        return f"TableData({records}; {columns}, {f'{len(self._classes)} classes' if self._classes else 'a number'})"


def _checked_outcome(
    y: ArrayLike, n_records: int, classes: Sequence[str] | None, outcome: str
) -> tuple[NDArray[Any], tuple[str, ...]]:
    if outcome == "class":
        return checked_classes(y, n_records, classes)
    if outcome != "number" or classes is not None:
        raise DataError(
            f"outcome must be 'class', or 'number' without classes; got {outcome!r}"
            + ("" if classes is None else " with classes"),
            where="outcome",
            hint='Use "class" or "number".',
        )
    try:
        numbers = np.array(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "all outcomes must be numbers; at least one is not",
            where="y",
            hint='Leave out outcome="number" for classes.',
        ) from None
    n_missing = int((~np.isfinite(numbers)).sum())
    if numbers.shape != (n_records,) or n_missing:
        raise DataError(
            f"y must be {n_records} finite numbers; got shape {numbers.shape}, {n_missing} missing or infinite",
            where="y",
            hint="Leave out records with an unknown outcome.",
        )
    return numbers, ()


def checked_classes(
    y: ArrayLike, n_patients: int, classes: Sequence[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the position of every patient's class, and the names of the classes.

    Raises
    ------
    DataError
        The number of classes in `y` differs from `n_patients`, or classes are missing, unknown or not integers.

    Examples
    --------
    >>> checked_classes(["b", "a"], 2, ["a", "b"])
    (array([1, 0]), ('a', 'b'))
    >>> checked_classes([0, 2], 2, None)
    (array([0, 2]), ('0', '1', '2'))
    """
    outcomes = np.asarray(y)
    if outcomes.shape != (n_patients,):
        raise DataError(
            f"y must have shape ({n_patients},); got {outcomes.shape}", where="y", hint="Pass one class per patient."
        )
    names = None if classes is None else _checked_names(classes)
    places = _class_numbers(outcomes) if outcomes.dtype.kind in "biuf" else _class_positions(outcomes, names)
    most = MAX_CLASSES if names is None else len(names)
    n_undeclared = int((places >= most).sum())
    if n_undeclared:
        raise DataError(
            f"classes must be below {most}; {n_undeclared} of {n_patients} patients have a higher class",
            where="y",
            hint="Declare all classes, the same at every site.",
        )
    if names is None:
        names = tuple(str(place) for place in range(max(2, int(places.max()) + 1)))
    return places, names


def _checked_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(str(name) for name in classes)
    if not 2 <= len(set(names)) == len(names) <= MAX_CLASSES or not all(names):
        raise DataError(
            f"classes must be 2 to {MAX_CLASSES} unique names; got {len(set(names) - {''})} unique of {len(names)}",
            where="classes",
            hint="Name each class once.",
        )
    return names


def _class_numbers(outcomes: NDArray[np.generic]) -> NDArray[np.int64]:
    values = outcomes.astype(np.float64)
    with np.errstate(invalid="ignore"):
        invalid = ~((values >= 0) & (values == np.round(values)) & (values < 2**31))
    if invalid.any():
        raise DataError(
            f"classes must be integers from 0; {int(invalid.sum())} of {len(values)} are not",
            where="y",
            hint="Number the classes from 0, or name them in `classes`.",
        )
    return values.astype(np.int64)


def _class_positions(outcomes: NDArray[np.generic], names: tuple[str, ...] | None) -> NDArray[np.int64]:
    if names is None:
        raise DataError(
            "classes must be declared if y is text; got None",
            where="y",
            hint="Name all classes in `classes`, in the same order at every site.",
        )
    places = {name: place for place, name in enumerate(names)}
    positions = np.array([places.get(str(name), -1) for name in outcomes.tolist()], dtype=np.int64)
    if (positions < 0).any():
        raise DataError(
            f"y must contain declared classes; got another one for {int((positions < 0).sum())} of {len(positions)} "
            "patients",
            where="y",
            hint="Agree on the classes between all sites, and declare all of them.",
        )
    return positions
