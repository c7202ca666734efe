"""Regression with measured duplicates: exact copies, and copies with errors, divided by several keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.datasets import load_record_linkage
from multicentre.errors import MulticentreError
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    Row,
    Section,
    compare,
    distinct,
    mean,
    paired,
    pick,
    skipped,
)
from multicentre_papers.stratified_cv import divisions
from multicentre_papers.stratified_cv.boosting import out_of_fold
from multicentre_papers.stratified_cv.differences import untested
from multicentre_papers.stratified_cv.divisions import HASH, RANDOM, UNBIASED
from multicentre_papers.stratified_cv.keys import BIRTH_DATE, FULL, PERSON, YEAR, Key, linkage_keys, pairs_of
from multicentre_papers.stratified_cv.plan import Plan
from multicentre_papers.stratified_cv.records import Integers, Pooled

# At most six records per person, each at another hospital.
N_SITES = 6
EXACT, ERRORS = "one record per person, and exact copies of 70", "500 original records, with errors"
# A fifth of the 350 people.
N_COPIES = 70
BY_KEY = {YEAR: "hash of the year of birth", BIRTH_DATE: "hash of the birth date", FULL: "hash of name and birth date"}
SETTINGS: Mapping[str, Any] = {"objective": "reg:squarederror", "max_depth": 6, "eta": 0.3}
# A quarter of the simulations' 200 rounds: there are 350 people.
N_ROUNDS = 50
_CLAIMS = (
    "exact copies: random folds show a smaller error than without copies (mmHg)",
    "exact copies: folds by the hash of the person are closer to it",
    "copies with many errors mislead more than they leak: random folds show a larger error (mmHg)",
)


def n_fits(plan: Plan) -> int:
    """Return the number of repeats."""
    return plan.n_repeats


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Cross-validate a regression of blood pressure by every division, in repeats."""
    try:
        data = load_record_linkage()
    except MulticentreError as error:
        return [{"sample": "record_linkage", "skipped": str(error)}]
    assert data.identifier is not None  # set by the loader
    keys = linkage_keys(data.identifier)
    person = np.array(keys[PERSON])
    rows: list[Row] = []
    for repeat in range(plan.n_repeats):
        records = Pooled(data.X, data.y, person, at_sites(person, repeat))
        rows += _exact(records, repeat)
        rows += _with_errors(records, keys, repeat)
        progress(repeat + 1)
    return rows


def at_sites(person: NDArray[np.str_], seed: int) -> Integers:
    """Return a random hospital for every record; the records of one person have different hospitals."""
    random = np.random.default_rng([seed, N_SITES])
    site = np.empty(len(person), dtype=np.int64)
    for one in np.unique(person):
        rows = np.flatnonzero(person == one)
        site[rows] = random.permutation(N_SITES)[: len(rows)]
    return site


def _exact(records: Pooled, repeat: int) -> list[Row]:
    """Measure with one record per person, then with exact copies of some at another hospital."""
    random = np.random.default_rng([repeat, 1])
    order = random.permutation(len(records.y))
    first = order[np.unique(records.person[order], return_index=True)[1]]
    rows = np.concatenate([first, random.choice(first, N_COPIES, replace=False)])
    copied = Pooled(records.X[rows], records.y[rows], records.person[rows], at_sites(records.person[rows], repeat))
    single = copied.take(np.arange(len(rows)) < len(first))
    place = {"sample": EXACT, "repeat": repeat}
    return [
        {**place, "method": UNBIASED, **_measured(single, divisions.random_folds(single, repeat))},
        {**place, "method": RANDOM, **_measured(copied, divisions.random_folds(copied, repeat))},
        {**place, "method": HASH, **_measured(copied, divisions.hash_folds(copied.person, repeat))},
    ]


def _with_errors(records: Pooled, keys: Mapping[str, Key], repeat: int) -> list[Row]:
    folds = {
        RANDOM: divisions.random_folds(records, repeat),
        HASH: divisions.hash_folds(records.person, repeat),
    }
    folds |= {
        name: divisions.hash_folds(np.array([str(one) for one in keys[key]]), repeat) for key, name in BY_KEY.items()
    }
    place = {"sample": ERRORS, "repeat": repeat}
    return [{**place, "method": name, **_measured(records, division)} for name, division in folds.items()]


def _measured(records: Pooled, folds: Integers) -> dict[str, float]:
    errors = out_of_fold(records, folds, SETTINGS, N_ROUNDS) - records.y
    pairs = pairs_of(records.person)
    apart = float(np.mean(folds[pairs[:, 0]] != folds[pairs[:, 1]])) if len(pairs) else 0.0
    return {"rmse": float(np.sqrt(np.nanmean(errors**2))), "apart": apart}


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return errors, shares of separated pairs and claims."""
    measured = [row for row in rows if not row.get("skipped")]
    if not measured:
        return Section(skipped(rows), claims=untested(*_CLAIMS))
    note = (
        "Blood pressure of 350 people, 51 of whom have from two to six records with errors in names, dates, columns "
        "and outcome (simulated by others); six hospitals, with at most one record per person each. RMSE in mmHg."
    )
    blocks = [_table(sample, pick(measured, sample=sample)) for sample in (EXACT, ERRORS)]
    return Section([note, *blocks], claims=list(_claims(measured)))


def _table(sample: str, rows: Sequence[Row]) -> str:
    headings = [sample, "RMSE", "too good by", "standard error", "pairs of a person in two folds"]
    lines = []
    for method in distinct(rows, "method"):
        mine = pick(rows, method=method)
        gain, error, _ = paired(rows, "rmse", HASH, method, ["repeat"])
        lines.append(
            [method, f"{mean(mine, 'rmse'):.2f}", f"{gain:+.2f}", f"{error:.2f}", f"{mean(mine, 'apart'):.0%}"]
        )
    return markdown(headings, lines)


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    exact, errors = pick(rows, sample=EXACT), pick(rows, sample=ERRORS)
    drawn = paired(exact, "rmse", UNBIASED, RANDOM, ["repeat"])
    yield compare(_CLAIMS[0], drawn)
    hashed, spread, n_pairs = paired(exact, "rmse", UNBIASED, HASH, ["repeat"])
    yield Claim(
        _CLAIMS[1],
        abs(hashed) < abs(drawn.gain),
        f"{hashed:+.2f}, standard error {spread:.2f}, against {drawn.gain:+.2f} mmHg",
        n_repetitions=n_pairs,
    )
    yield compare(
        _CLAIMS[2],
        paired(errors, "rmse", RANDOM, HASH, ["repeat"]),
    )


LINKAGE: Exercise[Plan] = Exercise("linkage", "Regression with measured duplicates", n_fits, run, show)
