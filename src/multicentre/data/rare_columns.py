"""Columns in which too few patients of a single site differ: left out of a fit to that site alone.

A sum over one site leaves unmasked, and its guard refuses one in which fewer patients differ from the others than the
policy's minimum. One rare level would refuse all coefficients of the site. A fit that adjusted for the level would also
be that of the other patients, and its difference from a fit without the level would describe the few. So the site
leaves such columns out before the first sum, names them, and the other coefficients are those of a fit without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, step
from multicentre.data.missing.values import TabularPart
from multicentre.data.records import fewest_different
from multicentre.errors import ConfigurationError, DataError

RARE_STEPS = frozenset({"leave_out_rare"})
# Columns that a message lists, so that it stays readable; as in `data.missing.values`.
_MAX_NAMED = 5


@dataclass(frozen=True)
class Covariates(Message):
    """Covariates of a fit to one site."""

    columns: tuple[str, ...] = texts("covariates of the fit; other columns stay")


@dataclass(frozen=True)
class RareColumns(Release):
    """Covariates that a fit to one site leaves out."""

    columns: tuple[str, ...] = texts("covariates in which no patients differ, or fewer than the policy's minimum")


class RareColumnsPart(TabularPart):
    """Base class of the site parts that can be fitted to one site without its rare columns."""

    @step(releases=RareColumns, when="once")
    def leave_out_rare(self, request: Covariates) -> RareColumns:
        """Leave out and name the covariates in which too few patients of this site differ, for a fit to it alone."""
        if self.n_peers > 1:
            raise ConfigurationError(
                f"columns can be left out in a fit to one site only; this one has {self.n_peers}",
                where=self.method,
                hint="Start a new fit.",
            )
        names = list(self.data.columns)
        is_rare = rare_columns(np.asarray(self.data.X, dtype=np.float64), self.least_behind)
        rare = [name for name, flag in zip(names, is_rare.tolist(), strict=True) if flag and name in request.columns]
        remaining = [place for place, name in enumerate(names) if name not in rare]
        self.data = self.data.with_columns(self.data.X[:, remaining], [names[place] for place in remaining])
        return RareColumns(tuple(rare), patients=len(self.data))


def rare_columns(X: NDArray[np.float64], least: int) -> NDArray[np.bool_]:
    """Flag the columns in which no patients differ, or fewer than a minimum.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0, 5.0], [1.0, 2.0, 5.0], [1.0, 3.0, 5.0], [0.0, 1.0, 5.0]])
    >>> rare_columns(X, 2).tolist(), rare_columns(np.vstack([X, [2.0, 1.0, 6.0]]), 2).tolist()
    ([False, False, True], [False, False, True])
    """
    least = min(least, len(X))
    return np.array([not np.ptp(column) > 0 or fewest_different(column[:, None]) < least for column in X.T], np.bool_)


def leave_out_rare(session: Session, part: type[RareColumnsPart], covariates: Sequence[str]) -> tuple[str, ...]:
    """Return the covariates of a fit: all, or without the rare ones in a fit of each site alone.

    Raises
    ------
    DataError
        No covariate is left.
    """
    if not (session.consortium.leaves_out_rare and covariates):
        return tuple(covariates)
    (answer,) = session.ask(part.leave_out_rare, Covariates(tuple(covariates))).values()
    remaining = tuple(name for name in covariates if name not in answer.columns)
    if not remaining:
        raise DataError(
            "at least one covariate must vary among enough patients for the site's policy; these do not: "
            f"{', '.join(answer.columns[:_MAX_NAMED])}",
            where="columns",
            hint="The site's estimates are left out; the joint fit includes its patients.",
        )
    return remaining
