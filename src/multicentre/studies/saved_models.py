"""Fitted models as parameters of a study: the file names their folders, the terms hold their SHA-256."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from multicentre.core.model_files import read_digest
from multicentre.errors import ConfigurationError, IntegrityError, MissingExtra, MulticentreError
from multicentre.estimator.registry import METHODS

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator

_EXPECTED = {
    "model": "the path of a saved model's folder",
    "models": "a list of paths of saved models' folders",
}


@dataclass(frozen=True)
class SavedModelPath:
    """Folder of a saved model that a study names.

    Parameters
    ----------
    parameter : str
        Parameter of the method, for errors.
    path : Path
        Absolute path of the folder.
    """

    parameter: str
    path: Path

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the model at the first access; later changes of the files are refused.

        Raises
        ------
        IntegrityError
            The files are missing or damaged.
        """
        with self._locate_errors():
            return read_digest(self.path, version("multicentre"))

    def load(self) -> FederatedEstimator:
        """Return the model.

        Raises
        ------
        IntegrityError
            The files are missing or damaged, or were changed since the first access to the digest.
        """
        from multicentre.estimator.base import FederatedEstimator

        agreed = self.sha256
        with self._locate_errors():
            model = FederatedEstimator.load(self.path)
            # Read after loading, so that a change between the two reads is found too.
            current = read_digest(self.path, version("multicentre"))
        if current != agreed:
            raise IntegrityError(
                f"the model must have SHA-256 {agreed}, as in the study's terms; got {current}",
                where=f"parameters.{self.parameter}, {self.path}",
                hint="Restore the model, or run the study with the changed model as a new run.",
            )
        return model

    @contextlib.contextmanager
    def _locate_errors(self) -> Iterator[None]:
        try:
            yield
        except MulticentreError as error:
            raise error.at(f"parameters.{self.parameter}") from None


def find_models(method: str, parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a study's parameters with the paths of models, relative to its folder, as SavedModelPath.

    Parameters
    ----------
    method : str
    parameters : mapping from str to value
    folder : Path

    Raises
    ------
    ConfigurationError
        The value of a parameter for models is not a path, or not a list of paths.

    Examples
    --------
    >>> find_models("survival-evaluation", {"n_bins": 64, "model": "/models/cox"}, Path())["model"].path.name
    'cox'
    """
    kinds = _kinds_of_models(method)
    return {
        name: _paths(name, value, kinds[name], folder) if name in kinds else value for name, value in parameters.items()
    }


def _kinds_of_models(method: str) -> Mapping[str, Literal["model", "models"]]:
    from multicentre.estimator.base import find_estimator

    # A method that is unknown or not installed completely is refused when its estimator is made.
    if method in METHODS:
        with contextlib.suppress(MissingExtra):
            return find_estimator(method).model_parameters
    return {}


def _paths(name: str, value: Any, kind: Literal["model", "models"], folder: Path) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    is_list = isinstance(value, list | tuple)
    if is_list != (kind == "models") or not all(isinstance(one, str | Path) and str(one) for one in values):
        raise ConfigurationError(
            f"the value must be {_EXPECTED[kind]}; got {value!r}",
            where=f"parameters.{name}",
            hint="Save the fitted model with its method save, and give the folder relative to the study file.",
        )
    paths = [SavedModelPath(name, (folder / one).absolute()) for one in values]
    return paths if is_list else paths[0]


def replace_models(parameters: Mapping[str, Any], change: Callable[[SavedModelPath], Any]) -> dict[str, Any]:
    """Return parameters with a function applied to each of their models.

    Examples
    --------
    >>> replace_models({"model": SavedModelPath("model", Path("cox")), "n_bins": 64}, lambda model: model.path.name)
    {'model': 'cox', 'n_bins': 64}
    """

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(one) for one in value]
        return change(value) if isinstance(value, SavedModelPath) else value

    return {name: replaced(value) for name, value in parameters.items()}


def list_models(parameters: Mapping[str, Any]) -> list[SavedModelPath]:
    """Return the models among the parameters of a study."""
    models: list[SavedModelPath] = []
    replace_models(parameters, models.append)
    return models
