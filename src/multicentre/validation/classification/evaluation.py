"""Function that evaluates a fitted classifier on held-out records of a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.validation.classification.results import ClassifierEvaluation
from multicentre.validation.classification.rounds import Collected, collect
from multicentre.validation.scoring.classes.maths import area_under_curve
from multicentre.validation.scoring.classes.profiles import SHIFT, SLOPE, ClassEvaluationPart, Subgroups
from multicentre.validation.scoring.classes.site import ERROR, ClassScores
from multicentre.validation.scoring.gaps import count_left_out
from multicentre.validation.scoring.judging import SiteScores, judge, request_site_scores
from multicentre.validation.scoring.scores import find_evaluator

Floats = NDArray[np.float64]
# Scores of each site's records, and those with a standard error.
WITH_ERROR = ("roc_auc", "neg_brier_score", "observed_over_expected", SHIFT, SLOPE)
SITE_SCORES = ("average_precision", "prevalence", *(name + end for name in WITH_ERROR for end in ("", ERROR)))
# Ratios of sums, and the error of one, from which the sums follow.
_OF_SUMS = ("prevalence", "observed_over_expected", f"observed_over_expected{ERROR}")
# Thresholds are edges of bins, next to about 1000 others.
MAX_THRESHOLDS = 1000


def evaluate_classifier(
    model: Any,
    federation: Consortium,
    *,
    threshold: float = 0.5,
    thresholds: ArrayLike | None = None,
    subgroups: str | None = None,
    subgroup_limits: Sequence[float] = (),
    n_groups: int = 10,
    min_records: int = 10,
    by_site: bool = False,
    confidence_level: float = 0.95,
) -> ClassifierEvaluation:
    """Return discrimination, calibration and net benefit of a fitted classifier of two classes.

    The sites compute predictions for their records, and return counts and sums, which are added up over sites.

    Parameters
    ----------
    model : fitted classifier
        FedLogisticRegression, FedXGBClassifier or another classifier that :func:`score` accepts.
    federation : Federation
        Sites with records that were not used to fit the model, for example ``plan.test(0)``.
    threshold : float, default 0.5
        Predicted probability above which a record is classified into the second class, above 0 and below 1.
    thresholds : array-like of shape (t,), optional
        Thresholds of sensitivity, predictive values and net benefit, at most 1000; 0.01, 0.02, ..., 0.99 by default.
    subgroups : str, optional
        Category whose levels are also evaluated, or column of numbers with `subgroup_limits`.
    subgroup_limits : sequence of float
        Limits between intervals of a column of numbers; a value at a limit is in the interval above it.
    n_groups : int, default 10
        Largest number of groups of the calibration curve.
    min_records : int, default 10
        Subgroups with fewer records of a class are withheld, and further ones so that none follows from the total.
    by_site : bool, default False
        Also request scores of each site, unmasked: area, average precision, Brier score, prevalence, and observed over
        expected events.
    confidence_level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    ClassifierEvaluation
        Scores with intervals, curves, subgroups and scores by site.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, the model is not a classifier of two classes, or there is no such column.
    DataError
        All records are of one class.
    DisclosureRefused
        Sums of several sites are unmasked, a policy requires more patients behind each total, or a single site has
        fewer than its minimum of patients of a class, or too few whose predictions differ from the rest.

    Notes
    -----
    The area under the curve is that of about 1000 bins of the log odds; ``bound_roc_auc`` is its largest error. The
    average precision has bins as thresholds. All other figures are those of the pooled records.

    A single site computes its scores itself, exactly. Its curves come from bins that are merged until each holds the
    policy's minimum of patients of both classes, and the borders of these bins are the thresholds.

    References
    ----------
    .. [1] B. Van Calster, D. J. McLernon, M. van Smeden, L. Wynants, E. W. Steyerberg, BMC Medicine 17 (2019), 230.
    .. [2] E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, Biometrics 44 (1988), 837-845.
    .. [3] A. J. Vickers, E. B. Elkin, Medical Decision Making 26 (2006), 565-574.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 2))
    >>> data = mc.data.TableData(X, (X[:, 0] + rng.normal(size=900) > 1).astype(int))
    >>> sites = {name: data.take(np.arange(place, 900, 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = mc.regression.FedLogisticRegression().fit(federation)
    >>> evaluation = evaluate_classifier(model, federation)
    >>> float(evaluation.to_frame().loc["calibration_slope", "value"].round(3))  # 1 on the records of the fit
    1.0
    """
    evaluator = find_evaluator(model)
    if not isinstance(evaluator, ClassScores) or not issubclass(evaluator.part, ClassEvaluationPart):
        raise ConfigurationError(
            f"model must be a classifier; got {type(model).__name__}",
            where="model",
            hint="Use score(model, federation) for other models, SurvivalEvaluation for survival models.",
        )
    _check_numbers(n_groups, min_records, confidence_level)
    points = checked_thresholds(thresholds)
    edges = np.union1d(points, checked_thresholds([threshold]))
    request = Subgroups(subgroups or "", np.asarray(subgroup_limits, dtype=np.float64))
    message = evaluator.message(model)
    classes = tuple(getattr(message, "classes", ())) or ("0", "1")
    if len(classes) != 2:
        raise ConfigurationError(
            f"model must have two classes; got {len(classes)}",
            where="model",
            hint="Use score(model, federation, ['roc_auc_ovr', 'balanced_accuracy']).",
        )

    part = evaluator.part

    def work(opened: Session) -> tuple[Collected, SiteScores, dict[str, float], dict[str, str]]:
        collected = collect(opened, part, request, edges, float(min_records))
        site_scores = request_site_scores(opened, part, SITE_SCORES) if by_site else SiteScores()
        gaps = count_left_out(opened, part, message)
        return collected, site_scores, gaps, opened.absent

    collected, site_scores, gaps, absent = judge(federation, part, message, type(message).__name__, work)
    scores_by_site, withheld = protect_last_site(site_scores.scores)
    area_under_curve(collected.counts[0])  # raises if all records are of one class
    threshold, points = nearest_thresholds(collected, threshold, points)
    return ClassifierEvaluation(
        classes,
        float(threshold),
        points,
        int(n_groups),
        int(min_records),
        float(confidence_level),
        collected,
        scores_by_site,
        site_scores.refused,
        round(gaps.get("n_incomplete", 0.0)),
        withheld,
        absent,
    )


def protect_last_site(
    scores: Mapping[str, Mapping[str, float]],
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Withhold a score of all sites if a single one lacks it, which would follow from the others and the total.

    Prevalences and observed over expected events are ratios of sums; the other scores do not add up.

    Examples
    --------
    >>> protect_last_site({"a": {"prevalence": 0.2}, "b": {"prevalence": float("nan")}})
    ({'a': {'prevalence': nan}, 'b': {'prevalence': nan}}, ('prevalence',))
    """
    withheld = tuple(
        name
        for name in _OF_SUMS
        if sum(not np.isfinite(values[name]) for values in scores.values() if name in values) == 1
    )
    visible = {
        site: {name: np.nan if name in withheld else value for name, value in values.items()}
        for site, values in scores.items()
    }
    return visible, withheld


def nearest_thresholds(collected: Collected, threshold: float, thresholds: Floats) -> tuple[float, Floats]:
    """Return the threshold and thresholds of the result: of a single site those of its merged bins."""
    if not collected.alone:
        return threshold, thresholds
    edges = collected.edges
    borders = 1 / (1 + np.exp(-edges))
    nearest = int(np.abs(edges - np.log(threshold / (1 - threshold))).argmin()) if len(edges) else 0
    return (float(borders[nearest]) if len(edges) else threshold), borders


def checked_thresholds(thresholds: ArrayLike | None) -> Floats:
    """Return thresholds in order, shape (t,); 0.01, 0.02, ..., 0.99 by default."""
    values = np.arange(1, 100) / 100 if thresholds is None else np.unique(np.asarray(thresholds, dtype=np.float64))
    if not 0 < len(values) <= MAX_THRESHOLDS or not (np.isfinite(values) & (values > 0) & (values < 1)).all():
        raise ConfigurationError(
            f"thresholds must be 1 to {MAX_THRESHOLDS} probabilities between 0 and 1; got {len(values)}, or others",
            where="thresholds",
            hint="They are predicted probabilities, such as 0.1.",
        )
    return values


def _check_numbers(n_groups: int, min_records: int, confidence_level: float) -> None:
    for name, value, least in (("n_groups", n_groups, 2), ("min_records", min_records, 1)):
        if not value >= least:
            raise ConfigurationError(f"{name} must be at least {least}; got {value}", where=name)
    if not 0.5 <= confidence_level < 1:
        raise ConfigurationError(
            f"confidence_level must be at least 0.5 and below 1; got {confidence_level}", where="confidence_level"
        )
