"""What scoring a fitted model gives, and how each kind of model is scored."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from multicentre.estimator import FederatedEstimator
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out records; greater is better, as in scikit-learn.

    Attributes
    ----------
    values : dict of str to float
        Scores by name, of all sites together.
    n_records : float
        Records behind them.
    by_site : dict of str to dict of str to float
        Each site's own scores, where it lets them out; empty where it does not.
    """

    values: Mapping[str, float]
    n_records: float
    by_site: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Evaluator(Protocol):
    """How one kind of fitted model is scored on the records of a federation."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores; those that are not asked for cost nothing."""

    @property
    def usual(self) -> tuple[str, ...]:
        """Those that are taken when none is named."""

    def __call__(self, model: Any, federation: Federation, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score a fitted model."""


# Each line: a kind of estimator, and what scores it; the first that fits is taken.
EVALUATORS: dict[str, str] = {
    "multicentre.survival.fitted:SurvivalEstimator": "multicentre.validation.scoring.survival:SURVIVAL",
}


def score(
    model: FederatedEstimator,
    federation: Federation,
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
    for kind, evaluator in EVALUATORS.items():
        if any(f"{one.__module__}:{one.__qualname__}" == kind for one in type(model).__mro__):
            module, _, name = evaluator.partition(":")
            found: Evaluator = getattr(importlib.import_module(module), name)
            return found
    raise ConfigurationError(
        f"nothing is known of how {type(model).__name__} does on held-out records",
        where="scoring",
        mend="Add a line to multicentre.validation.scoring.scores.EVALUATORS.",
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
    unknown = [name for name in names if name not in evaluator.names]
    if unknown or not names:
        raise ConfigurationError(
            f"no such score: {', '.join(unknown)}" if unknown else "no score is named",
            where="scoring",
            mend=f"This model has {', '.join(evaluator.names)}.",
        )
    return names
