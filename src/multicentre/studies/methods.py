"""Estimators and readers of studies: a method by its name, with the parameters that its study gives."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from multicentre.estimator.registry import METHODS, find_estimator
from multicentre.federation.errors import ConfigurationError, MissingExtra
from multicentre.privacy.policy import unknown_key
from multicentre.studies.models import SavedModelPath, replace_models

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.sites import SiteData
    from multicentre.studies.study import Study

# Type of data of a site part -> function that reads one site of a study. The names of base classes count too.
_READERS = {
    "multicentre.data.multiview:MultiViewData": "multicentre.studies.sites:read_multiview_site",
    "multicentre.data.events.tensor:EventTensor": "multicentre.studies.sites:read_event_site",
    "multicentre.data.survival:SurvivalData": "multicentre.studies.sites:read_survival_site",
    "multicentre.data.tabledata:TableData": "multicentre.studies.sites:read_table_site",
}


def find_reader(name: str) -> Callable[[Study, str], SiteData]:
    """Return the function that reads a site's files for a method, chosen by the type of data of its site part.

    Raises
    ------
    ConfigurationError
        No method has this name, or a study file cannot describe its type of data.
    """
    holds = find_estimator(name).site_part.holds
    for kind in holds.__mro__:
        path = _READERS.get(f"{kind.__module__}:{kind.__qualname__}")
        if path is not None:
            module, _, function = path.partition(":")
            reader: Callable[[Study, str], SiteData] = getattr(importlib.import_module(module), function)
            return reader
    raise ConfigurationError(
        f"data of a study must be views, events, times to an event or a table; {name} works on {holds.__name__}",
        where="method",
        hint="Fit the estimator in Python.",
    )


def is_aligned(name: str) -> bool:
    """Return True if the sites of a method hold different views of the same patients."""
    if name not in METHODS:
        return False
    with contextlib.suppress(MissingExtra):
        return find_estimator(name).aligned_by is not None
    return False


def make_estimator(study: Study) -> FederatedEstimator:
    """Return the unfitted estimator of a study.

    The study's seed becomes ``random_state``, and the first of its identifiers ``person_key``, unless ``[parameters]``
    says otherwise. Models among the parameters are loaded.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown.
    IntegrityError
        The files of a model are missing, damaged or changed.
    """
    kind = find_estimator(study.method)
    parameter_names = [name for name in inspect.signature(kind).parameters if name != "kwargs"]
    for name in study.parameters:
        if name not in parameter_names:
            raise unknown_key(name, parameter_names, f"parameters of {study.method}")
    usual: dict[str, Any] = {"random_state": study.about.seed, "person_key": (study.data.identifiers or [None])[0]}
    usual = {name: value for name, value in usual.items() if name in parameter_names and value is not None}
    parameters = replace_models(study.parameters, SavedModelPath.load)
    try:
        return kind(**{**usual, **parameters})
    except TypeError as error:
        raise ConfigurationError(
            f"parameters must fit the estimator ({error})", where="parameters", hint="See the method's documentation."
        ) from None
