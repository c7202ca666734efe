"""Splits of a data set into centres, as in the four scenarios of Balelli, Silva and Lorenzi (IPMI 2021), table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.datasets.labelled import LabelledMultiView
from multicentre.errors import ConfigurationError

Scenario = Literal["IID", "G", "K", "G/K"]
Rows = NDArray[np.int64]

_WHERE = "split_scenario"


def split_scenario(
    labelled: LabelledMultiView,
    scenario: Scenario,
    n_sites: int,
    random_state: int | np.random.Generator,
    *,
    views_missing: Sequence[str] | None = None,
    groups_per_site: int | None = None,
) -> dict[str, LabelledMultiView]:
    """Assign patients to centres, every patient to exactly one.

    ======== =======================================================================================
    IID      every centre has every group in equal proportions, and all views
    G        in turn: a centre with all groups, one with the first half of them, one with the rest
    K        in turn: a centre with all views, one without the second view, one without the third
    G/K      both: the centres without the second view have only the first groups (the paper's figure 4)
    ======== =======================================================================================

    Centres have these roles in turn. If the number of centres is not a multiple of three, the first role, and then the
    second, has one more centre. Groups are the labels in sorted order. If their number is odd, the first half is the
    larger one.

    Each centre first receives half of an equal share of each of its groups, so that a mixed centre remains mixed. Each
    other patient is assigned to the smallest centre with the patient's group, so that sizes are similar. In IID and K,
    sizes differ by at most one.

    Parameters
    ----------
    labelled : LabelledMultiView
        Data set to split.
    scenario : {"IID", "G", "K", "G/K"}
        Scenario of table 1 of the paper.
    n_sites : int
        Number of centres; at least 3 unless the scenario is IID (or G with `groups_per_site`).
    random_state : int or Generator
        Seed of all random draws.
    views_missing : two str, optional
        Views that the second and the third role lack in K and G/K. By default the second and the third view of the
        data.
    groups_per_site : int, optional
        Number of groups of every centre in G and G/K, instead of the roles above. Every group occurs, and the numbers
        of centres of two groups differ by at most one.

    Returns
    -------
    dict from str to LabelledMultiView
        Data of ``centre-1``, ``centre-2`` and so on.

    Raises
    ------
    ConfigurationError
        The scenario is not defined for this data set or this number of centres, or a centre would have no patient.

    Examples
    --------
    >>> from multicentre.datasets import simulate_sd
    >>> centres = split_scenario(simulate_sd(0), "G/K", 3, random_state=1)
    >>> [(name, len(one), one.groups, one.data.views) for name, one in centres.items()][1]
    ('centre-2', 106, ('group_1',), ('view_1', 'view_3'))
    """
    _check_scenario(scenario, n_sites, groups_per_site)
    random = np.random.default_rng(random_state)
    groups = _groups_of_sites(labelled.groups, scenario, n_sites, groups_per_site, random)
    absent = _views_absent(labelled.data.views, scenario, n_sites, views_missing)
    rows = _deal_rows(labelled.labels, groups, random)
    centres: dict[str, LabelledMultiView] = {}
    for c, (chosen, lacking) in enumerate(zip(rows, absent, strict=True)):
        name = f"centre-{c + 1}"
        if len(chosen) == 0:
            raise ConfigurationError(
                f"every centre must have at least one patient; got {n_sites} centres for {len(labelled)} patients",
                where=f"{_WHERE}, {name}",
                hint="Use fewer centres.",
            )
        part = labelled.take(chosen)
        centres[name] = part.drop([lacking]) if lacking else part
    return centres


def cross_validation_splits(
    labelled: LabelledMultiView, n_splits: int = 3, random_state: int | np.random.Generator = 0
) -> list[tuple[Rows, Rows]]:
    """Return (train, test) rows of a cross-validation inside one centre.

    Folds are stratified: the patients of every label are assigned to the folds in turn. Sizes of folds, and numbers of
    patients per label, differ by at most one. A label with fewer patients than folds is absent from some test folds.

    Parameters
    ----------
    labelled : LabelledMultiView
        Data of one centre.
    n_splits : int
        Number of folds, from 2 to the number of patients.
    random_state : int or Generator
        Seed of all random draws.

    Raises
    ------
    ConfigurationError
        There are fewer patients than folds, or fewer than two folds.

    Examples
    --------
    >>> from multicentre.datasets import simulate_sd
    >>> [len(test) for _, test in cross_validation_splits(simulate_sd(0), random_state=1)]
    [134, 133, 133]
    """
    n_patients = len(labelled)
    if not 2 <= n_splits <= n_patients:
        raise ConfigurationError(
            f"n_splits must be from 2 to the number of patients ({n_patients}); got {n_splits}",
            where="cross_validation_splits",
            hint="Correct the number of folds.",
        )
    by_label = _shuffled_rows(labelled.labels, np.random.default_rng(random_state))
    dealt = np.concatenate(list(by_label.values()))
    fold = np.empty(n_patients, dtype=np.int64)
    fold[dealt] = np.arange(n_patients) % n_splits
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_splits)]


def _check_scenario(scenario: str, n_sites: int, groups_per_site: int | None) -> None:
    if scenario not in get_args(Scenario):
        names = ", ".join(get_args(Scenario))
        raise ConfigurationError(f"scenario must be one of {names}; got {scenario!r}", where=_WHERE, hint="Correct it.")
    if groups_per_site is not None and "G" not in scenario:
        raise ConfigurationError(
            f"groups_per_site must be None in scenario {scenario}; got {groups_per_site}",
            where=_WHERE,
            hint="Leave it out, or use G or G/K.",
        )
    least = 1 if scenario == "IID" or (scenario == "G" and groups_per_site is not None) else 3
    if n_sites < least:
        raise ConfigurationError(
            f"n_sites must be at least {least} in scenario {scenario}; got {n_sites}",
            where=_WHERE,
            hint="Use more centres.",
        )


def _groups_of_sites(
    groups: tuple[str, ...],
    scenario: Scenario,
    n_sites: int,
    groups_per_site: int | None,
    random: np.random.Generator,
) -> list[tuple[str, ...]]:
    """Return the permitted groups of every centre."""
    if "G" not in scenario:
        return [groups] * n_sites
    if groups_per_site is not None:
        return _rotate_groups(groups, n_sites, groups_per_site, random)
    if len(groups) < 2:
        raise ConfigurationError(
            f"the data must have at least two groups in scenario {scenario}; got {len(groups)}",
            where=_WHERE,
            hint="Use IID or K.",
        )
    half = (len(groups) + 1) // 2
    roles = (groups, groups[:half], groups[half:])
    return [roles[c % 3] for c in range(n_sites)]


def _rotate_groups(
    groups: tuple[str, ...], n_sites: int, groups_per_site: int, random: np.random.Generator
) -> list[tuple[str, ...]]:
    if not 1 <= groups_per_site <= len(groups) <= n_sites * groups_per_site:
        raise ConfigurationError(
            f"groups_per_site must be from 1 to {len(groups)}, the number of groups, and at least that number over the "
            f"number of centres; got {groups_per_site} for {n_sites} centres",
            where=_WHERE,
            hint="Use more centres, or a different number of groups per centre.",
        )
    shuffled = [groups[j] for j in random.permutation(len(groups))]
    starts = range(0, n_sites * groups_per_site, groups_per_site)
    return [tuple(shuffled[(start + j) % len(groups)] for j in range(groups_per_site)) for start in starts]


def _views_absent(
    views: tuple[str, ...], scenario: Scenario, n_sites: int, views_missing: Sequence[str] | None
) -> list[str | None]:
    """Return the view that every centre lacks."""
    if "K" not in scenario:
        if views_missing is not None:
            raise ConfigurationError(
                f"views_missing must be None in scenario {scenario}; got {views_missing!r}",
                where=_WHERE,
                hint="Leave it out, or use K or G/K.",
            )
        return [None] * n_sites
    lacking = tuple(views[1:3] if views_missing is None else views_missing)
    if len(set(lacking)) != 2 or not set(lacking) <= set(views):
        raise ConfigurationError(
            f"views_missing must be two different views of the data in scenario {scenario}; got {lacking!r}",
            where=_WHERE,
            hint=f"Name two of {', '.join(views)}.",
        )
    return [(None, *lacking)[c % 3] for c in range(n_sites)]


def _shuffled_rows(labels: NDArray[np.str_], random: np.random.Generator) -> Mapping[str, Rows]:
    return {str(label): random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)}


def _deal_rows(labels: NDArray[np.str_], groups: list[tuple[str, ...]], random: np.random.Generator) -> list[Rows]:
    """Return the rows of every centre: half an equal share of each of its groups, then the smallest centre first."""
    n_sites = len(groups)
    rows_of_group = _shuffled_rows(labels, random)
    centres_of = {group: [c for c in range(n_sites) if group in groups[c]] for group in rows_of_group}
    dealt: list[list[int]] = [[] for _ in range(n_sites)]
    remaining: dict[str, Rows] = {}
    for group, rows in rows_of_group.items():
        share = len(rows) // (2 * len(centres_of[group]))
        for j, c in enumerate(centres_of[group]):
            dealt[c].extend(rows[j * share : (j + 1) * share].tolist())
        remaining[group] = rows[share * len(centres_of[group]) :]
    for group in sorted(remaining, key=lambda one: len(centres_of[one])):
        for row in remaining[group]:
            smallest = min(centres_of[group], key=lambda c: (len(dealt[c]), len(groups[c])))
            dealt[smallest].append(int(row))
    return [np.array(sorted(rows), dtype=np.int64) for rows in dealt]
