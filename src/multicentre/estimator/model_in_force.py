"""The model in force: what the parameters of an estimator, defaults included, mean for a reader of its results.

An estimator declares phrases next to the ranges of its parameters. Methods paragraphs, captions, printed summaries and
the terminal print the sentence that follows from them, and no other description of a model. A parameter without a
phrase is stated with its name and value, so that none can be forgotten.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from multicentre.data.categories import split_level

Phrase = str | Mapping[Any, str] | Callable[[Any], str]
"""Text with ``{}`` for the value (nothing for None), texts by value, or a function of the estimator; "" for none."""

Phrases = Mapping[str, Phrase]
# Longest value of a parameter that a sentence states; of a longer one it states the number of entries.
LONGEST = 60
COMPUTING: Phrases = dict.fromkeys(("max_iter", "tol"), "")
"""Phrases of parameters that end the rounds and do not change the model."""

_SHARED: Phrases = {
    "missing": {
        "complete": "incomplete records left out",
        "indicator": "missing entries filled with the mean, with an indicator of missingness per variable",
        "mean": "missing entries filled with the mean",
        "native": "missing entries handled by the trees",
    },
    "confidence_level": lambda model: f"{100 * model.confidence_level:g} % confidence intervals",
    "random_state": "seed {}",
}


class HasModelInForce:
    """Mixin of estimators that state their model."""

    model_phrases: ClassVar[Phrases] = {}
    """Phrases by parameter, in the order of the sentence; those of base classes follow."""

    def model_in_force(self) -> dict[str, str]:
        """Return what each parameter means for the model, by parameter; a fitted model adds what the fit determined.

        Examples
        --------
        >>> import multicentre as mc
        >>> facts = mc.survival.FedCox(alpha=2.0).model_in_force()
        >>> facts["times"], facts["ties"], facts["alpha"]
        ('a separate baseline hazard per site (stratified by site)', "ties by Efron's method", 'ridge penalty 2')
        """
        phrases: dict[str, Phrase] = {}
        for kind in (*type(self).__mro__, HasModelInForce):
            declared = _SHARED if kind is HasModelInForce else vars(kind).get("model_phrases", {})
            phrases = {**phrases, **{name: phrase for name, phrase in declared.items() if name not in phrases}}
        parameters = list(inspect.signature(type(self)).parameters)
        ordered = [name for name in phrases if name in parameters]
        ordered += [name for name in parameters if name not in phrases and name != "kwargs"]
        facts = {name: self._fact(name, phrases.get(name)) for name in ordered}
        facts["references"] = self._references_in_force() if self._is_fitted() else ""
        return {name: fact for name, fact in facts.items() if fact}

    def describe_model(self) -> str:
        """Return the model in force in one sentence: its name, and what its parameters mean.

        Examples
        --------
        >>> import multicentre as mc
        >>> mc.regression.FedLogisticRegression().describe_model()
        'Logistic regression (family binomial, link logit); model-based standard errors; one intercept for all \
sites; no penalty; incomplete records left out; 95 % confidence intervals.'
        """
        return f"{'; '.join([self._model_name(), *self.model_in_force().values()])}."

    def _model_name(self) -> str:
        """Return the name of the model, by default the first words of the documentation."""
        documentation = inspect.cleandoc(type(self).__doc__ or type(self).__name__)
        return re.split(r"[:,]|\.$| over all sites", documentation.partition("\n")[0])[0]

    def _reference_levels(self) -> Mapping[str, str]:
        """Return the level without a column of each category of the fit."""
        return {}

    def _references_in_force(self) -> str:
        levels = [f"{name} {level}" for name, level in self._reference_levels().items()]
        return f"reference levels: {', '.join(levels)}" if levels else ""

    def _is_fitted(self) -> bool:
        return "history_" in vars(self)

    def _fact(self, name: str, phrase: Phrase | None) -> str:
        value = getattr(self, name)
        if callable(phrase):
            return phrase(self)
        if isinstance(phrase, Mapping) and isinstance(value, str | bool | int | float | None) and value in phrase:
            return phrase[value]
        if phrase == "" or value is None or (isinstance(value, tuple | list | Mapping) and not value):
            return ""
        return phrase.format(_plain(value)) if isinstance(phrase, str) else f"{name} = {_plain(value)}"


def reference_levels(levels: tuple[str, ...], columns: tuple[str, ...]) -> dict[str, str]:
    """Return the level without a column of each category that has columns.

    Examples
    --------
    >>> reference_levels(("arm=old", "arm=new", "sex=f", "sex=m"), ("age", "arm=new"))
    {'arm': 'old'}
    """
    used = {split_level(name)[0] for name in columns if name in levels}
    absent = [split_level(name) for name in levels if name not in columns]
    return {category: level for category, level in absent if category in used}


def _plain(value: Any) -> str:
    """Return a value as a text of a sentence; of a model its class, and of a long value the number of its entries."""
    if isinstance(value, HasModelInForce):
        return type(value).__name__
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    else:
        text = ", ".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) <= LONGEST:
        return text
    return f"{len(value)} entries" if isinstance(value, list | tuple | Mapping) else f"{text[: LONGEST - 1]}…"
