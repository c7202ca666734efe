"""Operations of studies on survival data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.kinds.kind import Kind, carry_identifiers, draw_signs, join_ids
from multicentre.data.schema import check_columns
from multicentre.data.survival import SurvivalData
from multicentre.errors import SchemaMismatch

Sites = Mapping[str, SurvivalData]


def check_alike(sites: Sites) -> None:
    """Check that all sites have the columns of the first site, in the same order, and times in the same unit.

    Raises
    ------
    SchemaMismatch
        A site has different columns, a different order, or a different unit.

    Examples
    --------
    >>> lyon = SurvivalData([[61.0]], [12.0], [1], columns=["age"], unit="months")
    >>> check_alike({"lyon": lyon, "oslo": SurvivalData([[70.0]], [365.0], [1], columns=["age"], unit="days")})
    Traceback (most recent call last):
    multicentre.errors.SchemaMismatch: oslo: unit must be that of lyon ('months'); got 'days'. ...
    """
    (first, expected), *others = sites.items()
    for site, data in others:
        if data.unit != expected.unit:
            raise SchemaMismatch(
                f"unit must be that of {first} ({_describe_unit(expected.unit)}); got {_describe_unit(data.unit)}",
                where=site,
                hint="Convert the times, and set the same unit at every site.",
            )
        check_columns(site, data, first, expected)


def stack_patients(sites: Sites) -> SurvivalData:
    """Stack the patients of all sites.

    Examples
    --------
    >>> lyon = SurvivalData([[61.0]], [12.0], [1], ids=["7"], columns=["age"])
    >>> both = stack_patients({"lyon": lyon, "oslo": SurvivalData([[70.0]], [9.0], [0], ids=["7"], columns=["age"])})
    >>> both.ids.tolist(), both.time.tolist()
    (['lyon/7', 'oslo/7'], [12.0, 9.0])
    """
    check_alike(sites)
    parts = list(sites.values())
    ids = join_ids({site: data.ids for site, data in sites.items()})
    return carry_identifiers(SurvivalData.stacked(parts, ids), parts)


def amplify_patient(
    data: SurvivalData, row: int, factor: float, random: np.random.Generator | None = None
) -> SurvivalData:
    """Multiply the columns and the time of one patient; zero-one columns, events and missing entries are unchanged.

    The time keeps its sign, because times are non-negative.

    Examples
    --------
    >>> data = SurvivalData([[61.0, 1.0], [70.0, 0.0]], [12.0, 30.0], [1, 0])
    >>> amplified = amplify_patient(data, 1, 10.0)
    >>> amplified.X.tolist(), amplified.time.tolist()
    ([[700.0, 0.0]], [300.0])
    """
    patient = data.take([row]).without_identifier()
    is_flag = (np.isnan(data.X) | np.isin(data.X, (0.0, 1.0))).all(axis=0)
    times = np.where(is_flag, 1.0, factor * draw_signs(patient.X.shape, random))
    return patient.with_arrays(X=patient.X * times, time=patient.time * factor)


def _describe_unit(unit: str) -> str:
    return repr(unit) if unit else "no unit"


SURVIVAL = Kind(check=check_alike, stack=stack_patients, amplify=amplify_patient)
