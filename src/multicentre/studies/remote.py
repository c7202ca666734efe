"""What sites on machines of their own tell when a run is opened: whether they fit together, or changed."""

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
    """Check that the sites describe their data alike; sites with different views of the same patients need not.

    Raises
    ------
    SchemaMismatch
        Two sites describe their columns, modes or outcomes differently.
    MessageError
        What a site told cannot be read.
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
                f"the data are described differently from those of {first}",
                where=f"{site}, {_differing(schema, expected)}",
                hint="Compare the columns of both sites' files with the study's.",
            )


def keep_told(folder: RunFolder, told: Told, *, resumed: bool) -> None:
    """Write to a run's folder what identifies the sites' data, or hold it against what stands there.

    Raises
    ------
    IntegrityError
        A site's data are not those that the run began with.
    """
    digests = {site: str(facts["data"]) for site, facts in told.items() if "data" in facts}
    known = folder.read(DIGESTS) if resumed else {}
    for site in known.keys() & digests.keys():
        if known[site] != digests[site]:
            raise IntegrityError(
                "the data are not those that the run began with", where=site, hint="Run the study anew."
            )
    folder.write(DIGESTS, {**known, **digests})
    counts = [
        {"name": site["name"], "patients": told.get(site["name"], {}).get("patients"), "parts": {}}
        for site in folder.facts["sites"]
    ]
    least = max((int(facts["min_patients"]) for facts in told.values()), default=0)
    versions = {site: str(facts["version"]) for site, facts in told.items()}
    folder.update(sites=counts, min_patients=least, versions=versions)


def _check_kinds(site: str, facts: Mapping[str, Any]) -> None:
    """Refuse what a site told where it is not of the kind that is written down, and a site of another version."""
    patients = facts.get("patients")
    kinds = {"schema": dict, "data": str, "version": str}
    fit = all(isinstance(facts[name], kind) for name, kind in kinds.items() if name in facts)
    if not fit or not (patients is None or (type(patients) is int and patients >= 0)):
        raise MessageError("what the site told of itself is not as declared", where=site)
    if facts.get("version", _VERSION) != _VERSION:
        raise ConfigurationError(
            f"the site has version {facts['version']} of multicentre, the coordinator {_VERSION}",
            where=site,
            hint="Install the same version everywhere: steps of two versions may compute different things.",
        )


def _views(site: str, schema: Mapping[str, Any]) -> MultiViewSchema:
    try:
        return MultiViewSchema.from_dict({name: value for name, value in schema.items() if name != "kind"})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MessageError("what the site told of its views cannot be read", where=site) from None


def _differing(schema: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return ", ".join(name for name in sorted({*schema, *expected}) if schema.get(name) != expected.get(name))
