"""Result of an evaluation of a classifier: scores, curves, subgroups and sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError, describe_reasons
from multicentre.estimator.figures import Band, Curves, Figure, Forest, Lines, Table
from multicentre.validation.classification.rounds import Collected
from multicentre.validation.scoring.classes import curves
from multicentre.validation.scoring.classes.maths import average_precision, log_odds
from multicentre.validation.scoring.classes.site import ERROR

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Plot = Literal["roc", "precision_recall", "calibration", "net_benefit", "subgroups"]
COLUMNS = ("value", "standard_error", "lower", "upper")


@dataclass(frozen=True)
class ClassifierEvaluation:
    """Discrimination, calibration and net benefit of a classifier of two classes on the records of all sites.

    Returned by :func:`evaluate_classifier`.

    Parameters
    ----------
    classes : tuple of str
        The two classes; probabilities and events are those of the second.
    threshold : float
        Predicted probability above which a record is classified into the second class.
    thresholds : array of shape (t,)
        Thresholds of :meth:`operating_points`.
    n_groups : int
        Largest number of groups of the calibration curve.
    min_records : int
        Smallest number of records of each class in a subgroup, and of records in a group of the calibration curve.
    confidence_level : float
        Confidence level of the intervals.
    collected : Collected
        Sums over sites.
    sites : dict of str to dict of str to float
        Scores by site, NaN where they rest on too few records; empty unless requested.
    refused : dict of str to str
        Reasons of the sites that refused to return scores.
    n_incomplete : int
        Records that are not evaluated because of missing entries, after a fit to complete records.
    withheld_scores : tuple of str
        Scores that are withheld for all sites, because a single site lacks them and they would follow.
    left_out : dict of str to str
        Reasons of the sites whose records are not evaluated, because they refused or were lost.

    Attributes
    ----------
    n_records : int
    n_events : int
        Records of the second class.
    prevalence : float
    roc_auc_ : float
        Area under the ROC curve.
    bound_roc_auc : float
        Largest error of the area under the ROC curve by counting in bins.
    subgroup_names, withheld : tuple of str
        Subgroups that are shown, and those that are withheld because they or the rest are small.
    """

    classes: tuple[str, ...]
    threshold: float
    thresholds: Floats
    n_groups: int
    min_records: int
    confidence_level: float
    collected: Collected
    sites: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    n_incomplete: int = 0
    withheld_scores: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_records(self) -> int:
        """Records of all sites."""
        return round(float(self.collected.counts[0].sum()))

    @property
    def n_events(self) -> int:
        """Records of the second class."""
        return round(float(self.collected.counts[0, 1].sum()))

    @property
    def prevalence(self) -> float:
        """Share of records of the second class."""
        return self.n_events / self.n_records

    @property
    def roc_auc_(self) -> float:
        """Area under the ROC curve of all records."""
        return self._scores(0)["roc_auc"][0]

    @property
    def bound_roc_auc(self) -> float:
        """Largest error of the area under the ROC curve by counting in bins."""
        return 0.0 if self.collected.alone else curves.area_and_error(self.collected.counts[0])[2]

    @property
    def subgroup_names(self) -> tuple[str, ...]:
        """Names of the subgroups that are shown."""
        return self.collected.visible

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names of the subgroups that are withheld, because they or the rest are small."""
        return self.collected.withheld

    def to_frame(self) -> pd.DataFrame:
        """Return one row per score, with its standard error and interval where there is one.

        Rows: area under the ROC curve (DeLong's standard error), average precision, Brier score, scaled Brier score
        (1 minus the score over that of the prevalence), observed over expected events, calibration intercept (log odds
        ratio of observed to predicted events at a slope of 1) and calibration slope.
        """
        import pandas as pd

        return pd.DataFrame(self._scores(0), index=list(COLUMNS)).T.rename_axis("score")

    def subgroups(self) -> pd.DataFrame:
        """Return the scores of each subgroup that is shown: one row per subgroup and score."""
        import pandas as pd

        rows = {
            (name, score): values
            for place, name in enumerate(self.subgroup_names, start=1)
            for score, values in self._scores(place).items()
        }
        index = pd.MultiIndex.from_tuples(list(rows), names=["subgroup", "score"])
        return pd.DataFrame(list(rows.values()), index=index, columns=list(COLUMNS))

    def by_site(self) -> pd.DataFrame:
        """Return the scores of each site, and the limits of their intervals; NaN where they rest on too few records."""
        import pandas as pd

        rows = {site: self._with_limits(scores) for site, scores in self.sites.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("site")

    def _with_limits(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return scores, and limits in place of standard errors."""
        half, row = curves.half_width(self.confidence_level), {}
        for name in scores:
            if name.endswith(ERROR):
                continue
            row[name] = value = scores[name]
            if (error := scores.get(f"{name}{ERROR}")) is None:
                continue
            limits = [value - half * error, value + half * error]
            if name == "roc_auc":
                limits = list(curves.logit_interval(value, error, self.confidence_level))
            elif name == "observed_over_expected":
                limits = [value * float(np.exp(side * half * error / value)) for side in (-1, 1)]
            row[f"{name}_lower"], row[f"{name}_upper"] = limits
        return row

    def confusion_matrix(self, threshold: float | None = None) -> pd.DataFrame:
        """Return records by true class (rows) and predicted class (columns).

        Parameters
        ----------
        threshold : float, optional
            One of the thresholds; by default that of the evaluation.

        Raises
        ------
        ConfigurationError
            The threshold is not among those of the evaluation.
        """
        import pandas as pd

        threshold = self.threshold if threshold is None else threshold
        counts = self.collected.counts[0]
        above = curves.counts_above(counts)[:, self._edge(threshold) + 1]
        table = np.column_stack([counts.sum(axis=1) - above, above]).round().astype(np.int64)
        rows = pd.Index(self.classes, name="class")
        return pd.DataFrame(table, index=rows, columns=pd.Index(self.classes, name="predicted"))

    def operating_points(self) -> pd.DataFrame:
        """Return sensitivity, specificity, predictive values and net benefit by threshold.

        Columns: ``sensitivity``, ``specificity``, ``positive_predictive_value``, ``negative_predictive_value``,
        ``share_positive``, ``net_benefit`` and ``net_benefit_of_all``. Ratios are exact.
        """
        import pandas as pd

        counts = self.collected.counts[0]
        places = [self._edge(threshold) + 1 for threshold in self.thresholds.tolist()]
        above = curves.counts_above(counts)[:, places]
        below = counts.sum(axis=1)[:, None] - above
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = {
                "sensitivity": above[1] / counts[1].sum(),
                "specificity": below[0] / counts[0].sum(),
                "positive_predictive_value": above[1] / above.sum(axis=0),
                "negative_predictive_value": below[0] / below.sum(axis=0),
                "share_positive": above.sum(axis=0) / counts.sum(),
                "net_benefit": curves.net_benefit(above, counts.sum(), self.thresholds),
                "net_benefit_of_all": curves.net_benefit(
                    np.repeat(counts.sum(axis=1)[:, None], len(places), axis=1), counts.sum(), self.thresholds
                ),
            }
        return pd.DataFrame(columns, index=pd.Index(self.thresholds, name="threshold"))

    def roc_curve(self, subgroup: str | None = None) -> pd.DataFrame:
        """Return false and true positive rates, from the highest threshold to the lowest; the edges of bins.

        Parameters
        ----------
        subgroup : str, optional
            One of the subgroups that are shown; all records by default.

        Raises
        ------
        ConfigurationError
            The subgroup is not among those that are shown.
        """
        import pandas as pd

        if subgroup is not None and subgroup not in self.subgroup_names:
            raise ConfigurationError(
                f"subgroup must be one of {', '.join(self.subgroup_names) or 'none'}; got {subgroup!r}",
                where="subgroup",
            )
        group = 0 if subgroup is None else self.subgroup_names.index(subgroup) + 1
        above = curves.counts_above(self.collected.counts[group])[:, ::-1]
        rates = above / above[:, -1:]
        return pd.DataFrame({"false_positive_rate": rates[0], "true_positive_rate": rates[1]})

    def precision_recall_curve(self) -> pd.DataFrame:
        """Return recall and precision, from the highest threshold to the lowest; without thresholds above all."""
        import pandas as pd

        above = curves.counts_above(self.collected.counts[0])[:, ::-1]
        above = above[:, above.sum(axis=0) > 0]
        return pd.DataFrame({"recall": above[1] / above[1, -1], "precision": above[1] / above.sum(axis=0)})

    def calibration_curve(self) -> pd.DataFrame:
        """Return predicted and observed probability of groups of about equal size, with Wilson intervals."""
        import pandas as pd

        counts = self.collected.counts[0]
        starts = curves.group_bins(counts, self.n_groups, self.min_records)
        events, n = (np.add.reduceat(values, starts) for values in (counts[1], counts.sum(axis=0)))
        lower, upper = curves.wilson_interval(events, n, self.confidence_level)
        predicted = np.add.reduceat(self.collected.predicted[0], starts) / n
        columns = {"predicted": predicted, "observed": events / n, "lower": lower, "upper": upper, "n_records": n}
        return pd.DataFrame(columns).astype({"n_records": np.int64}).rename_axis("group")

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the numbers of records and events."""
        from multicentre.estimator.results import with_note

        return with_note(self.to_frame(), self._notes(), remark=self._sizes())

    def figures(self) -> list[Figure]:
        """Return the scores as tables and the curves as figures."""
        figures: list[Figure] = [_table("Scores", self._sizes(), self.to_frame())]
        kinds: tuple[Plot, ...] = ("roc", "precision_recall", "calibration", "net_benefit")
        figures += [self._figure(kind) for kind in kinds]
        if self.subgroup_names:
            figures.append(self._figure("subgroups"))
        if self.sites:
            figures.append(self._site_figure())
            figures.append(_table("Scores by site", "Each site's records alone.", self.by_site()))
        return figures

    def plot(self, kind: Plot = "roc", ax: Axes | None = None) -> Axes:
        """Draw a curve.

        Parameters
        ----------
        kind : {"roc", "precision_recall", "calibration", "net_benefit", "subgroups"}, default "roc"
        ax : matplotlib Axes, optional
            Axes to draw on; those of a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ConfigurationError
            The kind is unknown, or there are no subgroups.
        """
        from multicentre.estimator.drawing import plot

        return plot(self._figure(kind), ax)

    def __repr__(self) -> str:
        return repr(self.summary())

    def _scores(self, group: int) -> dict[str, list[float]]:
        """Return the scores of all records (group 0) or of a subgroup: value, standard error and interval."""
        sums, level = self.collected, self.confidence_level
        counts = sums.counts[group]
        n, events = float(counts.sum()), float(counts[1].sum())
        area, area_error, _ = curves.area_and_error(counts)
        brier = sums.squares[group] / n
        brier_error = float(np.sqrt(max(sums.fourths[group] / n - brier**2, 0.0) / max(n - 1, 1)))
        half = curves.half_width(level)
        expected = float(sums.predicted[group].sum())
        ratio = events / expected if expected > 0 else np.nan
        ratio_error = 1 / np.sqrt(events) if events else np.nan
        scores = {
            "roc_auc": [area, area_error, *curves.logit_interval(area, area_error, level)],
            "average_precision": [average_precision(counts), np.nan, np.nan, np.nan],
            "brier_score": [brier, brier_error, brier - half * brier_error, brier + half * brier_error],
            "scaled_brier_score": [1 - brier / (events / n * (1 - events / n)), np.nan, np.nan, np.nan],
            "observed_over_expected": [
                ratio,
                ratio * ratio_error,
                ratio * float(np.exp(-half * ratio_error)),
                ratio * float(np.exp(half * ratio_error)),
            ],
        }
        for name, fit, place in (("calibration_intercept", 0, 0), ("calibration_slope", 1, 1)):
            value, error = (float(values[fit, group, place]) for values in (sums.lines, sums.line_errors))
            scores[name] = [value, error, value - half * error, value + half * error]
        return {name: self._of_site(name, values) for name, values in scores.items()}

    def _of_site(self, name: str, values: list[float]) -> list[float]:
        """Return the score that a single site computed from its records, instead of that of merged bins."""
        alone, level = self.collected.alone, self.confidence_level
        if name not in alone or name not in ("roc_auc", "average_precision"):
            return values
        value, error = alone[name], alone.get(f"{name}{ERROR}", np.nan)
        return [value, error, *curves.logit_interval(value, error, level)]

    def _edge(self, threshold: float) -> int:
        edges = self.collected.edges
        distances = np.abs(edges - log_odds(np.array([threshold]))[0])
        place = int(distances.argmin()) if len(edges) else 0
        if not len(edges) or distances[place] > 1e-9:  # log odds of a probability are right to about 1e-15
            raise ConfigurationError(
                f"threshold must be one of those of the evaluation; got {threshold:g}",
                where="threshold",
                hint="Pass it in `thresholds` of evaluate_classifier.",
            )
        return place

    def _sizes(self) -> str:
        return (
            f"{self.n_records:,} records, {self.n_events:,} of class {self.classes[1]} "
            f"(prevalence {100 * self.prevalence:.1f} %)."
        )

    def _notes(self) -> str:
        notes = []
        if self.collected.alone:
            notes.append(
                f"One site: scores are those of its records, curves those of {len(self.collected.edges) + 1} bins that "
                "were merged until each held the site's minimum of patients of both classes. Thresholds are the "
                "borders of these bins, rounded to 1/32 of the log odds."
            )
        if self.n_incomplete:
            notes.append(f"{self.n_incomplete:,} records with missing entries are left out, as in the fit.")
        if self.withheld:
            notes.append(
                f"Withheld subgroups, because they or the rest would have fewer than {self.min_records} records of a "
                f"class: {', '.join(self.withheld)}."
            )
        if self.withheld_scores:
            notes.append(f"Withheld at all sites, because one site's would follow: {', '.join(self.withheld_scores)}.")
        if self.refused:
            notes.append(f"Sites that refused to return their scores: {', '.join(self.refused)}.")
        if self.left_out:
            notes.append(f"Without {describe_reasons(self.left_out)}.")
        return " ".join(notes)

    def _figure(self, kind: Plot) -> Figure:
        makers = {
            "roc": self._roc_figure,
            "precision_recall": self._precision_figure,
            "calibration": self._calibration_figure,
            "net_benefit": self._benefit_figure,
            "subgroups": self._subgroup_figure,
        }
        if kind not in makers or (kind == "subgroups" and not self.subgroup_names):
            raise ConfigurationError(
                f"kind must be one of {', '.join(makers)}, and subgroups requires them; got {kind!r}", where="kind"
            )
        return makers[kind]()

    def _roc_figure(self) -> Figure:
        value, _, lower, upper = self._scores(0)["roc_auc"]
        caption = f"Area {value:.3f} ({100 * self.confidence_level:g} % interval {lower:.3f} to {upper:.3f})."
        curve = self.roc_curve()
        band = _band("model", curve["false_positive_rate"], curve["true_positive_rate"])
        chance = _band("chance", (0.0, 1.0), (0.0, 1.0))
        labels = "1 - specificity", "sensitivity"
        by_group = {name: self.roc_curve(name) for name in self.subgroup_names}
        bands = [
            _band(name, each["false_positive_rate"], each["true_positive_rate"]) for name, each in by_group.items()
        ]
        return Curves("ROC curve", caption, "fit", *labels, [band, *bands, chance], False, [], {})

    def _precision_figure(self) -> Figure:
        curve = self.precision_recall_curve()
        band = _band("model", curve["recall"], curve["precision"])
        line = _band("prevalence", (0.0, 1.0), (self.prevalence, self.prevalence))
        caption = "Share of true events among the records above each threshold, by the share of events above it."
        return Curves("Precision and recall", caption, "fit", "recall", "precision", [band, line], False, [], {})

    def _calibration_figure(self) -> Figure:
        curve = self.calibration_curve()
        band = Band("model", *(curve[name].tolist() for name in ("predicted", "observed", "lower", "upper")))
        line = _band("perfect", (0.0, 1.0), (0.0, 1.0))
        scores = self._scores(0)
        caption = (
            f"Groups of about equal size with {100 * self.confidence_level:g} % intervals. Calibration intercept "
            f"{scores['calibration_intercept'][0]:.3f}, slope {scores['calibration_slope'][0]:.3f}."
        )
        labels = "predicted probability", "observed share"
        return Curves("Calibration", caption, "fit", *labels, [band, line], False, [], {})

    def _benefit_figure(self) -> Figure:
        points = self.operating_points()
        series = {
            "model": points["net_benefit"].tolist(),
            "all": points["net_benefit_of_all"].tolist(),
            "none": [0.0] * len(points),
        }
        in_view = points["net_benefit_of_all"] > -max(self.prevalence, 0.05)
        series = {name: np.asarray(values)[in_view].tolist() for name, values in series.items()}
        caption = "Net benefit of treating the records above each threshold, next to treating all or none."
        labels = "threshold probability", "net benefit"
        return Lines("Net benefit", caption, "fit", *labels, self.thresholds[in_view].tolist(), series, {})

    def _site_figure(self) -> Figure:
        frame = self.by_site()
        names = ("roc_auc", "roc_auc_lower", "roc_auc_upper")
        rows = [*(frame.loc[site, list(names)].tolist() for site in frame.index)]
        value, _, lower, upper = self._scores(0)["roc_auc"]
        estimates, lows, highs = (
            [_plain(each) for each in column] for column in zip(*rows, (value, lower, upper), strict=True)
        )
        caption = f"Area under the ROC curve of each site's records with {100 * self.confidence_level:g} % intervals."
        sites = [*map(str, frame.index), "all"]
        title, label = "Discrimination by site", "area under the ROC curve"
        return Forest(title, caption, "fit", label, sites, estimates, lows, highs, 1, 0.5)

    def _subgroup_figure(self) -> Figure:
        rows = [(name, self._scores(place)["roc_auc"]) for place, name in enumerate(self.subgroup_names, start=1)]
        rows.append(("all", self._scores(0)["roc_auc"]))
        estimates, lower, upper = ([_plain(values[place]) for _, values in rows] for place in (0, 2, 3))
        names = [name for name, _ in rows]
        caption = f"Area under the ROC curve with {100 * self.confidence_level:g} % intervals. {self._notes()}".strip()
        return Forest("Subgroups", caption, "fit", "area under the ROC curve", names, estimates, lower, upper, 1, 0.5)


def _band(name: str, x: Iterable[float], y: Iterable[float]) -> Band:
    """Return a curve without limits, which are drawn at its values."""
    values = list(y)
    return Band(name, list(x), values, values, values)


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# Names of scores in tables for readers.
_LABELS = {
    "roc_auc": "area under the ROC curve",
    "average_precision": "average precision",
    "brier_score": "Brier score",
    "scaled_brier_score": "scaled Brier score",
    "observed_over_expected": "observed over expected",
    "calibration_intercept": "calibration intercept",
    "calibration_slope": "calibration slope",
}


def _table(title: str, caption: str, frame: pd.DataFrame) -> Table:
    rows = [
        [_LABELS.get(index, str(index)), *(_plain(value) for value in row)]
        for index, row in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    columns = [
        "" if frame.index.name is None else str(frame.index.name),
        *(str(name).replace("_", " ") for name in frame.columns),
    ]
    return Table(title, caption, "fit", columns, rows)
