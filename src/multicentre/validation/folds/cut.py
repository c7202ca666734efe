"""Site part of folds by a covariate, which keep all records with the same value in one fold.

Thresholds are cut between cells of the covariate that do not depend on the data: 24 binary digits of a number, and
weeks of a date. Searches and thresholds therefore disclose at most the cell of a value, whatever the number of
requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Message, array, flag
from multicentre.core.steps import Acknowledgement, Release, step
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError
from multicentre.linkage.pseudonyms import PseudonymKey, Pseudonyms
from multicentre.privacy.identifier_normalisation import DateOrder, normalise
from multicentre.statistics.quantiles.maths import coarsen, encode_doubles
from multicentre.statistics.quantiles.site import CountingPart
from multicentre.validation.folds.group_sizes import fewest_patients
from multicentre.validation.folds.keyed import KEY_HINT, MISSING_HINT, NO_KEY, HashedFolds, hash_people, inside
from multicentre.validation.folds.site import MAX_RECORDS, Hashing, Survey
from multicentre.validation.folds.splitter import checked_splits

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


def parts_of(values: Floats, thresholds: Floats) -> Integers:
    """Return the part of each value, shape (n,): the number of thresholds below it; -1 for NaN.

    Examples
    --------
    >>> parts_of(np.array([0.5, 1.0, 7.0, np.nan]), np.array([1.0, 2.0])).tolist()
    [0, 0, 2, -1]
    """
    return np.where(np.isnan(values), -1, np.searchsorted(thresholds, values, side="left")).astype(np.int64)


def order_bins(key: PseudonymKey, purpose: str, n_bins: int) -> Integers:
    """Return the bins in the order of their keyed hashes, shape (n_bins,).

    Examples
    --------
    >>> from multicentre.privacy.secret_files import Secret
    >>> sorted(order_bins(PseudonymKey(Secret(bytes(range(32)))), "example", 5).tolist())
    [0, 1, 2, 3, 4]
    """
    purpose_hash = key.hash_for(purpose)
    digests = []
    for number in range(n_bins):
        bin_hash = purpose_hash.copy()
        bin_hash.update(number.to_bytes(2, "big"))
        digests.append(bin_hash.digest())
    return np.array(sorted(range(n_bins), key=digests.__getitem__), dtype=np.int64)


def deal_bins(sizes: Integers, order: Integers, n_splits: int) -> Integers:
    """Return the fold of each bin, shape (n_bins,): each in turn is put into the fold with the fewest records so far.

    Parameters
    ----------
    sizes : array of int, shape (n_bins,)
        Records in each bin.
    order : array of int, shape (n_bins,)
    n_splits : int

    Examples
    --------
    >>> deal_bins(np.array([10, 10, 10, 10]), np.array([2, 0, 3, 1]), 2).tolist()
    [1, 1, 0, 0]
    """
    fold, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(n_splits, dtype=np.int64)
    for place in order.tolist():
        fold[place] = int(filled.argmin())
        filled[fold[place]] += sizes[place]
    return fold


# Default number of bins per fold: enough to even out folds, and few enough to put most noisy copies into one bin.
BINS_PER_FOLD = 4

# Twice the default: more bins balance folds better, but a policy may refuse counts of few records per bin.
MAX_BINS_PER_FOLD = 8

# Days per cell of dates: a threshold at a week does not identify the birth date of one patient.
DAYS_PER_CELL = 7


@dataclass(frozen=True)
class Cutting(Hashing):
    """Thresholds of the covariate."""

    thresholds: Floats = array("last value of each part except the last", ("t",))


@dataclass(frozen=True)
class Dealing(Cutting):
    """Assignment of parts to folds."""

    sizes: Integers = array("records in each part, over all sites", ("b",), dtype="i8")
    permuted: bool = flag("parts are assigned to folds in an order set by the key; otherwise part j is fold j")


@dataclass(frozen=True)
class PartCounts(Release):
    """Records between the thresholds."""

    records: Integers = array("records, by part", ("b",), dtype="i8", unit="records", bound=MAX_RECORDS, counts=True)


_BY_HASH = 'Split by a hash (scheme="hash", HashGroupKFold).'


class CutFolds(HashedFolds, CountingPart):
    """Site part of folds by a covariate."""

    method: ClassVar[str] = "covariate-folds"
    revision: ClassVar[int] = 2
    _first_request: Hashing | None = None
    _thresholds: Floats | None = None

    @step(releases=Survey, when="once", summed=True)
    def survey(self, request: Hashing) -> Survey:
        """Count records, and those that lack the covariate; refuse one that differs between a patient's records."""
        values = self._values(request)
        missing = np.isnan(values)
        self._check_one_covariate(request)
        if self.masked and self.n_patients(~missing) < self.least_behind:
            raise DisclosureRefused(
                f"at least {self.least_behind} patients of the site must have the covariate; got fewer",
                where=f"{self.site}, {request.person_key}",
                hint="Use a covariate that all sites have, or leave the site out.",
            )
        if not self.masked and 0 < self.n_patients(missing) < self.least_behind:
            raise DisclosureRefused(
                f"the patients who lack the covariate must be none or at least {self.least_behind}, because leaving "
                "out few would disclose them; got fewer",
                where=f"{self.site}, {request.person_key}",
                hint=suggest_masks(MISSING_HINT, protection="unmasked", n_sites=self.n_peers),
            )
        return Survey(float(len(values)), float(missing.sum()), 0.0, patients=len(values))

    def quantile_values(self) -> Floats:
        """Return the first value of each record's cell of the requested covariate, one row per record."""
        values = self._cells(self._previous_request)
        self._check_clear(values)
        return values[:, None]

    def most_parts(self) -> int:
        """Return the largest number of bins of the folds."""
        return MAX_BINS_PER_FOLD * checked_splits(self._previous_request.n_splits)

    @step(releases=PartCounts, when="once", summed=True)
    def count_parts(self, request: Cutting) -> PartCounts:
        """Count records between the thresholds."""
        values, thresholds = self._cells(request), self._checked_thresholds(request)
        self._check_clear(values)
        part = parts_of(values, thresholds)
        counts = np.bincount(part[part >= 0], minlength=len(request.thresholds) + 1)
        return PartCounts(counts.astype(np.int64), patients=self.n_contributing(len(values), counts))

    @step(releases=Acknowledgement, when="once")
    def cut(self, request: Dealing) -> Acknowledgement:
        """Put each record into the fold of its part."""
        values, n_splits, n_parts = self._cells(request), checked_splits(request.n_splits), len(request.thresholds) + 1
        part = parts_of(values, self._checked_thresholds(request))
        if len(request.sizes) != n_parts or (request.sizes < 0).any() or (n_parts != n_splits and not request.permuted):
            raise MessageError(
                f"sizes must be those of {n_parts} parts for {n_splits} folds; got {len(request.sizes)} parts",
                where="Dealing.sizes",
            )
        fold = (
            deal_bins(request.sizes, self._order(request, n_parts), n_splits)
            if request.permuted
            else np.arange(n_splits)
        )
        self.settle(np.where(part < 0, -1, fold[part]), n_splits, request, movable=self._rarest(values))
        return Acknowledgement()

    def source_of(self, request: Message) -> str:
        """Return the name of the covariate for thresholds, which no hash separates from those of other plans."""
        return f"cut/v1/{request.person_key}" if isinstance(request, Cutting) else super().source_of(request)

    def _new_pseudonyms(self, hashing: Hashing) -> Pseudonyms:
        if not isinstance(self.key, PseudonymKey):
            raise ConfigurationError(NO_KEY, where=self.site, hint=KEY_HINT)
        return hash_people(
            texts_of(self._values(hashing)), None, self.key, replace(hashing, kind="identifier"), "iso", self.within
        )

    def _values(self, hashing: Hashing) -> Floats:
        """Return the covariate of each record, shape (n,); NaN where missing."""
        values = self._column(hashing.person_key)
        if values is None:
            columns = getattr(self.data, "identifier", None)
            if columns is None or hashing.person_key not in columns.names:
                raise DataError(
                    "the covariate must be a column of the data or of the identifiers; the site has no such column",
                    where=hashing.person_key,
                    hint="Use a covariate that all sites have, or leave the site out.",
                )
            texts = columns.column(hashing.person_key)
            values = read_covariate(texts, hashing.kind, hashing.order_at(self.site), hashing.person_key)
        if not hashing.patient_key:
            return values
        return share_values(values, self.patients_by(hashing.patient_key), hashing.person_key)

    def _cells(self, hashing: Hashing) -> Floats:
        """Return the first value of each record's cell, the only input of thresholds; NaN where missing."""
        of_data = self._column(hashing.person_key) is not None
        if not of_data and hashing.kind != "date":
            raise DisclosureRefused(
                "folds by thresholds must be cut by a column of the data or a date, because a search for thresholds "
                "would reveal identifiers; got numbers among the identifiers",
                where=f"{self.site}, {hashing.person_key}",
                hint='Split by a hash (scheme="hash", HashGroupKFold), or by a column of the data.',
            )
        return covariate_cells(self._values(hashing), is_date=not of_data)

    @property
    def _previous_request(self) -> Hashing:
        if self._first_request is None:
            raise ConfigurationError(
                "the covariate must be set by survey before this step; got none",
                where=self.method,
                hint="Make a new plan.",
            )
        return self._first_request

    def _check_one_covariate(self, hashing: Hashing) -> None:
        """Refuse a different covariate, or a different way of reading it, in one session."""
        request = Hashing(**{name: getattr(hashing, name) for name in Hashing.declarations()})
        self._first_request = self._first_request or request
        if self._first_request != request:
            raise ConfigurationError(
                "the covariate must be the same throughout a session; got a different one",
                where=self.method,
                hint="Make a new plan.",
            )

    def _checked_thresholds(self, request: Cutting) -> Floats:
        """Return the thresholds, which are fixed per session; two sets would disclose the records between them."""
        self._check_one_covariate(request)
        thresholds = request.thresholds
        if len(thresholds) >= self.most_parts() or not (np.diff(thresholds) > 0).all() or np.isnan(thresholds).any():
            raise MessageError(
                f"thresholds must be at most {self.most_parts() - 1} increasing numbers; got {len(thresholds)} numbers",
                where="Cutting.thresholds",
            )
        if self._thresholds is not None and not np.array_equal(self._thresholds, thresholds):
            raise ConfigurationError(
                "thresholds must be the same throughout a session; got different ones",
                where=self.method,
                hint="Make a new plan.",
            )
        self._thresholds = thresholds
        return thresholds

    def _column(self, name: str) -> Floats | None:
        columns: Any = getattr(self.data, "columns", ())
        if not hasattr(self.data, "X") or name not in columns:
            return None
        return np.asarray(self.data.X[:, columns.index(name)], dtype=np.float64)

    def _order(self, hashing: Hashing, n_bins: int) -> Integers:
        if not isinstance(self.key, PseudonymKey):
            raise ConfigurationError(NO_KEY, where=self.site, hint=KEY_HINT)
        return order_bins(self.key, purpose_of_bins(hashing, self.within), n_bins)

    def _check_clear(self, values: Floats) -> None:
        if not self.masked and self._rarest(values) < self.least_behind:
            raise DisclosureRefused(
                f"every value must have at least {self.least_behind} patients if sums are unmasked; a value has fewer",
                where=self.site,
                hint=suggest_masks(_BY_HASH, protection="unmasked", n_sites=self.n_peers),
            )

    def _rarest(self, values: Floats) -> int:
        """Return the number of patients with the rarest value; all patients if no record has a value."""
        missing = np.isnan(values)
        if missing.all():
            return self.n_patients(missing)
        place = np.full(len(values), -1)
        place[~missing] = np.unique(values[~missing], return_inverse=True)[1]
        return fewest_patients(place, len(values), self.persons)


def purpose_of_bins(request: Hashing, within: str = "") -> str:
    """Return the purpose of the order of bins: ``bins/v1/<study>/rep<r>``, for inner plans with ``/outer<within>``."""
    return f"bins/v1/{request.study}/rep{request.repeat}{inside(within)}"


def covariate_cells(values: Floats, *, is_date: bool) -> Floats:
    """Return the cells of a covariate: weeks of days, and the first 24 binary digits of numbers; NaN is unchanged.

    Folds by thresholds of a search are the same for cells as for the numbers.

    Examples
    --------
    >>> covariate_cells(np.array([14.0, 20.0, 21.0]), is_date=True).round().tolist()
    [14.0, 14.0, 21.0]
    """
    return coarsen(np.floor(values / DAYS_PER_CELL) * DAYS_PER_CELL if is_date else values, CutFolds.finest)


def read_covariate(texts: Sequence[str | None], kind: str, order: DateOrder, where: str) -> Floats:
    """Return numbers, or days since 1970 of dates; NaN where missing or not a date.

    Raises
    ------
    DataError
        A value is not a number.

    Examples
    --------
    >>> read_covariate(["1970-01-11", None], "date", "iso", "birth_date").tolist()
    [10.0, nan]
    """
    if kind == "date":
        days = np.array(normalise(texts, "date", date_order=order), dtype="datetime64[D]")
        return np.where(np.isnat(days), np.nan, days.astype(np.int64).astype(np.float64))
    try:
        values = np.array([np.nan if value is None else float(value) for value in texts], dtype=np.float64)
    except ValueError:
        values = np.array([np.inf])
    if np.isinf(values).any():
        raise DataError(
            "all values of the covariate must be finite numbers; at least one is not",
            where=where,
            hint='For dates, pass kind="date".',
        ) from None
    return values


def share_values(values: Floats, patients: Integers, where: str) -> Floats:
    """Return the value of each record's patient, shape (n,); NaN for patients without a value.

    Raises
    ------
    DataError
        The records of a patient have different values.

    Examples
    --------
    >>> share_values(np.array([3.0, np.nan, np.nan]), np.array([0, 0, 1]), "birth_date").tolist()
    [3.0, 3.0, nan]
    """
    n_patients = int(patients.max(initial=-1)) + 1
    least, most = np.full(n_patients, np.inf), np.full(n_patients, -np.inf)
    present = ~np.isnan(values)
    np.minimum.at(least, patients[present], values[present])
    np.maximum.at(most, patients[present], values[present])
    if (least < most).any():
        raise DataError(
            "the covariate must be the same in all records of a patient; at least one patient has different values",
            where=where,
            hint="Use a covariate that does not change, such as a birth date instead of an age; or HashGroupKFold.",
        )
    return np.where(least > most, np.nan, least)[patients]


def texts_of(values: Floats) -> list[str | None]:
    """Return a text per value, the same for equal values; None for NaN.

    Examples
    --------
    >>> texts_of(np.array([0.0, -0.0, np.nan]))
    ['VALUE8009E3779B97F4A7', 'VALUE8009E3779B97F4A7', None]
    """
    codes = encode_doubles(np.nan_to_num(values)).tolist()
    return [
        None if is_missing else f"VALUE{code:016X}"
        for code, is_missing in zip(codes, np.isnan(values).tolist(), strict=True)
    ]
