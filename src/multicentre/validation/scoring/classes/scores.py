"""The coordinator's side of scoring classes: one sum for each group of scores that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Message, Nothing
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.classes import messages as sent
from multicentre.validation.scoring.classes.site import ClassPart
from multicentre.validation.scoring.judging import SiteScores, ask_own, judge, total, unfixed
from multicentre.validation.scoring.scores import Scores

RANKS = ("roc_auc", "roc_auc_ovr", "average_precision")
LOSSES = {"neg_log_loss": "log", "neg_brier_score": "brier"}
NAMES = ("accuracy", *maths.FROM_CONFUSION, *LOSSES, *RANKS)


@dataclass(frozen=True)
class ClassScores:
    """Scores of a model of classes, under scikit-learn's names.

    Parameters
    ----------
    part : type
        The site part.
    message : callable
        From a fitted estimator to the message that sites take.
    usual : tuple of str
    """

    part: type[ClassPart]
    message: Callable[[Any], Message]
    usual: tuple[str, ...] = ("accuracy",)
    names: tuple[str, ...] = NAMES

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model by counts and sums over sites."""
        told = self.message(model)
        score = partial(self._score, names=names, by_site=by_site)
        return judge(federation, self.part, told, type(told).__name__, score)

    def _score(self, opened: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        values: dict[str, float] = {}
        facts: dict[str, float] = {}
        n_records = np.nan
        if "accuracy" in names:
            right, wrong = total(opened, self.part.count_right, Nothing()).counts
            values["accuracy"], n_records = float(right / (right + wrong)), float(right + wrong)
        if set(names) & set(maths.FROM_CONFUSION):
            table = total(opened, self.part.count_confusion, Nothing()).counts.astype(np.float64)
            values |= {name: maths.from_confusion(name, table) for name in names if name in maths.FROM_CONFUSION}
            n_records = float(table.sum())
        if set(names) & set(LOSSES):
            losses = total(opened, self.part.sum_losses, Nothing())
            means = {name: unfixed(getattr(losses, field)) / losses.n_records for name, field in LOSSES.items()}
            values |= {name: -mean for name, mean in means.items() if name in names}
            n_records = float(losses.n_records)
        if set(names) & set(RANKS):
            ranked = self._rank(opened)
            found = [_score_ranks(name, ranked) for name in names if name in RANKS]
            values |= {name: value for name, value, _ in found}
            facts |= {f"bound_{name}": bound for name, _, bound in found if np.isfinite(bound)}
            n_records = float(ranked.counts[0].sum())
        own = ask_own(opened, self.part, names) if by_site else SiteScores()
        return Scores({name: values[name] for name in names}, n_records, own.scores, facts, own.refused)

    def _rank(self, opened: Federation) -> sent.Ranked:
        located = total(opened, self.part.locate_scores, Nothing())
        edges = maths.even_edges(located.counts.astype(np.float64))
        return total(opened, self.part.count_scores, sent.Edges(edges))


def _score_ranks(name: str, ranked: sent.Ranked) -> tuple[str, float, float]:
    """Return a score's name, its value, and by how much it may be off."""
    if name != "roc_auc_ovr" and len(ranked.counts) > 1:
        raise ConfigurationError(f"{name} is a score of two classes", where="scoring", mend="Use roc_auc_ovr.")
    counts = ranked.counts.astype(np.float64)
    areas = [maths.area_under_curve(each) for each in counts]
    if name == "average_precision":
        return name, float(np.mean([maths.average_precision(each) for each in counts])), np.nan
    return name, float(np.mean([area for area, _ in areas])), float(np.mean([bound for _, bound in areas]))
