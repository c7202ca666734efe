"""Audit of folds: people who have records in several folds, and the stability of scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.identifiers import IDENTIFIER
from multicentre.estimator.figures import Figure, Table
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Nothing
from multicentre.federation.session import Session
from multicentre.linkage.keys.audited import MOST_TURNS, AuditedPart
from multicentre.linkage.keys.mixture import (
    Checking,
    Reviewed,
    Reviewing,
    count_mixed,
    first_buckets,
    miss_probability,
    next_buckets,
    read_folds,
)
from multicentre.linkage.keys.union import QUANTILE, count_union
from multicentre.linkage.persons import agree_on_key, check_present, describe_persons, draw_label
from multicentre.privacy.normalisation import DateOrder, Kind
from multicentre.validation.folds.plan import FoldPlan

if TYPE_CHECKING:
    import pandas as pd

NOBODY_SHARED = (
    "nobody was recognised at two sites: either no person is, or their identifiers differ between sites; "
    "estimate_duplicate_rate(federation, controls=...) tells which"
)


@dataclass(frozen=True)
class Audit:
    """What an audit found of a plan.

    Attributes
    ----------
    n_violations : int
        Persons with records in several folds, all sites taken together (Definition 3 asks for none); 0 is exact but for
        `miss_probability`, larger numbers are estimates that count two persons of one bucket as about two.
    n_split : int
        Patients of one site with records in several folds there, summed over sites.
    n_repeated : int
        Records in folds whose person the same site has another record of.
    n_missing : int
        Records in folds without an identifier, which the audit cannot judge.
    n_excluded : int
        Records in no fold.
    n_shared : float
        Sum over sites of their persons, less the persons over all sites: how many duplicates there were to find. An
        estimate.
    shared_interval : tuple of float
        Its 95 % interval.
    is_partition : bool
        Every record is in one of the folds that the plan counted, or among its excluded ones.
    is_transparent : bool
        All sites divided by the same, and still do.
    n_turns : int
        Questions that were asked.
    miss_probability : float
        With which, at most, one violation stays unseen.
    warnings : tuple of str
        What keeps the audit from being read as it stands.
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
        """Whether nothing was found against the plan, and there were duplicates to find."""
        return self._is_clean and self.is_conclusive

    @property
    def is_conclusive(self) -> bool:
        """Whether somebody was recognised at two sites: else no person is, or the identifiers differ between sites."""
        return self.shared_interval[0] > 0

    @property
    def _is_clean(self) -> bool:
        return self.n_violations == 0 and self.n_split == 0 and self.is_partition and self.is_transparent

    def to_frame(self) -> pd.DataFrame:
        """Return one row a finding."""
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=["finding", "value"]).set_index("finding")

    def figures(self) -> list[Figure]:
        """Return the findings as a table."""
        caption = "Persons in several folds, and what else was held against the plan; counts of all sites together."
        return [Table("Audit of the folds", caption, "data", ["finding", "value"], self._rows())]

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "inconclusive" if self._is_clean else "failed"
        return f"Audit({verdict}: {self.n_violations} violations, about {self.n_shared:.0f} duplicates to find)"

    def _rows(self) -> list[list[str | float | None]]:
        kept = {name: value for name, value in asdict(self).items() if name not in ("shared_interval", "warnings")}
        return [[name, float(value)] for name, value in kept.items()]


def check_interfold(
    federation: Consortium,
    plan: FoldPlan,
    *,
    person_key: str | None = None,
    kind: Kind | None = None,
    date_order: DateOrder | Mapping[str, DateOrder] | None = None,
    patient_key: str | None = None,
    study: str | None = None,
) -> Audit:
    """Count the persons whom a plan put into several folds, without a token or an identifier leaving any site.

    Parameters
    ----------
    federation : Federation
        Over which the plan was made; with masked sums, or sites whose policy has no minimum of patients.
    plan : FoldPlan
    person_key : str, optional
        Column that tells the same person at all sites; by default the plan's own. One that the plan was not made by
        tests what the plan rests on.
    kind, date_order
        See :func:`multicentre.linkage.estimate_duplicate_rate`; by default the plan's own.
    patient_key : str, optional
        Column by which a site knows the records of one patient; by default the person's own.
    study : str, optional
        Name that the hash depends on; the federation's own by default.

    Returns
    -------
    Audit

    Raises
    ------
    ConfigurationError
        The sites hold different keys, or the plan is not of this federation.
    DataError
        A site has no such column.
    DisclosureRefused
        Sums leave unmasked, which would show who is at a site.
    QuorumLost
        A site was lost on the way.

    Warns
    -----
    UserWarning
        Nobody was recognised at two sites.

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
    own: Mapping[str, Any] = {"person_key": IDENTIFIER, "kind": "identifier", "date_order": "iso", **plan.facts}
    persons = describe_persons(
        federation, person_key or own["person_key"], kind or own["kind"], date_order or own["date_order"], study
    )
    sites = handle.sites
    agree_on_key(handle, part, persons["study"], persons["person_key"])
    reviewed = handle.sum(part.review_folds, Reviewing(**persons, patient_key=patient_key or ""))
    search = _search(handle, part, persons, round(reviewed.persons), plan.n_splits)
    check_present(handle, sites)
    shared = reviewed.persons - search.union
    interval = (max(shared - QUANTILE * search.deviation, 0.0), max(shared + QUANTILE * search.deviation, 0.0))
    told_of = (NOBODY_SHARED,) if interval[0] <= 0 and not search.n_violations else ()
    for line in told_of:
        warnings.warn(line, stacklevel=2)
    return Audit(
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
        warnings=told_of,
    )


@dataclass(frozen=True)
class _Search:
    """Persons in several folds, persons over all sites and the deviation of that estimate, and questions asked."""

    n_violations: int
    union: float
    deviation: float
    n_turns: int


def _search(session: Session, part: Any, persons: Mapping[str, Any], n_persons: int, n_splits: int) -> _Search:
    """Look for people in several folds: everybody first, then only those in buckets that hold several folds."""
    n_buckets = first_buckets(n_persons)
    suspects = np.zeros(0, dtype=np.int64)
    union = deviation = 0.0
    for turn in range(MOST_TURNS):
        nonces = draw_label(session, part)
        ask = Checking(**persons, nonces=nonces, n_buckets=n_buckets, turn=turn, mixed=suspects)
        occupied, mixed = _ask(session, part, ask, n_splits)
        if turn == 0:
            union, deviation = count_union(int((~occupied).sum()), n_buckets)
        suspects = np.flatnonzero(mixed)
        if not len(suspects):
            return _Search(0, union, deviation, turn + 1)
        last, n_buckets = n_buckets, next_buckets(len(suspects))
    return _Search(count_mixed(len(suspects), last), union, deviation, MOST_TURNS)


def _ask(session: Session, part: Any, ask: Checking, n_splits: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    found = session.sum(part.mark_folds, ask)
    return read_folds(found.marks, found.weighted, n_splits)


def _part_of(federation: Consortium, plan: FoldPlan) -> Any:
    part = plan.session.part
    if not issubclass(part, AuditedPart) or not set(plan.session.sites) <= set(federation.sites):
        raise ConfigurationError(
            "the plan is not of this federation", where="plan", hint="Make it with splitter.plan(federation)."
        )
    return part


def _is_partition(reviewed: Reviewed, plan: FoldPlan) -> bool:
    return reviewed.excluded == plan.n_excluded and reviewed.records - reviewed.excluded == plan.counts.sum()


def _is_transparent(session: Session, part: Any, plan: FoldPlan) -> bool:
    told = session.ask(part.tell_digest, Nothing())
    return {answer.digest for answer in told.values()} == {plan.digest}


LEAST_STABLE = 0.95


@dataclass(frozen=True)
class KeyStability:
    """How often two records of one person agree in a key.

    Attributes
    ----------
    n_pairs : int
    missing : tuple of float
        Share of the first and of the second records without a value.
    equal : float
        Share of the pairs with equal values, of those that have both; NaN without any.
    same_fold : float
        Share of the pairs in one fold, of those that have both, if values that differ fall into folds at random.
    """

    n_pairs: int
    missing: tuple[float, float]
    equal: float
    same_fold: float

    @property
    def is_enough(self) -> bool:
        """Whether the key is as stable as folds need: 0.95 or more of the pairs are equal."""
        return self.equal >= LEAST_STABLE


def key_stability(
    first: Sequence[str | None],
    second: Sequence[str | None],
    *,
    n_splits: int = 5,
    fold_of: Callable[[str], int] | None = None,
) -> KeyStability:
    """Return how often pairs of records agree in a key, and how often they fall into one fold.

    Parameters
    ----------
    first, second : sequence of str or None, shape (n,)
        The key of each pair's two records, normalised, None where missing.
    n_splits : int, default 5
        Folds, K.
    fold_of : callable, optional
        Fold of a value; by default values that differ are in one fold with probability 1 / K.

    Raises
    ------
    DataError
        The columns differ in length, or there is no pair.

    Examples
    --------
    >>> found = key_stability(["1950-01-31", "1961-05-02", None], ["1950-01-31", "1961-02-05", "1970-01-01"])
    >>> found.equal, found.same_fold, found.missing[0].__round__(2)
    (0.5, 0.6, 0.33)
    """
    if len(first) != len(second) or not len(first):
        raise DataError("pairs of records are needed, at least one", where="first, second")
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
