"""Terms of a study, which all sites agree to, and their hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from multicentre.core.protocol import protocol_of
from multicentre.studies.planned_steps import exchanged_steps
from multicentre.studies.saved_models import replace_models
from multicentre.studies.study import Study


def digest_of(study: Study) -> str:
    """Return the SHA-256 of a study's terms: method, parameters, schema, privacy, rounds, protocol and names of sites.

    Excluded are labels of variables and settings that differ between readers: paths, policies, the folder of results,
    the comparison of a simulated run, and the time that the coordinator waits for an absent site. A fitted model among
    the parameters is included by the SHA-256 of its files.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> about, data = {"name": "pilot", "method": "fed-cox"}, {"survival": {"columns": ["age"]}}
    >>> content = {"study": about, "data": data, "sites": {"lyon": {"file": "lyon.csv"}}}
    >>> moved = {**content, "sites": {"lyon": {"file": "elsewhere/table.csv"}}}
    >>> digest_of(study_from_mapping(content)) == digest_of(study_from_mapping(moved))
    True
    >>> digest_of(study_from_mapping({**content, "parameters": {"ties": "breslow"}})) == digest_of(
    ...     study_from_mapping(content)
    ... )
    False
    """
    return hashlib.sha256(json.dumps(study_terms(study), sort_keys=True).encode()).hexdigest()


def study_terms(study: Study) -> dict[str, Any]:
    """Return a study's terms as plain values; :func:`digest_of` is their hash.

    Keys without a value are left out, so that a release which adds an optional key leaves the terms as they are.

    Raises
    ------
    IntegrityError
        The files of a model among the parameters are missing or damaged.
    """
    terms: dict[str, Any] = {
        "study": study.about.model_dump(exclude={"output"}, exclude_none=True),
        "parameters": _digests(study.parameters),
        "data": study.data.model_dump(exclude={"labels"}, exclude_none=True),
        "sites": sorted(study.sites),
        "privacy": study.privacy.model_dump(exclude={"pseudonym_key", "policy", "sites"}, exclude_none=True),
        "run": study.run.model_dump(exclude={"strict", "compare", "holdout", "patience_s"}, exclude_none=True),
        "protocol": study_protocol(study),
    }
    if study.validation is not None:
        terms["validation"] = study.validation.model_dump(exclude_none=True)
    if study.analyses:
        terms["analyses"] = [
            {**analysis.model_dump(exclude_none=True), "parameters": _digests(analysis.parameters)}
            for analysis in study.analyses
        ]
    plain: dict[str, Any] = json.loads(json.dumps(terms, sort_keys=True, default=str))
    return plain


def study_protocol(study: Study) -> dict[str, str]:
    """Return the number of the wire protocol and a digest of each method that a study uses."""
    return protocol_of(exchanged_steps(study))


def _digests(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the SHA-256 of fitted models in place of the models."""
    return replace_models(parameters, lambda model: {"sha256": model.sha256})
