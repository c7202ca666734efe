"""Reading of the study file ``study.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from multicentre.core.parsing import read_toml
from multicentre.errors import ConfigurationError
from multicentre.studies.checks import check_study
from multicentre.studies.invalid_keys import invalid_keys
from multicentre.studies.saved_models import find_models
from multicentre.studies.study import Study
from multicentre.studies.tables import AnalysisTable, DataTable

# Name of the validation of a given model in study files, and the method of each kind of outcome.
VALIDATE = "validate"
VALIDATORS = {
    "survival": "survival-evaluation",
    "class": "classifier-validation",
    "number": "regressor-validation",
}


def read_study(path: str | Path) -> Study:
    """Read ``study.toml``; relative paths are relative to its folder.

    Raises
    ------
    ConfigurationError
        The file is missing or is not TOML, a key is unknown or missing, or a value is invalid.
    """
    path = Path(path)
    content = read_toml(path, "the study")
    try:
        return study_from_mapping(content, folder=path.parent)
    except ConfigurationError as error:
        raise error.at(str(path)) from None


def study_from_mapping(content: Mapping[str, Any], *, folder: Path | None = None) -> Study:
    """Create a study from the tables of ``study.toml``.

    Parameters
    ----------
    content : mapping
    folder : Path, optional
        Base of relative paths; the current folder by default.

    Raises
    ------
    ConfigurationError
        A key is unknown or missing, or a value is invalid; the message names it.

    Examples
    --------
    >>> study = study_from_mapping({"study": {"name": "pilot", "method": "fed-mv-ppca"}, "sites": {"lyon": {}}})
    >>> study.name, study.run.quorum
    ('pilot', 'all')
    """
    try:
        study = Study.model_validate(dict(content), context={"folder": folder or Path()})
    except ValidationError as error:
        raise invalid_keys(error, Study, content, file="study", hint="All keys: multicentre docs study-file") from None
    base, data = folder or Path(), study.data
    about = study.about.model_copy(update={"method": _method_of(study.about.method, data)})
    parameters = find_models(about.method, study.parameters, base)
    named = (one.model_copy(update={"method": _method_of(one.method, data)}) for one in study.analyses)
    analyses = tuple(_with_models(each, base) for each in named)
    study = study.model_copy(update={"about": about, "parameters": parameters, "analyses": analyses})
    check_study(study)
    return study.with_exposure_first()


def _method_of(method: str, data: DataTable) -> str:
    """Return the registered method; "validate" is that of the study's kind of outcome.

    Raises
    ------
    ConfigurationError
        The study has no outcome, or outcomes of two kinds.
    """
    if method != VALIDATE:
        return method
    kinds = {"survival": data.survival is not None, "class": False, "number": False}
    if data.table is not None:
        kinds[data.table.kind] = True
    methods = [VALIDATORS[kind] for kind, is_declared in kinds.items() if is_declared]
    if len(methods) != 1:
        raise ConfigurationError(
            f'method "{VALIDATE}" must have one kind of outcome in the study; got {len(methods)}',
            where="method",
            hint=f"Name the method itself: {', '.join(VALIDATORS.values())}.",
        )
    return methods[0]


def _with_models(analysis: AnalysisTable, folder: Path) -> AnalysisTable:
    try:
        parameters = find_models(analysis.method, analysis.parameters, folder)
    except ConfigurationError as error:
        raise error.at(f"analysis {analysis.name}") from None
    return analysis.model_copy(update={"parameters": parameters})
