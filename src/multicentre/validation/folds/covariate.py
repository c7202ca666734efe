"""Folds by a covariate: the strategy of Bey et al., and two strategies without its pessimistic bias.

.. [1] Bey, Goussault, Grolleau, Benchoufi, Porcher (2020). Fold-stratified cross-validation for unbiased and
   privacy-preserving federated learning. Journal of the American Medical Informatics Association 27(8), 1244-1251.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, array, count
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER, Identifiers
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.persons import check_keys
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.identifier_normalisation import DateOrder
from multicentre.statistics.quantiles import find_thresholds, pooled_thresholds
from multicentre.validation.folds.cut import (
    BINS_PER_FOLD,
    MAX_BINS_PER_FOLD,
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
from multicentre.validation.folds.site import FoldPart, Hashing, Packing, number_patients
from multicentre.validation.folds.splitter import FoldSplitter, check_classes, needed_groups

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Scheme = Literal["threshold", "binned-hash", "hash"]
# Largest ratio of the sizes of two folds, so that no fold dominates the mean score.
MAX_UNEQUAL = 1.5
# Smallest number of occupied buckets per fold; with fewer, packing cannot make folds of similar sizes.
LEVELS_PER_FOLD = 4


@dataclass(frozen=True)
class Divided(Message):
    """Result of the split, stored by the coordinator."""

    thresholds: Floats = array("last value of each part except the last", ("t",))
    n_buckets: int = count("number of buckets of a hash")


class CovariateFoldKFold(FoldSplitter):
    """Folds by a covariate: records with the same value are in one fold, at all sites.

    This is the method of Bey et al. (2020). The folds are safe against duplicates with the same value at both sites,
    such as a birth date, but not an age at admission. With thresholds, folds are intervals of the covariate. Then a
    model is tested where it extrapolates, and scores are too low if the covariate affects the outcome.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds, from 2 to 100.
    covariate : str
        Name of a column of the data, or of a column of identifiers with dates or, for a hash only, numbers.
    scheme : {"threshold", "binned-hash", "hash"}, default "threshold"
        "threshold" makes one interval of values per fold. "binned-hash" assigns bins of neighbouring values to folds by
        the study's key, for covariates measured with noise. "hash" uses a keyed hash of the exact value.
    kind : {"number", "date"}, default "number"
        Type of a column of identifiers.
    date_order : {"iso", "ymd", "dmy", "mdy"} or mapping of str to these, default "iso"
        Format of dates, at all sites or by site.
    patient_key : str, optional
        Column that identifies a patient at a site; a covariate that differs between records of a patient is refused.
    n_bins : int, optional
        Number of bins of "binned-hash"; by default 4 per fold, at most 8 per fold.
    tol : float, default 0.01
        Largest relative deviation of the size of a part.
    study : str, optional
        Name that enters a hash; by default that of the federation.
    repeat : int, default 0
        Number of the repeat; different numbers give different folds, except for "threshold".
    max_missing : float, default 0.01
        Largest permitted share of records without the covariate. They have no fold.
    key : PseudonymKey, optional
        Key for splits of arrays.

    Notes
    -----
    If policies require a minimum of patients, thresholds need ``secure_sum=True``. Thresholds distinguish numbers by a
    4096th of their value, and dates by weeks.

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
        """Split the records of a federation into folds, at its sites; see :class:`FoldSplitter`."""
        plan_ = super().plan(federation)
        self._check_sizes(plan_.counts)
        return plan_

    def _divide(self, session: Session) -> Mapping[str, object]:
        hashing = self._request(session.terms.study)
        divided = session.once("divided", Divided, lambda: self._divided(session, hashing))
        facts = {"covariate": self.covariate, "scheme": self.scheme}
        if self.scheme == "hash":
            return {**facts, "n_buckets": divided.n_buckets}
        return {**facts, "thresholds": tuple(divided.thresholds.tolist())}

    def _divided(self, session: Session, hashing: Hashing) -> Divided:
        survey = session.sum(CutFolds.survey, hashing)
        n_records, n_missing = round(survey.records), round(survey.missing)
        self._check_missing(n_missing, n_records)
        exact = self.scheme == "threshold" or _agree(session, hashing)
        if self.scheme == "hash":
            return self._hashed(session, hashing, n_records, exact)
        terms = self._terms(n_records - n_missing)
        (thresholds,) = find_thresholds(session, CutFolds, n_columns=1, **terms)
        self._check_thresholds(thresholds)
        cutting = {**_fields(hashing), "thresholds": thresholds}
        sizes = session.sum(CutFolds.count_parts, Cutting(**cutting)).records
        permuted = self.scheme == "binned-hash"
        session.ask(CutFolds.cut, Dealing(**cutting, sizes=sizes, permuted=permuted))
        return Divided(thresholds, 0)

    def _hashed(self, session: Session, hashing: Hashing, n_records: int, exact: bool) -> Divided:
        n_buckets = bucket_number(n_records, hashing.n_splits) if exact else _finest(session, hashing)
        packed = np.arange(hashing.n_splits, dtype=np.int64)
        if n_buckets >= FEW_TO_BALANCE * hashing.n_splits:
            table = bucket_table(session, hashing, n_buckets, CutFolds)
            self._check_levels(table)
            packed = pack_buckets(table, hashing.n_splits)
        session.ask(CutFolds.assign, Packing(**_fields(hashing), fold_of_bucket=packed))
        return Divided(np.zeros(0), len(packed))

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        hashing = self._request("study")
        values = self._array_values(needed_groups(groups, "values of the covariate"), hashing)
        values_present = values[~np.isnan(values)]
        self._check_missing(len(values) - len(values_present), len(values))
        if self.scheme == "hash":
            folds = self._hashing._folds(X, y, np.array(texts_of(values), dtype=object))
        else:
            folds = self._cut(covariate_cells(values, is_date=self.kind == "date"), hashing)
        self._check_sizes(np.bincount(folds[folds >= 0], minlength=hashing.n_splits).astype(np.float64))
        return folds

    def _cut(self, values: Floats, hashing: Hashing) -> Integers:
        (thresholds,) = pooled_thresholds(values[:, None], **self._terms(int((~np.isnan(values)).sum())))
        self._check_thresholds(thresholds)
        part = parts_of(values, thresholds)
        if self.scheme == "threshold":
            return part
        sizes = np.bincount(part[part >= 0], minlength=len(thresholds) + 1)
        order = order_bins(self._hashing._array_key(hashing.study), purpose_of_bins(hashing), len(sizes))
        return np.where(part < 0, -1, deal_bins(sizes, order, hashing.n_splits)[part])

    def _array_values(self, groups: NDArray[Any], hashing: Hashing) -> Floats:
        columns = groups.reshape(len(groups), -1)
        n_columns = 2 if hashing.patient_key else 1
        if columns.shape[1] != n_columns:
            raise ConfigurationError(
                f"groups must have {n_columns} column(s); got {columns.shape[1]}",
                where="groups",
                hint="Pass the values of the covariate and, with patient_key, a second column of patients.",
            )
        if self.kind == "number" and columns.dtype.kind in "biuf":
            values = columns[:, 0].astype(np.float64)
        else:
            texts = Identifiers(list(columns[:, 0])).column(IDENTIFIER)
            values = read_covariate(texts, self.kind, hashing.order_at(""), "groups")
        if not hashing.patient_key:
            return values
        return share_values(values, number_patients(Identifiers(list(columns[:, 1])).column(IDENTIFIER)), "groups")

    def _request(self, study: str) -> Hashing:
        if self.scheme not in ("threshold", "binned-hash", "hash") or self.kind not in ("number", "date"):
            raise ConfigurationError(
                "scheme must be one of 'threshold', 'binned-hash', 'hash', and kind 'number' or 'date'; got "
                f"{self.scheme!r} and {self.kind!r}",
                where="CovariateFoldKFold",
                hint="Correct the name.",
            )
        return replace(self._hashing._request(study), kind=self.kind, patient_key=self.patient_key or "")

    def _terms(self, n_records: int) -> dict[str, Any]:
        """Return the terms of the search; cells of ten records, or of a tenth of a part, are not split."""
        n_parts = self.n_splits
        if self.scheme == "binned-hash":
            n_parts = BINS_PER_FOLD * self.n_splits if self.n_bins is None else self.n_bins
            most = MAX_BINS_PER_FOLD * self.n_splits
            if not self.n_splits <= n_parts <= most:
                raise ConfigurationError(
                    f"n_bins must be from {self.n_splits} to {most} for {self.n_splits} folds; got {n_parts}",
                    where="n_bins",
                    hint="Leave it out to use 4 bins per fold.",
                )
        return {"n_parts": n_parts, "tol": self.tol, "min_cell": int(np.clip(n_records // (10 * n_parts), 0, 10))}

    def _check_missing(self, n_missing: int, n_records: int) -> None:
        if n_missing > self.max_missing * n_records:
            raise DataError(
                f"at most {self.max_missing:.3g} of the records may lack the covariate; got {n_missing} of {n_records}",
                where=self.covariate,
                hint="Complete them at the sites, or increase max_missing; these records have no fold.",
            )

    def _check_thresholds(self, thresholds: Floats) -> None:
        if len(thresholds) < self.n_splits - 1:
            raise self._unfit(f"the covariate must have values for {self.n_splits} parts; got {len(thresholds) + 1}")

    def _check_levels(self, table: Integers) -> None:
        occupied = int(table.any(axis=1).sum())
        if occupied < LEVELS_PER_FOLD * self.n_splits:
            raise self._unfit(
                f"the covariate must have values in at least {LEVELS_PER_FOLD * self.n_splits} buckets; got {occupied}"
            )

    def _check_sizes(self, counts: Floats) -> None:
        if counts.max() > MAX_UNEQUAL * counts.min():
            raise self._unfit(
                f"the largest fold must have at most {MAX_UNEQUAL:g} times the records of the smallest; got folds of "
                f"{counts.min():.0f} to {counts.max():.0f}"
            )

    def _unfit(self, reason: str) -> DataError:
        better = 'scheme="hash", ' if self.scheme != "hash" else ""
        return DataError(
            reason,
            where=self.covariate,
            hint="Many records share a value, and records with equal values are in one fold. "
            f"Use {better}HashGroupKFold of an identifier, a covariate with more values, or fewer folds.",
        )


FoldStratifiedKFold = CovariateFoldKFold


def _agree(session: Session, hashing: Hashing) -> bool:
    """Check that all sites have the same key and classes; return the permission to count exactly."""
    answers = session.ask(CutFolds.describe_key, hashing)
    check_keys({site: answer.fingerprint for site, answer in answers.items()})
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    return session.protection == "masked" or not any(answer.spares_few for answer in answers.values())


def _finest(session: Session, hashing: Hashing) -> int:
    return min(answer.n_buckets for answer in session.ask(CutFolds.find_fineness, hashing).values())


def _fields(hashing: Hashing) -> dict[str, Any]:
    return {name: getattr(hashing, name) for name in Hashing.declarations()}
