"""Descriptions that remote sites send at the opening of a run: checks, and their entries in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multicentre.data.schema import MultiViewSchema, agree_schemas
from multicentre.errors import IntegrityError, MessageError, SchemaMismatch
from multicentre.studies.run_folder import DIGESTS, RunFolder
from multicentre.studies.study import Study

SiteDescriptions = Mapping[str, Mapping[str, Any]]
"""Schema, digest of the data, number of patients, minimum of the policy and version of the package, by site."""

VIEWS = "views"


def check_descriptions(study: Study, descriptions: SiteDescriptions) -> None:
    """Check that the sites' schemas are equal, except for sites with different views of the same patients.

    Raises
    ------
    SchemaMismatch
        Two sites have different columns, modes or outcomes.
    MessageError
        A site's description is invalid.
    """
    for site, description in descriptions.items():
        _check_kinds(site, description)
    schemas = {site: one["schema"] for site, one in descriptions.items() if "schema" in one}
    if study.is_vertical or not schemas:
        return
    if all(schema.get("kind") == VIEWS for schema in schemas.values()):
        agree_schemas({site: _views(site, schema) for site, schema in schemas.items()})
        return
    (first, expected), *others = schemas.items()
    for site, schema in others:
        if schema != expected:
            raise SchemaMismatch(
                f"the schema must be that of {first}; got a different one",
                where=f"{site}, {_differing_keys(schema, expected)}",
                hint="Compare the columns of both sites' files with the study's.",
            )


def record_descriptions(folder: RunFolder, descriptions: SiteDescriptions, *, resumed: bool) -> None:
    """Write digests and versions of the sites to a run's folder.

    In a resumed run, the digests of the data are compared first.

    Raises
    ------
    IntegrityError
        A site's data have changed since the start of the run.
    """
    digests = {site: str(one["data"]) for site, one in descriptions.items() if "data" in one}
    stored = folder.read(DIGESTS) if resumed else {}
    for site in stored.keys() & digests.keys():
        if stored[site] != digests[site]:
            raise IntegrityError(
                "data must be unchanged since the start of the run; they differ", where=site, hint="Start a new run."
            )
    folder.write(DIGESTS, {**stored, **digests})
    least = max((int(one["min_patients"]) for one in descriptions.values()), default=0)
    earlier = folder.metadata.get("versions", {}) if resumed else {}
    versions = {site: _joined(earlier.get(site), str(one["version"])) for site, one in descriptions.items()}
    folder.update(min_patients=least, versions={**earlier, **versions})


def _joined(earlier: str | None, version: str) -> str:
    """Return the releases that a site had in the attempts at a run, in order."""
    return version if earlier is None or earlier.split(", ")[-1] == version else f"{earlier}, {version}"


def _check_kinds(site: str, description: Mapping[str, Any]) -> None:
    """Raise an error if a site's description has invalid types."""
    kinds = {"schema": dict, "data": str, "version": str}
    if not all(isinstance(description[name], kind) for name, kind in kinds.items() if name in description):
        raise MessageError(
            "the site's description must have the declared types",
            where=site,
            hint="Install releases of the same wire protocol at every site.",
        )


def _views(site: str, schema: Mapping[str, Any]) -> MultiViewSchema:
    try:
        return MultiViewSchema.from_dict({name: value for name, value in schema.items() if name != "kind"})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MessageError(
            "the site's description of its views must be a valid schema",
            where=site,
            hint="Install releases of the same wire protocol at every site.",
        ) from None


def _differing_keys(schema: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return ", ".join(name for name in sorted({*schema, *expected}) if schema.get(name) != expected.get(name))
