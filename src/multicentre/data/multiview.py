"""Container for several views of the same patients at one site."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.blocks import Block, Floats, place, plain_name, read_block
from multicentre.data.identifiers import Identified
from multicentre.data.schema import Kind, MultiViewSchema
from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    Frame = pd.DataFrame | pl.DataFrame | NDArray[np.generic] | Block


class MultiViewData(Identified):
    """Views (tables of related columns) of the same patients, in the same order in every view.

    A missing entry is NaN. A patient whose whole row of a view is missing lacks that view. A view that is absent from
    the mapping is absent at this site. The object is immutable: `take` and `drop` return new objects.

    Parameters
    ----------
    views : mapping from str to pandas frame, polars frame (also lazy), arrow table or array of shape (n, d_k)
        One table per view, one row per patient. Names are converted to composed Unicode (NFC).
    ids : sequence of str, optional
        One identifier per patient. Used to join views and to detect duplicates; no method sends it.
    columns : mapping from str to sequence of str, optional
        Column names of views that are arrays; ``<view>_<j>`` by default.

    Raises
    ------
    DataError
        A view has no rows, no columns or no entries; numbers of rows differ; column names are repeated; a cell is not a
        finite number; or identifiers are repeated or missing. The message names the view and the column and counts the
        cells. It never contains a cell.

    Examples
    --------
    >>> import numpy as np
    >>> blood = np.array([[4.1, 0.2], [3.9, np.nan], [np.nan, np.nan]])
    >>> image = np.array([[11.0], [12.5], [10.0]])
    >>> data = MultiViewData({"blood": blood, "image": image}, columns={"image": ["volume"]})
    >>> data
    MultiViewData(3 patients; blood: 2 columns, 2 patients; image: 1 column, 3 patients)
    >>> data.columns["image"], data.has_missing_entries
    (('volume',), True)
    """

    __slots__ = ("_blocks", "_ids", "_n_patients")
    _blocks: dict[str, Block]
    _ids: NDArray[np.str_] | None
    _n_patients: int

    def __init__(
        self,
        views: Mapping[str, Frame],
        ids: Iterable[object] | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not views:
            raise DataError("data must have at least one view; got 0", where="data", hint="Pass at least one view.")
        column_names = {plain_name(view): names for view, names in (columns or {}).items()}
        blocks: dict[str, Block] = {}
        for name, source in views.items():
            view = _checked_view_name(name, blocks)
            blocks[view] = read_block(view, source, column_names.get(view))
        _check_views_exist(column_names, blocks)
        self._n_patients = _common_length(blocks)
        self._blocks = blocks
        self._ids = None if ids is None else _checked_ids(ids, self._n_patients)

    @classmethod
    def _of(cls, blocks: dict[str, Block], ids: NDArray[np.str_] | None, n_patients: int) -> Self:
        data = cls.__new__(cls)
        data._blocks, data._ids, data._n_patients = blocks, ids, n_patients
        return data

    @property
    def views(self) -> tuple[str, ...]:
        """View names, in the order of the input."""
        return tuple(self._blocks)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Column names of every view."""
        return {view: block.names for view, block in self._blocks.items()}

    @property
    def kinds(self) -> dict[str, tuple[Kind, ...]]:
        """Kind of every column of every view: "boolean" for truth values, "number" otherwise."""
        return {view: block.kinds for view, block in self._blocks.items()}

    @property
    def schema(self) -> MultiViewSchema:
        """Names and kinds of all columns."""
        return MultiViewSchema(self.views, self.columns, self.kinds)

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), or None. Private to the site."""
        return self._ids

    @property
    def n_patients(self) -> int:
        """Number of patients."""
        return self._n_patients

    @property
    def n_patients_by_view(self) -> dict[str, int]:
        """Number of patients with at least one entry in every view."""
        return {view: int(self.patients_with(view).sum()) for view in self.views}

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an entry, by view; studies report it for every kind of data."""
        return self.n_patients_by_view

    @property
    def has_missing_entries(self) -> bool:
        """True if at least one patient has an incomplete view."""
        return any(
            bool(np.any(missing.any(axis=1) & ~missing.all(axis=1)))
            for missing in (np.isnan(block.values) for block in self._blocks.values())
        )

    def __len__(self) -> int:
        return self._n_patients

    def __repr__(self) -> str:
        counts = self.n_patients_by_view
        parts = [f"{_counted(self._n_patients, 'patient')}"]
        for view, block in self._blocks.items():
            parts.append(f"{view}: {_counted(len(block.names), 'column')}, {_counted(counts[view], 'patient')}")
        return f"MultiViewData({'; '.join(parts)})"

    def patients_with(self, view: str) -> NDArray[np.bool_]:
        """Return a mask of the patients with at least one entry in `view`, shape (n,)."""
        return np.asarray(~np.isnan(self.array(view)).all(axis=1))

    def partial_columns(self, view: str) -> tuple[str, ...]:
        """Return the columns of `view` that are missing for at least one patient with the view."""
        rows = self.array(view)[self.patients_with(view)]
        return tuple(name for name, values in zip(self.columns[view], rows.T, strict=True) if np.isnan(values).any())

    def columns_below(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the columns with entries of fewer than `least` patients, by view."""
        sparse_columns = {}
        for view, block in self._blocks.items():
            n_observed = (~np.isnan(block.values)).sum(axis=0).tolist()
            sparse_columns[view] = tuple(name for name, n in zip(block.names, n_observed, strict=True) if n < least)
        return {view: names for view, names in sparse_columns.items() if names}

    def array(self, view: str) -> Floats:
        """Return the entries of `view`, shape (n, d_k), read-only.

        Raises
        ------
        DataError
            The site does not have this view.
        """
        self._check_views([view])
        return self._blocks[view].values

    def stacked(self, view_order: Sequence[str], sizes: Mapping[str, int] | None = None) -> Floats:
        """Return the views next to each other, shape (n, d), NaN where missing.

        Parameters
        ----------
        view_order : sequence of str
            Views to stack, each once; they may include views that this site lacks.
        sizes : mapping from str to int, optional
            Number of columns of every view; needed for views that this site lacks.

        Raises
        ------
        DataError
            A view is absent and has no size, or its size differs from its number of columns.
        """
        if not view_order or len(set(view_order)) != len(view_order):
            raise DataError(
                f"view_order must name at least one view, each once; got {len(view_order)} names, of which "
                f"{len(set(view_order))} are different",
                where="data",
                hint="Name each view once.",
            )
        return np.hstack([self._array_or_missing(view, (sizes or {}).get(view)) for view in view_order])

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`.

        All views remain, including those that none of these patients has, so that subsets of a site have the same
        schema.

        Parameters
        ----------
        rows : array of int, or of bool with shape (n,)
            Patients to return; integers also define their order.

        Raises
        ------
        DataError
            No patient is selected, one is repeated, or a row does not exist.
        """
        chosen = _checked_rows(rows, self._n_patients)
        ids = None if self._ids is None else _frozen(self._ids[chosen])
        blocks = {view: block.take(chosen) for view, block in self._blocks.items()}
        return self._carried_to(self._of(blocks, ids, len(chosen)), chosen)

    def drop(self, views: Iterable[str]) -> Self:
        """Return the data without these views.

        Raises
        ------
        DataError
            A view is unknown, or none would remain.
        """
        dropped = [views] if isinstance(views, str) else list(views)
        self._check_views(dropped)
        remaining = {view: block for view, block in self._blocks.items() if view not in dropped}
        if not remaining:
            raise DataError("at least one view must remain; none does", where="data", hint="Keep at least one view.")
        return self._carried_to(self._of(remaining, self._ids, self._n_patients))

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the columns of these names; a view without any of them is left out.

        Raises
        ------
        DataError
            No column would remain.
        """
        selected = set(names)
        remaining = {view: block.keep(selected) for view, block in self._blocks.items() if selected & set(block.names)}
        if not remaining:
            raise DataError(
                "at least one column must remain; none does", where="data", hint="Name at least one column of the data."
            )
        return self._carried_to(self._of(remaining, self._ids, self._n_patients))

    def digest(self) -> str:
        """Return the SHA-256 of columns, identifiers and entries, by which a resumed run identifies its data."""
        digest = hashlib.sha256(repr((self.columns, self.kinds)).encode())
        digest.update(repr(None if self._ids is None else self._ids.tolist()).encode() + self._identifier_digest())
        for view in self.views:
            digest.update(self.array(view).tobytes())
        return digest.hexdigest()

    def check_for_fit(self, min_patients: int = 2) -> None:
        """Check that a site has enough patients per view to estimate variances.

        Small subsets need not pass this check. Columns may be constant or empty at one site; they are checked over all
        sites.

        Parameters
        ----------
        min_patients : int
            Minimum number of patients per view.

        Raises
        ------
        DataError
            A view has too few patients, or a patient has no entry at all.
        """
        for view, n_patients in self.n_patients_by_view.items():
            if n_patients < min_patients:
                raise DataError(
                    f"at least {min_patients} patients must have this view; got {n_patients}",
                    where=place(view),
                    hint="Leave the view out of this site.",
                )
        n_without = int((~np.any([self.patients_with(view) for view in self.views], axis=0)).sum())
        if n_without:
            raise DataError(
                f"every patient must have an entry in at least one view; {n_without} patients have none",
                where="data",
                hint="Remove these patients.",
            )

    def check_whole_views(self) -> None:
        """Check that every patient with a view has all its columns, for methods that require complete views.

        Raises
        ------
        DataError
            At least one patient has an incomplete view; the error names its columns.
        """
        for view in self.views:
            if columns := self.partial_columns(view):
                raise DataError(
                    "views must be complete for this method; at least one patient has missing entries",
                    where=place(view, *columns),
                    hint="Impute at the site, leave the patient's whole row of the view empty, or leave the column out "
                    "at every site.",
                )

    def _check_views(self, views: Iterable[str]) -> None:
        for view in views:
            if view not in self._blocks:
                raise DataError(
                    f"the view must be one of {', '.join(self._blocks)}; got {view!r}",
                    where=place(view),
                    hint="Correct the name.",
                )

    def _array_or_missing(self, view: str, size: int | None) -> Floats:
        if view not in self._blocks and size is not None:
            return np.full((self._n_patients, size), np.nan)
        values = self.array(view)
        if size is not None and size != values.shape[1]:
            raise DataError(
                f"the view must have {size} columns; got {values.shape[1]}",
                where=place(view),
                hint="Use the same columns of the view at all sites.",
            )
        return values


def _counted(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _frozen(ids: NDArray[np.str_]) -> NDArray[np.str_]:
    ids.setflags(write=False)
    return ids


def _checked_view_name(name: object, blocks: Mapping[str, Block]) -> str:
    if not isinstance(name, str) or not name.strip():
        raise DataError(
            f"names of views must be non-empty strings; got {name!r}", where="data", hint="Name every view."
        )
    view = plain_name(name)
    if view in blocks:
        raise DataError(
            "names of views must be unique; got two views with this name",
            where=place(view),
            hint="Rename one of them.",
        )
    return view


def _check_views_exist(column_names: Mapping[str, Sequence[str]], blocks: Mapping[str, Block]) -> None:
    for view in column_names:
        if view not in blocks:
            raise DataError(
                "columns must name views of the data; got an unknown view",
                where=place(view),
                hint="Correct the view's name.",
            )


def _common_length(blocks: Mapping[str, Block]) -> int:
    lengths = {view: len(block.values) for view, block in blocks.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{view} {n}" for view, n in lengths.items())
        raise DataError(
            f"views must have equal numbers of rows; got {counts}",
            where="data",
            hint="Use one row per patient, in the same order in every view, and leave the row of a missing view empty.",
        )
    return next(iter(lengths.values()))


def _checked_ids(ids: Iterable[object], n_patients: int) -> NDArray[np.str_]:
    id_list = list(ids)
    if len(id_list) != n_patients:
        raise DataError(
            f"ids must have one value per patient ({n_patients}); got {len(id_list)}",
            where="ids",
            hint="Pass one id per patient.",
        )
    n_invalid = sum(not isinstance(one, str | int | np.integer) or one == "" for one in id_list)
    if n_invalid:
        raise DataError(
            f"ids must be text or integers; {n_invalid} are missing or of a different type",
            where="ids",
            hint="Assign an id to every patient.",
        )
    texts = np.array([str(one) for one in id_list])
    n_repeated = len(texts) - len(np.unique(texts))
    if n_repeated:
        raise DataError(
            f"ids must be unique; {n_repeated} repeat an earlier one",
            where="ids",
            hint="Use one row and a unique id per patient.",
        )
    return _frozen(texts)


def _checked_rows(rows: ArrayLike, n_patients: int) -> NDArray[np.int64]:
    positions = np.asarray(rows)
    if positions.dtype == bool:
        if positions.shape != (n_patients,):
            raise DataError(
                f"a mask must have shape ({n_patients},); got {positions.shape}",
                where="rows",
                hint="Pass one flag per patient.",
            )
        positions = np.flatnonzero(positions)
    if positions.ndim != 1 or positions.size == 0:
        raise DataError(
            f"rows must be a list of at least one patient; got shape {positions.shape}",
            where="rows",
            hint="Pass a list with at least one row.",
        )
    if positions.dtype.kind not in "iu" or positions.min() < 0 or positions.max() >= n_patients:
        raise DataError(
            f"rows must be integers from 0 to {n_patients - 1}; some are not",
            where="rows",
            hint="Correct the rows.",
        )
    if len(np.unique(positions)) != len(positions):
        raise DataError("rows must be unique; some are repeated", where="rows", hint="Pass every row once.")
    return positions.astype(np.int64)
