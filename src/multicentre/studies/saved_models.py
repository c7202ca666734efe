"""Given models as parameters of a study: the terms hold the SHA-256 of their arrays as sites receive them.

A study names a model by a path, by a path with its SHA-256, or holds it: as a table of coefficients, or packed. Only a
model that the study holds, or whose SHA-256 it states, can be approved. A site compares each model that it receives
with the approved SHA-256, and reads no file that the study names.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from multicentre.errors import ConfigurationError, IntegrityError, MissingExtra, MulticentreError
from multicentre.estimator.registry import METHODS

_EXPECTED = {
    "model": "the path of a model, a table with its file and sha256, or a table of coefficients",
    "models": "a list of paths of models",
}
_HOLD = "Save a fitted model with its method save, and give the path relative to the study file."


@dataclass(frozen=True)
class ModelDigest:
    """A model of which only the SHA-256 is known here, as at a site that approves a study."""

    sha256: str


@dataclass(frozen=True)
class ModelParameter:
    """A given model among the parameters of a study.

    Parameters
    ----------
    parameter : str
        Parameter of the method, for errors.
    path : Path, optional
        Absolute path of a file, or of the folder of a saved model; None for a reader who has only the digest.
    stated : str, default ""
        SHA-256 that the study states.
    content : mapping, optional
        Table of coefficients, or packed model, that the study holds.
    """

    parameter: str
    path: Path | None = None
    stated: str = ""
    content: Mapping[str, Any] | None = None

    def __hash__(self) -> int:
        return hash((self.parameter, self.path, self.stated))

    def without_file(self) -> ModelParameter:
        """Return the model for a site, which reads no file that a study names."""
        return replace(self, path=None)

    @property
    def is_fixed(self) -> bool:
        """True if the study fixes the model for readers without the file."""
        return bool(self.stated) or self.content is not None

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 that the study states, or that of the model at the first access; later changes are refused.

        Raises
        ------
        MulticentreError
            The model cannot be read.
        """
        return self.stated or self._digest(self._read())

    def load(self) -> Any:
        """Return the model; its digest alone if the study states it and the file is not here.

        Raises
        ------
        MulticentreError
            The model cannot be read.
        IntegrityError
            It is not the one that the study states, or was changed since the first access to the digest.
        """
        if self.path is None and self.content is None:
            return ModelDigest(self.stated)
        agreed, model = self.sha256, self._read()
        if (current := self._digest(model)) != agreed:
            raise IntegrityError(
                f"the model must have SHA-256 {agreed}, as in the study's terms; got {current}",
                where=f"parameters.{self.parameter}, {self.path}",
                hint="Restore the model, or run the study with the changed model as a new run.",
            )
        return model

    def packed(self) -> dict[str, Any]:
        """Return the model in a form that the study can hold for readers without the file.

        Raises
        ------
        MulticentreError
            The model cannot be read.
        """
        from multicentre.survival.estimator import SurvivalEstimator
        from multicentre.validation.external.model_files import pack_model

        if self.content is not None:
            return dict(self.content)
        model = self.load()
        if isinstance(model, ModelDigest | SurvivalEstimator):  # an estimator's means and rule for missing values stay
            raise ConfigurationError(
                f"the model must be a file that the study can hold; got {type(model).__name__}",
                where=f"parameters.{self.parameter}",
                hint="Use a table of coefficients, or run the study on the coordinator's machine: --coordinator.",
            )
        kind, packed = pack_model(model)
        return {"kind": kind, "packed": base64.b64encode(packed).decode()}

    def plain(self) -> Any:
        """Return the value as TOML holds it, with an absolute path."""
        if self.content is not None:
            return dict(self.content)
        return {"file": self.path, "sha256": self.stated} if self.stated else self.path

    def _read(self) -> Any:
        from multicentre.validation.external.model_files import model_from_mapping, read_model, unpack_model

        with self._locate_errors():
            if self.content is None:
                return read_model(self.path or Path())
            if "packed" not in self.content:
                return model_from_mapping(self.content)
            try:
                packed = base64.b64decode(str(self.content["packed"]), validate=True)
            except binascii.Error:
                raise ConfigurationError("packed must be base64; got another text", where="packed") from None
            return unpack_model(str(self.content.get("kind")), packed)

    def _digest(self, model: Any) -> str:
        from multicentre.validation.external.model_files import digest_of

        with self._locate_errors():
            return digest_of(model)

    @contextlib.contextmanager
    def _locate_errors(self) -> Iterator[None]:
        try:
            yield
        except MulticentreError as error:
            raise error.at(f"parameters.{self.parameter}") from None


def find_models(method: str, parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a study's parameters with each model as a ModelParameter; paths are relative to the folder.

    Parameters
    ----------
    method : str
    parameters : mapping from str to value
    folder : Path

    Raises
    ------
    ConfigurationError
        The value of a parameter for models is none of the forms of a model, or not a list of paths.

    Examples
    --------
    >>> find_models("survival-evaluation", {"n_bins": 64, "model": "/models/cox"}, Path())["model"].path.name
    'cox'
    """
    kinds = _kinds_of_models(method)
    return {
        name: _models(name, value, kinds[name], folder) if name in kinds else value
        for name, value in parameters.items()
    }


def _kinds_of_models(method: str) -> Mapping[str, Literal["model", "models"]]:
    from multicentre.estimator.base import find_estimator

    # A method that is unknown or not installed completely is refused when its estimator is made.
    if method in METHODS:
        with contextlib.suppress(MissingExtra):
            return find_estimator(method).model_parameters
    return {}


def _models(name: str, value: Any, kind: Literal["model", "models"], folder: Path) -> Any:
    is_list = isinstance(value, list | tuple)
    models = [_model(name, one, folder) for one in (value if is_list else [value])]
    if is_list != (kind == "models") or None in models:
        raise ConfigurationError(
            f"the value must be {_EXPECTED[kind]}; got {str(value)[:100]!r}", where=f"parameters.{name}", hint=_HOLD
        )
    return models if is_list else models[0]


def _model(name: str, value: Any, folder: Path) -> ModelParameter | None:
    """Return the model of a value; None if it is none of the forms of a model."""
    if isinstance(value, str | Path) and str(value):
        return ModelParameter(name, (folder / value).absolute())
    if not isinstance(value, Mapping):
        return None
    if "file" not in value:
        return ModelParameter(name, content=dict(value))
    file, stated = value["file"], value.get("sha256")
    digits = isinstance(stated, str) and len(stated) == 64 and set(stated) <= set("0123456789abcdef")
    if not (isinstance(file, str | Path) and str(file) and digits and len(value) == 2):
        return None
    return ModelParameter(name, (folder / file).absolute(), str(stated))


def replace_models(parameters: Mapping[str, Any], change: Callable[[ModelParameter], Any]) -> dict[str, Any]:
    """Return parameters with a function applied to each of their models.

    Examples
    --------
    >>> replace_models({"model": ModelParameter("model", Path("cox")), "n_bins": 64}, lambda model: model.path.name)
    {'model': 'cox', 'n_bins': 64}
    """

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(one) for one in value]
        return change(value) if isinstance(value, ModelParameter) else value

    return {name: replaced(value) for name, value in parameters.items()}


def list_models(parameters: Mapping[str, Any]) -> list[ModelParameter]:
    """Return the models among the parameters of a study."""
    models: list[ModelParameter] = []
    replace_models(parameters, models.append)
    return models


def check_models_are_fixed(name: str, parameters: Mapping[str, Any], *, reads_files: bool) -> None:
    """Check that a study for real sites fixes each of its models, and sends one model per session.

    Parameters
    ----------
    name : str
        Analysis; empty for a study of a single one.
    parameters : mapping from str to value
    reads_files : bool
        Read the model, to state its SHA-256 in the error; only for a study of the caller's own.

    Raises
    ------
    ConfigurationError
        A model is named by its path alone, or is one of a list.
    """
    where = f"analysis {name}, parameters" if name else "parameters"
    for key, value in parameters.items():
        if isinstance(value, list) and list_models({key: value}):
            raise ConfigurationError(
                "a study over real sites must send one model; it has a list of models",
                where=f"{where}.{key}",
                hint="Run the study in one process, without --coordinator.",
            )
        if isinstance(value, ModelParameter) and not value.is_fixed:
            digest = value.sha256 if reads_files else "..."
            raise ConfigurationError(
                "a study over real sites must state the SHA-256 of its model; it has a path alone",
                where=f"{where}.{key}",
                hint=f'Write {key} = {{file = "{value.path}", sha256 = "{digest}"}}: sites compare the model that they '
                "receive with the one that they approved.",
            )
