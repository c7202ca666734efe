"""FedStack: average of survival models, with equal weights or with weights from the error on held-out patients.

The protocol of weights from held-out patients consists of:

1. The coordinator and the sites agree on the columns and the grid of the models.
2. Each site returns counts of its patients by end of follow-up. From their sums the coordinator computes the
   probability of not being censored.
3. The coordinator sends the models and these probabilities. Each site returns weighted products of the models' curves
   and the outcomes, from whose sums the coordinator computes the weights.

With folds at the sites, the models are fitted without each fold, these three steps follow on the fold, and the models
with a positive weight are fitted again on all records.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.values import GAP_STEPS, MissingValues, handle_missing
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, IntegrityError, SchemaMismatch
from multicentre.estimator.parameters import OneOf, ParameterRanges, Real, Where
from multicentre.estimator.saved import PLAIN, Arrays, SavedAttributes
from multicentre.survival.agreement.messages import AfterHorizon, Prepared
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.fitted_models.base import SurvivalModel, join
from multicentre.survival.fitted_models.derived import Designed, Mixture, Named, on_one_grid
from multicentre.survival.stack.maths import BrierForm, chance_of_staying
from multicentre.survival.stack.site import (
    MAX_MODELS,
    Candidates,
    Ends,
    Errors,
    StackSite,
)
from multicentre.survival.times import is_sequence

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class Splitter(Protocol):
    """Divides the records of sites into folds."""

    def plan(self, federation: Consortium) -> Iterable[tuple[Consortium, Consortium]]:
        """Return the records without each fold, and those of the fold."""
        ...


class FedStack(SurvivalEstimator):
    """Mixture of survival models: their mean, or members and weights chosen by the integrated Brier score.

    The score of a mixture is a quadratic function of its weights. Each site sums the coefficients of this function over
    held-out patients, weighted for censoring by the reverse Kaplan-Meier curve of all sites. The coordinator computes
    the minimum of score and penalty over non-negative weights with sum 1. Only sums over sites reach the coordinator.

    Parameters
    ----------
    estimators : sequence of survival estimators
        At most 32, with the same columns. With `cv`, estimators that are not fitted. Otherwise fitted ones; with
        "brier", on other patients than those of the federation passed to :meth:`fit`, because scores on training
        patients are too optimistic. For simulations, :func:`multicentre.survival.stack.split_held_out` separates the
        patients.
    weights : {"equal", "brier"} or sequence of float, default "equal"
        Weights of the models. With "brier", those that minimise the integrated Brier score of held-out patients plus a
        penalty; a model of weight 0 is not a member. With "equal" or explicit weights, the sites receive no request.
    cv : splitter, optional
        Splitter of :mod:`multicentre.validation`, such as ``HashGroupKFold(5)``, which divides the records at the sites
        into folds. The weights ("brier") then minimise the score of every fold under models that are fitted without it,
        and the members are fitted again on all records.
    shrinkage : float, default 3.0
        Penalty of uneven weights: the squared distance from equal weights, times the mean squared distance of the
        models' curves from their mean, times this number. With 0 the weights minimise the score alone.

    Attributes
    ----------
    model_ : Mixture
        The m models on one grid, and their weights.
    weights_ : array of shape (m,)
        Weights of the models, which sum to 1.
    brier_ : array of shape (m + 1,)
        Integrated Brier score of every model and of the mixture over held-out patients; empty with "equal" or explicit
        weights. That of the mixture is slightly too optimistic, because its weights were chosen on these patients.

    Raises
    ------
    ConfigurationError
        An estimator is not fitted, or is fitted and `cv` is given; the estimators differ in their columns, unit or
        cause; or the weights are invalid.
    SchemaMismatch
        A site has other columns, or another unit of times, than the models.

    Notes
    -----
    The grid holds all times of the models' grids up to the first of their horizons, thinned to 256. A model on another
    grid has the same values at the times of its grid; between them its cumulative hazard is linear. Missing values are
    handled as in the fits of the estimators.

    The sums of a forged model could disclose information on some patients. Therefore a site answers for one set of
    models per fit, which the ledger records.

    References
    ----------
    .. [1] L. Breiman, "Stacked regressions", Machine Learning 24 (1996), 49-64.
    .. [2] E. Graf et al., "Assessment and comparison of prognostic classification schemes for survival data",
       Statistics in Medicine 18 (1999), 2529-2545.

    Examples
    --------
    >>> import multicentre as mc
    >>> simulate = mc.datasets.simulate_survival
    >>> sites = {name: simulate(200, random_state=seed) for seed, name in enumerate(["lyon", "oslo"])}
    >>> fitting, held_out = mc.survival.split_held_out(sites)
    >>> with mc.Federation.in_process(fitting) as federation:
    ...     models = [mc.survival.FedCox("grid", alpha=alpha).fit(federation) for alpha in (0.0, 1e4)]
    >>> with mc.Federation.in_process(held_out) as federation:
    ...     stack = mc.survival.FedStack(models, weights="brier", shrinkage=0.0).fit(federation)
    >>> stack.weights_.round(2).tolist()
    [1.0, 0.0]

    >>> sites = {name: data.with_identifier([f"{name}-{i}" for i in range(200)]) for name, data in sites.items()}
    >>> members = [mc.survival.FedCox("grid", alpha=alpha) for alpha in (0.0, 1e4)]
    >>> folds = mc.validation.HashGroupKFold(3)
    >>> with mc.Federation.in_process(sites) as federation:
    ...     stack = mc.survival.FedStack(members, weights="brier", cv=folds, shrinkage=0.0).fit(federation)
    >>> stack.weights_.round(2).tolist()
    [0.92, 0.08]
    """

    site_part: ClassVar[type[SitePart]] = StackSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "weights": (
            OneOf("brier", "equal"),
            Where("a sequence of numbers", is_sequence),
        ),
        "cv": (None, Where("a splitter", lambda value: callable(getattr(value, "plan", None)))),
        "shrinkage": Real(0),
    }
    model_parameters: ClassVar[Mapping[str, Literal["model", "models"]]] = {"estimators": "models"}
    saved_attributes: ClassVar[SavedAttributes] = {
        **SurvivalEstimator.saved_attributes,
        "weights_": PLAIN,
        "brier_": PLAIN,
    }
    model_: Mixture
    weights_: Floats
    brier_: Floats
    _form: BrierForm

    def __init__(
        self,
        estimators: Sequence[SurvivalEstimator] | None = None,
        *,
        weights: Literal["equal", "brier"] | ArrayLike = "equal",
        cv: Splitter | None = None,
        shrinkage: float = 3.0,
    ) -> None:
        self.estimators = estimators
        self.weights = weights
        self.cv = cv
        self.shrinkage = shrinkage

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may use, without those of its members."""
        return frozenset({"describe", "agree", "count_ends", "sum_errors", *GAP_STEPS} if self._is_learnt else ())

    @property
    def _is_learnt(self) -> bool:
        return isinstance(self.weights, str) and self.weights == "brier"

    def _fit(self, session: Session) -> None:
        if self.cv is not None:
            self._fit_members(session, self.cv)
            return
        fitted = self._fitted()
        models = self._on_one_grid(fitted)
        if self._is_learnt:
            self._choose_weights(self._brier_form(session, models))
        else:
            self.weights_, self.brier_ = self._fixed_weights(len(fitted)), np.zeros(0)
        self.model_ = Mixture.of(models, self.weights_, len(self.feature_names_in_))

    def _fit_members(self, session: Session, cv: Splitter) -> None:
        """Choose weights by cross-validation, and fit the models with a positive weight on all records."""
        unfitted = self._unfitted()
        forms = []
        for training, held_out in cv.plan(session.federation):
            fold = FedStack([_copy(each).fit(training) for each in unfitted], weights="brier", shrinkage=self.shrinkage)
            forms.append(fold.fit(held_out)._form)
        self._choose_weights(BrierForm.mean(forms))
        is_member = self.weights_ > 0
        members = [_copy(unfitted[place]).fit(session.federation) for place in np.flatnonzero(is_member)]
        models = self._on_one_grid(members)
        self.model_ = Mixture.of(models, self.weights_[is_member], len(self.feature_names_in_))

    def _choose_weights(self, form: BrierForm) -> None:
        self._form = form
        self.weights_ = form.best_weights(float(self.shrinkage))
        self.brier_ = np.array([form.score(each) for each in (*np.eye(len(self.weights_)), self.weights_)])

    def _on_one_grid(self, fitted: Sequence[SurvivalEstimator]) -> list[SurvivalModel]:
        """Set the agreement and the missing values of the mixture, and return the models on one grid."""
        models = on_one_grid([each.predicting_model() for each in fitted], len(fitted[0].feature_names_in_))
        self.agreed_, self.missing_values_ = _agreed(fitted[0].agreed_, models[0].times), _strictest(fitted)
        self.history_ = []
        return models

    def _brier_form(self, session: Session, models: Sequence[SurvivalModel]) -> BrierForm:
        """Return the integrated Brier score of mixtures over the patients of the sites."""
        packed, lengths = join(models)
        digest = hashlib.sha256(packed.tobytes()).hexdigest()[:16]
        fitted = self.missing_values_
        columns = self.agreed_.columns[: len(self.agreed_.columns) - len(fitted.indicators)]
        session.once("described", Nothing, lambda: _describe(session, self.agreed_, columns))
        marked = fitted.incomplete_columns
        handle_missing(session, StackSite, columns, self.agreed_.levels, fitted.missing, marked=marked)
        self._count_after(
            session.once("after horizon", AfterHorizon, lambda: session.sum(StackSite.agree, self.agreed_))
        )
        ends = session.once("ends", Ends, lambda: session.sum(StackSite.count_ends, Nothing()))
        staying = chance_of_staying(ends.events, ends.censored, ends.n_patients)
        request = Candidates(packed, lengths, staying, ends.n_patients)
        errors = session.once(f"errors-{digest}", Errors, lambda: session.sum(StackSite.sum_errors, request))
        return BrierForm(errors.products, errors.targets, errors.constant, ends.n_patients)

    def _listed(self) -> list[Any]:
        estimators: list[Any] = list(self.estimators or ())
        if not 1 <= len(estimators) <= MAX_MODELS:
            raise ConfigurationError(
                f"estimators must hold 1 to {MAX_MODELS} survival estimators; got {len(estimators)}",
                where="estimators",
                hint="Pass a list of survival estimators.",
            )
        return estimators

    def _unfitted(self) -> list[SurvivalEstimator]:
        """Return the estimators to be fitted without each fold."""
        if not self._is_learnt:
            raise ConfigurationError(
                f"weights must be 'brier' with cv; got {self.weights!r}", where="weights", hint="Leave cv out."
            )
        estimators = self._listed()
        for each in estimators:
            if not isinstance(each, SurvivalEstimator) or hasattr(each, "model_"):
                state = "a fitted " if hasattr(each, "model_") else ""
                raise ConfigurationError(
                    f"estimators must be survival estimators that are not fitted; got {state}{type(each).__name__}",
                    where="estimators",
                    hint="With cv, models are fitted without each fold. A fitted model has seen the records of a fold.",
                )
        return estimators

    def _fitted(self) -> Sequence[SurvivalEstimator]:
        estimators = self._listed()
        for each in estimators:
            if not isinstance(each, SurvivalEstimator) or not hasattr(each, "model_"):
                raise ConfigurationError(
                    f"estimators must be fitted survival estimators; got {type(each).__name__}",
                    where="estimators",
                    hint="Fit it on other patients first, or pass cv.",
                )
            if isinstance(each.evaluated_model(), Designed | Named):
                raise ConfigurationError(
                    f"estimators must be of the columns of the data; got {type(each).__name__} with a formula, an "
                    "offset, weights or clusters",
                    where="estimators",
                    hint="Fit it without them: sites mix models of the same columns.",
                )
        first = estimators[0].agreed_
        for each in estimators[1:]:
            agreed = each.agreed_
            schema = (agreed.columns, agreed.levels, agreed.unit, agreed.cause)
            if schema != (first.columns, first.levels, first.unit, first.cause):
                raise ConfigurationError(
                    f"estimators must have the same columns, unit and cause; got others for {type(each).__name__}",
                    where="estimators",
                    hint="Fit all of them on the same federation.",
                )
        return estimators

    def _fixed_weights(self, n_models: int) -> Floats:
        if isinstance(self.weights, str):
            return np.full(n_models, 1.0 / n_models)
        weights = np.asarray(self.weights, dtype=np.float64)
        if (
            weights.shape != (n_models,)
            or not np.isfinite(weights).all()
            or (weights < 0).any()
            or not weights.sum() > 0
        ):
            raise ConfigurationError(
                f"weights must be {n_models} non-negative numbers with a positive sum; got {weights.tolist()}",
                where="weights",
                hint="Pass one weight per estimator.",
            )
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per model: estimator, weight and, if available, integrated Brier score.

        The names of the estimators are not saved; after loading, models are numbered.
        """
        import pandas as pd

        check_is_fitted(self, "weights_")
        estimator_names = [type(each).__name__ for each in self.estimators or ()]
        names = estimator_names or [f"model {number}" for number in range(1, len(self.weights_) + 1)]
        frame = pd.DataFrame({"estimator": names, "weight": self.weights_})
        return frame if not len(self.brier_) else frame.assign(integrated_brier=self.brier_[:-1])

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`, whose printed form ends with sentences on missing values and sites."""
        from multicentre.estimator.results import with_note

        table = self.to_frame()
        score = f"Integrated Brier score of the mixture: {self.brier_[-1]:.4g}." if len(self.brier_) else ""
        return with_note(table, self._remarks(), model=self.describe_model(), remark=score)

    def save(self, folder: str | Path) -> None:
        """Write the mixture with all its models as ``model.npz`` and ``model.json``."""
        bare = copy.copy(self)
        bare.estimators, bare.cv = None, None
        if not isinstance(self.weights, str):
            bare.weights = np.asarray(self.weights, dtype=np.float64).tolist()
        SurvivalEstimator.save(bare, folder)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        are_shares = self.weights_.ndim == 1 and (self.weights_ >= 0).all() and abs(self.weights_.sum() - 1) < 1e-9
        if type(self.model_) is not Mixture or not are_shares:
            raise IntegrityError("the model must be a Mixture with weights that sum to 1; got another", where="model")
        if len(self.brier_) not in (0, len(self.weights_) + 1):
            raise IntegrityError(
                f"the model must have {len(self.weights_) + 1} scores or none; got {len(self.brier_)}", where="model"
            )


def _strictest(fitted: Sequence[SurvivalEstimator]) -> MissingValues:
    """Return the missing values of the first fit to complete records, else of the first fit.

    A mixture predicts for patients for whom all its models predict.
    """
    missing_values = [each.missing_values_ for each in fitted]
    return next((values for values in missing_values if values.missing == "complete"), missing_values[0])


def _agreed(agreed: Prepared, times: Floats) -> Prepared:
    fields = {name: getattr(agreed, name) for name in Prepared.declarations()}
    return Prepared(**{**fields, "times": times, "ends": float(times[-1])})


def _copy(estimator: SurvivalEstimator) -> SurvivalEstimator:
    """Return a new estimator with the same parameters."""
    return type(estimator)(**estimator.get_params(deep=False))


def _describe(session: Session, agreed: Prepared, columns: tuple[str, ...]) -> Nothing:
    for site, answer in session.ask(StackSite.describe, Nothing()).items():
        if (answer.columns, answer.levels, answer.units) != (columns, agreed.levels, (agreed.unit,)):
            raise SchemaMismatch(
                f"columns and unit must be those of the models, {', '.join(columns[:5])} in {agreed.unit!r}; got "
                "others",
                where=f"site {site}",
                hint="Use the columns and the unit of the fit.",
            )
    return Nothing()


def split_held_out(
    sites: Mapping[str, SurvivalData], test_size: float = 0.25, random_state: int = 0
) -> tuple[dict[str, SurvivalData], dict[str, SurvivalData]]:
    """Split every site's patients into those for fitting and those held out; for simulations.

    Patients with an event, and patients without, are split in the same proportion. In a study, the sites split their
    patients and offer the held-out patients as separate data.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
        Patients by site.
    test_size : float, default 0.25
        Share of held-out patients, between 0 and 1.
    random_state : int, default 0
        Seed of the draw.

    Returns
    -------
    fitting : dict of str to SurvivalData
        Patients for fitting, by site.
    held_out : dict of str to SurvivalData
        Held-out patients, by site.

    Raises
    ------
    ConfigurationError
        `test_size` is not between 0 and 1, or one part of a site has no patients.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> data = mc.data.SurvivalData(np.zeros((8, 1)), np.ones(8), [0, 1] * 4)
    >>> fitting, held_out = mc.survival.split_held_out({"lyon": data})
    >>> len(fitting["lyon"]), len(held_out["lyon"])
    (6, 2)
    """
    if not 0 < test_size < 1:
        raise ConfigurationError(
            f"test_size must be above 0 and below 1; got {test_size}", where="test_size", hint="Use 0.25."
        )
    fitting, held_out = {}, {}
    for place, (site, data) in enumerate(sites.items()):
        rng = np.random.default_rng([random_state, place])
        is_held_out = np.zeros(len(data), dtype=np.bool_)
        for group in (data.event > 0, data.event == 0):
            members = rng.permutation(np.flatnonzero(group))
            is_held_out[members[: round(test_size * len(members))]] = True
        if is_held_out.all() or not is_held_out.any():
            raise ConfigurationError(
                f"a site must have patients for both parts; got {len(data)} patients, test_size {test_size}",
                where=f"site {site}",
                hint="Leave the site out.",
            )
        fitting[site], held_out[site] = data.take(np.flatnonzero(~is_held_out)), data.take(np.flatnonzero(is_held_out))
    return fitting, held_out
