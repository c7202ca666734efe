"""Evaluation of a survival model on held-out patients of the sites, via sums."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import Message, Nothing
from multicentre.core.session import Answers, Session
from multicentre.core.steps import SitePart
from multicentre.core.wire import decode, encode
from multicentre.data.categories import have_other_levels
from multicentre.data.missing.values import HandlesMissing
from multicentre.errors import ConfigurationError, DisclosureRefused, IntegrityError, SchemaMismatch
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import Applicable, OneOf, Only, ParameterRanges, check_parameters
from multicentre.estimator.presentation import interval_text, number_text
from multicentre.estimator.saved import PLAIN, Arrays, SavedAttributes, saved_message
from multicentre.survival.agreement.horizon import HasHorizon
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.agreement.rounds import Needs, agree, steps_of_agreement
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.agreement.sketch import LATEST
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.evaluation import messages, settings
from multicentre.survival.evaluation import rounds as loops
from multicentre.survival.evaluation.alone import ALONE_HINT, AloneScores
from multicentre.survival.evaluation.results import COLUMNS, Concluded
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.survival.fitted_models import EVALUATED_KINDS
from multicentre.survival.fitted_models.base import SurvivalModel, pack, unpack
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.fitted_models.derived import Designed, Named
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index
from multicentre.survival.scores.lines import CalibrationLine
from multicentre.survival.times import at_times

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class SurvivalEvaluation(HasHorizon, HandlesMissing, FederatedEstimator, Concluded):
    """Validation of a survival model: concordance, Brier score, calibration and net benefit, via sums over sites.

    The sites hold patients who were not used to fit the model. Each site computes the model's predictions for its
    patients, and returns counts and sums. The scores are defined in :mod:`multicentre.survival.scores`.

    Parameters
    ----------
    model : fitted survival estimator or SurvivalModel
        Model to evaluate, which is sent to every site. With a SurvivalModel, the sites' columns must be in its order,
        and missing entries are filled with the means of the held-out patients. With an estimator, they are handled as
        in its fit: after a fit to complete records, incomplete patients are left out.
    horizon : float, optional
        Last time of Brier scores and areas; the model's horizon by default.
    n_bins : int, default 256
        Bins of the predicted restricted mean, and of time (at most 256), in which pairs of patients are compared.
    n_times : int, default 100
        Number of times of Brier scores and areas, equidistant up to the horizon; those within the same interval of
        `time_points` are merged.
    at : sequence of float, optional
        Times of calibration and of net benefit; a quarter, a half and three quarters of the horizon by default.
    n_groups : int, default 10
        Groups of predicted risk.
    time_points : sequence of float, optional
        Times at which follow-up is counted; by default 256, in equal steps up to the horizon, including those of `at`.
        Recorded times are rounded up to them. More than 256 times (at most 4096) require ``exact_times`` in every
        site's policy, because their counts disclose ends of follow-up.
    thresholds : sequence of float, optional
        Predicted risks above which patients are treated, above 0 and below 1; 0.01, 0.02, ..., 0.99 by default.
    concordance : {"pooled", "within_sites"}, default "pooled"
        All pairs of patients, from a histogram; or only pairs of the same site, exactly, which is a different quantity.
    scoring : sequence of str, optional
        Scores to compute: some of "concordance", "brier", "auc", "calibration", "net_benefit"; all by default.
    by_site : bool, default False
        Request concordance and calibration of each site too.
    cause : int, default 1
        Code of the event of interest; not used for an estimator, whose cause is used.

    Attributes
    ----------
    n_patients_, n_events_ : int
        Held-out patients of all sites, and those with an event.
    concordance_, concordance_standard_error_ : float
        Harrell's index and its standard error.
    concordance_interval_ : tuple of float
        95 % interval of the concordance.
    times_ : array of shape (T,)
        The T times of Brier scores and areas.
    brier_, brier_reference_ : array of shape (T,)
        Brier score of the model and of the Kaplan-Meier curve of the same patients.
    ibs_, ibs_standard_error_, ibs_reference_, ipa_ : float
        Brier score averaged over time, its standard error (without that of the censoring curve), the score of the
        Kaplan-Meier curve, and the relative decrease from it.
    auc_ : array of shape (T,)
        Area under the curve for patients with an event by each time versus those without.
    mean_auc_ : float
        Mean of the areas over time, weighted by events.
    calibration_ : dict of float to Calibration
        Predicted and observed risks of groups of patients, by time.
    calibration_lines_ : dict of float to CalibrationLine
        Observed over expected events (calibration in the large) and calibration slope with their standard errors, by
        time.
    d_calibration_ : DCalibration
        Calibration over all times: distribution of the predicted survival at the patients' event times.
    thresholds_ : array of shape (p,)
        The p predicted risks above which patients are treated.
    net_benefit_, net_benefit_of_all_ : dict of float to array of shape (p,)
        Net benefit of treating patients above each threshold, and of treating everyone, by time.
    sites_ : dict of str to OwnScores
        Scores of each site; empty unless `by_site`. They have no values if few patients have an event, or if the site
        refuses.
    site_refusals_ : dict of str to str
        Reasons of the sites that refused to return their scores.
    agreed_columns_ : tuple of str
        Columns of the sites.
    missing_values_ : MissingValues
        Counts of missing values over all sites, and their handling.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, `model` is not fitted, or a time lies beyond the model's horizon.
    SchemaMismatch
        The columns of the sites are not those of the model.

    Notes
    -----
    Brier scores and their mean equal those of the pooled patients with times rounded up to `time_points`, up to
    rounding errors. They are those of the recorded times if `time_points` contains every time up to the horizon. The
    concordance is that of 256 by 256 bins. Unmasked, sites refuse sums in which a time, or a bin of predictions, has
    fewer patients than their policy's minimum: use ``secure_sum=True``. With a single time of scoring, means over time
    are the values at that time.

    A model with parameters chosen to single out patients would disclose them in a sum. Review the model before
    approval, as any other code or query.

    References
    ----------
    .. [1] F. E. Harrell, K. L. Lee, D. B. Mark, Statistics in Medicine 15 (1996), 361-387.
    .. [2] E. Graf, C. Schmoor, W. Sauerbrei, M. Schumacher, Statistics in Medicine 18 (1999), 2529-2545.
    .. [3] H. Haider, B. Hoehn, S. Davis, R. Greiner, Journal of Machine Learning Research 21 (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre.survival.fitted_models import CoxModel
    >>> sites = {f"site-{seed}": mc.datasets.simulate_survival(300, 3, seed) for seed in range(3)}
    >>> times = np.linspace(5.0, 60.0, 12)
    >>> model = CoxModel(times, np.array([0.8, -0.4, 0.27]), np.zeros(3), (times / 30) ** 1.3)
    >>> federation = mc.Federation.in_process(sites)
    >>> evaluation = mc.survival.SurvivalEvaluation(model).fit(federation)
    >>> round(evaluation.concordance_, 2), round(evaluation.ipa_, 2)
    (0.71, 0.23)
    """

    site_part: ClassVar[type[SitePart]] = EvaluationSite
    parameter_ranges: ClassVar[ParameterRanges] = settings.RANGES
    applicable: ClassVar[Applicable] = {
        "n_bins": Only(
            'concordance="pooled"', lambda model: model.concordance == "pooled" and "concordance" in model.scoring
        ),
        "n_groups": Only('"calibration" in scoring', lambda model: "calibration" in model.scoring),
        "thresholds": Only('"net_benefit" in scoring', lambda model: "net_benefit" in model.scoring),
    }
    model_parameters: ClassVar[Mapping[str, Literal["model", "models"]]] = {"model": "model"}
    saved_attributes: ClassVar[SavedAttributes] = {
        "_judged": saved_message(messages.Scored),
        "site_refusals_": PLAIN,
        "agreed_columns_": PLAIN,
        **HasHorizon.saved_horizon,
    }
    site_refusals_: dict[str, str]
    agreed_columns_: tuple[str, ...]
    metrics: ClassVar[Mapping[str, Metric]] = SurvivalEstimator.metrics

    def __init__(
        self,
        model: SurvivalEstimator | SurvivalModel | None = None,
        *,
        horizon: float | None = None,
        n_bins: int = 256,
        n_times: int = 100,
        at: Sequence[float] | None = None,
        n_groups: int = 10,
        time_points: ArrayLike | None = None,
        thresholds: Sequence[float] | None = None,
        concordance: Literal["pooled", "within_sites"] = "pooled",
        scoring: Sequence[str] = settings.SCORES,
        by_site: bool = False,
        cause: int = 1,
    ) -> None:
        self.model = model
        self.horizon = horizon
        self.n_bins = n_bins
        self.n_times = n_times
        self.at = at
        self.n_groups = n_groups
        self.time_points = time_points
        self.thresholds = thresholds
        self.concordance = concordance
        self.scoring = scoring
        self.by_site = by_site
        self.cause = cause

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use."""
        pairs = "count_own_pairs" if self.concordance == "within_sites" else "count_pairs"
        steps_by_score = {
            "concordance": pairs,
            "brier": "sum_errors",
            "auc": "count_ranks",
            "calibration": "count_groups",
            "net_benefit": "sum_benefits",
        }
        judge = "judge_at_fine_times" if self._is_fine() else "judge"
        steps = {judge, "count_follow_up"} | {steps_by_score[score] for score in self.scoring}
        steps |= {"evaluate_alone"}  # of a single site
        steps |= {"sum_lines"} if "calibration" in self.scoring else set()
        site_steps = {"score_own"} if self.by_site else set()
        return steps_of_agreement(self._needs(np.array([1.0]))) | steps | site_steps

    def to_frame(self) -> pd.DataFrame:
        """Return a row per score: its value, and its standard error and 95 % interval if available."""
        import pandas as pd

        check_is_fitted(self, "_judged")
        return pd.DataFrame(self.rows(), columns=["score", *COLUMNS]).set_index("score").astype(float)

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with patients, events, and a note.

        The note, in ``attrs["missing"]``, states missing values, and sites that were left out.
        """
        from multicentre.estimator.results import with_note

        table = self.to_frame()
        return with_note(
            table,
            self._remarks(),
            model=self.describe_model(),
            remark=f"{self.n_patients_:,} patients, {self.n_events_:,} events.",
        )

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the scores."""
        return {"scores": self.to_frame()}

    def answer(self) -> str:
        """Return the first score with its interval, and the numbers of patients and events."""
        frame = self.to_frame()
        value, lower, upper = (float(frame[name].iloc[0]) for name in ("value", "lower", "upper"))
        sizes = f"{self.n_patients_:,} patients with {self.n_events_:,} events"
        name = str(frame.index[0])
        score = f"{name[0].upper()}{name[1:]}: {interval_text(value, lower, upper, 0.95)}, of {sizes}."
        return self._stating_horizon(score)

    def recalibrated(self, how: Literal["line", "intercept"] = "line", *, by: float | None = None) -> Named:
        """Return the proportional hazards model with a recalibrated baseline and, with "line", recalibrated slopes.

        Parameters
        ----------
        how : {"line", "intercept"}, default "line"
            "intercept" multiplies the hazard by observed over expected events (recalibration in the large). "line" also
            multiplies the log hazard ratios by the calibration slope.
        by : float, optional
            Time of calibration to use; the last one by default.

        Returns
        -------
        Named
            Accepted wherever a given model is; :func:`~multicentre.validation.write_model` writes it.

        Raises
        ------
        ConfigurationError
            The model has no proportional hazards, the fit did not converge, or `by` is not a time of calibration.
        """
        check_is_fitted(self, "_judged")
        check_parameters({"how": how}, {"how": OneOf("line", "intercept")})
        lines = vars(self).get("calibration_lines_", {})
        time = float(max(lines, default=0.0) if by is None else by)
        line, model = lines.get(time), self._judged_model()
        inner = model.inner if isinstance(model, Named) else model
        if line is None or not isinstance(inner, CoxModel):
            raise ConfigurationError(
                "a recalibrated model must have proportional hazards, and a time of its calibration",
                where="recalibrated",
                hint=f"The times are {', '.join(map(str, lines)) or 'none: evaluate with calibration in scoring'}.",
            )
        names = model.names if isinstance(model, Named) else self.agreed_columns_
        if how == "line":
            return Named.of(inner.recalibrated(line.intercept, line.slope, time), names)
        return Named.of(inner.recalibrated(np.log(line.observed_over_expected), 1.0, time), names)

    def line(self) -> tuple[float, float]:
        """Return intercept and slope of the recalibration by the last time of calibration; NaN without calibration."""
        last = self._last_line()
        return (np.nan, np.nan) if last is None else (last.intercept, last.slope)

    def shift(self) -> float:
        """Return the logarithm of observed over expected events by the last time of calibration (slope of 1)."""
        last = self._last_line()
        return np.nan if last is None else float(np.log(last.observed_over_expected))

    def _last_line(self) -> CalibrationLine | None:
        check_is_fitted(self, "_judged")
        lines = vars(self).get("calibration_lines_", {})
        return lines[max(lines)] if lines else None

    def main_figure(self) -> Figure:
        """Return the first picture of the scores: errors, areas or calibration; bars of the scores without these."""
        from multicentre.estimator.drawing import can_draw

        return next((figure for figure in self.figures({}, {}) if can_draw(figure)), super().main_figure())

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return concordance and integrated Brier score of the model on local patients.

        Parameters
        ----------
        data : SurvivalData
        labels : None
            Not used, present for API consistency by convention.
        training : SurvivalData, optional
            Patients from whom the censoring distribution is estimated; `data` by default.
        training_labels : None
            Not used, present for API consistency by convention.
        """
        model, censoring_data = self._judged_model(), data if training is None else training
        if isinstance(self.model, SurvivalEstimator):
            data = self.model.predictable(data)
            rows = self.model.filled(data)
        else:
            rows = model.complete_rows(data.X, self._judged.fill, data.columns, data.levels)
        happened, censoring_events = data.event == self._cause, censoring_data.event == self._cause
        scores = {"concordance": concordance_index(data.time, happened, -model.restricted_mean(rows))}
        times = brier_times(data.time, censoring_data.time, censoring_events, float(self._judged.grid[-1]))
        if len(times) > 1:
            curves = at_times(model.survival(rows), model.times, times)
            scores["ibs"] = integrated_brier_score(
                curves, times, data.time, happened, censoring_data.time, censoring_events
            )
        return scores

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the scores as a table, and Brier scores, areas, calibration and net benefit as curves."""
        from multicentre.survival.evaluation.results import show_scores

        check_is_fitted(self, "_judged")
        return show_scores(self)

    def save(self, folder: str | Path) -> None:
        """Write the evaluation as ``model.npz`` and ``model.json``, including the evaluated model."""
        bare = copy.copy(self)
        bare.model = None
        for name in ("time_points", "at", "thresholds"):
            values = getattr(self, name)
            setattr(bare, name, None if values is None else np.asarray(values).tolist())
        FederatedEstimator.save(bare, folder)

    def _is_fine(self) -> bool:
        if self.time_points is None:
            return False
        if not isinstance(self.model, SurvivalEstimator | SurvivalModel):  # a site knows the digest alone
            return len(np.unique(np.asarray(self.time_points))) > MAX_TIMES
        return settings.is_fine(settings.model_of(self.model), self.horizon, self.time_points)

    def _needs(self, grid: Floats) -> Needs:
        if self.concordance == "within_sites" or "concordance" not in self.scoring:
            return Needs(times=grid, cause=self._cause)
        n_times, ends = min(int(self.n_bins), MAX_TIMES), float(grid[-1])
        return Needs(n_times=n_times, horizon=LATEST, cause=self._cause, ends=ends)

    def _effect_of_horizon(self) -> str:
        return "count in the concordance only" if "concordance" in self.scoring else super()._effect_of_horizon()

    def _last_time(self) -> str:
        return number_text(float(self._judged.grid[-1])) if "_judged" in vars(self) else ""

    def _fit_single(self, session: Session) -> None:
        """Request the scores that the only site computes from its patients; its sums cannot be masked."""
        try:
            judged, _ = self._prepare(session, Needs(times=np.array([LATEST]), cause=self._cause))
        except DisclosureRefused as refused:
            raise DisclosureRefused(refused.what, where=refused.where, hint=ALONE_HINT) from None

        def request() -> AloneScores:
            loops.send_judged(session, judged)
            (scores,) = session.ask(EvaluationSite.evaluate_alone, Nothing()).values()
            return scores

        self.history_, self.site_refusals_ = [], {}
        self._conclude_alone(judged, session.once("alone", AloneScores, request), self.scoring)

    def _prepare(self, session: Session, needs: Needs | None = None) -> tuple[messages.Scored, SurvivalModel]:
        """Return the model and the times of the evaluation as a message, after the agreement, and the model."""
        model = settings.model_of(self.model)
        grid, places, at = settings.choose_times(model, self.horizon, self.time_points, int(self.n_times), self.at)
        fitted = self.model.missing_values_ if isinstance(self.model, SurvivalEstimator) else None
        missing, marked = ("mean", ()) if fitted is None else (fitted.missing, fitted.incomplete_columns)
        used: Sequence[str] | None = None
        if isinstance(model, Designed):
            used = model.used
            missing = "mean" if missing == "indicator" else missing  # the model marks missing entries itself
        elif isinstance(model, Named) and fitted is not None:
            used = model.names
        agreement = agree(
            session,
            EvaluationSite,
            needs or self._needs(grid),
            missing,
            counted=lambda described: [name for name in described.columns if used is None or name in used],
            marked=marked,
        )
        agreed, self.missing_values_ = agreement.agreed, agreement.missing
        self.agreed_columns_ = agreed.columns
        self._count_after(agreement.after)
        packed = np.frombuffer(pack(model), dtype=np.uint8)
        unpack(pack(model), EVALUATED_KINDS, len(agreed.columns))
        return messages.Scored(packed, self._fill(agreed), grid, places, at), model

    def _fit(self, session: Session) -> None:
        if session.protection == "unmasked" and len(session.sites) == 1:
            self._fit_single(session)
            return
        judged, model = self._prepare(session)
        self.thresholds_ = settings.choose_thresholds(self.thresholds)
        collect = partial(
            loops.collect,
            session,
            judged,
            loops.hand_out(session, judged),
            float(model.times[-1]),
            self.scoring,
            within_sites=self.concordance == "within_sites",
            n_bins=int(self.n_bins),
            n_groups=int(self.n_groups),
            thresholds=self.thresholds_,
        )
        self.history_ = []
        site_scores = Answers[messages.OwnScores]({}, {})
        if self.by_site:
            sums, site_scores = session.together([collect, partial(self._own_scores, session)])
        else:
            sums = collect()
        self.site_refusals_ = site_scores.refused
        lines = None
        if "calibration" in self.scoring:
            n_patients = float(cast("messages.FollowUp", sums["follow_up"]).n_patients)
            lines = loops.fit_lines(session, len(judged.at), n_patients)
        self._conclude(judged, sums, site_scores, lines)

    def _own_scores(self, session: Session) -> Answers[messages.OwnScores]:
        """Return the scores of each site; those of a site that refuses have no values."""
        answers = session.ask(EvaluationSite.score_own, Nothing(), skip_refusals=True)
        return Answers({site: answers.get(site, messages.OwnScores()) for site in session.sites}, answers.refused)

    @property
    def _cause(self) -> int:
        fitted = isinstance(self.model, SurvivalEstimator) and hasattr(self.model, "agreed_")
        return int(self.model.agreed_.cause) if fitted else int(self.cause)  # type: ignore[union-attr]

    def _fill(self, agreed: Prepared) -> Floats:
        if not isinstance(self.model, SurvivalEstimator) or self.model.fitted_design is not None:
            return agreed.centre
        fitted = self.model.agreed_
        if isinstance(self.model.evaluated_model(), Named):
            means = dict(zip(fitted.columns, fitted.centre.tolist(), strict=True))
            return np.array([means.get(name, mean) for name, mean in zip(agreed.columns, agreed.centre, strict=True)])
        if fitted.columns != agreed.columns or have_other_levels(fitted.levels, agreed.levels):
            raise SchemaMismatch(
                f"the sites must have the model's {len(self.model.feature_names_in_)} columns; got "
                f"{len(agreed.columns)}, or others",
                where="columns",
                hint=f"Use at the sites, in this order, {', '.join(self.model.feature_names_in_[:8])}.",
            )
        return fitted.centre

    def _judged_model(self) -> SurvivalModel:
        check_is_fitted(self, "_judged")
        return unpack(self._judged.packed.tobytes(), EVALUATED_KINDS, len(self._judged.fill))

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        site_scores = {f"site {site}": answer for site, answer in self.sites_.items()}
        arrays, facts = super()._state()
        lines = {} if self._lines is None else {"lines": self._lines}
        scores: dict[str, Message] = {**self._sums, **site_scores, **lines}
        blobs = {name: np.frombuffer(encode(message), dtype=np.uint8) for name, message in scores.items()}
        return {**arrays, **blobs}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        judged = self._judged
        blobs = {name: blob.tobytes() for name, blob in arrays.items() if not name.startswith("_judged.")}
        site_scores = {
            name[5:]: decode(messages.OwnScores, blobs.pop(name)) for name in list(blobs) if name.startswith("site ")
        }
        packed_lines = blobs.pop("lines", None) if "calibration" in self.scoring else None
        if set(blobs) == {"alone"}:
            self.model = unpack(judged.packed.tobytes(), EVALUATED_KINDS, len(judged.fill))
            self._conclude_alone(judged, decode(AloneScores, blobs["alone"]), self.scoring)
            return
        kinds = {step.releases.__name__: step.releases for step in EvaluationSite.steps().values()}
        of_pairs = "OwnPairs" if self.concordance == "within_sites" else "Pairs"
        names = {"follow_up": "FollowUp", "concordance": of_pairs, "brier": "Errors", "auc": "Ranks"}
        names |= {"calibration": "Groups", "net_benefit": "Benefits"}
        if set(blobs) != {"follow_up", *self.scoring}:
            raise IntegrityError(
                f"the sums must be those of {', '.join(self.scoring)}; got {', '.join(sorted(blobs))}", where="model"
            )
        sums = {name: decode(kinds[names[name]], blob) for name, blob in blobs.items()}
        self.model = unpack(judged.packed.tobytes(), EVALUATED_KINDS, len(judged.fill))
        self.thresholds_ = settings.choose_thresholds(self.thresholds)
        lines = None if packed_lines is None else decode(messages.Lines, packed_lines)
        self._conclude(judged, sums, site_scores, lines)
