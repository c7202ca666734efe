"""What can go wrong, named so that a person and a script can both act on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class MulticentreError(Exception):
    """Base of every error that the package raises on purpose.

    Parameters
    ----------
    what : str
        What happened, in one clause. Never a patient's value.
    where : str, optional
        The place: a site, a view, a column, a file, a key of a study.
    mend : str, optional
        What the reader can do about it.

    Attributes
    ----------
    code : str
        Stable identifier with an entry in ``docs/errors.md``.
    exit_code : int
        Exit status of the command line for this family of errors.
    """

    code: ClassVar[str] = "MC000"
    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.mend = mend

    def __str__(self) -> str:
        remedy = f" {self.mend}" if self.mend else ""
        return f"{self.placed}.{remedy} [{self.code}]"

    @property
    def placed(self) -> str:
        """What happened and where, without the remedy and the code: a clause for the message of another error."""
        return f"{self.where}: {self.what}" if self.where else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.mend))

    def at(self, place: str) -> MulticentreError:
        """Return the same error with `place` put before where it happened, unless it stands there already."""
        said = self.where == place or self.where.startswith(f"{place}, ")
        where = self.where if said else ", ".join(filter(None, [place, self.where]))
        return type(self)(self.what, where=where, mend=self.mend)


def joined(refusals: Mapping[str, MulticentreError]) -> MulticentreError:
    """Return the first of several sites' refusals, the others as its notes, which the command line prints.

    Parameters
    ----------
    refusals : mapping from str to MulticentreError
        By site, at least one.

    Examples
    --------
    >>> both = joined({"lyon": DataError("no rows", where="lyon"), "porto": RefusedByPolicy("not approved")})
    >>> str(both), both.__notes__
    ('lyon: no rows. [MC302]', ['porto: not approved. [MC401]'])
    """
    (_, first), *others = refusals.items()
    for site, error in others:
        first.add_note(str(error.at(site)))
    return first


def _rebuild(kind: type[MulticentreError], what: str, where: str, mend: str) -> MulticentreError:
    return kind(what, where=where, mend=mend)


class ConfigurationError(MulticentreError):
    """A study, a policy or an argument cannot be used as given."""

    code = "MC301"
    exit_code = 3


class DataError(MulticentreError):
    """A site's data cannot be used as given."""

    code = "MC302"
    exit_code = 3


class SchemaMismatch(DataError):
    """Two sites describe the same view differently, or have other modes of events."""

    code = "MC303"


class MissingExtra(ConfigurationError):
    """An optional dependency that this call needs is not installed."""

    code = "MC304"


class RefusedByPolicy(MulticentreError):
    """A site's policy does not allow what was asked."""

    code = "MC401"
    exit_code = 4


class DisclosureRefused(MulticentreError):
    """The guard held back an answer that could disclose too much."""

    code = "MC501"
    exit_code = 5


class QuorumLost(MulticentreError):
    """Too few sites answered; the run can be resumed."""

    code = "MC601"
    exit_code = 6


class SiteFailed(MulticentreError):
    """A step broke at a site. The exception's text stays there."""

    code = "MC602"
    exit_code = 6


class NotConverged(MulticentreError):
    """The rounds ended before the method's tolerance was reached."""

    code = "MC701"
    exit_code = 7


class IntegrityError(MulticentreError):
    """A ledger, a checkpoint or a message is not what was written or declared."""

    code = "MC801"
    exit_code = 8


class MessageError(IntegrityError):
    """A message does not match its declaration."""

    code = "MC802"


class StateGone(IntegrityError):
    """What a run kept to be taken up again is not where it was kept."""

    code = "MC803"


class SiteBehind(StateGone):
    """A site on another machine had not yet heard that it was to keep a round when the run broke off."""

    code = "MC804"


class DisclosureWarning(UserWarning):
    """What was asked is allowed, and shows more of one site than a reader may expect."""


class NoiseWarning(UserWarning):
    """The noise of a private fit is so large that its result can hardly be told from it."""
