"""The coordinator's side of scoring factorisations of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Nothing
from multicentre.federation.steps import SitePart
from multicentre.validation.scoring.events.predictors import factors_of
from multicentre.validation.scoring.events.site import DEVIANCE_TERMS, ENTRY_TERMS, EventPart, score_of
from multicentre.validation.scoring.judging import SiteScores, ask_own, judge, total, unfixed
from multicentre.validation.scoring.scores import Scores


@dataclass(frozen=True)
class EventScores:
    """How well hidden cells of held-out patients are predicted from the rest of each patient.

    ``neg_mean_squared_error`` is taken over all hidden cells, zeros among them. ``explained_counts`` is 1 less the
    squared error over that of a model of zeros, ``explained_deviance`` 1 less the Poisson deviance over that of the
    mean count. ``share_unknown`` tells which share of the entries have a code that the model does not know; they are
    not scored.
    """

    names: tuple[str, ...] = ("neg_mean_squared_error", "explained_counts", "explained_deviance")
    part: type[SitePart] = EventPart
    usual: tuple[str, ...] = ("neg_mean_squared_error", "explained_counts")

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score fitted phenotypes by sums over hidden cells of all sites."""
        score = partial(self._score, names=names, by_site=by_site)
        return judge(federation, EventPart, factors_of(model), "Factors", score)

    def _score(self, opened: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        found = total(opened, EventPart.sum_entries, Nothing())
        sums = {name: unfixed(getattr(found, name)) for name in ENTRY_TERMS}
        if "explained_deviance" in names:
            further = total(opened, EventPart.sum_deviances, Nothing())
            sums |= {name: unfixed(getattr(further, name)) for name in DEVIANCE_TERMS}
        values = {name: float(score_of(name, sums, found.cells)) for name in names}
        own = ask_own(opened, EventPart, names) if by_site else SiteScores()
        facts = {"share_unknown": found.unknown / max(found.unknown + found.known, 1)}
        return Scores(values, float(found.n_patients), own.scores, facts, own.refused)


EVENTS = EventScores()
