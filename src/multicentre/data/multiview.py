"""Several views of the same patients at one site."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.blocks import Block, Floats, place, plain_name, read_block
from multicentre.data.identifiers import Identified
from multicentre.data.schema import Kind, MultiViewSchema
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    Frame = pd.DataFrame | pl.DataFrame | NDArray[np.generic] | Block


class MultiViewData(Identified):
    """Views (tables of columns that belong together) of the same patients, in the same order in every view.

    A missing entry is not-a-number. A patient whose whole row of a view is missing lacks that view; a view that is
    absent from the mapping is absent at this site. The object cannot be changed: `take` and `drop` return new ones.

    Parameters
    ----------
    views : mapping from str to pandas frame, polars frame or array of shape (n, d_k)
        One table a view, one row a patient. Names are brought to composed Unicode (NFC).
    ids : sequence of str, optional
        One identifier a patient. Kept to join and to hide duplicates; no method sends it.
    columns : mapping from str to sequence of str, optional
        Column names of views that are given as arrays; ``<view>_<j>`` by default.

    Raises
    ------
    DataError
        A view has no rows, no columns or no entries; row counts differ; a column is named twice, or holds something
        other than finite numbers; an identifier occurs twice or is missing. The message names the view, the column and
        how many cells, never a cell.

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
            raise DataError("there are no views", where="data", hint="Give at least one view.")
        named = {plain_name(view): names for view, names in (columns or {}).items()}
        blocks: dict[str, Block] = {}
        for name, source in views.items():
            view = _checked_view_name(name, blocks)
            blocks[view] = read_block(view, source, named.get(view))
        _check_known(named, blocks)
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
        """View names, in the order given."""
        return tuple(self._blocks)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Column names of every view."""
        return {view: block.names for view, block in self._blocks.items()}

    @property
    def kinds(self) -> dict[str, tuple[Kind, ...]]:
        """Kind of every column of every view: "boolean" for truth values, "number" for all else."""
        return {view: block.kinds for view, block in self._blocks.items()}

    @property
    def schema(self) -> MultiViewSchema:
        """Names and kinds of all columns."""
        return MultiViewSchema(self.views, self.columns, self.kinds)

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), if any were given. Private to the site."""
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
        """Number of patients with an entry, by view: what studies count of data of any kind."""
        return self.n_patients_by_view

    @property
    def has_missing_entries(self) -> bool:
        """Whether some patient has a view in part."""
        return any(
            bool(np.any(gone.any(axis=1) & ~gone.all(axis=1)))
            for gone in (np.isnan(block.values) for block in self._blocks.values())
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
        """Return which patients have at least one entry in `view`, shape (n,)."""
        return np.asarray(~np.isnan(self.array(view)).all(axis=1))

    def partial_columns(self, view: str) -> tuple[str, ...]:
        """Return the columns of `view` that a patient who has the view lacks."""
        held = self.array(view)[self.patients_with(view)]
        return tuple(name for name, values in zip(self.columns[view], held.T, strict=True) if np.isnan(values).any())

    def columns_below(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the columns of which fewer than `least` patients have an entry, by view."""
        found = {}
        for view, block in self._blocks.items():
            n_known = (~np.isnan(block.values)).sum(axis=0).tolist()
            found[view] = tuple(name for name, n in zip(block.names, n_known, strict=True) if n < least)
        return {view: names for view, names in found.items() if names}

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
        """Return the views side by side, shape (n, d), not-a-number where missing.

        Parameters
        ----------
        view_order : sequence of str
            Views to stack, each once; they may include views that this site lacks.
        sizes : mapping from str to int, optional
            Number of columns of every view; needed for views that this site lacks.

        Raises
        ------
        DataError
            A view is absent and has no size, or has another size than its columns.
        """
        if not view_order or len(set(view_order)) != len(view_order):
            raise DataError("views to stack must be named once each", where="data", hint="Remove the repetition.")
        return np.hstack([self._array_or_missing(view, (sizes or {}).get(view)) for view in view_order])

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`.

        All views stay, even those that none of these patients has, so that subsets of one site share a schema.

        Parameters
        ----------
        rows : array of int, or of bool with shape (n,)
            Which patients; integers also say in which order.

        Raises
        ------
        DataError
            No patient is chosen, one is chosen twice, or a row does not exist.
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
        unwanted = [views] if isinstance(views, str) else list(views)
        self._check_views(unwanted)
        kept = {view: block for view, block in self._blocks.items() if view not in unwanted}
        if not kept:
            raise DataError("no view would remain", where="data", hint="Keep at least one view.")
        return self._carried_to(self._of(kept, self._ids, self._n_patients))

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the columns of these names; a view that keeps none is left out.

        Raises
        ------
        DataError
            No column would remain.
        """
        wanted = set(names)
        kept = {view: block.keep(wanted) for view, block in self._blocks.items() if wanted & set(block.names)}
        if not kept:
            raise DataError("no column would remain", where="data", hint="Name at least one of its columns.")
        return self._carried_to(self._of(kept, self._ids, self._n_patients))

    def digest(self) -> str:
        """Return the SHA-256 of columns, identifiers and entries, by which a resumed run knows its data again."""
        digest = hashlib.sha256(repr((self.columns, self.kinds)).encode())
        digest.update(repr(None if self._ids is None else self._ids.tolist()).encode() + self._identifier_digest())
        for view in self.views:
            digest.update(self.array(view).tobytes())
        return digest.hexdigest()

    def check_for_fit(self, min_patients: int = 2) -> None:
        """Check what a method that estimates variances needs of a whole site, and that a small subset may lack.

        Columns may be constant or empty here: whether they are of use shows over all sites alone.

        Parameters
        ----------
        min_patients : int
            Smallest number of patients that must have each view.

        Raises
        ------
        DataError
            A view has too few patients, or a patient has no entry at all.
        """
        for view, n_patients in self.n_patients_by_view.items():
            if n_patients < min_patients:
                raise DataError(
                    f"{n_patients} patients have this view, at least {min_patients} are needed",
                    where=place(view),
                    hint="Leave the view out of this site.",
                )
        n_without = int((~np.any([self.patients_with(view) for view in self.views], axis=0)).sum())
        if n_without:
            raise DataError(f"{n_without} patients have no entry in any view", where="data", hint="Remove them.")

    def check_whole_views(self) -> None:
        """Check that every patient who has a view has all its columns, for methods that cannot do without one.

        Raises
        ------
        DataError
            Somebody has a view in part; the error names its columns.
        """
        for view in self.views:
            if columns := self.partial_columns(view):
                raise DataError(
                    "some patient has the view in part, and this method has no answer to missing entries",
                    where=place(view, *columns),
                    hint="Impute at the site, leave the patient's whole row of the view empty, or leave the column out "
                    "at every site.",
                )

    def _check_views(self, views: Iterable[str]) -> None:
        for view in views:
            if view not in self._blocks:
                raise DataError(
                    "this site does not have the view",
                    where=place(view),
                    hint=f"It has {', '.join(self._blocks)}.",
                )

    def _array_or_missing(self, view: str, size: int | None) -> Floats:
        if view not in self._blocks and size is not None:
            return np.full((self._n_patients, size), np.nan)
        values = self.array(view)
        if size is not None and size != values.shape[1]:
            raise DataError(
                f"the view has {values.shape[1]} columns, {size} are expected",
                where=place(view),
                hint="Agree on the schema first.",
            )
        return values


def _counted(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _frozen(ids: NDArray[np.str_]) -> NDArray[np.str_]:
    ids.setflags(write=False)
    return ids


def _checked_view_name(name: object, seen: Mapping[str, Block]) -> str:
    if not isinstance(name, str) or not name.strip():
        raise DataError("a view has no name", where="data", hint="Name every view with a string.")
    view = plain_name(name)
    if view in seen:
        raise DataError("two views have this name", where=place(view), hint="Rename one of them.")
    return view


def _check_known(named: Mapping[str, Sequence[str]], blocks: Mapping[str, Block]) -> None:
    for view in named:
        if view not in blocks:
            raise DataError("column names are given for no view", where=place(view), hint="Correct the view's name.")


def _common_length(blocks: Mapping[str, Block]) -> int:
    lengths = {view: len(block.values) for view, block in blocks.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{view} {n}" for view, n in lengths.items())
        raise DataError(
            f"views have different numbers of rows ({counts})",
            where="data",
            hint="Give every view one row a patient in the same order; leave the row of a missing view empty.",
        )
    return next(iter(lengths.values()))


def _checked_ids(ids: Iterable[object], n_patients: int) -> NDArray[np.str_]:
    given = list(ids)
    if len(given) != n_patients:
        raise DataError(f"{len(given)} ids for {n_patients} patients", where="ids", hint="Give one id a patient.")
    n_strange = sum(not isinstance(one, str | int | np.integer) or one == "" for one in given)
    if n_strange:
        raise DataError(f"{n_strange} ids are missing or not text", where="ids", hint="Give every patient an id.")
    texts = np.array([str(one) for one in given])
    n_repeated = len(texts) - len(np.unique(texts))
    if n_repeated:
        raise DataError(
            f"{n_repeated} ids repeat an earlier one",
            where="ids",
            hint="Give every patient one row and an id of its own.",
        )
    return _frozen(texts)


def _checked_rows(rows: ArrayLike, n_patients: int) -> NDArray[np.int64]:
    given = np.asarray(rows)
    if given.dtype == bool:
        if given.shape != (n_patients,):
            raise DataError(f"the mask is not of length {n_patients}", where="rows", hint="Give one flag a patient.")
        given = np.flatnonzero(given)
    if given.ndim != 1 or given.size == 0:
        raise DataError("no patient is chosen", where="rows", hint="Give a list with at least one row.")
    if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n_patients:
        raise DataError("some rows do not exist", where="rows", hint=f"Rows go from 0 to {n_patients - 1}.")
    if len(np.unique(given)) != len(given):
        raise DataError("a patient is chosen more than once", where="rows", hint="Give every row once.")
    return given.astype(np.int64)
