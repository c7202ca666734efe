"""Checks of the descriptions that remote sites send at the start of a run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from multicentre.data.schema import MultiViewSchema, agree_schemas
from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError, SchemaMismatch
from multicentre.studies.folder import DIGESTS, RunFolder
from multicentre.studies.sites import is_vertical
from multicentre.studies.study import Study

Told = Mapping[str, Mapping[str, Any]]
VIEWS = "views"
_VERSION = version("multicentre")


def check_told(study: Study, told: Told) -> None:
    """Check that the sites' schemas are equal, except for sites with different views of the same patients.

    Raises
    ------
    SchemaMismatch
        Two sites have different columns, modes or outcomes.
    MessageError
        A site's description is invalid.
    ConfigurationError
        A site has another version of the package.
    """
    for site, facts in told.items():
        _check_kinds(site, facts)
    schemas = {site: facts["schema"] for site, facts in told.items() if "schema" in facts}
    if is_vertical(study) or not schemas:
        return
    if all(schema.get("kind") == VIEWS for schema in schemas.values()):
        agree_schemas({site: _views(site, schema) for site, schema in schemas.items()})
        return
    (first, expected), *others = schemas.items()
    for site, schema in others:
        if schema != expected:
            raise SchemaMismatch(
                f"the schema must be that of {first}; got a different one",
                where=f"{site}, {_differing(schema, expected)}",
                hint="Compare the columns of both sites' files with the study's.",
            )


def keep_told(folder: RunFolder, told: Told, *, resumed: bool) -> None:
    """Write the digests of the sites' data to a run's folder; in a resumed run, compare them first.

    Raises
    ------
    IntegrityError
        A site's data have changed since the start of the run.
    """
    digests = {site: str(facts["data"]) for site, facts in told.items() if "data" in facts}
    stored = folder.read(DIGESTS) if resumed else {}
    for site in stored.keys() & digests.keys():
        if stored[site] != digests[site]:
            raise IntegrityError(
                "data must be unchanged since the start of the run; they differ", where=site, hint="Start a new run."
            )
    folder.write(DIGESTS, {**stored, **digests})
    counts = [
        {"name": site["name"], "patients": told.get(site["name"], {}).get("patients"), "parts": {}}
        for site in folder.facts["sites"]
    ]
    least = max((int(facts["min_patients"]) for facts in told.values()), default=0)
    versions = {site: str(facts["version"]) for site, facts in told.items()}
    folder.update(sites=counts, min_patients=least, versions=versions)


def _check_kinds(site: str, facts: Mapping[str, Any]) -> None:
    """Raise an error if a site's description has invalid types, or if its version differs."""
    patients = facts.get("patients")
    kinds = {"schema": dict, "data": str, "version": str}
    fit = all(isinstance(facts[name], kind) for name, kind in kinds.items() if name in facts)
    if not fit or not (patients is None or (type(patients) is int and patients >= 0)):
        raise MessageError(
            "the site's description must have the declared types",
            where=site,
            hint="Install the same version at every site.",
        )
    if facts.get("version", _VERSION) != _VERSION:
        raise ConfigurationError(
            f"the site must have the coordinator's version of multicentre ({_VERSION}); got {facts['version']}",
            where=site,
            hint="Install the same version everywhere: steps of two versions may compute different values.",
        )


def _views(site: str, schema: Mapping[str, Any]) -> MultiViewSchema:
    try:
        return MultiViewSchema.from_dict({name: value for name, value in schema.items() if name != "kind"})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MessageError(
            "the site's description of its views must be a valid schema",
            where=site,
            hint="Install the same version at every site.",
        ) from None


def _differing(schema: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return ", ".join(name for name in sorted({*schema, *expected}) if schema.get(name) != expected.get(name))
