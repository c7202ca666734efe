"""Folds by a covariate that copies of a record share: the strategy of Bey et al., and two without its pessimism.

.. [1] Bey, Goussault, Grolleau, Benchoufi, Porcher (2020). Fold-stratified cross-validation for unbiased and
   privacy-preserving federated learning. Journal of the American Medical Informatics Association 27(8), 1244-1251.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.data.identifiers import IDENTIFIER, Identifiers
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Message, array, count
from multicentre.federation.session import Session
from multicentre.linkage.persons import check_keys
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.normalisation import DateOrder
from multicentre.statistics.quantiles import find_thresholds, pooled_thresholds
from multicentre.validation.folds import site as sent
from multicentre.validation.folds.cut import (
    BINS_A_FOLD,
    MOST_BINS_A_FOLD,
    CutFolds,
    Cutting,
    Dealing,
    covariate_cells,
    deal_bins,
    order_bins,
    parts_of,
    purpose_of_bins,
    read_covariate,
    share_values,
    texts_of,
)
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.plan import FoldPlan, bucket_number, pack_buckets
from multicentre.validation.folds.rounds import FEW_TO_BALANCE, bucket_table
from multicentre.validation.folds.site import FoldPart, number_patients
from multicentre.validation.folds.splitter import FoldSplitter, check_classes, needed_groups

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Scheme = Literal["threshold", "binned-hash", "hash"]
MOST_UNEQUAL = 1.5
LEVELS_A_FOLD = 4


@dataclass(frozen=True)
class Divided(Message):
    """What the coordinator keeps of how the sites divided."""

    thresholds: Floats = array("last value of each part but the last", ("t",))
    n_buckets: int = count("number of buckets of a hash")


class CovariateFoldKFold(FoldSplitter):
    """Folds by a covariate: records with the same value are in one fold, whatever their sites [1]_.

    Safe against duplicates whose value is the same at both sites: a birth date, not an age at admission. Cut by
    thresholds, folds are stretches of the covariate, a model is tested where it extrapolates, and scores are too low if
    the covariate matters for the outcome.

    Parameters
    ----------
    n_splits : int, default 5
        Folds, from 2 to 100.
    covariate : str
        Name of a column of the data, or of a column of identifiers that holds dates, or, for a hash alone, numbers.
    scheme : {"threshold", "binned-hash", "hash"}, default "threshold"
        One stretch of values a fold; bins of neighbouring values dealt out by the study's key, for covariates measured
        with noise; or a keyed hash of the exact value.
    kind : {"number", "date"}, default "number"
        How a column of identifiers is read.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        How dates are written, at all sites or by site.
    patient_key : str, optional
        Column of identifiers by which a site knows the records of one patient; a covariate that differs between them is
        refused.
    n_bins : int, optional
        Bins of "binned-hash", 4 a fold by default, 8 a fold at most.
    tol : float, default 0.01
        A part's size may be off by this share of it.
    study : str, optional
        Name that a hash depends on; the federation's own by default.
    repeat : int, default 0
        Another number gives other folds, but for "threshold".
    max_missing : float, default 0.01
        Largest share of records without the covariate; they are in no fold.
    key : PseudonymKey, optional
        For arrays alone.

    Notes
    -----
    Over a federation whose policies ask for a minimum of patients, thresholds need ``secure_sum=True``. They tell
    numbers apart by a 4096th of themselves, and dates by weeks.

    On arrays, `groups` holds the covariate: numbers, or dates with ``kind="date"``; with `patient_key` a second column
    of patients.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: mc.data.TableData(rng.normal(size=(150, 2)), np.arange(150) % 2) for name in ("lyon", "oslo")}
    >>> plan = CovariateFoldKFold(3, covariate="x0").plan(mc.Federation.in_process(sites))
    >>> plan.duplicate_safe, plan.n_splits, len(plan.facts["thresholds"])
    (True, 3, 2)
    """

    site_part: ClassVar[type[FoldPart]] = CutFolds
    duplicate_safe: ClassVar[bool] = True

    def __init__(
        self,
        n_splits: int = 5,
        *,
        covariate: str = IDENTIFIER,
        scheme: Scheme = "threshold",
        kind: Literal["number", "date"] = "number",
        date_order: DateOrder | Mapping[str, DateOrder] = "iso",
        patient_key: str | None = None,
        n_bins: int | None = None,
        tol: float = 0.01,
        study: str | None = None,
        repeat: int = 0,
        max_missing: float = 0.01,
        key: PseudonymKey | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.covariate = covariate
        self.scheme = scheme
        self.kind = kind
        self.date_order = date_order
        self.patient_key = patient_key
        self.n_bins = n_bins
        self.tol = tol
        self.study = study
        self.repeat = repeat
        self.max_missing = max_missing
        self._hashing = HashGroupKFold(
            n_splits,
            person_key=covariate,
            date_order=date_order,
            stratify=False,
            study=study,
            repeat=repeat,
            max_missing=max_missing,
            key=key,
        )

    def plan(self, federation: Consortium) -> FoldPlan:
        """Divide the records of a federation into folds, at its sites; see :class:`FoldSplitter`."""
        made = super().plan(federation)
        self._check_sizes(made.counts)
        return made

    def _divide(self, session: Session) -> Mapping[str, object]:
        told = self._told(session.terms.study)
        divided = session.once("divided", Divided, lambda: self._divided(session, told))
        facts = {"covariate": self.covariate, "scheme": self.scheme}
        if self.scheme == "hash":
            return {**facts, "n_buckets": divided.n_buckets}
        return {**facts, "thresholds": tuple(divided.thresholds.tolist())}

    def _divided(self, session: Session, told: sent.Hashing) -> Divided:
        surveyed = session.sum(CutFolds.survey, told)
        n_records, n_missing = round(surveyed.records), round(surveyed.missing)
        self._check_missing(n_missing, n_records)
        exact = self.scheme == "threshold" or _agree(session, told)
        if self.scheme == "hash":
            return self._hashed(session, told, n_records, exact)
        terms = self._terms(n_records - n_missing)
        (thresholds,) = find_thresholds(session, CutFolds, n_columns=1, **terms)
        self._check_thresholds(thresholds)
        cutting = {**_fields(told), "thresholds": thresholds}
        sizes = session.sum(CutFolds.count_parts, Cutting(**cutting)).records
        permuted = self.scheme == "binned-hash"
        session.ask(CutFolds.cut, Dealing(**cutting, sizes=sizes, permuted=permuted))
        return Divided(thresholds, 0)

    def _hashed(self, session: Session, told: sent.Hashing, n_records: int, exact: bool) -> Divided:
        n_buckets = bucket_number(n_records, told.n_splits) if exact else _finest(session, told)
        packed = np.arange(told.n_splits, dtype=np.int64)
        if n_buckets >= FEW_TO_BALANCE * told.n_splits:
            table = bucket_table(session, told, n_buckets, CutFolds)
            self._check_levels(table)
            packed = pack_buckets(table, told.n_splits)
        session.ask(CutFolds.assign, sent.Packing(**_fields(told), fold_of_bucket=packed))
        return Divided(np.zeros(0), len(packed))

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        told = self._told("study")
        values = self._array_values(needed_groups(groups, "values of the covariate"), told)
        known = values[~np.isnan(values)]
        self._check_missing(len(values) - len(known), len(values))
        if self.scheme == "hash":
            folds = self._hashing._folds(X, y, np.array(texts_of(values), dtype=object))
        else:
            folds = self._cut(covariate_cells(values, is_date=self.kind == "date"), told)
        self._check_sizes(np.bincount(folds[folds >= 0], minlength=told.n_splits).astype(np.float64))
        return folds

    def _cut(self, values: Floats, told: sent.Hashing) -> Integers:
        (thresholds,) = pooled_thresholds(values[:, None], **self._terms(int((~np.isnan(values)).sum())))
        self._check_thresholds(thresholds)
        part = parts_of(values, thresholds)
        if self.scheme == "threshold":
            return part
        sizes = np.bincount(part[part >= 0], minlength=len(thresholds) + 1)
        order = order_bins(self._hashing._array_key(told.study), purpose_of_bins(told), len(sizes))
        return np.where(part < 0, -1, deal_bins(sizes, order, told.n_splits)[part])

    def _array_values(self, groups: NDArray[Any], told: sent.Hashing) -> Floats:
        columns = groups.reshape(len(groups), -1)
        if columns.shape[1] != (2 if told.patient_key else 1):
            raise ConfigurationError(
                "one column of the covariate is needed, and with patient_key a second one of patients", where="groups"
            )
        if self.kind == "number" and columns.dtype.kind in "biuf":
            values = columns[:, 0].astype(np.float64)
        else:
            written = Identifiers(list(columns[:, 0])).column(IDENTIFIER)
            values = read_covariate(written, self.kind, told.order_at(""), "groups")
        if not told.patient_key:
            return values
        return share_values(values, number_patients(Identifiers(list(columns[:, 1])).column(IDENTIFIER)), "groups")

    def _told(self, study: str) -> sent.Hashing:
        if self.scheme not in ("threshold", "binned-hash", "hash") or self.kind not in ("number", "date"):
            raise ConfigurationError(
                "scheme or kind is unknown",
                where="CovariateFoldKFold",
                hint='Schemes are "threshold", "binned-hash" and "hash", kinds "number" and "date".',
            )
        return replace(self._hashing._told(study), kind=self.kind, patient_key=self.patient_key or "")

    def _terms(self, n_records: int) -> dict[str, Any]:
        """Return what to search for: cells of ten records, or of a tenth of a part, are not split."""
        n_parts = self.n_splits
        if self.scheme == "binned-hash":
            n_parts = BINS_A_FOLD * self.n_splits if self.n_bins is None else self.n_bins
            if not self.n_splits <= n_parts <= MOST_BINS_A_FOLD * self.n_splits:
                raise ConfigurationError(f"1 to {MOST_BINS_A_FOLD} bins a fold are possible", where="n_bins")
        return {"n_parts": n_parts, "tol": self.tol, "min_cell": int(np.clip(n_records // (10 * n_parts), 0, 10))}

    def _check_missing(self, n_missing: int, n_records: int) -> None:
        if n_missing > self.max_missing * n_records:
            raise DataError(
                f"{n_missing} of {n_records} records lack the covariate",
                where=self.covariate,
                hint="Complete them at the sites, or allow more with max_missing; these records will be in no fold.",
            )

    def _check_thresholds(self, thresholds: Floats) -> None:
        if len(thresholds) < self.n_splits - 1:
            raise self._unfit(f"its values make {len(thresholds) + 1} parts, not {self.n_splits}")

    def _check_levels(self, table: Integers) -> None:
        occupied = int(table.any(axis=1).sum())
        if occupied < LEVELS_A_FOLD * self.n_splits:
            raise self._unfit("it has too few different values")

    def _check_sizes(self, counts: Floats) -> None:
        if counts.max() > MOST_UNEQUAL * counts.min():
            raise self._unfit(f"folds of {counts.min():.0f} to {counts.max():.0f} records are too unequal")

    def _unfit(self, what: str) -> DataError:
        better = 'scheme="hash", ' if self.scheme != "hash" else ""
        return DataError(
            f"{what}: many records share a value, and stay together",
            where=self.covariate,
            hint=f"Take {better}HashGroupKFold of an identifier, a covariate of more values, or fewer folds.",
        )


FoldStratifiedKFold = CovariateFoldKFold


def _agree(session: Session, told: sent.Hashing) -> bool:
    """Check that all sites hold one key and know the same classes; return whether they may count exactly."""
    answers = session.ask(CutFolds.tell_key, told)
    check_keys({site: answer.fingerprint for site, answer in answers.items()})
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    return session.protection == "masked" or not any(answer.spares_few for answer in answers.values())


def _finest(session: Session, told: sent.Hashing) -> int:
    return min(answer.n_buckets for answer in session.ask(CutFolds.tell_fineness, told).values())


def _fields(told: sent.Hashing) -> dict[str, Any]:
    return {name: getattr(told, name) for name in sent.Hashing.declarations()}
