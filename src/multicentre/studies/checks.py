"""What a study must be beyond the types of its keys: which of them fit together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data.categories import check_references
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import check_site_name
from multicentre.privacy.policy import unknown_key
from multicentre.studies.methods import is_aligned

if TYPE_CHECKING:
    from multicentre.studies.study import Study
    from multicentre.studies.tables import OutcomeTable, SurvivalTable

ONE_FILE = "file"
EVENTS_FILE = "events"
OUTCOMES_FILE = "outcomes"


def check_study(study: Study) -> None:
    """Check what no single key shows.

    Parameters
    ----------
    study : Study
        Every key of which is of its type.

    Raises
    ------
    ConfigurationError
        A site's files cannot be told apart, a name is given that nothing else has, or so many sites as are needed are
        not named.

    Examples
    --------
    >>> from multicentre.studies.study import Study
    >>> content = {"study": {"name": "pilot", "method": "fed-mv-ppca"}, "sites": {"lyon": {}}, "run": {"quorum": 2}}
    >>> Study.from_mapping(content)
    Traceback (most recent call last):
    multicentre.federation.errors.ConfigurationError: run.quorum: a quorum of 2 cannot be met by 1 sites. ...
    """
    for site in study.sites:
        check_site_name(site)
    _check_one_kind(study)
    if study.data.events is not None:
        _check_events(study)
    elif study.data.survival is not None:
        _check_one_table(study, study.data.survival, "data.survival")
    elif study.data.table is not None:
        _check_one_table(study, study.data.table, "data.table")
    else:
        _check_views(study)
    _check_terms(study)
    if is_aligned(study.method):
        _check_aligned(study)
    _check_validation(study)


def _check_one_kind(study: Study) -> None:
    named = [kind for kind in ("views", "events", "survival", "table") if getattr(study.data, kind)]
    if len(named) > 1:
        raise ConfigurationError(
            "a study reads one kind of data: views, events, times to an event, or a table with an outcome",
            where="data",
            hint=f"Leave out all but one of {', '.join(f'[data.{kind}]' for kind in named)}.",
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
    """Check that no column is both an identifier, which no method sees, and listed among a view's."""
    for view, columns in study.data.views.items():
        for column in set(columns) & set(study.data.identifiers or ()):
            raise ConfigurationError(
                f"the column {column!r} is an identifier, which no method sees",
                where=f"data.views.{view}",
                hint="Leave it out of the view, or out of data.identifiers.",
            )


def _check_one_file(site: str, files: Mapping[str, Path], *, has_views: bool) -> None:
    if ONE_FILE in files and len(files) > 1:
        raise ConfigurationError(
            "the site has one file for all views and files of single views",
            where=f"sites.{site}",
            hint="Name either `file` or one file a view.",
        )
    if ONE_FILE in files and not has_views:
        raise ConfigurationError(
            "one file holds several views and nothing says which column is whose",
            where=f"sites.{site}.{ONE_FILE}",
            hint="List the columns of every view in [data.views].",
        )


def _check_events(study: Study) -> None:
    if study.data.identifiers:
        raise ConfigurationError(
            "identifiers are read beside views, times to an event, or an outcome",
            where="data.identifiers",
            hint="Leave them out.",
        )
    if study.data.id_column is not None:
        raise ConfigurationError(
            "in files of events, another key names the patients' column",
            where="data.id_column",
            hint="Name the column in data.events.patient.",
        )
    for site, files in study.sites.items():
        for key in files:
            if key not in (EVENTS_FILE, OUTCOMES_FILE):
                raise unknown_key(key, [EVENTS_FILE, OUTCOMES_FILE], f"sites.{site}")
        if files and EVENTS_FILE not in files:
            raise ConfigurationError(
                "the site has outcomes and no events", where=f"sites.{site}", hint="Name its file of events."
            )
    named = [key for files in study.sites.values() for key in files]
    if study.data.label_column is not None and named and OUTCOMES_FILE not in named:
        raise ConfigurationError(
            "a column of outcomes is named, and no site has a file of outcomes",
            where="data.label_column",
            hint=f"Name a site's `{OUTCOMES_FILE}`, or leave label_column out.",
        )


def _check_one_table(study: Study, how: SurvivalTable | OutcomeTable, where: str) -> None:
    for site, files in study.sites.items():
        for key in files:
            if key != ONE_FILE:
                raise unknown_key(key, [ONE_FILE], f"sites.{site}")
    check_references(how.categories, how.references, f"{where}.references")


def _check_aligned(study: Study) -> None:
    """Check a study of different views of the same patients."""
    if study.validation is not None:
        raise ConfigurationError(
            "the method puts the very patients of the fit into clusters, so none can be held out",
            where="validation",
            hint="Leave the table out; the comparison tells how well clusters match groups that are known.",
        )
    if any(study.sites.values()) and study.data.id_column is None and not study.data.identifiers:
        raise ConfigurationError(
            "nothing says which records of two sites are the same patient's",
            where="data.id_column",
            hint='Name the column that identifies patients at all sites: id_column = "patient", say, under [data]; or '
            'list such columns: identifiers = ["birth_date"].',
        )


def _check_validation(study: Study) -> None:
    wanted = study.validation
    if wanted is None:
        return
    for site in wanted.date_orders:
        if site not in study.sites:
            raise unknown_key(site, list(study.sites), "validation.date_orders")
    if (wanted.strategy == "covariate") != (wanted.covariate is not None):
        raise ConfigurationError(
            "folds by a covariate, and only those, need its name",
            where="validation.covariate",
            hint='Write covariate = "age", say, with strategy = "covariate".',
        )
    hashes_people = wanted.strategy == "hash" or (wanted.strategy == "site" and not wanted.allow_leakage)
    if hashes_people and wanted.person_key is None and not study.data.identifiers:
        raise ConfigurationError(
            "nothing says by what a person is known at every site",
            where="validation.person_key",
            hint='List such columns in data.identifiers; or write person_key = "identifier" where id_column is the '
            "same person's at all sites.",
        )
    if wanted.strategy == "random" and not wanted.allow_leakage:
        raise ConfigurationError(
            "records of one person may fall in several of these folds, which makes scores too good",
            where="validation.strategy",
            hint='Use "hash" or "covariate", or write allow_leakage = true.',
        )
    if wanted.repeats > 1 and wanted.strategy != "hash":
        raise ConfigurationError(
            "only folds by a hash are repeated", where="validation.repeats", hint='Use strategy = "hash".'
        )


def _check_terms(study: Study) -> None:
    for site in study.privacy.sites:
        if site not in study.sites:
            raise unknown_key(site, list(study.sites), "privacy.sites")
    if study.run.quorum != "all" and study.run.quorum > len(study.sites):
        raise ConfigurationError(
            f"a quorum of {study.run.quorum} cannot be met by {len(study.sites)} sites",
            where="run.quorum",
            hint='Use "all" or a number between 1 and the number of sites.',
        )
