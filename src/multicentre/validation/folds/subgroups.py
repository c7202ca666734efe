"""Subgroups of records: those that meet a condition, or that have a level of a category.

A subgroup is a fold whose records a condition names, so that the rules for folds hold: the records never leave the
site, and a site with fewer patients in a subgroup than its policy's minimum takes no part in the fit to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, array, texts
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.tabular import Tabular
from multicentre.errors import ConfigurationError
from multicentre.formula.conditions import parse_condition, reader_of_data
from multicentre.validation.folds.group_sizes import count_patients
from multicentre.validation.folds.site import FoldPart, Folds

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Conditions(Message):
    """Conditions of the subgroups, of which at most one holds for a record."""

    conditions: tuple[str, ...] = texts("conditions, one per subgroup")


class SubgroupFolds(FoldPart):
    """Site part of subgroups."""

    method: ClassVar[str] = "subgroups"
    holds: ClassVar[type] = Tabular

    @step(releases=Acknowledgement, when="once")
    def divide(self, request: Conditions) -> Acknowledgement:
        """Put every record into the first subgroup whose condition it meets."""
        read, group = reader_of_data(self.data), np.full(len(self.data), -1, dtype=np.int64)
        for number, text in reversed(list(enumerate(request.conditions))):
            group[parse_condition(text).evaluate(read)[0]] = number
        self.settle(group, len(request.conditions), request)
        return Acknowledgement()

    def _spared(self, settled: Folds) -> Folds:
        """Empty subgroups of few patients; unlike in folds, no other patient is left out."""
        sizes = count_patients(settled.fold, settled.n_splits, self.persons)
        fold = np.where((settled.fold >= 0) & (sizes < self.least_behind)[settled.fold], -1, settled.fold)
        return replace(settled, fold=fold, left_out=int((fold < settled.fold).sum()))


# Steps that a study with subgroups requests.
SUBGROUP_STEPS = frozenset({"divide", "count_folds", "find_presence"})


@dataclass(frozen=True)
class _Counted(Message):
    """Counts of the subgroups, stored by the coordinator."""

    records: Integers = array("records of all sites, by subgroup", ("K",), dtype="i8")
    inside: NDArray[np.bool_] = array("the site has enough patients in the subgroup", ("S", "K"), dtype="b1")
    sites: tuple[str, ...] = texts("names of the sites")


@dataclass(frozen=True, eq=False)
class Subgroup:
    """Records of a subgroup over the sites that have enough of them.

    Attributes
    ----------
    condition : str
    n_records : int
        Records at these sites.
    federation : Consortium or None
        None if fewer than two sites have enough patients.
    absent : tuple of str
        Sites with fewer patients in the subgroup than their policy's minimum.
    """

    condition: str
    n_records: int
    federation: Consortium | None
    absent: tuple[str, ...]


def divide_into_subgroups(federation: Consortium, conditions: Sequence[str]) -> list[Subgroup]:
    """Return the subgroups of the records of a federation.

    Parameters
    ----------
    federation : Consortium
    conditions : sequence of str
        One per subgroup; see :mod:`multicentre.formula.conditions`.

    Raises
    ------
    ConfigurationError
        A condition is not in the grammar, or names no column of the data.
    """
    request = Conditions(tuple(conditions))
    for attempt in federation.attempts(SubgroupFolds, repr(request.conditions)):
        with attempt as session:
            counted = session.once("subgroups", _Counted, lambda: _count(session, request))
    groups = []
    for number, condition in enumerate(request.conditions):
        sites = [site for site, row in zip(counted.sites, counted.inside, strict=True) if row[number]]
        has_few = len(sites) < min(2, len(federation.sites))
        chosen = None if has_few else session.select([number], sites)
        absent = tuple(site for site in counted.sites if site not in sites)
        groups.append(Subgroup(condition, int(counted.records[number]), chosen, absent))
    return groups


def select_records(federation: Consortium, condition: str | None) -> Consortium:
    """Return the federation of the records that meet a condition; all records without one.

    Raises
    ------
    ConfigurationError
        Fewer than two sites have enough patients who meet it.
    """
    if condition is None:
        return federation
    (group,) = divide_into_subgroups(federation, [condition])
    if group.federation is None:
        raise ConfigurationError(
            "at least two sites must have their policy's minimum of patients who meet the condition; fewer have",
            where="where",
            hint="Choose a condition that more patients meet.",
        )
    return group.federation


def _count(session: Session, request: Conditions) -> _Counted:
    session.ask(SubgroupFolds.divide, request)
    counts = session.sum(SubgroupFolds.count_folds, Nothing())
    answers = session.ask(SubgroupFolds.find_presence, Nothing())
    inside = np.array([answer.inside for answer in answers.values()])
    return _Counted(counts.records.sum(axis=1), inside, tuple(answers))
