"""Operations of studies on event tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.tensor import EventTensor
from multicentre.data.kinds.kind import Kind, carry_identifiers, draw_signs, join_ids
from multicentre.errors import SchemaMismatch

Sites = Mapping[str, EventTensor]


def check_modes(sites: Sites) -> None:
    """Check that all sites have the modes of the first site; their codes may differ.

    Raises
    ------
    SchemaMismatch
        A site has different modes, or a different order of modes.

    Examples
    --------
    >>> lyon = EventTensor([[0, 0, 0]], [1.0], {"procedure": ["p1"], "diagnosis": ["d1"]})
    >>> check_modes({"lyon": lyon, "oslo": EventTensor([[0, 0, 0]], [1.0], {"drug": ["r1"], "diagnosis": ["d1"]})})
    Traceback (most recent call last):
    multicentre.errors.SchemaMismatch: oslo: modes must be those of lyon (procedure, diagnosis); ...
    """
    (first, expected), *others = sites.items()
    for site, data in others:
        if data.modes != expected.modes:
            raise SchemaMismatch(
                f"modes must be those of {first} ({', '.join(expected.modes)}); got {', '.join(data.modes)}",
                where=site,
                hint="Use the same modes in the same order at every site.",
            )


def stack_events(sites: Sites) -> EventTensor:
    """Stack the patients of all sites, with the union of the sites' codes in every mode.

    Codes are sorted, unless all sites list the same codes in the same order. Outcomes are kept if every site has them.

    Examples
    --------
    >>> lyon = EventTensor([[0, 0, 0]], [1.0], {"procedure": ["p2"], "diagnosis": ["d1"]})
    >>> oslo = EventTensor([[0, 0, 0], [1, 0, 1]], [1.0, 3.0], {"procedure": ["p1"], "diagnosis": ["d1", "d3"]})
    >>> both = stack_events({"lyon": lyon, "oslo": oslo})
    >>> both.codes["procedure"], both.coordinates.tolist()
    (('p1', 'p2'), [[0, 1, 0], [1, 0, 0], [2, 0, 1]])
    """
    check_modes(sites)
    codes = _all_codes(sites)
    aligned = [data.align(codes) for data in sites.values()]
    first_rows = np.cumsum([0, *(len(data) for data in aligned)])
    stacked = EventTensor(
        np.vstack([_with_offset(data, first) for data, first in zip(aligned, first_rows[:-1], strict=True)]),
        np.concatenate([data.counts for data in aligned]),
        codes,
        n_patients=int(first_rows[-1]),
        ids=join_ids({site: data.ids for site, data in sites.items()}),
        outcomes=_all_outcomes(aligned),
    )
    return carry_identifiers(stacked, aligned)


def amplify_events(
    data: EventTensor, row: int, factor: float, random: np.random.Generator | None = None
) -> EventTensor:
    """Multiply every count of one patient.

    Counts with a negative sign are left out, because counts cannot be negative. With a factor of zero no entry remains.

    Examples
    --------
    >>> data = EventTensor([[0, 0, 0], [1, 0, 0]], [1.0, 2.0], {"procedure": ["p1"], "diagnosis": ["d1", "d2"]})
    >>> amplify_events(data, 1, 10.0).counts.tolist()
    [20.0]
    """
    patient = data.take([row])
    counts = patient.counts * factor * draw_signs(patient.counts.shape, random)
    is_positive = counts > 0
    return EventTensor(
        patient.coordinates[is_positive],
        counts[is_positive],
        patient.codes,
        n_patients=1,
        ids=None if patient.ids is None else patient.ids.tolist(),
        outcomes=patient.outcomes,
    )


def _all_codes(sites: Sites) -> dict[str, tuple[str, ...]]:
    codes = {}
    for mode in next(iter(sites.values())).modes:
        lists = {data.codes[mode] for data in sites.values()}
        codes[mode] = lists.pop() if len(lists) == 1 else tuple(sorted(set().union(*lists)))
    return codes


def _with_offset(data: EventTensor, first_row: int) -> NDArray[np.int32]:
    coordinates = data.coordinates.copy()
    coordinates[:, 0] += first_row
    return coordinates


def _all_outcomes(sites: list[EventTensor]) -> NDArray[np.int8] | None:
    outcomes = [data.outcomes for data in sites if data.outcomes is not None]
    return np.concatenate(outcomes) if len(outcomes) == len(sites) else None


EVENTS = Kind(check=check_modes, stack=stack_events, amplify=amplify_events)
