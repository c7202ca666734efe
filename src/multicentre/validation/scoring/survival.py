"""Scores of survival models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import DisclosureRefused
from multicentre.federation.messages import Nothing
from multicentre.federation.steps import SitePart
from multicentre.survival.evaluation.estimator import SurvivalEvaluation
from multicentre.survival.evaluation.messages import OwnScores
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.validation.scoring.judging import SiteScores, ask_sites
from multicentre.validation.scoring.scores import Scores

_MEASURES = {
    "concordance": "concordance",
    "concordance_within_sites": "concordance",
    "neg_ibs": "brier",
    "mean_auc": "auc",
}


@dataclass(frozen=True)
class SurvivalScores:
    """Concordance, integrated Brier score (negative: greater is better) and mean area under the curve."""

    names: tuple[str, ...] = ("concordance", "concordance_within_sites", "neg_ibs", "mean_auc")
    part: type[SitePart] = EvaluationSite
    usual: tuple[str, ...] = ("concordance", "neg_ibs")

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted survival model by a :class:`multicentre.analytics.SurvivalEvaluation`.

        Censoring is weighed for by one curve of the very records that are scored, all sites together. ``concordance``
        compares pairs of all sites; ``concordance_within_sites`` those of one site, exactly, in a session of its own.
        """
        together = [name for name in names if name != "concordance_within_sites"]
        values: dict[str, float] = {}
        judged = None
        if together:
            judged = _judge(federation, SurvivalEvaluation(model, measures=[_MEASURES[name] for name in together]))
            found = {"concordance": "concordance_", "neg_ibs": "ibs_", "mean_auc": "mean_auc_"}
            values = {name: float(getattr(judged, found[name])) for name in together}
        if len(together) < len(names):
            pairs = SurvivalEvaluation(model, measures=["concordance"], concordance="within_sites")
            judged = _judge(federation, pairs)
            values["concordance_within_sites"] = float(judged.concordance_)
        if "neg_ibs" in values:
            values["neg_ibs"] = -values["neg_ibs"]
        assert judged is not None  # some score is named
        own = SiteScores()
        if by_site:
            own = ask_sites(judged.federation, EvaluationSite.score_own, Nothing(), _concordance)
        shown = {name: values[name] for name in names}
        return Scores(shown, float(judged.n_patients_), own.scores, refused=own.refused)


def _judge(federation: Federation, evaluation: SurvivalEvaluation) -> SurvivalEvaluation:
    try:
        return evaluation.fit(federation)
    except DisclosureRefused as error:
        if federation.protection == "masked":
            raise
        mend = "Mask the sums over two sites or more (secure_sum=True)."
        raise DisclosureRefused(error.what, where=error.where, mend=mend) from None


def _concordance(answer: OwnScores) -> dict[str, float]:
    found = np.nan if answer.concordance is None else float(answer.concordance)
    return {"concordance": found, "concordance_within_sites": found}


SURVIVAL = SurvivalScores()
