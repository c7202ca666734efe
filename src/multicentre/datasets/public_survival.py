"""Loaders of public survival data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from multicentre.data.survival import SurvivalData
from multicentre.datasets.base import read_frame
from multicentre.datasets.partitions import split_by_label
from multicentre.datasets.sources import SOURCES
from multicentre.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

Part = Literal["train", "test"]

METABRIC_COLUMNS = (
    "MKI67",
    "EGFR",
    "PGR",
    "ERBB2",
    "hormone_treatment",
    "radiotherapy",
    "chemotherapy",
    "ER_positive",
    "age_at_diagnosis",
)

SUPPORT2_LEAKS = ("sfdm2", "slos", "charges", "totcst", "avtisst")

SUPPORT2_COLUMNS = (
    *("age", "sex", "slos", "num.co", "edu", "income", "scoma", "charges", "totcst", "avtisst", "hday", "diabetes"),
    *("dementia", "meanbp", "wblc", "hrt", "resp", "temp", "pafi", "alb", "bili", "crea", "sod", "ph", "glucose"),
    *("bun", "urine", "adlp", "adls", "adlsc", "dzgroup", "dzclass", "race", "ca", "sfdm2"),
)

_SUPPORT2_LEVELS = {
    "sex": ("female", "male"),
    "income": ("under $11k", "$11-$25k", "$25-$50k", ">$50k"),
    "dzgroup": (
        *("ARF/MOSF w/Sepsis", "CHF", "COPD", "Cirrhosis", "Colon Cancer", "Coma", "Lung Cancer", "MOSF w/Malig"),
    ),
    "dzclass": ("ARF/MOSF", "COPD/CHF/Cirrhosis", "Cancer", "Coma"),
    "race": ("asian", "black", "hispanic", "other", "white"),
    "ca": ("metastatic", "no", "yes"),
    "sfdm2": ("<2 mo. follow-up", "Coma or Intub", "SIP>=30", "adl>=4 (>=5 if sur)", "no(M2 and SIP pres)"),
}

_SUPPORT2_WITH_GAPS = ("income", "race", "sfdm2")

_NOT_RECORDED = "not recorded"

_OTHER_SITES = "other hospitals"


class LeakageWarning(UserWarning):
    """Columns of the data contain part of the outcome."""


def load_metabric(folder: str | Path | None = None, *, split: Part | None = None) -> SurvivalData:
    """Load METABRIC: overall survival with breast cancer, in months.

    There are 1904 patients, 1103 of whom died. The columns are four gene expressions (MKI67, EGFR, PGR, ERBB2), four
    binary columns (treatments and receptor status), and the age at diagnosis. No value is missing; one patient has a
    time of 0. Patients are in the order of the DeepSurv file, and their identifiers are its rows.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.
    split : {"train", "test"}, optional
        Load only the 1523 patients of DeepSurv's training set, or only the 381 of its test set.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    C. Curtis et al. (2012), The genomic and transcriptomic architecture of 2,000 breast tumours reveals novel
    subgroups, Nature 486, 346-352. J. Katzman et al. (2018), DeepSurv, BMC Medical Research Methodology 18, 24.

    Examples
    --------
    >>> load_metabric()  # doctest: +SKIP
    SurvivalData(1904 patients, 1103 events; 9 columns)
    """
    frame = _part_of(read_frame(SOURCES["metabric"], folder), "split", split)
    return SurvivalData.from_frame(
        frame, time="time", event="event", columns=METABRIC_COLUMNS, id_column="row_id", unit="months"
    )


def load_support2(folder: str | Path | None = None, *, leakage: Literal["drop", "paper"] = "drop") -> SurvivalData:
    """Load SUPPORT2: survival of seriously ill adults in hospital, in days.

    There are 9105 patients of five hospitals, 6201 of whom died. The public file does not identify the hospitals.
    Missing numbers are NaN. All levels of a category except the first have a column. The first level of categories with
    missing values (income, race, sfdm2) is "not recorded".

    Five columns contain part of the outcome, although studies have used them. ``sfdm2`` has a level for patients with a
    follow-up of less than two months, all of whom died. ``slos`` is the length of the stay, which death ends.
    ``charges``, ``totcst`` and ``avtisst`` (an average over days 3 to 25) accumulate over the stay.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.
    leakage : {"drop", "paper"}, default "drop"
        "drop" leaves the five columns out, so that 46 columns remain. "paper" keeps them, which gives the 35 features
        of the FedSurvBoost paper in 55 columns, with a warning.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.
    ConfigurationError
        `leakage` is invalid.

    Warns
    -----
    LeakageWarning
        The five columns are kept.

    References
    ----------
    W. A. Knaus et al. (1995), The SUPPORT prognostic model, Annals of Internal Medicine 122(3), 191-203.

    Examples
    --------
    >>> load_support2()  # doctest: +SKIP
    SurvivalData(9105 patients, 6201 events; 46 columns)
    """
    if leakage not in ("drop", "paper"):
        raise ConfigurationError(
            f"leakage must be 'drop' or 'paper'; got {leakage!r}", where="load_support2", hint="Correct the name."
        )
    if leakage == "paper":
        warnings.warn(
            f"the columns {', '.join(SUPPORT2_LEAKS)} contain part of the outcome; scores of models with these columns "
            "are too optimistic",
            LeakageWarning,
            stacklevel=2,
        )
    frame = read_frame(SOURCES["support2"], folder)
    left_out = SUPPORT2_LEAKS if leakage == "drop" else ()
    columns = [name for name in SUPPORT2_COLUMNS if name not in left_out]
    levels = {name: _SUPPORT2_LEVELS[name] for name in columns if name in _SUPPORT2_LEVELS}
    levels |= {name: (_NOT_RECORDED, *levels[name]) for name in _SUPPORT2_WITH_GAPS if name in levels}
    return SurvivalData.from_frame(
        frame.fillna(dict.fromkeys(_SUPPORT2_WITH_GAPS, _NOT_RECORDED)),
        time="d.time",
        event="death",
        columns=columns,
        categories=levels,
        references={name: names[0] for name, names in levels.items()},
        id_column="sno",
        unit="days",
    )


def load_tcga_brca(
    folder: str | Path | None = None,
    *,
    by: Literal["region", "site"] = "region",
    split: Part | None = None,
    min_patients: int = 20,
) -> dict[str, SurvivalData]:
    """Load TCGA-BRCA by real centres: overall survival with breast cancer, in days.

    The patients, columns and regions are those of Fed-TCGA-BRCA in FLamby: 1088 patients, of whom 151 died, 39 clinical
    columns and six regions. Eight patients of hospitals outside these regions are left out, as in FLamby.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.
    by : {"region", "site"}, default "region"
        Centres are regions (``Northeast``, ``South``, ``West``, ``Midwest``, ``Europe``, ``Canada``), or hospitals,
        which are identified by the tissue source site in the patient's barcode.
    split : {"train", "test"}, optional
        Load only one part of FLamby's split, which is stratified by region.
    min_patients : int, default 20
        Hospitals with fewer patients are merged into ``other hospitals``.

    Returns
    -------
    dict from str to SurvivalData
        Data by centre.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.
    ConfigurationError
        `by` is invalid.

    References
    ----------
    J. Ogier du Terrail et al. (2022), FLamby: datasets and benchmarks for cross-silo federated learning in realistic
    healthcare settings, NeurIPS 35.

    Examples
    --------
    >>> list(load_tcga_brca())  # doctest: +SKIP
    ['Northeast', 'South', 'West', 'Midwest', 'Europe', 'Canada']
    """
    if by not in ("region", "site"):
        raise ConfigurationError(
            f"by must be 'region' or 'site'; got {by!r}", where="load_tcga_brca", hint="Correct the name."
        )
    frame = read_frame(SOURCES["tcga_brca"], folder)
    columns = list(frame.columns)[1 : list(frame.columns).index("E")]
    frame = _part_of(frame[frame["center"].notna()], "fold", split).sort_values("center", kind="stable")
    data = SurvivalData.from_frame(frame, time="T", event="E", columns=columns, id_column="pid", unit="days")
    if by == "region":
        return split_by_label(data, frame["region"].tolist())
    return split_by_label(data, frame["source_site"].tolist(), min_patients=min_patients, others=_OTHER_SITES)


def load_gbsg(folder: str | Path | None = None) -> dict[str, SurvivalData]:
    """Load two cohorts with node-positive breast cancer: months until recurrence or death.

    There are 1546 patients of the Rotterdam tumour bank and 686 of the trial GBSG 2, with seven columns that DeepSurv
    stores without names (``x0`` to ``x6``). The two cohorts enrolled different patients, so they are a federation of
    two real sites.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Returns
    -------
    dict from str to SurvivalData
        ``rotterdam`` and ``gbsg``.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    P. Royston, D. Altman (2013), External validation of a Cox prognostic model, BMC Medical Research Methodology 13,
    33. J. Katzman et al. (2018), DeepSurv, BMC Medical Research Methodology 18, 24.

    Examples
    --------
    >>> {name: len(cohort) for name, cohort in load_gbsg().items()}  # doctest: +SKIP
    {'rotterdam': 1546, 'gbsg': 686}
    """
    frame = read_frame(SOURCES["gbsg"], folder)
    columns = [f"x{place}" for place in range(7)]
    data = SurvivalData.from_frame(frame, time="time", event="event", columns=columns, unit="months")
    return split_by_label(data, frame["split"].map({"train": "rotterdam", "test": "gbsg"}).tolist())


def _part_of(frame: pd.DataFrame, column: str, split: str | None) -> pd.DataFrame:
    if split is None:
        return frame
    if split not in ("train", "test"):
        raise ConfigurationError(f"split must be 'train' or 'test'; got {split!r}", where="split", hint="Correct it.")
    return frame[frame[column] == split]


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
    """Load a data set of the package lifelines, which must be installed.

    All levels of a category except the first have a column.

    ====== ======== =================================================================================================
    name   patients content
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
        The installed version of lifelines has different contents.
    ConfigurationError
        The name is unknown.

    Examples
    --------
    >>> load_lifelines("rossi")  # doctest: +SKIP
    SurvivalData(432 patients, 114 events; 7 columns)
    """
    if name not in _LAYOUTS:
        names = ", ".join(_LAYOUTS)
        raise ConfigurationError(
            f"name must be one of {names}; got {name!r}", where="load_lifelines", hint="Correct the name."
        )
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
