"""Sums over sites: the protocol of a summation, and the summation of unmasked answers."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Protection
from multicentre.core.messages import Declaration, M, Message, place
from multicentre.core.noise_plan import Plan
from multicentre.core.range_checks import check_alike
from multicentre.core.release_declarations import check_summable
from multicentre.core.steps import R, SitePart, Step
from multicentre.errors import MessageError

if TYPE_CHECKING:
    from multicentre.core.session import Session


_COMPARE_SITES = "Compare the data and the software of the sites."


class Summation(Protocol):
    """A way to compute the sum over sites."""

    @property
    def protection(self) -> Protection:
        """Form in which summands leave the sites: "unmasked" or "masked"."""

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check, before a fit begins, that every sum that the site part declares is possible over `n_sites` sites."""

    def total(self, session: Session, step: Step[Any, Any, R], message: Message) -> R:
        """Return the sum over the sites' answers to a step."""

    def noise_spread(self, session: Session) -> float:
        """Return the standard deviation of the noise in the last sum, relative to that of the plan."""

    def rounding(self, session: Session, step: Step[Any, Any, Any]) -> Mapping[str, float]:
        """Return the largest rounding error of the fields of a step's sum; fields without rounding may be absent."""


class PlainSummation:
    """Unmasked summation: the coordinator's process adds the answers and returns only the sum."""

    protection: Protection = "unmasked"

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Do nothing: every sum is possible."""

    def total(self, session: Session, step: Step[Any, Any, R], message: Message) -> R:
        """Return the sum over the sites' answers, added in the order of the sites' names."""
        answers = session.collect(step, message)
        check_alike(answers)
        return add_messages([answers[site] for site in answers])

    def noise_spread(self, session: Session) -> float:
        """Return the square root of the number of sites: each site adds the full noise."""
        return math.sqrt(len(session.sites))

    def rounding(self, session: Session, step: Step[Any, Any, Any]) -> Mapping[str, float]:
        """Return an empty mapping: sums are not rounded to a grid."""
        return {}


def add_messages(messages: Sequence[M]) -> M:
    """Add messages field by field.

    Raises
    ------
    MessageError
        A field is neither an array nor a number, names and shapes differ between the messages, or a sum is beyond
        what its type can hold.
    """
    kind = type(messages[0])
    check_summable(kind)
    with np.errstate(over="ignore"):
        fields = {
            name: _add_field([getattr(message, name) for message in messages], declaration, place(kind, name))
            for name, declaration in kind.declarations().items()
        }
    return kind(**fields).checked()


def _add_field(values: list[Any], declaration: Declaration, where: str) -> Any:
    if any(value is None for value in values):
        if any(value is not None for value in values):
            raise MessageError(
                "all sites or none must answer a field; some left it empty", where=where, hint=_COMPARE_SITES
            )
        return None
    if declaration.keyed:
        if any(value.keys() != values[0].keys() for value in values):
            raise MessageError(
                "the sites must answer for the same names; they differ", where=where, hint=_COMPARE_SITES
            )
        return {key: _add([value[key] for value in values], where) for key in values[0]}
    return _add(values, where)


def _add(values: list[Any], where: str) -> Any:
    if not isinstance(values[0], np.ndarray):
        return functools.reduce(operator.add, (_as_python(value) for value in values))
    if any(value.shape != values[0].shape for value in values):
        raise MessageError(
            "the sites must answer with the same shape; the shapes differ", where=where, hint=_COMPARE_SITES
        )
    if values[0].dtype.kind in "iu":
        check_integer_range(
            functools.reduce(operator.add, (value.astype(np.float64) for value in values)), values[0], where
        )
    # NumPy adds arrays without dimensions to a scalar, which is not what the field declares.
    return np.asarray(functools.reduce(operator.add, values))


def check_integer_range(total: NDArray[np.float64], like: NDArray[Any], where: str) -> None:
    """Raise MessageError unless the integer type of `like` can hold `total`."""
    limits = np.iinfo(like.dtype)
    # Between 2^62 and 2^63 a float64 is a multiple of 1024, so totals next to the limit of 64 bits are refused.
    margin = 2048.0 if limits.bits == 64 else 0.0
    if np.any(total > float(limits.max) - margin) or np.any(total < float(limits.min)):
        raise MessageError(
            f"a sum must be within the range of dtype {like.dtype.str[1:]}; it is beyond",
            where=where,
            hint="Declare a larger dtype, or f8.",
        )


def _as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
