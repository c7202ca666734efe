"""What all sites of a study agreed to, as one hash: the same wherever the files lie."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from multicentre.studies.study import Study

_LOCAL = {"study": {"output", "description"}, "privacy": {"pseudonym_key", "policy", "sites"}, "run": {"strict"}}


def digest_of(study: Study) -> str:
    """Return the SHA-256 of a study's terms: method, parameters, schema, privacy, rounds and the names of its sites.

    Paths, policies and the folder of results are each reader's own and not part of it.

    Examples
    --------
    >>> about, data = {"name": "pilot", "method": "fed-cox"}, {"survival": {"columns": ["age"]}}
    >>> said = {"study": about, "data": data, "sites": {"lyon": {"file": "lyon.csv"}}}
    >>> there = {**said, "sites": {"lyon": {"file": "elsewhere/table.csv"}}}
    >>> digest_of(Study.from_mapping(said)) == digest_of(Study.from_mapping(there))
    True
    >>> digest_of(Study.from_mapping({**said, "parameters": {"ties": "breslow"}})) == digest_of(
    ...     Study.from_mapping(said)
    ... )
    False
    """
    agreed = {
        "study": _shared("study", study.about.model_dump()),
        "parameters": study.parameters,
        "data": study.data.model_dump(),
        "sites": sorted(study.sites),
        "privacy": _shared("privacy", study.privacy.model_dump()),
        "run": _shared("run", study.run.model_dump()),
        "validation": study.validation and study.validation.model_dump(),
    }
    return hashlib.sha256(json.dumps(agreed, sort_keys=True, default=str).encode()).hexdigest()


def _shared(table: str, content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in _LOCAL[table]}
