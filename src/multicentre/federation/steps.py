"""What a method runs beside the patients: a site part, its steps, and the releases they answer with."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Lengths, Message, Nothing
from multicentre.federation.release_rules import (
    check_permitted,
    check_ranged,
    check_summable,
    check_without_values,
)

When = Literal["once", "every round", "at the end", "on request"]
Addressed = Literal["all", "each"]
Patients = int | Mapping[str, int]


@dataclass(frozen=True)
class Release(Message):
    """An answer that leaves a site.

    Parameters
    ----------
    patients : int or mapping of str to int
        Number of the site's records behind the fields: one number for all, or one by name (a view, or a field). The
        guard derives from it how many persons stand behind a field; both are written to the ledger. They
        travel only under the mask of a sum, and only where a policy asks for a minimum in totals.

    Notes
    -----
    A release whose class says ``concerns_patients = False`` holds nothing computed from patients (a public key, an
    acknowledgement). One that says ``individual = True`` holds values about single patients: no minimum number of
    patients can let it pass, so every field names the permission that a policy must give. One that says
    ``of_all_records = True`` is about all records of the session, also those that the part leaves out afterwards. One
    that says ``without_values = True`` holds counts of records or keyed hashes of identifiers and no patient's values:
    a policy's ``min_difference`` compares it with releases of its own class, and every other release with all answers
    (:mod:`multicentre.federation.release_rules`).
    """

    concerns_patients: ClassVar[bool] = True
    individual: ClassVar[bool] = False
    of_all_records: ClassVar[bool] = False
    without_values: ClassVar[bool] = False
    patients: Patients = dataclasses.field(default_factory=dict, kw_only=True, compare=False)

    @classmethod
    def tells_of_patients(cls) -> bool:
        """Whether some field depends on patients' records, so that it costs privacy."""
        return cls.concerns_patients and not all(declaration.public for declaration in cls.declarations().values())

    def patients_behind(self, field: str, key: str) -> int | None:
        """Return the number of records behind a value, None when the release does not say."""
        if self.individual:
            return 1
        if isinstance(self.patients, Mapping):
            return self.patients.get(key, self.patients.get(field))
        return self.patients


@dataclass(frozen=True)
class Acknowledgement(Release):
    """The answer of a step that takes something in and lets nothing out."""

    concerns_patients: ClassVar[bool] = False


P = TypeVar("P", bound="SitePart")
A = TypeVar("A", bound=Message)
R = TypeVar("R", bound=Release)


@dataclass(frozen=True, eq=False)
class Step(Generic[P, A, R]):
    """A named computation that a site offers, as a coordinator sees it.

    Parameters
    ----------
    run : callable
        The computation: (site part, ask) to release.
    releases : type
        The release that it answers with.
    when : {"once", "every round", "at the end", "on request"}
        How often a study calls it; printed on the disclosure card.
    summed : bool
        The coordinator may have only the sum over sites.
    addressed : {"all", "each"}
        Whether every site gets the same ask, or asks differ by site or reach only some sites. Steps addressed to each
        site leave the state of the site part as it is (:mod:`multicentre.federation.transcript`).
    refusable : bool
        Whether a session goes on with all sites after some of them refused the step.
    name : str
        Its name in code, card, ledger and report.
    owner : type
        The site part that offers it.
    """

    run: Callable[[P, A], R]
    releases: type[R]
    when: When
    summed: bool
    addressed: Addressed = "all"
    refusable: bool = False
    name: str = ""
    owner: type[SitePart] | None = None

    def __set_name__(self, owner: type[SitePart], name: str) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "owner", owner)

    @overload
    def __get__(self, part: None, owner: type[SitePart]) -> Step[P, A, R]: ...
    @overload
    def __get__(self, part: P, owner: type[SitePart]) -> Callable[[A], R]: ...
    def __get__(self, part: P | None, owner: type[SitePart]) -> Step[P, A, R] | Callable[[A], R]:
        if part is None:
            return self if owner is self.owner else _inherited(self, owner)
        return lambda ask: self.run(part, ask)

    @property
    def part(self) -> type[SitePart]:
        """The site part that offers the step."""
        if self.owner is None:
            raise ConfigurationError("a step was declared outside a site part", where=self.name)
        return self.owner

    @property
    def method(self) -> str:
        """Name of the method, as studies and policies write it."""
        return self.part.method

    @cached_property
    def asks(self) -> type[A]:
        """Type of the message that the step takes: the annotation of its only parameter."""
        annotations = typing.get_type_hints(self.run)
        del annotations["return"]
        (message,) = annotations.values()
        return typing.cast("type[A]", message)

    @property
    def purpose(self) -> str:
        """First line of the step's documentation."""
        lines = (self.run.__doc__ or "").strip().splitlines()
        return lines[0] if lines else ""


_INHERITED: dict[tuple[Step[Any, Any, Any], type[Any]], Step[Any, Any, Any]] = {}


def _inherited(step: Step[P, A, R], owner: type[SitePart]) -> Step[P, A, R]:
    known = _INHERITED.get((step, owner))
    if known is None:
        known = dataclasses.replace(step, owner=owner)
        _INHERITED[(step, owner)] = known
    return known


def step(
    *,
    releases: type[R],
    when: When = "on request",
    summed: bool = False,
    addressed: Addressed = "all",
    refusable: bool = False,
) -> Callable[[Callable[[P, A], R]], Step[P, A, R]]:
    """Declare a method of a site part as a step that a coordinator can call.

    The function takes one argument, annotated ``ask``, besides ``self``.

    Parameters
    ----------
    releases : type
        The release that it answers with.
    when : {"once", "every round", "at the end", "on request"}
        How often a study calls it.
    summed : bool
        True when the coordinator may have only the sum over sites.
    addressed : {"all", "each"}
        "each" when asks differ by site or reach only some sites; such a step leaves the state of the part as it is.
    refusable : bool, default False
        True when sites that refuse the step stay in the session. What a part remembers must not depend on it: masked
        sums of a session in which one site refused any other step cannot be read.

    Raises
    ------
    ConfigurationError
        The step is summed and addressed to each site.
    MessageError
        The step is summed and its release holds a field that cannot be added or declares no range; or it tells of
        single patients and a field names no permission; or it says that it is without values and a field may hold one.

    Examples
    --------
    >>> from multicentre.federation.messages import number
    >>> @dataclass(frozen=True)
    ... class Total(Release):
    ...     total: float = number("sum of the ages", unit="years", bound=1e9)
    >>> class MeanAge(SitePart):
    ...     method = "mean-age"
    ...
    ...     @step(releases=Total, when="once", summed=True)
    ...     def add_ages(self, ask: Nothing) -> Total:
    ...         '''Add the ages of this site's patients.'''
    ...         return Total(float(sum(self.data)), patients=len(self.data))
    >>> MeanAge("lyon", [61, 70]).add_ages(Nothing()).total
    131.0
    >>> MeanAge.add_ages.name, MeanAge.add_ages.summed, MeanAge.add_ages.purpose
    ('add_ages', True, "Add the ages of this site's patients.")
    """
    if summed and addressed == "each":
        raise ConfigurationError("a summed step must be addressed to all sites", where=releases.__name__)
    if summed:
        check_summable(releases)
        check_ranged(releases)
    if getattr(releases, "individual", False):
        check_permitted(releases)
    if getattr(releases, "without_values", False):
        check_without_values(releases, individual=releases.individual)

    def declare(run: Callable[[P, A], R]) -> Step[P, A, R]:
        return Step(run, releases, when, summed, addressed, refusable)

    return declare


@dataclass(frozen=True, eq=False)
class Common:
    """Where a part's records stand among those that all sites agreed on.

    Parameters
    ----------
    places : array of int64, shape (n_here,)
        Place of each of the part's records in the common order, ascending.
    n_common : int
        Number of records in the common order; more than the part has where a site lacks some of them.
    sites : frozenset of str
        The sites that sealed the order: answers are given to calls to these alone.
    incomplete : bool
        Whether a site may lack some of the records.
    """

    places: NDArray[np.int64]
    n_common: int
    sites: frozenset[str]
    incomplete: bool = False


@dataclass(frozen=True)
class Pieces:
    """Smallest groups of records that another plan of the same kind could put into other folds.

    Parameters
    ----------
    source : str
        What the pieces come from, for example the purpose of a keyed hash; the same for all plans that can differ by a
        piece, empty where no other plan shares pieces with this one.
    n_patients : int
        Patients in the smallest piece.
    """

    source: str
    n_patients: int


class SitePart:
    """Base of what a method runs beside the patients.

    One instance lives at a site for each fit. Steps are its only entrances; `state` is what it remembers between
    rounds, and it never leaves the site.

    Parameters
    ----------
    site : str
        Name of the site.
    data : object
        The site's data, of the type that ``holds`` names.

    Attributes
    ----------
    noised : bool
        Whether the answer to the present call gets noise that hides each patient; set by the site itself, call by call.
    masked : bool
        Whether the answer to the present call leaves as a masked summand; set likewise.
    least_behind : int
        How many patients the site's policy wants behind a value; models that leave a site as they are rest on as many.
        Where a patient has several records it is a number of records that belong to so many patients, whichever they
        are; a part that ``counts_persons`` gets the number of patients.
    n_peers : int
        How many sites take part in the present call.
    sums_fields : bool
        Whether sums of the part hold views or columns of the data, which some site may lack: under a mask the guard
        counts the sites behind each.
    within : str
        What the records of the part are: by what outer plans divided, and which of their folds, in the site's own words
        and the same at all sites; empty for all records.
    common : Common
        The places of the part's records in the order that sites agreed on; None where records are not aligned.
    in_transcript : bool
        Whether calls are entered in the transcript of their session; not those whose terms the sites sign themselves.
    key : object
        The key of the study's pseudonyms, of a part that ``sees_identifiers``; None where the site has none.
    used : array of int64, optional
        Rows of the records that the part works on, where it left some of those it was given out; None for all.
    persons : array of int64, shape (n,), optional
        Number of the person of each record, of a part that ``clips_persons`` or ``counts_persons``; None where nobody
        has two records. Where a record has no name: None for a part that clips, -1 for that record for one that counts.

    session_memory : tuple of str
        Names of attributes other than `state`, `within` and `data` that later answers depend on and that a step sets. A
        change of any of these is entered in the transcript of the session.
    lengths : mapping of str to str or Length
        Meaning of each letter in the shapes of the part's releases; a subclass adds to those of its bases.

    Notes
    -----
    The sensitivity that a release declares is that of one record. A part that says ``clips_persons = True`` bounds all
    records of a person together, by `persons`; the guard refuses noised answers of any other part at a site where a
    person has several records. A part that says ``counts_persons = True`` gets the same numbers to compare patients,
    not records, with `least_behind`: in a group of records that it makes, such as a fold.
    """

    noised: bool = False
    masked: bool = False
    least_behind: int = 0
    n_peers: int = 1
    within: str = ""
    method: ClassVar[str] = ""
    holds: ClassVar[type] = object
    holds_patients: ClassVar[bool] = True
    sees_identifiers: ClassVar[bool] = False
    clips_persons: ClassVar[bool] = False
    counts_persons: ClassVar[bool] = False
    in_transcript: ClassVar[bool] = True
    sums_fields: ClassVar[bool] = False
    session_memory: ClassVar[tuple[str, ...]] = ()
    remembers: ClassVar[type[Message]] = Nothing
    lengths: ClassVar[Lengths] = {}
    state: Message | None = None
    key: Any = None
    persons: NDArray[np.int64] | None = None
    common: Common | None = None
    used: NDArray[np.int64] | None = None

    def __init__(self, site: str, data: Any) -> None:
        if not isinstance(data, self.holds):
            raise ConfigurationError(
                f"{self.method} works on {self.holds.__name__}, the site holds {type(data).__name__}",
                where=site,
                hint=f"Hand the site a multicentre.data.{self.holds.__name__}.",
            )
        self.site = site
        self.data = data

    @property
    def folds(self) -> NDArray[np.int64] | None:
        """Fold of each record, shape (n,), -1 for none, of a part that divides records; it never leaves the site."""
        return None

    @property
    def division(self) -> str:
        """Hash of all that decides the folds but for the records, the same at all sites; of a part that divides."""
        return ""

    @property
    def pieces(self) -> Pieces:
        """Smallest groups of records that another plan could put into other folds, of a part that divides records."""
        return Pieces("", 0)

    @property
    def alignment(self) -> tuple[NDArray[np.int64], Common] | None:
        """Rows of the records in fold 0 in the common order, and their places in it, of a part that aligns records."""
        return None

    def n_parameters(self, ask: Message) -> int:
        """Return the number of coefficients of the regression that the answer to an ask serves to fit; 0 for none.

        The guard holds it against the number of patients (``max_parameters_per_patient``). Networks, trees and factor
        models do not count.
        """
        return 0

    def generator(self, seed: int, *purpose: int) -> np.random.Generator:
        """Return the site's own random stream for a seed and a purpose (a round's number, say)."""
        name = [int(byte) for byte in self.site.encode()]
        return np.random.default_rng(np.random.SeedSequence([seed, *purpose, len(name), *name]))

    @classmethod
    def steps(cls) -> dict[str, Step[Any, Any, Any]]:
        """Return every step that the part offers, by name, in the order of declaration."""
        names = [name for kind in reversed(cls.__mro__) for name, member in vars(kind).items() if _is_step(member)]
        return {name: getattr(cls, name) for name in dict.fromkeys(names) if _is_step(getattr(cls, name))}


def _is_step(member: object) -> bool:
    return isinstance(member, Step)
