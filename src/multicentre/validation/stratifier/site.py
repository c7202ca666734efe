"""Site part of the choice of a covariate that cuts folds.

A site counts records by part of a column and class of the outcome, and cross-validates a small model on its records.
Only sums over sites leave the sites.

The thresholds of two sessions can differ by the value of one record; the difference of their tables then discloses its
outcome. The guard therefore takes the smallest group of records with equal value and outcome as the size of an unmasked
table. No thresholds divide such a group.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing, array, count, text, texts
from multicentre.core.steps import Acknowledgement, Release, step
from multicentre.core.wire import encode
from multicentre.data.identifiers import Identifiers
from multicentre.data.records import fewest_alike
from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, MessageError
from multicentre.statistics.quantiles import CountingPart
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.statistics.quantiles.site import Thresholds
from multicentre.validation.folds.by_site import draw_folds
from multicentre.validation.folds.group_sizes import fewest_patients
from multicentre.validation.folds.site import number_patients
from multicentre.validation.stratifier.maths import (
    contiguous_folds,
    count_agreement,
    count_parts,
    fold_imbalance,
    split_outcome,
)
from multicentre.validation.stratifier.suggestion import MODELS, kind_of, score_folds

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

# Largest count of records and patients of a site: above any site, and sums of many sites are exact in a double.
RECORDS = 2.0**31

# Largest number of records of a site in a pilot: sums of its square, 2**48, are exact in a double for 32 sites.
PILOTED = 2.0**24

# Largest ratio of two scores: a score is at most 1, and a pilot needs random folds with a score of at least 1 / 32.
MAX_RATIO = 32.0


@dataclass(frozen=True)
class Described(Release):
    """Names of columns, identifiers and classes at a site; nothing about a patient."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    identifiers: tuple[str, ...] = texts("names of the columns of identifiers", public=True)
    outcome: tuple[str, ...] = texts("kind of the outcome, and the names of its classes", public=True)


@dataclass(frozen=True)
class Candidates(Message):
    """Columns that are candidates for cutting folds."""

    columns: tuple[str, ...] = texts("names of the columns")
    person_key: str = text("column of identifiers of patients at a site; empty without one")
    n_bins: int = count("maximum number of parts per column")


@dataclass(frozen=True)
class Cuts(Thresholds):
    """Thresholds of the columns, followed by those of an outcome that is a number or a time."""


@dataclass(frozen=True)
class Screened(Release):
    """Records by part of each column and class of the outcome, and counts of patients with repeated values."""

    records: Floats = array("records, by part and class", ("d", "b", "c"), unit="records", bound=RECORDS)
    missing: Integers = array("records without a value", ("d",), dtype="i8", unit="records", bound=RECORDS)
    repeated: Integers = array("patients with several values", ("d",), dtype="i8", unit="patients", bound=RECORDS)
    stable: Integers = array(
        "patients with several values that agree", ("d",), dtype="i8", unit="patients", bound=RECORDS
    )


@dataclass(frozen=True)
class Trial(Message):
    """The pilot that every site runs on its own records."""

    columns: tuple[str, ...] = texts("columns to cut folds by")
    model: str = text("kind of the small model")
    n_splits: int = count("number of folds")
    n_rounds: int = count("rounds of boosting")
    seed: int = count("seed of the random folds")


@dataclass(frozen=True)
class Piloted(Release):
    """Terms of a site in the means of the pilot over all sites, by column."""

    n_sites: Floats = array("1 where the site could run the pilot", ("d",), bound=1)
    weight: Floats = array("records", ("d",), unit="records", bound=PILOTED)
    weight_squared: Floats = array("square of the number of records", ("d",), bound=PILOTED**2)
    ratio: Floats = array("records times the ratio of the two scores", ("d",), bound=PILOTED * MAX_RATIO)
    ratio_squared: Floats = array("records times its square", ("d",), bound=PILOTED * MAX_RATIO**2)
    drawn: Floats = array("records times the score of random folds", ("d",), bound=PILOTED)


@dataclass(frozen=True)
class PreviousRequests(Message):
    """Requests that a site answered. In the same session it refuses different ones."""

    columns: tuple[str, ...] = texts("names of the columns")
    person_key: str = text("column of identifiers of patients at a site")
    n_bins: int = count("maximum number of parts per column")
    screened: str = text("hash of the thresholds of the request")
    piloted: str = text("hash of the pilot of the request")


@dataclass(frozen=True)
class Chosen(Message):
    """Columns, identifiers and outcome that all sites have in common."""

    columns: tuple[str, ...] = texts("candidates")
    identifiers: tuple[str, ...] = texts("columns of identifiers that all sites have")
    outcome: tuple[str, ...] = texts("kind of the outcome, and the names of its classes")


# Largest number of folds of a pilot: with more, folds of one site are too small for a score.
MAX_SPLITS = 20
# Largest number of parts of a column: the default is two parts per fold, and twice this number is permitted.
MAX_BINS = 4 * MAX_SPLITS
# Largest number of rounds of boosting: small models converge earlier, and a site must answer in time.
MAX_ROUNDS = 500
# Minimum number of records of a fold: the scores of smaller folds are mostly noise.
MIN_IN_FOLD = 20
# Minimum score of random folds, so that the ratio of scores is at most MAX_RATIO.
MIN_SCORE = 1 / MAX_RATIO
# Largest ratio of fold sizes at a site. It is above the limit over all sites, since one site varies more.
MAX_IMBALANCE = 2.0
# Binary digits of a cell of times, which is at most a sixteenth of the time wide, so that several patients share it.
DIGITS_OF_TIMES = 16
# Number of parts of an outcome: a time also has a part with and one without an event, so it has fewer.
N_OUTCOME_PARTS = {"number": 5, "time": 3}


class StratifierSite(CountingPart):
    """Site part of :func:`multicentre.validation.suggest_stratifier`."""

    method: ClassVar[str] = "stratifier"
    sees_identifiers: ClassVar[bool] = True
    counts_persons: ClassVar[bool] = True
    remembers: ClassVar[type[Message]] = PreviousRequests
    lengths: ClassVar[Lengths] = {
        "d": "columns that folds could be cut by",
        "b": "parts of a column, or sub-cells of a cell in the search for thresholds",
        "c": "classes of the outcome",
    }
    state: PreviousRequests | None = None

    @step(releases=Described, when="once")
    def describe(self, request: Nothing) -> Described:
        """Return the names of the columns, of the identifiers and of the classes of the outcome."""
        data = self._records()
        kind = kind_of(data)
        classes = data.classes if isinstance(data, TableData) else ()
        names = () if self._identifiers is None else self._identifiers.names
        return Described(data.columns, names, (kind, *classes), patients=len(data))

    @step(releases=Acknowledgement, when="once")
    def settle(self, request: Candidates) -> Acknowledgement:
        """Store the candidates, once; no result leaves the site."""
        absent = [name for name in request.columns if name not in self._records().columns]
        if absent or not 0 < len(set(request.columns)) == len(request.columns):
            raise DataError(
                f"candidates must be columns of the site, each once; got {len(request.columns)} names, of which "
                f"{len(absent)} are not columns",
                where=", ".join(absent)[:200] or "candidates",
                hint="Name columns that all sites have, each once.",
            )
        if not 2 <= request.n_bins <= MAX_BINS:
            raise MessageError(f"n_bins must be from 2 to {MAX_BINS}; got {request.n_bins}", where="Candidates.n_bins")
        settled = PreviousRequests(request.columns, request.person_key, request.n_bins, "", "")
        if self.state is not None and replace(self.state, screened="", piloted="") != settled:
            raise ConfigurationError(
                "candidates must be those of the first request; got different ones",
                where="settle",
                hint="Start a new session.",
            )
        self.state = self.state or settled
        self._patients()
        return Acknowledgement()

    def quantile_values(self) -> Floats:
        """Return the candidates, and an outcome that is a number or the time of an event, shape (n, d or d + 1).

        Each value is replaced by the first value of its cell. A cell of numbers has 24 binary digits and is at most a
        4096th of the number wide; a cell of times has 16 and is at most a sixteenth wide.
        """
        values = coarsen(self._candidates(), self.finest)
        return values if kind_of(self._records()) == "class" else np.column_stack([values, self._outcome()])

    def most_parts(self) -> int:
        """Return the maximum number of parts per column."""
        return self._previous_requests.n_bins

    @step(releases=Screened, when="once", summed=True)
    def screen(self, request: Cuts) -> Screened:
        """Count records by part of each candidate and class of the outcome, and patients whose values agree."""
        self._answer_once("screened", request)
        classes, n_classes = self._classes(request)
        columns = self.quantile_values()[:, : len(self._previous_requests.columns)].T
        records = np.zeros((len(columns), self._previous_requests.n_bins, n_classes))
        for place, (column, cuts) in enumerate(zip(columns, self._cuts(request), strict=False)):
            records[place, : len(cuts) + 1] = count_parts(column, cuts, classes, (len(cuts) + 1, n_classes))
        missing = np.isnan(columns).sum(axis=1).astype(np.int64)
        several, stable = self._stability(self._candidates().T)
        cells = missing, stable, several - stable, self._fewest_alike(columns)
        fewest = self.n_contributing(len(classes), *cells)
        return Screened(records, missing, several, stable, patients=fewest)

    @step(releases=Piloted, when="once", summed=True)
    def pilot(self, request: Trial) -> Piloted:
        """Cross-validate a small model with random folds and folds cut by each column; return ratios of scores.

        A site leaves out a column unless its folds have at least 20 records, the minimum of patients of the policy, and
        similar sizes.
        """
        self._check_trial(request)
        self._answer_once("piloted", request)
        data, patients = self._records(), self._patients()
        random = self.generator(request.seed, int(data.digest()[:16], 16))
        drawn = score_folds(data, draw_folds(patients, request.n_splits, random), request.model, request.n_rounds)
        cut = np.array([self._score_cut(name, patients, request) for name in request.columns])
        used = np.isfinite(cut) & (drawn >= MIN_SCORE)
        weight = np.where(used, float(len(data)), 0.0)
        ratio = np.where(used, cut / drawn, 0.0) if drawn >= MIN_SCORE else np.zeros(len(cut))
        return Piloted(
            n_sites=used.astype(np.float64),
            weight=weight,
            weight_squared=weight**2,
            ratio=weight * ratio,
            ratio_squared=weight * ratio**2,
            drawn=weight * (drawn if used.any() else 0.0),
            patients=len(data),
        )

    @property
    def _identifiers(self) -> Identifiers | None:
        return getattr(self.data, "identifier", None)

    @property
    def _previous_requests(self) -> PreviousRequests:
        if self.state is None:
            raise ConfigurationError(
                "candidates must be set (step settle) before this step; they were not",
                where=self.method,
                hint="Start a new session.",
            )
        return self.state

    def _records(self) -> TableData | SurvivalData:
        if isinstance(self.data, TableData | SurvivalData):
            return self.data
        raise DataError(
            f"data must be a TableData or SurvivalData; got {type(self.data).__name__}",
            where=self.method,
            hint="Use HashGroupKFold, which needs only identifiers.",
        )

    def _patients(self) -> Integers:
        """Return the number of the patient of each record; without `person_key` every record is a patient."""
        if not self._previous_requests.person_key:
            return np.arange(len(self._records()))
        if self._identifiers is None:
            raise DataError(
                "records must have identifiers for person_key; got none",
                where=self._previous_requests.person_key,
                hint="Leave out person_key.",
            )
        return number_patients(self._identifiers.column(self._previous_requests.person_key))

    def _answer_once(self, name: str, request: Message) -> None:
        """Refuse a request that differs from the first: the difference of the answers could concern one patient."""
        digest = hashlib.sha256(encode(request)).hexdigest()
        if getattr(self._previous_requests, name) not in ("", digest):
            raise ConfigurationError(
                "repeated requests must be identical; got a different one", where=name, hint="Start a new session."
            )
        fields = {field: getattr(self._previous_requests, field) for field in PreviousRequests.declarations()}
        self.state = PreviousRequests(**{**fields, name: digest})

    def _cuts(self, request: Cuts) -> list[Floats]:
        """Return the thresholds by column, after a check that they are few enough and increase."""
        n_columns = self.quantile_values().shape[1]
        steps = np.diff(request.first)
        is_sound = len(steps) == n_columns and request.first[0] == 0 and request.first[-1] == len(request.values)
        if not is_sound or (steps < 0).any() or (steps >= self._previous_requests.n_bins).any():
            raise MessageError(
                f"thresholds must be for {n_columns} columns, with at most {self._previous_requests.n_bins - 1} per "
                f"column; got {len(steps)} columns with at most {steps.max(initial=0)}",
                where="Cuts",
            )
        if any((np.diff(cuts) <= 0).any() for cuts in request.columns):
            raise MessageError("thresholds must increase within a column; got equal or decreasing ones", where="Cuts")
        return request.columns

    def _classes(self, request: Cuts) -> tuple[Integers, int]:
        """Return the class of each outcome and the number of classes; numbers and times are divided into parts."""
        data = self._records()
        if isinstance(data, TableData) and data.outcome == "class":
            return data.y.astype(np.int64), len(data.classes)
        kind, cuts = kind_of(data), self._cuts(request)[-1]
        if isinstance(data, SurvivalData):
            late = split_outcome(coarsen(data.time, DIGITS_OF_TIMES), cuts, N_OUTCOME_PARTS[kind])
            return late + N_OUTCOME_PARTS[kind] * (data.event == 1), 2 * N_OUTCOME_PARTS[kind]
        return split_outcome(self._outcome(), cuts, N_OUTCOME_PARTS[kind]), N_OUTCOME_PARTS[kind]

    def _candidates(self) -> Floats:
        data = self._records()
        return data.X[:, [data.columns.index(name) for name in self._previous_requests.columns]]

    def _outcome(self) -> Floats:
        """Return cells of numbers, or of event times; NaN without an event."""
        data = self._records()
        if isinstance(data, SurvivalData):
            return np.where(data.event == 1, coarsen(data.time, DIGITS_OF_TIMES), np.nan)
        return coarsen(np.asarray(data.y, dtype=np.float64), self.finest)

    def _fewest_alike(self, columns: Floats) -> Integers:
        """Return the size of the smallest group with equal value and outcome, by column."""
        data = self._records()
        if isinstance(data, SurvivalData):
            outcome = np.column_stack([coarsen(data.time, DIGITS_OF_TIMES), data.event == 1])
        else:
            outcome = (data.y.astype(np.float64) if data.outcome == "class" else self._outcome())[:, None]
        return np.array([fewest_alike(np.column_stack([column, outcome])) for column in columns])

    def _stability(self, values: Floats) -> tuple[Integers, Integers]:
        """Return the number of patients with several values by column, and of those whose values agree."""
        patients = self._patients()
        differ, agree = np.array([count_agreement(column, patients) for column in values], dtype=np.int64).T
        return differ + agree, agree

    def _score_cut(self, name: str, patients: Integers, request: Trial) -> float:
        data = self._records()
        folds = contiguous_folds(data.X[:, data.columns.index(name)], patients, request.n_splits)
        sizes = np.bincount(folds[folds >= 0], minlength=1)
        if (
            sizes.min() < MIN_IN_FOLD
            or fewest_patients(folds, len(sizes), self.persons) < self.least_behind
            or fold_imbalance(sizes, request.n_splits) > MAX_IMBALANCE
        ):
            return float("nan")
        return score_folds(data, folds, request.model, request.n_rounds)

    def _check_trial(self, request: Trial) -> None:
        is_sound = (
            2 <= request.n_splits <= MAX_SPLITS and 1 <= request.n_rounds <= MAX_ROUNDS and request.model in MODELS
        )
        are_candidates = set(request.columns) <= set(self._previous_requests.columns) and len(
            set(request.columns)
        ) == len(request.columns)
        if not is_sound or not are_candidates:
            raise MessageError(
                f"a pilot must have candidates as columns, a model among {', '.join(MODELS)}, 2 to {MAX_SPLITS} folds "
                f"and 1 to {MAX_ROUNDS} rounds; got {len(request.columns)} columns, {request.n_splits} folds and "
                f"{request.n_rounds} rounds",
                where="Trial",
            )
