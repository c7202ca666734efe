"""Validation of a given model of numbers; its rounds are in :mod:`multicentre.validation.external.base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Figure, Table
from multicentre.estimator.parameters import Flag, ParameterRanges
from multicentre.estimator.presentation import number_text
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes
from multicentre.validation.external.base import ModelValidation, as_texts
from multicentre.validation.external.site import GivenNumberPart, Line
from multicentre.validation.scoring.gaps import count_left_out
from multicentre.validation.scoring.judging import (
    ScoringPart,
    SiteScores,
    request_site_scores,
    total,
    unfixed,
)
from multicentre.validation.scoring.numbers import About, collect_errors
from multicentre.validation.scoring.tables import BoostedTrees, ScoredLinearModel

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
TableModel = ScoredLinearModel | BoostedTrees
# Scores of each site's records.
_SITE_NUMBER_SCORES = ("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error")


class RegressorValidation(ModelValidation):
    """Validation of a given model of a number: errors and calibration, via sums over sites.

    In a study file, ``method = "validate"`` names this class if the outcome is a number.

    Parameters
    ----------
    model : model
        Model of :func:`read_model`, or a fitted regression or boosted trees of this package.
    by_site : bool, default False
        Also request scores of each site.

    Attributes
    ----------
    scores_ : dict of str to float
        R squared, mean squared, root mean squared and mean absolute error, negative as in scikit-learn.
    calibration_intercept_, calibration_slope_ : float
        Least squares line of the true by the predicted numbers; 0 and 1 for a calibrated model.
    mean_error_ : float
        Mean of true minus predicted numbers (calibration in the large).
    n_records_ : int
    by_site_ : dict of str to dict of str to float
        Scores by site, NaN where they rest on too few patients; empty unless requested.

    Raises
    ------
    ConfigurationError
        The model is not one of a number.
    SchemaMismatch
        A site lacks a column of the model.
    DisclosureRefused
        At a site, the predictions of fewer patients than its minimum differ from those of the rest.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre.validation import RegressorValidation, model_from_mapping
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 1))
    >>> data = mc.data.TableData(X, 2 * X[:, 0] + rng.normal(size=600), columns=["age"], outcome="number")
    >>> sites = {name: data.take(np.arange(place, 600, 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    >>> model = model_from_mapping({"family": "gaussian", "intercept": 1.0, "coefficients": {"age": 4.0}})
    >>> validation = RegressorValidation(model).fit(mc.Federation.in_process(sites))
    >>> round(validation.calibration_slope_, 2)
    0.51
    """

    site_part: ClassVar[type[SitePart]] = GivenNumberPart
    part: ClassVar[type[ScoringPart]] = GivenNumberPart
    parameter_ranges: ClassVar[ParameterRanges] = {"by_site": Flag()}
    saved_attributes: ClassVar[SavedAttributes] = {
        **ModelValidation.saved_attributes,
        "scores_": PLAIN,
        "calibration_intercept_": PLAIN,
        "calibration_slope_": PLAIN,
        "mean_error_": PLAIN,
        "n_records_": PLAIN,
        "by_site_": Saved(
            lambda scores: [[site, list(each), as_texts(each.values())] for site, each in scores.items()],
            lambda rows: {site: dict(zip(names, map(float, values), strict=True)) for site, names, values in rows},
        ),
    }
    scores_: dict[str, float]
    calibration_intercept_: float
    calibration_slope_: float
    mean_error_: float
    n_records_: int
    by_site_: dict[str, dict[str, float]]

    def __init__(self, model: Any = None, *, by_site: bool = False) -> None:
        self.model = model
        self.by_site = by_site

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        steps = {"judge", "count_complete", "find_magnitude", "sum_numbers", "sum_errors", "sum_line"}
        return frozenset(steps | ({"score_own"} if self.by_site else set()))

    def _fit(self, session: Session) -> None:
        model = self._send(session)
        if model.classes:
            raise ConfigurationError("model must predict a number; it predicts classes", where="model")
        (self.scores_, about, self.n_records_), gaps = session.together(
            [
                partial(collect_errors, session, GivenNumberPart),
                partial(count_left_out, session, GivenNumberPart, model),
            ]
        )
        self._set_line(total(session, GivenNumberPart.sum_line, about), about)
        scores = request_site_scores(session, GivenNumberPart, _SITE_NUMBER_SCORES) if self.by_site else SiteScores()
        self.n_incomplete_ = round(gaps.get("n_incomplete", 0.0))
        self.site_refusals_ = dict(scores.refused)
        self.by_site_ = {site: dict(values) for site, values in scores.scores.items()}

    def _set_line(self, sums: Line, about: About) -> None:
        n, unit = self.n_records_, 2.0**about.exponent
        true, predicted, squared, product = (
            unfixed(total_) / n for total_ in (sums.true, sums.predicted, sums.squared, sums.product)
        )
        variance = squared - predicted**2
        slope = (product - true * predicted) / variance if variance > 0 else float("nan")
        self.calibration_slope_ = slope
        self.calibration_intercept_ = unit * (about.centre + true - slope * (about.centre + predicted))
        self.mean_error_ = unit * (true - predicted)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per score."""
        import pandas as pd

        check_is_fitted(self, "scores_")
        rows = {
            "r2": self.scores_["r2"],
            "root_mean_squared_error": -self.scores_["neg_root_mean_squared_error"],
            "mean_absolute_error": -self.scores_["neg_mean_absolute_error"],
            "mean_error": self.mean_error_,
            "calibration_intercept": self.calibration_intercept_,
            "calibration_slope": self.calibration_slope_,
        }
        return pd.DataFrame({"value": rows}).rename_axis("score")

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with the number of records."""
        from multicentre.estimator.results import with_note

        remark = f"{self.n_records_:,} records."
        return with_note(self.to_frame(), self._remarks(), remark=remark, model=self.describe_model())

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the scores, and those by site."""
        import pandas as pd

        by_site = pd.DataFrame.from_dict(self.by_site_, orient="index").rename_axis("site")
        return {"scores": self.to_frame()} | ({"by site": by_site} if self.by_site_ else {})

    def answer(self) -> str:
        """Return R squared and the calibration slope, and the number of records."""
        slope = number_text(self.calibration_slope_)
        return (
            f"R squared: {number_text(self.scores_['r2'])}; calibration slope: {slope}, of {self.n_records_:,} records."
        )

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the scores as a table."""
        frame = self.to_frame()
        rows: list[list[str | float | None]] = [
            [str(name).replace("_", " "), float(value)] for name, value in frame["value"].items()
        ]
        return [Table("Scores", f"{self.n_records_:,} records.", "fit", ["score", "value"], rows)]

    def line(self) -> tuple[float, float]:
        """Return intercept and slope of the true by the predicted numbers."""
        return self.calibration_intercept_, self.calibration_slope_

    def shift(self) -> float:
        """Return the mean error."""
        return self.mean_error_

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return R squared on local records."""
        from sklearn.metrics import r2_score

        return {"r2": float(r2_score(data.y, self.given_model.valid_for(data).numbers(data)))}
