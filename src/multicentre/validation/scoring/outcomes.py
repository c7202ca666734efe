"""Scores of outcome models on phenotype memberships and of survival models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import FitFailedWarning

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, array, number
from multicentre.core.steps import SitePart
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import DataError, MessageError
from multicentre.phenotyping.outcome.phenotypes import refit_memberships
from multicentre.survival.evaluation.estimator import SurvivalEvaluation
from multicentre.survival.evaluation.messages import OwnScores
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.validation.scoring.classes.profiles import ClassEvaluationPart
from multicentre.validation.scoring.classes.site import ClassScores
from multicentre.validation.scoring.events import LARGEST, Factors
from multicentre.validation.scoring.scores import Scores

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class OutcomeLaw(Factors):
    """Logistic model of an outcome, linear in a patient's phenotype memberships."""

    slopes: Floats = array("log odds ratio per unit of each membership", ("r",))
    intercept: float = number("log odds at memberships of 0")

    def valid_for(self, data: EventTensor) -> Self:
        """Return the model after a check against the patients' data."""
        super().valid_for(data)
        if len(self.slopes) != self.rank or max(abs(self.intercept), *np.abs(self.slopes)) > LARGEST:
            raise MessageError(
                f"slopes must be {self.rank} numbers, and all coefficients at most {LARGEST:g} in absolute value; got "
                f"{len(self.slopes)} slopes",
                where="OutcomeLaw.slopes",
            )
        if data.outcomes is None:
            raise DataError(
                "patients must have outcomes; got none",
                where="outcomes",
                hint="Pass them as EventTensor(..., outcomes=...).",
            )
        return self

    def chances(self, data: EventTensor) -> Floats:
        """Return the probabilities of no outcome and of the outcome, shape (n, 2)."""
        memberships = refit_memberships(data, self.codes, self.factors, nonnegative=self.nonnegative)
        chance = expit(memberships @ self.slopes + self.intercept)
        return np.column_stack([1 - chance, chance])


class OutcomePart(ClassEvaluationPart):
    """Site part that scores models of an outcome."""

    method: ClassVar[str] = "score-outcomes"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = EventTensor
    kinds: ClassVar[Mapping[str, type[Any]]] = {"OutcomeLaw": OutcomeLaw}
    data: EventTensor

    def true_classes(self) -> Integers:
        """Return the outcome of every patient, shape (n,)."""
        assert self.data.outcomes is not None  # the model was checked against the data
        return self.data.outcomes.astype(np.int64)

    def predict_chances(self) -> Floats:
        """Return the predicted probabilities of no outcome and of the outcome, shape (n, 2)."""
        chances: Floats = self.model.chances(self.data)
        return chances


def outcome_law(model: Any) -> Message:
    """Return the message for a fitted model of an outcome."""
    phenotypes = model.phenotypes_
    return OutcomeLaw(
        codes=dict(phenotypes.codes),
        factors=dict(phenotypes.factors),
        nonnegative=phenotypes.nonnegative,
        rates=False,
        cap=0,
        slopes=model.coef_ / model.spread_,
        intercept=float(model.intercept_),
    )


OUTCOMES = ClassScores(OutcomePart, outcome_law, usual=("roc_auc",))

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

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted survival model by a :class:`multicentre.survival.SurvivalEvaluation`.

        Censoring weights come from one curve of the scored records of all sites. ``concordance`` compares pairs across
        all sites. ``concordance_within_sites`` compares pairs within a site, exactly, in a separate session.
        """
        if federation.protection == "unmasked" and len(federation.sites) == 1:
            return _score_alone(model, federation, names)
        joint_scores = [name for name in names if name != "concordance_within_sites"]
        evaluations = []
        if joint_scores:
            evaluations = [SurvivalEvaluation(model, scoring=[_MEASURES[name] for name in joint_scores])]
        if len(joint_scores) < len(names):
            evaluations += [SurvivalEvaluation(model, scoring=["concordance"], concordance="within_sites")]
        evaluations[-1].by_site = by_site
        branches = federation.branches(len(evaluations))
        judged = side_by_side.run(
            [partial(_fit, *pair) for pair in zip(branches, evaluations, strict=True)], at_once=len(evaluations)
        )
        attributes = {"concordance": "concordance_", "neg_ibs": "ibs_", "mean_auc": "mean_auc_"}
        values = {name: float(getattr(judged[0], attributes[name])) for name in joint_scores}
        if len(joint_scores) < len(names):
            values["concordance_within_sites"] = float(judged[-1].concordance_)
        if "neg_ibs" in values:
            values["neg_ibs"] = -values["neg_ibs"]
        refused = judged[-1].site_refusals_
        site_scores = {site: _concordance(answer) for site, answer in judged[-1].sites_.items() if site not in refused}
        ordered = {name: values[name] for name in names}
        absent = {site: reason for each in judged for site, reason in each.session.absent.items()}
        return Scores(ordered, float(judged[-1].n_patients_), site_scores, refused=refused, left_out=absent)


def _fit(federation: Consortium, evaluation: SurvivalEvaluation) -> SurvivalEvaluation:
    return evaluation.fit(federation)


def _score_alone(model: Any, federation: Consortium, names: Sequence[str]) -> Scores:
    """Return the scores of the only site, which computes them from its patients.

    Raises
    ------
    DisclosureRefused
        Too few of the site's patients have an event, or none.
    """
    (site,) = federation.sites
    evaluation = SurvivalEvaluation(model).fit(federation)
    concordance, ibs = evaluation.concordance_, -evaluation.ibs_
    scores = {
        "concordance": concordance,
        "concordance_within_sites": concordance,
        "neg_ibs": ibs,
        "mean_auc": evaluation.mean_auc_,
    }
    described = {
        "concordance": concordance,
        "concordance.error": evaluation.concordance_standard_error_,
        "neg_ibs": ibs,
    }
    if lines := list(evaluation.calibration_lines_.values()):
        described["observed_over_expected"] = lines[len(lines) // 2].observed_over_expected
    for name in names:
        if not np.isfinite(scores[name]):
            reason = f"the score {name} is undefined at the single site {site}"
            warnings.warn(reason, FitFailedWarning, stacklevel=2)
    values = {name: scores[name] for name in names}
    return Scores(values, np.nan, {site: scores}, held_out={site: described})


def _concordance(answer: OwnScores) -> dict[str, float]:
    concordance = np.nan if answer.concordance is None else float(answer.concordance)
    return {"concordance": concordance, "concordance_within_sites": concordance}


SURVIVAL = SurvivalScores()
