"""Figures and tables of fitted phenotypes; those of single sites are computed from data that the caller holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.tensor import EventTensor
from multicentre.estimator.figures import Bars, Figure, HeatMap, Lines, Table
from multicentre.phenotyping.fitted.communication import CommunicationTable, communication_table
from multicentre.phenotyping.tables import LEAST_SHOWN, Phenotype, PhenotypeTable

if TYPE_CHECKING:
    from multicentre.phenotyping.fitted.model import PhenotypeModel

Floats = NDArray[np.float64]
N_LISTED = 10
N_CODES = 5
N_COUNTED = 4
BORDERS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
ZERO_MODEL = "model that says zero"


def show_fit(model: PhenotypeModel, sites: Mapping[str, EventTensor]) -> list[Figure]:
    """Return the figures of a fitted model.

    Parameters
    ----------
    model : PhenotypeModel
    sites : mapping of str to EventTensor
        Patients by site, of a simulation; empty where the caller has none. After a differentially private fit nothing
        is computed from them: the promise covers what was released, and no more.
    """
    table = model.phenotypes(N_CODES, titles=True)
    shown = learning_curves(model)
    if model.traffic_ is not None:
        shown.append(communication(communication_table(model)))
    told = model.privacy_lines()
    if told:
        shown.append(promise(told))
    shown += [weights(table, noised=model.privacy_ is not None), leading_codes(table)]
    if sites and model.privacy_ is None:
        memberships = {site: model.transform(data) for site, data in sites.items()}
        shown += [site_profiles(memberships), shares_of_phenotypes(memberships, table)]
    return shown


def learning_curves(model: PhenotypeModel) -> list[Figure]:
    """Errors round by round beside that of the model that says zero, and how far the phenotypes still moved."""
    history = model.history_
    if not history:
        return []
    rounds = [float(number) for number in range(1, len(history) + 1)]
    names = {"all cells": "rmse", "entries above zero": "rmse_at_entries"}
    errors = {
        label: [float(entry.get(name, math.nan)) for entry in history]
        for label, name in names.items()
        if any(name in entry for entry in history)
    }
    shown: list[Figure] = []
    if errors:
        told = (
            "Root of the squared error over all cells, or at the entries above zero, divided by the number of entries."
        )
        if model.errors_ is not None:
            errors[ZERO_MODEL] = [model.errors_.rmse_of_zero] * len(rounds)
            told += (
                " The error at the entries says little alone: a model that says the mean entry everywhere reaches "
                f"{model.errors_.rmse_of_constant:.4g} there, and nothing useful."
            )
        shown.append(Lines("Errors", told, "fit", "round", "error (counts)", rounds, errors, {}))
    changes = [float(entry.get("change", math.nan)) for entry in history]
    if not all(math.isnan(change) for change in changes):
        told = "Length of the change of the phenotypes that were released, over their length; by it the rounds end."
        shown.append(Lines("Change", told, "fit", "round", "relative change", rounds, {"change": changes}, {}))
    return shown


def communication(table: CommunicationTable) -> Table:
    """Bytes and seconds by part of the fit."""
    frame = table.to_frame().reset_index()
    rows: list[list[str | float | None]] = [
        [str(row["part"]), *(float(row[name]) for name in frame.columns[1:])] for _, row in frame.iterrows()
    ]
    return Table(
        "Communication",
        f"Bytes of values that {table.n_sites} sites and the coordinator exchanged, headers aside, and the seconds "
        "they take at 15 MB/s, the rate that the paper assumes. Bytes of one site are means over sites.",
        "fit",
        ["part", "calls", "bytes to a site", "bytes from a site", "bytes to all", "bytes from all", "seconds"],
        rows,
    )


def promise(lines: Sequence[tuple[str, str]]) -> Table:
    """What the fit promises a patient, and whether the noise leaves enough to see."""
    return Table(
        "Differential privacy",
        "What the fit promises, and how large its noise is. Figures of single sites are not part of a promise and are "
        "left out beside one.",
        "fit",
        ["", "what holds"],
        [list(line) for line in lines],
    )


def weights(table: PhenotypeTable, *, noised: bool = False) -> Bars:
    """Weight of every phenotype."""
    what = "Length of each phenotype's memberships over all patients, the paper's lambda"
    return Bars(
        "Weights",
        f"{'Weight of each phenotype, as the noised sums tell it' if noised else what}; named after the code with the "
        "largest entry.",
        "model",
        "weight",
        [_name(one) for one in table],
        {"weight": [one.weight for one in table]},
        {},
    )


def leading_codes(table: PhenotypeTable) -> Table:
    """The heaviest phenotypes with their leading codes."""
    rows: list[list[str | float | None]] = [
        [
            str(one.number),
            one.weight,
            None if one.prevalence is None else 100 * one.prevalence,
            *("; ".join(f"{code.title} ({code.weight:.2f})" for code in codes) for codes in one.codes.values()),
        ]
        for one in table.phenotypes[:N_LISTED]
    ]
    return Table(
        "Phenotypes",
        f"The {len(rows)} heaviest phenotypes. Patients: per cent of whose own total the phenotype makes up a tenth or "
        f"more, where known of {LEAST_SHOWN} patients or more. Codes with their entry in the phenotype, whose length "
        "is 1 a mode.",
        "model",
        ["phenotype", "weight", "% of patients", *table.modes],
        rows,
    )


def site_profiles(memberships: Mapping[str, Floats]) -> HeatMap:
    """Root mean square membership by site and phenotype (the paper's Figure 4)."""
    lengths = {site: profile(own) for site, own in memberships.items()}
    rank = len(next(iter(lengths.values())))
    return HeatMap(
        "Phenotypes by site",
        "Root mean square membership of each simulated site's patients, fitted to the shared phenotypes (the paper's "
        f"Figure 4). Hatched: fewer than {LEAST_SHOWN} patients of the site have any.",
        "model",
        list(lengths),
        [str(number) for number in range(1, rank + 1)],
        list(lengths.values()),
        "membership (rms)",
        0.0,
        max([value for row in lengths.values() for value in row if value is not None], default=1.0) or 1.0,
    )


def profile(memberships: Floats) -> list[float | None]:
    """Return the root mean square of every column, None where fewer than ten patients have any.

    Examples
    --------
    >>> profile(np.column_stack([np.full(16, 3.0), np.arange(16) < 4]))
    [3.0, None]
    """
    members = (memberships > 0).sum(axis=0)
    lengths = np.sqrt(np.mean(memberships**2, axis=0)) if len(memberships) else np.zeros(memberships.shape[1])
    return [float(one) if count >= LEAST_SHOWN else None for one, count in zip(lengths, members, strict=True)]


def shares_of_phenotypes(memberships: Mapping[str, Floats], table: PhenotypeTable) -> Bars:
    """Histogram of what share of the patients' own totals the heaviest phenotypes make up."""
    pooled = np.concatenate(list(memberships.values()))
    totals = pooled.sum(axis=1, keepdims=True)
    shares = np.divide(pooled, totals, out=np.zeros_like(pooled), where=totals > 0)
    heaviest = table.phenotypes[:N_COUNTED]
    counts = {_name(one): _histogram(shares[:, one.number - 1]) for one in heaviest}
    return Bars(
        "Memberships",
        "Patients by the share of their own total that each of the heaviest phenotypes makes up, at the simulated "
        f"sites together; patients without the phenotype, and bars of fewer than {LEAST_SHOWN} patients, are left out.",
        "model",
        "% of patients",
        [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in pairwise(BORDERS)],
        {name: (100 * count / len(pooled)).tolist() for name, count in counts.items()},
        {},
    )


def _histogram(shares: Floats) -> Floats:
    counts = np.histogram(shares[shares > 0], bins=BORDERS)[0].astype(np.float64)
    return np.where(counts >= LEAST_SHOWN, counts, 0.0)


def _name(one: Phenotype) -> str:
    leading = max((code for codes in one.codes.values() for code in codes), key=lambda code: code.weight, default=None)
    return str(one.number) if leading is None else f"{one.number} {leading.title}"
