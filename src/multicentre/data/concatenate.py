"""Compatibility checks between sites, and concatenation of their patients (simulations only)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from multicentre.data.kinds import kind_of
from multicentre.errors import ConfigurationError, DataError

T = TypeVar("T")


def check_together(sites: Mapping[str, object]) -> None:
    """Check that the data of several sites are of one kind and compatible.

    If sites have views, a common view must have the same columns. If they have events, they must have the same modes.

    Parameters
    ----------
    sites : mapping from str to data
        Data by site.

    Raises
    ------
    DataError
        There is no site, or two sites are incompatible (SchemaMismatch).
    ConfigurationError
        The data are of several kinds, or of an unregistered kind.

    Examples
    --------
    >>> import numpy as np
    >>> check_together({"lyon": np.zeros((4, 2)), "oslo": np.zeros((3, 2))})
    """
    _check_some(sites)
    kind_of(*sites.values()).check(sites)


def concatenate(sites: Mapping[str, T]) -> T:
    """Stack the patients of all sites, in the order of the sites.

    The result has the union of the sites' views and codes; they are missing for patients of sites without them.

    Parameters
    ----------
    sites : mapping from str to data
        Data by site, all of one kind. The ids become ``<site>/<id>`` if every site has ids.

    Raises
    ------
    DataError, ConfigurationError
        See :func:`check_together`.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.data import MultiViewData
    >>> lyon = MultiViewData({"blood": np.array([[4.1], [3.9]])})
    >>> oslo = MultiViewData({"image": np.array([[11.0]])})
    >>> concatenate({"lyon": lyon, "oslo": oslo})
    MultiViewData(3 patients; blood: 1 column, 2 patients; image: 1 column, 1 patient)
    """
    _check_some(sites)
    stacked: T = kind_of(*sites.values()).stack(sites)
    return stacked


def merge_sites(sites: Mapping[str, T], groups: Mapping[str, Sequence[str]]) -> dict[str, T]:
    """Pool groups of sites of a simulation, as for small sites that share one agent.

    Parameters
    ----------
    sites : mapping from str to data
        Data by site, all of one kind.
    groups : mapping from str to sequence of str
        Sites to pool, by the name of the pooled site. Sites in no group are unchanged.

    Returns
    -------
    dict from str to data
        Data by site. A pooled site takes the position of the first site of its group. The ids of its patients are
        ``<site>/<id>`` and therefore unique. Identifiers of persons are unchanged, so that a person at two of the sites
        can still be found.

    Raises
    ------
    ConfigurationError
        A group is empty, names an unknown site or a site of another group, or has the name of another site; or the
        data are of several kinds.
    DataError
        Two sites of a group are incompatible, or only some of them have ids, identifiers or outcomes.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.data import MultiViewData
    >>> sites = {name: MultiViewData({"blood": np.ones((4, 1))}, ids="abcd") for name in ("lyon", "oslo", "porto")}
    >>> merged = merge_sites(sites, groups={"small": ["lyon", "porto"]})
    >>> list(merged), merged["small"].ids.tolist()[3:6]
    (['small', 'oslo'], ['lyon/d', 'porto/a', 'porto/b'])
    """
    _check_groups(sites, groups)
    pooled_as = {site: group for group, members in groups.items() for site in members}
    merged = {}
    for site, data in sites.items():
        name = pooled_as.get(site, site)
        if name not in merged:
            merged[name] = _pooled({one: sites[one] for one in groups[name]}) if name in groups else data
    return merged


def _pooled(sites: Mapping[str, T]) -> T:
    for name in ("ids", "identifier", "outcomes"):
        without = [site for site, data in sites.items() if getattr(data, name, None) is None]
        if 0 < len(without) < len(sites):
            raise DataError(
                f"{name} must be present at every site of a group or at none; {len(without)} of {len(sites)} lack it",
                where=", ".join(without),
                hint=f"Add {name}, or leave these sites out of the group.",
            )
    identifiers = {site: getattr(data, "identifier", None) for site, data in sites.items()}
    columns = {site: identifier.names for site, identifier in identifiers.items() if identifier is not None}
    if len(set(columns.values())) > 1:
        raise DataError(
            "the sites of a group must have the same columns of identifiers; "
            f"got {len(set(columns.values()))} different lists",
            where=", ".join(columns),
            hint="Rename the columns, or leave these sites out of the group.",
        )
    return concatenate(sites)


def _check_groups(sites: Mapping[str, object], groups: Mapping[str, Sequence[str]]) -> None:
    members = [site for group in groups.values() for site in group]
    unknown = [site for site in members if site not in sites]
    repeated = [site for site, times in Counter(members).items() if times > 1]
    taken = [name for name, group in groups.items() if name in sites and name not in group]
    empty = [name for name, group in groups.items() if not len(group)]
    for names, problem, hint in (
        (
            unknown,
            "groups must consist of existing sites; got unknown names",
            f"The sites are {', '.join(map(str, sites))}.",
        ),
        (repeated, "a site must be in at most one group, once; got repeated names", "Remove the repetition."),
        (taken, "the name of a group must differ from those of sites outside it; got one of them", "Rename the group."),
        (empty, "a group must name at least one site; got 0", "Name its sites, or leave the group out."),
    ):
        if names:
            raise ConfigurationError(problem, where=f"groups, {', '.join(map(str, names))}", hint=hint)


def _check_some(sites: Mapping[str, object]) -> None:
    if not sites:
        raise DataError("sites must contain at least one site; got 0", where="sites", hint="Pass at least one site.")
