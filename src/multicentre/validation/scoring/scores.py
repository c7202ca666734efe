"""Scores of fitted models, and the evaluators of each kind of model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.steps import SitePart


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out records; greater is better, as in scikit-learn.

    Attributes
    ----------
    values : dict of str to float
        Scores by name, over all sites. For a model of several views, ``name/view`` is the score of one view.
    n_records : float
        Number of records behind the scores.
    by_site : dict of str to dict of str to float
        Scores of each site that returns them.
    refused : dict of str to str
        Reasons of the other sites.
    facts : dict of str to float
        Further facts: largest error of a score (``bound_roc_auc``), or share that could not be scored
        (``share_unknown``).
    """

    values: Mapping[str, float]
    n_records: float
    by_site: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


class Evaluator(Protocol):
    """Evaluator of one kind of fitted model on the records of a federation."""

    @property
    def part(self) -> type[SitePart]:
        """Site part that computes the scores."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores; only requested ones are computed."""

    @property
    def usual(self) -> tuple[str, ...]:
        """Names of the default scores."""

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model."""


_HOME = "multicentre.validation.scoring"
# Each line: a kind of estimator, and what scores it; of a class and its bases, the first that is listed is taken.
EVALUATORS: dict[str, str] = {
    "multicentre.survival.fitted:SurvivalEstimator": f"{_HOME}.outcomes:SURVIVAL",
    "multicentre.boosting.estimator:FedXGBClassifier": f"{_HOME}.tables:CLASSES",
    "multicentre.boosting.estimator:FedXGBRegressor": f"{_HOME}.tables:NUMBERS",
    "multicentre.phenotyping.outcome.fitted:OutcomeModel": f"{_HOME}.outcomes:OUTCOMES",
    "multicentre.multiview.ppca.fitted:MvPPCAModel": f"{_HOME}.views:LAWS",
    "multicentre.phenotyping.fitted.model:PhenotypeModel": f"{_HOME}.events:EVENTS",
}


def score(
    model: FederatedEstimator,
    federation: Consortium,
    scoring: str | Sequence[str] | None = None,
    *,
    by_site: bool = False,
) -> Scores:
    """Score a fitted model on the records of a federation, which it should not have seen.

    Parameters
    ----------
    model : fitted estimator
    federation : Federation
        ``plan.test(k)``, say.
    scoring : str or sequence of str, optional
        Names of scores; the usual ones of the model by default.
    by_site : bool, default False
        Ask each site for its own scores too.

    Raises
    ------
    ConfigurationError
        The model cannot be scored, or not by these names.
    DataError
        The records lack a class that a score compares, or have other columns.
    DisclosureRefused
        Without masks, a score would rest on too few of a site's patients.

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
    """Return what scores models of this kind.

    Raises
    ------
    ConfigurationError
        Nothing does.
    """
    own: Evaluator | None = getattr(model, "evaluator", None)
    if own is not None:
        return own
    for one in type(model).__mro__:
        home = EVALUATORS.get(f"{one.__module__}:{one.__qualname__}")
        if home is not None:
            module, _, name = home.partition(":")
            found: Evaluator = getattr(importlib.import_module(module), name)
            return found
    raise ConfigurationError(
        f"{type(model).__name__} predicts nothing that held-out records could be compared with",
        where="scoring",
        hint="Give a model that predicts, or a function of the fitted model and a federation as `scoring`.",
    )


def names_of(evaluator: Evaluator, scoring: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the wanted scores.

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
            f"no such score: {', '.join(unknown)}" if unknown else "no score is named",
            where="scoring",
            hint=f"This model has {', '.join(evaluator.names)}.",
        )
    return names
