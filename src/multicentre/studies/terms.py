"""What all sites of a study agreed to, as one hash: the same wherever the files lie."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from multicentre.studies.study import Study


def digest_of(study: Study) -> str:
    """Return the SHA-256 of a study's terms: method, parameters, schema, privacy, rounds and the names of its sites.

    Not part of it is what each reader has of its own: paths, policies, the folder of results, with what a simulated run
    is compared, and how long the coordinator waits for a site that is away.

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
    return hashlib.sha256(json.dumps(agreed_in(study), sort_keys=True).encode()).hexdigest()


def agreed_in(study: Study) -> dict[str, Any]:
    """Return a study's terms as plain values; :func:`digest_of` is their hash."""
    agreed = {
        "study": study.about.model_dump(exclude={"output", "description"}),
        "parameters": study.parameters,
        "data": study.data.model_dump(),
        "sites": sorted(study.sites),
        "privacy": study.privacy.model_dump(exclude={"pseudonym_key", "policy", "sites"}),
        "run": study.run.model_dump(exclude={"strict", "compare", "holdout", "patience_s"}),
        "validation": study.validation and study.validation.model_dump(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(agreed, sort_keys=True, default=str))
    return plain
