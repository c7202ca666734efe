"""Scores of survival models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multicentre.analytics.evaluation.estimator import SurvivalEvaluation
from multicentre.federation.coordinator import Federation
from multicentre.validation.scoring.scores import Scores

_MEASURES = {"concordance": "concordance", "neg_ibs": "brier", "mean_auc": "auc"}
_ATTRIBUTES = {"concordance": "concordance_", "neg_ibs": "ibs_", "mean_auc": "mean_auc_"}


@dataclass(frozen=True)
class SurvivalScores:
    """Concordance, integrated Brier score (negative: greater is better) and mean area under the curve."""

    names: tuple[str, ...] = ("concordance", "neg_ibs", "mean_auc")
    usual: tuple[str, ...] = ("concordance", "neg_ibs")

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted survival model by a :class:`multicentre.analytics.SurvivalEvaluation`."""
        measures = [_MEASURES[name] for name in names]
        judged = SurvivalEvaluation(model, measures=measures, by_site=by_site).fit(federation)
        values = {name: float(getattr(judged, _ATTRIBUTES[name])) for name in names}
        if "neg_ibs" in values:
            values["neg_ibs"] = -values["neg_ibs"]
        own = {site: {"concordance": float(answer.concordance)} for site, answer in judged.sites_.items()}
        return Scores(values, judged.n_patients_, own)


SURVIVAL = SurvivalScores()
