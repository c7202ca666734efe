"""Files of given models: a table of coefficients, a booster of xgboost, or a saved model of this package.

A table of coefficients is TOML or JSON. All models become messages: arrays that are checked, and no code.
"""

from __future__ import annotations

import contextlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from multicentre.boosting.trees import Ensemble, to_booster
from multicentre.boosting.xgboost_files import read_booster
from multicentre.core.messages import Message, digest_of_model
from multicentre.core.storage import write_atomically
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, MulticentreError
from multicentre.estimator.base import FederatedEstimator
from multicentre.regression.maths import LINKS
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.evaluation.settings import model_of
from multicentre.survival.fitted_models import EVALUATED_KINDS
from multicentre.survival.fitted_models.base import SurvivalModel, pack, unpack
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.fitted_models.derived import Designed, Named
from multicentre.validation.scoring.scores import find_evaluator
from multicentre.validation.scoring.tables import (
    CLASSES,
    NUMBERS,
    BoostedTrees,
    ScoredLinearModel,
    TableClassPart,
    table_model,
)

# A published score has a few dozen coefficients, a booster up to some hundred megabytes of trees.
_MAX_FILE = 2**29
_Finite = Annotated[float, Field(allow_inf_nan=False)]
GivenModel = ScoredLinearModel | BoostedTrees | SurvivalModel


class CoefficientTable(BaseModel):
    """Table of coefficients of a regression, as a paper prints it.

    Parameters
    ----------
    family : {"binomial", "gaussian", "poisson", "gamma", "cox"}
    link : str, optional
        The first link of the family by default: logit, identity, log, log.
    intercept : float, default 0
        Not used for "cox".
    coefficients : dict of str to float
        By column of the sites' tables; a level of a category is ``"sex=m"``.
    centre : dict of str to float
        Values that are subtracted from the columns; 0 by default.
    classes : list of two str, optional
        Names of the two classes, the second one is predicted; "0" and "1" by default.
    times, cumulative_hazard : list of float
        Times, and the cumulative baseline hazard at them; for "cox" only.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    family: Literal["binomial", "gaussian", "poisson", "gamma", "cox"]
    link: str = ""
    intercept: _Finite = 0.0
    coefficients: dict[str, _Finite] = Field(min_length=1)
    centre: dict[str, _Finite] = Field(default_factory=dict)
    classes: list[str] = Field(default=["0", "1"], min_length=2, max_length=2)
    times: list[_Finite] = []
    cumulative_hazard: list[_Finite] = []

    def to_model(self) -> GivenModel:
        """Return the model as a message.

        Raises
        ------
        MulticentreError
            Keys contradict each other, or a value is out of range.
        """
        if extra := self.centre.keys() - self.coefficients.keys():
            raise ConfigurationError(
                f"centre must name columns with a coefficient; got {', '.join(sorted(extra))[:100]}", where="centre"
            )
        return self._cox() if self.family == "cox" else self._linear()

    def _linear(self) -> ScoredLinearModel:
        if self.times or self.cumulative_hazard:
            raise ConfigurationError('times must come with the family "cox"; got another family', where="times")
        links = [str(link) for link in LINKS[self.family]]
        if self.link and self.link not in links:
            raise ConfigurationError(f"link must be one of {', '.join(links)}; got {self.link[:40]!r}", where="link")
        names = tuple(self.coefficients)
        slopes = np.array(list(self.coefficients.values()))
        shift = math.fsum(self.centre.get(name, 0.0) * slope for name, slope in self.coefficients.items())
        model = ScoredLinearModel(
            self.family,
            self.link or links[0],
            names,
            (),
            names,
            tuple(self.classes) if self.family == "binomial" else (),
            (),
            "",
            self.intercept - shift,
            slopes,
            np.zeros(len(names)),
            complete=names,
        )
        model.check()
        return model

    def _cox(self) -> SurvivalModel:
        names = tuple(self.coefficients)
        if self.intercept or self.link:
            raise ConfigurationError(
                "a Cox model must have a baseline in place of an intercept and a link; got one of these", where="model"
            )
        if not 0 < len(self.times) == len(self.cumulative_hazard):
            raise ConfigurationError(
                f"a Cox model must have a cumulative hazard at each of its times; got {len(self.times)} times and "
                f"{len(self.cumulative_hazard)} values",
                where="cumulative_hazard",
                hint="They are the baseline of the publication; minus the log of the baseline survival.",
            )
        slopes = np.array(list(self.coefficients.values()))
        centre = np.array([self.centre.get(name, 0.0) for name in names])
        inner = CoxModel(np.array(self.times), slopes, centre, np.array(self.cumulative_hazard))
        return Named.of(inner.valid(len(names)), names)


def read_model(path: str | Path) -> GivenModel | FederatedEstimator:
    r"""Read a given model: a table of coefficients, a booster of xgboost, or a saved model.

    Parameters
    ----------
    path : path
        File ``.toml`` or ``.json`` with a :class:`CoefficientTable`; ``.json`` of ``Booster.save_model``; or the folder
        of a model that :meth:`~multicentre.estimator.base.FederatedEstimator.save` wrote.

    Returns
    -------
    model
        Accepted by :func:`evaluate_classifier`, :func:`score`, :class:`~multicentre.validation.ClassifierValidation` or
        :class:`~multicentre.survival.SurvivalEvaluation`.

    Raises
    ------
    ConfigurationError
        The file cannot be read, or is not such a model.
    IntegrityError
        The folder of a saved model is damaged.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "score.toml"
    >>> _ = path.write_text('family = "binomial"\nintercept = -2.0\n[coefficients]\nage = 0.05')
    >>> read_model(path).covariates
    ('age',)
    """
    path = Path(path)
    if path.is_dir():
        return FederatedEstimator.load(path)
    try:
        return model_from_mapping(_parsed(path))
    except MulticentreError as error:
        raise error.at(str(path)) from None


def model_from_mapping(content: Mapping[str, Any]) -> GivenModel:
    """Return the model of parsed content; see :func:`read_model`."""
    if "learner" in content:
        ensemble = read_booster(content)
        fields = {name: getattr(ensemble, name) for name in Ensemble.declarations()}
        return BoostedTrees(**fields)
    try:
        table = CoefficientTable.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ConfigurationError(
            f"the key must be that of a table of coefficients; {first['msg'][:1].lower()}{first['msg'][1:]}",
            where=".".join(str(part) for part in first["loc"]) or "model",
            hint="A table of coefficients has the keys family, intercept and coefficients.",
        ) from None
    return table.to_model()


def write_model(model: GivenModel, path: str | Path) -> None:
    """Write a regression or a Cox model as a table of coefficients, or boosted trees in the JSON of xgboost.

    Parameters
    ----------
    model : model
        Model of :func:`read_model`, or a recalibrated one.
    path : path
        File ``.json``; :func:`read_model` reads it again.

    Raises
    ------
    ConfigurationError
        The model has no such form: it has an offset, indicators of missing values, or a formula.
    MissingExtra
        Boosted trees need xgboost.
    """
    if isinstance(model, BoostedTrees):
        to_booster(model).save_model(Path(path))
        return
    if isinstance(model, Named) and isinstance(model.inner, CoxModel):
        _write_table(_cox_table(model.names, model.inner), path)
        return
    if type(model) is not ScoredLinearModel or model.offset or model.marked or model.family == "negative_binomial":
        raise ConfigurationError(
            "the model must be a plain regression, a Cox model with named columns or boosted trees; got "
            f"{type(model).__name__}",
            where="write_model",
        )
    content: dict[str, Any] = {
        "family": model.family,
        "link": model.link,
        "intercept": model.intercept,
        "coefficients": dict(zip(model.covariates, model.coefficients.tolist(), strict=True)),
    }
    content |= {"classes": list(model.classes)} if model.classes else {}
    _write_table(content, path)


def _cox_table(names: Sequence[str], model: CoxModel) -> dict[str, Any]:
    return {
        "family": "cox",
        "coefficients": dict(zip(names, model.coefficients.tolist(), strict=True)),
        "centre": dict(zip(names, model.centre.tolist(), strict=True)),
        "times": model.times.tolist(),
        "cumulative_hazard": model.baseline.tolist(),
    }


def _write_table(content: Mapping[str, Any], path: str | Path) -> None:
    write_atomically(Path(path), json.dumps(content, indent=2, ensure_ascii=False).encode())


def digest_of(model: object) -> str:
    """Return the SHA-256 of a model as sites receive it: its kind and its arrays.

    Parameters
    ----------
    model : fitted estimator or model of :func:`read_model`

    Examples
    --------
    >>> model = model_from_mapping({"family": "gaussian", "coefficients": {"age": 1.0}})
    >>> len(digest_of(model))
    64
    """
    return digest_of_model(*pack_model(model))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        size = path.stat().st_size
        if size > _MAX_FILE:
            raise ConfigurationError(f"the file must have at most {_MAX_FILE:,} bytes; got {size:,}")
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigurationError(f"the model must be a readable file or folder; got none ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # of the parsers, and of the decoding
        raise ConfigurationError(f"the file must be TOML or JSON; parsing failed ({type(error).__name__})") from None
    if not isinstance(content, Mapping):
        raise ConfigurationError("the file must hold a table; got another value")
    return content


def pack_model(model: object) -> tuple[str, bytes]:
    """Return the kind of a model and its bytes, as sites receive them.

    Raises
    ------
    ConfigurationError
        The model is of another kind.
    """
    if isinstance(model, SurvivalEstimator | SurvivalModel):
        return "SurvivalModel", pack(model_of(model))
    with contextlib.suppress(ConfigurationError):
        evaluator = find_evaluator(model)
        if evaluator in (CLASSES, NUMBERS):
            message: Message = table_model(model)
            return type(message).__name__, encode(message)
    raise ConfigurationError(
        f"model must be a regression, boosted trees or a survival model; got {type(model).__name__}",
        where="model",
        hint="Use a table of coefficients, a booster of xgboost, or a saved model of these kinds.",
    )


def unpack_model(kind: str, packed: bytes) -> GivenModel:
    """Return the model of bytes that :func:`pack_model` made, after checks of all arrays.

    Raises
    ------
    MulticentreError
        The kind is unknown, or the bytes are not a valid model.
    """
    if kind == "SurvivalModel":
        return unpack(packed, EVALUATED_KINDS)
    if kind not in TableClassPart.kinds:
        raise ConfigurationError(
            f"kind must be SurvivalModel, {', '.join(TableClassPart.kinds)}; got {kind[:40]!r}", where="kind"
        )
    model: ScoredLinearModel | BoostedTrees = decode(TableClassPart.kinds[kind], packed)
    return model.check()


def describe_model(model: object) -> list[tuple[str, str]]:
    """Return what a reader must know of a model: its kind, and its coefficients or trees, as names and texts.

    Examples
    --------
    >>> describe_model(model_from_mapping({"family": "gaussian", "intercept": 1.0, "coefficients": {"age": 0.5}}))
    [('kind', 'gaussian regression, link identity'), ('intercept', '1'), ('age', '0.5')]
    """
    if isinstance(model, SurvivalEstimator | SurvivalModel):
        inner = model_of(model)
        names = getattr(model, "feature_names_in_", None)
        if isinstance(inner, Named | Designed):
            names = inner.names if isinstance(inner, Named) else inner.inner_columns
            inner = inner.inner
        lines = [("kind", f"{type(inner).__name__}, {len(inner.times)} times up to {inner.times[-1]:g}")]
        if isinstance(inner, CoxModel):
            names = names or [f"column {place + 1}" for place in range(len(inner.coefficients))]
            lines += [(name, f"{value:g}") for name, value in zip(names, inner.coefficients.tolist(), strict=True)]
        return lines
    table: Message = table_model(model)
    if isinstance(table, BoostedTrees):
        return [("kind", f"{len(table.roots)} boosted trees, {table.objective}"), ("columns", ", ".join(table.columns))]
    if not isinstance(table, ScoredLinearModel):
        return [("kind", type(table).__name__)]
    lines = [("kind", f"{table.family} regression, link {table.link}"), ("intercept", f"{table.intercept:g}")]
    return [
        *lines,
        *((name, f"{one:g}") for name, one in zip(table.covariates, table.coefficients.tolist(), strict=True)),
    ]
