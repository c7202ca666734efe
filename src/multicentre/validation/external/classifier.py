"""Validation of a given classifier; its rounds are in :mod:`multicentre.validation.external.base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import Flag, Integer, ParameterRanges, Real, Where
from multicentre.estimator.presentation import interval_text
from multicentre.estimator.saved import Arrays
from multicentre.validation.classification.evaluation import SITE_SCORES, checked_thresholds, protect_last_site
from multicentre.validation.classification.results import ClassifierEvaluation
from multicentre.validation.classification.rounds import Collected, collect
from multicentre.validation.external.base import ModelValidation, as_texts
from multicentre.validation.external.site import GivenClassPart
from multicentre.validation.scoring.classes.maths import area_under_curve
from multicentre.validation.scoring.classes.profiles import Subgroups
from multicentre.validation.scoring.gaps import count_left_out
from multicentre.validation.scoring.judging import (
    ScoringPart,
    SiteScores,
    request_site_scores,
)
from multicentre.validation.scoring.tables import BoostedTrees, ScoredLinearModel

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
TableModel = ScoredLinearModel | BoostedTrees
_ARRAYS = ("edges", "counts", "predicted", "squares", "fourths", "lines", "line_errors")
_SEQUENCE = Where("a sequence of numbers", lambda value: not isinstance(value, str) and hasattr(value, "__len__"))


class ClassifierValidation(ModelValidation):
    """Validation of a given classifier: discrimination, calibration and net benefit for two classes, via sums.

    The model was fitted elsewhere: a published score, a model of xgboost, or a saved model of this package. In a study
    file, ``method = "validate"`` names this class.

    Parameters
    ----------
    model : model
        Model of :func:`read_model`, or a fitted classifier of this package. It names its columns, which the sites may
        have among others, in any order.
    threshold : float, default 0.5
        Predicted probability above which a record is classified into the second class.
    thresholds : array-like of shape (t,), optional
        Thresholds of net benefit and predictive values; 0.01, 0.02, ..., 0.99 by default. See Notes.
    subgroups : str, optional
        Category whose levels are also evaluated, or column of numbers with `subgroup_limits`.
    subgroup_limits : sequence of float
        Limits between intervals of a column of numbers.
    n_groups : int, default 10
        Largest number of groups of the calibration curve.
    min_records : int, default 10
        Smallest number of records of all sites in a bin of predictions, and of each class in a subgroup.
    by_site : bool, default False
        Also request scores of each site.
    confidence_level : float, default 0.95
        Confidence level of the intervals.

    Attributes
    ----------
    evaluation_ : ClassifierEvaluation
        Scores with intervals, curves, subgroups, and scores by site.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, or the model is not a classifier of two classes.
    SchemaMismatch
        A site lacks a column of the model.
    DisclosureRefused
        At a site, the predictions of fewer patients than its minimum differ from those of the rest.

    Notes
    -----
    Every bin of predictions holds at least `min_records` records of all sites. A threshold is moved to the next border
    of a bin, by at most 1/64 of a unit of log odds; thresholds without enough records next to them are left out. The
    area under the curve counts ties within bins as half; ``evaluation_.bound_roc_auc`` is its largest error.

    References
    ----------
    .. [1] B. Van Calster, D. J. McLernon, M. van Smeden, L. Wynants, E. W. Steyerberg, BMC Medicine 17 (2019), 230.
    .. [2] G. S. Collins et al., "TRIPOD+AI statement", BMJ 385 (2024), e078378.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre.validation import ClassifierValidation, model_from_mapping
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 2))
    >>> data = mc.data.TableData(X, (X[:, 0] + rng.logistic(size=900) > 1).astype(int), columns=["age", "dose"])
    >>> sites = {name: data.take(np.arange(place, 900, 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    >>> model = model_from_mapping({"family": "binomial", "intercept": -1.0, "coefficients": {"age": 2.0}})
    >>> validation = ClassifierValidation(model).fit(mc.Federation.in_process(sites))
    >>> validation.to_frame().loc[["roc_auc", "calibration_slope"], "value"].round(2).tolist()
    [0.72, 0.46]
    >>> validation.recalibrated().coefficients.round(2).tolist()
    [0.91]
    """

    site_part: ClassVar[type[SitePart]] = GivenClassPart
    part: ClassVar[type[ScoringPart]] = GivenClassPart
    parameter_ranges: ClassVar[ParameterRanges] = {
        "threshold": Real(0, 1, open="both"),
        "thresholds": (None, _SEQUENCE),
        "subgroups": (None, Where("a column", lambda value: isinstance(value, str))),
        "subgroup_limits": _SEQUENCE,
        "n_groups": Integer(2),
        "min_records": Integer(1),
        "by_site": Flag(),
        "confidence_level": Real(0.5, 1, open="high"),
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"evaluation_.lines", "evaluation_.line_errors"})
    evaluation_: ClassifierEvaluation

    def __init__(
        self,
        model: Any = None,
        *,
        threshold: float = 0.5,
        thresholds: ArrayLike | None = None,
        subgroups: str | None = None,
        subgroup_limits: Sequence[float] = (),
        n_groups: int = 10,
        min_records: int = 10,
        by_site: bool = False,
        confidence_level: float = 0.95,
    ) -> None:
        self.model = model
        self.threshold = threshold
        self.thresholds = thresholds
        self.subgroups = subgroups
        self.subgroup_limits = subgroup_limits
        self.n_groups = n_groups
        self.min_records = min_records
        self.by_site = by_site
        self.confidence_level = confidence_level

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        steps = {"judge", "count_complete", "locate_scores", "count_profile", "sum_lines", "evaluate_alone"}
        steps |= {"name_subgroups", "count_subgroups"} if self.subgroups else set()
        return frozenset(steps | ({"score_own"} if self.by_site else set()))

    def _fit(self, session: Session) -> None:
        points = checked_thresholds(self.thresholds)
        model = self._send(session)
        if len(model.classes) != 2:
            raise ConfigurationError(f"model must have two classes; got {len(model.classes)}", where="model")
        request = Subgroups(self.subgroups or "", np.asarray(self.subgroup_limits, dtype=np.float64))
        wanted = np.union1d(points, [self.threshold])
        collected, gaps = session.together(
            [
                partial(
                    collect,
                    session,
                    GivenClassPart,
                    request,
                    wanted,
                    float(self.min_records),
                    fewest_in_bin=float(self.min_records),
                ),
                partial(count_left_out, session, GivenClassPart, model),
            ]
        )
        area_under_curve(collected.counts[0])  # raises if all records are of one class
        scores = request_site_scores(session, GivenClassPart, SITE_SCORES) if self.by_site else SiteScores()
        by_site, withheld = protect_last_site(scores.scores)
        self.n_incomplete_ = round(gaps.get("n_incomplete", 0.0))
        self.site_refusals_ = dict(scores.refused)
        self.evaluation_ = self._evaluation(model.classes, collected, by_site, withheld)

    def _evaluation(
        self,
        classes: tuple[str, ...],
        collected: Collected,
        by_site: Mapping[str, Mapping[str, float]],
        withheld: tuple[str, ...],
    ) -> ClassifierEvaluation:
        edges = collected.edges
        points = 1 / (1 + np.exp(-edges))
        if not len(edges):
            raise DisclosureRefused(
                f"predictions must fall into two bins of at least {self.min_records} records; they fall into one",
                where="min_records",
                hint="Evaluate more records, or a model whose predictions differ more.",
            )
        wanted = checked_thresholds(self.thresholds)
        near = np.abs(np.log(wanted / (1 - wanted))[:, None] - edges).min(axis=0) <= 1 / 64 + 1e-9
        nearest = int(np.abs(edges - np.log(self.threshold / (1 - self.threshold))).argmin())
        return ClassifierEvaluation(
            classes,
            float(points[nearest]),
            points[near],
            int(self.n_groups),
            int(self.min_records),
            float(self.confidence_level),
            collected,
            by_site,
            self.site_refusals_,
            self.n_incomplete_,
            withheld,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per score, with its standard error and interval where there is one."""
        check_is_fitted(self, "evaluation_")
        return self.evaluation_.to_frame()

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with numbers of records and notes."""
        from multicentre.estimator.results import MODEL

        check_is_fitted(self, "evaluation_")
        summary = self.evaluation_.summary()
        summary.attrs[MODEL] = self.describe_model()
        return summary

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return scores, calibration, operating points, and scores by subgroup and by site."""
        evaluation = self.evaluation_
        tables = {
            "scores": evaluation.to_frame(),
            "calibration": evaluation.calibration_curve(),
            "operating points": evaluation.operating_points(),
        }
        tables |= {"subgroups": evaluation.subgroups()} if evaluation.subgroup_names else {}
        return tables | ({"by site": evaluation.by_site()} if evaluation.sites else {})

    def answer(self) -> str:
        """Return area under the curve and calibration slope with their intervals, and the numbers of records."""
        rows, texts = self.to_frame(), []
        for name in ("roc_auc", "calibration_slope"):
            value, _, lower, upper = np.asarray(rows.loc[name], dtype=np.float64)
            texts.append(interval_text(value, lower, upper, float(self.confidence_level)))
        evaluation = self.evaluation_
        sizes = f"{evaluation.n_records:,} records, {evaluation.n_events:,} of class {evaluation.classes[1]}"
        return f"Area under the curve: {texts[0]}; calibration slope: {texts[1]}, of {sizes}."

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return scores as tables, and the curves as figures."""
        return self.evaluation_.figures()

    def main_figure(self) -> Figure:
        """Return the calibration curve."""
        return next(figure for figure in self.evaluation_.figures() if figure.title == "Calibration")

    def line(self) -> tuple[float, float]:
        """Return intercept and slope of the log odds of the outcome by those of the prediction."""
        intercept, slope = self.evaluation_.collected.lines[1, 0].tolist()
        return intercept, slope

    def shift(self) -> float:
        """Return the intercept at a slope of 1 (calibration in the large)."""
        return float(self.evaluation_.collected.lines[0, 0, 0])

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return area under the curve and Brier score on local records."""
        from sklearn.metrics import brier_score_loss, roc_auc_score

        chances = self.given_model.valid_for(data).chances(data)[:, 1]
        return {"roc_auc": float(roc_auc_score(data.y, chances)), "brier": float(brier_score_loss(data.y, chances))}

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        evaluation, collected = self.evaluation_, self.evaluation_.collected
        arrays |= {f"evaluation_.{name}": getattr(collected, name) for name in _ARRAYS}
        facts |= {
            "visible": list(collected.visible),
            "withheld": list(collected.withheld),
            "by_site": [[site, list(scores), as_texts(scores.values())] for site, scores in evaluation.sites.items()],
            "withheld_scores": list(evaluation.withheld_scores),
            "alone": [list(collected.alone), as_texts(collected.alone.values())],
        }
        return arrays, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        fields: dict[str, Any] = {name: arrays[f"evaluation_.{name}"] for name in _ARRAYS}
        alone = dict(zip(facts["alone"][0], map(float, facts["alone"][1]), strict=True))
        collected = replace(Collected(tuple(facts["visible"]), tuple(facts["withheld"]), **fields), alone=alone)
        by_site = {site: dict(zip(names, map(float, values), strict=True)) for site, names, values in facts["by_site"]}
        classes = self.given_model.classes
        self.evaluation_ = self._evaluation(classes, collected, by_site, tuple(facts["withheld_scores"]))
