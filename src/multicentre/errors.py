"""Errors and warnings of the package, each with a stable code."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

_MAX_COMPARED = 3  # each is compared with all valid names, which takes a second for ten thousand
MAX_NAMED = 10  # about as many names fit on one line of a terminal


class MulticentreError(Exception):
    """Base class of the errors that the package raises.

    Parameters
    ----------
    what : str
        Expected and actual state, in one clause. Never contains a patient's value.
    where : str, optional
        Location: a site, a view, a column, a file, a key of a study.
    hint : str, optional
        Remedy.

    Attributes
    ----------
    code : str
        Stable identifier with an entry in ``docs/errors.md``.
    exit_code : int
        Exit status of the command line for this family of errors.
    refusals : mapping of str to str
        Reasons by site, if the error combines the errors of several sites.
    """

    code: ClassVar[str] = "MC000"
    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.refusals: Mapping[str, str] = {}

    def __str__(self) -> str:
        remedy = f" {self.hint}" if self.hint else ""
        return f"{self.placed}.{remedy} [{self.code}]"

    @property
    def placed(self) -> str:
        """Location and message without the remedy and the code, for use in the message of another error."""
        is_named = not self.where or self.what.startswith(f"{self.where} ")  # "alpha must be ..." needs no "alpha: "
        return self.what if is_named else f"{self.where}: {self.what}"

    @property
    def with_notes(self) -> str:
        """Message and its notes: other faults, refusals of other sites."""
        return " ".join([str(self), *getattr(self, "__notes__", [])])

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.hint))

    def at(self, place: str) -> MulticentreError:
        """Return the same error with `place` in front of its location, unless the location starts with it."""
        starts_with_place = self.where == place or self.where.startswith(f"{place}, ")
        return self._moved(self.where if starts_with_place else ", ".join(filter(None, [place, self.where])))

    def without(self, place: str) -> MulticentreError:
        """Return the same error with `place` removed from the front of its location."""
        return self._moved("" if self.where == place else self.where.removeprefix(f"{place}, "))

    def _moved(self, where: str) -> MulticentreError:
        """Return the same error with another location, and with its notes."""
        error = type(self)(self.what, where=where, hint=self.hint)
        for note in getattr(self, "__notes__", []):
            error.add_note(note)
        return error


def together(faults: Sequence[MulticentreError]) -> MulticentreError:
    """Combine the faults of a file: the first one, with the others as notes, which the command line prints.

    Examples
    --------
    >>> both = together([ConfigurationError("the key is unknown", where="run"), ConfigurationError("no sites")])
    >>> str(both), both.__notes__
    ('run: the key is unknown. [MC301]', ['no sites. [MC301]'])
    """
    first, *others = faults
    for other in others:
        for text in (str(other), *getattr(other, "__notes__", [])):
            first.add_note(text)
    return first


@contextmanager
def collected(faults: list[MulticentreError], place: str = "") -> Iterator[None]:
    """Append an error to a list instead of raising it, with a place in front of its location."""
    try:
        yield
    except MulticentreError as error:
        faults.append(error.at(place) if place else error)


def joined(refusals: Mapping[str, MulticentreError], n_sites: int) -> MulticentreError:
    """Combine the errors of several sites: equal errors are named once, other errors become notes.

    The command line prints the notes. The attribute `refusals` holds each site's reason, also of sites that the message
    only counts.

    Parameters
    ----------
    refusals : mapping from str to MulticentreError
        By site, at least one.
    n_sites : int
        Number of sites that were called.

    Examples
    --------
    >>> both = joined({"lyon": DataError("no rows", where="lyon"), "porto": RefusedByPolicy("not approved")}, 3)
    >>> str(both), both.__notes__
    ('lyon: no rows. [MC302]', ['porto: not approved. [MC401]'])
    >>> str(joined({f"s{i:04}": RefusedByPolicy("not approved") for i in range(147)}, 1000))
    'refused by 147 of 1,000 sites (s0000, s0001 and 145 more): not approved. [MC401]'
    """
    first, *others = [_of_sites(error, sites, n_sites) for sites, error in group_equal(refusals)]
    for error in others:
        first.add_note(str(error))
    first.refusals = reasons(refusals)
    return first


def group_equal(errors: Mapping[str, MulticentreError]) -> list[tuple[list[str], MulticentreError]]:
    """Return groups of sites with equal errors, and the error of each group without the names of its sites."""
    groups: dict[tuple[str, ...], tuple[list[str], MulticentreError]] = {}
    for site, error in errors.items():
        bare = error.without(site)
        sites, _ = groups.setdefault((bare.code, bare.what, bare.where, bare.hint), ([], bare))
        sites.append(site)
    return list(groups.values())


def reasons(errors: Mapping[str, MulticentreError]) -> dict[str, str]:
    """Return location and message of each site's error, without the site's name, the remedy and the code."""
    return {site: error.without(site).placed for site, error in errors.items()}


def describe_reasons(reasons_by_site: Mapping[str, str]) -> str:
    """Return reasons by site as a text, equal reasons once.

    Examples
    --------
    >>> describe_reasons({"lyon": "not approved", "oslo": "too few patients", "porto": "not approved"})
    'lyon, porto: not approved; oslo: too few patients'
    """
    sites_by_reason: dict[str, list[str]] = {}
    for site, reason in reasons_by_site.items():
        sites_by_reason.setdefault(reason, []).append(site)
    return "; ".join(f"{name_some(sites)}: {reason}" for reason, sites in sites_by_reason.items())


def name_some(sites: Sequence[str]) -> str:
    """Return the names of sites as a text: all of up to ten, otherwise two and the number of the others.

    Examples
    --------
    >>> name_some(["lyon", "porto"])
    'lyon, porto'
    """
    if len(sites) <= MAX_NAMED:
        return ", ".join(sites)
    return f"{', '.join(sites[:2])} and {len(sites) - 2:,} more"


def nearest_name(names: Iterable[object], valid_names: Iterable[object]) -> str:
    """Return a question with the valid names that are nearest to the first invalid ones; empty if none is near.

    It discloses valid names, so they must be the caller's: columns of tables that the caller reads, of the schema that
    the sites agreed on, or names of a study file; never those of a table at a site.

    Examples
    --------
    >>> nearest_name(["creatinin", "xyz"], ["age", "creatinine"])
    "Did you mean 'creatinine'? "
    """
    texts = list(dict.fromkeys(map(str, valid_names)))
    compared = itertools.islice(names, _MAX_COMPARED)
    near = [match for name in compared for match in _nearest(str(name), texts)]
    return f"Did you mean {' and '.join(map(repr, dict.fromkeys(near)))}? " if near else ""


def _nearest(name: str, texts: list[str]) -> list[str]:
    """Return the valid name that differs only in upper and lower case, or else the nearest one, if there is any."""
    same = [text for text in texts if text.casefold() == name.casefold()]
    return same[:1] or difflib.get_close_matches(name, texts, n=1)


def _of_sites(error: MulticentreError, sites: Sequence[str], n_sites: int) -> MulticentreError:
    if len(sites) == 1:
        return error.at(sites[0])
    verb = "refused by" if isinstance(error, RefusedByPolicy | DisclosureRefused) else "at"
    return error.at(f"{verb} {len(sites):,} of {n_sites:,} sites ({name_some(sites)})")


def _rebuild(kind: type[MulticentreError], what: str, where: str, hint: str) -> MulticentreError:
    return kind(what, where=where, hint=hint)


class ConfigurationError(MulticentreError):
    """A study, a policy or an argument is invalid."""

    code = "MC301"
    exit_code = 3


class DataError(MulticentreError):
    """A site's data are invalid."""

    code = "MC302"
    exit_code = 3


class SchemaMismatch(DataError):
    """Sites describe the same view differently, or have different modes of events."""

    code = "MC303"


class MissingExtra(ConfigurationError):
    """An optional dependency that this call needs is not installed."""

    code = "MC304"


class RefusedByPolicy(MulticentreError):
    """A site's policy does not allow the request."""

    code = "MC401"
    exit_code = 4


class ProtocolRefused(RefusedByPolicy):
    """A call departs from what the site agreed to; a study never continues without a site that raises this."""

    code = "MC402"


class DisclosureRefused(MulticentreError):
    """The guard refused an answer that could disclose too much."""

    code = "MC501"
    exit_code = 5


class QuorumLost(MulticentreError):
    """Too few sites answered; the run can be resumed.

    Attributes
    ----------
    refusal : MulticentreError or None
        Refusals of the sites as one error if every missing site refused; None if a site was lost.
    """

    code = "MC601"
    exit_code = 6
    refusal: MulticentreError | None = None


class SiteFailed(MulticentreError):
    """A step failed at a site. The exception's text stays there."""

    code = "MC602"
    exit_code = 6


class StepFailed(MulticentreError):
    """A step failed at all sites: a defect of the method, or of its parameters."""

    code = "MC603"
    exit_code = 70


class NotConverged(MulticentreError):
    """The rounds ended before the method's tolerance was reached."""

    code = "MC701"
    exit_code = 7


class IntegrityError(MulticentreError):
    """A ledger, a checkpoint or a message differs from what was written or declared."""

    code = "MC801"
    exit_code = 8


class MessageError(IntegrityError):
    """A message does not match its declaration."""

    code = "MC802"


class StateGone(IntegrityError):
    """A checkpoint of a run is missing."""

    code = "MC803"


class SiteBehind(StateGone):
    """A remote site had not yet received the request to store a round when the run was interrupted."""

    code = "MC804"


class DisclosureWarning(UserWarning):
    """An allowed request discloses more of one site than a reader may expect."""


class NoiseWarning(UserWarning):
    """The noise of a private fit is about as large as its result."""


class DispersionWarning(UserWarning):
    """Counts vary no more than under the Poisson law, although the model allows it."""


class LeftOutWarning(UserWarning):
    """A result is over fewer sites than the study has, because some refused."""


class AnalysisWarning(UserWarning):
    """One of several analyses of a study has no result: the sites refused it, or their data do not permit it."""


class LedgerWarning(UserWarning):
    """Entries of a site's ledger were lost."""


class CombinationWarning(UserWarning):
    """A combination of sites rests on one site, on no variance between two, or has a narrow interval."""


class PerfectFitWarning(UserWarning):
    """Covariates predict the outcomes exactly, so that standard errors would be 0."""


class SeparationWarning(UserWarning):
    """The likelihood rises without bound as a coefficient grows: covariates separate the outcomes."""
