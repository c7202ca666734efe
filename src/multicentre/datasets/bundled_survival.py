"""Loaders of survival data that other packages ship; these packages are read, never imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from multicentre.data.survival import SurvivalData
from multicentre.datasets.base import read_frame
from multicentre.datasets.sources import SOURCES
from multicentre.federation.errors import ConfigurationError


@dataclass(frozen=True)
class _Layout:
    time: str
    event: str
    unit: str
    left_out: tuple[str, ...] = ()
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)


_LAYOUTS = {
    "rossi": _Layout("week", "arrest", "weeks"),
    "gbsg2": _Layout(
        *("time", "cens", "days"),
        levels={"horTh": ("no", "yes"), "menostat": ("Pre", "Post"), "tgrade": ("I", "II", "III")},
    ),
    "lung": _Layout("time", "status", "days", left_out=("inst",)),
}


def load_lifelines(name: Literal["rossi", "gbsg2", "lung"]) -> SurvivalData:
    """Load a data set that the package lifelines ships, when it is installed.

    Of a category, all levels but the first have a column.

    ====== ======== =================================================================================================
    name   patients what
    ====== ======== =================================================================================================
    rossi       432 weeks from release to arrest (114), with financial aid, age, race, work, marriage, parole, priors
    gbsg2       686 days to recurrence of breast cancer or death (299), with treatment, age, grade, nodes, receptors
    lung        228 days to death with lung cancer (165), with age, sex and performance scores, some missing
    ====== ======== =================================================================================================

    Raises
    ------
    MissingExtra
        lifelines is not installed.
    IntegrityError
        This version of it ships other contents.
    ConfigurationError
        No set has this name.

    Examples
    --------
    >>> load_lifelines("rossi")  # doctest: +SKIP
    SurvivalData(432 patients, 114 events; 7 columns)
    """
    if name not in _LAYOUTS:
        known = ", ".join(_LAYOUTS)
        raise ConfigurationError(f"set {name!r} is unknown", where="load_lifelines", mend=f"Use one of {known}.")
    layout = _LAYOUTS[name]
    frame = read_frame(SOURCES[name])
    aside = {layout.time, layout.event, *layout.left_out}
    columns = [column for column in frame.columns if column not in aside]
    return SurvivalData.from_frame(
        frame,
        time=layout.time,
        event=layout.event,
        columns=columns,
        categories=layout.levels,
        references={category: levels[0] for category, levels in layout.levels.items()},
        unit=layout.unit,
    )
