"""Check of folds: persons with records in several folds, and the stability of keys."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.figures import Figure, Table
from multicentre.linkage.keys.fold_check_site import MAX_TURNS, AuditedPart
from multicentre.linkage.keys.mixed_buckets import (
    Checking,
    Reviewed,
    Reviewing,
    count_mixed,
    first_buckets,
    miss_probability,
    next_buckets,
    read_folds,
)
from multicentre.linkage.keys.occupied_buckets import QUANTILE, count_union
from multicentre.linkage.persons import agree_on_key, check_present, describe_persons, draw_label
from multicentre.privacy.identifier_normalisation import DateOrder, Kind
from multicentre.validation.folds.plan import FoldPlan

if TYPE_CHECKING:
    import pandas as pd

NOBODY_SHARED = (
    "no person was found at two sites: either there are no duplicates, or identifiers differ between sites; "
    "use estimate_duplicate_rate(federation, controls=...) to distinguish the two cases"
)


@dataclass(frozen=True)
class FoldCheck:
    """Result of the audit of a plan.

    Attributes
    ----------
    n_violations : int
        Number of persons with records in several folds, over all sites (Definition 3 requires none). A result of 0 is
        exact, except for `miss_probability`. Larger numbers are estimates, corrected for persons who share a bucket.
    n_split : int
        Number of patients with records in several folds of their site, summed over sites.
    n_repeated : int
        Number of records in folds whose person has another record at the same site.
    n_missing : int
        Number of records in folds without an identifier, which the audit cannot check.
    n_excluded : int
        Number of records without a fold.
    n_shared : float
        Estimated number of duplicates: the sum over sites of their persons, minus the persons over all sites.
    shared_interval : tuple of float
        95 % interval of `n_shared`.
    is_partition : bool
        Every record is in one of the folds of the plan, or excluded by the plan.
    is_transparent : bool
        All sites use the same split, unchanged since the plan.
    n_turns : int
        Number of requests.
    miss_probability : float
        Upper bound of the probability that one violation is not detected.
    warnings : tuple of str
        Limitations of the audit.
    """

    n_violations: int
    n_split: int
    n_repeated: int
    n_missing: int
    n_excluded: int
    n_shared: float
    shared_interval: tuple[float, float]
    is_partition: bool
    is_transparent: bool
    n_turns: int
    miss_probability: float
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True if no violation was found, and there were duplicates to find."""
        return self._is_clean and self.is_conclusive

    @property
    def is_conclusive(self) -> bool:
        """True if a person was found at two sites; otherwise there are no duplicates, or identifiers differ."""
        return self.shared_interval[0] > 0

    @property
    def _is_clean(self) -> bool:
        return self.n_violations == 0 and self.n_split == 0 and self.is_partition and self.is_transparent

    def to_frame(self) -> pd.DataFrame:
        """Return one row per finding."""
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=["finding", "value"]).set_index("finding")

    def figures(self) -> list[Figure]:
        """Return the findings as a table."""
        caption = "Persons in several folds, and other findings; counts over all sites."
        return [Table("Check of the folds", caption, "data", ["finding", "value"], self._rows())]

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "inconclusive" if self._is_clean else "failed"
        return f"FoldCheck({verdict}: {self.n_violations} violations, about {self.n_shared:.0f} duplicates to find)"

    def _rows(self) -> list[list[str | float | None]]:
        findings = {name: value for name, value in asdict(self).items() if name not in ("shared_interval", "warnings")}
        return [[name, float(value)] for name, value in findings.items()]


def check_interfold(
    federation: Consortium,
    plan: FoldPlan,
    *,
    person_key: str | None = None,
    kind: Kind | None = None,
    date_order: DateOrder | Mapping[str, DateOrder] | None = None,
    patient_key: str | None = None,
    study: str | None = None,
) -> FoldCheck:
    """Count the persons with records in several folds of a plan; tokens and identifiers do not leave the sites.

    Parameters
    ----------
    federation : Federation
        Federation of the plan; with masked sums, or sites whose policy has no minimum of patients.
    plan : FoldPlan
        Plan to audit.
    person_key : str, optional
        Column that identifies a person at all sites; by default that of the plan. A different column tests the
        assumption of the plan.
    kind : str, optional
        Normalisation of the identifiers, see :func:`multicentre.linkage.estimate_duplicate_rate`; by default that
        of the plan.
    date_order : str or mapping of str to str, optional
        Order of dates; by default that of the plan.
    patient_key : str, optional
        Column that identifies a patient at a site; by default `person_key`.
    study : str, optional
        Name that enters the hash; by default that of the federation.

    Returns
    -------
    FoldCheck
        Persons in several folds, and the number of duplicates with its interval.

    Raises
    ------
    ConfigurationError
        The sites have different keys, or the plan is of another federation.
    DataError
        A site lacks the column.
    DisclosureRefused
        Sums are unmasked, which would disclose who is at a site.
    QuorumLost
        A site was lost during the audit.

    Warns
    -----
    UserWarning
        No person was found at two sites.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {
    ...     name: mc.data.TableData(
    ...         rng.normal(size=(300, 2)), np.arange(300) % 2, [f"p{number}" for number in range(first, first + 300)]
    ...     )
    ...     for name, first in {"lyon": 0, "oslo": 200}.items()
    ... }
    >>> federation = mc.Federation.in_process(sites)
    >>> check_interfold(federation, mc.validation.HashGroupKFold(5).plan(federation)).n_violations
    0
    >>> check_interfold(federation, mc.validation.FederatedKFold(5).plan(federation)).passed
    False
    """
    handle, part = plan.session, _part_of(federation, plan)
    defaults: Mapping[str, Any] = {"person_key": IDENTIFIER, "kind": "identifier", "date_order": "iso", **plan.facts}
    persons = describe_persons(
        federation,
        person_key or defaults["person_key"],
        kind or defaults["kind"],
        date_order or defaults["date_order"],
        study,
    )
    sites = handle.sites
    agree_on_key(handle, part, persons["study"], persons["person_key"])
    reviewed = handle.sum(part.review_folds, Reviewing(**persons, patient_key=patient_key or ""))
    search = _search(handle, part, persons, round(reviewed.persons), plan.n_splits)
    check_present(handle, sites)
    shared = reviewed.persons - search.union
    interval = (max(shared - QUANTILE * search.deviation, 0.0), max(shared + QUANTILE * search.deviation, 0.0))
    messages = (NOBODY_SHARED,) if interval[0] <= 0 and not search.n_violations else ()
    for line in messages:
        warnings.warn(line, stacklevel=2)
    return FoldCheck(
        n_violations=search.n_violations,
        n_split=round(reviewed.split),
        n_repeated=round(reviewed.records - reviewed.excluded - reviewed.missing - reviewed.persons),
        n_missing=round(reviewed.missing),
        n_excluded=round(reviewed.excluded),
        n_shared=max(shared, 0.0),
        shared_interval=interval,
        is_partition=_is_partition(reviewed, plan),
        is_transparent=_is_transparent(handle, part, plan),
        n_turns=search.n_turns,
        miss_probability=miss_probability(plan.n_splits, search.n_turns),
        warnings=messages,
    )


@dataclass(frozen=True)
class _Search:
    """Persons in several folds, estimated persons over all sites with standard deviation, and number of requests."""

    n_violations: int
    union: float
    deviation: float
    n_turns: int


def _search(session: Session, part: Any, persons: Mapping[str, Any], n_persons: int, n_splits: int) -> _Search:
    """Search for persons in several folds: first among all, then only in buckets with several folds."""
    n_buckets = first_buckets(n_persons)
    suspects = np.zeros(0, dtype=np.int64)
    union = deviation = 0.0
    for turn in range(MAX_TURNS):
        nonces = draw_label(session, part)
        request = Checking(**persons, nonces=nonces, n_buckets=n_buckets, turn=turn, mixed=suspects)
        occupied, mixed = _ask(session, part, request, n_splits)
        if turn == 0:
            union, deviation = count_union(int((~occupied).sum()), n_buckets)
        suspects = np.flatnonzero(mixed)
        if not len(suspects):
            return _Search(0, union, deviation, turn + 1)
        last, n_buckets = n_buckets, next_buckets(len(suspects))
    return _Search(count_mixed(len(suspects), last), union, deviation, MAX_TURNS)


def _ask(session: Session, part: Any, request: Checking, n_splits: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    sums = session.sum(part.mark_folds, request)
    return read_folds(sums.marks, sums.weighted, n_splits)


def _part_of(federation: Consortium, plan: FoldPlan) -> Any:
    part = plan.session.part
    if not issubclass(part, AuditedPart) or not set(plan.session.sites) <= set(federation.sites):
        raise ConfigurationError(
            "plan must be a plan of this federation; got a plan of a different one",
            where="plan",
            hint="Create it with splitter.plan(federation).",
        )
    return part


def _is_partition(reviewed: Reviewed, plan: FoldPlan) -> bool:
    return reviewed.excluded == plan.n_excluded and reviewed.records - reviewed.excluded == plan.counts.sum()


def _is_transparent(session: Session, part: Any, plan: FoldPlan) -> bool:
    answers = session.ask(part.send_digest, Nothing())
    return {answer.digest for answer in answers.values()} == {plan.digest}


# Smallest share of equal pairs of a stable key: of the duplicates, at most 5 % can then be in different folds.
MIN_STABLE = 0.95


@dataclass(frozen=True)
class KeyStability:
    """Agreement of two records of one person in a key.

    Attributes
    ----------
    n_pairs : int
    missing : tuple of float
        Share of the first and of the second records without a value.
    equal : float
        Share of pairs with equal values, of those with both values; NaN without such pairs.
    same_fold : float
        Share of pairs in the same fold, of those with both values.
    """

    n_pairs: int
    missing: tuple[float, float]
    equal: float
    same_fold: float

    @property
    def is_enough(self) -> bool:
        """True if the key is stable enough for folds: at least 95 % of the pairs are equal."""
        return self.equal >= MIN_STABLE


def key_stability(
    first: Sequence[str | None],
    second: Sequence[str | None],
    *,
    n_splits: int = 5,
    fold_of: Callable[[str], int] | None = None,
) -> KeyStability:
    """Return the shares of pairs of records that agree in a key and that are in the same fold.

    Parameters
    ----------
    first, second : sequence of str or None, shape (n,)
        Normalised key of the two records of each pair; None if missing.
    n_splits : int, default 5
        Number of folds, K.
    fold_of : callable, optional
        Fold of a value; by default different values are in the same fold with probability 1 / K.

    Raises
    ------
    DataError
        The columns differ in length, or there is no pair.

    Examples
    --------
    >>> stability = key_stability(["1950-01-31", "1961-05-02", None], ["1950-01-31", "1961-02-05", "1970-01-01"])
    >>> stability.equal, stability.same_fold, stability.missing[0].__round__(2)
    (0.5, 0.6, 0.33)
    """
    if len(first) != len(second) or not len(first):
        raise DataError(
            f"first and second must have equal lengths of at least 1; got {len(first)} and {len(second)}",
            where="first, second",
            hint="Pass one value per pair of records in each of them.",
        )
    pairs = [(one, other) for one, other in zip(first, second, strict=True) if one is not None and other is not None]
    missing = tuple(sum(one is None for one in column) / len(first) for column in (first, second))
    equal = _share([one == other for one, other in pairs])
    if fold_of is None:
        same_fold = equal + (1 - equal) / n_splits
    else:
        same_fold = _share([fold_of(one) == fold_of(other) for one, other in pairs])
    return KeyStability(len(first), (missing[0], missing[1]), equal, same_fold)


def _share(holds: list[bool]) -> float:
    return float(np.mean(holds)) if holds else float("nan")
