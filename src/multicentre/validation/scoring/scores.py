"""Score function of fitted models, its result, and the evaluator of each kind of model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from multicentre.core.consortium import Consortium
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out records; greater is better, as in scikit-learn.

    Attributes
    ----------
    values : dict of str to float
        Scores over all sites by name. For a model of several views, ``name/view`` is the score of one view.
    n_records : float
        Number of scored records.
    by_site : dict of str to dict of str to float
        Scores by site, for sites that release them.
    refused : dict of str to str
        Reasons of the sites that do not release their scores.
    left_out : dict of str to str
        Reasons of the sites whose records are not scored, because they refused or were lost.
    facts : dict of str to float
        Further facts: largest error of a score (``bound_roc_auc``), share of entries that cannot be scored
        (``share_unknown``), records that are not scored because of missing entries (``n_incomplete``).
    held_out : dict of str to dict of str to float
        Scores of the only site with their standard errors (``name.error``) and its calibration; empty for several.
    """

    values: Mapping[str, float]
    n_records: float
    by_site: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    held_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Evaluator(Protocol):
    """Scorer of one kind of fitted model on the records of a federation."""

    @property
    def part(self) -> type[SitePart]:
        """Site part that computes the scores."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the available scores; only requested scores are computed."""

    @property
    def usual(self) -> tuple[str, ...]:
        """Names of the default scores."""

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model."""


_HOME = "multicentre.validation.scoring"
CLASSES, NUMBERS = f"{_HOME}.tables:CLASSES", f"{_HOME}.tables:NUMBERS"
# Estimator class: evaluator. The first listed class in the method resolution order is used.
EVALUATORS: dict[str, str] = {
    "multicentre.survival.estimator:SurvivalEstimator": f"{_HOME}.outcomes:SURVIVAL",
    "multicentre.boosting.estimator:FedXGBClassifier": CLASSES,
    "multicentre.boosting.estimator:FedXGBRegressor": NUMBERS,
    "multicentre.regression.estimator:FedGLM": NUMBERS,
    "multicentre.regression.mixed.results:MixedResults": NUMBERS,
    "multicentre.regression.named_models:FedLinearRegression": NUMBERS,
    "multicentre.regression.named_models:FedLogisticRegression": CLASSES,
    "multicentre.regression.named_models:FedPoissonRegression": NUMBERS,
    "multicentre.phenotyping.outcome.fitted:OutcomeModel": f"{_HOME}.outcomes:OUTCOMES",
    "multicentre.multiview.ppca.fitted:MvPPCAModel": f"{_HOME}.views:LAWS",
    "multicentre.phenotyping.fitted.model:PhenotypeModel": f"{_HOME}.events:EVENTS",
    "multicentre.regression.categorical.results:CategoricalResults": f"{_HOME}.tables:CLASSES",
}


def score(
    model: FederatedEstimator,
    federation: Consortium,
    scoring: str | Sequence[str] | None = None,
    *,
    by_site: bool = False,
) -> Scores:
    """Score a fitted model on the held-out records of a federation.

    Parameters
    ----------
    model : fitted estimator
        Model to score.
    federation : Federation
        For example ``plan.test(k)``.
    scoring : str or sequence of str, optional
        Names of scores; by default those of the kind of model.
    by_site : bool, default False
        Also request the scores of each site.

    Raises
    ------
    ConfigurationError
        The model cannot be scored, or a name is unknown.
    DataError
        No record has a class that a score compares, or the columns differ from those of the model.
    DisclosureRefused
        Sums are unmasked, and a score would be based on too few patients of a site.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2))
    >>> data = mc.data.TableData(X, (X[:, 0] > 0).astype(int))
    >>> sites = {name: data.take(np.arange(place, 600, 2)) for place, name in enumerate(["lyon", "oslo"])}
    >>> federation = mc.Federation.in_process(sites)
    >>> model = mc.boosting.FedXGBClassifier(3).fit(federation)
    >>> score(model, federation, "accuracy").values["accuracy"] == model.score(data)
    True
    """
    evaluator = find_evaluator(model)
    return evaluator(model, federation, names_of(evaluator, scoring), by_site=by_site)


def find_evaluator(model: object) -> Evaluator:
    """Return the evaluator of a model.

    Raises
    ------
    ConfigurationError
        There is no evaluator for this kind of model.
    """
    attribute: Evaluator | None = getattr(model, "evaluator", None)
    if attribute is not None:
        return attribute
    for base in type(model).__mro__:
        home = EVALUATORS.get(f"{base.__module__}:{base.__qualname__}")
        if home == NUMBERS and getattr(model, "family", "") == "binomial":
            home = CLASSES
        if home is not None:
            module, _, name = home.partition(":")
            evaluator: Evaluator = getattr(importlib.import_module(module), name)
            return evaluator
    raise ConfigurationError(
        f"the model must support scoring; got {type(model).__name__}",
        where="scoring",
        hint="Use a model that predicts, or pass a function of the fitted model and a federation as `scoring`.",
    )


def names_of(evaluator: Evaluator, scoring: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the requested scores.

    Raises
    ------
    ConfigurationError
        A name is unknown.
    """
    if scoring is None:
        return evaluator.usual
    names = (scoring,) if isinstance(scoring, str) else tuple(dict.fromkeys(scoring))
    unknown = [str(name) for name in names if name not in evaluator.names]
    if unknown or not names:
        raise ConfigurationError(
            f"scoring must be one of {', '.join(evaluator.names)}; got {', '.join(unknown) or 'no name'}",
            where="scoring",
        )
    return names
