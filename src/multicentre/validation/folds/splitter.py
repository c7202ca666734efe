"""What every strategy of folds shares: a plan over a federation, and the same folds on plain arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, DataError, IntegrityError
from multicentre.federation.messages import Message, Nothing, array, count, text, texts
from multicentre.validation.folds.messages import MOST_SPLITS
from multicentre.validation.folds.plan import FoldPlan
from multicentre.validation.folds.site import FoldPart

Integers = NDArray[np.int64]


class FoldSplitter(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the splitters. Over a federation :meth:`plan` makes the folds; :meth:`split` makes them on arrays.

    A strategy names its site part, tells the sites how to divide in :meth:`_divide`, and returns the folds of arrays in
    :meth:`_folds`.
    """

    __metadata_request__split: ClassVar[dict[str, bool]] = {"groups": True}
    site_part: ClassVar[type[FoldPart]]
    duplicate_safe: ClassVar[bool]
    n_splits: int

    def plan(self, federation: Federation) -> FoldPlan:
        """Divide the records of a federation into folds, at its sites.

        Parameters
        ----------
        federation : Federation
            All sites, or the records of a plan's folds (nested cross-validation).

        Raises
        ------
        DataError, ConfigurationError
            A site lacks what the strategy divides by, or sites do not agree in it.
        DisclosureRefused
            A fold would have so few of a site's records that what is fitted without it would tell of them.
        """
        opened = federation.begin(self.site_part, repr(self))
        facts = self._divide(opened)
        counted = opened.once("counted", _Counted, lambda: _count(opened, self.site_part))
        present = counted.present_by_site
        return FoldPlan(
            type(self).__name__,
            self.duplicate_safe,
            counted.records.astype(np.float64),
            counted.excluded,
            present,
            counted.digest,
            opened,
            facts,
        )

    def plans(self, federation: Federation) -> list[FoldPlan]:
        """Return one plan, or as many as a strategy repeats itself."""
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
            What the strategy divides by: identifiers or a covariate. Rows where it is missing are in neither part.
        """
        folds = self._folds(np.asarray(X), None if y is None else np.asarray(y), _groups(groups))
        for fold in range(self.get_n_splits(X, y, groups)):
            yield np.flatnonzero((folds >= 0) & (folds != fold)), np.flatnonzero(folds == fold)

    @abstractmethod
    def _divide(self, federation: Federation) -> Mapping[str, object]:
        """Have the sites divide their records; return what the plan tells of it."""

    @abstractmethod
    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        """Return the fold of every row of arrays, -1 for none."""


@dataclass(frozen=True)
class _Counted(Message):
    """What the coordinator keeps of a plan."""

    records: Integers = array("records, by fold and class", ("K", "C"), dtype="i8")
    excluded: int = count("records in no fold")
    sites: tuple[str, ...] = texts("names of the sites")
    present: NDArray[np.bool_] = array("whether a site has records in a fold", ("S", "K"), dtype="b1")
    digest: str = text("hash of what every site divided by")

    @property
    def present_by_site(self) -> dict[str, tuple[int, ...]]:
        """Folds that a site has records in."""
        found = zip(self.sites, self.present, strict=True)
        return {site: tuple(np.flatnonzero(row).tolist()) for site, row in found}


def _count(federation: Federation, part: type[FoldPart]) -> _Counted:
    counts = federation.sum(part.count_folds, Nothing())
    told = federation.ask(part.tell_presence, Nothing())
    if len({presence.digest for presence in told.values()}) != 1:
        raise IntegrityError(
            "the sites did not divide by the same", where=", ".join(told), mend="Install one version at all sites."
        )
    rows = np.array([presence.present for presence in told.values()])
    digest = next(iter(told.values())).digest
    return _Counted(counts.records, round(counts.excluded), tuple(told), rows, digest)


def check_classes(n_classes: Mapping[str, int]) -> None:
    """Check that all sites know the same number of classes of the outcome.

    Raises
    ------
    DataError
        They do not; the error names the sites with fewer.
    """
    most = max(n_classes.values())
    fewer = [site for site, number in n_classes.items() if number < most]
    if fewer:
        raise DataError(
            f"other sites have {most} classes of the outcome, and here are fewer",
            where=", ".join(fewer),
            mend="Name all classes of the study at every site, also those that no record here has.",
        )


def checked_splits(n_splits: int) -> int:
    """Return the number of folds.

    Raises
    ------
    ConfigurationError
        It is not a whole number from 2 to 100.
    """
    if not isinstance(n_splits, int | np.integer) or not 2 <= n_splits <= MOST_SPLITS:
        raise ConfigurationError(
            f"from 2 to {MOST_SPLITS} folds are possible", where="n_splits", mend="Five or ten are usual."
        )
    return int(n_splits)


def needed_groups(groups: NDArray[Any] | None, what: str) -> NDArray[Any]:
    """Return the groups that a split on arrays was given.

    Raises
    ------
    ConfigurationError
        There are none.
    """
    if groups is None:
        raise ConfigurationError(f"{what} are needed, one a row", where="groups", mend="Hand them over as `groups`.")
    return groups


def _groups(groups: ArrayLike | None) -> NDArray[Any] | None:
    return None if groups is None else np.asarray(groups)
