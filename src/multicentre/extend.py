"""Names that the author of a method needs, in one module.

A method consists of three parts: messages that declare what travels, a :class:`SitePart` that runs next to the
patients, and a :class:`FederatedEstimator` that runs the rounds. The page "A method in 60 lines" builds one. A model of
an outcome of classes needs its likelihood only, a :class:`SingleIndexLikelihood`; the page shows this first.
:mod:`multicentre.testing` checks that a method keeps what the package promises of every method.

Examples
--------
>>> from dataclasses import dataclass
>>> import numpy as np
>>> from multicentre.extend import Nothing, Release, SitePart, number, step
>>> @dataclass(frozen=True)
... class AgeSum(Release):
...     total: float = number("sum of ages, years", bound=1e6)
...     n: float = number("patients", bound=1e6)
>>> class MeanAge(SitePart):
...     method, holds = "mean-age", np.ndarray
...     @step(releases=AgeSum, when="once", summed=True)
...     def add_ages(self, request: Nothing) -> AgeSum:
...         "Add the ages."
...         return AgeSum(float(self.data.sum()), float(len(self.data)), patients=len(self.data))
>>> sorted(MeanAge.steps())
['add_ages']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.core.messages import Message, Nothing, array, arrays, count, flag, number, text, texts
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
    SchemaMismatch,
)
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import SEED, Flag, Integer, OneOf, Real, Where
from multicentre.estimator.saved import PLAIN, Saved, saved_message
from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.regression.categorical.estimator import SingleIndexRegression
    from multicentre.regression.categorical.likelihoods import SingleIndexLikelihood, register_likelihood
    from multicentre.regression.categorical.site import CategoricalSite

__all__ = [
    "PLAIN",
    "SEED",
    "Acknowledgement",
    "CategoricalSite",
    "ConfigurationError",
    "DataError",
    "DisclosureRefused",
    "FederatedEstimator",
    "Figure",
    "Flag",
    "Integer",
    "IntegrityError",
    "Message",
    "Metric",
    "MulticentreError",
    "Nothing",
    "OneOf",
    "QuorumLost",
    "Real",
    "RefusedByPolicy",
    "Release",
    "Saved",
    "SchemaMismatch",
    "Session",
    "SingleIndexLikelihood",
    "SingleIndexRegression",
    "SitePart",
    "Where",
    "array",
    "arrays",
    "count",
    "flag",
    "number",
    "register_likelihood",
    "saved_message",
    "step",
    "text",
    "texts",
]

_MODULES = {
    "CategoricalSite": "regression.categorical.site",
    "SingleIndexLikelihood": "regression.categorical.likelihoods",
    "SingleIndexRegression": "regression.categorical.estimator",
    "register_likelihood": "regression.categorical.likelihoods",
}

__getattr__, _ = lazy_names("multicentre", _MODULES, __all__)
