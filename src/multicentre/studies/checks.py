"""Consistency checks between the keys of a study, in addition to the checks of their types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from multicentre.core.storage import check_site_name
from multicentre.data.categories import check_references
from multicentre.errors import ConfigurationError, MulticentreError, collected, nearest_name, together
from multicentre.formula.conditions import parse_condition
from multicentre.privacy.policy import unknown_key
from multicentre.studies.saved_models import check_models_are_fixed
from multicentre.studies.study import Study
from multicentre.studies.subgroups import REGRESSIONS, level_conditions
from multicentre.studies.tables import EVENTS_FILE, ONE_FILE, OUTCOMES_FILE, AnalysisTable, OutcomeTable, SurvivalTable


def check_study(study: Study) -> None:
    """Check that the keys of a study are consistent.

    Parameters
    ----------
    study : Study
        Study whose keys have valid types.

    Raises
    ------
    ConfigurationError
        A site's files are ambiguous, a name refers to nothing, or there are fewer sites than required.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> content = {"study": {"name": "pilot", "method": "fed-mv-ppca"}, "sites": {"lyon": {}}, "run": {"quorum": 2}}
    >>> study_from_mapping(content)
    Traceback (most recent call last):
    multicentre.errors.ConfigurationError: run.quorum: quorum must be at most the number of sites (1); ...
    """
    faults: list[MulticentreError] = []
    for check in (_check_site_names, _check_analyses, _check_one_kind):
        with collected(faults):
            check(study)
    if not faults:  # the others read the analyses and the data of a study that has these in one way
        for check in (_check_data, _check_exposure, _check_labels, _check_cohort, _check_terms, _check_aligned):
            with collected(faults):
                check(study)
        for name, part in study.split().items():
            with collected(faults, f"analysis {name}" if name else ""):
                _check_validation(part)
    if faults:
        raise together(faults)


def _check_site_names(study: Study) -> None:
    for site in study.sites:
        check_site_name(site)


def _check_data(study: Study) -> None:
    tables = {"data.survival": study.data.survival, "data.table": study.data.table}
    if study.data.events is not None:
        _check_events(study)
    elif any(tables.values()):
        for where, table in tables.items():
            if table is not None:
                _check_one_table(study, table, where)
    else:
        _check_views(study)


def check_models(study: Study, *, reads_files: bool = False) -> None:
    """Check that a study for real sites fixes its models; see :func:`check_models_are_fixed`.

    Raises
    ------
    ConfigurationError
        A model is named by its path alone, or is one of a list.
    """
    for name, part in study.split().items():
        check_models_are_fixed(name, part.parameters, reads_files=reads_files)


def _check_analyses(study: Study) -> None:
    """Check that a study is either a single analysis or has blocks of several."""
    if not study.analyses:
        if not study.about.method:
            raise ConfigurationError(
                "the key must be given; it is missing",
                where="study.method",
                hint="Add it, or write blocks [[analysis]] for several analyses. All keys: multicentre docs study-file",
            )
        return
    for key, value in (
        ("study.method", study.about.method),
        ("parameters", study.parameters),
        ("validation", study.validation),
        ("study.by_site", study.about.by_site),
    ):
        if value:
            raise ConfigurationError(
                f"{key} must be omitted in a study with blocks [[analysis]]; it is given",
                where=key,
                hint="Move it into the block of an analysis: method, [analysis.parameters], [analysis.validation].",
            )
    names = [analysis.name.lower() for analysis in study.analyses]  # they name folders
    if len(set(names)) < len(names):
        raise ConfigurationError(
            "analyses must have different names; got one twice", where="analysis", hint="Give each block another name."
        )
    aligned = [name for name, part in study.split().items() if part.is_vertical]
    if aligned:
        raise ConfigurationError(
            "an analysis of different views of the same patients must be a separate study; got a block",
            where=f"analysis {aligned[0]}",
            hint="Write a study with [study] method for it.",
        )


def _check_one_kind(study: Study) -> None:
    kinds = [kind for kind in ("views", "events", "survival", "table") if getattr(study.data, kind)]
    if len(kinds) > 1 and not (study.analyses and kinds == ["survival", "table"]):
        raise ConfigurationError(
            f"a study must have one kind of data; got {len(kinds)}",
            where="data",
            hint=f"Leave out all but one of {', '.join(f'[data.{kind}]' for kind in kinds)}.",
        )


def _check_views(study: Study) -> None:
    _check_views_alone(study)
    for site, files in study.sites.items():
        _check_one_file(site, files, has_views=bool(study.data.views))
    views = [view for files in study.sites.values() for view in files]
    if not views or ONE_FILE in views:
        return
    for view in study.data.views:
        if view not in views:
            raise unknown_key(view, list(dict.fromkeys(views)), "data.views")


def _check_views_alone(study: Study) -> None:
    """Check that no identifier is also a column of a view."""
    for view, columns in study.data.views.items():
        for column in set(columns) & set(study.data.identifiers or ()):
            raise ConfigurationError(
                f"columns of views must not be identifiers; got {column!r}",
                where=f"data.views.{view}",
                hint="Leave it out of the view, or out of data.identifiers.",
            )


def _check_one_file(site: str, files: Mapping[str, Path], *, has_views: bool) -> None:
    if ONE_FILE in files and len(files) > 1:
        raise ConfigurationError(
            f"a site must have either one file for all views or one file per view; got {len(files)} with `file`",
            where=f"sites.{site}",
            hint="Name either `file` or one file per view.",
        )
    if ONE_FILE in files and not has_views:
        raise ConfigurationError(
            "the columns of every view must be listed for a file with all views",
            where=f"sites.{site}.{ONE_FILE}",
            hint="List the columns of every view in [data.views].",
        )


def _check_events(study: Study) -> None:
    if study.data.identifiers:
        raise ConfigurationError(
            "identifiers must be given with views, survival data or a table; got events",
            where="data.identifiers",
            hint="Leave them out.",
        )
    if study.data.id_column is not None:
        raise ConfigurationError(
            "id_column must be omitted for files of events",
            where="data.id_column",
            hint="Name the column in data.events.patient.",
        )
    for site, files in study.sites.items():
        for key in files:
            if key not in (EVENTS_FILE, OUTCOMES_FILE):
                raise unknown_key(key, [EVENTS_FILE, OUTCOMES_FILE], f"sites.{site}")
        if files and EVENTS_FILE not in files:
            raise ConfigurationError(
                "a site with outcomes must have a file of events; got none",
                where=f"sites.{site}",
                hint="Name its file of events.",
            )
    file_keys = [key for files in study.sites.values() for key in files]
    if study.data.label_column is not None and file_keys and OUTCOMES_FILE not in file_keys:
        raise ConfigurationError(
            "label_column must belong to a file of outcomes; no site has one",
            where="data.label_column",
            hint=f"Name a site's `{OUTCOMES_FILE}`, or leave label_column out.",
        )


def _check_one_table(study: Study, table: SurvivalTable | OutcomeTable, where: str) -> None:
    for site, files in study.sites.items():
        for key in files:
            if key != ONE_FILE:
                raise unknown_key(key, [ONE_FILE], f"sites.{site}")
    check_references(table.categories, table.references, f"{where}.references")


def _check_exposure(study: Study) -> None:
    """Check that exposure and outcome are variables of the study."""
    survival, table = study.data.survival, study.data.table
    columns = [each.columns or () for each in (survival, table) if each is not None]
    outcomes = [survival.event] if survival else []
    outcomes += [table.outcome] if table else []
    valid = {"exposure": [name for names in columns for name in names], "outcome": outcomes}
    for key, names in valid.items():
        name = getattr(study.about, key)
        if name is not None and name not in names:
            source = "columns of [data.survival] or [data.table]" if key == "exposure" else "event or outcome of [data]"
            listed = f"They are {', '.join(dict.fromkeys(names))}." if names else "List columns there."
            raise ConfigurationError(
                f"{key} must be one of the study's {source}; got {name!r}",
                where=f"study.{key}",
                hint=f"{nearest_name([name], names)}{listed}",
            )


def _check_labels(study: Study) -> None:
    """Check that labels are of variables of the study, where it lists them."""
    survival, table, views = study.data.survival, study.data.table, study.data.views
    listed = [each.columns for each in (survival, table) if each is not None] + list(views.values())
    if not listed or None in listed:
        return
    named = [name for names in listed for name in names or ()]
    named += [survival.time, survival.event] if survival else []
    named += [table.outcome] if table else []
    for name in study.data.labels:
        if name not in named:
            raise unknown_key(name, list(dict.fromkeys(named)), "data.labels")


def _check_cohort(study: Study) -> None:
    """Check the selection of records: the kind of data, the condition and the levels that it names."""
    about = study.data
    if not about.selects and not any(one.where or one.subgroups for one in study.analyses):
        return
    if about.views or about.events is not None or study.is_vertical:
        raise ConfigurationError(
            "where, complete and subgroups must be with [data.survival] or [data.table]; got views or events",
            where="data",
            hint="Leave them out, and select the records in the files.",
        )
    if about.where is not None:
        check_condition(study, about.where, "data.where")
    for block in study.analyses:
        if block.where is not None:
            check_condition(study, block.where, f"analysis {block.name}, where")
        for variable in block.subgroups or ():
            _check_subgroups(study, block, variable)


def _check_subgroups(study: Study, block: AnalysisTable, variable: str) -> None:
    where = f"analysis {block.name}, subgroups"
    if len(level_conditions(study, variable)) < 2:
        raise ConfigurationError(
            f"subgroups must be categories with at least two declared levels; got {variable!r}",
            where=where,
            hint="Declare its levels in categories of [data.survival] or [data.table]; for numbers, use where.",
        )
    if block.method not in REGRESSIONS or variable in str(block.parameters.get("formula", "")):
        raise ConfigurationError(
            f"subgroups must be of a regression whose formula is without {variable!r}; got {block.method}",
            where=where,
            hint=f"Methods: {', '.join(REGRESSIONS)}. Leave the variable, which is constant, out of the formula.",
        )


def check_condition(study: Study, text: str, where: str) -> None:
    """Check the grammar of a condition, and that the levels that it names are declared."""
    try:
        condition = parse_condition(text)
    except ConfigurationError as error:
        raise error.at(where) from None
    tables = [table for table in (study.data.survival, study.data.table) if table is not None]
    for comparison in condition.comparisons:
        for table in tables:
            levels = table.categories.get(comparison.column)
            if levels is None:
                continue
            unknown = [value for value in comparison.values if value not in levels]
            if unknown or comparison.operator in ("<", "<=", ">", ">="):
                raise ConfigurationError(
                    f"a condition on {comparison.column!r} must compare its levels by ==, != or in; got another",
                    where=where,
                    hint=f"Its levels are {', '.join(map(repr, levels))}.",
                )


def _check_aligned(study: Study) -> None:
    """Check a study of different views of the same patients."""
    if not study.is_vertical:
        return
    if study.validation is not None:
        raise ConfigurationError(
            "validation must be omitted for a method that clusters the patients of the fit",
            where="validation",
            hint="Leave the table out; the comparison reports the agreement of clusters with known groups.",
        )
    if any(study.sites.values()) and study.data.id_column is None and not study.data.identifiers:
        raise ConfigurationError(
            "id_column or identifiers must be given for sites with views of the same patients",
            where="data.id_column",
            hint='Name the column that identifies patients at all sites under [data], such as id_column = "patient", '
            'or list such columns: identifiers = ["birth_date"].',
        )


def _check_validation(study: Study) -> None:
    settings = study.validation
    if settings is None:
        return
    for site in settings.date_orders:
        if site not in study.sites:
            raise unknown_key(site, list(study.sites), "validation.date_orders")
    if (settings.strategy == "covariate") != (settings.covariate is not None):
        raise ConfigurationError(
            'covariate must be given if and only if strategy = "covariate"',
            where="validation.covariate",
            hint='Example: covariate = "age" with strategy = "covariate".',
        )
    hashes_people = settings.strategy == "hash" or (settings.strategy == "site" and settings.drop_shared)
    if hashes_people and settings.person_key is None and not study.data.identifiers:
        raise ConfigurationError(
            "person_key or data.identifiers must be given for folds of persons",
            where="validation.person_key",
            hint='List identifying columns in data.identifiers; or write person_key = "identifier" if id_column '
            "identifies the same person at all sites.",
        )
    if settings.strategy == "random" and not settings.allow_leakage:
        raise ConfigurationError(
            'allow_leakage must be true for strategy = "random"; got false',
            where="validation.strategy",
            hint='Records of one person may fall in several random folds; scores are then too optimistic. Use "hash" '
            'or "covariate", or write allow_leakage = true.',
        )
    if settings.repeats > 1 and settings.strategy != "hash":
        raise ConfigurationError(
            f'repeats must be 1 unless strategy = "hash"; got {settings.repeats}',
            where="validation.repeats",
            hint='Use strategy = "hash".',
        )


def _check_terms(study: Study) -> None:
    for site in study.privacy.sites:
        if site not in study.sites:
            raise unknown_key(site, list(study.sites), "privacy.sites")
    if study.run.quorum != "all" and study.run.quorum > len(study.sites):
        raise ConfigurationError(
            f"quorum must be at most the number of sites ({len(study.sites)}); got {study.run.quorum}",
            where="run.quorum",
            hint='Use "all" or a number between 1 and the number of sites.',
        )
