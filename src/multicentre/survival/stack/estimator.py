"""FedStack: fitted models averaged with weights that patients whom they did not see decide."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.missing.values import GAP_STEPS, MissingValues, handle_missing
from multicentre.data.survival import SurvivalData
from multicentre.estimator.base import Arrays
from multicentre.federation.errors import ConfigurationError, IntegrityError, SchemaMismatch
from multicentre.federation.messages import Nothing
from multicentre.federation.session import Session
from multicentre.federation.steps import SitePart
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.fitted import SurvivalEstimator
from multicentre.survival.models.base import SurvivalModel, join
from multicentre.survival.models.derived import Mixture, on_one_grid
from multicentre.survival.stack import site as sent
from multicentre.survival.stack.site import (
    MOST_MODELS,
    StackSite,
    chance_of_staying,
    integrated_brier,
    minimise_on_simplex,
)

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class FedStack(SurvivalEstimator):
    """A mixture of fitted survival models, by default with the weights of the least integrated Brier score.

    The score of a mixture is a quadratic function of its weights. Each site sums its coefficients over its patients,
    weighted for censoring by a reverse Kaplan-Meier curve of all sites, and the coordinator finds the weights, from 0
    and summing to 1, exactly. Only sums over sites reach it.

    Parameters
    ----------
    estimators : sequence of fitted survival estimators
        At most 32, with the same columns. Fit them over other patients than those of the federation that is given to
        :meth:`fit`: a model is judged too well by patients whom it has seen. For simulations
        :func:`multicentre.survival.stack.split_held_out` sets patients apart.
    weights : {"brier", "equal"} or sequence of float, default "brier"
        How the models are weighed. With "equal" weights, or with given ones, nothing is asked of the sites: so a
        mixture of models that were fitted again over all patients takes the weights that held-out patients decided.

    Attributes
    ----------
    model_ : Mixture
    weights_ : array of shape (m,)
    brier_ : array of shape (m + 1,)
        Integrated Brier score of every model and of the mixture over the sites' patients, on the grid; empty where
        nothing was asked.

    Notes
    -----
    The grid holds all times of the models' grids up to the first of their horizons, thinned to 256. A model on
    another grid keeps its values at its own times; between them its cumulative hazard is straight. Missing values are
    handled as the estimators' fits did.

    A coordinator who made a model up could learn about some patients from its sums; a site answers for one set of
    models a fit, and the ledger shows it.

    References
    ----------
    .. [1] L. Breiman, "Stacked regressions", Machine Learning 24 (1996), 49-64.
    .. [2] E. Graf et al., "Assessment and comparison of prognostic classification schemes for survival data",
       Statistics in Medicine 18 (1999), 2529-2545.

    Examples
    --------
    >>> FedStack(weights="equal")
    FedStack(weights='equal')
    """

    site_part: ClassVar[type[SitePart]] = StackSite
    model_: Mixture
    weights_: Floats
    brier_: Floats

    def __init__(
        self,
        estimators: Sequence[SurvivalEstimator] | None = None,
        *,
        weights: Literal["brier", "equal"] | ArrayLike = "brier",
    ) -> None:
        self.estimators = estimators
        self.weights = weights

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        return frozenset({"describe", "agree", "count_ends", "sum_errors", *GAP_STEPS} if self._is_learnt else ())

    @property
    def _is_learnt(self) -> bool:
        return isinstance(self.weights, str) and self.weights == "brier"

    def _fit(self, session: Session) -> None:
        fitted = self._fitted()
        given = None if self._is_learnt else self._given(len(fitted))
        models = on_one_grid([each.model_ for each in fitted], len(fitted[0].columns_))
        self.agreed_, self.missing_values_ = _agreed(fitted[0].agreed_, models[0].times), _strictest(fitted)
        if given is None:
            errors = self._errors(session, models)
            self.weights_ = minimise_on_simplex(errors.products, errors.targets)
            shares = [*np.eye(len(models)), self.weights_]
            known = errors.products, errors.targets, errors.constant
            self.brier_ = np.array([integrated_brier(*known, each) for each in shares])
        else:
            self.weights_, self.brier_ = given, np.zeros(0)
        self.model_ = Mixture.of(models, self.weights_, len(self.columns_))
        self.history_ = []

    def _errors(self, session: Session, models: Sequence[SurvivalModel]) -> sent.Errors:
        packed, lengths = join(models)
        digest = hashlib.sha256(packed.tobytes()).hexdigest()[:16]
        fitted = self.missing_values_
        own = self.agreed_.columns[: len(self.agreed_.columns) - len(fitted.indicators)]
        session.once("described", Nothing, lambda: _describe(session, self.agreed_, own))
        marked = fitted.incomplete_columns
        handle_missing(session, StackSite, own, self.agreed_.levels, fitted.missing, marked=marked)
        session.once("agreed", Agreed, lambda: _agree(session, self.agreed_))
        ends = session.once("ends", sent.Ends, lambda: session.sum(StackSite.count_ends, Nothing()))
        staying = chance_of_staying(ends.events, ends.censored, ends.n_patients)
        ask = sent.Candidates(packed, lengths, staying, ends.n_patients)
        return session.once(f"errors-{digest}", sent.Errors, lambda: session.sum(StackSite.sum_errors, ask))

    def _fitted(self) -> Sequence[SurvivalEstimator]:
        estimators: list[Any] = list(self.estimators or ())
        if not 1 <= len(estimators) <= MOST_MODELS:
            raise ConfigurationError(
                f"{len(estimators)} estimators", where="estimators", hint=f"Give 1 to {MOST_MODELS} fitted ones."
            )
        for each in estimators:
            if not isinstance(each, SurvivalEstimator) or not hasattr(each, "model_"):
                raise ConfigurationError(
                    f"{type(each).__name__} is no fitted survival estimator",
                    where="estimators",
                    hint="Fit it over other patients first.",
                )
        first = estimators[0].agreed_
        for each in estimators[1:]:
            known = each.agreed_
            theirs = (known.columns, known.levels, known.unit, known.cause)
            if theirs != (first.columns, first.levels, first.unit, first.cause):
                raise ConfigurationError(
                    f"{type(each).__name__} was fitted to other columns, another unit or another cause",
                    where="estimators",
                    hint="Fit all of them over the same federation.",
                )
        return estimators

    def _given(self, n_models: int) -> Floats:
        if isinstance(self.weights, str):
            if self.weights != "equal":
                raise ConfigurationError(f"{self.weights!r} are no weights", where="weights", hint="Use 'brier'.")
            return np.full(n_models, 1.0 / n_models)
        given = np.asarray(self.weights, dtype=np.float64)
        if given.shape != (n_models,) or not np.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
            raise ConfigurationError(
                "the weights do not fit the models", where="weights", hint=f"Give {n_models} numbers from 0."
            )
        return np.asarray(given / given.sum(), dtype=np.float64)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a model: its estimator, its weight and, where it was judged, its integrated Brier score.

        A model that was saved and loaded no longer knows the names of its estimators.
        """
        import pandas as pd

        check_is_fitted(self, "weights_")
        known = [type(each).__name__ for each in self.estimators or ()]
        names = known or [f"model {number}" for number in range(1, len(self.weights_) + 1)]
        frame = pd.DataFrame({"estimator": names, "weight": self.weights_})
        return frame if not len(self.brier_) else frame.assign(integrated_brier=self.brier_[:-1])

    def save(self, folder: str | Path) -> None:
        """Write the mixture, all its models in it, as ``model.npz`` and ``model.json``."""
        bare = copy.copy(self)
        bare.estimators = None
        if not isinstance(self.weights, str):
            bare.weights = np.asarray(self.weights, dtype=np.float64).tolist()
        SurvivalEstimator.save(bare, folder)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        return {**arrays, "weights": self.weights_, "brier": self.brier_}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.weights_, self.brier_ = (np.asarray(arrays[name], dtype=np.float64) for name in ("weights", "brier"))
        are_shares = self.weights_.ndim == 1 and (self.weights_ >= 0).all() and abs(self.weights_.sum() - 1) < 1e-9
        if type(self.model_) is not Mixture or not are_shares:
            raise IntegrityError("the weights are not those of a mixture", where="model")
        if len(self.brier_) not in (0, len(self.weights_) + 1):
            raise IntegrityError("the scores are not those of the mixture", where="model")


def _strictest(fitted: Sequence[SurvivalEstimator]) -> MissingValues:
    """Return the missing values of the first fit to complete records, else of the first fit.

    A mixture predicts for whom all its models predict.
    """
    found = [each.missing_values_ for each in fitted]
    return next((one for one in found if one.missing == "complete"), found[0])


def _agreed(known: Agreed, times: Floats) -> Agreed:
    names = {name: getattr(known, name) for name in Agreed.declarations()}
    return Agreed(**{**names, "times": times})


def _describe(session: Session, agreed: Agreed, columns: tuple[str, ...]) -> Nothing:
    for site, answer in session.ask(StackSite.describe, Nothing()).items():
        if (answer.columns, answer.levels, answer.units) != (columns, agreed.levels, (agreed.unit,)):
            raise SchemaMismatch(
                "the columns or the unit of the times are not those of the models",
                where=f"site {site}",
                hint="Name them as at the fit.",
            )
    return Nothing()


def _agree(session: Session, agreed: Agreed) -> Agreed:
    session.ask(StackSite.agree, agreed)
    return agreed


def split_held_out(
    sites: Mapping[str, SurvivalData], share: float = 0.25, seed: int = 0
) -> tuple[dict[str, SurvivalData], dict[str, SurvivalData]]:
    """Split every site's patients into those of the fits and those held out; for simulations.

    Patients with an event, and patients without, are split in the same proportion. In a study the sites set patients
    apart themselves, and offer them as data of their own.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
    share : float, default 0.25
        Share that is held out, between 0 and 1.
    seed : int, default 0

    Returns
    -------
    fitting, held_out : dict of str to SurvivalData

    Raises
    ------
    ConfigurationError
        The share is not between 0 and 1, or leaves one part of a site without patients.

    Examples
    --------
    >>> data = SurvivalData(np.zeros((8, 1)), np.ones(8), [0, 1] * 4)
    >>> fitting, held_out = split_held_out({"lyon": data})
    >>> len(fitting["lyon"]), len(held_out["lyon"])
    (6, 2)
    """
    if not 0 < share < 1:
        raise ConfigurationError(f"{share} is not between 0 and 1", where="share", hint="Use 0.25.")
    fitting, held_out = {}, {}
    for place, (site, data) in enumerate(sites.items()):
        rng = np.random.default_rng([seed, place])
        apart = np.zeros(len(data), dtype=np.bool_)
        for group in (data.event > 0, data.event == 0):
            members = rng.permutation(np.flatnonzero(group))
            apart[members[: round(share * len(members))]] = True
        if apart.all() or not apart.any():
            raise ConfigurationError(
                f"{len(data)} patients cannot be split", where=f"site {site}", hint="Leave it out."
            )
        fitting[site], held_out[site] = data.take(np.flatnonzero(~apart)), data.take(np.flatnonzero(apart))
    return fitting, held_out
