"""Site parts of methods, their steps, and the releases that the steps return."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.release_declarations import (
    check_permitted,
    check_ranged,
    check_summable,
    check_without_values,
)
from multicentre.errors import ConfigurationError

When = Literal["once", "every round", "at the end", "on request"]
Addressed = Literal["all", "each"]
Patients = int | Mapping[str, int]


@dataclass(frozen=True)
class Release(Message):
    """Answer that leaves a site.

    Parameters
    ----------
    patients : int or mapping of str to int
        Number of the site's records behind the fields: one number for all, or one per name (a view, or a field). The
        guard derives the number of persons behind a field from it; both are written to the ledger. They travel only
        under the mask of a sum, and only if a policy has a minimum for totals.

    Notes
    -----
    Class attributes of a release:

    - ``concerns_patients = False``: nothing is computed from patients (a public key, an acknowledgement).
    - ``individual = True``: values about single patients. No minimum number of patients applies, so every field names
      the permission that a policy must give.
    - ``of_all_records = True``: about all records of the session, also those that the part leaves out afterwards.
    - ``without_values = True``: counts of records or keyed hashes of identifiers and no patient's values. A policy's
      ``min_difference`` compares it with releases of the same class, and every other release with all answers
      (:mod:`multicentre.core.release_declarations`).
    """

    concerns_patients: ClassVar[bool] = True
    individual: ClassVar[bool] = False
    of_all_records: ClassVar[bool] = False
    without_values: ClassVar[bool] = False
    patients: Patients = dataclasses.field(default_factory=dict, kw_only=True, compare=False)

    @classmethod
    def tells_of_patients(cls) -> bool:
        """Return whether a field depends on patients' records, so that it costs privacy."""
        of_patients = _TELLS_OF_PATIENTS.get(cls)
        if of_patients is None:
            is_public = all(declaration.public for declaration in cls.declarations().values())
            of_patients = _TELLS_OF_PATIENTS[cls] = cls.concerns_patients and not is_public
        return of_patients

    def patients_behind(self, field: str, key: str) -> int | None:
        """Return the number of records behind a value; None if the release does not state it."""
        if self.individual:
            return 1
        patients = self.patients
        if not isinstance(patients, int) and isinstance(patients, Mapping):  # the check for an int is ten times faster
            return patients.get(key, patients.get(field))
        return patients


@dataclass(frozen=True)
class Acknowledgement(Release):
    """Answer of a step that receives a message and releases nothing."""

    concerns_patients: ClassVar[bool] = False


_TELLS_OF_PATIENTS: dict[type[Release], bool] = {}
P = TypeVar("P", bound="SitePart")
A = TypeVar("A", bound=Message)
R = TypeVar("R", bound=Release)


@dataclass(frozen=True, eq=False)
class Step(Generic[P, A, R]):
    """Named computation that a site offers.

    Parameters
    ----------
    run : callable
        The computation: takes the site part and the message, returns the release.
    releases : type
        Class of the release that it returns.
    when : {"once", "every round", "at the end", "on request"}
        How often a study calls it; shown on the disclosure card.
    summed : bool
        Whether the coordinator receives the sum over sites only.
    addressed : {"all", "each"}
        "all" if every site gets the same message; "each" if messages differ by site or reach only some sites. Steps
        addressed to each site do not change the state of the site part (:mod:`multicentre.core.transcript`).
    refusable : bool
        Whether a session continues with all sites after some of them refused the step.
    name : str
        Name in code, card, ledger and report.
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
        return lambda request: self.run(part, request)

    @property
    def part(self) -> type[SitePart]:
        """The site part that offers the step."""
        if self.owner is None:
            raise ConfigurationError(
                "a step must be declared in a site part; got one outside",
                where=self.name,
                hint="Declare it in the body of a subclass of SitePart.",
            )
        return self.owner

    @property
    def method(self) -> str:
        """Name of the method in studies and policies."""
        return self.part.method

    @cached_property
    def request_type(self) -> type[A]:
        """Type of the message that the step takes: the annotation of its only parameter."""
        annotations = typing.get_type_hints(self.run)
        annotations.pop("return", None)
        (message,) = annotations.values()
        return typing.cast("type[A]", message)

    @property
    def purpose(self) -> str:
        """First line of the step's documentation."""
        lines = (self.run.__doc__ or "").strip().splitlines()
        return lines[0] if lines else ""


_INHERITED: dict[tuple[Step[Any, Any, Any], type[Any]], Step[Any, Any, Any]] = {}


def _inherited(step: Step[P, A, R], owner: type[SitePart]) -> Step[P, A, R]:
    """Return the step of a base class as one of `owner`, the same object each time."""
    inherited = _INHERITED.get((step, owner))
    if inherited is None:
        inherited = _INHERITED[(step, owner)] = dataclasses.replace(step, owner=owner)
    return inherited


def step(
    *,
    releases: type[R],
    when: When = "on request",
    summed: bool = False,
    addressed: Addressed = "all",
    refusable: bool = False,
) -> Callable[[Callable[[P, A], R]], Step[P, A, R]]:
    """Declare a method of a site part as a step that a coordinator can call.

    The function takes one argument, annotated ``request``, besides ``self``.

    Parameters
    ----------
    releases : type
        Class of the release that it returns.
    when : {"once", "every round", "at the end", "on request"}
        How often a study calls it.
    summed : bool
        True if the coordinator receives the sum over sites only.
    addressed : {"all", "each"}
        "each" if messages differ by site or reach only some sites; such a step does not change the state of the part.
    refusable : bool, default False
        True if sites that refuse the step stay in the session. The state of a part must not depend on such a step.
        After a refusal of any other step, masked sums of the session cannot be read.

    Raises
    ------
    ConfigurationError
        The step is summed and addressed to each site.
    MessageError
        The release breaks a rule of :mod:`multicentre.core.release_declarations`.

    Examples
    --------
    >>> from multicentre.core.messages import number
    >>> @dataclass(frozen=True)
    ... class Total(Release):
    ...     total: float = number("sum of the ages", unit="years", bound=1e9)
    >>> class MeanAge(SitePart):
    ...     method = "mean-age"
    ...
    ...     @step(releases=Total, when="once", summed=True)
    ...     def add_ages(self, request: Nothing) -> Total:
    ...         '''Add the ages of this site's patients.'''
    ...         return Total(float(sum(self.data)), patients=len(self.data))
    >>> MeanAge("lyon", [61, 70]).add_ages(Nothing()).total
    131.0
    >>> MeanAge.add_ages.name, MeanAge.add_ages.summed, MeanAge.add_ages.purpose
    ('add_ages', True, "Add the ages of this site's patients.")
    """
    if summed and addressed == "each":
        raise ConfigurationError(
            "a summed step must be addressed to all sites; got addressed='each'", where=releases.__name__
        )
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
    """Places of a part's records in the order that all sites agreed on.

    Parameters
    ----------
    places : array of int64, shape (n_here,)
        Place of each of the part's records in the common order, ascending.
    n_common : int
        Number of records in the common order; more than the part has where a site lacks some of them.
    sites : frozenset of str
        Sites that sealed the order; only calls to these sites are answered.
    incomplete : bool
        True if a site may lack some of the records.
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
        Origin of the pieces, for example the purpose of a keyed hash. It is the same for all plans that can differ by a
        piece, and empty if no other plan shares pieces with this one.
    n_patients : int
        Number of patients in the smallest piece.
    """

    source: str
    n_patients: int


class SitePart:
    """Base class of the part of a method that runs at a site.

    A site creates one instance for each fit. Only its steps are called from outside. Its `state` lasts from round to
    round and never leaves the site.

    Parameters
    ----------
    site : str
        Name of the site.
    data : object
        The site's data, an instance of ``holds``.

    Attributes
    ----------
    noised : bool
        True if the answer to the present call gets noise that hides each patient; set by the site for every call.
    masked : bool
        True if the answer to the present call leaves as a masked summand and other sites add to each of its fields; set
        by the site for every call.
    least_behind : int
        Minimum number of patients behind a value by the site's policy; models that leave a site unmasked must rest on
        as many. If patients have several records it is a number of records which belong to at least that many patients,
        whichever records they are. A part that ``counts_persons`` gets the number of patients.
    least_in_answer : int
        Number of records that guarantees the minimum of the policy for the present answer, which may be smaller for a
        counted total over sites; 0 if the noise of the call replaces a minimum.
    n_peers : int
        Number of sites that take part in the present call.
    sums_fields : bool
        True if sums of the part contain views or columns of the data, which some site may lack: under a mask the guard
        counts the sites behind each.
    within : str
        Plans and folds that the records of the part come from, as the parts of the site state them; the same at all
        sites, empty for all records.
    run : str
        Hash of the run: of its opening, and of a random number of each site.
    common : Common
        Places of the part's records in the order that sites agreed on; None if records are not aligned.
    in_transcript : bool
        False if calls are not entered in the transcript of their session, because the sites sign their terms.
    key : object
        Key of the study's pseudonyms, of a part that ``sees_identifiers``; None if the site has none.
    earlier_predictions : object
        Predictions of the models that were scored unmasked before; None outside a site. See
        :class:`~multicentre.core.differencing.EarlierPredictions`.
    used : array of int64, optional
        Rows of the records that the part works on, if it leaves out some of its records; None for all.
    persons : array of int64, shape (n,), optional
        Number of the person of each record, of a part that ``clips_persons`` or ``counts_persons``; None if nobody has
        two records. If a record has no name: None for a part that clips, -1 for that record for a part that counts.

    revision : int
        Raised when a step computes other values from the same messages, so that releases which would contribute
        different values to one sum do not work together.
    session_memory : tuple of str
        Names of attributes other than `state`, `within` and `data` that a step sets and later answers depend on. A
        change of any of these is entered in the transcript of the session.
    lengths : mapping of str to str or Length
        Meaning of each letter in the shapes of the part's releases; a subclass adds to those of its bases.

    Notes
    -----
    The sensitivity that a release declares is that of one record. A part with ``clips_persons = True`` bounds all
    records of a person together, by `persons`; the guard refuses noised answers of any other part at a site where a
    person has several records. A part with ``counts_persons = True`` uses the same numbers to compare patients, not
    records, with `least_behind` in the groups of records that it forms, for example folds.
    """

    noised: bool = False
    masked: bool = False
    least_behind: int = 0
    least_in_answer: int = 0
    n_peers: int = 1
    within: str = ""
    run: str = ""
    method: ClassVar[str] = ""
    revision: ClassVar[int] = 1
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
    earlier_predictions: Any = None
    used: NDArray[np.int64] | None = None

    def __init__(self, site: str, data: Any) -> None:
        if not isinstance(data, self.holds):
            raise ConfigurationError(
                f"the data for {self.method} must be {self.holds.__name__}; got {type(data).__name__}",
                where=site,
                hint=f"Give the site a multicentre.data.{self.holds.__name__}.",
            )
        self.site = site
        self.data = data

    @property
    def folds(self) -> NDArray[np.int64] | None:
        """Fold of each record, shape (n,), -1 for no fold, of a part that divides records; never leaves the site."""
        return None

    @property
    def division(self) -> str:
        """Hash of everything that determines the folds, apart from the records; the same at all sites."""
        return ""

    @property
    def pieces(self) -> Pieces:
        """Smallest groups of records that another plan could put into other folds, of a part that divides records."""
        return Pieces("", 0)

    @property
    def alignment(self) -> tuple[NDArray[np.int64], Common] | None:
        """Rows of the records in fold 0 in the common order, and their places in it, of a part that aligns records."""
        return None

    def n_parameters(self, request: Message) -> int:
        """Return the number of coefficients of the regression that an answer contributes to; 0 for none.

        The guard compares it with the number of patients (``max_parameters_per_patient``). Networks, trees and factor
        models are not counted.
        """
        return 0

    def n_contributing(self, n_patients: int, *counts: ArrayLike) -> int:
        """Return the number of patients behind counts: `n_patients` under a mask, else those of the smallest cell.

        A mask hides every cell in the total over sites. Empty cells state nothing about a patient of this site.

        Examples
        --------
        >>> SitePart("lyon", None).n_contributing(20, [7, 0], 13)
        7
        """
        if self.masked:
            return n_patients
        cells = np.concatenate([np.ravel(each) for each in counts])
        return int(cells[cells > 0].min(initial=n_patients))

    def generator(self, seed: int, *purpose: int) -> np.random.Generator:
        """Return the random generator of this site for a seed and a purpose, for example the number of a round."""
        name = [int(byte) for byte in self.site.encode()]
        return np.random.default_rng(np.random.SeedSequence([seed, *purpose, len(name), *name]))

    @classmethod
    def steps(cls) -> dict[str, Step[Any, Any, Any]]:
        """Return the steps of the part by name, in the order of declaration."""
        steps = _STEPS.get(cls)
        if steps is None:
            names = [name for kind in reversed(cls.__mro__) for name, member in vars(kind).items() if _is_step(member)]
            steps = {name: getattr(cls, name) for name in dict.fromkeys(names) if _is_step(getattr(cls, name))}
            _STEPS[cls] = steps
        return dict(steps)


# Every call that is decoded looks up its step.
_STEPS: WeakKeyDictionary[type[SitePart], dict[str, Step[Any, Any, Any]]] = WeakKeyDictionary()


def _is_step(member: object) -> bool:
    return isinstance(member, Step)
