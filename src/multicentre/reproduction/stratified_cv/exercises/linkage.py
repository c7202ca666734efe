"""Records of people some of whom are there several times, with errors: random folds, and hashes of several keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.data.tabledata import TableData
from multicentre.datasets import load_record_linkage
from multicentre.federation.errors import MulticentreError
from multicentre.reproduction._shared.markdown import markdown
from multicentre.reproduction._shared.section import (
    Claim,
    Exercise,
    Heard,
    Row,
    Section,
    distinct,
    mean,
    paired,
    pick,
    skipped,
)
from multicentre.reproduction.stratified_cv import divisions
from multicentre.reproduction.stratified_cv.boosting import out_of_fold
from multicentre.reproduction.stratified_cv.divisions import RANDOM
from multicentre.reproduction.stratified_cv.keys import BIRTH_DATE, FULL, PERSON, linkage_keys, pairs_of
from multicentre.reproduction.stratified_cv.plan import Plan
from multicentre.reproduction.stratified_cv.records import Integers, Pooled

N_SITES = 6
ONE_EACH = "one record a person"
SETTINGS: Mapping[str, Any] = {"objective": "reg:squarederror", "max_depth": 6, "eta": 0.3}
N_ROUNDS = 50


def n_fits(plan: Plan) -> int:
    """Return how many repeats are run."""
    return plan.n_repeats


def run(plan: Plan, heard: Heard) -> list[Row]:
    """Cross-validate a regression of blood pressure by every division, in repeats."""
    try:
        data = load_record_linkage()
    except MulticentreError as error:
        return [{"sample": "record_linkage", "skipped": str(error)}]
    identifier = data.identifier
    assert identifier is not None  # the loader gives them
    keys = linkage_keys(identifier)
    rows: list[Row] = []
    for repeat in range(plan.n_repeats):
        records = at_sites(data, np.array(keys[PERSON]), repeat)
        first = _one_each(records, repeat)
        rows.append(_measured(first, divisions.random_folds(first, repeat), repeat, ONE_EACH))
        rows.append(_measured(records, divisions.random_folds(records, repeat), repeat, RANDOM))
        for name, key in keys.items():
            folds = divisions.hash_folds(np.array([str(one) for one in key]), records.y, repeat)
            rows.append(_measured(records, folds, repeat, f"hash of {name}"))
        heard(repeat + 1)
    return rows


def at_sites(data: TableData, person: np.ndarray, seed: int) -> Pooled:
    """Spread records over six hospitals by chance, those of one person over different ones."""
    random = np.random.default_rng([seed, 6])
    site = np.empty(len(data), dtype=np.int64)
    for one in np.unique(person):
        rows = np.flatnonzero(person == one)
        site[rows] = random.permutation(N_SITES)[: len(rows)]
    return Pooled(data.X, data.y, person, site)


def _one_each(records: Pooled, seed: int) -> Pooled:
    order = np.random.default_rng([seed, 1]).permutation(len(records.y))
    kept = np.zeros(len(records.y), dtype=np.bool_)
    kept[order[np.unique(records.person[order], return_index=True)[1]]] = True
    return records.take(kept)


def _measured(records: Pooled, folds: Integers, repeat: int, division: str) -> Row:
    errors = out_of_fold(records, folds, SETTINGS, N_ROUNDS) - records.y
    pairs = pairs_of(records.person)
    apart = float(np.mean(folds[pairs[:, 0]] != folds[pairs[:, 1]])) if len(pairs) else 0.0
    rmse = float(np.sqrt(np.nanmean(errors**2)))
    return {"method": division, "repeat": repeat, "rmse": rmse, "pairs_apart": apart}


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show errors and pairs in two folds, and what random folds hide."""
    known = [row for row in rows if not row.get("skipped")]
    if not known:
        return Section(skipped(rows))
    headings = ["folds", "RMSE (mmHg)", "below hash of the person by", "standard error", "pairs of a person in two folds"]
    truth = f"hash of {PERSON}"
    lines = []
    for division in distinct(known, "method"):
        mine = pick(known, method=division)
        gain, error = paired(known, "rmse", truth, division, ["repeat"])
        lines.append(
            [division, f"{mean(mine, 'rmse'):.2f}", f"{gain:+.2f}", f"{error:.2f}", f"{mean(mine, 'pairs_apart'):.0%}"]
        )
    told = "500 records of 350 people (simulated, with errors) at six hospitals; 351 pairs of records are of one person."
    told = told.replace("351", str(_n_pairs()))
    return Section([told, markdown(headings, lines)], claims=list(_claims(known)))


def _n_pairs() -> int:
    data = load_record_linkage()
    return len(pairs_of(np.array(data.identifier.column("person")))) if data.identifier else 0


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    truth = f"hash of {PERSON}"
    for division, claim, expected in (
        (RANDOM, "random folds show a smaller error than there is", True),
        (f"hash of {FULL}", "so do folds by full name and birth date, which errors break", True),
        (f"hash of {BIRTH_DATE}", "folds by birth date are closer to the truth than random ones", False),
    ):
        gain, error = paired(rows, "rmse", truth, division, ["repeat"])
        if expected:
            yield Claim(claim, gain > 0, f"{gain:+.2f} mmHg, standard error {error:.2f}", clear=abs(gain) > 2 * error)
        else:
            rival = paired(rows, "rmse", truth, RANDOM, ["repeat"])[0]
            yield Claim(claim, abs(gain) < rival, f"{gain:+.2f} against {rival:+.2f} mmHg")


LINKAGE: Exercise[Plan] = Exercise("linkage", "Known duplicates with errors: an outcome that is a number", n_fits, run, show)
