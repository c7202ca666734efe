"""Times to an event, as a study handles them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.kinds.kind import Kind, carry_identifiers, draw_signs, join_ids
from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import SchemaMismatch

Sites = Mapping[str, SurvivalData]

_N_SHOWN = 5


def check_alike(sites: Sites) -> None:
    """Check that all sites have the columns of the first, in its order, and times in its unit.

    Raises
    ------
    SchemaMismatch
        A site has other columns, another order, or another unit.

    Examples
    --------
    >>> lyon = SurvivalData([[61.0]], [12.0], [1], columns=["age"], unit="months")
    >>> check_alike({"lyon": lyon, "oslo": SurvivalData([[70.0]], [365.0], [1], columns=["age"], unit="days")})
    Traceback (most recent call last):
    multicentre.federation.errors.SchemaMismatch: oslo: times are in 'days'; lyon has 'months'. ...
    """
    (first, expected), *others = sites.items()
    for site, data in others:
        if data.unit != expected.unit:
            raise SchemaMismatch(
                f"times are in {_named(data.unit)}; {first} has {_named(expected.unit)}",
                where=site,
                mend="Convert the times, and name the same unit everywhere.",
            )
        if data.columns != expected.columns:
            differing = sorted(set(data.columns) ^ set(expected.columns))
            raise SchemaMismatch(
                f"the columns differ from those of {first}: {', '.join(differing[:_N_SHOWN]) or 'their order'}",
                where=site,
                mend="Give every site the same columns in one order, and the same levels of every category.",
            )


def stack_patients(sites: Sites) -> SurvivalData:
    """Return the patients of all sites.

    Examples
    --------
    >>> lyon = SurvivalData([[61.0]], [12.0], [1], ids=["7"], columns=["age"])
    >>> both = stack_patients({"lyon": lyon, "oslo": SurvivalData([[70.0]], [9.0], [0], ids=["7"], columns=["age"])})
    >>> both.ids.tolist(), both.time.tolist()
    (['lyon/7', 'oslo/7'], [12.0, 9.0])
    """
    check_alike(sites)
    parts = list(sites.values())
    stacked = SurvivalData(
        np.vstack([data.X for data in parts]),
        np.concatenate([data.time for data in parts]),
        np.concatenate([data.event for data in parts]),
        join_ids({site: data.ids for site, data in sites.items()}),
        columns=parts[0].columns,
        unit=parts[0].unit,
    )
    return carry_identifiers(stacked, parts)


def amplify_patient(
    data: SurvivalData, row: int, factor: float, random: np.random.Generator | None = None
) -> SurvivalData:
    """Return one patient with columns and time multiplied; columns of zeros and ones, events and gaps stay.

    A time keeps its sign, for none is negative.

    Examples
    --------
    >>> data = SurvivalData([[61.0, 1.0], [70.0, 0.0]], [12.0, 30.0], [1, 0])
    >>> amplified = amplify_patient(data, 1, 10.0)
    >>> amplified.X.tolist(), amplified.time.tolist()
    ([[700.0, 0.0]], [300.0])
    """
    patient = data.take([row])
    is_flag = (np.isnan(data.X) | np.isin(data.X, (0.0, 1.0))).all(axis=0)
    times = np.where(is_flag, 1.0, factor * draw_signs(patient.X.shape, random))
    return SurvivalData(
        patient.X * times,
        patient.time * factor,
        patient.event,
        None if patient.ids is None else patient.ids.tolist(),
        columns=patient.columns,
        unit=patient.unit,
    )


def _named(unit: str) -> str:
    return repr(unit) if unit else "no unit"


SURVIVAL = Kind(check=check_alike, stack=stack_patients, amplify=amplify_patient)
