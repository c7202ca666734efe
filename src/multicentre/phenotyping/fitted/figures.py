"""Figures and tables of fitted phenotypes, and of memberships of the caller's patients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.estimator.figures import Bars, Figure, HeatMap, Lines, Table
from multicentre.phenotyping.fitted.communication import CommunicationTable
from multicentre.phenotyping.scores import TensorErrors
from multicentre.phenotyping.tables import MIN_SHOWN, Phenotype, PhenotypeTable

Floats = NDArray[np.float64]
# A table of ten phenotypes with five codes each, and a histogram of four, fit on one page and remain readable.
N_LISTED = 10
# Five codes per phenotype give 50 entries in a table of ten phenotypes, which still fits on one page.
N_CODES = 5
# The histogram has one series per phenotype; four remain distinguishable side by side.
N_COUNTED = 4
# Bars of shares; the first ends at the share from which a patient counts as a member.
BORDERS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
ZERO_MODEL = "model that predicts zero"


def learning_curves(history: History, fit_errors: TensorErrors | None) -> list[Figure]:
    """Return the errors per round, next to a model that predicts zero, and the relative change of the phenotypes.

    Parameters
    ----------
    history : list of dict
        One entry per round.
    fit_errors : TensorErrors, optional
        Errors of the fit, which hold those of a model that predicts zero.
    """
    if not history:
        return []
    rounds = [float(number) for number in range(1, len(history) + 1)]
    names = {"all cells": "rmse", "entries above zero": "rmse_at_entries"}
    errors = {
        label: [float(entry.get(name, math.nan)) for entry in history]
        for label, name in names.items()
        if any(name in entry for entry in history)
    }
    figures: list[Figure] = []
    if errors:
        caption = (
            "Root of the squared error over all cells, or at the entries above zero, divided by the number of entries."
        )
        if fit_errors is not None:
            errors[ZERO_MODEL] = [fit_errors.rmse_of_zero] * len(rounds)
            caption += (
                " The error at the entries is not sufficient for a comparison: a model that predicts the mean entry "
                f"everywhere reaches {fit_errors.rmse_of_constant:.4g} there and describes no phenotypes."
            )
        figures.append(Lines("Errors", caption, "fit", "round", "error (counts)", rounds, errors, {}))
    changes = [float(entry.get("change", math.nan)) for entry in history]
    if not all(math.isnan(change) for change in changes):
        caption = "Relative change of the released phenotypes per round, which ends the rounds."
        figures.append(Lines("Change", caption, "fit", "round", "relative change", rounds, {"change": changes}, {}))
    return figures


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
    """Privacy guarantee of the fit, and the ratio of patients to noise."""
    return Table(
        "Differential privacy",
        "Privacy guarantee of the fit and size of its noise. Figures of single sites are not covered by the guarantee "
        "and are left out.",
        "fit",
        ["", "what holds"],
        [list(line) for line in lines],
    )


def weights(table: PhenotypeTable, *, noised: bool = False) -> Bars:
    """Weight of every phenotype."""
    what = "Length of each phenotype's memberships over all patients, the paper's lambda"
    return Bars(
        "Weights",
        f"{'Weight of each phenotype, estimated from noised sums' if noised else what}; named after the code with the "
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
        f"The {len(rows)} heaviest phenotypes. Patients: percentage for whom the phenotype makes up a tenth of their "
        f"total or more, if these are {MIN_SHOWN} or more. Codes with their entry in the phenotype, whose length is "
        "1 per mode.",
        "model",
        ["phenotype", "weight", "% of patients", *table.modes],
        rows,
    )


def site_profiles(memberships: Mapping[str, Floats]) -> HeatMap:
    """Root mean square membership by site and phenotype (the paper's Figure 4)."""
    lengths = {site: profile(site_memberships) for site, site_memberships in memberships.items()}
    rank = len(next(iter(lengths.values())))
    return HeatMap(
        "Phenotypes by site",
        "Root mean square membership of each simulated site's patients, fitted to the shared phenotypes (the paper's "
        f"Figure 4). Hatched: fewer than {MIN_SHOWN} patients of the site have any.",
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
    return [float(one) if count >= MIN_SHOWN else None for one, count in zip(lengths, members, strict=True)]


def shares_of_phenotypes(memberships: Mapping[str, Floats], table: PhenotypeTable) -> Bars:
    """Histogram of the share of the patients' totals that the heaviest phenotypes make up."""
    pooled = np.concatenate(list(memberships.values()))
    totals = pooled.sum(axis=1, keepdims=True)
    shares = np.divide(pooled, totals, out=np.zeros_like(pooled), where=totals > 0)
    heaviest = table.phenotypes[:N_COUNTED]
    counts = {_name(one): _histogram(shares[:, one.number - 1]) for one in heaviest}
    return Bars(
        "Memberships",
        "Patients by the share of their total that each of the heaviest phenotypes makes up, at the simulated "
        f"sites together; patients without the phenotype, and bars of fewer than {MIN_SHOWN} patients, are left out.",
        "model",
        "% of patients",
        [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in pairwise(BORDERS)],
        {name: (100 * count / len(pooled)).tolist() for name, count in counts.items()},
        {},
    )


def _histogram(shares: Floats) -> Floats:
    counts = np.histogram(shares[shares > 0], bins=BORDERS)[0].astype(np.float64)
    return np.where(counts >= MIN_SHOWN, counts, 0.0)


def _name(one: Phenotype) -> str:
    leading = max((code for codes in one.codes.values() for code in codes), key=lambda code: code.weight, default=None)
    return str(one.number) if leading is None else f"{one.number} {leading.title}"
