"""Base class of splitters: plans over a federation, and the same folds on arrays."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_consistent_length

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, array, count, text, texts
from multicentre.core.session import Session
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureWarning,
    IntegrityError,
    RefusedByPolicy,
)
from multicentre.validation.folds.plan import FoldPlan, check_outcomes
from multicentre.validation.folds.site import MAX_SPLITS, FoldPart, Presence, SplitDigest

Integers = NDArray[np.int64]


_FEWER = "Use fewer folds, or smaller groups."


class FoldSplitter(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the splitters. :meth:`plan` splits the records of a federation; :meth:`split` splits arrays.

    A subclass sets its site part, requests the split from the sites in :meth:`_divide`, and returns the folds of arrays
    in :meth:`_folds`.
    """

    __metadata_request__split: ClassVar[dict[str, bool]] = {"groups": True}
    site_part: ClassVar[type[FoldPart]]
    duplicate_safe: ClassVar[bool]
    needs_all_classes: ClassVar[bool] = True
    mixes_sites: ClassVar[bool] = True
    n_splits: int

    def plan(self, federation: Consortium) -> FoldPlan:
        """Split the records of a federation into folds, at its sites.

        Parameters
        ----------
        federation : Federation
            Federation of all records, or of the records of a plan's folds (nested cross-validation).

        Raises
        ------
        DataError, ConfigurationError
            A site lacks the column of the strategy, or sites differ in it.
        DisclosureRefused
                A fold has so few patients of a site that a fit without it would disclose them.
        """
        persons = ("person_key", "kind", "date_order") if hasattr(self, "person_key") else ()
        facts: dict[str, object] = {name: getattr(self, name) for name in persons}
        for attempt in federation.attempts(self.site_part, repr(self)):
            with attempt as opened:
                facts |= self._divide(opened)
                counted = self._counted(opened)
        plan = FoldPlan(
            type(self).__name__,
            self.duplicate_safe,
            counted.records.astype(np.float64),
            counted.excluded,
            counted.by_site(counted.outside),
            counted.by_site(counted.inside),
            counted.digest,
            opened,
            facts,
            counted.left_out,
        )
        self._warn(plan)
        if not plan.counts.any():
            raise DataError(
                "at least one site must have its policy's minimum of patients in a fold; none has",
                where=plan.strategy,
                hint="Use fewer folds.",
            )
        check_outcomes(plan, needed=self.needs_all_classes)
        return plan

    def _counted(self, session: Session) -> _Counted:
        return session.once("counted", _Counted, lambda: self._count(session))

    def _count(self, session: Session) -> _Counted:
        digest, counts = session.together(
            [
                lambda: _check_digests(session.ask(self.site_part.send_digest, Nothing())),
                lambda: session.sum(self.site_part.count_folds, Nothing()),
            ]
        )
        sites = session.sites
        inside = outside = np.ones((len(sites), len(counts.records)), dtype=np.bool_)
        if (counts.sites < len(sites)).any():
            presences = self._presence(session, counts.records.sum(axis=1))
            sites = tuple(presences)
            inside = np.array([answer.inside for answer in presences.values()])
            outside = np.array([answer.outside for answer in presences.values()])
        excluded, left_out = round(counts.excluded), round(counts.left_out)
        return _Counted(counts.records, excluded, sites, inside, outside, left_out, digest)

    def _presence(self, session: Session, sizes: Integers) -> Mapping[str, Presence]:
        """Return the folds for which each site has enough patients."""
        try:
            return session.ask(self.site_part.find_presence, Nothing())
        except RefusedByPolicy as refused:
            hint = "Use fewer folds, so that every site has enough patients in each."
            raise RefusedByPolicy(refused.what, where=refused.where, hint=hint) from None

    def _warn(self, plan: FoldPlan) -> None:
        if plan.n_left_out:
            warnings.warn(f"{plan.strategy}: {plan.exclusions} Use fewer folds.", stacklevel=3)
        testing = [sum(fold in tested for tested in plan.tested.values()) for fold in range(plan.n_splits)]
        if self.mixes_sites and plan.session.protection == "masked" and 1 in testing:
            warnings.warn(
                f"{plan.strategy}: fold {testing.index(1)} can be tested at one site only, which answers unmasked",
                DisclosureWarning,
                stacklevel=3,
            )

    def plans(self, federation: Consortium) -> list[FoldPlan]:
        """Return one plan, or one per repeat of a repeated strategy."""
        return [self.plan(federation)]

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Integers, Integers]]:
        """Yield rows for training and rows for testing of every fold, on arrays.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,), optional
        groups : array of shape (n,), optional
            Identifiers or values of a covariate, depending on the strategy. Rows with missing values are in neither
            part.
        """
        check_consistent_length(X, y, groups)
        folds = self._folds(np.asarray(X), None if y is None else np.asarray(y), _groups(groups))
        for fold in range(self.get_n_splits(X, y, groups)):
            train, test = np.flatnonzero((folds >= 0) & (folds != fold)), np.flatnonzero(folds == fold)
            if not len(train) or not len(test):
                raise DataError(
                    f"every fold must have rows for training and for testing; fold {fold} has {len(train)} and "
                    f"{len(test)}",
                    where="groups",
                    hint=_FEWER,
                )
            yield train, test

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({parameters})"

    @abstractmethod
    def _divide(self, session: Session) -> Mapping[str, object]:
        """Request the split from the sites; return the facts of the plan."""

    @abstractmethod
    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        """Return the fold of every row of arrays, -1 for none."""


@dataclass(frozen=True)
class _Counted(Message):
    """Counts of a plan, stored by the coordinator."""

    records: Integers = array("records, by fold and class", ("K", "C"), dtype="i8")
    excluded: int = count("records without a fold")
    sites: tuple[str, ...] = texts("names of the sites")
    inside: NDArray[np.bool_] = array("the site has enough patients in the fold", ("S", "K"), dtype="b1")
    outside: NDArray[np.bool_] = array("the site has enough patients in the other folds", ("S", "K"), dtype="b1")
    left_out: int = count("records without a fold because their sites have few patients in it")
    digest: str = text("hash of the parameters of the split")

    def by_site(self, flags: NDArray[np.bool_]) -> dict[str, tuple[int, ...]]:
        """Return the flagged folds of each site."""
        return {site: tuple(np.flatnonzero(row).tolist()) for site, row in zip(self.sites, flags, strict=True)}


def _check_digests(answers: Mapping[str, SplitDigest]) -> str:
    digest, *others = {site.digest for site in answers.values()}
    if others:
        raise IntegrityError(
            "all sites must use the same split; got different ones",
            where=", ".join(answers),
            hint="Install the same version of the package at all sites.",
        )
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    return digest


def check_classes(n_classes: Mapping[str, int]) -> None:
    """Check that all sites have the same number of classes of the outcome.

    Raises
    ------
    DataError
        Sites differ; the error names the sites with fewer classes.
    """
    most = max(n_classes.values())
    fewer = [site for site, number in n_classes.items() if number < most]
    if fewer:
        raise DataError(
            f"all sites must have the same {most} classes of the outcome; these have fewer",
            where=", ".join(fewer),
            hint="Name all classes of the study at every site, including those without a record.",
        )


def checked_splits(n_splits: int) -> int:
    """Return the number of folds.

    Raises
    ------
    ConfigurationError
        It is not an integer from 2 to 100.
    """
    if int(n_splits) != n_splits or not 2 <= n_splits <= MAX_SPLITS:
        raise ConfigurationError(
            f"n_splits must be an integer from 2 to {MAX_SPLITS}; got {n_splits}",
            where="n_splits",
            hint="Five or ten folds are usual.",
        )
    return int(n_splits)


def needed_groups(groups: NDArray[Any] | None, description: str) -> NDArray[Any]:
    """Return the groups of a split on arrays.

    Raises
    ------
    ConfigurationError
        There are none.
    """
    if groups is None:
        raise ConfigurationError(
            f"groups must be {description}, one per row; got None", where="groups", hint="Pass groups= to the split."
        )
    return groups


def _groups(groups: ArrayLike | None) -> NDArray[Any] | None:
    return None if groups is None else np.asarray(groups)
