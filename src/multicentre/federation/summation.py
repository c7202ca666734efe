"""Sums over sites: the protocol of a summation, and the one that adds unmasked answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from multicentre.federation.engine import Protection
from multicentre.federation.messages import Message, add_messages
from multicentre.federation.noise import Plan
from multicentre.federation.ranges import check_alike
from multicentre.federation.steps import R, SitePart, Step

if TYPE_CHECKING:
    from multicentre.federation.session import Session


class Summation(Protocol):
    """A way to compute the sum over sites."""

    @property
    def protection(self) -> Protection:
        """Whether summands leave the sites "unmasked" or "masked"."""

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check, before a fit begins, that every sum that the site part declares is possible over `n_sites` sites."""

    def total(self, session: Session, step: Step[Any, Any, R], message: Message) -> R:
        """Return the sum over the sites' answers."""

    def noise_spread(self, session: Session) -> float:
        """Return the standard deviation of the noise in the last sum, relative to that of the plan."""


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
