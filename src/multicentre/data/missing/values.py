"""Missing values of tabular data: counted over all sites and handled in the same way at every site.

A fit on numeric columns begins with one call. Each site counts its missing entries and its incomplete records. After
that it handles missing entries according to the estimator's parameter ``missing``:

- ``"complete"``: records with a missing entry are left out;
- ``"indicator"``: a column ``missing_name`` of zeros and ones is added for each column with missing entries at any
  site, and the entries are filled with the mean over all sites;
- ``"mean"``: missing entries are filled with the mean over all sites;
- ``"native"``: the method itself handles missing entries.

Only the totals over sites reach the coordinator.
"""

from __future__ import annotations

import typing
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing, array, count, text, texts
from multicentre.core.published_counts import MIN_PUBLISHED, count_text, published
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.data.tabular import Tabular, flag_missing, indicators_of, sources_of
from multicentre.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=Tabular)

Missing = Literal["complete", "indicator", "mean", "native"]

GAP_STEPS = frozenset({"count_gaps", "handle_gaps", "add_indicators", "report_gaps"})

# Columns that a message lists, so that it stays readable; as MAX_ROWS_NAMED in `data.cells`.
_MAX_NAMED = 5

_FIT_FOR_GAPS = 'Fit with a different value of missing, such as missing="mean", to predict for them.'


@dataclass(frozen=True)
class Handling(Message):
    """Handling of missing entries, and the columns concerned."""

    missing: str = text("complete, indicator, mean or native")
    columns: tuple[str, ...] = texts("columns whose missing entries are counted, categories without their levels")


@dataclass(frozen=True)
class Indicators(Message):
    """Columns with missing entries at any site."""

    columns: tuple[str, ...] = texts("names of columns, of categories without their levels")


@dataclass(frozen=True)
class Gaps(Release):
    """Missing entries and incomplete records."""

    of_all_records: ClassVar[bool] = True
    without_values: ClassVar[bool] = True
    n_records: int = count("records")
    n_incomplete: int = count("records with a missing entry")
    entries: NDArray[np.int64] = array(
        "missing entries of every column", ("d",), dtype="i8", bound=2.0**40, counts=True
    )


@dataclass(frozen=True)
class MissingValues:
    """Missing values of a fit, over all sites.

    Parameters
    ----------
    missing : {"complete", "indicator", "mean", "native"}
        Handling of the missing values.
    columns : tuple of str
        Columns of the fit; categories without their levels.
    entries : tuple of int or None
        Missing entries of every column; None for a small count of a loaded model.
    n_records : int
        Records of all sites, before any were left out.
    n_incomplete : int or None
        Records with a missing entry; None for a small count of a loaded model.

    Examples
    --------
    >>> counts = MissingValues("complete", ("age", "stage"), (12, 3), 120, 15)
    >>> counts.line()
    '15 of 120 records left out: missing age (12), stage (<5).'
    >>> counts.to_frame()
      column  missing  share
    0    age     12.0    0.1
    1  stage      NaN    NaN
    """

    missing: Missing
    columns: tuple[str, ...]
    entries: tuple[int | None, ...]
    n_records: int
    n_incomplete: int | None

    @property
    def totals(self) -> tuple[int | None, ...]:
        """Records, incomplete records and missing entries of every column, over all sites."""
        return (self.n_records, self.n_incomplete, *self.entries)

    def line(self, least: int = MIN_PUBLISHED) -> str:
        """Return one sentence with the number of records left out or of incomplete records, small counts as "<5"."""
        if self.n_incomplete == 0:
            return "No missing values."
        columns, incomplete = self._describe_columns(least), count_text(self.n_incomplete, least)
        if self.missing == "complete":
            return f"{incomplete} of {self.n_records:,} records left out: missing {columns}."
        verb = {"mean": "filled with the mean", "indicator": "marked, and filled with the mean", "native": "kept"}
        return f"{incomplete} of {self.n_records:,} records are incomplete: {columns}; {verb[self.missing]}."

    def to_frame(self, least: int = MIN_PUBLISHED) -> pd.DataFrame:
        """Return a row per column: its name, missing entries, and their share of all records; NaN for small counts."""
        import pandas as pd

        counts = np.array([published(n, least) for n in self.entries], dtype=np.float64)
        columns = {"column": list(self.columns), "missing": counts, "share": counts / max(self.n_records, 1)}
        return pd.DataFrame(columns)

    def to_dict(self, least: int = MIN_PUBLISHED) -> dict[str, Any]:
        """Return the fields as plain values for a file, without small counts."""
        entries = [published(n, least) for n in self.entries]
        changed = {
            "columns": list(self.columns),
            "entries": entries,
            "n_incomplete": published(self.n_incomplete, least),
        }
        return {**asdict(self), **changed}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Create the counts from the output of :meth:`to_dict`."""
        if len(facts["columns"]) != len(facts["entries"]):
            raise DataError("there must be one number of missing entries per column; got another", where="missing")
        return cls(**{**facts, "columns": tuple(facts["columns"]), "entries": tuple(facts["entries"])})

    @property
    def incomplete_columns(self) -> tuple[str, ...]:
        """Names of the columns with missing entries."""
        return tuple(name for name, n in zip(self.columns, self.entries, strict=True) if n != 0)

    @property
    def indicators(self) -> tuple[str, ...]:
        """Names of the indicator columns that were added."""
        return indicators_of(self.incomplete_columns) if self.missing == "indicator" else ()

    def _describe_columns(self, least: int) -> str:
        incomplete = [(name, published(n, least)) for name, n in zip(self.columns, self.entries, strict=True) if n != 0]
        ordered = sorted(incomplete, key=lambda item: -(item[1] or 0))
        rest = f" and {len(ordered) - _MAX_NAMED} more columns" if len(ordered) > _MAX_NAMED else ""
        return ", ".join(f"{name} ({count_text(n, least)})" for name, n in ordered[:_MAX_NAMED]) + rest


class TabularPart(SitePart):
    """Base class of the site parts that use numeric columns with possibly missing entries.

    Attributes
    ----------
    data : Tabular
        Records that the method uses. After :meth:`count_gaps`, missing entries are handled as the fit requires.
    """

    data: Any
    sums_fields: ClassVar[bool] = True
    handles: ClassVar[tuple[Missing, ...]] = get_args(Missing)
    lengths: ClassVar[Lengths] = {"d": "columns of the fit; a category is one column, or one for each of its levels"}
    _everyone: Tabular | None = None
    _handling: Handling | None = None

    @step(releases=Gaps, when="once", summed=True)
    def count_gaps(self, request: Handling) -> Gaps:
        """Count missing entries and incomplete records, and handle them as the fit requires."""
        self._settle(request)
        return self._gaps(len(self.data))

    @step(releases=Acknowledgement, when="once")
    def handle_gaps(self, request: Handling) -> Acknowledgement:
        """Handle missing entries as in the resumed fit; no value leaves the site."""
        self._settle(request)
        return Acknowledgement()

    @step(releases=Acknowledgement, when="once")
    def add_indicators(self, request: Indicators) -> Acknowledgement:
        """Add an indicator column for each column with missing entries at any site; no value leaves the site."""
        if self._handling is None or self._handling.missing != "indicator":
            raise ConfigurationError(
                'missing must be "indicator" to add indicators; got a different value',
                where="add_indicators",
                hint="Start a new fit.",
            )
        self.data = self._all.with_indicators(request.columns)
        return Acknowledgement()

    @step(releases=Gaps, refusable=True)
    def report_gaps(self, request: Nothing) -> Gaps:
        """Count this site's missing entries; refused if a count is below the policy's minimum of patients."""
        return self._gaps(len(self._all))

    def _settle(self, request: Handling) -> None:
        if request.missing not in self.handles:
            raise ConfigurationError(
                f"missing must be one of {', '.join(self.handles)}; got {request.missing!r}", where="missing"
            )
        if self._handling not in (None, request):
            raise ConfigurationError(
                f"missing must be {self._handling.missing!r}, and the columns those of the first request of this fit; "
                f"got {request.missing!r}, or different columns",
                where="missing",
                hint="Start a new fit.",
            )
        if self._handling is not None:
            return
        self._handling, self._everyone = request, self.data
        if request.missing == "complete":
            self._leave_out_incomplete()
        # States stored between rounds belong to these records; a restored state requires the same handling.
        label = f"missing={request.missing}:{sha256(repr(request.columns).encode()).hexdigest()[:16]}"
        self.within = f"{self.within}/{label}" if self.within else label

    def _leave_out_incomplete(self) -> None:
        complete = np.flatnonzero(~self._flags().any(axis=1))
        if len(complete) == len(self._all):
            return
        if not len(complete):
            is_empty = np.asarray(self._flags().all(axis=0)).tolist()
            empty = [name for name, all_missing in zip(self._columns, is_empty, strict=True) if all_missing]
            raise DataError(
                "at least one record must be complete; none is"
                + (f", and these columns are empty here: {', '.join(empty[:_MAX_NAMED])}" if empty else ""),
                where=self.site,
                hint='Leave out the column or the site, or fit with missing="mean" or missing="indicator".',
            )
        self.data, self.used = self._all.take(complete), complete

    def _gaps(self, n_records_used: int) -> Gaps:
        flags = self._flags()
        entries, incomplete = flags.sum(axis=0, dtype=np.int64), int(flags.any(axis=1).sum())
        total = len(self._all)
        cells = incomplete, total - incomplete, *entries, *(total - entries)
        return Gaps(total, incomplete, entries, patients=self.n_contributing(n_records_used, cells))

    @property
    def _all(self) -> Tabular:
        if self._everyone is None:
            raise ConfigurationError(
                "missing entries must be handled before this request; they were not",
                where=self.method,
                hint="Start the fit again.",
            )
        return self._everyone

    @property
    def _columns(self) -> tuple[str, ...]:
        return () if self._handling is None else self._handling.columns

    def _flags(self) -> NDArray[np.bool_]:
        """Return a mask of the missing entries of the fit's columns, shape (n, d)."""
        return flag_missing(self._all.X, self._all.columns, self._all.levels, self._columns)


class HandlesMissing:
    """Base class of the estimators of tabular data: report on the missing values of a fit.

    Attributes
    ----------
    missing_ : pandas frame
        A row per column of the fit: its name, its missing entries over all sites, and their share of all records.
    missing_line_ : str
        One sentence with the number of records left out, or of incomplete records and their handling.
    """

    missing_values_: MissingValues
    least_published: int = MIN_PUBLISHED
    """Smallest count that results state; see :mod:`multicentre.core.published_counts`."""

    @property
    def missing_(self) -> pd.DataFrame:
        """Missing entries of every column, over all sites."""
        return self.missing_values_.to_frame(self.least_published)

    @property
    def missing_line_(self) -> str:
        """Handling of incomplete records, in one sentence."""
        return self.missing_values_.line(self.least_published)

    def require_complete(self, rows: NDArray[np.float64]) -> None:
        """Raise DataError if the model was fitted to complete records and rows have missing values."""
        incomplete = np.asarray(np.isnan(rows).any(axis=1))
        if self.missing_values_.missing == "complete" and incomplete.any():
            raise DataError(
                f"X must have no missing values, because the fit left incomplete records out; "
                f"{int(incomplete.sum())} of {len(incomplete)} records have some",
                where="X",
                hint=_FIT_FOR_GAPS,
            )

    def _columns_of_fit(self) -> Sequence[str]:
        """Return the columns and categories of the fit."""
        return self.missing_values_.columns

    def leave_out_incomplete(self, data: T) -> T:
        """Return the records to score: those without missing values if the model was fitted to complete records.

        Warns if records are left out.
        """
        incomplete = data.incomplete(self._columns_of_fit())
        if self.missing_values_.missing != "complete" or not incomplete.any():
            return data
        warnings.warn(
            f"{int(incomplete.sum())} of {len(incomplete)} patients have missing values and are left out of the score, "
            f"because the model was fitted to complete records. {_FIT_FOR_GAPS}",
            UserWarning,
            stacklevel=3,
        )
        return data.take(np.flatnonzero(~incomplete))

    def missing_by_site(self) -> pd.DataFrame:
        """Request the counts of missing values from every site.

        A site answers only if none of its counts is below its policy's minimum of patients. If the total and the
        answers would tell a small count of the other sites, the smallest answer is left out too.

        Returns
        -------
        pandas frame
            A row per site: records, incomplete records and missing entries of every column. NaN if the site refuses;
            its reason is in ``attrs["refused"]`` of the frame.
        """
        import pandas as pd

        session: Session = self.session  # type: ignore[attr-defined]
        part = typing.cast("type[TabularPart]", session.part)
        answers = session.ask(part.report_gaps, Nothing(), skip_refusals=True)
        rows = {site: _row_of(answers.get(site), self.missing_values_.columns) for site in session.sites}
        values = self.missing_values_
        totals = dict(zip(["records", "incomplete", *values.columns], values.totals, strict=True))
        frame = hide_remainders(pd.DataFrame.from_dict(rows, orient="index"), totals, self.least_published)
        frame.attrs["refused"] = answers.refused
        return frame


def hide_remainders(frame: pd.DataFrame, totals: Mapping[str, int | None], least: int) -> pd.DataFrame:
    """Leave out counts of sites from which, with the total, a small count of the other sites would follow.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [12.0, 20.0, np.nan]}, index=["lyon", "oslo", "rome"])
    >>> hide_remainders(frame, {"age": 34}, 5)["age"].tolist()
    [nan, 20.0, nan]
    """
    for name, total in totals.items():
        answers = frame[name].sort_values().dropna()
        answers = answers[answers > 0]
        while total is not None and len(answers) and 0 < total - answers.sum() < least:
            frame.loc[answers.index[0], name] = np.nan
            answers = answers.iloc[1:]
    return frame


def _row_of(answer: Gaps | None, columns: Sequence[str]) -> dict[str, float]:
    names = ["records", "incomplete", *columns]
    if answer is None:
        return dict.fromkeys(names, float("nan"))
    return dict(zip(names, [answer.n_records, answer.n_incomplete, *answer.entries.tolist()], strict=True))


def handle_missing(
    session: Session,
    part: type[TabularPart],
    columns: Sequence[str],
    levels: Sequence[str],
    missing: Missing,
    *,
    marked: Sequence[str] | None = None,
) -> MissingValues:
    """Count missing values over all sites, and handle them in the same way at every site.

    Parameters
    ----------
    session : Session
        Session of the fit. A resumed run reads the counts from its checkpoint; the sites handle missing values again.
    part : type
        The method's site part.
    columns : sequence of str
        Columns whose missing entries are counted, the same at all sites. If empty, no request is sent.
    levels : sequence of str
        Declared levels of the categories, ``name=level``.
    missing : {"complete", "indicator", "mean", "native"}
    marked : sequence of str, optional
        Columns that get an indicator regardless of the missing entries here: those of the fit of an evaluated model.

    Raises
    ------
    ConfigurationError
        The method does not support `missing`.
    DataError
        A site has no complete record.
    """
    if missing not in part.handles:
        raise ConfigurationError(
            f"missing must be one of {', '.join(map(repr, part.handles))}; got {missing!r}", where="missing"
        )
    if not columns:
        return MissingValues(missing, (), (), 0, 0)
    sources = tuple(dict.fromkeys(sources_of(columns, levels)))
    handling, is_new = Handling(missing, sources), False
    if session.consortium.leaves_out_rare:
        return _handle_uncounted(session, part, handling)

    def make() -> Gaps:
        nonlocal is_new
        is_new = True
        return session.sum(part.count_gaps, handling)

    gaps = session.once("gaps", Gaps, make)
    if not is_new:
        session.ask(part.handle_gaps, handling)
    counted = MissingValues(missing, sources, tuple(gaps.entries.tolist()), gaps.n_records, gaps.n_incomplete)
    if missing == "indicator":
        session.ask(part.add_indicators, Indicators(counted.incomplete_columns if marked is None else tuple(marked)))
    return counted


def _handle_uncounted(session: Session, part: type[TabularPart], handling: Handling) -> MissingValues:
    """Handle missing values in a fit to one site, whose counts would leave unmasked: a small one refuses the fit."""
    session.ask(part.handle_gaps, handling)
    missing = typing.cast(Missing, handling.missing)
    if missing == "indicator":  # of all columns; those without missing entries are constant and left out
        session.ask(part.add_indicators, Indicators(handling.columns))
    return MissingValues(missing, handling.columns, (None,) * len(handling.columns), 0, None)


def count_missing(
    columns: Mapping[str, Sequence[str]], observed: NDArray[np.float64], n_patients: float
) -> pd.DataFrame:
    """Count the patients of all sites without an entry, and their share, per column.

    Patients who lack the whole view are included, also at sites without the view, as in a stacked table of all sites.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        Names of the columns by view, in stacking order.
    observed : array of shape (d,)
        Patients of all sites with an entry.
    n_patients : float
        Patients of all sites.

    Examples
    --------
    >>> count_missing({"blood": ["iron"], "mri": ["volume"]}, np.array([40.0, 30.0]), 40)
        view  column  missing  share
    0  blood    iron        0   0.00
    1    mri  volume       10   0.25
    """
    import pandas as pd

    names = [(view, column) for view, view_columns in columns.items() for column in view_columns]
    missing = np.rint(n_patients - observed).astype(np.int64)
    frame = pd.DataFrame(names, columns=["view", "column"])
    return frame.assign(missing=missing, share=missing / max(n_patients, 1.0))
